"""The tensor-core matmul, fused and alone, over awkward sizes: on `host` with guard pages, NaN everywhere, two thread orders."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest

from taskc.codegen.host_library import HostLibrary
from taskc.fuse.units import make_units
from taskc.ir.convert import values_of
from taskc.ir.dtype import BF16, F16, F32, F64, DType
from taskc.ir.expr import Var
from taskc.ir.graph import Graph
from taskc.ir.interpret import evaluate_graph
from taskc.ir.task import Contraction
from taskc.ops.cast import Cast
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.pad import Pad
from taskc.ops.reshape import Reshape
from taskc.ops.slice import Slice
from taskc.ops.transpose import Transpose
from taskc.schedules import elementwise, matmul_mma
from taskc.schedules.matmul_mma import Schedule, illegal, space, why_not
from taskc.schedules.template import Traits
from taskc.targets import TARGETS
from tests.graphs import GraphBuilder, all_symbols, groups_of, random_feeds
from tests.host_kernels import ORDERS, HostKernel, build_library, make_kernel, run_kernel

HOST = TARGETS["host"]
SIZES = (1, 7, 16, 37, 64, 65, 129)
SPACE = space(HOST, Traits(F16, F16))
SMALL = [s for s in SPACE if s.bm * s.bn <= 64 * 64 and s.threads <= 128]
RNG = np.random.default_rng(8)
SHAPES = [(37, 53, 29), (70, 64, 96), (1, 1000, 40)]


@dataclass(frozen=True)
class Case:
    """A graph, its kernels, and the sizes of its symbols to run at. `kernels`: how many launches fusion leaves, None: any."""

    name: str
    graph: Graph
    schedule: Schedule
    kernels: int | None = 1
    sizes: tuple[dict[str, int], ...] = ({},)
    fused: bool = True


Make = Callable[[GraphBuilder], str]


def half(b: GraphBuilder, *shape: int, scale: float = 1.0, dtype: DType = F16) -> str:
    return b.constant((RNG.standard_normal(shape) * scale).astype(np.float32), dtype)


def graph_of(make: Make) -> Graph:
    b = GraphBuilder()
    return b.graph(make(b))


def pairwise(seed: int, values: tuple[int, ...], width: int) -> list[tuple[int, ...]]:
    """Tuples in which every two places take every two values together at least once, chosen greedily."""
    rng = random.Random(seed)
    left = {(p, q, x, y) for p, q in combinations(range(width), 2) for x in values for y in values}
    out: list[tuple[int, ...]] = []
    while left:
        p, q, x, y = min(left)
        tries = []
        for _ in range(20):
            t = [rng.choice(values) for _ in range(width)]
            t[p], t[q] = x, y
            tries.append(tuple(t))
        best = max(tries, key=lambda t: sum((a, b, t[a], t[b]) in left for a, b in combinations(range(width), 2)))
        left -= {(a, b, best[a], best[b]) for a, b in combinations(range(width), 2)}
        out.append(best)
    return out


def plain(m: int, n: int, k: int, ta: bool = False, tb: bool = False, dtype: DType = F16) -> Make:
    def make(b: GraphBuilder) -> str:
        x = b.input("x", (k, m) if ta else (m, k), dtype)
        return b.add(MatMul(ta, tb), x, half(b, *((n, k) if tb else (k, n)), dtype=dtype))

    return make


def conv(op: Conv, x: tuple[int, ...], w: tuple[int, ...], prologue: bool = False, epilogue: bool = False, dtype: DType = F16) -> Make:
    """Padding multiplies by exact zeros, not by f(0), and never reads what lies outside."""

    def make(b: GraphBuilder) -> str:
        channels = (x[-1],) if op.channels_last else (x[1],) + (1,) * op.rank
        v = b.input("x", x, dtype)
        if prologue:
            one = b.add(Cast(dtype), b.add(Elementwise("le"), v, half(b, *channels, dtype=dtype)))  # 1 even where all loads are 0
            v = b.add(Elementwise("add"), b.add(Elementwise("mul"), v, half(b, *channels, dtype=dtype)), one)
            v = b.add(Elementwise("relu"), b.add(Elementwise("add"), v, b.constant(np.full(channels, 1.5, np.float32), dtype)))
        y = b.add(op, v, half(b, *w, dtype=dtype))
        if epilogue:
            y = b.add(Elementwise("add"), y, half(b, *(d for d in b.types[y].shape if isinstance(d, int)), dtype=dtype))
            y = b.add(Elementwise("relu"), y)
        return y

    return make


CONVOLUTIONS: dict[str, tuple[Conv, tuple[int, ...], tuple[int, ...]]] = {
    "2d": (Conv((1, 1), (1, 1, 1, 1), (1, 1)), (2, 7, 13, 11), (17, 7, 3, 3)),
    "2d-stride-pads": (Conv((2, 1), (0, 2, 1, 3), (1, 1)), (1, 5, 9, 12), (8, 5, 3, 4)),
    "2d-dilated": (Conv((1, 2), (2, 2, 2, 2), (2, 3)), (1, 16, 11, 11), (32, 16, 3, 2)),
    "2d-groups": (Conv((1, 1), (1, 0, 1, 1), (1, 2), groups=3), (2, 6, 13, 11), (12, 2, 2, 3)),
    "2d-last": (Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=True), (2, 9, 7, 16), (3, 3, 16, 24)),
    "2d-last-stride": (Conv((2, 2), (3, 3, 3, 3), (1, 1), channels_last=True), (1, 14, 15, 8), (7, 7, 8, 16)),
    "2d-last-groups": (Conv((1, 1), (1, 1, 1, 1), (1, 1), groups=2, channels_last=True), (1, 5, 6, 16), (3, 3, 8, 16)),
    "2d-last-odd": (Conv((1, 1), (1, 1, 1, 1), (2, 1), channels_last=True), (1, 9, 6, 3), (3, 3, 3, 7)),
    "2d-pointwise": (Conv((1, 1), (0, 0, 0, 0), (1, 1)), (2, 16, 8, 8), (24, 16, 1, 1)),
    "1d": (Conv((2,), (3, 2), (2,)), (2, 6, 41), (9, 6, 5)),
    "1d-last": (Conv((1,), (4, 4), (1,), channels_last=True), (1, 37, 8), (9, 8, 16)),
    "3d": (Conv((1, 2, 1), (1, 1, 0, 1, 1, 1), (1, 1, 2)), (1, 4, 5, 6, 7), (6, 4, 3, 3, 2)),
    "wide-padding": (Conv((1, 1), (4, 4, 4, 4), (1, 1), channels_last=True), (1, 3, 2, 8), (3, 3, 8, 8)),
}


def with_epilogue(m: int, n: int, k: int, finish: Callable[[GraphBuilder, str], str]) -> Make:
    def make(b: GraphBuilder) -> str:
        return finish(b, plain(m, n, k)(b))

    return make


def bias_residual(m: int, n: int) -> Callable[[GraphBuilder, str], str]:
    def finish(b: GraphBuilder, y: str) -> str:
        y = b.add(Elementwise("add"), b.add(Elementwise("add"), y, half(b, n)), half(b, m, n))
        return b.add(Elementwise("tanh"), y)

    return finish


def where_bias(b: GraphBuilder, y: str) -> str:
    zero = b.constant(np.float32([0.25]), F16)
    return b.add(Elementwise("where"), b.add(Elementwise("gt"), y, zero), y, b.add(Elementwise("mul"), y, zero))


EPILOGUES: dict[str, tuple[tuple[int, int, int], Callable[[GraphBuilder, str], str]]] = {
    "bias-residual": ((70, 64, 40), bias_residual(70, 64)),
    "bias-residual-odd": ((37, 53, 29), bias_residual(37, 53)),
    "transpose": ((70, 64, 96), lambda b, y: b.add(Transpose((1, 0)), y)),
    "transpose-odd": ((65, 33, 20), lambda b, y: b.add(Transpose((1, 0)), y)),
    "transpose-residual": ((64, 48, 32), lambda b, y: b.add(Elementwise("add"), b.add(Transpose((1, 0)), y), half(b, 48, 64))),
    "heads": ((24, 64, 40), lambda b, y: b.add(Transpose((1, 0, 2)), b.add(Reshape((24, 4, 16)), y))),
    "reshape": ((36, 40, 24), lambda b, y: b.add(Reshape((4, 9 * 40)), y)),
    "cast-f32": ((37, 56, 24), lambda b, y: b.add(Cast(F32), y)),
    "cast-f64": ((37, 29, 24), lambda b, y: b.add(Cast(F64), y)),
    "where": ((33, 40, 24), where_bias),
    "gelu": ((33, 40, 24), lambda b, y: b.add(Elementwise("mul"), y, b.add(Elementwise("sigmoid"), y))),
}


def sliced(m: int, n: int, k: int, first: int) -> Make:
    """Columns cut out of a wider tensor: aligned when `first` is."""

    def make(b: GraphBuilder) -> str:
        x = b.add(Slice((0, first), (m, k), (1, 1)), b.input("x", (m, k + first + 3 * (first % 2)), F16))
        return b.add(MatMul(), x, half(b, k, n))

    return make


def padded(m: int, n: int, k: int, before: int, after: int) -> Make:
    """Zeros around k by a Pad, which rides on the copies."""

    def make(b: GraphBuilder) -> str:
        x = b.add(Pad((0, before), (2, after)), b.input("x", (m, k), F16))
        return b.add(MatMul(), x, half(b, k + before + after, n))

    return make


def prologue_both(m: int, n: int, k: int, ta: bool, tb: bool) -> Make:
    """Computation on both operands, through transposes."""

    def make(b: GraphBuilder) -> str:
        x, y = b.input("x", (k, m) if ta else (m, k), F16), b.input("y", (n, k) if tb else (k, n), F16)
        x = b.add(Elementwise("relu"), b.add(Elementwise("sub"), x, b.constant(np.float32([0.5]), F16)))
        y = b.add(Elementwise("mul"), y, b.constant(np.float32([-0.5]), F16))
        x = b.add(Transpose((1, 0)), x) if ta else x
        return b.add(MatMul(transpose_b=tb), x, y)

    return make


def from_float32(b: GraphBuilder) -> str:
    """Operands that are converted on the way: no asynchronous copy fits them."""
    x = b.add(Cast(F16), b.input("x", (37, 40), F32))
    return b.add(MatMul(), x, half(b, 40, 24))


def batched(a: tuple[int, ...], w: tuple[int, ...]) -> Make:
    def make(b: GraphBuilder) -> str:
        return b.add(MatMul(), b.input("x", a, F16), b.input("y", w, F16))

    return make


def symbolic(make: Callable[[GraphBuilder, Var, Var, Var], str]) -> Graph:
    b = GraphBuilder()
    return b.graph(make(b, Var("M", 1), Var("N", 1), Var("K", 1)))


def symbolic_matmul(b: GraphBuilder, m: Var, n: Var, k: Var) -> str:
    y = b.add(MatMul(), b.input("x", (m, k), F16), b.input("y", (k, n), F16))
    return b.add(Elementwise("relu"), b.add(Elementwise("add"), y, b.input("bias", (n,), F16)))


def symbolic_rows(b: GraphBuilder, m: Var, n: Var, k: Var) -> str:
    """Only the rows are symbolic: widths stay, and a prologue reads per column."""
    x = b.add(Elementwise("relu"), b.add(Elementwise("add"), b.input("x", (m, 40), F16), half(b, 40)))
    return b.add(MatMul(), x, half(b, 40, 24))


def symbolic_aligned(b: GraphBuilder, m: Var, n: Var, k: Var) -> str:
    wide = Var("W", 8, None, 8)
    y = b.add(MatMul(transpose_b=True), b.input("x", (2, m, wide), F16), b.input("y", (n, wide), F16))
    return b.add(Transpose((0, 2, 1)), y)


def symbolic_conv(b: GraphBuilder, m: Var, n: Var, k: Var) -> str:
    return b.add(Conv((1, 2), (1, 1, 1, 1), (1, 1), channels_last=True), b.input("x", (m, n, 9, 8), F16), half(b, 3, 3, 8, 16))


def cases() -> list[Case]:
    rng = random.Random(4)

    def pick() -> Schedule:
        return rng.choice(SMALL)

    def both(name: str, make: Make, kernels: int | None = 1) -> list[Case]:
        """One schedule of each kind of copy."""
        out = []
        for copy in ("async", "register"):
            s = rng.choice([s for s in SMALL if s.copy == copy])
            out.append(Case(f"{name}-{copy}", graph_of(make), s, kernels))
        return out

    out = [Case(f"plain-{m}x{n}x{k}-{'t' if ta else 'n'}{'t' if tb else 'n'}", graph_of(plain(m, n, k, ta, tb)), pick())
           for (m, n, k), ta, tb in ((t, rng.random() < 0.3, rng.random() < 0.3) for t in pairwise(1, SIZES, 3)[::2])]
    for name, (op, x, w) in CONVOLUTIONS.items():
        fused = rng.random() < 0.5
        out += both(f"conv-{name}", conv(op, x, w, epilogue=fused))
        computed = both(f"conv-{name}-prologue", conv(op, x, w, True, not fused))
        out += computed if "last" in name else computed[:1]
    for name, ((m, n, k), finish) in EPILOGUES.items():
        out.append(Case(f"epilogue-{name}", graph_of(with_epilogue(m, n, k, finish)), pick()))
    out += [c for args in ((37, 24, 64, 8), (37, 24, 29, 3), (64, 40, 40, 16)) for c in both(f"slice-{args}", sliced(*args))]
    out += [c for args in ((37, 24, 64, 8, 8), (33, 40, 64, 3, 0), (64, 40, 37, 0, 5)) for c in both(f"pad-{args}", padded(*args))]
    out += [c for ta in (False, True) for tb in (False, True) for c in both(f"prologues-{ta:d}{tb:d}", prologue_both(37, 24, 40, ta, tb))]
    out += both("from-float32", from_float32)
    out += [c for a, w in (((3, 1, 20, 24), (2, 24, 17)), ((4, 17, 40), (4, 40, 33))) for c in both(f"batch-{a}", batched(a, w))]
    splits = [s for s in SPACE if s.split > 1 and s.bm * s.bn <= 64 * 64]
    out += [Case(f"split-{s}-{k}", graph_of(with_epilogue(37, 40, k, bias_residual(37, 40))), s)
            for s, k in zip(rng.sample(splits, 6), (1, 64, 65, 200, 333, 520), strict=True)]
    out.append(Case("split-batch", graph_of(batched((3, 20, 129), (3, 129, 24))), rng.choice(splits)))
    out += [Case(f"bf16-{m}x{n}x{k}", graph_of(plain(m, n, k, dtype=BF16)), pick()) for m, n, k in SHAPES]
    out += [Case(f"bf16-conv-{c}", graph_of(conv(*CONVOLUTIONS[c], prologue=True, dtype=BF16)), pick()) for c in ("2d", "2d-last")]
    wide = [s for s in space(HOST, Traits(F32, F32)) if s.bm * s.bn <= 64 * 64]
    out += [Case(f"f32-{m}x{n}x{k}", graph_of(plain(m, n, k, dtype=F32)), rng.choice(wide)) for m, n, k in SHAPES]
    out += [Case(f"f32-conv-{c}", graph_of(conv(*CONVOLUTIONS[c], prologue=True, epilogue=True, dtype=F32)), rng.choice(wide))
            for c in ("2d-stride-pads", "2d-last", "2d-last-groups", "1d")]
    odd = tuple({"M": m, "N": n, "K": k} for m, n, k in pairwise(2, SIZES, 3)[::6])
    aligned = tuple({"M": m, "N": n, "W": w} for m, n, w in ((1, 1, 8), (37, 65, 72), (64, 64, 128)))
    images = tuple({"M": m, "N": n} for m, n in ((1, 1), (2, 7), (3, 12)))
    for copy in ("async", "register"):
        s = rng.choice([s for s in SMALL if s.copy == copy and s.split == 1])
        split = rng.choice([s for s in splits if s.copy == copy])
        out += [
            Case(f"symbolic-{copy}", symbolic(symbolic_matmul), s, 1, odd),
            Case(f"symbolic-split-{copy}", symbolic(symbolic_matmul), split, 1, odd[:4]),
            Case(f"symbolic-rows-{copy}", symbolic(symbolic_rows), s, 1, tuple({"M": m} for m in SIZES)),
            Case(f"symbolic-aligned-{copy}", symbolic(symbolic_aligned), s, 1, aligned),
            Case(f"symbolic-conv-{copy}", symbolic(symbolic_conv), s, 1, images),
        ]
    unfused = conv(*CONVOLUTIONS["2d"], prologue=True, epilogue=True)
    out.append(Case("unfused-conv", graph_of(unfused), pick(), None, fused=False))
    out.append(Case("unfused-epilogue", graph_of(with_epilogue(37, 53, 29, bias_residual(37, 53))), pick(), None, fused=False))
    return out


CASES = {c.name: c for c in cases()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[HostLibrary, dict[str, list[HostKernel]]]:
    kernels: dict[str, list[HostKernel]] = {}
    for number, case in enumerate(CASES.values()):
        units = groups_of(case.graph)[0] if case.fused else make_units(case.graph)[0]
        kernels[case.name] = [
            make_kernel(u.task, matmul_mma if isinstance(u.task, Contraction) else elementwise,
                        case.schedule if isinstance(u.task, Contraction) else elementwise.Schedule(64, 4), f"k{number}_{n}")
            for n, u in enumerate(units)
        ]
    texts = {k.name: k.text for ks in kernels.values() for k in ks}
    return build_library(texts, tmp_path_factory.mktemp("mma")), kernels


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_the_graph_means(name: str, built: tuple[HostLibrary, dict[str, list[HostKernel]]]) -> None:
    library, kernels = built
    case = CASES[name]
    if case.kernels is not None:
        assert len(kernels[name]) == case.kernels
    for number, sizes in enumerate(case.sizes):
        feeds = random_feeds(case.graph, number, sizes)
        want = evaluate_graph(case.graph, feeds, np.float64)["out0"]
        symbols = all_symbols(case.graph, make_units(case.graph)[1], feeds)
        value = dict(case.graph.outputs)["out0"]
        for order in ORDERS if number == 0 else ORDERS[number % 2 :][:1]:
            values = {**case.graph.constants, **feeds}
            for k in kernels[name]:
                run_kernel(library, k.program, values, symbols, order)
            _close(values_of(values[value], case.graph.types[value].dtype).astype(np.float64), want, case)


def _close(got: np.ndarray, want: np.ndarray, case: Case) -> None:  # type: ignore[type-arg]
    assert np.isfinite(got).all(), f"{int((~np.isfinite(got)).sum())} of {got.size} elements are not finite"
    stored = {t.dtype for t in case.graph.types.values()}
    error = np.abs(got - want).max() / max(1.0, np.abs(want).max())
    assert error < (2**-6 if BF16 in stored else 2**-9 if F16 in stored else 2**-20), f"error {error} with {case.schedule}"


# ---- the space ------------------------------------------------------------------------------------------------------


def test_the_space_is_legal_and_bounded() -> None:
    for name, target in TARGETS.items():
        for dtype in (F16, BF16, F32):
            found = space(target, Traits(dtype, F32))
            assert 50 <= len(found) <= 220, (name, len(found))  # "at most about 200"
            assert all(illegal(s, target, dtype) is None for s in found) and len(set(map(str, found))) == len(found)
    assert space(HOST, Traits(F64, F64)) == ()


def test_illegal_schedules_say_why() -> None:
    good = SMALL[0]
    assert illegal(good, HOST) is None
    assert "shared memory" in (illegal(replace(good, bm=512, bn=512), HOST) or "")
    assert "accumulators" in (illegal(Schedule(128, 128, 32, 128, 128, 2, "async"), HOST) or "")
    assert "divide" in (illegal(Schedule(64, 32, 16, 16, 16, 2, "async"), HOST) or "")
    assert "split-k" in (illegal(Schedule(128, 128, 32, 64, 32, 3, "async", 4), HOST) or "")


def test_the_template_refuses_what_it_cannot_compute() -> None:
    (unit,) = groups_of(graph_of(plain(4, 4, 4, dtype=F64)))[0]
    assert "no tensor-core instruction for f64" in (why_not(unit.task, HOST) or "")
    b = GraphBuilder()
    (unit,) = groups_of(b.graph(b.add(Elementwise("relu"), b.input("x", (4,)))))[0]
    assert why_not(unit.task, HOST) == "not a contraction"


@pytest.mark.parametrize("schedule", [s for n, s in enumerate(SPACE) if n % 19 == 0], ids=str)
def test_the_whole_space_builds(schedule: Schedule) -> None:
    """Every tile shape stitches and emits for an awkward fused task; compiled and run above for the small ones."""
    (unit,) = groups_of(graph_of(conv(*CONVOLUTIONS["2d-last-odd"], prologue=True, epilogue=True)))[0]
    kernel = make_kernel(unit.task, matmul_mma, schedule, "k")
    assert kernel.program.threads == schedule.threads and "mma_m16n8k16_f16" in kernel.text
