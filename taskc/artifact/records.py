"""The binary records of a library's payload, declared once: the serializer packs them, the C header is generated from
them.

Every record is little-endian with C's natural alignment, without implicit padding; the C header asserts sizes and
offsets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

MAGIC = b"TASKCMDL"
VERSION = 2
MAX_RANK = 16
MAX_STACK = 64  # depth of the expression evaluator
MAX_CODE = 4096  # instructions of one expression


@dataclass(frozen=True)
class Scalar:
    """A C integer type and its `struct` letter; `count` > 1 makes an array."""

    c_type: str
    letter: str
    count: int = 1


U32 = Annotated[int, Scalar("uint32_t", "I")]
U64 = Annotated[int, Scalar("uint64_t", "Q")]
I64 = Annotated[int, Scalar("int64_t", "q")]
U32x3 = Annotated[tuple[int, int, int], Scalar("uint32_t", "I", 3)]
U32x5 = Annotated[tuple[int, int, int, int, int], Scalar("uint32_t", "I", 5)]
Magic = Annotated[bytes, Scalar("char", "s", 8)]


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


class Record:
    """Base of the records: a frozen dataclass whose annotations are the layout."""

    def pack(self) -> bytes:
        """The record's bytes."""
        out = bytearray()
        for name, kind, count in layout(type(self)):
            value: Any = getattr(self, name)
            if isinstance(kind, Scalar):
                if kind.letter == "s":
                    out += struct.pack(f"<{kind.count}s", value)
                elif kind.count > 1:
                    out += struct.pack(f"<{kind.count}{kind.letter}", *value)
                else:
                    out += struct.pack("<" + kind.letter, value)
            else:
                for part in value if count > 1 else (value,):
                    out += part.pack()
        return bytes(out)


Kind = Scalar | type[Record]


@cache
def layout(record: type[Record]) -> tuple[tuple[str, Kind, int], ...]:
    """(field, scalar or nested record, repeat count) in order."""
    hints = get_type_hints(record, include_extras=True)
    out: list[tuple[str, Kind, int]] = []
    for f in fields(record):  # type: ignore[arg-type]
        hint = hints[f.name]
        if get_origin(hint) is Annotated:
            out.append((f.name, get_args(hint)[1], 1))
        elif get_origin(hint) is tuple:
            out.append((f.name, get_args(hint)[0], len(get_args(hint))))
        else:
            out.append((f.name, hint, 1))
    return tuple(out)


@cache
def size_of(record: type[Record]) -> int:
    """Bytes of a record."""
    total = 0
    for _, kind, count in layout(record):
        scalar = isinstance(kind, Scalar)
        total += struct.calcsize(f"<{kind.count}{kind.letter}") if scalar else count * size_of(kind)
    return total


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


def snake(name: str) -> str:
    """CamelCase -> camel_case."""
    return "".join(
        "_" + c.lower() if c.isupper() and i and not name[i - 1].isupper() else c.lower() for i, c in enumerate(name)
    )


def c_header() -> str:
    """The text of `runtime/taskc_format.h`."""
    out = [
        "/* Generated from taskc/artifact/records.py by `python -m taskc.artifact.format`; do not edit. */",
        "#ifndef TASKC_FORMAT_H", "#define TASKC_FORMAT_H", "#include <stddef.h>", "#include <stdint.h>", "",
        f'#define FMT_MAGIC "{MAGIC.decode()}"', f"#define FMT_VERSION {VERSION}u", f"#define FMT_MAX_RANK {MAX_RANK}u",
        f"#define FMT_MAX_STACK {MAX_STACK}u", f"#define FMT_MAX_CODE {MAX_CODE}u", "",
    ]  # fmt: skip
    for enum in ENUMS:
        prefix = "FMT_" + snake(enum.__name__).upper()
        out.append(f"enum {{ {', '.join(f'{prefix}_{m.name} = {m.value}' for m in enum)} }};")
    for record in RECORDS:
        out += ["", *_c_struct(record)]
    return "\n".join([*out, "", "#endif", ""])


def _c_name(record: type[Record]) -> str:
    return "fmt_" + snake(record.__name__.removesuffix("Row"))


def _c_struct(record: type[Record]) -> list[str]:
    name = _c_name(record)
    out, checks, offset = (
        [f"typedef struct {name} {{"],
        [f'_Static_assert(sizeof({name}) == {size_of(record)}, "{name}");'],
        0,
    )
    for field, kind, count in layout(record):
        scalar = isinstance(kind, Scalar)
        n = kind.count if scalar else count
        out.append(f"  {kind.c_type if scalar else _c_name(kind)} {field}{f'[{n}]' if n > 1 else ''};")
        checks.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
        offset += struct.calcsize(f"<{kind.count}{kind.letter}") if scalar else count * size_of(kind)
    return [*out, f"}} {name};", *checks]
