"""The records -> the C header that the runtime reads them by; it asserts sizes and offsets. `python -m taskc.artifact.c_header` renews it."""

from __future__ import annotations

import struct
from pathlib import Path

from taskc.artifact.layout import Record, Scalar, layout, size_of
from taskc.artifact.records import ENUMS, MAGIC, MAX_CODE, MAX_RANK, MAX_STACK, RECORDS, VERSION

HEADER_PATH = Path(__file__).parent / "runtime" / "taskc_format.h"


def c_header() -> str:
    """The text of `runtime/taskc_format.h`."""
    out = [
        "/* Generated from taskc/artifact/records.py by `python -m taskc.artifact.c_header`; do not edit. */",
        "#ifndef TASKC_FORMAT_H", "#define TASKC_FORMAT_H", "#include <stddef.h>", "#include <stdint.h>", "",
        f'#define FMT_MAGIC "{MAGIC.decode()}"', f"#define FMT_VERSION {VERSION}u", f"#define FMT_MAX_RANK {MAX_RANK}u",
        f"#define FMT_MAX_STACK {MAX_STACK}u", f"#define FMT_MAX_CODE {MAX_CODE}u", "",
    ]  # fmt: skip
    for enum in ENUMS:
        prefix = "FMT_" + _snake(enum.__name__).upper()
        out.append(f"enum {{ {', '.join(f'{prefix}_{m.name} = {m.value}' for m in enum)} }};")
    for record in RECORDS:
        out += ["", *_c_struct(record)]
    return "\n".join([*out, "", "#endif", ""])


def _c_name(record: type[Record]) -> str:
    return "fmt_" + _snake(record.__name__.removesuffix("Row"))


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


def _snake(name: str) -> str:
    """CamelCase -> camel_case."""
    return "".join(
        "_" + c.lower() if c.isupper() and i and not name[i - 1].isupper() else c.lower() for i, c in enumerate(name)
    )


if __name__ == "__main__":
    HEADER_PATH.write_text(c_header())
