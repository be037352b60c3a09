"""Loops over tiles of a reduced axis that hide the latency of loads behind the computation on the tile before.

`fetch(t, slot)` starts bringing tile t into buffer `slot`, `commit(t, slot)` finishes it, `compute(t, slot)` uses it. A slot is
fetched again only after a barrier that follows its last use; after the loop every copy has landed and all threads have met.
"""

from __future__ import annotations

from collections.abc import Callable

from taskc.ir.expr import Index, Var, bounds
from taskc.ir.program import Assign, Program, Variable

Step = Callable[[Index, Index], None]

MODES = ("async", "register")


def pipeline(p: Program, mode: str, stages: int, begin: Index, end: Index, fetch: Step, commit: Step, compute: Step) -> None:
    """Tiles begin … end - 1 through a ring of `stages` slots; mode: how the ports' data travels ('register' has two slots)."""
    if mode == "async":
        _asynchronous(p, stages, begin, end, fetch, commit, compute)
    elif stages == 2:
        _through_registers(p, begin, end, fetch, commit, compute)
    else:
        raise ValueError(f"mode {mode} with {stages} stages; there are {MODES}, the second with 2")


def _asynchronous(p: Program, stages: int, begin: Index, end: Index, fetch: Step, commit: Step, compute: Step) -> None:
    last = bounds(end)[1]
    for stage in range(stages - 1):  # fill the ring
        with p.when(end - (begin + stage)):
            fetch(begin + stage, stage)
        p.do("cp_async_commit")
    slot = Var("slot", 0, stages - 1)
    p.put(Variable(slot, 0))
    with p.loop("kt", begin, end, unroll=False) as kt:
        p.do("cp_async_wait", template=(stages - 2,))
        commit(kt, slot)  # nothing for a view; a value prologue works in place on its own chunks
        p.do("barrier")
        ahead = kt + (stages - 1)
        with p.when(end - ahead):
            next_tile, free = Var("kn", 0, None if last is None else last - 1), Var("sn", 0, stages - 1)
            p.put(Variable(next_tile, ahead), Variable(free, (slot + (stages - 1)) % stages))
            fetch(next_tile, free)
        p.do("cp_async_commit")
        compute(kt, slot)
        p.put(Assign(slot, (slot + 1) % stages))
    p.do("cp_async_wait", template=(0,))
    p.do("barrier")


def _through_registers(p: Program, begin: Index, end: Index, fetch: Step, commit: Step, compute: Step) -> None:
    last = bounds(end)[1]
    with p.when(end - begin):
        fetch(begin, 0)
        commit(begin, 0)
    p.do("barrier")
    slot, ahead = Var("slot", 0, 1), Var("kn", 0, last)
    p.put(Variable(slot, 0))
    with p.loop("kt", begin, end, unroll=False) as kt:
        p.put(Variable(ahead, kt + 1))
        with p.when(end - ahead):
            fetch(ahead, 0)
        compute(kt, slot)
        p.put(Assign(slot, 1 - slot))
        with p.when(end - ahead):
            commit(ahead, slot)
        p.do("barrier")
