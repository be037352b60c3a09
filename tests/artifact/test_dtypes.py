"""Every element type and rank in and out, and the real host kernel runtime under the model runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taskc.artifact import loader
from taskc.artifact.plan import (
    Copy,
    Image,
    InputMemory,
    ModelPlan,
    OutputMemory,
    PlanTensor,
    Port,
    TargetPlan,
)
from taskc.codegen.hostcc import compile_host
from taskc.ir.dtype import BF16, DTYPES, DType
from taskc.ir.expr import prod
from tests.artifact.artifact_plans import (
    CUDA_KERNELS,
    Code,
    affine,
    chain_plan,
    host_code,
    rng_weights,
    symbolic_plan,
)

Write = Callable[..., Path]


def copy_plan(dtype: DType, shape: tuple[int, ...]) -> ModelPlan:
    tensors = (PlanTensor("x", dtype, shape, InputMemory(0)), PlanTensor("y", dtype, shape, OutputMemory(0)))
    steps = (Copy(0, 1, prod(shape) * dtype.bytes, name="Identity"),)
    target = TargetPlan("host", host_code().images, (), tensors, steps, 0)
    return ModelPlan("copy", (), (Port("x", dtype, shape),), (Port("y", dtype, shape),), (target,))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 1, 5), (1,) * 15 + (7,)], ids=lambda s: f"rank{len(s)}")
def test_every_dtype_and_rank(library: Write, dtype: DType, shape: tuple[int, ...]) -> None:
    model = loader.load(library(copy_plan(dtype, shape)), "host")
    bits = np.random.default_rng(0).integers(0, 2 if dtype.kind == "bool" else 256, (*shape, dtype.bytes), np.uint8)
    x = np.ascontiguousarray(bits).view(dtype.numpy).reshape(shape)
    y = model.run({"x": x})["y"]
    assert y.dtype == dtype.numpy and y.shape == shape and y.tobytes() == x.tobytes()
    assert model.outputs[0].shape == shape
    wrong = np.zeros(shape, np.float32 if dtype.numpy != np.float32 else np.float64)
    with pytest.raises(
        loader.ModelError, match=r"input 'x': given float(32|64)\[.*\], wanted " + model.inputs[0].dtype
    ):
        model.run({"x": wrong})


def test_bfloat16_of_ml_dtypes(library: Write) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    model = loader.load(library(copy_plan(BF16, (4,))), "host")
    x = np.array([1.0, -2.5, 3e38, 0.1], ml_dtypes.bfloat16)
    assert model.inputs[0].dtype == "bfloat16"
    assert np.array_equal(model.run({"x": x})["y"].view(ml_dtypes.bfloat16), x)


def real_code(folder: Path) -> Code:
    """Kernels compiled as the compiler does it: threads as fibers, cores, shuffled orders."""
    add, scale = CUDA_KERNELS.split('extern "C"')[1:3]
    head = '#include "taskc_device.cuh"\n#define __CUDA_ARCH__ 0\nextern "C"'
    guard = [t.replace("blockIdx.x", "block_x()").replace("blockDim.x", "block_dim_x()") for t in (add, scale)]
    guard = [t.replace("threadIdx.x", "thread_x()").replace("block_dim_x()", "128") for t in guard]
    texts = {n: f"{head}{t}\nHOST_ENTRY({n})\n" for n, t in zip(("add", "scale"), guard, strict=True)}
    compile_host(texts, folder / "kernels.so")
    return Code("host", (Image("host", "host", (folder / "kernels.so").read_bytes()),))


def test_real_host_kernels_on_threads(library: Write, tmp_path: Path) -> None:
    code = real_code(tmp_path)

    def only_two(plan: ModelPlan) -> ModelPlan:
        t = plan.targets[0]
        targets = (TargetPlan(t.target, t.images, t.kernels[:2], t.tensors, t.steps, t.arena_bytes),)
        return ModelPlan(plan.name, plan.symbols, plan.inputs, plan.outputs, targets, plan.weights)

    model = loader.load(library(only_two(symbolic_plan(code))), "host")
    chain = loader.load(library(only_two(chain_plan(code, 5)), "chain.so"), "host")
    x, w = np.arange(1000, dtype=np.float32), np.random.default_rng(3).integers(-8, 8, 1000).astype(np.float32)
    assert np.array_equal(chain.run({"x": x})["y"], x + 5 * w)
    wrong: list[int] = []

    def work(seed: int) -> None:
        context, rng = model.context(), np.random.default_rng(seed)
        for _ in range(10):
            a, b = rng.standard_normal((2, int(rng.integers(1, 100)), 5)).astype(np.float32)
            if not np.array_equal(context.run({"a": a, "b": b})["y"], affine(a, b, rng_weights(5))):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
