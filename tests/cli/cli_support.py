"""How a command ended, and what the tests ask of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Taskc = Callable[..., "Ended"]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def failed(self, code: int, *words: str) -> None:
        """It ended with that code and a message that holds all the words, on stderr and without a traceback."""
        assert self.code == code, (self.code, self.out, self.err)
        assert "Traceback" not in self.err, self.err
        for word in words:
            assert word in self.err, (word, self.err)

    def succeeded(self, *words: str) -> None:
        assert self.code == 0, (self.code, self.out, self.err)
        for word in words:
            assert word in self.out, (word, self.out)
