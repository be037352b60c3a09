"""Kernels -> launches: parallel branches of the same shape in one launch, the others alone.

Kernels are alike when they run one text on one grid with memory of the same sizes; the pointers are all that differs. Alike kernels
that do not wait for each other become one launch with a branch for each (`taskc/fuse/branches.py` says when, and in which order). A
launch is saved, and small grids fill the GPU together. That does not pay, and a kernel stays alone, where

- its blocks at the sizes known fill the GPU for `WAVES` waves: what a launch costs is then little beside it;
- one grid dim is not free for the branch (no template needs it today).

A launch has at most `MOST_BRANCHES`: each one's pointers are parameters, and all of them are chosen among in every block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from taskc.artifact.memory import Use, order
from taskc.codegen.emit import emit
from taskc.fuse.branches import Kind, find_batches
from taskc.ir.evaluation import evaluate
from taskc.ir.program import Program
from taskc.ir.value import Tensor
from taskc.targets.target import Target
from taskc.tune.kernels import PLACEHOLDER, BuiltKernel
from taskc.tune.residency import spread

WAVES = 2
MOST_BRANCHES = 8
PARAMETER_BYTES = 4096  # of a kernel, on every GPU


@dataclass(frozen=True)
class BuiltLaunch:
    """One launch of a kernel for one or more branches; `apart` says why it is not one launch with one that is alike."""

    kernels: tuple[BuiltKernel, ...]
    program: Program
    symbol: str
    text: str
    apart: str = ""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The graph's tensors in the order of the kernel's parameters: each branch's in turn."""
        return tuple(t for k in self.kernels for t in k.tensors)

    @property
    def name(self) -> str:
        """The user's nodes it computes."""
        return " | ".join(nodes(k) for k in self.kernels)


def nodes(kernel: BuiltKernel) -> str:
    return " + ".join(kernel.unit.source)


def make_launches(kernels: Sequence[BuiltKernel], target: Target, sizes: Mapping[str, int], branches: bool = True) -> list[BuiltLaunch]:
    """Launches in an order in which each follows what it reads. `sizes` of symbols are those that schedules are ranked for.

    Without `branches` every kernel is a launch, in the order given."""
    after, _ = order([_use(k) for k in kernels])
    kinds = [_kind(k.symbol, k.program, target, sizes, branches) for k in kernels]
    found = find_batches(after, kinds)
    apart = {n: f"{nodes(kernels[other])}: {why}" for n, (other, why) in found.apart.items()}
    build = _Emitted()
    launches = [build([kernels[n] for n in batch], apart.get(batch[0], "")) for batch in found.batches]
    return _spread(launches, _side_by_side(after, found.batches), target, sizes)


def _side_by_side(after: Sequence[Sequence[int]], batches: Sequence[Sequence[int]]) -> list[bool]:
    """Whether another batch neither waits for a batch nor is waited for by it."""
    place = {n: b for b, batch in enumerate(batches) for n in batch}
    waits: list[int] = []  # bit a of waits[b]: batch b waits for batch a
    for batch in batches:
        known = 0
        for m in {place[m] for n in batch for m in after[n]}:
            known |= waits[m] | 1 << m
        waits.append(known)
    ordered = [w.bit_count() for w in waits]
    for w in waits:
        for a in range(w.bit_length()):
            ordered[a] += w >> a & 1
    return [n < len(batches) - 1 for n in ordered]


def _spread(launches: Sequence[BuiltLaunch], beside: Sequence[bool], target: Target, sizes: Mapping[str, int]) -> list[BuiltLaunch]:
    """The launches with what they ask for to spread their blocks: one answer a kernel, however often it is launched."""
    crowded = {x.symbol for x, b in zip(launches, beside, strict=True) if b}
    asked: dict[str, int] = {}
    for x in launches:
        bytes_ = spread(x.program, target, sizes, x.symbol in crowded).shared_bytes
        asked[x.symbol] = min(bytes_, asked.get(x.symbol, bytes_))
    return [x if x.program.shared_bytes == asked[x.symbol] else replace(x, program=replace(x.program, shared_bytes=asked[x.symbol]))
            for x in launches]


def kernels_text(kernels: Sequence[BuiltKernel]) -> dict[str, str]:
    """File name -> the kernel's text, with what it computes and by which schedule."""
    return {f"{n:03d}-{k.symbol}.cu": _commented(nodes(k), k, k.text) for n, k in enumerate(kernels)}


def launches_text(launches: Sequence[BuiltLaunch]) -> dict[str, str]:
    """The launches in order in one file, and the texts of those that have several branches."""
    shared = {f"{n:03d}-{x.symbol}.cu": _commented(x.name, x.kernels[0], x.text) for n, x in enumerate(launches) if len(x.kernels) > 1}
    listed = [f"{n:03d} {x.symbol}: {x.name}" + (f"\n    not one with {x.apart}" if x.apart else "") for n, x in enumerate(launches)]
    return {"launches.txt": "\n".join(listed) + "\n", **shared}


def _commented(name: str, kernel: BuiltKernel, text: str) -> str:
    return f"// {name}\n// schedule: {kernel.choice.schedule}\n{text}"


def _alone(k: BuiltKernel, apart: str = "") -> BuiltLaunch:
    return BuiltLaunch((k,), k.program, k.symbol, k.text, apart)


def _use(k: BuiltKernel) -> Use:
    written = [t.name in k.program.written for t in k.program.tensors]
    names = [t.name for t in k.tensors]
    return Use(tuple(n for n, w in zip(names, written, strict=True) if not w), tuple(n for n, w in zip(names, written, strict=True) if w), {})


def _kind(symbol: str, p: Program, target: Target, sizes: Mapping[str, int], branches: bool) -> Kind:
    """What alike kernels share: the symbol stands for the text, which says neither the grid nor how much memory there is."""
    if not branches:
        return Kind(symbol, 1, "branches are off")
    memory = tuple((w.name, w.dtype, str(w.elements), w.kind) for w in p.workspaces)
    own = len(p.tensors) + len(p.workspaces)
    most = min(MOST_BRANCHES, (PARAMETER_BYTES - 4 * len(p.symbols)) // (8 * own))
    waves = _waves(p, target, sizes)
    alone = f"one alone fills the GPU for {waves:.1f} waves of blocks" if waves >= WAVES else ""
    return Kind((symbol, *map(str, p.grid), p.shared_bytes, memory), most, alone if p.grid[2] == 1 else "its grid has no free dim")


def _waves(p: Program, target: Target, sizes: Mapping[str, int]) -> float:
    """How often one branch's blocks fill the GPU, as far as threads and shared memory limit those that run at once."""
    a = target.architecture
    resident = min(a.max_blocks_per_sm, a.max_threads_per_sm // p.threads)
    if p.shared_bytes:
        resident = min(resident, a.shared_bytes_per_sm // p.shared_bytes)
    blocks = 1
    for g in p.grid:
        blocks *= g if isinstance(g, int) else evaluate(g, sizes)
    return blocks / (target.device.multiprocessors * max(1, resident))


class _Emitted:
    """Makes launches of several branches; those of one text and as many branches are one kernel."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], tuple[str, str]] = {}

    def __call__(self, kernels: Sequence[BuiltKernel], apart: str) -> BuiltLaunch:
        first = kernels[0]
        if len(kernels) == 1:
            return _alone(first, apart)
        program = replace(first.program, branches=len(kernels))
        key = (first.symbol, len(kernels))
        if key not in self.known:
            text = emit(program)
            symbol = f"{first.choice.template.NAME}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            self.known[key] = (symbol, text.replace(PLACEHOLDER, symbol))
        return BuiltLaunch(tuple(kernels), program, *self.known[key])
