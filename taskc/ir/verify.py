"""Checks of stitched programs: what every kernel must keep, stated once and run on every kernel that is built.

- A kernel that may start before its predecessors end (programmatic dependent launch) waits for them on every path before it
  loads anything that is not constant, stores anything, or returns.
- Every buffer is declared before it is used, and no port access is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskc.ir.program import (
    Accumulate,
    Argument,
    Commit,
    Declare,
    DefineValue,
    Do,
    Fetch,
    FetchTile,
    For,
    If,
    Pointer,
    Program,
    Query,
    Return,
    Scope,
    Set,
    Stmt,
    StoreTile,
    VectorLoad,
    VectorStore,
)
from taskc.ir.value import Element, Load, Value, walk

WAIT = "grid_dependency_wait"


class ProgramError(Exception):
    """A broken rule: a bug in a template or in stitching."""


def verify(p: Program) -> None:
    """Raises ProgramError, naming the kernel and the statement, where a rule is broken."""
    constants = frozenset(t.name for t in p.tensors if t.constant)
    known = frozenset(t.name for t in p.tensors) | {w.name for w in p.workspaces}
    _Checker(p.name, constants, known).block(p.body, set(), waited=False)


@dataclass
class _Checker:
    kernel: str
    constants: frozenset[str]
    memory: frozenset[str]  # names that lie in global memory


    def fail(self, what: str, s: object) -> ProgramError:
        return ProgramError(f"kernel {self.kernel}: {what}: {s}")

    def block(self, body: list[Stmt], declared: set[str], waited: bool) -> bool:
        """Checks the statements in order; returns whether every path through them has waited."""
        declared = set(declared)
        for s in body:
            if isinstance(s, (Fetch, Commit, FetchTile, Accumulate, StoreTile)):
                raise self.fail("a port access is left after stitching", type(s).__name__)
            if isinstance(s, Declare):
                declared.add(s.buffer.name)
            elif isinstance(s, Scope):
                waited = self.block(s.body, declared, waited)
            elif isinstance(s, (For, If)):
                self.block(s.body, declared, waited)  # may not run at all, so it proves nothing for what follows
            elif isinstance(s, Do) and s.intrinsic == WAIT:
                waited = True
            else:
                self.statement(s, declared, waited)
        return waited

    def statement(self, s: Stmt, declared: set[str], waited: bool) -> None:
        if isinstance(s, Return):
            if not waited:
                raise self.fail("returns before it waits for the kernels before it", s)
        elif isinstance(s, VectorLoad):
            self.touch(s.source, declared, waited or s.source.name in self.constants, s)
            self.touch(s.target, declared, waited, s)
        elif isinstance(s, VectorStore):
            self.touch(s.source, declared, waited, s)
            self.touch(s.target, declared, waited, s)
        elif isinstance(s, (Do, Query)):
            for a in s.args:
                self.argument(a, declared, waited, s)
        elif isinstance(s, Set):
            self.value(s.target, declared, s)
            self.value(s.value, declared, s)
        elif isinstance(s, DefineValue):
            self.value(s.value, declared, s)

    def argument(self, a: Argument, declared: set[str], waited: bool, s: Stmt) -> None:
        if isinstance(a, Pointer):
            self.touch(a, declared, waited or a.name in self.constants, s)

    def touch(self, at: Pointer, declared: set[str], allowed: bool, s: Stmt) -> None:
        if at.name in self.memory:
            if not allowed:
                raise self.fail(f"touches {at.name} before it waits for the kernels before it", s)
        elif at.name not in declared:
            raise self.fail(f"uses {at.name} before it is declared", s)

    def value(self, v: Value, declared: set[str], s: Stmt) -> None:
        for x in walk(v):
            if isinstance(x, Load):
                raise self.fail("a load is left after stitching", x)
            if isinstance(x, Element) and x.buffer not in declared:
                raise self.fail(f"uses {x.buffer} before it is declared", s)
