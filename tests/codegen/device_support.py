"""Small kernels for the tests of the device headers: an element-wise kernel from an expression, and how to run it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from taskc.codegen.device import INCLUDE
from taskc.codegen.host_library import HostLibrary
from taskc.codegen.hostcc import compile_host

Array = npt.NDArray[Any]
DTYPES: Mapping[str, Any] = {
    'f16': np.float16,
    'bf16': ml_dtypes.bfloat16,
    'f32': np.float32,
    'f64': np.float64,
    'b8': np.bool_,
    'i8': np.int8,
    'u8': np.uint8,
    'i16': np.int16,
    'u16': np.uint16,
    'i32': np.int32,
    'u32': np.uint32,
    'i64': np.int64,
    'u64': np.uint64,
}


def kernel(name: str, parameters: str, body: str, threads: int = 128) -> str:
    return (
        f'extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{\n{body}\n}}\n'
        f'HOST_ENTRY({name})\n'
    )


def elementwise(name: str, inputs: Sequence[str], output: str, expression: str) -> str:
    """out[i] = expression of x, y, z: the i-th elements of the inputs."""
    parameters = ''.join(f'const {t}* __restrict__ in{k}, ' for k, t in enumerate(inputs))
    loads = ''.join(f'  {t} {v} = in{k}[i];\n' for k, (t, v) in enumerate(zip(inputs, 'xyz', strict=False)))
    return kernel(
        name,
        f'{parameters}{output}* __restrict__ out, int n',
        f'  int i = block_x() * 128 + thread_x();\n  if (i >= n) return;\n{loads}  out[i] = {expression};',
    )


def text_of(*kernels: str) -> str:
    return INCLUDE + '\n' + '\n'.join(kernels)


def run_elementwise(library: HostLibrary, name: str, output: Any, *inputs: Array) -> Array:
    n = inputs[0].size
    out = library.guarded(np.full(n, 77).astype(output))
    library.launch(name, [*(library.guarded(x) for x in inputs), out, n], [-(-n // 128)], 128)
    return out


Build = Callable[..., HostLibrary]


def builder(factory: pytest.TempPathFactory) -> Build:
    def build(*kernels: str, march: str = 'native', opt: str = '-O1') -> HostLibrary:
        path: Path = factory.mktemp('host') / 'kernels.so'
        compile_host({'kernels': text_of(*kernels)}, path, march=march, opt=opt, jobs=1)
        return HostLibrary(path)

    return build
