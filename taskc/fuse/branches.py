"""Launches and what each waits for -> batches: launches that run one kernel side by side, in an order that is still possible.

Fusion joins what follows one another; this joins what begins and ends together. Launches become one where they are of one kind, wait
for the same batches, and the same batches wait for them: equal towers become one tower, layer by layer. So nothing waits for more than
it did, none of them can wait for another, and no chain of launches gets longer.

(Joining more was slower on an H200: in a CUDA graph independent launches run side by side anyway. Inception-v3 lost 2 to 3 % with any two
joined that kept the longest chain as it was, and 1 to 2 % with those that wait for the same but are waited for by different launches.)
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What launches have in common that may become one, how many may, and why none should where none should."""

    key: Hashable
    most: int
    alone: str = ""


@dataclass(frozen=True)
class Batches:
    """Every launch in one batch, batches in an order in which each follows what it waits for; `apart`: for launches that stay
    alone though another of their kind is independent of them, the first such one and why the two are not one."""

    batches: tuple[tuple[int, ...], ...]
    apart: Mapping[int, tuple[int, str]]


def find_batches(after: Sequence[Sequence[int]], kinds: Sequence[Kind]) -> Batches:
    """`after[n]`: the earlier launches that launch n waits for."""
    batch: list[int] = [0] * len(after)  # launch -> its batch, which goes by its first launch; at first as if all were one
    behind: list[frozenset[int]] = [frozenset()] * len(after)  # launch -> the batches that wait for it
    while True:
        finer, needed = _joined(after, kinds, list(zip(batch, behind, strict=True)))
        behind = _behind(after, finer)
        if finer == batch:
            break
        batch = finer
    members: dict[int, list[int]] = {}
    for n, b in enumerate(batch):
        members.setdefault(b, []).append(n)
    found = tuple(map(tuple, members.values()))
    return Batches(found, _apart(after, kinds, list(zip(needed, behind, strict=True)), [b[0] for b in found if len(b) == 1]))


def _joined(after: Sequence[Sequence[int]], kinds: Sequence[Kind], classes: Sequence[Hashable]) -> tuple[list[int], list[frozenset[int]]]:
    """(launch -> its batch, launch -> the batches that it waits for); only launches of one class are joined."""
    batch: list[int] = []
    needed: list[frozenset[int]] = []
    begun: dict[Hashable, list[int]] = {}  # the batch that the next launch of a kind and class behind these batches joins
    for n, (needs, kind) in enumerate(zip(after, kinds, strict=True)):
        needed.append(frozenset(batch[m] for m in needs))
        own = [] if kind.alone else begun.setdefault((kind.key, needed[n], classes[n]), [])
        if len(own) == kind.most:
            own.clear()
        own.append(n)
        batch.append(own[0])
    return batch, needed


def _behind(after: Sequence[Sequence[int]], batch: Sequence[int]) -> list[frozenset[int]]:
    """launch -> the batches that wait for it."""
    behind: list[set[int]] = [set() for _ in after]
    for n, needs in enumerate(after):
        for m in needs:
            behind[m].add(batch[n])
    return list(map(frozenset, behind))


def _apart(after: Sequence[Sequence[int]], kinds: Sequence[Kind], around: Sequence[tuple[frozenset[int], frozenset[int]]],
           alone: Sequence[int]) -> dict[int, tuple[int, str]]:
    """The reasons of the launches that are alone. `around`: the batches before and behind each launch."""
    waits: list[int] = []  # bit m of waits[n]: n waits for m
    alike: dict[Hashable, list[int]] = {}
    for n, needs in enumerate(after):
        known = 0
        for m in needs:
            known |= waits[m] | 1 << m
        waits.append(known)
        alike.setdefault(kinds[n].key, []).append(n)
    found: dict[int, tuple[int, str]] = {}
    for n in alone:
        others = [m for m in alike[kinds[n].key] if m != n and not (waits[n] >> m | waits[m] >> n) & 1]
        nearest = max(others, key=lambda m: (around[m] == around[n], around[m][0] == around[n][0]), default=None)
        if nearest is not None:
            found[n] = (nearest, kinds[n].alone or _difference(around[n], around[nearest], kinds[n].most))
    return found


def _difference(one: tuple[frozenset[int], frozenset[int]], other: tuple[frozenset[int], frozenset[int]], most: int) -> str:
    if one[0] != other[0]:
        return "they wait for different launches: one would hold up the other"
    if one[1] != other[1]:
        return "different launches wait for them: one would hold up what waits for the other"
    return f"a launch has at most {most} branches of this kernel"
