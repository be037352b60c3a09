"""Loops over tiles of a reduced axis that hide the latency of loads behind the computation on the tile before.

`early` and `fetch` of (t, slot) start bringing tile t into buffer `slot`, `commit` finishes it, `compute` uses it. A slot is
fetched again only after a barrier that follows its last use; after the loop every copy has landed and all threads have met.
Weights are on their way before the kernel waits for its predecessors: `early` starts what no other kernel writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskc.ir.expr import Index, Var
from taskc.ir.facts import bounds
from taskc.ir.program import Assign, Program, Variable

Step = Callable[[Index, Index], None]

MODES = ("async", "register")


def _nothing(_t: Index, _slot: Index) -> None:
    pass


def _nothing_yet() -> None:
    pass


@dataclass(frozen=True)
class Steps:
    """What happens to a tile (t, slot); `ready` runs once, between the first early steps and the first fetch."""

    fetch: Step
    commit: Step
    compute: Step
    early: Step = _nothing
    ready: Callable[[], None] = _nothing_yet


def pipeline(p: Program, mode: str, stages: int, begin: Index, end: Index, steps: Steps) -> None:
    """Tiles begin … end - 1 through a ring of `stages` slots; mode: how the ports' data travels ('register' has two slots)."""
    if mode == "async":
        _asynchronous(p, stages, begin, end, steps)
    elif stages == 2:
        _through_registers(p, begin, end, steps)
    else:
        raise ValueError(f"mode {mode} with {stages} stages; there are {MODES}, the second with 2")


def _asynchronous(p: Program, stages: int, begin: Index, end: Index, steps: Steps) -> None:
    last = bounds(end)[1]
    for stage in range(stages - 1):  # fill the ring; early copies join the first group
        with p.when(end - (begin + stage)):
            steps.early(begin + stage, stage)
    steps.ready()
    for stage in range(stages - 1):
        with p.when(end - (begin + stage)):
            steps.fetch(begin + stage, stage)
        p.do("cp_async_commit")
    slot = Var("slot", 0, stages - 1)
    p.put(Variable(slot, 0))
    with p.loop("kt", begin, end, unroll=False) as kt:
        p.do("cp_async_wait", template=(stages - 2,))
        steps.commit(kt, slot)  # nothing for a view; a value prologue works in place on its own chunks
        p.do("barrier")
        ahead = kt + (stages - 1)
        with p.when(end - ahead):
            next_tile, free = Var("kn", 0, None if last is None else last - 1), Var("sn", 0, stages - 1)
            p.put(Variable(next_tile, ahead), Variable(free, (slot + (stages - 1)) % stages))
            steps.early(next_tile, free)
            steps.fetch(next_tile, free)
        p.do("cp_async_commit")
        steps.compute(kt, slot)
        p.put(Assign(slot, (slot + 1) % stages))
    p.do("cp_async_wait", template=(0,))
    p.do("barrier")


def _through_registers(p: Program, begin: Index, end: Index, steps: Steps) -> None:
    last = bounds(end)[1]
    with p.when(end - begin):
        steps.early(begin, 0)
    steps.ready()
    with p.when(end - begin):
        steps.fetch(begin, 0)
        steps.commit(begin, 0)
    p.do("barrier")
    slot, ahead = Var("slot", 0, 1), Var("kn", 0, last)
    p.put(Variable(slot, 0))
    with p.loop("kt", begin, end, unroll=False) as kt:
        p.put(Variable(ahead, kt + 1))
        with p.when(end - ahead):
            steps.early(ahead, 0)
            steps.fetch(ahead, 0)
        steps.compute(kt, slot)
        p.put(Assign(slot, 1 - slot))
        with p.when(end - ahead):
            steps.commit(ahead, slot)
        p.do("barrier")
