"""The transpose template on the `host` machine: every schedule, ranks, types, odd and symbolic sizes, fusion, refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from taskc.codegen.emit import emit
from taskc.codegen.nvrtc import compile_cuda
from taskc.ir.convert import stored_as
from taskc.ir.dtype import BF16, BOOL, F16, F32, F64, I8, I64, DType
from taskc.ir.expr import Index, Var
from taskc.ir.graph import Array
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Const, Load, Reduce, Tensor, Value, call, guard, inside
from taskc.schedules import transpose
from taskc.schedules.template import Traits
from taskc.schedules.transpose import Schedule, Turn, find_turn
from taskc.targets import TARGETS
from taskc.tune.choose import choose
from tests.schedules.task_cases import Case, program, run

HOST = TARGETS["host"]
RNG = np.random.default_rng(9)


def data(dtype: DType, *shape: int) -> Array:
    """Stored arrays: distinct enough that a wrong element shows."""
    if dtype == BF16:
        return stored_as(RNG.standard_normal(shape), BF16)
    if dtype.is_float:
        return RNG.standard_normal(shape).astype(dtype.numpy)
    return RNG.integers(0, 2 if dtype == BOOL else 100, shape).astype(dtype.numpy)


def permuted(dtype: DType, shape: Sequence[Index], order: Sequence[int]) -> Map:
    """out = x transposed, axes in the output's order."""
    axes = tuple(axis(f"a{d}", shape[d]) for d in order)
    by_dim = dict(zip(order, axes, strict=True))
    x, out = Tensor("x", dtype, tuple(shape)), Tensor("out", dtype, tuple(shape[d] for d in order))
    return Map(axes, (Store(out, tuple(a.var for a in axes), x.at(*(by_dim[d].var for d in range(len(shape))))),))


def turn(task: Map) -> Turn:
    found = find_turn(task)
    assert isinstance(found, Turn), found
    return found


@pytest.mark.parametrize("dtype", [F16, F32])
def test_every_schedule(dtype: DType, tmp_path: Path) -> None:
    space = transpose.space(HOST, Traits(dtype, dtype))
    cases: list[Case] = []
    for n, s in enumerate(space):
        shape = (2, 65, 40) if n % 2 else (1, 37, 131)
        cases.append(Case(permuted(dtype, shape, (0, 2, 1)), s, [({}, {"x": data(dtype, *shape)})]))
    run(transpose, cases, tmp_path)


@pytest.mark.parametrize("dtype", [I8, BOOL, BF16, F64, I64])
def test_every_size_of_element(dtype: DType, tmp_path: Path) -> None:
    cases: list[Case] = []
    for shape in ((64, 96), (33, 7), (1, 70), (70, 1)):
        task = permuted(dtype, shape, (1, 0))
        if not isinstance(find_turn(task), str):
            cases += [Case(task, Schedule(32, 64, 128, copy), [({}, {"x": data(dtype, *shape)})]) for copy in ("async", "register")]
    assert len(cases) >= 4
    run(transpose, cases, tmp_path)


def test_ranks_and_merged_axes(tmp_path: Path) -> None:
    to_last = permuted(F32, (2, 5, 7, 13), (0, 2, 3, 1))  # NCHW -> NHWC: (h, w) is one axis
    assert [a.var.name for a in turn(to_last).i] == ["a2", "a3"]
    to_first = permuted(F32, (2, 7, 13, 5), (0, 3, 1, 2))
    assert [a.var.name for a in turn(to_first).j] == ["a1", "a2"]
    keys = permuted(F32, (2, 3, 17, 8), (0, 1, 3, 2))
    turned = permuted(F32, (3, 4, 5, 6), (3, 2, 1, 0))
    five = permuted(F32, (2, 3, 4, 5, 6), (4, 0, 3, 1, 2))
    cases: list[Case] = []
    for task in (to_last, to_first, keys, turned, five):
        shape = tuple(d for d in turn(task).load.tensor.shape if isinstance(d, int))
        schedules = (Schedule(32, 32, 128, "async"), Schedule(64, 32, 256, "register"))
        cases += [Case(task, s, [({}, {"x": data(F32, *shape)})]) for s in schedules]
    run(transpose, cases, tmp_path)


def test_symbolic_sizes(tmp_path: Path) -> None:
    b, m, n = Var("d_b", 1), Var("d_m", 1), Var("d_n", 1, None, 8)
    task = permuted(F16, (b, m, n), (0, 2, 1))
    points = [({"d_b": p, "d_m": q, "d_n": r}, {"x": data(F16, p, q, r)}) for p, q, r in ((1, 1, 8), (3, 37, 40), (2, 129, 64))]
    run(transpose, [Case(task, Schedule(64, 64, 256, c), points) for c in ("async", "register")], tmp_path)


def _fused(n: int, c: int, padding: int) -> Map:
    """relu(2 * x padded and transposed) + residual, in float16 from float32."""
    i, j = axis("i", n + padding), axis("j", c)
    x, residual = Tensor("x", F32, (c, n)), Tensor("residual", F16, (n + padding, c))
    moved: Value = x.at(j.var, i.var - padding)
    moved = guard(inside(padding, i.var, n + padding), moved)
    value = call("add", call("relu", call("mul", moved, Const(2.0, F32))), residual.at(i.var, j.var))
    return Map((i, j), (Store(Tensor("out", F16, (n + padding, c)), (i.var, j.var), value),))


def test_fusion(tmp_path: Path) -> None:
    cases: list[Case] = []
    for n, c, padding in ((40, 64, 8), (13, 37, 1), (64, 64, 0)):
        arrays = {"x": data(F32, c, n), "residual": data(F16, n + padding, c)}
        cases += [Case(_fused(n, c, padding), Schedule(32, 64, 128, copy), [({}, arrays)]) for copy in ("async", "register")]
    assert turn(_fused(13, 37, 1)).load.tensor.name == "x"  # the residual follows the store
    run(transpose, cases, tmp_path)


def test_refusals() -> None:
    i, j, k = axis("i", 8), axis("j", 9), axis("k", 4)
    x, out = Tensor("x", F32, (8, 9)), Tensor("out", F32, (8, 9))
    here = (i.var, j.var)
    plain = Map((i, j), (Store(out, here, x.at(*here)),))
    assert "both run along j" in (transpose.why_not(plain, HOST) or "")
    assert transpose.why_not(permuted(F32, (2, 6, 5, 4), (0, 2, 1, 3)), HOST) is not None  # heads move, the last axis stays
    turned = Tensor("x", F32, (9, 8)).at(j.var, i.var)
    assert transpose.why_not(Map((i, j), (Store(out, here, turned),)), HOST) is None
    summed = Reduce("sum", (k.var,), (4,), Tensor("w", F32, (9, 8, 4)).at(j.var, i.var, k.var))
    assert "reduction" in (transpose.why_not(Map((i, j), (Store(out, here, summed),)), HOST) or "")
    assert "nothing is loaded" in (transpose.why_not(Map((i, j), (Store(out, here, Const(1.0, F32)),)), HOST) or "")
    two = Map((i, j), (Store(out, here, turned), Store(Tensor("out2", F32, (8, 9)), here, turned)))
    assert "2 stores" in (transpose.why_not(two, HOST) or "")
    column: Load = Tensor("column", F32, (8,)).at(i.var)
    assert "the same along j" in (transpose.why_not(Map((i, j), (Store(out, here, column),)), HOST) or "")
    with pytest.raises(ValueError, match="both run along"):
        transpose.build(plain, Schedule(32, 32, 128, "async"), HOST, "k")


@pytest.mark.parametrize(("dtype", "shape"), [(F16, (4, 512, 256)), (F32, (4, 512, 256))])
def test_wide_on_both_sides(dtype: DType, shape: tuple[int, ...]) -> None:
    """For the GPU: aligned sizes move 16 bytes at a time in and out, without spills."""
    for copy in ("async", "register"):
        text = emit(program(transpose, Case(permuted(dtype, shape, (0, 2, 1)), Schedule(64, 64, 256, copy), []), "k"))
        kernel = compile_cuda(text, "sm_90a", "k", ptx=True)
        assert kernel.spill_bytes == 0
        stores = re.findall(rb"st\.global[.\w]*", kernel.ptx or b"")
        assert stores and all(b".v4" in m for m in stores)
        fetches = re.findall(rb"cp\.async\.cg|ld\.global[.\w]*", kernel.ptx or b"")
        assert fetches and all(b".v4" in m or b"cp.async" in m for m in fetches), fetches


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_banks(size: int) -> None:
    """A warp that gathers vectors down the columns of a 64 x 64 tile: words wanted of the busiest bank (32 if rows did not rotate)."""
    worst = {1: 1, 2: 1, 4: 2, 8: 4}[size]
    width, tile = 16 // size, 64
    layout = transpose.rotated(tile, width)
    cells = {layout(j, i) for j in range(tile) for i in range(tile)}
    assert cells == set(range(tile * tile))
    per_column = tile // width  # lanes that share a column, one vector each
    for o in range(width):
        words: dict[int, set[int]] = {}
        for lane in range(32):
            j, i = lane % per_column * width + o, lane // per_column
            place = layout(j, i)
            assert isinstance(place, int)
            for word in range(place * size // 4, -(-(place + 1) * size // 4)):
                words.setdefault(word % 32, set()).add(word)
        assert max(map(len, words.values())) <= worst


def test_choice() -> None:
    """Large turns go through shared memory, three channels do not, and what is not turned cannot."""
    def chosen(shape: Sequence[Index], order: Sequence[int]) -> str:
        return choose(permuted(F16, shape, order), TARGETS["sm_90a"], {}).template.NAME

    assert chosen((8, 256, 64, 64), (0, 2, 3, 1)) == "transpose"
    assert chosen((8, 64, 64, 256), (0, 3, 1, 2)) == "transpose"
    assert chosen((8, 512, 16, 64), (0, 2, 1, 3)) == "elementwise"
