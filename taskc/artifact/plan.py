"""The plan: everything the static runtime needs to run a model, as tables; no generated logic.

Sizes and offsets are bytes; an `Index` is an int or an expression over the plan's symbols, evaluated when shapes are bound.
The binary form of these records is in `format.py`; the C runtime reads that form and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from taskc.ir.dtype import DType
from taskc.ir.expr import Index


@dataclass(frozen=True)
class Symbol:
    """A symbolic dim: its value is dim `axis` of input number `input`, at least `low`, at most `high`, and a multiple of
    `multiple`. Kernels rely on it (a table may have no more rows), so the runtime refuses other sizes."""

    name: str
    input: int
    axis: int
    low: int = 1
    multiple: int = 1
    high: int = 2**31 - 1


@dataclass(frozen=True)
class InputMemory:
    """The caller's memory of input number `number`."""

    number: int


@dataclass(frozen=True)
class OutputMemory:
    """The caller's memory of output number `number`."""

    number: int


@dataclass(frozen=True)
class ArenaMemory:
    """A place in the context's arena; two tensors may share bytes when their lifetimes do not overlap."""

    offset: Index


@dataclass(frozen=True)
class WeightMemory:
    """A place in the weights blob, 256-byte aligned."""

    offset: int


Memory = Union[InputMemory, OutputMemory, ArenaMemory, WeightMemory]


@dataclass(frozen=True)
class PlanTensor:
    """A dense row-major tensor."""

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    memory: Memory


@dataclass(frozen=True)
class Kernel:
    """An entry point of an image. `pdl`: it waits for its predecessors itself (programmatic dependent launch).

    `registers`, `spill_bytes` and `ports` (text) are facts for `taskc inspect`."""

    symbol: str
    threads: int
    shared_bytes: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    pdl: bool = False
    cooperative: bool = False
    registers: int = 0
    spill_bytes: int = 0
    notes: str = ""


@dataclass(frozen=True)
class TensorArg:
    """A pointer to plan tensor `tensor` plus `offset` bytes."""

    tensor: int
    offset: Index = 0


@dataclass(frozen=True)
class IntArg:
    """A 4- or 8-byte integer."""

    value: Index
    bytes: int = 4


@dataclass(frozen=True)
class ScratchArg:
    """A pointer into the arena for one launch; contents undefined at entry."""

    offset: Index
    size: Index


@dataclass(frozen=True)
class CounterArg:
    """A pointer to `size` bytes that belong to this launch, zero before the first run; the kernel leaves them zero.

    Zeroed again by the runtime after an error."""

    size: Index


@dataclass(frozen=True)
class TensorMapArg:
    """A 128-byte CUtensorMap passed by value, encoded by the runtime from the tensor's address when bound.

    `sizes` and `box` count elements, fastest dim first; `strides` count bytes, for every dim but the fastest."""

    tensor: int
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0


Arg = Union[TensorArg, IntArg, ScratchArg, CounterArg, TensorMapArg]


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `after` holds the numbers of earlier steps that must have finished (data or memory reuse)."""

    kernel: int
    grid: tuple[Index, Index, Index]
    args: tuple[Arg, ...]
    after: tuple[int, ...] = ()
    name: str = ""  # the user's nodes it computes, for messages and profiles


@dataclass(frozen=True)
class Copy:
    """Copies `size` bytes between plan tensors on the device (an output that is an input, a duplicate or a constant)."""

    source: int
    target: int
    size: Index
    after: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Fill:
    """Sets `size` bytes of a plan tensor to `byte`."""

    target: int
    size: Index
    byte: int = 0
    after: tuple[int, ...] = ()
    name: str = ""


Step = Union[Launch, Copy, Fill]


@dataclass(frozen=True)
class Image:
    """Code for a target: kind 'cubin' or 'ptx' with `arch` like 'sm_90a', or 'host', a shared object of host kernels."""

    kind: str
    arch: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class TargetPlan:
    """How one target runs the model. `arena_bytes` is the arena's size; a context has one arena."""

    target: str  # 'sm_80', 'sm_90a', 'host'
    images: tuple[Image, ...]
    kernels: tuple[Kernel, ...]
    tensors: tuple[PlanTensor, ...]
    steps: tuple[Step, ...]
    arena_bytes: Index


@dataclass(frozen=True)
class Port:
    """A graph input or output as the caller sees it."""

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    dim_names: tuple[str, ...] = ()  # the user's names of symbolic dims, '' for fixed ones


@dataclass(frozen=True)
class ModelPlan:
    """A whole model. `weights` is a list of (offset, bytes-like) pieces of one blob, in ascending order."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    targets: tuple[TargetPlan, ...]
    weights: tuple[tuple[int, memoryview | bytes], ...] = field(repr=False, default=())
    metadata: str = "{}"  # JSON: producer, model hash, toolchain
