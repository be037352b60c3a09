"""What happens around every step of a compile: timing, progress events, numbered dumps, stopping early. Steps do none of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """Raised after the step that `stop_after` names; carries no error."""


@dataclass(frozen=True)
class Event:
    """Progress of a step: `done` of `total` items (0 of 0 when a step begins), with the item's name."""

    step: str
    item: str = ""
    done: int = 0
    total: int = 0


Listener = Callable[[Event], None]


@dataclass
class Observer:
    """Wraps the steps of one compile. `dump` gets a numbered text file a step; `listen` gets the events."""

    dump: Path | None = None
    stop_after: str | None = None
    listen: Listener | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    _count: int = 0

    def step(self, name: str, run: Callable[[], T], text: Callable[[T], str | dict[str, str]] | None = None) -> T:
        """run(), timed and announced; its result's text (or texts by file name) is dumped."""
        self.event(Event(name))
        start = time.perf_counter()
        result = run()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        if self.dump is not None and text is not None:
            self.write(name, text(result))
        if self.stop_after == name:
            raise Stopped(name)
        return result

    def event(self, event: Event) -> None:
        if self.listen is not None:
            self.listen(event)

    def counter(self, step: str, total: int) -> Callable[[str], None]:
        """A function that reports one more finished item of a step."""
        done = 0

        def report(item: str) -> None:
            nonlocal done
            done += 1
            self.event(Event(step, item, done, total))

        return report

    def write(self, name: str, text: str | dict[str, str]) -> None:
        """NN-name.txt in the dump folder, or a folder NN-name with one file an entry."""
        assert self.dump is not None
        self._count += 1
        stem = self.dump / f"{self._count:02d}-{name}"
        if isinstance(text, str):
            stem.parent.mkdir(parents=True, exist_ok=True)
            stem.with_suffix(".txt").write_text(text)
            return
        stem.mkdir(parents=True, exist_ok=True)
        for file, content in text.items():
            (stem / file).write_text(content)
