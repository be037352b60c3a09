"""ModelPlan -> model.so, model.py and, when asked, model.h: the runtime with the model as one more segment.

Weights are streamed from the plan's pieces; a file is written whole or not at all.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from taskc.artifact.elf import BadElf, extend
from taskc.artifact.format import Buffer, serialize
from taskc.artifact.plan import ModelPlan
from taskc.artifact.runtime_build import SOURCES, runtime_elf
from taskc.errors import TaskcError, ToolchainError, UsageError

LOADER = Path(__file__).parent / "loader.py"
HEADER = SOURCES / "model.h"
_CHUNK = 64 << 20


def write_library(plan: ModelPlan, out: Path, *, header: bool = False, runtime: Path | None = None) -> None:
    """Writes `out`, the loader beside it (`out` with suffix .py), and with `header` the C interface `model.h`.

    `runtime`: another build of the runtime, for tests. UsageError where the disk is full or the folder cannot be
    written; ValueError where the plan is inconsistent."""
    if out.suffix in (".py", ".h"):
        raise UsageError(
            f"{out}: the library's loader would have the same name; choose another, such as {out.with_suffix('.so')}"
        )
    payload = serialize(plan)
    elf = (runtime or runtime_elf()).read_bytes()
    try:
        layout = extend(elf, payload.size)
    except BadElf as e:
        raise ToolchainError(f"{runtime or runtime_elf()} cannot hold a model: {e}") from e
    pieces: list[tuple[int, Buffer]] = [(0, layout.head)]
    pieces += [(layout.payload_offset + offset, data) for offset, data in payload.pieces]
    pieces.append((layout.tail_offset, layout.tail))
    write_whole(out, pieces, mode=0o755)
    write_whole(out.with_suffix(".py"), [(0, LOADER.read_bytes())])
    if header:
        write_whole(out.parent / "model.h", [(0, HEADER.read_bytes())])


def write_whole(path: Path, pieces: Iterable[tuple[int, Buffer]], mode: int = 0o644) -> None:
    """Writes (offset, bytes) pieces in ascending order, zeros between them, then moves the file to `path`.

    UsageError names the path when the system refuses; nothing is left behind then."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    except OSError as e:
        raise _refused(path, e) from e
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            for offset, data in pieces:
                file.seek(offset)  # gaps stay holes
                view = memoryview(data).cast("B")
                start = 0
                while start < len(view):
                    start += file.write(view[start : start + _CHUNK]) or 0
            os.fchmod(file.fileno(), mode & ~_umask())
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as e:
        with suppress(OSError):
            os.unlink(name)
        if isinstance(e, OSError):
            raise _refused(path, e) from e
        raise


def _umask() -> int:
    """The process's umask, from the kernel's report: asking os.umask would change it for other threads for a moment."""
    with suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def _refused(path: Path, e: OSError) -> TaskcError:
    if e.errno == errno.EFBIG:
        return UsageError(f"cannot write {path}: the file would be larger than the system allows (see `ulimit -f`)")
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        with suppress(OSError):
            free = shutil.disk_usage(path.parent).free
            return UsageError(
                f"cannot write {path}: the disk is full ({free >> 20} MB free); free space or write elsewhere"
            )
        return UsageError(f"cannot write {path}: the disk is full; free space or write elsewhere")
    return UsageError(f"cannot write {path}: {e.strerror or e}")
