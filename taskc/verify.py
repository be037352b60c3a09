"""A library against onnxruntime's CPU provider on the same seeded inputs: per output the differences, and PASS or FAIL."""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taskc.artifact import loader
from taskc.errors import BadModel, NoDevice, ToolchainError, UsageError
from taskc.feeds import Array, Request, make_feed
from taskc.importer import import_model
from taskc.importer.symbols import Shape
from taskc.ir.dtype import BF16, F16, F32
from taskc.ir.graph import Graph
from taskc.ops.gather import Gather

_THEIR_ERRORS = ("EPFail", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile", "NotImplemented",
                 "RuntimeException")
_FLOAT32_BAR, _FLOAT64_BAR, _HALF_BAR, _BFLOAT_BAR, _QUANTIZED_BAR, _TF32_BAR = 5e-5, 1e-9, 3e-2, 2e-1, 3e-2, 1e-2


@dataclass(frozen=True)
class Difference:
    """One output: largest absolute difference, and the norm of the difference over the norm of the reference."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_abs: float
    relative: float
    bar: float
    why_failed: str = ""
    note: str = ""

    @property
    def passed(self) -> bool:
        return not self.why_failed


@dataclass(frozen=True)
class Verified:
    """The comparison on one device."""

    device: str
    image: str
    differences: tuple[Difference, ...]
    dims: Mapping[str, int]

    @property
    def passed(self) -> bool:
        return all(d.passed for d in self.differences)


@dataclass(frozen=True)
class Facts:
    """What the model's file says that a comparison needs: the bar, and the values its integer inputs may take."""

    bar: float
    ranges: Mapping[str, tuple[int, int]]


def verify(library: Path, model: Path, devices: Sequence[str | None] = (None,), request: Request | None = None, *,
           bar: float | None = None, shapes: Mapping[str, Shape] | None = None) -> list[Verified]:
    """Compares on each device ('cuda:0', 'host', None for the best one, 'all' for every one there is).

    `shapes` are those the library was compiled with, where the model's file leaves them open. Raises UsageError, BadModel,
    NoDevice or the loader's ModelError; a difference above the bar is in the result."""
    request = replace(request or Request(), fill_all=True)
    facts = read_facts(model, shapes)
    bar = max(facts.bar, _library_bar(library)) if bar is None else bar
    models = _load(library, devices)
    ports = models[0].inputs
    ranges = {k: v for k, v in facts.ranges.items() if k in {p.name for p in ports}}
    request = replace(request, ranges={**ranges, **request.ranges})
    feed = make_feed(ports, request)
    wanted = run_onnxruntime(model, feed, [p.name for p in models[0].outputs], {p.name: p.dtype for p in ports})
    dims = {d: request.dims.get(d, request.default_dim) for p in ports for d in p.shape if isinstance(d, str)}
    done: list[Verified] = []
    for m in models:
        got = m.run(feed)
        differences = [compare(p.name, p.dtype, got[p.name], wanted[p.name], bar) for p in m.outputs]
        done.append(Verified(m.device, f"{m.target} {m.image}" if m.target != m.image else m.target, tuple(differences), dims))
    return done


def _library_bar(library: Path) -> float:
    """What the precision that the library was compiled with allows."""
    text = loader.describe(library).get("metadata", "")
    try:
        precision = json.loads(text).get("precision", "keep")
    except (ValueError, AttributeError):  # another maker's metadata says nothing of precision
        precision = "keep"
    return {"tf32": _TF32_BAR, "fp16": _HALF_BAR, "bf16": _BFLOAT_BAR}.get(precision, 0.0)


def _load(library: Path, devices: Sequence[str | None]) -> list[loader.Model]:
    models: list[loader.Model] = []
    for device in devices:
        if device != "all":
            models.append(loader.load(library, device))
            continue
        reasons: list[str] = []
        for one in ("cuda:0", "host"):
            try:
                models.append(loader.load(library, one))
            except loader.ModelError as e:
                if e.exit_code != NoDevice.exit_code:
                    raise
                reasons.append(str(e))
        if not models:
            raise NoDevice("; ".join(reasons))
    return models


# ---- the model's own facts ------------------------------------------------------------------------------------------


def read_facts(model: Path, shapes: Mapping[str, Shape] | None = None) -> Facts:
    """From the file: the lowest precision in it sets the bar; a table that an input indexes sets the input's range."""
    graph = import_model(model, shapes=shapes)
    return Facts(_bar(graph), _index_ranges(graph))


def _bar(graph: Graph) -> float:
    dtypes = {t.dtype for t in graph.types.values()}
    if any("Quantize" in n.op.name for n in graph.nodes):
        return _QUANTIZED_BAR
    if BF16 in dtypes:
        return _BFLOAT_BAR
    if F16 in dtypes:
        return _HALF_BAR
    return _FLOAT32_BAR if F32 in dtypes else _FLOAT64_BAR


def _index_ranges(graph: Graph) -> dict[str, tuple[int, int]]:
    ranges: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Gather) and node.inputs[1] in graph.inputs:
            extent = graph.types[node.inputs[0]].shape[node.op.axis]
            if isinstance(extent, int):
                low, high = ranges.get(node.inputs[1], (0, extent))
                ranges[node.inputs[1]] = (low, min(high, extent))
    return ranges


# ---- the reference --------------------------------------------------------------------------------------------------


def onnxruntime() -> Any:
    """The package, imported here only: it is large, and compiling does not need it. ToolchainError without it."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as e:
        raise ToolchainError(f"comparing needs onnxruntime ({e}): pip install onnxruntime") from e


@contextmanager
def its_errors(doing: str) -> Generator[None, None, None]:
    """onnxruntime's own exceptions as ours."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    known = tuple(getattr(state, n) for n in _THEIR_ERRORS if hasattr(state, n))
    try:
        yield
    except known as e:
        text = " ".join(str(e).split())[:600]
        kind = UsageError if type(e).__name__ == "InvalidArgument" else BadModel
        raise kind(f"onnxruntime {doing}: {text}") from e


def run_onnxruntime(model: Path, feed: Mapping[str, Array], names: Sequence[str], dtypes: Mapping[str, str]) -> dict[str, Array]:
    """The outputs of onnxruntime's CPU provider; inputs that the library does not know are constants there already."""
    ort = onnxruntime()
    bits = [n for n, d in dtypes.items() if d == "bfloat16"]
    if bits:
        raise UsageError(f"input {bits[0]!r} is bfloat16, which onnxruntime's Python interface does not take: nothing to compare with")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    with its_errors(f"does not load {model}"):
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    with its_errors(f"does not run {model}"):
        found = session.run(list(names), dict(feed))
    return dict(zip(names, (np.asarray(v) for v in found), strict=True))


# ---- comparing ------------------------------------------------------------------------------------------------------


def compare(name: str, dtype: str, got: Array, wanted: Array, bar: float) -> Difference:
    """Infinities and NaN must be in the same places; integers must be equal, 8-bit ones may differ by a rounding step."""
    shape = tuple(got.shape)
    if shape != wanted.shape:
        return Difference(name, dtype, shape, np.inf, np.inf, bar, f"shape {list(shape)}, onnxruntime has {list(wanted.shape)}")
    a, b = _as_float64(got, dtype), _as_float64(wanted, dtype)
    finite = np.isfinite(a) & np.isfinite(b)
    same = np.array_equal(np.where(finite, 0.0, a), np.where(finite, 0.0, b), equal_nan=True)
    delta = np.where(finite, a, 0.0) - np.where(finite, b, 0.0)
    max_abs = float(np.abs(delta).max(initial=0.0))
    norm = float(np.linalg.norm(np.where(finite, b, 0.0)))
    relative = float(np.linalg.norm(delta)) / norm if norm else (0.0 if max_abs == 0.0 else np.inf)
    note = "" if b.size < 2 or float(b.min()) != float(b.max()) else "every element is the same: this input shows little"
    why = ""
    if not same:
        why = "NaN or infinity in other places than onnxruntime's"
    elif "float" not in dtype:
        step = 1.0 if dtype in ("int8", "uint8") else 0.0
        why = "" if max_abs <= step else "integers differ"
    elif relative > bar:
        why = f"relative norm above {bar:g}"
    return Difference(name, dtype, shape, max_abs, relative, bar, why, note)


def _as_float64(values: Array, dtype: str) -> Array:
    if dtype == "bfloat16" and values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)
