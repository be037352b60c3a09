"""Latency of a library, and of onnxruntime on the same model and inputs: device time and host time, as medians.

Device time (us): one run with inputs and outputs on the device, between events, synchronised each time. Host time (wall_us):
from the call to the result being ready. On the host device both are the same clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taskc.artifact import loader
from taskc.cuda_memory import Cuda
from taskc.errors import NoDevice, UsageError
from taskc.feeds import Array, Request, make_feed
from taskc.verify import its_errors, onnxruntime, run_onnxruntime

WARM_UP = 20
ALIVE = 0.01  # two inputs must give outputs that differ by more than this


@dataclass(frozen=True)
class Row:
    """One measurement, in the row format of bench/results. `ready_s`: seconds from a file to the first result; `live`: the
    result is finite and depends on the input; `runs`: how many the medians are taken over."""

    model: str
    prec: str
    mode: str
    us: float
    wall_us: float
    ready_s: float
    live: bool
    runs: int
    options: str = ""


def bench_library(library: Path, device: str | None, request: Request, runs: int, warm_up: int = WARM_UP) -> Row:
    """Measures the library. Raises the loader's ModelError, or UsageError for what to feed."""
    start = time.perf_counter()
    model = loader.load(library, device)
    feed = make_feed(model.inputs, request)
    first = model.run(feed)
    ready = time.perf_counter() - start
    second = model.run(make_feed(model.inputs, replace(request, seed=request.seed + 1)))
    live = is_live(first, second)
    if model.device == "host":
        wall = _host_times(lambda: model.run(feed), runs, warm_up)
        return Row(model.name, precision(model), "taskc host", _median(wall), _median(wall), round(ready, 3), live, runs)
    with Cuda(model.ordinal) as cuda:
        inputs = {k: cuda.put(v) for k, v in feed.items()}
        bound = model.bind(inputs, {k: cuda.like(v) for k, v in first.items()})
        wall = _host_times(bound.run, runs, warm_up)
        device_times = model.time_device(runs)
    mode = f"taskc {model.image}"
    return Row(model.name, precision(model), mode, _median(device_times), _median(wall), round(ready, 3), live, runs)


def bench_onnxruntime(model: Path, name: str, prec: str, ports: Sequence[loader.TensorInfo], outputs: Sequence[str],
                      request: Request, runs: int, *, provider: str = "cpu", options: Mapping[str, str] | None = None, warm_up: int = WARM_UP) -> Row:
    """Measures onnxruntime with the provider that was asked for.

    UsageError where onnxruntime would run on another provider than that: its time would be taken for the wrong thing."""
    ort = onnxruntime()
    wanted = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}.get(provider)
    if wanted is None:
        raise UsageError(f"--provider {provider}: there are cpu and cuda")
    feed = make_feed(ports, request)
    other = make_feed(ports, replace(request, seed=request.seed + 1))
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    if provider == "cpu":
        start = time.perf_counter()
        session = _session(ort, model, settings, wanted, {})
        with its_errors(f"does not run {model}"):
            first = dict(zip(outputs, session.run(list(outputs), feed), strict=True))
            ready = time.perf_counter() - start
            second = dict(zip(outputs, session.run(list(outputs), other), strict=True))
            wall = _host_times(lambda: session.run(list(outputs), feed), runs, warm_up)
        return Row(name, prec, "ort cpu", _median(wall), _median(wall), round(ready, 3), is_live(first, second), runs, "all CPUs")
    if wanted in ort.get_available_providers():
        # A captured graph writes to fixed addresses, so the outputs' sizes must be known before.
        example = run_onnxruntime(model, feed, outputs, {p.name: p.dtype for p in ports})
        return _bench_cuda(ort, model, name, prec, settings, dict(options or {}), feed, other, example, runs, warm_up)
    raise NoDevice(_no_provider(ort, wanted))


def _bench_cuda(ort: Any, model: Path, name: str, prec: str, settings: Any, options: dict[str, str], feed: Mapping[str, Array],
                other: Mapping[str, Array], example: Mapping[str, Array], runs: int, warm_up: int) -> Row:
    """`example`: an array of the shape of each output."""
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()  # the CUDA libraries of installed wheels
    with Cuda() as cuda:
        given = {"enable_cuda_graph": "1", "use_tf32": "0", "cudnn_conv_algo_search": "EXHAUSTIVE", **options}
        start = time.perf_counter()
        session = _session(ort, model, settings, "CUDAExecutionProvider", {**given, "user_compute_stream": str(cuda.stream)})
        binding = session.io_binding()
        inputs = {k: ort.OrtValue.ortvalue_from_numpy(v, "cuda", 0) for k, v in feed.items()}
        for k, v in inputs.items():
            binding.bind_ortvalue_input(k, v)
        results = {k: ort.OrtValue.ortvalue_from_numpy(v, "cuda", 0) for k, v in example.items()}
        for k, v in results.items():
            binding.bind_ortvalue_output(k, v)
        run_options = ort.RunOptions()
        run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")

        def run() -> None:
            session.run_with_iobinding(binding, run_options)

        def timed() -> tuple[float, float]:
            begin, since = cuda.event(), time.perf_counter()
            run()
            device = cuda.microseconds(begin, cuda.event())
            return device, (time.perf_counter() - since) * 1e6

        def result() -> dict[str, Array]:
            timed()
            return {k: np.asarray(v.numpy()) for k, v in results.items()}

        with its_errors(f"does not run {model}"):
            first = result()
            ready = time.perf_counter() - start
            for k, v in other.items():
                inputs[k].update_inplace(v)
            second = result()
            for _ in range(warm_up):
                run()
            times = [timed() for _ in range(runs)]
        said = ",".join(f"{k}={v}" for k, v in given.items())
        return Row(name, prec, "ort cuda", _median([d for d, _ in times]), _median([w for _, w in times]), round(ready, 3),
                   is_live(first, second), runs, said)


def _session(ort: Any, model: Path, settings: Any, provider: str, options: dict[str, str]) -> Any:
    if provider not in ort.get_available_providers():
        raise NoDevice(_no_provider(ort, provider))
    with its_errors(f"does not load {model}"):
        session = ort.InferenceSession(str(model), settings, providers=[(provider, options)])
    ran = session.get_providers()[0]
    if ran != provider:
        raise NoDevice(f"onnxruntime fell back to {ran} where {provider} was asked for; nothing was measured")
    return session


def _no_provider(ort: Any, provider: str) -> str:
    has = ", ".join(ort.get_available_providers())
    return f"onnxruntime here has no {provider}; it has {has}. Install onnxruntime-gpu, or compare with --provider cpu"


def precision(model: loader.Model) -> str:
    """The name of the model's float type in result rows, from its inputs and outputs."""
    short = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
    found = [short[p.dtype] for p in (*model.inputs, *model.outputs) if p.dtype in short]
    return next((s for s in short.values() if s in found), "int")


def is_live(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    """Whether results of two inputs are finite and differ: the time of a dead model says nothing."""
    differs = False
    for name, a in first.items():
        x, y = a.astype(np.float64), second[name].astype(np.float64)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            return False
        differs |= float(np.linalg.norm(x - y)) > ALIVE * float(np.linalg.norm(x))
    return differs


def _host_times(run: Callable[[], object], runs: int, warm_up: int) -> list[float]:
    """Microseconds of each run, after the warm-up."""
    for _ in range(warm_up):
        run()
    times: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def _median(times: Sequence[float]) -> float:
    return round(statistics.median(times), 1)
