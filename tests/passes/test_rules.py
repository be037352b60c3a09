"""Every rule with an example and a counter-example: what it makes of it, and the reason it gives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from taskc.ir.convert import convert
from taskc.ir.dtype import BOOL, F16, F32, F64, I8, I16, I32, U8, U16, DType
from taskc.ir.graph import Graph
from taskc.ops.cast import Cast
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.expand import Expand
from taskc.ops.fill import Fill
from taskc.ops.matmul import MatMul
from taskc.ops.reshape import Reshape
from taskc.ops.transpose import Transpose
from taskc.passes.cleanup import FoldConstants, remove_dead_nodes, share_equal_values
from taskc.passes.rule import Refusal, Rule, apply_rules
from taskc.passes.rules.casts import MergeCasts, holds
from taskc.passes.rules.identities import (
    DifferenceToSum,
    DropNeutral,
    MergeConstants,
    PowerToProduct,
    QuotientToProduct,
)
from taskc.passes.rules.scales import FoldScaleIntoWeights, ScaleBeforeSum
from taskc.passes.rules.views import (
    MergeReshapes,
    MergeTransposes,
    MoveFill,
    TransposeBetweenReshapes,
    TransposeToReshape,
)
from tests.passes.rule_graphs import Make, applied, normal

F = np.float32


def by(*rules: Rule[Any], reasons: list[str] | None = None) -> Any:
    def run(g: Graph) -> Graph:
        told: list[Refusal] = []
        out = apply_rules(g, rules, told.append)
        if reasons is not None:
            reasons.extend(r.reason for r in told)
        return out

    return run


def e(function: str) -> Elementwise:
    return Elementwise(function)


def test_neutral_operands_go() -> None:
    m = Make(x=normal(3, 5))
    x = m.add(e("mul"), "x", F(1))
    x = m.add(e("sub"), x, F(0))
    x = m.add(e("add"), F(-0.0), x)
    x = m.add(e("pow"), x, np.ones((3, 5), F))
    assert applied(m, by(DropNeutral()), m.add(e("div"), x, np.ones(5, F))) == []


def test_neutral_operands_that_broadcast_or_change_zeros_stay() -> None:
    m, reasons = Make(x=normal(3, 5)), list[str]()
    outs = [m.add(e("mul"), "x", np.ones((2, 1, 1), F)), m.add(e("add"), "x", F(0)), m.add(e("sub"), "x", F(-0.0)),
            m.add(e("sub"), F(0), "x")]
    assert applied(m, by(DropNeutral(), reasons=reasons), *outs) == ["mul", "add", "sub", "sub"]
    assert len(reasons) == 3 and "broadcasts" in reasons[0] and reasons[1:] == ["it turns -0 into +0"] * 2


def test_powers_quotients_and_differences() -> None:
    m, reasons = Make(x=normal(3, 5)), list[str]()
    outs = [m.add(e("pow"), "x", F(3)), m.add(e("div"), "x", np.array([2, -0.25, 8, 1, 64], F)), m.add(e("sub"), "x", F(3)),
            m.add(e("div"), "x", F(3))]
    rules = by(PowerToProduct(), QuotientToProduct(), DifferenceToSum(), reasons=reasons)
    assert sorted(applied(m, rules, *outs)) == ["add", "div", "mul", "mul", "mul"]
    assert reasons == ["the reciprocal is not exact"]


def test_constants_meet() -> None:
    m = Make(x=normal(2, 4, 3))
    y = m.add(e("add"), m.add(e("add"), normal(4, 1), "x"), normal(4, 1))
    z = m.add(e("mul"), m.add(e("mul"), y, F(3)), normal(4, 1))
    assert applied(m, by(MergeConstants()), z) == ["add", "mul"]


def test_constants_that_are_seen_elsewhere_or_would_grow_stay() -> None:
    m, reasons = Make(x=normal(2, 4, 3)), list[str]()
    inner = m.add(e("add"), "x", F(2))
    grows = m.add(e("add"), m.add(e("add"), "x", normal(4, 1)), normal(3))
    big = m.add(e("mul"), m.add(e("mul"), "x", F(1e30)), F(1e-30))
    assert len(applied(m, by(MergeConstants(), reasons=reasons), inner, m.add(e("add"), inner, F(3)), grows, big)) == 6
    assert sorted(r.split()[-1] for r in reasons) == ["both", "elsewhere", "vanish"]


def test_batch_norm_goes_into_a_convolution() -> None:
    for channels_last in (False, True):
        x, w = (normal(2, 5, 5, 3), normal(3, 3, 3, 4)) if channels_last else (normal(2, 3, 5, 5), normal(4, 3, 3, 3))
        vector = (4,) if channels_last else (4, 1, 1)
        m = Make(x=x)
        y = m.add(Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=channels_last), "x", w)
        y = m.add(e("add"), m.add(e("mul"), m.add(e("add"), y, normal(*vector)), normal(*vector)), normal(*vector))
        assert applied(m, by(MergeConstants(), ScaleBeforeSum(), FoldScaleIntoWeights()), y) == ["Conv", "add"]


def test_factors_go_into_matrices() -> None:
    for transposed in (False, True):
        m = Make(x=normal(3, 5))
        y = m.add(MatMul(transpose_b=transposed), "x", normal(7, 5) if transposed else normal(5, 7))
        assert applied(m, by(FoldScaleIntoWeights()), m.add(e("mul"), m.add(e("mul"), y, normal(7)), F(3))) == ["MatMul"]


def test_factors_that_do_not_fit_stay() -> None:
    m, reasons = Make(x=normal(3, 5), w=normal(5, 3)), list[str]()
    rows = m.add(e("mul"), m.add(MatMul(), "x", normal(5, 3)), normal(3, 1))
    free = m.add(e("mul"), m.add(MatMul(), "x", "w"), F(2))
    seen = m.add(MatMul(), "x", normal(5, 3))
    lost = m.add(e("mul"), m.add(MatMul(), "x", normal(5, 3)), np.array([1, np.inf, 1], F))
    outs = [rows, free, seen, m.add(e("mul"), seen, F(2))]
    assert applied(m, by(FoldScaleIntoWeights(), reasons=reasons), *outs).count("mul") == 3
    assert [r.split()[-1] for r in reasons] == ["channel", "constant", "elsewhere"]
    apply_rules(m.graph(lost), [FoldScaleIntoWeights()], lambda r: reasons.append(r.reason))
    assert reasons[-1] == "the factor is not finite, or vanishes"


def test_casts_merge_only_where_the_middle_holds_everything() -> None:
    m, reasons = Make(x=normal(3, 5).astype(np.float16)), list[str]()
    back = m.add(Cast(F16), m.add(Cast(F32), "x"))
    on = m.add(Cast(F64), m.add(Cast(F32), "x"))
    lossy = m.add(Cast(F32), m.add(Cast(I32), "x"))
    assert applied(m, by(MergeCasts(), reasons=reasons), back, on, lossy) == ["Cast", "Cast", "Cast"]
    assert reasons == ["i32 does not hold every f16"]


def test_holds_is_true_only_for_lossless_conversions() -> None:
    kinds: list[DType] = [F16, F32, F64, I8, I16, U8, U16, BOOL]
    for narrow in kinds:
        every = _every(narrow)
        for wide in kinds:
            if every is not None and wide != BOOL:
                kept = np.array_equal(convert(convert(every, wide), narrow), every, equal_nan=narrow.is_float)
                assert not holds(wide, narrow) or kept, (wide, narrow)


def _every(dtype: DType) -> np.ndarray | None:
    """All values of a small type."""
    if dtype == F16:
        return np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    if dtype == BOOL:
        return np.array([False, True])
    if not dtype.is_integer:
        return None
    limits = np.iinfo(dtype.numpy_name)
    return np.arange(limits.min, limits.max + 1).astype(dtype.numpy)


def test_views_merge_and_cancel() -> None:
    m = Make(x=normal(2, 3, 4, 5))
    y = m.add(Transpose((0, 3, 1, 2)), m.add(Transpose((0, 2, 3, 1)), "x"))
    z = m.add(Transpose((1, 0, 2, 3)), m.add(Transpose((0, 2, 3, 1)), "x"))
    r = m.add(Reshape((2, 3, 4, 5)), m.add(Reshape((6, 20)), m.add(Reshape((120,)), "x")))
    assert applied(m, by(MergeTransposes(), MergeReshapes()), y, z, r) == ["Transpose"]


def test_transposes_of_ones_are_reshapes() -> None:
    m = Make(x=normal(2, 1, 1, 5), y=normal(2, 3, 1, 5))
    outs = [m.add(Transpose((0, 3, 1, 2)), "x"), m.add(Transpose((0, 3, 1, 2)), "y")]
    assert applied(m, by(TransposeToReshape()), *outs) == ["Reshape", "Transpose"]


def test_a_transpose_between_reshapes() -> None:
    m = Make(x=normal(2, 3, 4, 5))
    kept = m.add(Reshape((2, 3, 5, 4)), m.add(Transpose((0, 2, 1)), m.add(Reshape((6, 4, 5)), "x")))
    split = m.add(Reshape((5, 4, 2, 3)), m.add(Transpose((2, 1, 0)), m.add(Reshape((6, 4, 5)), "x")))
    assert applied(m, by(TransposeBetweenReshapes()), kept, split) == ["Transpose", "Transpose"]
    m = Make(x=normal(2, 3, 4, 5))
    other = m.add(Reshape((2, 3, 5, 4)), m.add(Transpose((0, 2, 1)), m.add(Reshape((3, 8, 5)), "x")))
    assert applied(m, by(TransposeBetweenReshapes()), other) == ["Reshape", "Transpose", "Reshape"]


def test_fills_move_through_views() -> None:
    m = Make(x=normal(500, 3, 4))
    fill = m.add(Fill(2.0, F32, (3, 4, 500)))
    y = m.add(e("add"), "x", m.add(Transpose((2, 0, 1)), fill))
    assert applied(m, by(MoveFill()), y) == ["Fill", "add"]


def test_labels_of_all_nodes_that_went_into_one_are_kept() -> None:
    m = Make(x=normal(3, 5))
    y = m.add(e("mul"), m.add(MatMul(), "x", normal(5, 7)), F(3))
    (n,) = apply_rules(m.graph(y), [FoldScaleIntoWeights()]).nodes
    assert n.source == "node0 + node1"


def test_dead_nodes_and_equal_values() -> None:
    m = Make(x=normal(3, 5))
    c = normal(5)
    y, z = m.add(e("add"), "x", c), m.add(e("add"), "x", c.copy())
    m.add(e("exp"), y)
    assert applied(m, lambda g: remove_dead_nodes(share_equal_values(g)), m.add(e("mul"), y, z)) == ["add", "mul"]
    signs = [m.add(Fill(v, F32, (9000,))) for v in (0.0, -0.0)]
    quotients = m.add(e("div"), F(1), m.add(e("where"), np.arange(9000) % 2 == 0, *signs))
    before = m.graph(quotients)
    assert len(share_equal_values(before).nodes) == len(before.nodes), "0 and -0 are different fills"


def test_constants_fold_but_do_not_grow() -> None:
    m = Make(x=normal(200, 300))
    w, row = m.constant(normal(300, 200)), m.constant(normal(300))
    y = m.add(e("add"), "x", m.add(Transpose((1, 0)), w))
    grown = m.add(Reshape((200, 300)), "x")
    z = m.add(e("add"), grown, m.add(Expand((200, 300)), row))
    assert applied(m, FoldConstants(), y, z) == ["add", "Reshape", "Expand", "add"]
