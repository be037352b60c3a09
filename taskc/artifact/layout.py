"""How a record lies in bytes: a frozen dataclass whose annotations are the layout -> its bytes, its fields, its size.

Every record is little-endian with C's natural alignment, without implicit padding.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints


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
