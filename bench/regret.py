"""How good a ranking is against the measured times of a whole space: the loss of measuring only its first few."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskc.tune.cache import Entry
from taskc.tune.problem import Problem
from taskc.tune.tuner import candidates_of

Name = tuple[str, str]  # template, schedule's text
WHOLE = 10**6  # more schedules than any space has
ENOUGH = 0.9  # of a template's space must have a time for the template to count
TOPS = (1, 10)


@dataclass(frozen=True)
class Regret:
    """`loss` by top: time of the best among the first, over the best of all, minus 1. `rank`: where the best one stood (from 0).

    All of it among the schedules of `templates`; `missing` are the templates that can compute the problem too, but without enough
    times. `covered`: the share of the templates' schedules that have a time; the others count neither as picks nor as the best."""

    loss: Mapping[int, float]
    best: Name
    best_us: float
    first: Name
    rank: int
    known: int
    covered: float
    templates: tuple[str, ...]
    missing: tuple[str, ...]


def regret(ranked: Sequence[Name], times: Mapping[Name, float], tops: Sequence[int] = TOPS) -> Regret | None:
    """None when the template that is ranked first has not enough times: the best would be among what nobody picks."""
    size, timed = Counter(t for t, _ in ranked), Counter(name[0] for name in ranked if name in times)
    templates = tuple(t for t in size if timed[t] >= ENOUGH * size[t])
    known = [name for name in ranked if name[0] in templates and name in times]
    if not known or ranked[0][0] not in templates:
        return None
    best = min(known, key=lambda name: times[name])
    loss = {top: min(times[name] for name in known[:top]) / times[best] - 1 for top in tops}
    covered = len(known) / sum(size[t] for t in templates)
    return Regret(loss, best, times[best], known[0], known.index(best), len(known), covered, templates, tuple(t for t in size if t not in templates))


def ranking(problem: Problem) -> list[Name]:
    """Every schedule of every template that can compute the problem, the best-ranked first."""
    return [(template, str(schedule)) for template, schedule in candidates_of(problem, WHOLE)]


def times_of(entry: Entry) -> dict[Name, float]:
    return {(m.template, m.schedule): m.us for m in entry.measured}


def summary(losses: Sequence[float]) -> tuple[float, float] | None:
    """(geometric mean of 1 + loss, minus 1; the worst); None of nothing."""
    if not losses:
        return None
    return math.exp(sum(math.log1p(x) for x in losses) / len(losses)) - 1, max(losses)


def shape_of(text: str, operands: bool) -> str | None:
    """Of a problem's text what says how much work it is: target and device, the contraction's extents, and on demand how its
    operands are read. None when it is no contraction."""
    lines = text.splitlines()
    found = [line for line in lines if re.match(r"contraction |precision |target ", line)]
    if not any(line.startswith("contraction ") for line in found):
        return None
    return "\n".join(found + [line for line in lines if operands and re.match(r"  [ab] = ", line)])


def match(problems: Sequence[Problem], entries: Sequence[Entry]) -> list[tuple[Problem, Entry, str]]:
    """(problem, entry, how) for every entry that stands for one of the problems: 'key', or where the key no longer exists the
    first problem with the same 'operands', or the same 'extents'. A problem that has an entry of its own gets no other."""
    by_key = {p.key: p for p in problems}
    found = [(by_key[e.key], e, "key") for e in entries if e.key in by_key]
    taken = {p.key for p, _, _ in found}
    for how, operands in (("operands", True), ("extents", False)):
        by_shape: dict[str, Problem] = {}
        for p in problems:
            shape = shape_of(p.text, operands)
            if shape is not None and p.key not in taken:
                by_shape.setdefault(shape, p)
        used = {id(e) for _, e, _ in found}
        again = [(by_shape[s], e, how) for e in entries if id(e) not in used and (s := shape_of(e.problem, operands)) in by_shape]
        found += again
        taken |= {p.key for p, _, _ in again}
    return found
