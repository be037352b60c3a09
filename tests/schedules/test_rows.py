"""The rows template on the `host` machine: every schedule, odd sizes, special values, symbols, fusion; and what NVRTC makes of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taskc.codegen.emit import emit
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host
from taskc.codegen.nvrtc import compile_cuda
from taskc.ir.dtype import F16, F32, F64, from_numpy
from taskc.ir.expr import Index, Var
from taskc.ir.graph import Array, Op, TensorType
from taskc.ir.program import Do, For, If, Scope, Stmt
from taskc.ir.task import Map, Rows, Statistic, Store, axis
from taskc.ir.value import Const, Hole, Tensor, call
from taskc.ops.arg import ArgExtreme
from taskc.ops.norm import GroupNorm, LayerNorm
from taskc.ops.reduce import Reduce
from taskc.ops.softmax import Softmax
from taskc.schedules import rows
from taskc.schedules.rows import Schedule
from taskc.schedules.template import Traits, traits_of
from taskc.targets import TARGETS
from tests.schedules.task_cases import Case, launch, program, run

HOST, GPU = TARGETS["host"], TARGETS["sm_90a"]
RNG = np.random.default_rng(5)


def data(*shape: int, dtype: Any = np.float32) -> Array:
    """Normal numbers with spread 3, rounded ones for integers."""
    x = RNG.standard_normal(shape) * 3 + 1
    return np.round(x).astype(dtype) if np.dtype(dtype).kind in "iub" else x.astype(dtype)


def rows_task(op: Op, arrays: Sequence[Array], shapes: Sequence[tuple[Index, ...]] | None = None) -> Rows:
    tensors = [Tensor(f"in{i}", found, shape) for i, (a, shape) in enumerate(zip(arrays, shapes or [a.shape for a in arrays], strict=True))
               if (found := from_numpy(a.dtype))]
    out = op.infer([TensorType(t.dtype, t.shape) for t in tensors])[0]
    task = op.task(tensors, [Tensor("out", out.dtype, out.shape)])
    assert isinstance(task, Rows)
    return task


def case(op: Op, arrays: Sequence[Array], s: Schedule, label: str = "") -> Case:
    return Case(rows_task(op, arrays), s, [({}, {f"in{i}": a for i, a in enumerate(arrays)})], label=label or str(op))


def best(task: Rows, most: int = 1, sizes: dict[str, int] | None = None) -> list[Schedule]:
    scored = [(rows.estimate(task, s, GPU, sizes or {}), n, s) for n, s in enumerate(rows.space(GPU, traits_of(task)))]
    return [s for seconds, _, s in sorted(scored) if not isinf(seconds)][:most]


def any_op(s: Schedule, number: int) -> tuple[Op, list[Array]]:
    """An operator and data that the schedule can take: rows that fit, not a multiple of its step."""
    columns = max(1, min(s.step, 300) - 1) if s.keep else 37 + number % 61
    if s.split > 1:
        return (Reduce("mean", (1,)), [data(5, 4 * columns)]) if number % 2 else (ArgExtreme("max", 1), [np.round(data(5, columns))])
    if s.along == "rows":
        kinds: list[tuple[Op, list[Array]]] = [(Softmax(1), [data(3, columns, 7)]), (Reduce("sum", (1,)), [data(2, columns, 8)]),
                                               (ArgExtreme("min", 1), [np.round(data(1, columns, 40))])]
    else:
        kinds = [(Softmax(1), [data(5, columns)]), (LayerNorm(1, 1e-5), [data(6, columns), data(columns), data(columns)]),
                 (ArgExtreme("max", 1), [np.round(data(17, columns))]), (Reduce("log_sum_exp", (1,)), [data(7, columns)])]
    return kinds[number % len(kinds)]


@pytest.mark.parametrize("part", range(4))
def test_every_schedule(part: int, tmp_path: Path) -> None:
    space = rows.space(HOST, Traits(F32, F32))
    assert 100 < len(space) <= 200
    assert len({str(s) for s in space}) == len(space)
    run(rows, [case(*any_op(s, n), s) for n, s in enumerate(space) if n % 4 == part], tmp_path, seeds=(part * 3,))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_sizes_with_one_kernel(dtype: Any, tmp_path: Path) -> None:
    """Symbolic rows and columns: one kernel at many sizes, streaming and kept (columns bounded)."""
    r, c, few = Var("d_r", 1), Var("d_c", 1), Var("d_c", 1, 128)
    cases: list[Case] = []
    for kind in ("sum", "max", "mean", "prod"):
        for s, dim in ((Schedule("columns", 32, 4, 2, 0), c), (Schedule("columns", 128, 1, 1, 1), few), (Schedule("rows", 8, 16, 1, 0), c)):
            x = data(1, 1, dtype=dtype)
            task = rows_task(Reduce(kind, (1,)), [x], [(r, dim)])
            sizes = [(1, 1), (3, 7), (37, 13), (5, 127), (2, 128)] + ([(1, 129), (2, 1009)] if dim is c and kind != "prod" else [])
            scale = 0.5 if kind == "prod" else 1
            points = [({"d_r": a, "d_c": b}, {"in0": (data(a, b, dtype=dtype) * scale).astype(dtype)}) for a, b in sizes]
            cases.append(Case(task, s, points, 1e-5 if kind == "prod" and dtype == np.float32 else 0.0, kind))
    task = rows_task(ArgExtreme("max", 1), [data(1, 1, dtype=dtype)], [(r, c)])
    points = [({"d_r": a, "d_c": b}, {"in0": np.round(data(a, b)).astype(dtype)}) for a, b in ((1, 1), (37, 13), (2, 1009))]
    cases.append(Case(task, Schedule("columns", 256, 1, 4, 0), points, label="argmax"))
    run(rows, cases, tmp_path)


def test_special_values(tmp_path: Path) -> None:
    x = data(6, 45)
    x[0, 17] = np.nan
    x[1, 44], x[1, 3] = np.inf, np.inf
    x[2] = -np.inf
    x[3, 0] = -np.inf
    x[4, 20:40] = np.nan
    schedules = (Schedule("columns", 32, 4, 2, 1), Schedule("columns", 128, 1, 1, 0), Schedule("rows", 8, 16, 1, 4))
    ops: list[Op] = [Reduce("max", (1,)), Reduce("min", (1,)), Reduce("sum", (1,)), Reduce("log_sum_exp", (1,)),
                     Softmax(1), Softmax(1, log=True), ArgExtreme("max", 1), ArgExtreme("min", 1), ArgExtreme("max", 1, last=True)]
    run(rows, [case(op, [x], s) for op in ops for s in schedules], tmp_path)


def test_narrow_and_wide_integers(tmp_path: Path) -> None:
    schedules = (Schedule("columns", 32, 4, 4, 1), Schedule("columns", 128, 1, 1, 0), Schedule("rows", 32, 8, 4, 0))
    cases: list[Case] = []
    for dtype in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.uint64, np.bool_):
        x = np.asarray(RNG.integers(0, 2 if dtype == np.bool_ else 100, (9, 50))).astype(dtype)
        kinds = ("max", "min") if dtype == np.bool_ else ("sum", "min", "max")
        cases += [case(Reduce(k, (1,)), [x], s) for k in kinds for s in schedules]
    run(rows, cases, tmp_path, seeds=(3,))


def test_normalisations(tmp_path: Path) -> None:
    image, last = data(2, 6, 5, 7), data(2, 5, 7, 6)
    half = data(37, 96, dtype=np.float16)
    cases: list[Case] = []
    for op, arrays in ((GroupNorm(3, 1e-5), [image, data(6), data(6)]), (GroupNorm(3, 1e-5, channels_last=True), [last, data(6), data(6)]),
                       (LayerNorm(1, 1e-5), [half, data(96, dtype=np.float16), data(96, dtype=np.float16)]),
                       (LayerNorm(1, 1e-6, center=False), [data(3, 1009), data(1009)]),
                       (LayerNorm(1, 1e-5), [data(5, 1) + 1000, data(1), data(1)])):
        cases += [case(op, arrays, s) for s in best(rows_task(op, arrays), 3)]
    run(rows, cases, tmp_path)


def test_empty_rows(tmp_path: Path) -> None:
    """No columns: a sum of nothing is 0, a product 1, a maximum minus infinity, whatever the schedule."""
    cases = [case(Reduce(kind, (1,)), [data(3, 0)], s, kind) for kind in ("sum", "prod", "min")
             for s in (Schedule("columns", 32, 4, 2, 1), Schedule("columns", 128, 1, 1, 0), Schedule("rows", 8, 16, 1, 4))]
    programs = {f"k{i}": program(rows, c, f"k{i}") for i, c in enumerate(cases)}
    compile_host({n: emit(p) for n, p in programs.items()}, tmp_path / "kernels.so")
    library = HostLibrary(tmp_path / "kernels.so")
    for c, (name, p) in zip(cases, programs.items(), strict=True):
        got = launch(library, name, p, c.task, {"in0": c.points[0][1]["in0"]}, {})["out"]
        want = {"sum": 0.0, "prod": 1.0, "min": np.inf}[c.label]
        assert (got == want).all(), (c.label, c.schedule)


def _fused(n: int, c: int) -> Rows:
    """softmax(2 a + b[c]) + residual, stored transposed as well; and the row's maximum."""
    row, column = axis("i", n), axis("j", c)
    i, j = row.var, column.var
    a, b, residual = Tensor("a", F16, (n, c)), Tensor("b", F32, (c,)), Tensor("residual", F16, (n, c))
    x = call("add", call("mul", a.at(i, j), Const(2.0, F32)), b.at(j))
    shifted = call("exp", call("sub", Hole("x", F32), Hole("s0", F32)))
    out = call("add", call("div", shifted, Hole("s1", F32)), residual.at(i, j))
    return Rows(row, column, x, (Statistic("max", Hole("x", F32)), Statistic("sum", shifted)),
                (Store(Tensor("out", F16, (n, c)), (i, j), out), Store(Tensor("turned", F32, (c, n)), (j, i), out)),
                (Store(Tensor("top", F32, (n,)), (i,), Hole("s0", F32)),))


def test_fusion(tmp_path: Path) -> None:
    schedules = (Schedule("columns", 32, 4, 8, 4), Schedule("columns", 128, 1, 2, 0), Schedule("rows", 8, 16, 2, 0),
                 Schedule("rows", 128, 1, 1, 0))
    cases: list[Case] = []
    for n, c in ((37, 64), (5, 101), (1, 1)):
        arrays = {"a": data(n, c, dtype=np.float16), "b": data(c), "residual": data(n, c, dtype=np.float16)}
        cases += [Case(_fused(n, c), s, [({}, arrays)], label="fused") for s in schedules]
    run(rows, cases, tmp_path)


def test_statistic_that_loads(tmp_path: Path) -> None:
    """A weighted sum: the statistic's own load must not leave its tensor where the row has ended."""
    n, c = 7, 45
    row, column = axis("i", n), axis("j", c)
    x, w = Tensor("x", F32, (n, c)), Tensor("w", F32, (c,))
    weighted = Statistic("sum", call("mul", Hole("x", F32), w.at(column.var)))
    task = Rows(row, column, x.at(row.var, column.var), (weighted, Statistic("max", Hole("x", F32))),
                row_stores=(Store(Tensor("out", F32, (n,)), (row.var,), call("sub", Hole("s0", F32), Hole("s1", F32))),))
    assert rows.passes(task) == [range(2)]  # neither sees the other: one pass
    points: list[tuple[dict[str, int], dict[str, Array]]] = [({}, {"x": data(n, c), "w": data(c)})]
    run(rows, [Case(task, s, points) for s in (Schedule("columns", 32, 4, 4, 0), Schedule("columns", 256, 1, 1, 0, 4),
                                               Schedule("rows", 32, 8, 2, 0, 4))], tmp_path)


def test_equal_bits_in_every_order(tmp_path: Path) -> None:
    x = data(3, 5003)
    chosen = (Schedule("columns", 256, 1, 1, 0, 4), Schedule("columns", 512, 1, 4, 0), Schedule("rows", 8, 16, 1, 0))
    cases = [case(Reduce("sum", (1,)), [x], s) for s in chosen]
    programs = [program(rows, c, f"k{i}") for i, c in enumerate(cases)]
    compile_host({p.name: emit(p) for p in programs}, tmp_path / "kernels.so")
    library = HostLibrary(tmp_path / "kernels.so")
    for c, p in zip(cases, programs, strict=True):
        seen: set[bytes] = set()
        for seed in (0, 1, 2, 3):
            library.set_order(seed)
            seen.add(launch(library, p.name, p, c.task, {"in0": x}, {})["out"].tobytes())
        assert len(seen) == 1, c.schedule


def _without_barriers(body: list[Stmt]) -> list[Stmt]:
    kept = [s for s in body if not (isinstance(s, Do) and s.intrinsic == "barrier")]
    return [replace(s, body=_without_barriers(s.body)) if isinstance(s, (For, If, Scope)) else s for s in kept]


def test_a_missing_barrier_is_seen(tmp_path: Path) -> None:
    c = case(Reduce("sum", (1,)), [data(2, 500)], Schedule("columns", 128, 1, 1, 0))
    p = program(rows, c, "broken")
    p.body = _without_barriers(p.body)
    compile_host({"broken": emit(p)}, tmp_path / "kernels.so")
    library = HostLibrary(tmp_path / "kernels.so")
    got = launch(library, "broken", p, c.task, {"in0": c.points[0][1]["in0"]}, {})["out"]
    assert not np.allclose(got[:, 0], c.points[0][1]["in0"].sum(1), rtol=1e-4)


def test_what_does_not_fit() -> None:
    n, free, bounded = Var("d_n", 1), Var("d_c", 1), Var("d_c", 1, 512)
    x = data(1, 1)
    keep, stream = Schedule("columns", 128, 1, 4, 1), Schedule("columns", 128, 1, 4, 0)
    assert "any number" in (rows.fits(rows_task(Softmax(1), [x], [(n, free)]), keep) or "")
    assert rows.fits(rows_task(Softmax(1), [x], [(n, free)]), stream) is None
    assert rows.fits(rows_task(Softmax(1), [x], [(n, bounded)]), keep) is None
    assert rows.fits(rows_task(Softmax(1), [x], [(n, 513)]), keep) is not None
    assert isinf(rows.estimate(rows_task(Softmax(1), [x], [(n, free)]), keep, GPU, {"d_n": 4, "d_c": 4}))
    assert "share a row" in (rows.fits(rows_task(Softmax(1), [x], [(n, free)]), replace(stream, split=4)) or "")
    with pytest.raises(ValueError, match="do not fit"):
        rows.build(rows_task(Softmax(1), [x], [(n, free)]), keep, HOST, "k")
    assert rows.why_not(Map((), ()), HOST) == "not statistics over rows"
    softmax = rows_task(Softmax(1), [x])
    assert "median" in (rows.why_not(replace(softmax, statistics=(Statistic("median", Hole("x", F32)),)), HOST) or "")


def test_ranking() -> None:
    """What the model must see: vectors where facts allow, rows along memory where columns are strided, narrow where sizes are odd."""
    norm = rows_task(LayerNorm(1, 1e-5), [np.zeros((512, 768), np.float16)] + [np.zeros(768, np.float16)] * 2)
    s = best(norm)[0]
    assert s.along == "columns" and s.width * 2 >= 8 and s.keep
    pool = rows_task(Reduce("mean", (1,)), [np.zeros((8, 49, 2048), np.float16)])
    assert best(pool)[0].along == "rows"
    odd = rows_task(Softmax(1), [np.zeros((4096, 1009), np.float32)])
    assert best(odd)[0].width == 1
    long = rows_task(Reduce("sum", (0, 1)), [np.zeros((1000, 4096), np.float32)])
    assert best(long)[0].split > 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_no_spills_and_wide_accesses(dtype: Any) -> None:
    """For the GPU: every kept schedule of a sample stays in registers, and aligned rows move 16 bytes at a time."""
    x: Array = np.zeros((64, 2048), dtype)
    task = rows_task(LayerNorm(1, 1e-5), [x, *[np.zeros(2048, dtype)] * 2])
    wide = 16 // x.itemsize
    space = [s for s in rows.space(GPU, traits_of(task)) if s.keep and s.width == wide and s.along == "columns"]
    space = [s for s in space if rows.fits(task, s) is None]
    assert len(space) >= 3
    for s in [*space[:3], *space[-2:]]:
        kernel = compile_cuda(emit(program(rows, Case(task, s, []), "k")), "sm_90a", "k", ptx=True)
        assert kernel.spill_bytes == 0, s
        moves = re.findall(rb"(?:ld|st)\.global[.\w]*", kernel.ptx or b"")
        assert moves and all(b".v4" in m for m in moves), (s, set(moves))


def test_registers_of_the_largest() -> None:
    """The schedules that hold most, in each element type: no spills."""
    for dtype, kind in ((F16, np.float16), (F32, np.float32), (F64, np.float64)):
        heavy = sorted(rows.space(GPU, Traits(dtype, dtype)), key=lambda s: (s.width * s.vectors, s.along, s.block_threads))
        for s in heavy[-5:]:
            op = Reduce("sum", (1,)) if s.split > 1 else Softmax(1)
            shape = (64, s.step, 64) if s.along == "rows" else (64, s.step)
            text = emit(program(rows, Case(rows_task(op, [np.zeros(shape, kind)]), s, []), "k"))
            assert compile_cuda(text, "sm_90a", "k").spill_bytes == 0, (dtype, s)
