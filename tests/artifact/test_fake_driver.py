"""The CUDA side of the runtime without a GPU: a stand-in libcuda.so.1 that queues work and keeps a log.

It shows bookkeeping: which nodes, edges, updates and waits, and every message about machines. What a GPU does is for
test_gpu."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from taskc.artifact.library import write_library
from taskc.artifact.plan import Image, ModelPlan
from tests.artifact.artifact_plans import (
    Code,
    affine_plan,
    chain_plan,
    counter_plan,
    fake_code,
    host_code,
    host_image,
    outputs_plan,
    symbolic_plan,
)
from tests.artifact.artifact_process import python

Write = Callable[..., Path]

START = """
import sys, numpy as np
from tests.artifact.artifact_plans import affine, rng_weights
from taskc.artifact import loader
def pair(n, seed=0, k=5):
    return {x: np.random.default_rng(seed + i).standard_normal((n, k)).astype("f") for i, x in enumerate("ab")}
def right(feed, y):
    return np.array_equal(y, affine(feed["a"], feed["b"], rng_weights(5)))
"""


def check(driver: dict[str, str], path: Path, code: str, log: Path | None = None, **env: str) -> list[str]:
    """Runs code with the stand-in; the log's lines."""
    extra = {**driver, **env, **({"FAKE_LOG": str(log)} if log else {})}
    if log and log.exists():
        log.unlink()
    done = python(START + code, str(path), env=extra)
    assert done.returncode == 0, done.stdout + done.stderr
    return log.read_text().splitlines() if log and log.exists() else []


def refusal(driver: dict[str, str], path: Path, device: str = "'cuda:0'", **env: str) -> str:
    code = START + (
        f"try: loader.load(sys.argv[1], {device})\n"
        "except loader.ModelError as e: print(e.exit_code, e)\nelse: print('no error')"
    )
    done = python(code, str(path), env={**driver, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_values_updates_replays(driver: dict[str, str], library: Write, tmp_path: Path) -> None:
    code = """
m = loader.load(sys.argv[1])
assert (m.device, m.target, m.image, m.device_name) == ("cuda:0", "sm_90a", "cubin", "Fake GPU 0")
for n in (1, 17, 128, 1, 17, 3, 4, 5, 6, 7, 8, 9, 10, 128):
    feed = pair(n, n)
    assert right(feed, m.run(feed)["y"]), n
    assert right(feed, m.run(feed)["y"]), n
s = m.statistics()
assert s["graph"] == 1 and s["programmatic_edges"] == 1 and s["replays"] >= 14, s
assert len(m.time_device(4)) == 4 and m.time_device(1) == [500.0]
"""
    log = check(driver, library(symbolic_plan(fake_code())), code, tmp_path / "log")
    assert log.count("alloc") == log.count("free") and log.count("retain") == log.count("release") == 1
    assert any(line.startswith("update") for line in log) and log.count("launch") == 0


def test_device_arrays_stay_on_the_device(driver: dict[str, str], library: Write, tmp_path: Path) -> None:
    code = """
m = loader.load(sys.argv[1])
feed = pair(17)
first = m.run(feed, outputs="device")["y"]
assert first.shape == (17, 5) and first.__dlpack_device__() == (2, 0)
face = first.__cuda_array_interface__
assert face["typestr"] == "<f4" and face["shape"] == (17, 5) and face["data"][0] % 256 == 0
class Interface:
    def __init__(self, a, **more): self.a, self.__cuda_array_interface__ = a, {**a.__cuda_array_interface__, **more}
zero = np.zeros((17, 5), "f")
for given in (first, Interface(first)):
    again = m.run({"a": given, "b": zero})["y"]  # (a + b) * w * w
    assert np.array_equal(again, affine(affine(feed["a"], feed["b"], rng_weights(5)), zero, rng_weights(5)))
again = m.run({"a": Interface(first, stream=7), "b": zero}, outputs="device", stream=12345)["y"]
assert again._stream == 12345 and again.__cuda_array_interface__["stream"] == 12345
capsule = again.__dlpack__(stream=1)
assert len(loader._exported) == 1
del capsule
assert not loader._exported
bound = m.bind({"a": first, "b": zero}, {"y": again})
bound.run(); bound.run()
assert right({"a": affine(feed["a"], feed["b"], rng_weights(5)), "b": zero}, m.run({"a": first, "b": zero})["y"])
def refused(feed, text):
    try: m.run(feed)
    except loader.ModelError as e: assert text in str(e) and e.exit_code == 2, e
    else: raise AssertionError(text)
refused({"a": Interface(first, data=(4096, False)), "b": zero}, "input 'a': 0x1000 is not memory of a GPU")
refused({"a": Interface(first, strides=(4, 68)), "b": zero}, "input 'a': a GPU array must be dense")
refused({"a": Interface(first, typestr="<f8"), "b": zero}, "input 'a': given float64[17, 5], wanted float32[batch, 5]")
half = Interface(first, data=(face["data"][0] + 4, False), shape=(16, 5))  # 4 bytes off: goes through staging
small = np.zeros((16, 5), "f")
shifted = affine(feed["a"], feed["b"], rng_weights(5)).ravel()[1:81].reshape(16, 5)
assert right({"a": shifted, "b": small}, m.run({"a": half, "b": small})["y"])
"""
    log = check(driver, library(symbolic_plan(fake_code())), code, tmp_path / "log")
    assert log.count("alloc") == log.count("free")


def test_outputs_edges_and_counters(driver: dict[str, str], library: Write, tmp_path: Path) -> None:
    code = """
m = loader.load(sys.argv[1])
for seed in range(3):
    x = np.random.default_rng(seed).standard_normal((4, 3)).astype("f")
    y = m.run({"x": x})
    assert np.array_equal(y["same"], x) and np.array_equal(y["sum"], x + x) and np.array_equal(y["again"], x + x)
    assert np.array_equal(y["constant"].ravel(), np.arange(12)) and y["ones"].tobytes() == b"\\1" * 48
assert m.statistics()["programmatic_edges"] == 0
"""
    check(driver, library(outputs_plan(fake_code()), "o.so"), code)
    code = """
m = loader.load(sys.argv[1])
x, w = np.arange(1000, dtype="f"), np.random.default_rng(3).integers(-8, 8, 1000).astype("f")
for _ in range(5): assert np.array_equal(m.run({"x": x})["y"], x + 12 * w)
assert m.statistics()["programmatic_edges"] == int(sys.argv[0] == "-c") * 11, m.statistics()
"""
    check(driver, library(chain_plan(fake_code(), 12), "c.so"), code)
    code = """
m = loader.load(sys.argv[1])
x = np.ones(1, "f")
assert [int(m.run({"x": x})["y"][0]) for _ in range(3)] == [1, 2, 3]
try: m.run({"x": -x})
except loader.ModelError as e:
    assert "model 'counter' failed while it ran on GPU 0" in str(e) and "LAUNCH_FAILED" in str(e), e
else: raise AssertionError
assert int(m.run({"x": x})["y"][0]) == 1
"""
    path = library(counter_plan(fake_code()), "n.so")
    check(driver, path, code)
    code = code.replace("model 'counter' failed while it ran on GPU 0", "launch 0 'Count_7' (kernel 'count')")
    check(driver, path, code, TASKC_SYNC="1")


@pytest.mark.parametrize("refuse", ["graph", "update", "programmatic", ""])
def test_when_graphs_are_refused(driver: dict[str, str], library: Write, tmp_path: Path, refuse: str) -> None:
    code = f"""
m = loader.load(sys.argv[1])
for n in (3, 3, 8, 3):
    feed = pair(n, n)
    assert right(feed, m.run(feed)["y"])
    right(feed, m.run(feed, outputs="device")["y"])
s = m.statistics()
assert s["graph"] == {int(refuse not in ("", "graph"))} and s["programmatic_edges"] == {int(refuse == "update")}, s
"""
    extra = {"FAKE_REFUSE": refuse} if refuse else {"TASKC_NO_GRAPH": "1"}
    log = check(driver, library(symbolic_plan(fake_code())), code, tmp_path / "log", **extra)
    assert ("launch" in log) == (refuse in ("", "graph"))


def test_empty_tensors_and_poison(driver: dict[str, str], library: Write, tmp_path: Path) -> None:
    code = """
m = loader.load(sys.argv[1])
for n in (0, 4, 0, 2):
    feed = pair(n, n)
    assert right(feed, m.run(feed)["y"]) and m.run(feed)["y"].shape == (n, 5)
"""
    path = library(symbolic_plan(fake_code(), low=0))
    assert "empty" in check(driver, path, code, tmp_path / "log", TASKC_POISON="1")


def test_launch_attributes(driver: dict[str, str], library: Write, tmp_path: Path) -> None:
    plan = affine_plan(fake_code())
    target = plan.targets[0]
    kernels = (
        replace(target.kernels[0], cluster=(1, 1, 1), shared_bytes=100_000, cooperative=True),
        replace(target.kernels[1], cluster=(1, 1, 1)),
    )
    path = library(replace(plan, targets=(replace(target, kernels=kernels),)))
    log = check(
        driver, path, "m = loader.load(sys.argv[1]); f = pair(3); assert right(f, m.run(f)['y'])", tmp_path / "log"
    )
    assert "attribute 8 100000" in log and sum(x.startswith("node attribute 2") for x in log) == 1
    wide = replace(target, kernels=(replace(kernels[0], cluster=(2, 1, 1)), kernels[1]))
    path = library(replace(plan, targets=(wide,)))
    done = python(START + "loader.load(sys.argv[1]).run(pair(3))", str(path), env=driver)
    assert "launch 0 'Add_1': a grid of 1 blocks in dim 0 for clusters of 2" in done.stderr


def test_two_threads(driver: dict[str, str], library: Write) -> None:
    code = """
import threading
m = loader.load(sys.argv[1])
wrong = []
def work(seed):
    c = m.context()
    for i in range(40):
        feed = pair(1 + (seed * 37 + i * 11) % 90, seed + i)
        if not right(feed, c.run(feed)["y"]): wrong.append(seed)
threads = [threading.Thread(target=work, args=(s,)) for s in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not wrong
"""
    check(driver, library(symbolic_plan(fake_code())), code)


def test_messages_about_machines(driver: dict[str, str], library: Write, tmp_path: Path) -> None:
    path = library(affine_plan(fake_code()))
    assert refusal(driver, path) == "no error"
    assert "8 the CUDA driver is too old: it supports CUDA 12.4" in refusal(driver, path, FAKE_VERSION="12040")
    assert "580 or newer" in refusal(driver, path, FAKE_VERSION="12040")
    assert "8 the CUDA driver sees no GPU" in refusal(driver, path, FAKE_DEVICES="0")
    assert "device 'cuda:3': the CUDA driver sees 2 GPUs" in refusal(driver, path, "'cuda:3'", FAKE_DEVICES="2")
    assert "the CUDA driver lacks cuGraphLaunch" in refusal(driver, path, FAKE_REFUSE="cuGraphLaunch")
    text = refusal(driver, path, FAKE_CAPABILITY="89")
    assert text.startswith(
        "8 GPU 0 (Fake GPU 0) (compute capability 8.9) can run none of the embedded code: sm_90a (cubin)"
    )
    assert "--target sm_89" in text
    assert "--target sm_120a" in refusal(driver, path, FAKE_CAPABILITY="120")
    assert refusal({}, path).startswith("8 no CUDA driver (libcuda.so.1") or "LD_LIBRARY_PATH" in os.environ


def several(*codes: Code) -> ModelPlan:
    plans = [affine_plan(c) for c in codes]
    return replace(plans[0], targets=tuple(p.targets[0] for p in plans))


@pytest.mark.parametrize(
    ("capability", "target", "image"),
    [
        ("90", "sm_90a", "cubin"), ("80", "sm_80", "cubin"), ("89", "sm_86", "cubin"), ("100", "sm_80", "ptx"),
        ("75", "host", "host"),
    ],
)  # fmt: skip
def test_choice_of_target(driver: dict[str, str], library: Write, capability: str, target: str, image: str) -> None:
    generic = Code("sm_80", (*fake_code("sm_80").images, *fake_code("sm_80", "ptx").images))
    path = library(several(generic, fake_code("sm_86"), fake_code("sm_90a"), host_code()))
    code = f"m = loader.load(sys.argv[1]); assert (m.target, m.image) == ({target!r}, {image!r}), (m.target, m.image)\n"
    check(driver, path, code + "f = pair(3); assert right(f, m.run(f)['y'])", FAKE_CAPABILITY=capability)


def test_kernels_spread_over_images_and_missing_ones(driver: dict[str, str], library: Write, tmp_path: Path) -> None:
    plan = affine_plan(fake_code())
    target = plan.targets[0]
    other = host_image("x[i] + y[i]").replace(b"taskc_launch_add", b"taskc_launch_abb")
    only = replace(target, images=(Image("cubin", "sm_90a", other),))
    write_library(replace(plan, targets=(only,)), tmp_path / "a.so")
    assert "kernel 'add': cuModuleGetFunction failed" in refusal(driver, tmp_path / "a.so")
    bad = replace(target, images=(Image("cubin", "sm_90a", b"not a cubin" * 9),))
    write_library(replace(plan, targets=(bad,)), tmp_path / "b.so")
    assert "code for sm_90a on GPU 0 (Fake GPU 0): cuModuleLoadDataEx failed" in refusal(driver, tmp_path / "b.so")
