"""A tuned schedule for a unit, from the cache; the analytic model's where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from taskc.errors import Untuned
from taskc.fuse.units import Unit
from taskc.schedules import TEMPLATES, traits_of
from taskc.targets.target import Target
from taskc.tune.cache import Cache, Entry
from taskc.tune.kernels import BuiltKernel, build_kernel, build_scheduled, canonical
from taskc.tune.problem import make_problem


@dataclass
class CachedSchedules:
    """Builds units with the schedules a cache holds.

    A stale entry (made by another toolchain, or for another text of the kernel) is used with a warning. `locked`: units
    without a fresh entry are collected, and `finish` refuses them all at once."""

    cache: Cache
    toolchain: str
    warn: Callable[[str], None]
    locked: bool = False
    used: int = 0
    missing: list[str] = field(default_factory=list[str])
    stale: list[str] = field(default_factory=list[str])

    def __call__(self, unit: Unit, target: Target, sizes: Mapping[str, int]) -> BuiltKernel:
        """The unit's kernel; raises NoTemplate when nothing computes it."""
        name = " + ".join(unit.source)
        entry = self.cache.find(make_problem(unit, target, sizes).key)
        schedule = None if entry is None else find_schedule(unit, target, entry)
        if entry is None or schedule is None:
            self.missing.append(name)
            return build_kernel(unit, target, sizes)
        built = build_scheduled(unit, target, entry.best.template, schedule)
        self.used += 1
        if entry.toolchain != self.toolchain or not built.symbol.endswith(entry.kernel):
            self.stale.append(name)
        return built

    def finish(self, target: Target) -> None:
        """Warns of stale entries; raises Untuned when locked and anything is stale or missing."""
        if target.is_host or not (self.stale or self.missing):
            return
        if self.locked:
            raise Untuned(f"--locked: {len(self.missing)} kernel(s) are not in the cache and {len(self.stale)} are stale for {target.name}: "
                          f"{_some(self.missing + self.stale)}; run `taskc tune` with the same model and cache first")
        if self.stale:
            self.warn(f"{len(self.stale)} tuned schedule(s) are stale (another toolchain or another taskc made them): {_some(self.stale)}; "
                      "they are used all the same, `taskc tune` renews them")


def find_schedule(unit: Unit, target: Target, entry: Entry) -> Any:
    """The schedule that an entry names by its text, or None when the space no longer has it."""
    task, _ = canonical(unit.task)
    template = next((t for t in TEMPLATES if entry.best.template == t.NAME), None)
    if template is None or template.why_not(task, target) is not None:
        return None
    return next((s for s in template.space(target, traits_of(task)) if str(s) == entry.best.schedule), None)


def _some(names: list[str], most: int = 3) -> str:
    return "; ".join(n[:80] for n in names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
