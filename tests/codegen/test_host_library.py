"""Building and loading host libraries: what they export, two in one process, guard pages, the cache, errors."""

import gc
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from taskc.codegen import hostcc
from taskc.codegen.host_library import HostFault
from taskc.codegen.hostcc import compile_host, host_fingerprint
from taskc.errors import ToolchainError
from tests.codegen.device_everything import EVERYTHING
from tests.codegen.device_support import builder, kernel, text_of

FILL = """
  SMEM(s); ((f32*)s)[thread_x()] = {0}; barrier();
  if (block_x() == 3) named_barrier(1, block_threads());
  y[block_x() * 64 + thread_x()] = ((f32*)s)[63 - thread_x()];"""
FAULT = kernel('fault', 'f32* y', 'if (block_x() == 2) *(volatile int*)16 = 1;')


def fill(value: float) -> str:
    return kernel('fill', 'f32* y', FILL.format(f'{float(value)}f'))


def test_two_libraries_with_the_same_names_in_one_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    build = builder(tmp_path_factory)
    libraries = {value: build(fill(value), FAULT) for value in (1.5, 2.5)}
    libraries[1.5].set_order(3)  # of that library only
    for value, library in libraries.items():
        y = np.zeros(5 * 64, np.float32)
        library.launch('fill', [y], [5], 64, 256)
        assert (y == value).all()
    wrong: list[str] = []

    def work(value: float) -> None:
        for _ in range(20):
            y = np.zeros(5 * 64, np.float32)
            libraries[value].launch('fill', [y], [5], 64, 256, cores=2)
            try:
                libraries[value].launch('fault', [y], [5], 64, cores=2)
                wrong.append('no fault')
            except HostFault as fault:
                if 'kernel fault, block (2,0,0)' not in str(fault):
                    wrong.append(str(fault))
            if not (y == value).all():
                wrong.append(f'{value}: {y}')

    threads = [threading.Thread(target=work, args=(value,)) for value in (1.5, 2.5, 1.5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def mapped(path: Path) -> bool:
    return str(path) in Path('/proc/self/maps').read_text()


def test_library_is_unmapped_after_its_last_array(tmp_path_factory: pytest.TempPathFactory) -> None:
    library = builder(tmp_path_factory)(fill(1))
    path, y = library.path, library.guarded(np.zeros(64, np.float32))
    library.launch('fill', [y], [1], 64, 256)
    del library
    gc.collect()
    assert mapped(path) and (y == 1).all()
    del y
    gc.collect()
    assert not mapped(path)


@pytest.mark.parametrize('opt', ['-O0', '-O1', '-O2'])
def test_only_the_interface_is_exported(tmp_path: Path, opt: str) -> None:
    out = tmp_path / 'a' / 'x.so'
    compile_host({'first': text_of(fill(1)), 'second/odd name': text_of(FAULT)}, out, opt=opt, jobs=1)
    assert os.listdir(out.parent) == ['x.so']
    defined = subprocess.run(
        ['nm', '-D', '--defined-only', str(out)], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[-1] for line in defined.splitlines()} == {
        'taskc_launch_fill',
        'taskc_launch_fault',
        'taskc_host_error',
        'taskc_host_set_order',
        'taskc_host_alloc',
        'taskc_host_alloc_aligned',
        'taskc_host_free',
    }
    needed = subprocess.run(['readelf', '-d', str(out)], capture_output=True, text=True, check=True).stdout
    assert 'libstdc++' not in needed and 'libgcc' not in needed


@pytest.mark.parametrize(('size', 'align'), [(1, 1), (400, 1), (400, 16), (4096, 1), (4100, 256), (0, 16), (7, 8)])
def test_guarded_arrays_end_at_an_unreadable_page(
    tmp_path_factory: pytest.TempPathFactory, size: int, align: int
) -> None:
    library = builder(tmp_path_factory)(kernel('peek', 'const u8* x, u8* y, int at', 'y[0] = x[at];'))
    data = np.random.default_rng(1).integers(0, 255, size, np.uint8)
    x, y = library.guarded(data, align), np.zeros(1, np.uint8)
    assert (x == data).all() and x.ctypes.data % align == 0
    room = -(-size // align) * align
    library.launch('peek', [x, y, -1], [1], 1)
    assert y[0] == 255  # before the start: NaN bytes
    if room > size:
        library.launch('peek', [x, y, size], [1], 1)
        assert y[0] == 255
    with pytest.raises(HostFault, match=rf'byte {room} of a buffer of {size} bytes'):
        library.launch('peek', [x, y, room], [1], 1)


def test_scalar_arguments_keep_their_types(tmp_path_factory: pytest.TempPathFactory) -> None:
    library = builder(tmp_path_factory)(
        kernel('sum', 'f64* y, int a, float b, i64 c, u8 d, f64 e', '*y = f64(a) + b + c + d + e;')
    )
    y = np.zeros(1)
    library.launch('sum', [y, -3, 0.5, np.int64(2**40), np.uint8(200), np.float64(0.125)], [1], 1)
    assert y[0] == -3 + 0.5 + 2**40 + 200 + 0.125


def test_warnings_in_the_headers_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled without warnings; the headers themselves are held to more."""
    monkeypatch.setattr(
        hostcc, 'KERNEL_FLAGS', (*(f for f in hostcc.KERNEL_FLAGS if f != '-w'), '-Wall', '-Wextra', '-Werror')
    )
    compile_host({'everything': EVERYTHING}, tmp_path / 'x.so', jobs=1)


def test_compiler_errors_show_the_command_and_the_message(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r'(?s)g\+\+ .*failed with exit code 1:.*no_such_thing'):
        compile_host({'k': text_of(kernel('k', 'int n', 'no_such_thing();'))}, tmp_path / 'x.so')
    with pytest.raises(ToolchainError, match='multiple definition'):
        compile_host({'a': text_of(fill(1)), 'b': text_of(fill(2))}, tmp_path / 'x.so')
    with pytest.raises(ToolchainError, match='no kernel text'):
        compile_host({}, tmp_path / 'x.so')
    assert os.listdir(tmp_path) == []


def test_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('CXX', 'no-such-compiler -m64')
    with pytest.raises(ToolchainError, match="'no-such-compiler' is not on PATH"):
        compile_host({'k': text_of(fill(1))}, tmp_path / 'x.so')


def test_runtime_is_compiled_once_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('TASKC_CACHE_DIR', str(tmp_path / 'cache'))
    compile_host({'k': text_of(fill(1))}, tmp_path / 'a.so')
    objects = sorted((tmp_path / 'cache').glob('host-*/*.o'))
    assert {o.stem for o in objects} == {p.stem for p in hostcc.DEVICE_DIR.glob('host_*.cpp')}
    before = [o.stat().st_mtime_ns for o in objects]
    compile_host({'k': text_of(fill(2))}, tmp_path / 'b.so')
    assert [o.stat().st_mtime_ns for o in objects] == before
    assert len(os.listdir(tmp_path / 'cache')) == 1
    assert host_fingerprint() == host_fingerprint() != host_fingerprint(opt='-O2')


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'file').write_text('')
    monkeypatch.setenv('TASKC_CACHE_DIR', str(tmp_path / 'file'))
    with pytest.raises(ToolchainError, match='set TASKC_CACHE_DIR'):
        compile_host({'k': text_of(fill(1))}, tmp_path / 'x.so')
