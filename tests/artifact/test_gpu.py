"""The runtime on an NVIDIA GPU: values, graphs, dependent launches, pointers, streams, torch in the same process,
messages."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taskc.artifact import loader
from taskc.artifact.plan import Image
from taskc.codegen.nvrtc import compile_cuda
from tests.artifact.artifact_plans import (
    CUDA_KERNELS,
    MISC_KERNELS,
    Code,
    affine,
    affine_plan,
    chain_plan,
    counter_plan,
    misc_plan,
    outputs_plan,
    rng_weights,
    symbolic_plan,
)
from tests.artifact.artifact_process import python

pytestmark = pytest.mark.gpu
Write = Callable[..., Path]


@cache
def capability() -> int:
    """90 for compute capability 9.0."""
    driver, major, minor = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0) == 0
    assert driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0) == 0
    return major.value * 10 + minor.value


@cache
def gpu_code(text: str = CUDA_KERNELS) -> Code:
    arch = f"sm_{capability()}{'a' if capability() >= 90 else ''}"
    return Code(arch, (Image("cubin", arch, compile_cuda(text, arch, "kernels").cubin),))


@cache
def ptx_code() -> Code:
    ptx = compile_cuda(CUDA_KERNELS, "sm_80", "kernels", ptx=True).ptx
    assert ptx
    return Code("sm_80", (Image("ptx", "sm_80", ptx),))


def pair(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {name: rng.standard_normal((n, 5)).astype(np.float32) for name in "ab"}


def right(feed: dict[str, np.ndarray], y: np.ndarray) -> bool:
    return np.array_equal(y, affine(feed["a"], feed["b"], rng_weights(5)))


def test_symbolic_sizes_in_one_graph(library: Write) -> None:
    model = loader.load(library(symbolic_plan(gpu_code())))
    assert model.device == "cuda:0" and model.image == "cubin"
    rng = np.random.default_rng(0)
    for n in (1, 17, 128, 1, 17, 3, 5, 7, 11, 13, 19, 23, 29, 100_003, 128):
        feed = pair(rng, n)
        assert right(feed, model.run(feed)["y"]), n
        assert right(feed, model.run(feed)["y"]), n
    facts = model.statistics()
    assert facts["graph"] == 1 and facts["replays"] >= 15
    if capability() >= 90:
        assert facts["programmatic_edges"] == 1
    assert all(0 < t < 10_000 for t in model.time_device(20))


def test_outputs_that_are_inputs_duplicates_constants_and_fills(library: Write) -> None:
    model = loader.load(library(outputs_plan(gpu_code())))
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        got = model.run({"x": x})
        assert np.array_equal(got["same"], x)
        assert np.array_equal(got["sum"], x + x) and np.array_equal(got["again"], x + x)
        assert np.array_equal(got["constant"].ravel(), np.arange(12, dtype=np.float32))
        assert got["ones"].tobytes() == b"\1" * 48


def test_a_chain_of_dependent_launches_a_thousand_times(library: Write) -> None:
    """Each launch reads what the one before wrote, in two buffers used in turn: a lost wait gives wrong sums."""
    model = loader.load(library(chain_plan(gpu_code(), 24, n=40_000)))
    rng = np.random.default_rng(1)
    w = np.random.default_rng(3).integers(-8, 8, 40_000).astype(np.float32)
    x, y = np.zeros(40_000, np.float32), np.zeros(40_000, np.float32)
    bound = model.bind({"x": x}, {"y": y})
    for i in range(1000):
        x[:] = rng.integers(-1000, 1000, x.size)
        bound.run()
        assert np.array_equal(y, x + 24 * w), f"run {i}"
    if capability() >= 90:
        assert model.statistics()["programmatic_edges"] == 23
    assert model.statistics()["replays"] == 1000


def test_plain_launches_and_poison(library: Write) -> None:
    path = library(chain_plan(gpu_code(), 9))
    code = (
        "import sys, numpy as np; from taskc.artifact import loader\n"
        "m = loader.load(sys.argv[1]); x = np.arange(1000, dtype='f')\n"
        "w = np.random.default_rng(3).integers(-8, 8, 1000)\n"
        "for _ in range(20): assert np.array_equal(m.run({'x': x})['y'], x + 9 * w.astype('f'))\n"
        "assert m.statistics()['graph'] == int(sys.argv[2])"
    )
    for env, graph in (({"TASKC_NO_GRAPH": "1"}, "0"), ({"TASKC_SYNC": "1"}, "0"), ({"TASKC_POISON": "1"}, "1")):
        done = python(code, str(path), graph, env=env)
        assert done.returncode == 0, done.stderr


def test_ptx_is_translated(library: Write) -> None:
    model = loader.load(library(symbolic_plan(ptx_code())))
    assert (model.target, model.image) == ("sm_80", "ptx")
    feed = pair(np.random.default_rng(2), 33)
    assert right(feed, model.run(feed)["y"])


def test_code_that_fits_no_gpu_here(library: Write) -> None:
    arch = "sm_80" if capability() >= 90 else "sm_90a"
    cubin = compile_cuda(CUDA_KERNELS, arch, "kernels").cubin
    path = library(affine_plan(Code(arch, (Image("cubin", arch, cubin),))))
    with pytest.raises(
        loader.ModelError, match=rf"GPU 0 \(.*\) can run none of the embedded code: {arch} \(cubin\)"
    ) as e:
        loader.load(path)
    assert e.value.exit_code == 8 and f"--target sm_{capability()}" in str(e.value)
    with pytest.raises(loader.ModelError, match=r"device 'cuda:99': the CUDA driver sees \d+ GPU"):
        loader.load(path, "cuda:99")


def test_tensor_maps_clusters_cooperative_launches(library: Write) -> None:
    if capability() < 90:
        pytest.skip("tensor maps and clusters need compute capability 9.0")
    model = loader.load(library(misc_plan(gpu_code(MISC_KERNELS))))
    rng = np.random.default_rng(3)
    for _ in range(5):  # fresh pointers: the map is encoded anew
        x = rng.standard_normal((13, 72)).astype(np.float32)
        got = model.run({"x": x})
        assert np.array_equal(got["copy"], x)
        assert got["ranks"].tolist() == [0, 1] * 3 and got["sum"].tolist() == [5] * 5
    assert model.statistics()["graph"] == 1


def test_counters_after_an_error(library: Write) -> None:
    """A trap ends the CUDA context, so each case has its own process."""
    path = library(counter_plan(gpu_code()))
    code = (
        "import sys, numpy as np; from taskc.artifact import loader\n"
        "m = loader.load(sys.argv[1]); x = np.ones(1, 'f')\n"
        "assert [int(m.run({'x': x})['y'][0]) for _ in range(3)] == [1, 2, 3]\n"
        "assert int(m.context().run({'x': x})['y'][0]) == 1\n"
        "try: m.run({'x': -x})\n"
        "except loader.ModelError as e: print(e)"
    )
    done = python(code, str(path))
    assert "model 'counter' failed while it ran on GPU 0 (set TASKC_SYNC=1" in done.stdout, done.stderr
    done = python(code, str(path), env={"TASKC_SYNC": "1"})
    assert "launch 0 'Count_7' (kernel 'count'): cuStreamSynchronize failed: CUDA_ERROR_" in done.stdout, done.stderr


class Interface:
    """A GPU array of another library, seen through __cuda_array_interface__ only."""

    def __init__(self, pointer: int, shape: tuple[int, ...], **more: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "data": (pointer, False),
            "version": 3,
            **more,
        }


def test_bad_pointers_are_refused(library: Write) -> None:
    model = loader.load(library(symbolic_plan(gpu_code())))
    feed = pair(np.random.default_rng(4), 3)
    for pointer in (4096, feed["a"].ctypes.data):
        with pytest.raises(loader.ModelError, match=r"input 'a': 0x[0-9a-f]+ is (not memory of a GPU|host memory)"):
            model.run({**feed, "a": Interface(pointer, (3, 5))})
    assert right(feed, model.run(feed)["y"]), "a refused run must leave the model usable"


def test_device_outputs_and_misaligned_inputs(library: Write) -> None:
    model = loader.load(library(symbolic_plan(gpu_code())))
    rng = np.random.default_rng(5)
    zero = np.zeros((40, 5), np.float32)
    for _ in range(10):
        feed = pair(rng, 40)
        y = model.run(feed, outputs="device")["y"]
        once = affine(feed["a"], feed["b"], rng_weights(5))
        assert right({"a": once, "b": zero}, model.run({"a": y, "b": zero})["y"])
        shifted = Interface(y.pointer + 4, (39, 5))
        assert right(
            {"a": once.ravel()[1:196].reshape(39, 5), "b": zero[:39]}, model.run({"a": shifted, "b": zero[:39]})["y"]
        )


def test_no_context_is_left_current(library: Write) -> None:
    path, seen = library(affine_plan(gpu_code())), []

    def work() -> None:
        model = loader.load(path)
        model.run(pair(np.random.default_rng(6), 3))
        current = ctypes.c_void_p(1)
        assert ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(current)) == 0
        seen.append(current.value)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]


def test_contexts_on_threads(library: Write) -> None:
    model = loader.load(library(symbolic_plan(gpu_code())))
    wrong: list[int] = []

    def work(seed: int) -> None:
        context, rng = model.context(), np.random.default_rng(seed)
        for _ in range(200):
            feed = pair(rng, int(rng.integers(1, 2000)))
            if not right(feed, context.run(feed)["y"]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- torch in the same process ----


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch", reason="torch is not installed")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return module


def slow_start(torch: Any) -> Any:
    """Work that keeps the current stream busy for milliseconds, so that lost ordering shows."""
    m = torch.randn(4096, 4096, device="cuda")
    for _ in range(3):
        m = m @ m * 1e-4
    return m


@pytest.mark.parametrize("own_stream", [False, True])
def test_between_torch_kernels_on_its_stream(library: Write, torch: Any, own_stream: bool) -> None:
    model = loader.load(library(symbolic_plan(gpu_code())))
    w = torch.from_numpy(rng_weights(5)).cuda()
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    torch.cuda.synchronize()
    kept = []
    with torch.cuda.stream(stream):
        for n in (3, 1000, 1000, 17, 50_000):
            busy = slow_start(torch)
            a = torch.randn(n, 5, device="cuda") + busy[0, 0] * 0  # written late
            b = torch.randn(n, 5, device="cuda")
            y = model.run({"a": a, "b": b}, outputs="device", stream=stream.cuda_stream)["y"]
            before, z = a.clone(), torch.from_dlpack(y) * 3
            a.zero_()  # after the model's read, in stream order
            kept.append((before, b, z, y, 3))
            again = model.run({"a": b, "b": b}, outputs="device", stream=stream.cuda_stream)["y"]
            kept.append((b, b, torch.from_dlpack(again) * 1.5, again, 1.5))
    torch.cuda.synchronize()
    for before, b, z, y, factor in kept:
        assert y.shape == tuple(b.shape) and torch.equal(z, (before + b) * w * factor)


def test_torch_inputs_without_a_stream(library: Write, torch: Any) -> None:
    """The loader's own stream must wait for torch's current stream, whichever that is."""
    model = loader.load(library(symbolic_plan(gpu_code())))
    w = torch.from_numpy(rng_weights(5)).cuda()
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        for n in (7, 4096, 7):
            with torch.cuda.stream(stream):
                busy = slow_start(torch)
                a = torch.randn(n, 5, device="cuda") + busy[0, 0] * 0
                b = torch.randn(n, 5, device="cuda")
                y = model.run({"a": a, "b": b})["y"]
                assert np.array_equal(y, ((a + b) * w).cpu().numpy()), n
                made = model.run({"a": a, "b": b}, outputs="device")["y"]
                assert torch.equal(torch.from_dlpack(made), (a + b) * w)
                assert torch.equal(torch.as_tensor(made, device="cuda"), (a + b) * w)


def test_torch_memory_bound_in_place(library: Write, torch: Any) -> None:
    model = loader.load(library(symbolic_plan(gpu_code())))
    w = torch.from_numpy(rng_weights(5)).cuda()
    a, b, y = (torch.zeros(300, 5, device="cuda") for _ in range(3))
    bound = model.bind({"a": a, "b": b}, {"y": y})
    for seed in range(20):
        torch.manual_seed(seed)
        a.normal_()
        b.normal_()
        bound.run(stream=torch.cuda.current_stream().cuda_stream)
        assert torch.equal(y, (a + b) * w)
    assert model.statistics()["replays"] == 20
    views = a[1:].flatten()[:145].view(29, 5), b.t()
    with pytest.raises(loader.ModelError, match="input 'b': the array must be dense"):
        model.run({"a": a, "b": views[1]})
    fresh = model.run({"a": views[0], "b": views[0]})["y"]
    assert np.array_equal(fresh, ((views[0] + views[0]) * w).cpu().numpy())


def test_device_memory_is_given_back(library: Write, torch: Any) -> None:
    path = library(symbolic_plan(gpu_code()))
    feed = pair(np.random.default_rng(8), 500_000)

    def once() -> None:
        model = loader.load(path)
        model.run(feed, outputs="device")
        model.context().run(feed)

    once()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(10):
        once()
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 32 << 20
