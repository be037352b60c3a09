"""Task -> (template, schedule): ranks a template's space with its analytic model. Measuring the best ones is an argument."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from taskc.errors import UsageError
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index, Var
from taskc.ir.task import Task
from taskc.schedules import TEMPLATES, Template, traits_of
from taskc.targets.target import Target

DEFAULT_SIZE = 64  # what an unbounded symbolic dim is ranked at when nobody says


@dataclass(frozen=True)
class Choice:
    """A schedule for a task, its predicted seconds, and why earlier templates did not take the task."""

    template: Template
    schedule: Any
    seconds: float
    refused: tuple[str, ...] = ()


class NoTemplate(Exception):
    """No template computes the task; the message holds each one's reason."""


def choose(task: Task, target: Target, sizes: Mapping[str, int], avoid: Collection[tuple[str, str]] = ()) -> Choice:
    """The best-ranked legal schedule over every template that can compute the task. `avoid`: (template, schedule's text) known to fail.

    Raises NoTemplate."""
    refused: list[str] = []
    best: Choice | None = None
    for template in TEMPLATES:
        why = template.why_not(task, target)
        if why is not None:
            refused.append(f"{template.NAME}: {why}")
            continue
        ranked = [r for r in rank(template, task, target, sizes) if not avoid or (template.NAME, str(r[1])) not in avoid]
        if not ranked:
            refused.append(f"{template.NAME}: no schedule fits" + (", or none worked when tuned" if avoid else ""))
        elif best is None or ranked[0][0] < best.seconds:
            best = Choice(template, ranked[0][1], ranked[0][0])
    if best is None:
        raise NoTemplate("; ".join(refused))
    return Choice(best.template, best.schedule, best.seconds, tuple(refused))


def rank(template: Template, task: Task, target: Target, sizes: Mapping[str, int]) -> list[tuple[float, Any]]:
    """(predicted seconds, schedule), the best first; ties keep the space's order."""
    scored = [(template.estimate(task, s, target, sizes), s) for s in template.space(target, traits_of(task))]
    return sorted((x for x in scored if math.isfinite(x[0])), key=lambda x: x[0])


def default_sizes(dims: Mapping[str, Var], known: Mapping[str, int]) -> dict[str, int]:
    """A size for every symbol: the known one, else a middling one inside its bounds."""
    out: dict[str, int] = {}
    for name, var in dims.items():
        size = known.get(name, DEFAULT_SIZE if var.hi is None else min(var.hi, DEFAULT_SIZE))
        out[name] = max(var.lo, -(-size // var.div) * var.div)
    return out


def all_sizes(symbols: Mapping[str, Var], derived: Mapping[str, Index], known: Mapping[str, int]) -> dict[str, int]:
    """Sizes of the model's symbols and of what is derived from them, which must fit together.

    `known` goes by the user's names (`batch` for the symbol `d_batch`). Raises UsageError for a name the model does not have."""
    names = {n.removeprefix("d_"): n for n in symbols}
    strange = [n for n in known if n not in names]
    if strange:
        raise UsageError(f"--tune-for {strange[0]}: the model has no symbolic dim of that name; it has {', '.join(names) or 'none'}")
    sizes = default_sizes(symbols, {names[n]: size for n, size in known.items()})
    return sizes | {name: evaluate(e, sizes) for name, e in derived.items()}
