"""How ONNX operators become taskc operators: readers, registered by operator, domain and first opset.

A reader gets a `Reading` (one ONNX node in its surroundings) and adds taskc nodes; it returns the names of the values that
are the ONNX node's outputs. ONNX operators with no direct counterpart are read as several simpler nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import NoReturn, Protocol

import taskc.ops
from taskc.ir.dtype import DType
from taskc.ir.graph import Array, Op, TensorType


class Reading(Protocol):
    """One ONNX node while it is read."""

    @property
    def op_type(self) -> str: ...
    @property
    def opset(self) -> int: ...
    @property
    def inputs(self) -> tuple[str, ...]:
        """Value names, '' where an optional input is absent; trailing absent inputs are dropped."""
        ...

    @property
    def output_count(self) -> int:
        """The outputs that a reader must give: those up to the last one that something uses."""
        ...

    @property
    def declared_outputs(self) -> int:
        """The outputs the node lists, used or not."""
        ...

    def has_input(self, position: int) -> bool: ...
    def type(self, value: str) -> TensorType: ...
    def contents(self, value: str) -> Array | None:
        """What is known of the value at compile time: a constant, or an object array of index expressions; else None."""
        ...

    def add(self, op: Op, *inputs: str) -> str:
        """Adds a node with one output and returns the output's name."""
        ...

    def add_many(self, op: Op, *inputs: str) -> tuple[str, ...]: ...
    def constant(self, array: Array, dtype: DType | None = None) -> str: ...
    def indices(self, values: Array, dtype: DType) -> str:
        """A value known only at run time from the symbols: `values` is an object array of ints and index expressions."""
        ...

    def has(self, attribute: str) -> bool: ...
    def int_(self, attribute: str, default: int | None = None) -> int: ...
    def float_(self, attribute: str, default: float | None = None) -> float: ...
    def string(self, attribute: str, default: str | None = None) -> str: ...
    def ints(self, attribute: str, default: Sequence[int] | None = None) -> tuple[int, ...]: ...
    def floats(self, attribute: str, default: Sequence[float] | None = None) -> tuple[float, ...]: ...
    def tensor(self, attribute: str) -> Array: ...
    def tensor_dtype(self, attribute: str) -> DType: ...
    def dtype(self, attribute: str, default: DType | None = None) -> DType:
        """The element type that an integer attribute (`to`, `dtype`) names."""
        ...

    def unsupported(self, reason: str) -> NoReturn:
        """Refuses the node: it is valid ONNX that taskc does not handle."""
        ...

    def bad(self, reason: str) -> NoReturn:
        """Refuses the model: the node breaks ONNX's rules."""
        ...


Reader = Callable[[Reading], "str | Sequence[str]"]


@dataclass(frozen=True)
class Registered:
    """A reader and the first opset of its domain that it reads."""

    since: int
    read: Reader


READERS: dict[tuple[str, str], list[Registered]] = {}


def onnx_reader(op_type: str, since: int = 1, domain: str = "") -> Callable[[Reader], Reader]:
    """Registers a reader of `op_type` for opsets from `since` on, until a reader with a later `since`."""

    def register(read: Reader) -> Reader:
        known = READERS.setdefault((domain, op_type), [])
        if any(r.since == since for r in known):
            raise ValueError(f"two readers of {domain}.{op_type} since {since}")
        known.append(Registered(since, read))
        known.sort(key=lambda r: r.since)
        return read

    return register


def find_reader(op_type: str, opset: int, domain: str = "") -> Reader | None:
    """The reader for an operator at an opset version, or None."""
    fitting = [r for r in READERS.get((domain, op_type), []) if r.since <= opset]
    return fitting[-1].read if fitting else None


def load_operators() -> None:
    """Imports every module of `taskc.ops`, which registers its readers and examples. A new operator is one new file."""
    for module in iter_modules(taskc.ops.__path__):
        import_module(f"taskc.ops.{module.name}")


@dataclass(frozen=True)
class Example:
    """An operator with concrete inputs; feeds the generic tests (infer, reference, task, host kernel)."""

    op: Op
    inputs: tuple[Array | None, ...]
    name: str = ""


EXAMPLES: list[Callable[[], list[Example]]] = []


def examples(make: Callable[[], list[Example]]) -> Callable[[], list[Example]]:
    """Registers a function that returns an operator family's examples: seeded data, odd sizes, edge cases."""
    EXAMPLES.append(make)
    return make
