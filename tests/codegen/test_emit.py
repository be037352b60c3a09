"""Programs and values as C text: every statement, exact constants, parameters, 64-bit indices; golden kernels."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taskc.codegen.device import INCLUDE
from taskc.codegen.emit import emit, emit_kernel, parameters
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host
from taskc.codegen.text import ValueText, const_text, converted
from taskc.ir.arithmetic import minimum
from taskc.ir.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64, DType
from taskc.ir.expr import Var
from taskc.ir.graph import Graph
from taskc.ir.program import (
    Assign,
    Buffer,
    Commit,
    Declare,
    Define,
    DefineValue,
    Do,
    For,
    If,
    LoadPort,
    Note,
    Pointer,
    Program,
    Query,
    Return,
    Scope,
    Set,
    Stmt,
    Variable,
    VectorLoad,
    VectorStore,
    Workspace,
)
from taskc.ir.task import Contraction, Map, Store, axis
from taskc.ir.value import Call, Cast, Choose, Const, Element, Guard, Hole, Number, Tensor, call
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.ops.reshape import Reshape
from taskc.ops.transpose import Transpose
from taskc.schedules import elementwise, matmul_mma
from tests.graphs import GraphBuilder, groups_of
from tests.host_kernels import make_kernel, run_kernel

GOLDEN = Path(__file__).parent.parent / "golden"
X, S = Var("x"), Var("S", 1)


def body(*statements: Stmt) -> str:
    text = emit(Program("k", (1, 1, 1), 32, 0, list(statements)))
    return "\n".join(line.strip() for line in text.splitlines()[2:-2])


@pytest.mark.parametrize(("statement", "text"), [
    (Declare(Buffer("r", F16, 8)), "alignas(16) f16 r[8];"),
    (Declare(Buffer("s", F32, 8, "shared", 256)), "f32* s = (f32*)(smem + 256);"),
    (Define(Var("y"), X * 2 + 1), "const int y = (2 * x + 1);"),
    (Variable(Var("y"), 0), "int y = 0;"),
    (Assign(Var("y"), (X + 1) % 3), "y = ((x + 1) % 3);"),
    (DefineValue(Var("y"), Element("r", 0, I64)), "const int y = (int)(r[0]);"),
    (Set(Element("r", X, F16), Const(1.5, F32)), "r[x] = cast<f16>(1.5f);"),
    (Set(Element("r", X, F32), Element("h", 2, F16)), "r[x] = to_f32(h[2]);"),
    (Do("barrier"), "barrier();"),
    (Do("cp_async", (Pointer("s", X), Pointer("t"), (S - X,)), (16,)), "cp_async<16>(s + x, t, (S > x));"),
    (Query(Var("last"), "last_block", (Pointer("c", 1), 4)), "const int last = last_block(c + 1, 4);"),
    (VectorLoad(F16, 8, Pointer("r"), Pointer("t", X * 8), (S - X,), "ld_nc"), "ld_nc<f16, 8>(r, t + (8 * x), (S > x));"),
    (VectorStore(F32, 4, Pointer("t"), Pointer("r")), "st<f32, 4>(t, r, true);"),
    (Return(), "return;"),
    (Note("why"), "// why"),
], ids=lambda x: type(x).__name__ if not isinstance(x, str) else "")
def test_statements(statement: Stmt, text: str) -> None:
    assert body(statement) == text


def test_nested_statements() -> None:
    loop = For(Var("i", 0, 7), 0, 8, [If((S - X, X), [Return()]), Scope([Note("in")])], unroll=False)
    assert body(loop) == "NO_UNROLL\nfor (int i = 0; i < 8; ++i) {\nif ((S > x) && (x > 0)) {\nreturn;\n}\n{\n// in\n}\n}"
    assert body(For(X, 0, S, [Return()])).startswith("UNROLL\nfor (int x = 0; x < S; ++x)")


def test_ports_may_not_be_left() -> None:
    port = LoadPort("a", (16, 16), (1, 1), lambda i, j: {}, "async", 32, Buffer("s", F16, 256, "shared"), lambda i, j: i)
    with pytest.raises(TypeError, match="Commit left after stitching"):
        body(Commit(port, (0, 0), 0))
    for value in (Hole("acc", F32), Tensor("t", F32, (4,)).at(0)):
        with pytest.raises(TypeError, match="left after stitching"):
            ValueText()(value)


def test_parameters_are_restrict_only_where_nobody_else_writes() -> None:
    tensors = Tensor("weight", F16, (4,), constant=True), Tensor("x", F16, (4,)), Tensor("out", F32, (4,))
    p = Program("k", (1, 1, 1), 32, 0, tensors=tensors, written=frozenset({"out"}), symbols=(S,))
    p.workspaces = [Workspace("w", I32, 4, "counter")]
    assert parameters(p) == ["const f16* __restrict__ weight", "const f16* x", "f32* __restrict__ out", "i32* w", "const int S"]


def test_branches_choose_their_pointers() -> None:
    """The body has the parameters of one branch, restrict as they are there; the grid's last dim says whose they are."""
    tensors = Tensor("w", F16, (4,), constant=True), Tensor("x", F16, (4,)), Tensor("out", F32, (4,))
    body = [Define(Var("y"), Var("bx") + Var("bz"))]
    p = Program("k", (5, 1, 1), 32, 0, body, tensors, frozenset({"out"}), (S,), [Workspace("c", I32, 4, "counter")], branches=3)
    assert emit_kernel(p) == """\
DEV void k_branch(const f16* __restrict__ w, const f16* x, f32* __restrict__ out, i32* c, const int S) {
  const int bx = block_x();
  const int bz = 0;
  const int y = (bx + bz);
}
extern "C" __global__ void __launch_bounds__(32) k(const f16* w_0, const f16* x_0, f32* out_0, const f16* w_1, const f16* x_1, f32* out_1, \
const f16* w_2, const f16* x_2, f32* out_2, i32* c_0, i32* c_1, i32* c_2, const int S) {
  const int branch = block_z();
  k_branch(branch == 0 ? w_0 : branch == 1 ? w_1 : w_2, branch == 0 ? x_0 : branch == 1 ? x_1 : x_2, \
branch == 0 ? out_0 : branch == 1 ? out_1 : out_2, branch == 0 ? c_0 : branch == 1 ? c_1 : c_2, S);
}
HOST_ENTRY(k)
"""


def test_coordinates_are_defined_only_where_used() -> None:
    text = emit(Program("k", (1, 1, 1), 32, 64, [Define(Var("y"), Var("bx") + 1), Note("tidy")], minimum_blocks=2))
    assert "const int bx = block_x();" in text and "tid =" not in text and "by" not in text
    assert "SMEM(smem);" in text and "__launch_bounds__(32, 2)" in text and text.startswith('#include "taskc_device.cuh"\n')


FLOATS = [0.0, -0.0, 1.0, 0.1, -1e-45, 1.17549435e-38, 3.4028234e38, 1e39, -1e39, math.inf, -math.inf, math.nan, 16777217.0, 1 / 3]


def test_constants_are_exact(tmp_path: Path) -> None:
    """Each literal, compiled and stored, has the bits that NumPy gives the number."""
    given: list[tuple[float | int | bool, DType]] = [(v, d) for v in FLOATS for d in (F32, F64)]
    for d in (I8, I32, I64, U8, U32, U64):
        most = 2 ** (8 * d.bytes - (d.kind == "int"))
        given += [(v, d) for v in (-most, -1, 0, most - 1) if v >= 0 or d.kind == "int"]
    given += [(True, BOOL), (False, BOOL)]
    lines = [f"  {{ {'bool' if d == BOOL else d.name} v = {const_text(v, d)}; TASKC_COPY(out + {n}, &v, sizeof(v)); }}"
             for n, (v, d) in enumerate(given)]
    head = 'extern "C" __global__ void __launch_bounds__(1) constants(u64* out) {'
    text = "\n".join([INCLUDE, head, *lines, "}", "HOST_ENTRY(constants)\n"])
    compile_host({"constants": text}, tmp_path / "c.so")
    out = np.zeros(len(given), np.uint64)
    HostLibrary(tmp_path / "c.so").launch("constants", [out], [1], 1)
    for bits, (v, d) in zip(out, given, strict=True):
        with np.errstate(over="ignore"):
            want = np.array(v).astype(d.numpy)
        got = np.frombuffer(struct.pack("<Q", int(bits))[: d.bytes], d.numpy)[0]
        assert got.tobytes() == want.tobytes() or (v != v and got != got), (v, d, const_text(v, d))


@pytest.mark.parametrize(("value", "text"), [
    (Number(X + 1, F32), "((f32)(x + 1))"),
    (Guard((S - X,), Element("r", 0, F32)), "((S > x) ? r[0] : 0.0f)"),
    (Choose(S - X, Const(1, I32), Const(2, I32)), "((S > x) ? 1 : 2)"),
    (call("add", Element("a", 0, I8), Element("b", 0, I8)), "((i8)((a[0] + b[0])))"),
    (call("div", Element("a", 0, I32), Element("b", 0, I32)), "truncdiv(a[0], b[0])"),
    (call("div", Element("a", 0, F16), Element("b", 0, F32)), "(to_f32(a[0]) / b[0])"),
    (call("not", Element("a", 0, BOOL)), "(!bool(a[0]))"),
    (Cast(Element("a", 0, F32), F16), "to_f32(cast<f16>(a[0]))"),
    (Cast(Element("a", 0, F32), F32), "a[0]"),
    (Cast(Element("a", 0, F32), BOOL), "bool(cast<b8>(a[0]))"),
    (Cast(Element("a", 0, BOOL), F32), "(f32)(bool(a[0]))"),
    (Cast(Element("a", 0, F32), I8), "cast<i8>(a[0])"),
], ids=lambda x: "" if isinstance(x, str) else type(x).__name__)
def test_values(value: Call, text: str) -> None:
    assert ValueText()(value) == text


def test_storing_converts() -> None:
    assert converted(Element("a", 0, F32), BF16) == "cast<bf16>(a[0])"
    assert converted(Element("a", 0, F32), F32) == "a[0]"
    assert converted(Element("a", 0, BOOL), I64) == "cast<i64>(int(bool(a[0])))"


def test_wide_indices_compile_and_run(tmp_path: Path) -> None:
    """A kernel with 64-bit indices whose index math calls templates beside int constants and symbols."""
    n = Var("n", 1)
    x, out = Tensor("x", F32, (n,)), Tensor("out", F32, (n,))
    i = axis("i", n)
    reflected = minimum(i.var, n - 1 - i.var)
    value = call("add", x.at(reflected), Number((i.var - 7) // n, F32))
    kernel = make_kernel(Map((i,), (Store(out, (i.var,), value),)), elementwise, elementwise.Schedule(64, 2), "wide")
    kernel.program.wide_index = True
    text = emit(kernel.program)
    assert "typedef i64 index_t;" in text and "t_min<index_t>" in text and "floordiv<index_t>" in text
    assert "const i64 bx" in text and "typedef int index_t;" in kernel.text
    compile_host({"wide": text}, tmp_path / "w.so")
    library = HostLibrary(tmp_path / "w.so")
    for size in (1, 5, 203):
        a, at = np.random.default_rng(size).standard_normal(size).astype(np.float32), np.arange(size)
        values = {"x": a}
        run_kernel(library, kernel.program, values, {"n": size})
        want = a[np.minimum(at, size - 1 - at)] + ((at - 7) // size).astype(np.float32)
        np.testing.assert_array_equal(values["out"], want)


# ---- golden kernels ---------------------------------------------------------------------------------------------------


def constant(b: GraphBuilder, *shape: int) -> str:
    return b.constant(np.ones(shape, np.float32), F16)


def golden_matmul(b: GraphBuilder) -> str:
    y = b.add(MatMul(), b.input("x", (100, 72), F16), constant(b, 72, 40))
    return b.add(Elementwise("relu"), b.add(Elementwise("add"), y, constant(b, 40)))


def golden_conv(b: GraphBuilder) -> str:
    x = b.add(Elementwise("relu"), b.add(Elementwise("mul"), b.input("x", (1, 9, 9, 16), F16), constant(b, 16)))
    return b.add(Conv((1, 1), (1, 1, 1, 1), (1, 1), channels_last=True), x, constant(b, 3, 3, 16, 24))


def golden_symbolic(b: GraphBuilder) -> str:
    y = b.add(MatMul(transpose_b=True), b.input("x", (Var("M", 1), 64), F16), constant(b, 48, 64))
    return b.add(Transpose((1, 0, 2)), b.add(Reshape((Var("M", 1), 3, 16)), y))


def golden_gelu(b: GraphBuilder) -> str:
    x = b.add(Elementwise("add"), b.input("x", (Var("N", 1), 96), F16), constant(b, 96))
    return b.add(Elementwise("mul"), x, b.add(Elementwise("sigmoid"), x))


_MMA = matmul_mma.Schedule
GOLDEN_KERNELS: dict[str, tuple[Callable[[GraphBuilder], str], object]] = {
    "matmul_bias_relu_async": (golden_matmul, _MMA(64, 64, 32, 32, 32, 3, "async")),
    "matmul_bias_relu_register_split": (golden_matmul, _MMA(32, 64, 32, 16, 32, 2, "register", 4)),
    "conv_channels_last_prologue": (golden_conv, _MMA(64, 32, 32, 32, 16, 3, "async")),
    "matmul_symbolic_heads": (golden_symbolic, _MMA(32, 32, 32, 16, 16, 3, "async")),
    "gelu_symbolic": (golden_gelu, elementwise.Schedule(128, 8)),
}


def golden_text(make: Callable[[GraphBuilder], str], schedule: object) -> str:
    b = GraphBuilder()
    graph: Graph = b.graph(make(b))
    (unit,) = groups_of(graph)[0]
    template = matmul_mma if isinstance(unit.task, Contraction) else elementwise
    return INCLUDE + "\n" + make_kernel(unit.task, template, schedule, "kernel").text


@pytest.mark.parametrize("name", GOLDEN_KERNELS)
def test_golden_kernels(name: str, request: pytest.FixtureRequest) -> None:
    """A refactoring shows no difference; a meant change is renewed with --update-golden and reviewed as a diff."""
    path, text = GOLDEN / f"{name}.cu", golden_text(*GOLDEN_KERNELS[name])
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} differs: run pytest with --update-golden and look at the diff"
