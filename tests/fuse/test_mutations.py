"""Planted faults: each breaks one thing in the emitted text or in stitching, and `host` must show it under some thread order.

This is what makes a passing kernel test worth something: the machine sees missing barriers and waits, wrong stages, accesses
that are too wide, guards that are gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from taskc.codegen.host_library import HostFault, HostLibrary
from taskc.codegen.text import ValueText
from taskc.fuse import lower, stitch, width
from taskc.ir.dtype import F16
from taskc.ir.expr import Index
from taskc.ir.graph import Array, Graph
from taskc.ir.interpret import evaluate_graph
from taskc.ir.program import Commit, Stmt
from taskc.ir.value import Guard, Value
from taskc.ops.cast import Cast
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.pad import Pad
from taskc.ops.slice import Slice
from taskc.ops.transpose import Transpose
from taskc.schedules import matmul_mma
from taskc.schedules.matmul_mma import Schedule
from tests.graphs import GraphBuilder, groups_of, random_feeds
from tests.host_kernels import HostKernel, build_library, make_kernel, run_kernel

ORDERS = (0, 1, 2, 3)
ASYNC = Schedule(64, 64, 32, 32, 32, 3, "async")
REGISTER = replace(ASYNC, stages=2, copy="register")
SPLIT = replace(ASYNC, split=2)
RNG = np.random.default_rng(2)


def half(b: GraphBuilder, *shape: int) -> str:
    return b.constant(RNG.standard_normal(shape).astype(np.float32), F16)


def plain(m: int, n: int, k: int) -> Callable[[GraphBuilder], str]:
    return lambda b: b.add(Elementwise("add"), b.add(MatMul(), b.input("x", (m, k), F16), half(b, k, n)), half(b, n))


def conv_prologue(b: GraphBuilder) -> str:
    """x * scale + (x <= shift) is 1 where x is 0, even where a guard made zeros of everything that was loaded."""
    x = b.input("x", (1, 9, 9, 64), F16)
    one = b.add(Cast(F16), b.add(Elementwise("le"), x, half(b, 64)))
    x = b.add(Elementwise("add"), b.add(Elementwise("mul"), x, half(b, 64)), one)
    return b.add(Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=True), x, half(b, 3, 3, 64, 40))


def conv_view(b: GraphBuilder) -> str:
    return b.add(Conv((1, 1), (1, 1, 1, 1), (1, 1)), b.input("x", (1, 5, 9, 8), F16), half(b, 8, 5, 3, 3))


def transposed(b: GraphBuilder) -> str:
    return b.add(Transpose((1, 0)), b.add(MatMul(), b.input("x", (70, 96), F16), half(b, 96, 64)))


def sliced(b: GraphBuilder) -> str:
    x = b.add(Slice((0, 3), (37, 64), (1, 1)), b.input("x", (37, 72), F16))
    return b.add(MatMul(), x, half(b, 64, 24))


def padded(b: GraphBuilder) -> str:
    x = b.add(Pad((0, 4), (0, 4)), b.input("x", (37, 64), F16))
    return b.add(MatMul(), x, half(b, 72, 24))


def ragged(b: GraphBuilder) -> str:
    """Aligned rows of which only 61 elements count: the bound lies inside of a vector."""
    x = b.add(Slice((0, 0), (37, 61), (1, 1)), b.input("x", (37, 72), F16))
    return b.add(MatMul(), b.add(Pad((0, 0), (0, 3)), x), half(b, 64, 24))


SUBJECTS: dict[str, tuple[Callable[[GraphBuilder], str], Schedule]] = {
    "long": (plain(64, 64, 200), ASYNC), "odd": (plain(37, 53, 129), ASYNC), "register": (plain(37, 53, 129), REGISTER),
    "prologue": (conv_prologue, ASYNC), "prologue-register": (conv_prologue, REGISTER), "view": (conv_view, ASYNC),
    "transposed": (transposed, ASYNC), "sliced": (sliced, ASYNC), "padded": (padded, ASYNC), "ragged": (ragged, ASYNC),
    "split": (plain(37, 40, 200), SPLIT),
}


def _graph(name: str) -> Graph:
    b = GraphBuilder()
    return b.graph(SUBJECTS[name][0](b))


GRAPHS = {name: _graph(name) for name in SUBJECTS}  # once: constants are random


def kernel_of(subject: str, name: str) -> HostKernel:
    (unit,) = groups_of(GRAPHS[subject])[0]
    return make_kernel(unit.task, matmul_mma, SUBJECTS[subject][1], name)


# ---- the faults ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """`text` changes an emitted kernel; `planted` changes stitching while one is made. Tried on `subjects`: one must show it."""

    subjects: tuple[str, ...]
    text: Callable[[str], str] | None = None
    planted: Callable[[pytest.MonkeyPatch], None] | None = None


def swapped(old: str, new: str) -> Callable[[str], str]:
    return lambda t: t.replace(old, new)


def without_last(what: str) -> Callable[[str], str]:
    def change(t: str) -> str:
        at = t.rindex(what)
        return t[:at] + t[at + len(what):]

    return change


def first_part_stores(t: str) -> str:
    """The sum is taken by the block of the first part, whether or not the others have arrived."""
    return re.sub(r"const int last = last_block\(.*\);", "const int last = part == 0;", t)


def value_before_guard(m: pytest.MonkeyPatch) -> None:
    """f(0) in the padding: the loads stay guarded, the result does not."""
    old = ValueText.__call__
    m.setattr(ValueText, "__call__", lambda self, v: old(self, v.value) if isinstance(v, Guard) else old(self, v))


def no_guard(m: pytest.MonkeyPatch) -> None:
    def without(conditions: Sequence[Index], value: Value) -> Value:
        while isinstance(value, Guard):
            value = value.value
        return value

    m.setattr(stitch, "guard", without)


def width_ignores_guard(m: pytest.MonkeyPatch) -> None:
    old = width.contiguous_width
    for module in (width, stitch, lower):
        m.setattr(module, "contiguous_width", lambda address, conditions, limit: old(address, (), limit))


def width_ignores_alignment(m: pytest.MonkeyPatch) -> None:
    m.setattr(width, "divisor", lambda e: 0)


def row_bound_dropped(m: pytest.MonkeyPatch) -> None:
    old = stitch._inside  # pyright: ignore[reportPrivateUsage]
    m.setattr(stitch, "_inside", lambda index, limits: old(index, limits)[1:])


def column_bound_dropped(m: pytest.MonkeyPatch) -> None:
    old = stitch._inside  # pyright: ignore[reportPrivateUsage]
    m.setattr(stitch, "_inside", lambda index, limits: old(index, limits)[:1])


def commit_at_another_width(m: pytest.MonkeyPatch) -> None:
    """Another thread computes in place on data that it did not copy, after its own wait only."""
    stitcher: Any = stitch._Stitcher  # pyright: ignore[reportPrivateUsage]
    old = stitcher.commit

    def commit(self: Any, s: Commit) -> list[Stmt]:
        shape = self.load_shape(s.port)
        self.shapes[s.port.name] = max(1, shape[0] // 2), shape[1]
        try:
            return old(self, s)
        finally:
            self.shapes[s.port.name] = shape

    m.setattr(stitcher, "commit", commit)


FAULTS: dict[str, Fault] = {
    "no barrier after the copies": Fault(("long", "odd"), swapped("cp_async_wait<1>();\n    barrier();", "cp_async_wait<1>();")),
    "no barrier after the commits": Fault(("prologue",), lambda t: t.replace("    barrier();\n", "", 1)),
    "wait one group too few": Fault(("long", "odd", "prologue"), swapped("cp_async_wait<1>", "cp_async_wait<2>")),
    "no wait": Fault(("long", "odd"), swapped("cp_async_wait<1>();", "")),
    "fetch into the stage being read": Fault(("long", "odd"), swapped("((slot + 2) % 3)", "slot")),
    "no barrier before staging": Fault(("long", "odd", "transposed"), swapped("cp_async_wait<0>();\n  barrier();", "cp_async_wait<0>();")),
    "no barrier before the store": Fault(("long", "transposed"), without_last("barrier();")),
    "no barrier in the register pipeline": Fault(("register", "prologue-register"), swapped("    barrier();\n", "")),
    "one lane skips the matrix instruction": Fault(("long",), swapped("mma_m16n8k16_f16(", "if (tid != 5) mma_m16n8k16_f16(")),
    "no test for the last block": Fault(("split",), first_part_stores),
    "a split forgets a part": Fault(("split",), swapped("z < 2", "z < 1")),
    "value before guard": Fault(("prologue", "prologue-register"), planted=value_before_guard),
    "guard dropped": Fault(("view", "padded", "odd"), planted=no_guard),
    "width ignores the guard": Fault(("ragged",), planted=width_ignores_guard),
    "width ignores alignment": Fault(("sliced", "odd"), planted=width_ignores_alignment),
    "row bound dropped": Fault(("odd",), planted=row_bound_dropped),
    "column bound dropped": Fault(("odd",), planted=column_bound_dropped),
    "fetch and commit disagree": Fault(("prologue",), planted=commit_at_another_width),
}


@contextmanager
def planting(fault: Fault) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as m:
        if fault.planted is not None:
            fault.planted(m)
        yield


def faulty_kernels() -> dict[str, list[tuple[str, HostKernel]]]:
    """For each fault, (subject, kernel) of those whose text it changes."""
    good = {s: kernel_of(s, "k") for s in SUBJECTS}
    out: dict[str, list[tuple[str, HostKernel]]] = {}
    for number, (name, fault) in enumerate(FAULTS.items()):
        out[name] = []
        for subject in fault.subjects:
            symbol = f"f{number}_{subject.replace('-', '_')}"
            with planting(fault):
                kernel = kernel_of(subject, symbol)
            kernel = kernel if fault.text is None else replace(kernel, text=fault.text(kernel.text))
            if kernel.text.replace(symbol, "k") != good[subject].text:
                out[name].append((subject, kernel))
    return out


Built = tuple[HostLibrary, dict[str, list[tuple[str, HostKernel]]], dict[str, HostKernel]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    faulty, sound = faulty_kernels(), {s: kernel_of(s, f"sound_{s.replace('-', '_')}") for s in SUBJECTS}
    texts = {k.name: k.text for some in faulty.values() for _, k in some} | {k.name: k.text for k in sound.values()}
    return build_library(texts, tmp_path_factory.mktemp("mutations")), faulty, sound


def shown(library: HostLibrary, subject: str, kernel: HostKernel, order: int) -> str | None:
    """How a run of the kernel goes wrong, or None."""
    graph = GRAPHS[subject]
    feeds = random_feeds(graph, 3)
    want = evaluate_graph(graph, feeds, np.float64)["out0"]
    values: dict[str, Array] = {**graph.constants, **feeds}
    try:
        run_kernel(library, kernel.program, values, {}, order)
    except HostFault as e:
        return str(e).splitlines()[0]
    except AssertionError as e:
        return str(e)
    got = values[graph.outputs[0][1]].astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(got - want) <= 2**-9 * max(1.0, np.abs(want).max()))
    return f"{int(wrong.sum())} of {wrong.size} elements are wrong" if wrong.any() else None


@pytest.mark.parametrize("subject", SUBJECTS)
def test_sound_kernels_pass_every_order(subject: str, built: Built) -> None:
    library, _, sound = built
    for order in ORDERS:
        assert shown(library, subject, sound[subject], order) is None


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_shown(name: str, built: Built) -> None:
    library, faulty, _ = built
    assert faulty[name], f"{name!r} changes no kernel's text: the text it looks for is gone"
    found = {(s, order): shown(library, s, k, order) for s, k in faulty[name] for order in ORDERS}
    assert any(found.values()), f"{name!r} passes on {sorted({s for s, _ in found})} under every order"
