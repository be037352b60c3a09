"""What tuning found, in JSON lines: one line a problem, the last one counts. Safe to append to from several processes.

A line holds the winner, every schedule that was measured with its time, the failures with their reasons, the winning kernel's
text hash and the toolchain. Files from several machines merge with `cat`. Damaged and foreign lines are skipped with one warning.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILE = "schedules.jsonl"


@dataclass(frozen=True)
class Measured:
    """A schedule by its template and its text, with its time."""

    template: str
    schedule: str
    us: float


@dataclass(frozen=True)
class Entry:
    """A problem's result. `kernel` is the hash of the winner's text, `toolchain` what compiled it; others make it stale.

    `best` is None where every candidate failed. `complete`: all candidates were tried; an interrupt or the budget leaves some."""

    key: str
    problem: str
    target: str
    device: str
    nodes: str
    best: Measured | None
    kernel: str
    toolchain: str
    measured: tuple[Measured, ...] = ()
    failed: tuple[tuple[str, str, str], ...] = field(default=())  # template, schedule, reason
    complete: bool = True


class Cache:
    """The entries of a folder, by problem key."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.file = folder / FILE
        self.entries: dict[str, Entry] = {}
        if self.file.exists():
            self._read(warn)

    def _read(self, warn: Callable[[str], None]) -> None:
        bad: list[int] = []
        try:
            text = self.file.read_text(errors="replace")
        except OSError as e:
            warn(f"{self.file}: cannot be read ({e.strerror}); going on without it")
            return
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                entry = parse(line)
            except (ValueError, KeyError, TypeError, RecursionError):
                bad.append(number)
                continue
            self.entries[entry.key] = entry
        if bad:
            where = ", ".join(map(str, bad[:5])) + (" …" if len(bad) > 5 else "")
            warn(f"{self.file}: {len(bad)} damaged line(s) skipped (line {where}); delete them, or tune again")

    def find(self, key: str) -> Entry | None:
        return self.entries.get(key)

    def add(self, entry: Entry) -> None:
        """Appends in one write under a lock, so that two tuners can share the file."""
        self.entries[entry.key] = entry
        self.file.parent.mkdir(parents=True, exist_ok=True)
        data = (json.dumps(asdict(entry), sort_keys=True, separators=(",", ":")) + "\n").encode()
        fd = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_size and not _ends_with_newline(self.file):
                data = b"\n" + data  # a line cut off by a crash must not swallow this one
            os.write(fd, data)
        finally:
            os.close(fd)


def _ends_with_newline(file: Path) -> bool:
    with file.open("rb") as f:
        f.seek(-1, os.SEEK_END)
        return f.read(1) == b"\n"


def parse(line: str) -> Entry:
    """An entry from its line; raises ValueError, KeyError or TypeError when the line is not one."""
    raw: Any = json.loads(line)
    if not isinstance(raw, dict):
        raise ValueError("not an object")
    best = None if raw["best"] is None else _measured(raw["best"])
    text = {k: _text(raw[k]) for k in ("key", "problem", "target", "device", "nodes", "kernel", "toolchain")}
    measured = tuple(_measured(m) for m in raw["measured"])
    failed = tuple((_text(a), _text(b), _text(c)) for a, b, c in raw["failed"])
    return Entry(best=best, measured=measured, failed=failed, complete=raw.get("complete", True) is True, **text)


def _measured(raw: Any) -> Measured:
    us = raw["us"]
    if isinstance(us, bool) or not isinstance(us, (int, float)) or not math.isfinite(us) or us <= 0:
        raise ValueError(f"{us!r} is no time")
    return Measured(_text(raw["template"]), _text(raw["schedule"]), float(us))


def _text(x: Any) -> str:
    if not isinstance(x, str):
        raise TypeError(f"{x!r} is not a text")
    return x
