"""Running on the host device through the loader: values, shapes, pointers, threads, messages."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taskc.artifact import loader
from tests.artifact.artifact_plans import (
    affine,
    affine_plan,
    chain_plan,
    counter_plan,
    host_code,
    host_image,
    outputs_plan,
    peek_plan,
    rng_weights,
    symbolic_plan,
)
from tests.artifact.artifact_process import python

Write = Callable[..., Path]


def pair(rng: np.random.Generator, *shape: int) -> dict[str, np.ndarray]:
    return {n: rng.standard_normal(shape).astype(np.float32) for n in "ab"}


def right(feed: dict[str, np.ndarray], result: np.ndarray) -> bool:
    return np.array_equal(result, affine(feed["a"], feed["b"], rng_weights(feed["a"].shape[1])))


def test_values_and_fresh_pointers_each_call(library: Write) -> None:
    model = loader.load(library(affine_plan(host_code())), "host")
    rng = np.random.default_rng(0)
    kept: list[Any] = []
    for _ in range(20):
        feed = pair(rng, 3, 5)
        result = model.run(feed)["y"]
        assert right(feed, result)
        kept.append((feed, result))
    assert all(right(f, r) for f, r in kept), "a later run wrote into an earlier result"
    facts = model.statistics()
    assert facts["builds"] == 1 and facts["runs"] == 20 and facts["updates"] >= 18


def test_bound_arrays_replay(library: Write) -> None:
    model = loader.load(library(affine_plan(host_code())), "host")
    rng = np.random.default_rng(1)
    feed, out = pair(rng, 3, 5), np.full((3, 5), np.nan, np.float32)
    bound = model.bind(feed, {"y": out})
    for _ in range(5):
        feed["a"][:] = rng.standard_normal((3, 5))
        assert bound.run()["y"] is out and right(feed, out)
    assert model.statistics()["replays"] == 5 and model.statistics()["updates"] == 0
    other = model.bind(feed)
    assert right(feed, other.run()["y"]) and other.outputs["y"] is not out
    with pytest.raises(loader.ModelError, match="input 'a': bind needs a C-contiguous"):
        model.bind({**feed, "a": np.zeros((5, 3), np.float32).T})
    with pytest.raises(loader.ModelError, match="output 'y': an output must be a writable"):
        model.bind(feed, {"y": np.zeros((5, 3), np.float32).T})
    with pytest.raises(loader.ModelError, match="output 'y' shares memory with input 'a'"):
        model.bind(feed, {"y": feed["a"]})
    with pytest.raises(loader.ModelError, match=r"output 'y': given float32\[3, 4\], wanted float32\[3, 5\]"):
        model.bind(feed, {"y": np.zeros((3, 4), np.float32)})
    with pytest.raises(loader.ModelError, match="no output is named 'z'"):
        model.bind(feed, {"z": out})


def test_layouts_and_alignment(library: Write) -> None:
    model = loader.load(library(affine_plan(host_code())), "host")
    rng = np.random.default_rng(2)
    room = np.zeros(64, np.float32)
    for start in range(1, 9):  # every misalignment of 4-byte elements
        a, b = room[start : start + 15].reshape(3, 5), rng.standard_normal((5, 3)).astype(np.float32).T
        a[:] = rng.standard_normal((3, 5))
        out = np.zeros(40, np.float32)[start : start + 15].reshape(3, 5)
        assert right({"a": a, "b": b}, model.run({"a": a, "b": b})["y"])
        assert right({"a": a, "b": b}, model.bind({"a": a, "b": np.ascontiguousarray(b)}, {"y": out}).run()["y"])
    big = rng.standard_normal((3, 5)).astype(">f4")
    assert right({"a": big.astype("<f4"), "b": a}, model.run({"a": big, "b": a})["y"])


def test_symbolic_sizes(library: Write) -> None:
    model = loader.load(library(symbolic_plan(host_code())), "host")
    assert model.inputs[0].shape == ("batch", 5) and str(model.inputs[0]) == "float32[batch, 5]"
    rng = np.random.default_rng(3)
    sizes = [1, 17, 128, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 128, 1031]  # more than the cache of bindings holds
    for n in sizes:
        feed = pair(rng, n, 5)
        assert right(feed, model.run(feed)["y"]), n
    assert model.statistics()["arena_bytes"] >= 1031 * 20
    assert model.statistics()["builds"] < len(sizes)


def test_shape_messages(library: Write) -> None:
    model = loader.load(library(symbolic_plan(host_code(), low=2, multiple=3)), "host")
    zeros = lambda *s: np.zeros(s, np.float32)
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"a": zeros(3, 4), "b": zeros(3, 5)},
            r"input 'a': given float32\[3, 4\], wanted float32\[batch, 5\]: dim 1 must be 5",
        ),
        (
            {"a": zeros(3, 5), "b": zeros(6, 5)},
            r"input 'b': given float32\[6, 5\], wanted float32\[batch, 5\]: dim 0 must be 3",
        ),
        ({"a": zeros(1, 5), "b": zeros(1, 5)}, r"input 'a': given float32\[1, 5\].*\('batch'\)|must be at least 2"),
        ({"a": zeros(4, 5), "b": zeros(4, 5)}, r"must be a multiple of 3"),
        ({"a": zeros(15), "b": zeros(3, 5)}, r"input 'a': given float32\[15\], wanted float32\[batch, 5\]"),
        ({"a": np.zeros((3, 5)), "b": zeros(3, 5)}, r"input 'a': given float64\[3, 5\], wanted float32\[batch, 5\]"),
        ({"a": zeros(3, 5)}, "no value for input 'b'; the model wants a: float32"),
        ({"a": zeros(3, 5), "b": zeros(3, 5), "c": 1}, "no input is named 'c'; the model wants a: float32"),
        ({"a": np.array([["x"] * 5] * 3), "b": zeros(3, 5)}, r"input 'a': given str.*\[3, 5\], wanted float32"),
    ]
    for feed, message in cases:
        with pytest.raises(loader.ModelError, match=message) as e:
            model.run(feed)
        assert e.value.exit_code == 2
    assert model.run({"a": zeros(3, 5), "b": zeros(3, 5)})["y"].shape == (3, 5)


def test_a_tensor_of_2_to_the_31_elements_is_refused(library: Write) -> None:
    plan = symbolic_plan(host_code())
    model = loader.load(library(plan), "host")
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1 << 29, 5), (0, 0))
    context = model._context
    tensors = context._array([loader._Tensor(), loader._Tensor()])
    for t in tensors:
        context._fill(t, loader._Operand(huge.ctypes.data, False, 3, "float32", huge.shape, None))
    with pytest.raises(loader.ModelError, match=r"input 'a': given float32\[536870912, 5\].*fewer than 2\^31 elements"):
        context._check(context._api.output_shapes(context._handle, tensors, context._array([loader._Tensor()])))


def test_outputs_that_are_inputs_duplicates_constants_and_fills(library: Write) -> None:
    model = loader.load(library(outputs_plan(host_code())), "host")
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        got = model.run({"x": x})
        assert np.array_equal(got["same"], x) and not np.shares_memory(got["same"], x)
        assert np.array_equal(got["sum"], x + x) and np.array_equal(got["again"], x + x)
        assert not np.shares_memory(got["sum"], got["again"])
        assert np.array_equal(got["constant"], np.arange(12, dtype=np.float32).reshape(4, 3))
        assert got["ones"].tobytes() == b"\1" * 48


def test_counters_start_at_zero_and_again_after_an_error(library: Write) -> None:
    model = loader.load(library(counter_plan(host_code())), "host")
    x = np.ones(1, np.float32)
    assert [int(model.run({"x": x})["y"][0]) for _ in range(3)] == [1, 2, 3]
    assert int(model.context().run({"x": x})["y"][0]) == 1, "counters belong to a context"
    with pytest.raises(loader.ModelError, match=r"launch 0 'Count_7' \(kernel 'count'\) failed: negative input") as e:
        model.run({"x": -x})
    assert e.value.exit_code == 1
    assert int(model.run({"x": x})["y"][0]) == 1


def test_the_arena_starts_as_nan(library: Write) -> None:
    model = loader.load(library(peek_plan(host_code())), "host")
    assert np.isnan(model.run({})["y"][0]) and np.isnan(model.run({})["y"][0])


def test_contexts_on_threads(library: Write) -> None:
    model = loader.load(library(symbolic_plan(host_code())), "host")
    wrong: list[str] = []

    def work(seed: int) -> None:
        context, rng = model.context(), np.random.default_rng(seed)
        for _ in range(60):
            feed = pair(rng, int(rng.integers(1, 400)), 5)
            if not right(feed, context.run(feed)["y"]):
                wrong.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_order_follows_edges_not_the_list(library: Write) -> None:
    path = library(chain_plan(host_code(), 9))
    code = (
        "import sys, numpy as np; from taskc.artifact import loader\n"
        "m = loader.load(sys.argv[1], 'host'); x = np.arange(1000, dtype='f')\n"
        "w = np.random.default_rng(3).integers(-8, 8, 1000)\n"
        "assert np.array_equal(m.run({'x': x})['y'], x + 9 * w.astype('f'))"
    )
    for seed in range(1, 6):
        done = python(code, str(path), env={"TASKC_HOST_ORDER": str(seed), "TASKC_POISON": "1"})
        assert done.returncode == 0, done.stderr
    plan = chain_plan(host_code(), 9)
    target = plan.targets[0]
    loose = replace(plan, targets=(replace(target, steps=tuple(replace(s, after=()) for s in target.steps)),))
    path = library(loose)
    failures = [python(code, str(path), env={"TASKC_HOST_ORDER": str(s)}).returncode for s in range(1, 4)]
    assert any(failures), "a plan without edges must show under a shuffled order"


def test_a_replaced_library_is_loaded_anew(library: Write) -> None:
    """The same path, other weights; then the same library, other kernels: no mistaken identity in dlopen."""
    feed = pair(np.random.default_rng(6), 3, 5)
    kept = []
    for seed in range(3):
        w = np.random.default_rng(seed).standard_normal(5).astype(np.float32)
        model = loader.load(library(affine_plan(host_code(), weights=w)), "host")
        assert np.array_equal(model.run(feed)["y"], affine(feed["a"], feed["b"], w))
        kept.append((model, w))
    assert all(np.array_equal(m.run(feed)["y"], affine(feed["a"], feed["b"], w)) for m, w in kept)
    plan = affine_plan(host_code())
    other = replace(plan.targets[0], images=(replace(plan.targets[0].images[0], data=host_image("x[i] - y[i]")),))
    minus = loader.load(library(replace(plan, targets=(other,))), "host")
    result = minus.run(feed)["y"]
    assert np.array_equal(result, affine(feed["a"], -feed["b"], rng_weights(5)))


def test_devices_and_times(library: Write) -> None:
    path = library(affine_plan(host_code()))
    model = loader.load(path, "host")
    assert (model.device, model.target, model.image, model.name) == ("host", "host", "host", "affine")
    with pytest.raises(loader.ModelError, match="nothing to time"):
        model.time_device(3)
    model.run(pair(np.random.default_rng(0), 3, 5))
    assert len(model.time_device(3)) == 3 and all(t > 0 for t in model.time_device(3))
    with pytest.raises(loader.ModelError, match="device 'gpu': wanted 'cuda', 'cuda:N' or 'host'"):
        loader.load(path, "gpu")
    with pytest.raises(loader.ModelError, match="outputs='device': the model runs on device 'host'"):
        model.run(pair(np.random.default_rng(0), 3, 5), outputs="device")


def test_dropping_a_model_frees_it_at_once(library: Write) -> None:
    """No reference cycle: device memory must not wait for the garbage collector. A context keeps what it needs."""
    gc.disable()
    try:
        model = loader.load(library(affine_plan(host_code())), "host")
        context, device = model.context(), weakref.ref(model._device)
        feed = pair(np.random.default_rng(0), 3, 5)
        model.run(feed)
        del model
        assert device() is not None and right(feed, context.run(feed)["y"])
        del context
        assert device() is None
    finally:
        gc.enable()


def test_description_needs_no_device(library: Write) -> None:
    facts = loader.describe(library(symbolic_plan(host_code(), low=2, multiple=4)))
    assert facts["name"] == "affine" and facts["metadata"] == '{"made": "test"}' and facts["weights_bytes"] == 20
    assert facts["symbols"] == [{"name": "N", "input": 0, "axis": 0, "low": 2, "multiple": 4, "high": 2**31 - 1}]
    (target,) = facts["targets"]
    assert [k["symbol"] for k in target["kernels"]] == ["add", "scale", "count", "peek"]
    assert target["kernels"][0]["registers"] == 12 and target["kernels"][0]["notes"] == "loads 16 bytes"
    assert (
        target["steps"][1]["after"] == [0]
        and target["steps"][1]["name"] == "Mul_2"
        and target["steps"][0]["grid"] == (-1, 1, 1)
    )


class Foreign:
    """An array of another library, seen through DLPack only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_of_host_arrays(library: Write) -> None:
    model = loader.load(library(affine_plan(host_code())), "host")
    feed = pair(np.random.default_rng(5), 3, 5)
    assert right(feed, model.run({k: Foreign(v) for k, v in feed.items()})["y"])
    with pytest.raises(loader.ModelError, match="input 'a': the array must be dense"):
        model.run({**feed, "a": Foreign(np.zeros((3, 10), np.float32)[:, ::2])})


def test_a_symbol_has_a_highest_size(library: Write) -> None:
    """Kernels rely on it: a position table of 6 rows is read without a check."""
    model = loader.load(library(symbolic_plan(host_code(), high=6)), "host")
    for rows in (6, 7):
        feed = {"a": np.ones((rows, 5), np.float32), "b": np.ones((rows, 5), np.float32)}
        if rows == 6:
            assert model.run(feed)["y"].shape == (6, 5)
        else:
            with pytest.raises(loader.ModelError, match=r"input 'a': given float32\[7, 5\].*\('batch'\) must be at most 6"):
                model.run(feed)


def test_replays_keep_the_last_arrays_alive(library: Write) -> None:
    """time_device writes the last run's outputs again, which the caller may have dropped."""
    model = loader.load(library(affine_plan(host_code(), cols=300_000, weights=np.ones(300_000, np.float32))), "host")
    feed = {name: np.ones((3, 300_000), np.float32) for name in "ab"}
    model.run(feed)
    del feed
    gc.collect()
    assert len(model.time_device(3)) == 3
    model.bind({name: np.ones((3, 300_000), np.float32) for name in "ab"}).run()
    gc.collect()
    assert len(model.time_device(3)) == 3
