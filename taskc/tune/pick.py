"""A tuned schedule for a problem, from the cache; the analytic model's where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from taskc.errors import Untuned
from taskc.schedules import TEMPLATES, traits_of
from taskc.targets.target import Target
from taskc.tune.cache import Cache, Measured
from taskc.tune.kernels import BuiltKernel, build_problem, build_scheduled
from taskc.tune.problem import Problem


@dataclass
class CachedSchedules:
    """Builds problems with the schedules a cache holds.

    A stale entry (made by another toolchain, or for another text of the kernel) is used with a warning. A schedule that failed
    when it was tuned is never used. `locked`: problems without a fresh entry are collected, and `finish` refuses them all at once."""

    cache: Cache
    toolchain: str
    warn: Callable[[str], None]
    locked: bool = False
    used: int = 0
    missing: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    stale: list[str] = field(default_factory=list[str])

    def __call__(self, problem: Problem) -> BuiltKernel:
        """The problem's kernel; raises NoTemplate when nothing computes it."""
        entry = self.cache.find(problem.key)
        if entry is None:
            self.missing.append(problem.nodes)
            return build_problem(problem)
        schedule = None if entry.best is None else find_schedule(problem, entry.best)
        if entry.best is None or schedule is None:
            (self.failed if entry.best is None else self.missing).append(problem.nodes)
            return build_problem(problem, {(template, text) for template, text, _ in entry.failed})
        built = build_scheduled(problem.unit, problem.target, entry.best.template, schedule)
        self.used += 1
        if entry.toolchain != self.toolchain or not built.symbol.endswith(f"_{entry.kernel}"):
            self.stale.append(problem.nodes)
        return built

    def finish(self, target: Target) -> None:
        """Warns of stale and failed entries; raises Untuned when locked and anything is stale, failed or missing."""
        if target.is_host:
            return
        if self.locked and (self.stale or self.failed or self.missing):
            nothing = f", for {len(self.failed)} nothing worked" if self.failed else ""
            raise Untuned(f"--locked: {len(self.missing)} kernel(s) are not in the cache{nothing} and {len(self.stale)} are stale for {target.name}: "
                          f"{_some(self.missing + self.failed + self.stale)}; run `taskc tune` with the same model and cache first")
        if self.stale:
            self.warn(f"{len(self.stale)} tuned schedule(s) are stale (another toolchain or another taskc made them): {_some(self.stale)}; "
                      "they are used all the same, `taskc tune` renews them")
        if self.failed:
            self.warn(f"no schedule that was tried worked for {_some(self.failed)}: one that was not tried is used; "
                      "`taskc cache show` tells the reasons, `taskc tune --top 50` tries more")


def find_schedule(problem: Problem, wanted: Measured) -> Any:
    """The schedule that is meant by its text, or None when the space no longer has it."""
    template = next((t for t in TEMPLATES if wanted.template == t.NAME), None)
    if template is None or template.why_not(problem.task, problem.target) is not None:
        return None
    space = template.space(problem.target, traits_of(problem.task))
    return next((s for s in space if str(s) == wanted.schedule), None)


def _some(names: list[str], most: int = 3) -> str:
    return "; ".join(n[:80] for n in names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
