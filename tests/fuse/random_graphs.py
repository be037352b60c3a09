"""Random small graphs over the operators that fusion moves about, alive and bounded."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from taskc.ir.dtype import BOOL, I64
from taskc.ir.graph import Graph, OpError
from taskc.ops.concat import Concat
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.expand import Expand
from taskc.ops.gather import Gather
from taskc.ops.matmul import MatMul
from taskc.ops.pad import Pad
from taskc.ops.pool import Pool
from taskc.ops.reduce import Reduce
from taskc.ops.reshape import Reshape
from taskc.ops.slice import Slice
from taskc.ops.softmax import Softmax
from taskc.ops.transpose import Transpose
from taskc.ops.windows import Window
from tests.graphs import GraphBuilder

MOST = 700  # elements of a value
UNARY = ("relu", "neg", "tanh", "sigmoid", "abs", "erf", "sin")
BINARY = ("add", "sub", "mul", "max", "min")


class RandomGraph:
    """Grows a graph node by node; every step picks among the values made so far, the newest more often."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.arrays = np.random.default_rng(seed)
        self.b = GraphBuilder()
        self.values: list[str] = []

    def build(self, nodes: int) -> Graph:
        for k in range(self.rng.randint(1, 2)):
            shape = [self.rng.choice([1, 2, 3, 4, 6, 8]) for _ in range(self.rng.randint(2, 4))]
            self.values.append(self.b.input(f"x{k}", shape))
        while len(self.b.nodes) < nodes:
            step = self.rng.choice(STEPS)
            try:
                made = step(self)
            except OpError:
                continue
            if made is not None and 0 < self.size(made) <= MOST:
                self.values.append(made)
        read = {i for n in self.b.nodes for i in n.inputs}
        ends = [v for v in self.values if v not in read and v not in self.b.inputs]
        extra = [v for v in self.values if v in read and v not in self.b.inputs and self.rng.random() < 0.08]
        return self.b.graph(*ends, *extra)

    def shape(self, v: str) -> tuple[int, ...]:
        return tuple(d for d in self.b.types[v].shape if isinstance(d, int))

    def size(self, v: str) -> int:
        return int(np.prod(self.shape(v)))

    def pick(self) -> str:
        """A value with dims: half of the time the newest, so that chains grow."""
        fits = [v for v in self.values if self.shape(v)]
        return fits[-1] if self.rng.random() < 0.5 else self.rng.choice(fits)

    def constant(self, *shape: int) -> str:
        return self.b.constant(self.arrays.standard_normal(shape).astype(np.float32))


def unary(g: RandomGraph) -> str:
    return g.b.add(Elementwise(g.rng.choice(UNARY)), g.pick())


def binary(g: RandomGraph) -> str:
    """With an equal shape, a broadcast constant, or any value that fits."""
    x = g.pick()
    shape = g.shape(x)
    fits = [v for v in g.values if g.shape(v) == shape]
    if g.rng.random() < 0.6:
        other = g.rng.choice(fits)
    else:
        other = g.constant(*(d if g.rng.random() < 0.5 else 1 for d in shape[g.rng.randrange(len(shape) + 1):]))
    pair = (x, other) if g.rng.random() < 0.5 else (other, x)
    return g.b.add(Elementwise(g.rng.choice(BINARY)), *pair)


def gelu(g: RandomGraph) -> str:
    x = g.pick()
    return g.b.add(Elementwise("mul"), x, g.b.add(Elementwise("sigmoid"), x))


def where(g: RandomGraph) -> str:
    x, y = g.pick(), g.constant(1)
    condition = g.b.add(Elementwise("gt"), x, y)
    assert g.b.types[condition].dtype == BOOL
    return g.b.add(Elementwise("where"), condition, x, y)


def reshape(g: RandomGraph) -> str:
    """A random factorisation of the element count."""
    x = g.pick()
    left, shape = g.size(x), []
    while left > 1 and len(shape) < 3:
        d = g.rng.choice([d for d in range(1, left + 1) if left % d == 0])
        shape.append(d)
        left //= d
    return g.b.add(Reshape((*shape, left) if left > 1 or not shape else tuple(shape)), x)


def transpose(g: RandomGraph) -> str:
    x = g.pick()
    perm = list(range(len(g.shape(x))))
    g.rng.shuffle(perm)
    return g.b.add(Transpose(tuple(perm)), x)


def slice_(g: RandomGraph) -> str:
    x = g.pick()
    starts, sizes, steps = [], [], []
    for d in g.shape(x):
        step = g.rng.choice([1, 1, 1, 2, -1, -2])
        size = g.rng.randint(1, -(-d // abs(step))) if g.rng.random() < 0.6 else -(-d // abs(step))
        span = (size - 1) * abs(step)
        low = g.rng.randint(0, d - 1 - span)
        starts.append(low if step > 0 else low + span)
        sizes.append(size)
        steps.append(step)
    return g.b.add(Slice(tuple(starts), tuple(sizes), tuple(steps)), x)


def pad(g: RandomGraph) -> str:
    x = g.pick()
    mode = g.rng.choice(["constant", "constant", "edge", "reflect", "wrap"])
    most = [2 if mode == "constant" else max(0, min(2, d - 1)) for d in g.shape(x)]
    before, after = (tuple(g.rng.randint(0, m) for m in most) for _ in range(2))
    return g.b.add(Pad(before, after, mode, g.rng.choice([0, 0, 1.5]) if mode == "constant" else 0), x)  # type: ignore[arg-type]


def concat(g: RandomGraph) -> str:
    x = g.pick()
    shape, axis = g.shape(x), g.rng.randrange(len(g.shape(x)))
    fits = [v for v in g.values if _without(g.shape(v), axis) == _without(shape, axis)]
    return g.b.add(Concat(axis), *(g.rng.choice(fits) for _ in range(g.rng.randint(1, 3))), x)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (len(shape), *shape[:axis], *shape[axis + 1 :])


def expand(g: RandomGraph) -> str:
    x = g.pick()
    return g.b.add(Expand((g.rng.choice([1, 2]), *(d if d != 1 else g.rng.choice([1, 3]) for d in g.shape(x)))), x)


def gather(g: RandomGraph) -> str:
    x = g.pick()
    axis = g.rng.randrange(len(g.shape(x)))
    d = g.shape(x)[axis]
    index = g.b.constant(g.arrays.integers(-d, d, (g.rng.randint(1, 4),)).astype(np.int64), I64)
    return g.b.add(Gather(axis), x, index)


def matmul(g: RandomGraph) -> str:
    x = g.pick()
    if len(g.shape(x)) < 2:
        return unary(g)
    a, b = g.rng.random() < 0.3, g.rng.random() < 0.3
    k, n = g.shape(x)[-2 if a else -1], g.rng.randint(1, 6)
    w = g.constant(*((n, k) if b else (k, n)))
    fits = [v for v in g.values if len(g.shape(v)) == 2 and g.shape(v)[1 if b else 0] == k]
    return g.b.add(MatMul(a, b), x, g.rng.choice(fits) if fits and g.rng.random() < 0.4 else w)


def conv(g: RandomGraph) -> str:
    """Any value made [n, c, length] or [n, c, h, w] first."""
    x = g.pick()
    shape = g.shape(x)
    if len(shape) not in (3, 4):
        return reshape(g)
    rank, c = len(shape) - 2, shape[1]
    groups = g.rng.choice([d for d in (1, 2, 3, c) if c % d == 0])
    kernel = [g.rng.randint(1, 3) for _ in range(rank)]
    strides, dilations = tuple(g.rng.choice([1, 1, 2]) for _ in range(rank)), tuple(g.rng.choice([1, 1, 2]) for _ in range(rank))
    w = g.constant(groups * g.rng.randint(1, 3), c // groups, *kernel)
    return g.b.add(Conv(strides, tuple(g.rng.randint(0, 2) for _ in range(2 * rank)), dilations, groups), x, w)


def pool(g: RandomGraph) -> str:
    x = g.pick()
    if len(g.shape(x)) != 4:
        return transpose(g)
    kernel = tuple(g.rng.randint(1, min(3, d)) for d in g.shape(x)[2:])
    pads = tuple(g.rng.randint(0, k - 1) for k in (*kernel, *kernel))
    return g.b.add(Pool(g.rng.choice(["max", "average"]), kernel, Window((g.rng.choice([1, 2]), 1), pads, (1, 1))), x)


def reduce(g: RandomGraph) -> str:
    x = g.pick()
    axes = tuple(d for d in range(len(g.shape(x))) if g.rng.random() < 0.5)
    return g.b.add(Reduce(g.rng.choice(["sum", "mean", "max"]), axes, g.rng.random() < 0.7), x)


def softmax(g: RandomGraph) -> str:
    x = g.pick()
    return g.b.add(Softmax(g.rng.randrange(len(g.shape(x)))), x)


Step = Callable[[RandomGraph], "str | None"]
STEPS: tuple[Step, ...] = (
    unary, unary, binary, binary, binary, gelu, where, reshape, reshape, transpose, transpose, slice_, pad, concat, concat, expand, gather,
    matmul, matmul, conv, conv, pool, reduce, softmax,
)
