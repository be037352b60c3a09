"""The same header text under NVRTC: every intrinsic compiles for sm_80 and sm_90a without a warning; errors; many."""

import re
import sys
from typing import Any

import pytest

from taskc.codegen import nvrtc
from taskc.codegen.device import DEVICE_DIR
from taskc.codegen.nvrtc import (
    CompiledKernel,
    CompileJob,
    Usage,
    compile_cuda,
    compile_many,
    excerpt,
    nvrtc_version,
    parse_usage,
)
from taskc.errors import ToolchainError
from tests.codegen.device_everything import EVERYTHING
from tests.codegen.device_support import kernel, text_of

pytest.importorskip('cuda.bindings.nvrtc')
ARCHES = ['sm_80', 'sm_90a']


@pytest.fixture(scope='module', params=ARCHES)
def everything(request: pytest.FixtureRequest) -> CompiledKernel:
    return compile_cuda(EVERYTHING, request.param, 'everything', ptx=True)


def test_every_intrinsic_is_used() -> None:
    """What the headers define and the text above does not name would never have met NVRTC."""
    headers = '\n'.join(path.read_text() for path in DEVICE_DIR.glob('*.cuh'))
    defined = set(re.findall(r'^(?:template <.*> )?DEV [\w*: ]+?\b(\w+)\(', headers, re.MULTILINE))
    inner = {
        'round_f16',
        'round_bf16',
        'round_to_odd',
        'widen',
        'saturate',
        'bits_as',
        'int_pow',
        'shared_address',
        'global_address',
        'load_nc',
        'load_cg',
        'store_cg',
        'operator',
        'name',
        't_',
        'threadfence',
        'warp_id',
        'b8',
        'from',
        'named_barrier',
    }
    assert len(defined) > 60
    assert {name for name in defined - inner if not re.search(rf'\b{name}\b', EVERYTHING)} == set()


def test_everything_compiles_without_warnings_or_spills(everything: CompiledKernel) -> None:
    assert 'warning' not in everything.log.lower(), everything.log
    assert everything.cubin[:4] == b'\x7fELF' and everything.ptx is not None and b'.target' in everything.ptx
    assert len(everything.usage) == EVERYTHING.count('HOST_ENTRY')
    assert all(0 < u.registers < 255 for u in everything.usage.values())
    # The frames of a vector access would show here if its registers were not kept in registers.
    assert {
        name: u.stack_bytes
        for name, u in everything.usage.items()
        if name.startswith(('ld', 'copy', 'mma', 'tiles')) and u.stack_bytes
    } == {}


def test_the_instructions_are_the_meant_ones(everything: CompiledKernel) -> None:
    ptx = (everything.ptx or b'').decode()
    meant = [
        'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32',
        'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32',
        'mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32',
        'ldmatrix.sync.aligned.m8n8.x4.trans',
        'cp.async.cg.shared.global',
        'ld.global.nc.v4',
        'ld.global.cg.v4',
        'st.global.cg.v4',
        'max.NaN.f32',
        'bar.arrive',
    ]
    dependent = ['griddepcontrol.wait', 'griddepcontrol.launch_dependents', 'barrier.cluster.wait', 'mapa.u64']
    assert [i for i in meant if i not in ptx] == []
    assert [i for i in dependent if (i in ptx) != (everything.arch == 'sm_90a')] == []


def test_arithmetic_is_exact_and_keeps_subnormals() -> None:
    """The bodies of exp and its like use approximate steps by design; plain arithmetic must not."""
    ptx = compile_cuda(
        text_of(kernel('k', 'f32* x', 'x[0] = t_sqrt(x[1]) + x[2] / x[3] * x[4];')), 'sm_80', 'k', ptx=True
    ).ptx
    assert ptx is not None and b'sqrt.rn.f32' in ptx and b'div.rn.f32' in ptx and b'fma.rn.f32' in ptx
    assert b'.ftz' not in ptx and b'approx' not in ptx


def test_numbers_of_one_kernel_and_of_all() -> None:
    few = kernel('few', 'f32* x', '*x = 1;')
    many = kernel(
        'many',
        'f32* x',
        'f32 v[64]; for (int i = 0; i < 64; ++i) v[i] = x[i]; barrier(); for (int i = 0; i < 64; ++i) '
        'x[i] = v[63 - i] + v[i];',
    )
    one, both = compile_cuda(text_of(few, many), 'sm_80', 'few'), compile_cuda(text_of(few, many), 'sm_80', 'pair')
    assert one.registers == one.usage['few'].registers < both.registers == both.usage['many'].registers
    assert one.ptx is None and one.name == 'few' and set(one.usage) == {'few', 'many'}


def test_usage_is_read_from_the_log() -> None:
    log = """ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1088 bytes smem, 372 bytes cmem[0]"""
    assert parse_usage(log) == {'k': Usage(32, 84, 48, 1088)}


def test_an_error_shows_the_log_and_the_line() -> None:
    text = text_of(kernel('bad', 'f32* x', '  x[0] = 1;\n  x[1] = no_such_thing;\n  x[2] = 2;'))
    with pytest.raises(
        ToolchainError, match=r'(?s)could not compile bad for sm_80.*no_such_thing.*\n +4 \|   x\[1\] = no_such_thing;'
    ) as error:
        compile_cuda(text, 'sm_80', 'bad')
    assert error.value.exit_code == 7
    with pytest.raises(ToolchainError, match='sm_1234'):
        compile_cuda(text, 'sm_1234', 'bad')
    assert excerpt('one\ntwo\nthree', 'k', 'k.cu(99): error') == ''


def test_many_at_once() -> None:
    texts = [text_of(kernel(f'k{i}', 'f32* x', f'x[thread_x()] = {i};' if i != 3 else 'oops')) for i in range(6)]
    jobs = [CompileJob(text, ARCHES[i % 2], f'k{i}') for i, text in enumerate(texts)]
    done: list[int] = []
    results = compile_many(jobs, 3, lambda index, _: done.append(index))
    assert sorted(done) == list(range(6))
    for i, result in enumerate(results):
        assert (
            isinstance(result, ToolchainError)
            if i == 3
            else isinstance(result, CompiledKernel) and result.name == f'k{i}'
        )
    again = compile_many(jobs[:1], 1)[0]
    assert (
        isinstance(again, CompiledKernel) and isinstance(results[0], CompiledKernel) and again.cubin == results[0].cubin
    )


def test_missing_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._nvrtc.cache_clear()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setitem(sys.modules, 'cuda.bindings.nvrtc', None)
    try:
        with pytest.raises(ToolchainError, match='pip install "nvidia-cuda-nvrtc'):
            compile_cuda('', 'sm_80', 'k')
    finally:
        nvrtc._nvrtc.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc as bindings

    def refuse() -> Any:
        raise RuntimeError('libnvrtc.so.13: cannot open')

    nvrtc._nvrtc.cache_clear()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(bindings, 'nvrtcVersion', refuse)
    try:
        with pytest.raises(ToolchainError, match=r'(?s)libnvrtc.so.13: cannot open.*pip install'):
            compile_many([CompileJob('', 'sm_80', 'k')], 1)
    finally:
        nvrtc._nvrtc.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_version() -> None:
    assert nvrtc_version()[0] >= 13
