"""Channels-last layouts: few transposes, the same meaning, in graphs made to be awkward."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from taskc.ir.graph import Graph
from taskc.ops.concat import Concat
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.pad import Pad
from taskc.ops.pool import Pool
from taskc.ops.reduce import Reduce
from taskc.ops.reshape import Reshape
from taskc.ops.slice import Slice
from taskc.ops.softmax import Softmax
from taskc.ops.transpose import Transpose
from taskc.ops.windows import Window
from taskc.passes.layout import put_channels_last
from taskc.passes.pipeline import default_passes, run_passes
from tests.passes.rule_graphs import Make, normal, same_meaning

SAME = Conv((1, 1), (1, 1, 1, 1), (1, 1))
F = np.float32


def e(function: str) -> Elementwise:
    return Elementwise(function)


def transposes(g: Graph) -> int:
    return sum(isinstance(n.op, Transpose) for n in g.nodes)


def run(m: Make, *outputs: str) -> Graph:
    before = m.graph(*outputs)
    after = run_passes(before, default_passes())
    same_meaning(before, after, m.feeds, 1e-5)
    assert all(n.op.channels_last for n in after.nodes if isinstance(n.op, Conv))
    return after


def conv_relu(m: Make, x: str, channels: int, out: int) -> str:
    y = m.add(e("add"), m.add(SAME, x, normal(out, channels, 3, 3)), normal(out, 1, 1))
    return m.add(e("relu"), y)


def test_a_residual_network_with_a_classifier_has_one_transpose() -> None:
    m = Make(x=normal(2, 3, 8, 8))
    a = conv_relu(m, "x", 3, 6)
    b = m.add(e("relu"), m.add(e("add"), conv_relu(m, a, 6, 6), a))
    c = m.add(Concat(1), b, m.add(Pool("max", (3, 3), Window((1, 1), (1, 1, 1, 1), (1, 1))), b), conv_relu(m, b, 6, 5))
    d = m.add(Pad((0, 0, 1, 0), (0, 0, 0, 2)), c)
    s = m.add(Slice((0, 2, 1, 0), (2, 9, 7, 5), (1, 1, 1, 2)), d)
    mean = m.add(Reduce("mean", (2, 3)), s)
    out = m.add(MatMul(), m.add(Reshape((2, 9)), mean), normal(9, 4))
    assert transposes(run(m, out)) == 1


def test_squeeze_and_excite_keeps_the_layout() -> None:
    m = Make(x=normal(2, 3, 6, 6))
    a = conv_relu(m, "x", 3, 4)
    gate = m.add(e("sigmoid"), m.add(Conv((1, 1), (0,) * 4, (1, 1)), m.add(Reduce("mean", (2, 3)), a), normal(4, 4, 1, 1)))
    assert transposes(run(m, conv_relu(m, m.add(e("mul"), a, gate), 4, 3))) == 2


def test_a_network_written_channels_last_has_none() -> None:
    m = Make(x=normal(2, 6, 7, 3))
    a = conv_relu(m, m.add(Transpose((0, 3, 1, 2)), "x"), 3, 4)
    back = m.add(Transpose((0, 2, 3, 1)), a)
    y = m.add(Transpose((0, 2, 3, 1)), conv_relu(m, m.add(Transpose((0, 3, 1, 2)), m.add(e("add"), back, normal(4))), 4, 5))
    assert transposes(run(m, y)) == 0


def test_patches_become_rows_without_a_transpose() -> None:
    m = Make(x=normal(2, 3, 8, 8))
    a = m.add(Conv((2, 2), (0,) * 4, (1, 1)), "x", normal(5, 3, 2, 2))
    rows = m.add(Transpose((0, 2, 1)), m.add(Reshape((2, 5, 16)), a))
    assert transposes(run(m, m.add(MatMul(), rows, normal(5, 4)))) == 1


def test_channel_shuffle_and_softmax_over_channels() -> None:
    m = Make(x=normal(2, 3, 4, 5))
    a = conv_relu(m, "x", 3, 6)
    s = m.add(Reshape((2, 6, 4, 5)), m.add(Transpose((0, 2, 1, 3, 4)), m.add(Reshape((2, 2, 3, 4, 5)), a)))
    y = m.add(Softmax(1), conv_relu(m, s, 6, 4))
    assert transposes(run(m, y, m.add(Reduce("sum", (1,), keepdims=False), a))) <= 4


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks_and_groups(rank: int) -> None:
    size = (7, 5, 6)[:rank]
    m = Make(x=normal(2, 4, *size))
    op = Conv((1,) * rank, (1,) * (2 * rank), (1,) * rank, groups=2)
    y = m.add(e("relu"), m.add(op, "x", normal(6, 2, *(3,) * rank)))
    y = m.add(op, y, normal(4, 3, *(3,) * rank))
    assert transposes(run(m, m.add(Reduce("max", tuple(range(2, rank + 2)), keepdims=False), y))) == 1


def test_weights_that_are_computed_and_low_ranks() -> None:
    m = Make(x=normal(1, 3, 5, 5), w=normal(4, 3, 3, 3), row=normal(5), chan=normal(4, 1, 1), one=normal())
    y = m.add(SAME, "x", "w")
    for name in ("row", "chan", "one"):
        y = m.add(e("add"), y, name)
    run(m, y, m.add(e("mul"), "w", np.array(2, F)))


def test_graphs_without_convolutions_are_left_alone() -> None:
    m = Make(x=normal(2, 3, 4))
    g = m.graph(m.add(Transpose((0, 2, 1)), "x"))
    assert put_channels_last(g) is g


def test_random_networks_keep_their_meaning() -> None:
    """Random chains of indifferent operators, convolutions, transposes and reshapes, several values live at once."""
    rng = np.random.default_rng(101)
    for _ in range(60):
        m = Make(x=normal(2, 4, 6, 6))
        live = ["x"]
        for _ in range(int(rng.integers(3, 12))):
            v = live[int(rng.integers(len(live)))]
            shape = m.builder.types[v].shape
            kind = int(rng.integers(7))
            if kind == 0 and len(shape) == 4 and min(shape[2:]) >= 1:
                new = m.add(Conv((1, 1), (1, 1, 1, 1), (1, 1)), v, normal(4, int(shape[1]), 3, 3))
            elif kind == 1:
                new = m.add(e("tanh"), v)
            elif kind == 2:
                mates = [o for o in live if m.builder.types[o].shape == shape]
                new = m.add(e("add"), v, mates[int(rng.integers(len(mates)))])
            elif kind == 3:
                new = m.add(Transpose(tuple(int(i) for i in rng.permutation(len(shape)))), v)
            elif kind == 4 and len(shape) == 4:
                new = m.add(Reshape((shape[0], shape[1], int(shape[2]) * int(shape[3]))), v)
            elif kind == 5 and len(shape) > 1:
                new = m.add(Reduce("mean", (int(rng.integers(len(shape))),), keepdims=bool(rng.integers(2))), v)
            else:
                at = int(rng.integers(len(shape))) if shape else 0
                new = m.add(Concat(at), v, v) if shape else m.add(e("neg"), v)
            live.append(new)
        run(m, *live[-3:])
