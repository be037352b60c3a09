"""The binary records of a library's payload, declared once: the serializer packs them, the C header is generated from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from taskc.artifact.layout import I64, U32, U64, Magic, Record, U32x3, U32x5

MAGIC = b"TASKCMDL"
VERSION = 2
MAX_RANK = 16
MAX_STACK = 64  # depth of the expression evaluator
MAX_CODE = 4096  # instructions of one expression


class DTypeCode(IntEnum):
    """Element types; bfloat16 travels as its bits."""

    F16 = 1
    BF16 = 2
    F32 = 3
    F64 = 4
    I8 = 5
    I16 = 6
    I32 = 7
    I64 = 8
    U8 = 9
    U16 = 10
    U32 = 11
    U64 = 12
    B8 = 13


class Op(IntEnum):
    """Instructions of the postfix index expressions; all but the first two pop two values and push one."""

    CONST = 0
    SYMBOL = 1
    ADD = 2
    MUL = 3
    FLOOR_DIV = 4
    FLOOR_MOD = 5
    MIN = 6
    MAX = 7


class ImageKind(IntEnum):
    CUBIN = 0
    PTX = 1  # its last byte is 0
    HOST = 2


class MemoryKind(IntEnum):
    INPUT = 0
    OUTPUT = 1
    ARENA = 2
    WEIGHT = 3


class StepKind(IntEnum):
    LAUNCH = 0
    COPY = 1
    FILL = 2


class ArgKind(IntEnum):
    TENSOR = 0
    INT = 1
    SCRATCH = 2
    COUNTER = 3
    TENSOR_MAP = 4


class KernelFlag(IntEnum):
    PDL = 1
    COOPERATIVE = 2


ENUMS: tuple[type[IntEnum], ...] = (DTypeCode, Op, ImageKind, MemoryKind, StepKind, ArgKind, KernelFlag)


@dataclass(frozen=True)
class Text(Record):
    """UTF-8 in the string table, followed by a 0 byte that `bytes` does not count."""

    offset: U32
    bytes: U32


@dataclass(frozen=True)
class IndexRef(Record):
    """`value` when `length` is 0, else the expression of `length` instructions from `code` on."""

    value: I64
    code: U32
    length: U32


@dataclass(frozen=True)
class Span(Record):
    """Rows first .. first + count - 1 of a table."""

    first: U32
    count: U32


@dataclass(frozen=True)
class Table(Record):
    """`count` records of `record_bytes` bytes each at `offset` of the payload."""

    offset: U64
    count: U32
    record_bytes: U32


@dataclass(frozen=True)
class Code(Record):
    op: U32
    symbol: U32
    value: I64


@dataclass(frozen=True)
class SymbolRow(Record):
    name: Text
    input: U32
    axis: U32
    low: I64
    multiple: I64
    high: I64


@dataclass(frozen=True)
class DimRow(Record):
    name: Text
    extent: IndexRef


@dataclass(frozen=True)
class PortRow(Record):
    name: Text
    dtype: U32
    rank: U32
    first_dim: U32
    reserved: U32


@dataclass(frozen=True)
class TargetRow(Record):
    name: Text
    arena: IndexRef
    images: Span
    kernels: Span
    tensors: Span
    steps: Span


@dataclass(frozen=True)
class ImageRow(Record):
    arch: Text
    kind: U32
    reserved: U32
    offset: U64
    bytes: U64


@dataclass(frozen=True)
class KernelRow(Record):
    symbol: Text
    notes: Text
    threads: U32
    shared_bytes: U32
    cluster: U32x3
    flags: U32
    registers: U32
    spill_bytes: U32


@dataclass(frozen=True)
class TensorRow(Record):
    name: Text
    dtype: U32
    rank: U32
    first_dim: U32
    memory: U32
    number: U32
    reserved: U32
    offset: IndexRef


@dataclass(frozen=True)
class StepRow(Record):
    name: Text
    kind: U32
    kernel: U32
    source: U32
    target: U32
    byte: U32
    reserved: U32
    size: IndexRef
    grid: tuple[IndexRef, IndexRef, IndexRef]
    args: Span
    after: Span


@dataclass(frozen=True)
class ArgRow(Record):
    kind: U32
    bytes: U32
    tensor: U32
    map: U32
    value: IndexRef
    size: IndexRef


@dataclass(frozen=True)
class MapRow(Record):
    rank: U32
    swizzle_bytes: U32
    sizes: tuple[IndexRef, IndexRef, IndexRef, IndexRef, IndexRef]
    strides: tuple[IndexRef, IndexRef, IndexRef, IndexRef, IndexRef]
    box: U32x5
    reserved: U32


@dataclass(frozen=True)
class EdgeRow(Record):
    step: U32


@dataclass(frozen=True)
class Header(Record):
    """The payload's first bytes. `crc` is the CRC-32 of bytes 16 .. head_bytes - 1: everything but code images and
    weights."""

    magic: Magic
    version: U32
    crc: U32
    payload_bytes: U64
    head_bytes: U64
    weights_offset: U64
    weights_bytes: U64
    name: Text
    metadata: Text
    strings: Table
    code: Table
    symbols: Table
    dims: Table
    inputs: Table
    outputs: Table
    targets: Table
    images: Table
    kernels: Table
    tensors: Table
    steps: Table
    args: Table
    maps: Table
    edges: Table


RECORDS: tuple[type[Record], ...] = (
    Text, IndexRef, Span, Table, Code, SymbolRow, DimRow, PortRow, TargetRow, ImageRow, KernelRow, TensorRow, StepRow,
    ArgRow, MapRow, EdgeRow, Header,
)  # fmt: skip
