"""Task mappings (Hidet, section 5.1) and layouts: which worker does which tasks in which order, and where bytes lie.

One definition, `at(worker, rep)`, written with + * // % only, serves plain ints (tests, laws) and index expressions (emitted code).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from taskc.ir.expr import Index
from taskc.ir.positions import ravel, unravel

At = Callable[[Index, Index], tuple[Index, ...]]
Layout = Callable[[Index, Index], Index]


@dataclass(frozen=True)
class TaskMapping:
    """Sends each of `workers` workers to `reps` tasks of the domain `shape`, in order.

    f * g composes: each task of f becomes a block of g's tasks; f3(w) = [t1 * d2 + t2 for t1 in f(w // n2) for t2 in g(w % n2)].
    Associative, not commutative."""

    workers: int
    shape: tuple[int, ...]
    reps: int
    at: At

    def __mul__(self, other: TaskMapping) -> TaskMapping:
        f, g = self, other
        shape = tuple(a * b for a, b in zip(f.shape, g.shape, strict=True))

        def at(w: Index, r: Index) -> tuple[Index, ...]:
            outer, inner = f.at(w // g.workers, r // g.reps), g.at(w % g.workers, r % g.reps)
            return tuple(o * d + i for o, d, i in zip(outer, g.shape, inner, strict=True))

        return TaskMapping(f.workers * g.workers, shape, f.reps * g.reps, at)

    def tasks(self, worker: int) -> list[tuple[Index, ...]]:
        """The worker's tasks, in order."""
        return [self.at(worker, r) for r in range(self.reps)]

    def swapped(self) -> TaskMapping:
        """The two-dimensional mapping with its axes exchanged."""
        return TaskMapping(self.workers, self.shape[::-1], self.reps, lambda w, r: self.at(w, r)[::-1])


def spatial(*shape: int) -> TaskMapping:
    """One task for each of prod(shape) workers, in row-major order."""
    return TaskMapping(prod(shape), shape, 1, lambda w, _: unravel(w, shape))


def repeat(*shape: int) -> TaskMapping:
    """All tasks for one worker, in row-major order."""
    return TaskMapping(1, shape, prod(shape), lambda _, r: unravel(r, shape))


def column_repeat(*shape: int) -> TaskMapping:
    """All tasks for one worker, the first axis fastest."""
    return TaskMapping(1, shape, prod(shape), lambda _, r: unravel(r, shape[::-1])[::-1])


# Fragment layouts of warp-wide instructions (PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix").
MMA_M16N8_C = repeat(2, 1) * spatial(8, 4) * repeat(1, 2)  # lane, register -> (row, column) of the accumulators
LDMATRIX_ROW = TaskMapping(32, (16, 2), 1, lambda w, _: (w % 16, w // 16))  # lane -> (row, 8-column chunk) it addresses


def tile_mapping(shape: tuple[int, int], axis: int, width: int, threads: int) -> TaskMapping:
    """`threads` workers over a tile in vectors of `width` along `axis`, neighbours along the axis.

    A task is a vector; its index is that of its first element, so the domain is `shape` in steps of `width`. Raises
    ValueError where the vectors do not divide evenly among the threads (see `covers`)."""
    rows, cols = (shape[0], shape[1]) if axis == 1 else (shape[1], shape[0])
    chunks = cols // width
    if cols % width or (rows * chunks) % threads:
        raise ValueError(f"{threads} threads do not cover a {shape} tile in vectors of {width} along axis {axis}")
    if chunks >= threads:
        if chunks % threads:
            raise ValueError(f"{threads} threads do not divide {chunks} vectors a row")
        order = repeat(rows, chunks // threads) * spatial(1, threads)
    else:
        if threads % chunks:
            raise ValueError(f"{chunks} vectors a row do not divide {threads} threads")
        order = repeat(rows // (threads // chunks), 1) * spatial(threads // chunks, chunks)
    vectors = order * TaskMapping(1, (1, width), 1, lambda _w, _r: (0, 0))
    return vectors if axis == 1 else vectors.swapped()


def covers(shape: tuple[int, int], axis: int, width: int, threads: int) -> bool:
    """Whether `tile_mapping` exists."""
    rows, cols = (shape[0], shape[1]) if axis == 1 else (shape[1], shape[0])
    if cols % width:
        return False
    chunks = cols // width
    return (rows * chunks) % threads == 0 and (chunks % threads == 0 if chunks >= threads else threads % chunks == 0)


def swizzled(cols: int, chunk: int) -> Layout:
    """Row-major rows of `cols` elements whose `chunk`-element (16-byte) chunks rotate by row.

    Eight rows of one column then lie in eight different groups of banks, so ldmatrix reads without conflicts."""
    chunks = cols // chunk
    period = max(1, 8 // chunks)
    return lambda i, j: i * cols + (j // chunk + i // period) % chunks * chunk + j % chunk


def padded(cols: int, pad: int) -> Layout:
    """Row-major rows of `cols` elements, `pad` elements apart."""
    return lambda i, j: i * (cols + pad) + j


def row_major(*shape: int) -> Callable[..., Index]:
    """The plain layout."""
    return lambda *index: ravel(index, shape)
