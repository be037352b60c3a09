"""A 64-bit little-endian shared object plus a payload -> the same object with the payload as one more read-only
segment.

The runtime carries a PT_NOTE header for this: it becomes the new PT_LOAD, so nothing else has to move. The payload
gets a
section as well (`strip` keeps what a section covers), and the runtime's anchor record gets its distance and size.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_PT_LOAD, _PT_NOTE, _PF_R = 1, 4, 4
_SHT_PROGBITS, _SHF_ALLOC = 1, 2
_ANCHOR_SECTION = ".taskc.anchor"
_PAYLOAD_SECTION = ".taskc.payload"
_ANCHOR = struct.Struct("<16sQQ")
_ANCHOR_MAGIC = b"TASKC ANCHOR 1\n\0"


@dataclass(frozen=True)
class Segment:
    type: int
    flags: int
    offset: int
    address: int
    physical: int
    file_bytes: int
    memory_bytes: int
    align: int


@dataclass(frozen=True)
class Section:
    name: int
    type: int
    flags: int
    address: int
    offset: int
    bytes: int
    link: int
    info: int
    align: int
    entry_bytes: int


@dataclass(frozen=True)
class Extended:
    """`head`, zeros up to `payload_offset`, the payload, zeros up to `tail_offset`, `tail`."""

    head: bytes
    payload_offset: int
    tail_offset: int
    tail: bytes


class BadElf(ValueError):
    """Not a shared object that a payload can be added to."""


def extend(elf: bytes, payload_bytes: int) -> Extended:
    """Lays out `elf` with a payload of `payload_bytes` bytes. BadElf says what is missing."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise BadElf("not a 64-bit little-endian ELF file")
    ehdr: list[Any] = list(_EHDR.unpack_from(elf))
    segments = [Segment(*_PHDR.unpack_from(elf, ehdr[5] + i * _PHDR.size)) for i in range(ehdr[10])]
    sections = [Section(*_SHDR.unpack_from(elf, ehdr[6] + i * _SHDR.size)) for i in range(ehdr[12])]
    names = sections[int(ehdr[13])]
    name_bytes = elf[names.offset : names.offset + names.bytes]
    anchor = _find(sections, name_bytes, _ANCHOR_SECTION)
    if elf[anchor.offset : anchor.offset + 16] != _ANCHOR_MAGIC:
        raise BadElf("the runtime's anchor has another version")

    align = max(s.align for s in segments if s.type == _PT_LOAD)
    address = _up(max(s.address + s.memory_bytes for s in segments if s.type == _PT_LOAD), align)
    offset = _up(len(elf), align)
    spare = next((i for i, s in enumerate(segments) if s.type == _PT_NOTE), None)
    if spare is None or any(s.type == _PT_LOAD for s in segments[spare:]):
        raise BadElf("no PT_NOTE header after the last PT_LOAD")
    load = (_PT_LOAD, _PF_R, offset, address, address, payload_bytes, payload_bytes, align)

    head = bytearray(elf)
    _PHDR.pack_into(head, ehdr[5] + spare * _PHDR.size, *load)
    _ANCHOR.pack_into(head, anchor.offset, _ANCHOR_MAGIC, address - anchor.address, payload_bytes)
    tail_offset = _up(offset + payload_bytes, 16)
    tail = _section_tail(sections, ehdr[13], name_bytes, tail_offset, (offset, address, payload_bytes))
    ehdr[6] = tail_offset + len(tail) - (len(sections) + 1) * _SHDR.size
    ehdr[12] = len(sections) + 1
    _EHDR.pack_into(head, 0, *ehdr)
    return Extended(bytes(head), offset, tail_offset, tail)


def _section_tail(
    sections: list[Section], names_index: int, names: bytes, place: int, payload: tuple[int, int, int]
) -> bytes:
    """The section names with ours added, then all section headers; `place` is the tail's offset in the file."""
    offset, address, size = payload
    strings = names + _PAYLOAD_SECTION.encode() + b"\0"
    out = bytearray(strings + bytes(-len(strings) % 16))
    for i, s in enumerate(sections):
        where, length = (place, len(strings)) if i == names_index else (s.offset, s.bytes)
        out += _SHDR.pack(s.name, s.type, s.flags, s.address, where, length, s.link, s.info, s.align, s.entry_bytes)
    out += _SHDR.pack(len(names), _SHT_PROGBITS, _SHF_ALLOC, address, offset, size, 0, 0, 4096, 0)
    return bytes(out)


def _find(sections: list[Section], names: bytes, wanted: str) -> Section:
    for s in sections:
        if names[s.name : names.index(b"\0", s.name)] == wanted.encode():
            return s
    raise BadElf(f"no section {wanted}: not a taskc runtime")


def _up(n: int, to: int) -> int:
    return (n + to - 1) // to * to
