"""How many blocks of a launch a multiprocessor may hold: an even share, by asking for more shared memory than the kernel uses.

A grid of about as many blocks as there are multiprocessors takes as long as the fullest of them. The hardware places a block where
there is room, and while the kernel before is ending there is room in few places: a launch that starts early (and one whose blocks are
small, at any time) piles up there. A block that asks for half of the shared memory meets no second one of its kind.

That leaves no room for other kernels that ask for as much, so where launches run side by side two shares are allowed. Measured on
an H200 (docs/experiments.md): ResNet-50 in float32 721 us without, 622 with two shares everywhere, 591 with one; Inception-v3, whose
branches run side by side, in float16 296, 299 and 335.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from taskc.ir.evaluation import evaluate
from taskc.ir.program import Program
from taskc.targets.target import Target

FEW = 4  # blocks a multiprocessor: more even out by themselves
_RESERVED = 1024  # bytes that the system takes of each block's shared memory
_UNIT = 128


def spread(p: Program, target: Target, sizes: Mapping[str, int], beside: bool) -> Program:
    """The program, asking for the shared memory that keeps its blocks from piling up at these sizes of its symbols.

    `beside`: other launches run side by side with it."""
    if not target.device.spread_blocks:
        return p
    blocks = p.branches
    for g in p.grid:
        blocks *= g if isinstance(g, int) else evaluate(g, sizes)
    share = -(-blocks // target.device.multiprocessors)
    if not 0 < share <= FEW:
        return p
    a = target.architecture
    most = 2 * share if beside else share
    least = a.shared_bytes_per_sm // (most + 1) + 1 - _RESERVED  # so that one more does not fit
    wanted = min(-(-least // _UNIT) * _UNIT, a.max_shared_bytes)
    return replace(p, shared_bytes=wanted) if wanted > p.shared_bytes else p
