"""Kernel texts -> one shared library for the `host` machine, with the machine's runtime inside.

A library exports `taskc_launch_NAME` for each kernel and the functions of `device/taskc_host.h`, nothing else, so that
any number of them live in one process. It is built for the CPU it is built on (`-march=native`) unless told otherwise.

Flags, and why: products are contracted into fused multiply-adds (GCC's default), as NVRTC does, so results may differ
in the last bits between CPUs with and without them; -fno-strict-aliasing because vector accesses pun types; never
-ffast-math; -fstack-clash-protection so that a large frame meets its guard page instead of jumping over it.
"""
import hashlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from taskc.codegen.commands import Commands
from taskc.codegen.device import DEVICE_DIR, host_sources
from taskc.errors import ToolchainError

COMMON_FLAGS = ('-std=c++17', '-fPIC', '-fvisibility=hidden', '-fno-exceptions', '-fno-rtti', '-fno-strict-aliasing',
                '-fno-threadsafe-statics', '-fno-math-errno')
KERNEL_FLAGS = ('-x', 'c++', '-w', '-fstack-clash-protection', f'-I{DEVICE_DIR}')
RUNTIME_FLAGS = ('-O2', '-Wno-psabi', f'-I{DEVICE_DIR}')
LINK_FLAGS = ('-shared', '-Wl,-Bsymbolic', '-Wl,-z,now', '-Wl,--as-needed', '-static-libgcc')
LIBRARIES = ('-lm', '-lpthread')


def compile_host(texts: Mapping[str, str], out: Path, *, opt: str = '-O1', march: str = 'native',
                 jobs: int | None = None) -> None:
    """Compiles each text (name -> CUDA C that includes taskc_device.cuh) and links all of them into the library `out`.

    opt: GCC's level for the kernels; march: GCC's -march, 'native' or for example 'x86-64'; jobs: compilers at once, by
    default as many as CPUs. Kernel names must differ between texts. Raises ToolchainError with the command and what
    the compiler said.
    """
    if not texts:
        raise ToolchainError('no kernel text to compile for host')
    compiler = _compiler()
    flags = (*COMMON_FLAGS, *_march_flags(march))
    with tempfile.TemporaryDirectory(prefix='taskc-host-') as folder, Commands(jobs) as compilers:
        runtime = _runtime_objects(compiler, flags, compilers)
        commands: list[list[str]] = []
        objects: list[str] = []
        for index, (name, text) in enumerate(texts.items()):
            source = Path(folder, f'{index}_{_file_name(name)}.cu')
            source.write_text(text)
            objects.append(str(source.with_suffix('.o')))
            commands.append([*compiler, *flags, opt, *KERNEL_FLAGS, '-c', str(source), '-o', objects[-1]])
        compilers.run_all(commands)
        out.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix='.taskc-', dir=out.parent))
        try:
            compilers.run([*compiler, *LINK_FLAGS, '-o', str(part / out.name), *objects, *map(str, runtime), *LIBRARIES])
            os.replace(part / out.name, out)
        finally:
            shutil.rmtree(part)


def host_fingerprint(opt: str = '-O1', march: str = 'native') -> str:
    """A hash of all that a host library depends on beside its kernel texts: sources, compiler, flags, CPU."""
    return _digest(_compiler(), (*COMMON_FLAGS, *_march_flags(march), opt, *KERNEL_FLAGS, *LINK_FLAGS))


def cache_dir() -> Path:
    """Where compiled pieces are kept between runs: $TASKC_CACHE_DIR, else taskc under the user's cache folder."""
    if folder := os.environ.get('TASKC_CACHE_DIR'):
        return Path(folder)
    return Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'taskc'


def _runtime_objects(compiler: Sequence[str], flags: Sequence[str], compilers: Commands) -> list[Path]:
    """The runtime's objects, compiled once for each set of sources, compiler and flags. Two processes may race: the
    folder appears whole by a rename, and the loser uses the winner's."""
    sources = sorted(DEVICE_DIR.glob('host_*.cpp'))
    folder = cache_dir() / f'host-{_digest(compiler, (*flags, *RUNTIME_FLAGS))}'
    objects = [folder / f'{source.stem}.o' for source in sources]
    if folder.is_dir():
        return objects
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix='.host-', dir=folder.parent))
    except OSError as error:
        raise ToolchainError(f'cannot write the cache folder {folder.parent}: {error}; set TASKC_CACHE_DIR') from error
    try:
        compilers.run_all([[*compiler, *flags, *RUNTIME_FLAGS, '-c', str(source), '-o', str(part / made.name)]
                           for source, made in zip(sources, objects, strict=True)])
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return objects


def _digest(compiler: Sequence[str], flags: Sequence[str]) -> str:
    state = hashlib.sha256()
    for piece in (*flags, _version(tuple(compiler)), _cpu() if '-march=native' in flags else ''):
        state.update(piece.encode() + b'\0')
    for name, text in host_sources().items():
        state.update(f'{name}\0{text}\0'.encode())
    return state.hexdigest()[:20]


@lru_cache
def _cpu() -> str:
    """What `-march=native` depends on: home folders are shared between machines."""
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        return os.uname().machine
    told = ('flags', 'Features', 'model name', 'CPU part')
    return '\n'.join(sorted({line for line in lines if line.startswith(told)}))


@lru_cache
def _version(compiler: tuple[str, ...]) -> str:
    with Commands(1) as one:
        return one.run([*compiler, '--version'])


def _compiler() -> list[str]:
    command = shlex.split(os.environ.get('CXX', '')) or ['g++']
    if shutil.which(command[0]) is None:
        raise ToolchainError(f'the C++ compiler {command[0]!r} is not on PATH; the host target needs g++ (or set CXX)')
    return command


def _march_flags(march: str) -> tuple[str, ...]:
    if march == 'native' and os.uname().machine == 'aarch64':
        return ('-mcpu=native',)
    return (f'-march={march}',)


def _file_name(name: str) -> str:
    return ''.join(c if c.isalnum() or c == '_' else '_' for c in name)[:80]
