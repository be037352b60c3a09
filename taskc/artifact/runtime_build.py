"""runtime/*.c -> the prebuilt runtime, a shared object without a model. It does not depend on any model.

A wheel brings it (`python -m taskc.artifact.runtime_build OUT` makes it); from a source tree the C compiler builds it
at first use into the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from taskc.errors import ToolchainError

SOURCES = Path(__file__).parent / "runtime"
FLAGS = (
    "-std=c11", "-O2", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-fno-ident", "-Wall", "-Wextra", "-Werror",
    "-shared", "-static-libgcc", "-pthread", "-Wl,--build-id=none", "-Wl,-z,relro", "-Wl,-z,now",
    "-Wl,--hash-style=gnu", "-Wl,-z,noexecstack",
)  # fmt: skip
DEFINED = ("-Wl,-z,defs",)  # a sanitizer's own symbols come later, so its builds do without
LIBRARIES = ("-Wl,--no-as-needed", "-l:libdl.so.2", "-Wl,--as-needed")


def runtime_elf() -> Path:
    """The runtime for this machine: the wheel's, else the cached one, else built now.

    ToolchainError when there is neither a prebuilt runtime nor a C compiler."""
    key = source_key()
    prebuilt = SOURCES / "prebuilt" / f"taskc-runtime-{platform.machine()}-{key}.so"
    if prebuilt.is_file():
        return prebuilt
    cache = cache_dir() / "runtime"
    compiler = find_compiler()
    if compiler is None:
        known = sorted(cache.glob(f"taskc-runtime-{platform.machine()}-{key}-*.so"))
        if known:
            return known[0]
        raise ToolchainError(
            "the C runtime is not built yet and no C compiler was found (CC, cc, gcc, clang): install gcc, or install "
            "taskc from a wheel, which brings the runtime"
        )
    path = cache / f"taskc-runtime-{platform.machine()}-{key}-{_version_key(compiler)}.so"
    if not path.is_file():
        build_runtime(path, compiler=compiler)
    return path


def build_runtime(
    out: Path, compiler: Sequence[str] | None = None, extra: Sequence[str] = (), defined: bool = True
) -> None:
    """Compiles the runtime into `out`, whole or not at all. ToolchainError carries the compiler's output."""
    compiler = compiler or find_compiler()
    if compiler is None:
        raise ToolchainError("no C compiler was found (CC, cc, gcc, clang): install gcc")
    out.parent.mkdir(parents=True, exist_ok=True)
    sources = [str(p) for p in sorted(SOURCES.glob("*.c"))]
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".build-") as folder:
        made = Path(folder) / "runtime.so"
        command = [*compiler, *FLAGS, *(DEFINED if defined else ()), *extra, f"-ffile-prefix-map={SOURCES}=runtime"]
        command += ["-o", str(made), *sources, *LIBRARIES]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as e:
            raise ToolchainError(f"the C compiler does not start: {shlex.join(compiler)}: {e}") from e
        if done.returncode:
            raise ToolchainError(f"the C runtime does not compile:\n{shlex.join(command)}\n{done.stderr.strip()}")
        os.replace(made, out)


def find_compiler() -> list[str] | None:
    """$CC, or the first of cc, gcc and clang on the path; None without."""
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen and shutil.which(chosen[0]):
        return chosen
    found = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    return [found] if found else None


def cache_dir() -> Path:
    """$TASKC_CACHE_DIR, else taskc's folder in the user's cache."""
    own = os.environ.get("TASKC_CACHE_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taskc"


@lru_cache(maxsize=1)
def source_key() -> str:
    """A hash of everything of ours that goes into the runtime."""
    digest = hashlib.sha256(repr((FLAGS, DEFINED, LIBRARIES)).encode())
    for path in sorted([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _version_key(compiler: Sequence[str]) -> str:
    return _version_key_of(tuple(compiler))


@lru_cache(maxsize=8)
def _version_key_of(compiler: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*compiler, "--version"], capture_output=True, check=False)
    except OSError as e:
        raise ToolchainError(f"the C compiler does not start: {shlex.join(compiler)}: {e}") from e
    return hashlib.sha256(repr(compiler).encode() + done.stdout).hexdigest()[:12]


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCES / "prebuilt"
    build_runtime(target / f"taskc-runtime-{platform.machine()}-{source_key()}.so")
