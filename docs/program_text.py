"""A template's program before stitching, as text: ports first, then a line a statement."""

from __future__ import annotations

from collections.abc import Sequence

from taskc.ir.printer import value_text
from taskc.ir.program import (
    Accumulate,
    Commit,
    Declare,
    Define,
    Do,
    Fetch,
    FetchTile,
    For,
    If,
    LoadPort,
    Pointer,
    Program,
    Scope,
    Set,
    Stmt,
    StoreTile,
    VectorLoad,
    VectorStore,
)


def program_text(p: Program) -> str:
    """A template's program before stitching; ports first, then a line a statement."""
    ports: dict[str, str] = {}
    body = _block(p.body, ports, 1)
    grid = ", ".join(map(str, p.grid))
    return "\n".join([f"program {p.name}: grid ({grid}), {p.threads} threads, {p.shared_bytes} bytes of shared memory", *ports.values(), *body])


def _block(body: Sequence[Stmt], ports: dict[str, str], depth: int) -> list[str]:
    out: list[str] = []
    for s in body:
        if isinstance(s, For):
            out += [f"for {s.var} in {s.begin} .. {s.end}{'' if s.unroll else ', not unrolled'}:", *_block(s.body, ports, 1)]
        elif isinstance(s, If):
            out += [f"if {' and '.join(f'{c} > 0' for c in s.conditions)}:", *_block(s.body, ports, 1)]
        elif isinstance(s, Scope):
            out += _block(s.body, ports, 0)
        else:
            out.append(_statement(s, ports))
    return ["  " * depth + line for line in out]


def _statement(s: Stmt, ports: dict[str, str]) -> str:
    if isinstance(s, (Fetch, Commit)):
        ports.setdefault(s.port.name, _port(s.port))
        return f"{type(s).__name__} {s.port.name} at ({s.origin[0]}, {s.origin[1]}) to {s.port.buffer.name} + {s.stage}"
    if isinstance(s, StoreTile):
        holes = ", ".join(f"{name} from {b.name}" for name, (b, _) in s.holes.items())
        ports.setdefault(s.name, f"  port {s.name}: stores a {s.tile[0]} x {s.tile[1]} tile, {s.workers} threads, {holes}")
        return f"StoreTile {s.name} at ({s.origin[0]}, {s.origin[1]})"
    if isinstance(s, (FetchTile, Accumulate)):
        return f"{type(s).__name__} {s.port.name}"
    if isinstance(s, Declare):
        b = s.buffer
        return f"{b.scope} {b.name}: {b.dtype}[{b.size}]"
    if isinstance(s, Define):
        return f"{s.var} = {s.value}"
    if isinstance(s, Do):
        template = f"<{', '.join(map(str, s.template))}>" if s.template else ""
        return f"{s.intrinsic}{template}({', '.join(_pointer(a) if isinstance(a, Pointer) else str(a) for a in s.args)})"
    if isinstance(s, (VectorLoad, VectorStore)):
        return f"{_pointer(s.target)} <- {s.width} elements of {_pointer(s.source)}"
    if isinstance(s, Set):
        return f"{value_text(s.target)} = {value_text(s.value)}"
    return " ".join(str(x) for x in (type(s).__name__.lower(), getattr(s, "var", ""), getattr(s, "value", "")) if x != "")


def _port(p: LoadPort) -> str:
    return f"  port {p.name}: {p.tile[0]} x {p.tile[1]} tiles of {p.name} to {p.buffer.name}, {p.mode}, {p.threads} threads, limits {p.limits}"


def _pointer(p: Pointer) -> str:
    return p.name if p.offset == 0 else f"{p.name} + {p.offset}"
