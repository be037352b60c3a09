"""Where each tensor of a plan lives, and which steps must follow which.

A step follows the writers of what it reads. Two arena tensors may share bytes when every user of one precedes every writer of
the other in that partial order: list order alone does not count, since a graph may run independent steps side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from taskc.ir.arithmetic import ceildiv, maximum
from taskc.ir.expr import Index

ALIGNMENT = 256


Conflict = Callable[[str, str], bool]


@dataclass(frozen=True)
class Use:
    """What a step reads and writes, by name; `scratch` holds its own temporary memory: name -> bytes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch: Mapping[str, Index]


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in the arena by name (scratch too), the arena's size, and each step's direct predecessors."""

    offsets: Mapping[str, Index]
    arena_bytes: Index
    after: tuple[tuple[int, ...], ...]


def plan_memory(uses: Sequence[Use], sizes: Mapping[str, Index]) -> MemoryPlan:
    """`sizes` gives the bytes of every tensor that wants a place in the arena."""
    after, ancestors = order(uses)
    wanted = {**sizes}
    users: dict[str, list[int]] = {}
    writers: dict[str, list[int]] = {}
    for n, u in enumerate(uses):
        wanted.update(u.scratch)
        for name in (*u.reads, *u.writes, *u.scratch):
            if name in wanted and n not in users.setdefault(name, []):
                users[name].append(n)
        for name in (*u.writes, *u.scratch):
            if name in wanted:
                writers.setdefault(name, []).append(n)

    def precedes(a: str, b: str) -> bool:
        return all(ancestors[w] >> s & 1 for s in users[a] for w in writers.get(b, ()))

    def conflict(a: str, b: str) -> bool:
        return not (precedes(a, b) or precedes(b, a))

    names = [name for name in wanted if users.get(name)]
    offsets, static = _place_fixed([n for n in names if isinstance(wanted[n], int)], wanted, conflict)
    more, total = _place_symbolic([n for n in names if not isinstance(wanted[n], int)], wanted, conflict, static)
    return MemoryPlan({**offsets, **more}, total, after)


def order(uses: Sequence[Use]) -> tuple[tuple[tuple[int, ...], ...], list[int]]:
    """(direct predecessors, transitively reduced; all predecessors as bit sets)."""
    last: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    ancestors: list[int] = []
    after: list[tuple[int, ...]] = []
    for n, u in enumerate(uses):
        needs = {w for name in u.reads for w in last.get(name, ())}
        needs |= {r for name in u.writes for r in readers.get(name, ())}
        known = 0
        for w in needs:
            known |= ancestors[w]
        after.append(tuple(sorted(w for w in needs if not known >> w & 1)))
        for w in needs:
            known |= 1 << w
        ancestors.append(known)
        for name in u.writes:
            last.setdefault(name, []).append(n)
        for name in u.reads:
            readers.setdefault(name, []).append(n)
    return tuple(after), ancestors


def _aligned(size: Index) -> Index:
    return ceildiv(size, ALIGNMENT) * ALIGNMENT


def _place_fixed(names: Sequence[str], wanted: Mapping[str, Index], conflict: Conflict) -> tuple[dict[str, Index], int]:
    """First fit, the largest first."""
    placed: dict[str, tuple[int, int]] = {}
    top = 0
    fixed = {n: size for n in names if isinstance(size := wanted[n], int)}
    for name in sorted(fixed, key=lambda x: (-fixed[x], x)):
        size = -(-max(1, fixed[name]) // ALIGNMENT) * ALIGNMENT
        taken = sorted(placed[p] for p in placed if conflict(p, name))
        offset = 0
        for start, end in taken:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed[name] = (offset, offset + size)
        top = max(top, offset + size)
    return {name: start for name, (start, _) in placed.items()}, top


def _place_symbolic(names: Sequence[str], wanted: Mapping[str, Index], conflict: Conflict, start: int) -> tuple[dict[str, Index], Index]:
    """Slots in a row: the tensors of a slot never live at once, and the slot is as large as its largest."""
    slots: list[list[str]] = []
    for name in names:
        free = next((s for s in slots if not any(conflict(p, name) for p in s)), None)
        if free is None:
            slots.append([name])
        else:
            free.append(name)
    offsets: dict[str, Index] = {}
    offset: Index = start
    for slot in slots:
        size: Index = 1
        for name in slot:
            offsets[name] = offset
            size = maximum(size, wanted[name])
        offset = offset + _aligned(size)
    return offsets, offset
