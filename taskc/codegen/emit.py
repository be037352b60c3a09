"""Program -> CUDA C: one text for NVRTC and for the `host` machine, told apart only inside the device headers."""

from __future__ import annotations

from typing_extensions import assert_never

from taskc.codegen.text import ValueText, condition_text, converted, index_text
from taskc.ir.expr import Expr
from taskc.ir.program import (
    Accumulate,
    Argument,
    Assign,
    Buffer,
    Commit,
    Declare,
    Define,
    DefineValue,
    Do,
    Fetch,
    FetchTile,
    For,
    If,
    Note,
    Pointer,
    Program,
    Query,
    Return,
    Scope,
    Set,
    Stmt,
    StoreTile,
    Variable,
    VectorLoad,
    VectorStore,
)

_INDENT = "  "
_BUILT_IN = {"tid": "thread_x()", "bx": "block_x()", "by": "block_y()", "bz": "block_z()"}


def emit(program: Program) -> str:
    """The kernel's whole text."""
    return '#include "taskc_device.cuh"\n' + emit_kernel(program)


def emit_kernel(p: Program) -> str:
    """The kernel without the include line.

    Of several branches, the body is a function with the parameters of one, restrict ones too, and the kernel calls it with the
    pointers of the block's branch: the compiler puts it in place and knows of it what it knows of a kernel of one branch."""
    bounds = f"{p.threads}, {p.minimum_blocks}" if p.minimum_blocks else str(p.threads)
    entry = f'extern "C" __global__ void __launch_bounds__({bounds}) {p.name}'
    one = f"({', '.join(parameters(p))}) {{"
    if p.branches == 1:
        return "\n".join([entry + one, *_body(p), "}", f"HOST_ENTRY({p.name})"]) + "\n"
    body = [f"DEV void {p.name}_branch{one}", *_body(p), "}"]
    kernel = [f"{entry}({', '.join(_branch_parameters(p))}) {{", *(_INDENT + line for line in _call_branch(p)), "}"]
    return "\n".join([*body, *kernel, f"HOST_ENTRY({p.name})"]) + "\n"


def _body(p: Program) -> list[str]:
    """The lines of what one thread does for one branch."""
    index = "i64" if p.wide_index else "int"
    body: list[str] = []
    _Printer(index, body).block(p.body, 1)
    text = "\n".join(body)
    shared = ["SMEM(smem);"] if p.shared_bytes else []
    named = [f"typedef {index} index_t;"] if _mentions(text, "index_t") else []
    known = {**_BUILT_IN, "bz": "0"} if p.branches > 1 else _BUILT_IN
    built_in = [f"const {index} {name} = {what};" for name, what in known.items() if _mentions(text, name)]
    return [*(_INDENT + line for line in shared + named + built_in), text]


def _branch_parameters(p: Program) -> list[str]:
    """Those of every branch, the tensors of the first one first, then their workspaces likewise; symbolic dims once.

    Branches may share tensors that they read, so nothing is restrict here."""
    tensors = [f"{'' if t.name in p.written else 'const '}{t.dtype.name}* {t.name}_{b}" for b in range(p.branches) for t in p.tensors]
    return tensors + [f"{w.dtype.name}* {w.name}_{b}" for b in range(p.branches) for w in p.workspaces] + [f"const int {s.name}" for s in p.symbols]


def _call_branch(p: Program) -> list[str]:
    """The worker of the grid's last dim is the branch; it takes the body's pointers from those of all branches."""
    own = [_own(x.name, p.branches) for x in (*p.tensors, *p.workspaces)]
    args = ", ".join([*own, *(s.name for s in p.symbols)])
    return ["const int branch = block_z();", f"{p.name}_branch({args});"]


def _own(name: str, branches: int) -> str:
    """The branch's one among name_0, name_1, …"""
    return "".join(f"branch == {b} ? {name}_{b} : " for b in range(branches - 1)) + f"{name}_{branches - 1}"


def parameters(p: Program) -> list[str]:
    """The parameters of one branch: tensors, workspaces, symbolic dims.

    A tensor that another kernel of the same run writes is const but not restrict: a restrict load may move above the wait for
    that kernel. What this kernel writes is restrict, so that its stores do not hold back later loads."""
    out: list[str] = []
    for t in p.tensors:
        const = "" if t.name in p.written else "const "
        restrict = " __restrict__" if t.constant or t.name in p.written else ""
        out.append(f"{const}{t.dtype.name}*{restrict} {t.name}")
    out += [f"{w.dtype.name}* {w.name}" for w in p.workspaces]
    return out + [f"const int {s.name}" for s in p.symbols]


def _mentions(text: str, name: str) -> bool:
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1], text[at + len(name) : at + len(name) + 1]
        if not (before.isalnum() or before == "_") and not (after.isalnum() or after == "_"):
            return True
        at = text.find(name, at + 1)
    return False


class _Printer:
    def __init__(self, index: str, out: list[str]) -> None:
        self.index, self.out, self.value = index, out, ValueText()

    def block(self, body: list[Stmt], depth: int) -> None:
        for s in body:
            self.statement(s, depth)

    def line(self, depth: int, text: str) -> None:
        self.out.append(_INDENT * depth + text)

    def nested(self, depth: int, head: str, body: list[Stmt]) -> None:
        self.line(depth, f"{head} {{" if head else "{")
        self.block(body, depth + 1)
        self.line(depth, "}")

    def statement(self, s: Stmt, depth: int) -> None:
        if isinstance(s, Declare):
            self.line(depth, self.declaration(s.buffer))
        elif isinstance(s, Define):
            self.line(depth, f"const {self.index} {s.var.name} = {index_text(s.value)};")
        elif isinstance(s, Variable):
            self.line(depth, f"{self.index} {s.var.name} = {index_text(s.value)};")
        elif isinstance(s, Assign):
            self.line(depth, f"{s.var.name} = {index_text(s.value)};")
        elif isinstance(s, DefineValue):
            self.line(depth, f"const {self.index} {s.var.name} = ({self.index})({self.value(s.value)});")
        elif isinstance(s, Set):
            self.line(depth, f"{s.target.buffer}[{index_text(s.target.offset)}] = {converted(s.value, s.target.storage)};")
        elif isinstance(s, Do):
            self.line(depth, f"{self.call(s.intrinsic, s.args, s.template)};")
        elif isinstance(s, Query):
            self.line(depth, f"const {self.index} {s.var.name} = {self.call(s.intrinsic, s.args)};")
        elif isinstance(s, (VectorLoad, VectorStore)):
            self.line(depth, self.vector(s.cache, s))
        elif isinstance(s, For):
            self.loop(s, depth)
        elif isinstance(s, If):
            self.nested(depth, f"if ({condition_text(s.conditions)})", s.body)
        elif isinstance(s, Scope):
            self.nested(depth, "", s.body)
        elif isinstance(s, Return):
            self.line(depth, "return;")
        elif isinstance(s, Note):
            self.line(depth, f"// {s.text}")
        elif isinstance(s, (Fetch, Commit, FetchTile, Accumulate, StoreTile)):
            raise TypeError(f"{type(s).__name__} left after stitching")
        else:
            assert_never(s)

    def declaration(self, b: Buffer) -> str:
        if b.scope == "shared":
            return f"{b.dtype.name}* {b.name} = ({b.dtype.name}*)(smem + {b.place});"
        return f"alignas(16) {b.dtype.name} {b.name}[{b.size}];"

    def loop(self, s: For, depth: int) -> None:
        self.line(depth, "UNROLL" if s.unroll else "NO_UNROLL")
        v = s.var.name
        self.nested(depth, f"for ({self.index} {v} = {index_text(s.begin)}; {v} < {index_text(s.end)}; ++{v})", s.body)

    def vector(self, name: str, s: VectorLoad | VectorStore) -> str:
        args = f"{self.argument(s.target)}, {self.argument(s.source)}, {condition_text(s.conditions)}"
        return f"{name}<{s.dtype.name}, {s.width}>({args});"

    def call(self, name: str, args: tuple[Argument, ...], template: tuple[int | str, ...] = ()) -> str:
        t = f"<{', '.join(map(str, template))}>" if template else ""
        return f"{name}{t}({', '.join(self.argument(a) for a in args)})"

    def argument(self, a: Argument) -> str:
        if isinstance(a, Pointer):
            return a.name if isinstance(a.offset, int) and a.offset == 0 else f"{a.name} + {index_text(a.offset)}"
        if isinstance(a, tuple):
            return condition_text(a)
        if isinstance(a, (int, Expr)):
            return index_text(a)
        return self.value(a)


