"""Map tasks on `host`: every scalar function in every type it takes, and every way of moving data, wide and narrow."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from taskc.codegen.host_library import HostLibrary
from taskc.fuse.units import make_units
from taskc.ir.convert import values_of
from taskc.ir.dtype import BF16, BOOL, DTYPES, F16, F32, F64, I8, I32, I64, U8, DType
from taskc.ir.expr import Var
from taskc.ir.functions import FUNCTIONS
from taskc.ir.graph import Array, Graph
from taskc.ir.interpret import evaluate_graph, evaluate_task
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Call, Cast, Load, Tensor, Value, call
from taskc.ops.cast import Cast as CastOp
from taskc.ops.concat import Concat
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.expand import Expand
from taskc.ops.gather import Gather
from taskc.ops.pad import Pad
from taskc.ops.pool import Pool
from taskc.ops.reshape import Reshape
from taskc.ops.slice import Slice
from taskc.ops.transpose import Transpose
from taskc.ops.windows import Window
from taskc.schedules import elementwise
from taskc.schedules.elementwise import Schedule, space, why_not
from taskc.schedules.template import Traits
from taskc.targets import TARGETS
from tests.graphs import GraphBuilder, all_symbols, groups_of, random_feeds
from tests.host_kernels import ORDERS, HostKernel, build_library, make_kernel, run_kernel

N = 203  # elements: a prime's worth of full blocks, then a ragged end
ALL_INTEGERS = tuple(d for d in DTYPES.values() if d.is_integer)
ALL_FLOATS = tuple(d for d in DTYPES.values() if d.is_float)
BOTH = (*ALL_FLOATS, *ALL_INTEGERS)
ANY = (*BOTH, BOOL)
_INTEGER_TOO = ("add", "sub", "mul", "div", "mod", "fmod", "min", "max", "relu", "abs", "sign")


def dtypes_of(function: str) -> tuple[DType, ...]:
    """The types that ONNX gives the function."""
    if function in ("eq", "ne", "where"):
        return ANY
    if function in ("lt", "le", "gt", "ge", *_INTEGER_TOO):
        return BOTH
    if function in ("and", "or", "xor", "not"):
        return (BOOL,)
    if function in ("shl", "shr"):
        return tuple(d for d in ALL_INTEGERS if d.kind == "uint")
    if function.startswith("bit"):
        return ALL_INTEGERS
    if function == "neg":
        return (*ALL_FLOATS, *(d for d in ALL_INTEGERS if d.kind == "int"))
    return (*ALL_FLOATS, I32, I64) if function == "pow" else ALL_FLOATS


def test_every_function_is_tested_in_some_type() -> None:
    assert all(dtypes_of(f) for f in FUNCTIONS)


def operands(dtype: DType, function: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Stored arrays: ends of the range, NaN and infinities where they exist; divisors and exponents in their domain."""
    if dtype == BOOL:
        return rng.random(N) > 0.5, rng.random(N) > 0.5
    if dtype.is_float:
        x, y = rng.standard_normal((2, N)) * 3
        x[:6], y[:6] = [np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5], [1.0, 2.0, 2.0, 3.0, np.nan, 0.5]
        x[6:12] = [1.5, 2.5, -0.5, -1.5, 1.0, -1.0]
        return _stored(x, dtype), _stored(y, dtype)
    most = 2 ** min(8 * dtype.bytes - (dtype.kind == "int"), 15)
    least = -most if dtype.kind == "int" else 0
    x, y = rng.integers(least, most, N), rng.integers(least, most, N)
    if function in ("div", "mod", "fmod"):
        y = np.where(y == 0, 3, y)
    if function == "pow":
        x, y = rng.integers(-5, 6, N), rng.integers(0, 7, N)
    if function in ("shl", "shr"):
        y = rng.integers(0, 8 * dtype.bytes, N)
    return x.astype(dtype.numpy), y.astype(dtype.numpy)


def _stored(x: Array, dtype: DType) -> Array:
    b = GraphBuilder()
    return b.constants[b.constant(x.astype(np.float32), dtype)] if dtype != F64 else x


@dataclass(frozen=True)
class Scalar:
    """A function in a type, as a task over two operands, and the operands."""

    task: Map
    feeds: dict[str, Array]


def scalars() -> dict[str, Scalar]:
    out: dict[str, Scalar] = {}
    for number, (name, f) in enumerate(FUNCTIONS.items()):
        for dtype in dtypes_of(name):
            rng = np.random.default_rng(number)
            x, y = operands(dtype, name, rng)
            i = axis("i", N)
            tensors = Tensor("x", dtype, (N,)), Tensor("y", dtype, (N,))
            values: list[Value] = [t.at(i.var) for t in tensors][: f.arity]
            feeds = {"x": x, "y": y}
            if name == "where":
                feeds["c"] = rng.random(N) > 0.5
                values = [Tensor("c", BOOL, (N,)).at(i.var), *values]
            value = call(name, *values)
            out[f"{name}-{dtype}"] = Scalar(_stored_as(value, BOOL if f.result == "bool" else dtype), feeds)
    for source in DTYPES.values():
        for to in DTYPES.values():
            x, _ = operands(source, "add", np.random.default_rng(1))
            out[f"cast-{source}-{to}"] = Scalar(_stored_as(Cast(Tensor("x", source, (N,)).at(_I.var), to), to), {"x": x})
    return out


_I = axis("i", N)


def _stored_as(value: Value, dtype: DType) -> Map:
    return Map((_I,), (Store(Tensor("out", dtype, (N,)), (_I.var,), value),))


SCALARS = scalars()


def merged(some: dict[str, Scalar]) -> tuple[Map, dict[str, Array]]:
    """One task with a store for each: a kernel of many stores costs one launch and one compile."""
    i = axis("i", N)
    stores: list[Store] = []
    feeds: dict[str, Array] = {}
    for n, s in enumerate(some.values()):
        def renamed(v: Value, n: int = n) -> Value:
            return Load(Tensor(f"{v.tensor.name}{n}", v.tensor.dtype, v.tensor.shape), (i.var,)) if isinstance(v, Load) else v

        (store,) = s.task.stores
        value = store.value
        if isinstance(value, Cast):
            value = Cast(renamed(value.value), value.to)
        elif isinstance(value, Call):
            value = call(value.function, *map(renamed, value.args))
        stores.append(Store(Tensor(f"out{n}", store.tensor.dtype, (N,)), (i.var,), value))
        feeds |= {f"{k}{n}": a for k, a in s.feeds.items()}
    return Map((i,), tuple(stores)), feeds


PARTS = {f"part{k}": dict(list(SCALARS.items())[k::24]) for k in range(24)}


@pytest.fixture(scope="module")
def scalar_library(tmp_path_factory: pytest.TempPathFactory) -> tuple[HostLibrary, dict[str, HostKernel]]:
    kernels = {name: make_kernel(merged(some)[0], elementwise, Schedule(64, 1 << n % 4), name)
               for n, (name, some) in enumerate(PARTS.items())}
    return build_library({k: v.text for k, v in kernels.items()}, tmp_path_factory.mktemp("scalars")), kernels


@pytest.mark.parametrize("part", PARTS)
def test_every_function_means_what_numpy_says(part: str, scalar_library: tuple[HostLibrary, dict[str, HostKernel]]) -> None:
    library, kernels = scalar_library
    task, feeds = merged(PARTS[part])
    values = dict(feeds)
    run_kernel(library, kernels[part].program, values, {}, ORDERS[1])
    wrong: list[str] = []
    for n, (name, s) in enumerate(PARTS[part].items()):
        with np.errstate(all="ignore"):
            want = evaluate_task(s.task, s.feeds)["out"]
        dtype = task.stores[n].tensor.dtype
        cancels = name.startswith("gelu")  # x * (1 + f(x)) where f(x) is near -1
        bad = differs(values[f"out{n}"], want, dtype, s.feeds["x"] if cancels else None)
        if bad.any():
            k = int(np.argmax(bad))
            got, right = values_of(values[f"out{n}"], dtype)[k], values_of(want, dtype)[k]
            wrong.append(f"{name}{[a[k] for a in s.feeds.values()]}: {got} for {right}")
    assert not wrong, "\n".join(wrong)


def differs(got: Array, want: Array, dtype: DType, scale: Array | None = None) -> Array:
    """Where two stored arrays differ by more than a few units in the last place; integers and bools exactly.

    scale: stored values to whose size the compute type's rounding may be relative besides."""
    if not dtype.is_float:
        return got != want
    g, w = values_of(got, dtype).astype(np.float64), values_of(want, dtype).astype(np.float64)
    unit = {F16: 2.0**-10, BF16: 2.0**-7, F32: 2.0**-21, F64: 2.0**-45}[dtype]
    with np.errstate(all="ignore"):
        most = unit * np.abs(w) + np.finfo(np.float16 if dtype == F16 else np.float32).tiny
        if scale is not None:
            most = most + min(unit, 2.0**-21) * np.abs(values_of(scale, dtype).astype(np.float64))
        near = np.abs(g - w) <= most
    return ~(near | (g == w) | (np.isnan(g) & np.isnan(w)))


# ---- movement -------------------------------------------------------------------------------------------------------

Make = Callable[[GraphBuilder], str]
RNG = np.random.default_rng(12)


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def chain(*ops: tuple[object, ...], shape: tuple[int, ...], dtype: DType = F32) -> Make:
    """Operators applied in turn to an input; the rest of each tuple are constants."""

    def make(b: GraphBuilder) -> str:
        v = b.input("x", shape, dtype)
        for op, *constants in ops:
            v = b.add(op, v, *(b.constant(c) for c in constants))  # type: ignore[arg-type]
        return v

    return make


def joined(b: GraphBuilder) -> str:
    x, y = b.input("x", (5, 8), F16), b.input("y", (5, 3), F16)
    return b.add(Concat(1), x, b.add(Elementwise("relu"), y), x)


def gathered(b: GraphBuilder) -> str:
    """Two lookups by data with negative indices, added; rows stay wide."""
    table, index = b.input("table", (11, 16), F16), b.input("index", (7,), I64)
    first = b.add(Gather(0), table, index)
    second = b.add(Gather(0), b.constant(f32(23, 16), F16), b.add(Elementwise("mul"), index, b.constant(np.array([2], np.int64))))
    return b.add(Elementwise("add"), first, second)


def symbolic_shuffle(b: GraphBuilder) -> str:
    n, s = Var("N", 1), Var("S", 1)
    x = b.input("x", (n, s, 24), F16)
    y = b.add(Transpose((0, 2, 1, 3)), b.add(Reshape((n, s, 3, 8)), x))
    return b.add(Concat(2), y, b.add(Pad((0, 0, 1, 0), (0, 0, 0, 0), "edge"), y))


AVERAGE = Pool("average", (3, 3), Window((1, 1), (1, 1, 1, 1), (1, 1)), channels_last=True)
DEPTHWISE = Conv((1, 2), (1, 1, 1, 1), (1, 1), groups=8)
GRAPHS: dict[str, tuple[Make, tuple[dict[str, int], ...]]] = {
    "broadcast-row": (chain((Elementwise("add"), f32(40)), shape=(7, 40)), ({},)),
    "broadcast-column": (chain((Elementwise("mul"), f32(7, 1)), (Elementwise("sub"), f32(1)), shape=(5, 7, 40)), ({},)),
    "broadcast-f64": (chain((Elementwise("add"), RNG.standard_normal(33)), shape=(3, 33), dtype=F64), ({},)),
    "prime": (chain((Elementwise("tanh"),), shape=(13, 17)), ({},)),
    "int8": (chain((Elementwise("max"), np.array([-3], np.int8)), shape=(5, 31), dtype=I8), ({},)),
    "int64": (chain((Elementwise("mul"), np.arange(7)), shape=(9, 7), dtype=I64), ({},)),
    "bool": (chain((Elementwise("xor"), RNG.random((31,)) > 0.5), shape=(3, 31), dtype=BOOL), ({},)),
    "bool-to-half": (chain((CastOp(F16),), shape=(3, 32), dtype=BOOL), ({},)),
    "half-to-bytes": (chain((Elementwise("mul"), np.float16([20])), (CastOp(U8),), shape=(6, 32), dtype=F16), ({},)),
    "scalar": (chain((Elementwise("exp"),), shape=()), ({},)),
    "transpose": (chain((Transpose((2, 0, 1)),), (Elementwise("relu"),), shape=(4, 6, 10)), ({},)),
    "heads": (chain((Reshape((2, 6, 3, 8)),), (Transpose((0, 2, 1, 3)),), shape=(2, 6, 24), dtype=F16), ({},)),
    "slice": (chain((Slice((1, 7), (3, 4), (2, -2)),), shape=(7, 9)), ({},)),
    "slice-aligned": (chain((Slice((0, 8), (5, 16), (1, 1)),), shape=(5, 40), dtype=F16), ({},)),
    "pad-zero": (chain((Pad((1, 8), (0, 8)),), shape=(5, 24), dtype=F16), ({},)),
    "pad-number": (chain((Pad((1, 2), (3, 0), "constant", -1.5),), shape=(5, 7)), ({},)),
    "pad-reflect": (chain((Pad((2, 3), (3, 2), "reflect"),), shape=(5, 7)), ({},)),
    "pad-wrap": (chain((Pad((2, 9), (3, 8), "wrap"),), shape=(5, 7)), ({},)),
    "expand": (chain((Expand((3, 4, 5)),), shape=(4, 1)), ({},)),
    "max-pool": (chain((Pool("max", (3, 2), Window((2, 1), (1, 0, 2, 1), (1, 1))),), shape=(2, 3, 9, 11)), ({},)),
    "average-pool-half": (chain((AVERAGE,), shape=(1, 6, 5, 16), dtype=F16), ({},)),
    "depthwise": (chain((DEPTHWISE, f32(8, 1, 3, 3)), (Elementwise("relu"),), shape=(1, 8, 7, 9)), ({},)),
    "concat": (joined, ({},)),
    "gather": (gathered, ({},)),
    "symbolic": (symbolic_shuffle, ({"N": 1, "S": 1}, {"N": 2, "S": 7}, {"N": 3, "S": 16})),
}
TWO = {f"{name}-{which}": name for name in GRAPHS for which in ("wide", "other")}


def schedules(name: str) -> Schedule:
    """Wide vectors once; a random schedule of the space once."""
    rng = random.Random(name)
    return Schedule(64, 8) if name.endswith("wide") else rng.choice(space(TARGETS["host"], Traits(F32, F32)))


def graph_of(name: str) -> Graph:
    b = GraphBuilder()
    return b.graph(GRAPHS[name][0](b))


@pytest.fixture(scope="module")
def movement(tmp_path_factory: pytest.TempPathFactory) -> tuple[HostLibrary, dict[str, list[HostKernel]]]:
    kernels = {
        case: [make_kernel(u.task, elementwise, schedules(case), f"m{number}_{n}") for n, u in enumerate(groups_of(graph_of(name))[0])]
        for number, (case, name) in enumerate(TWO.items())
    }
    return build_library({k.name: k.text for ks in kernels.values() for k in ks}, tmp_path_factory.mktemp("movement")), kernels


@pytest.mark.parametrize("case", TWO)
def test_movement_means_what_the_graph_says(case: str, movement: tuple[HostLibrary, dict[str, list[HostKernel]]]) -> None:
    library, kernels = movement
    graph = graph_of(TWO[case])
    value = graph.outputs[0][1]
    dtype = graph.types[value].dtype
    for number, sizes in enumerate(GRAPHS[TWO[case]][1]):
        feeds = random_feeds(graph, number, sizes)
        want = evaluate_graph(graph, feeds, np.float64)["out0"]
        for order in ORDERS:
            values = {**graph.constants, **feeds}
            for k in kernels[case]:
                run_kernel(library, k.program, values, all_symbols(graph, make_units(graph)[1], feeds), order)
            got = values[value]
            if not dtype.is_float:
                np.testing.assert_array_equal(got, want)
                continue
            scale = max(1.0, float(np.abs(want).max()))
            tolerance = {F16: 2.0**-9, F32: 2.0**-20, F64: 2.0**-45}[dtype] * scale
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=tolerance)


def test_wide_data_moves_in_wide_vectors() -> None:
    """Aligned rows, slices and pads take 16-byte accesses; what does not line up falls to narrow ones."""

    def text(name: str) -> str:
        (unit,) = groups_of(graph_of(name))[0]
        return make_kernel(unit.task, elementwise, Schedule(64, 8), "k").text

    for name in ("slice-aligned", "pad-zero", "heads"):
        assert "<f16, 8>" in text(name) and "<f16, 1>" not in text(name), name
    assert "<f32, 4>" in text("broadcast-row")
    assert "<f32, 1>" in text("slice") and "<f32, 4>(t" not in text("slice")


def test_any_map_and_only_maps() -> None:
    b = GraphBuilder()
    (unit,) = groups_of(b.graph(b.add(Elementwise("relu"), b.input("x", (4,)))))[0]
    assert why_not(unit.task, TARGETS["host"]) is None
    assert len(space(TARGETS["host"], Traits(F32, F32))) == len(set(map(str, space(TARGETS["host"], Traits(F32, F32)))))
