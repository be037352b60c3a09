"""Launches and what each waits for -> batches: launches that run one kernel side by side, in an order that is still possible.

Fusion joins what follows one another; this joins what does not. Two launches are *candidates* when they are of one kind and neither
waits for the other. They become one where

- neither waits for the other in the batched order too (batches that cross would wait for each other), and
- the longest chain of launches stays as long as it is: a batch starts after all that any of its branches waits for, and all that waits
  for a branch waits for the batch, so a launch may only be moved inside the slack that it has.

The nearest ones go first (those at the same depth: branches that began together), ties in order; so the result depends on nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Kind:
    """What launches have in common that may become one, how many may, and why none should where none should."""

    key: Hashable
    most: int
    alone: str = ""


@dataclass(frozen=True)
class Batches:
    """Every launch in one batch, batches in an order in which each follows what it waits for; `apart`: for launches that stay
    alone though they have candidates, the nearest candidate and why the two are not one."""

    batches: tuple[tuple[int, ...], ...]
    apart: Mapping[int, tuple[int, str]]


def find_batches(after: Sequence[Sequence[int]], kinds: Sequence[Kind]) -> Batches:
    """`after[n]`: the earlier launches that launch n waits for."""
    order = _Order(after)
    reasons: dict[int, tuple[int, str]] = {}
    for i, j in _candidates(after, kinds, order.start):
        if order.batch[i] == order.batch[j]:
            continue
        why = kinds[i].alone or order.why_not(i, j, kinds[i].most)
        if why is None:
            order.join(i, j)
        else:
            reasons.setdefault(i, (j, why))
            reasons.setdefault(j, (i, why))
    return Batches(order.batches(), {n: r for n, r in sorted(reasons.items()) if len(order.members[order.batch[n]]) == 1})


def _candidates(after: Sequence[Sequence[int]], kinds: Sequence[Kind], depth: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of one kind that do not wait for each other, the nearest in depth first."""
    alike: dict[Hashable, list[int]] = {}
    for n, kind in enumerate(kinds):
        alike.setdefault(kind.key, []).append(n)
    waits: list[int] = []  # bit m of waits[n]: n waits for m
    for needs in after:
        known = 0
        for m in needs:
            known |= waits[m] | 1 << m
        waits.append(known)
    pairs = [(i, j) for ns in alike.values() for i, j in combinations(ns, 2) if not waits[j] >> i & 1]
    return sorted(pairs, key=lambda p: (abs(depth[p[0]] - depth[p[1]]), p))


class _Order:
    """Launches joined to batches so far. `start` and `rest` of a batch: launches in the longest chain up to it and from it on."""

    def __init__(self, after: Sequence[Sequence[int]]) -> None:
        self.after = after
        self.batch = list(range(len(after)))  # launch -> its batch, which goes by its first launch
        self.members = {n: [n] for n in self.batch}
        self.start, self.rest = [0] * len(after), [0] * len(after)
        self.before: dict[int, set[int]] = {}
        self.behind: dict[int, set[int]] = {}
        self.measure()
        self.longest = max((s + r for s, r in zip(self.start, self.rest, strict=True)), default=0)

    def why_not(self, i: int, j: int, most: int) -> str | None:
        """Why the batches of two launches cannot become one, or None."""
        a, b = self.batch[i], self.batch[j]
        if len(self.members[a]) + len(self.members[b]) > most:
            return f"a launch has at most {most} branches of this kernel"
        if max(self.start[a], self.start[b]) + max(self.rest[a], self.rest[b]) > self.longest:
            return "one would hold up the other, and the longest chain of launches would become longer"
        first, then = (a, b) if self.start[a] < self.start[b] else (b, a)
        return "one would wait for the other, through a launch that others share" if self.waits(then, first) else None

    def waits(self, b: int, a: int) -> bool:
        """Whether batch b waits for batch a."""
        seen, left = {b}, [b]
        while left:
            for n in self.before[left.pop()]:
                if n == a:
                    return True
                if n not in seen and self.start[n] > self.start[a]:
                    seen.add(n)
                    left.append(n)
        return False

    def join(self, i: int, j: int) -> None:
        kept, gone = sorted((self.batch[i], self.batch[j]))
        moved = self.start[kept] != self.start[gone] or self.rest[kept] != self.rest[gone]
        self.members[kept] = sorted(self.members[kept] + self.members.pop(gone))
        for n in self.members[kept]:
            self.batch[n] = kept
        for mine, theirs in ((self.before, self.behind), (self.behind, self.before)):
            for n in mine.pop(gone):
                mine[kept].add(n)
                theirs[n].discard(gone)
                theirs[n].add(kept)
        if moved:
            self.relax()

    def measure(self) -> None:
        """Neighbours and chains of the launches one by one."""
        self.before = {n: set(needs) for n, needs in enumerate(self.after)}
        self.behind = {n: set[int]() for n in self.before}
        for n, needs in self.before.items():
            for m in needs:
                self.behind[m].add(n)
        self.relax()

    def relax(self) -> None:
        """Chains of the batches."""
        order = self.in_order()
        for b in order:
            self.start[b] = max((self.start[n] + 1 for n in self.before[b]), default=0)
        for b in reversed(order):
            self.rest[b] = max((self.rest[n] + 1 for n in self.behind[b]), default=0)

    def in_order(self) -> list[int]:
        """Batches, each behind what it waits for, else by their last launch: without batches the order stays as it is."""
        missing = {b: len(self.before[b]) for b in self.members}
        ready = [(self.members[b][-1], b) for b, n in missing.items() if not n]
        heapq.heapify(ready)
        out: list[int] = []
        while ready:
            _, b = heapq.heappop(ready)
            out.append(b)
            for n in self.behind[b]:
                missing[n] -= 1
                if not missing[n]:
                    heapq.heappush(ready, (self.members[n][-1], n))
        assert len(out) == len(self.members), "batches wait for each other"
        return out

    def batches(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.members[b]) for b in self.in_order())
