"""The small twins on the GPU: against onnxruntime, at changing sizes, run after run, through PTX; and spills of the full models."""

# pyright: basic, reportMissingImports=false
# (torch is not among the development dependencies)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.cases import TOLERANCE, Case, build, feeds, judge, relative_error, widen, widened_feed
from bench.kernels import profile
from bench.report import gpu_query, target_here
from bench.side_prepare import run_reference
from models import zoo
from taskc.artifact import loader
from taskc.compile import compile_model
from tests.gpu.models_on_gpu import load, on_gpu, prepared

STATIC = tuple(t for t in zoo.TWINS if not t.endswith("_dyn"))
REPLAYS = 1000
MOST_OF_THE_TIME = 0.9


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arena and outputs start as NaN in every run: what a kernel leaves unwritten shows."""
    monkeypatch.setenv("TASKC_POISON", "1")


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("model", [*STATIC, *zoo.HANDMADE])
def test_twin_agrees_with_onnxruntime(model: str, precision: str, tmp_path: Path) -> None:
    case = prepared(model, precision, tmp_path)
    loaded = load(case)
    verdict = judge(case, loaded.run(case.arrays("feed.npz")), loaded.run(case.arrays("other.npz")))
    assert verdict["live"], "two inputs give the same outputs"
    assert verdict["right"], f"relative error {verdict['rel_err']}"


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_one_library_at_growing_and_shrinking_sizes(precision: str, tmp_path: Path) -> None:
    model = zoo.build("bert_tiny_dyn", half=precision == "fp16")
    compile_model(model, tmp_path / "model.so", target_here())
    loaded = loader.load(tmp_path / "model.so", device="cuda:0")
    wide = widen(model)
    for batch, sequence in ((1, 17), (4, 64), (2, 3), (17, 31), (1, 1), (3, 64), (128, 7), (1, 17)):
        feed = feeds(model, batch + sequence, {"batch": batch, "sequence": sequence})
        error = relative_error(loaded.run(feed), run_reference(wide, widened_feed(feed)))
        assert error <= TOLERANCE[precision], f"batch {batch}, sequence {sequence}: relative error {error}"


@pytest.mark.parametrize("model", ["resnet_tiny", "gpt2_tiny"])
def test_runs_are_equal_bit_by_bit(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped path, one graph replayed: no poison in between that would keep runs apart."""
    import torch

    monkeypatch.delenv("TASKC_POISON")
    case = prepared(model, "fp16", tmp_path)
    loaded = load(case)
    inputs = on_gpu(case.arrays("feed.npz"))
    outputs = {o.name: torch.full(o.shape, float("nan"), dtype=getattr(torch, o.dtype), device="cuda") for o in loaded.outputs}
    torch.cuda.synchronize()
    bound = loaded.bind(inputs, outputs)
    bound.run()
    first = {name: t.clone() for name, t in outputs.items()}
    assert all(torch.isfinite(t).all() for t in first.values())
    for n in range(REPLAYS):
        bound.run()
        assert all(torch.equal(first[name], t) for name, t in outputs.items()), f"run {n} differs"
    assert loaded.statistics()["graph"], "the run was not one CUDA graph"


def test_interleaved_with_torch_on_its_stream(tmp_path: Path) -> None:
    """Inputs written and outputs read by torch's kernels on the same stream, without waits of the host in between."""
    import torch

    case = prepared("resnet_tiny", "fp32", tmp_path)
    loaded = load(case)
    feed = case.arrays("feed.npz")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        halves = {name: t * 0.5 for name, t in on_gpu(feed).items()}
        doubled = {name: t * 2 for name, t in halves.items()}
        out = loaded.run(doubled, outputs="device", stream=stream.cuda_stream)
        total = {name: torch.from_dlpack(a) + 1 for name, a in out.items()}
    stream.synchronize()
    got = {name: t.cpu().numpy() - 1 for name, t in total.items()}
    assert relative_error(got, case.arrays("want.npz")) <= TOLERANCE["fp32"]


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_ptx_of_sm_80_runs_on_a_newer_gpu(precision: str, tmp_path: Path) -> None:
    if gpu_query("compute_cap").startswith("8."):
        pytest.skip("this GPU runs sm_80's own code: PTX is for newer ones")
    for name in ("resnet_tiny", "bert_tiny"):
        model = zoo.build(name, half=precision == "fp16")
        library = tmp_path / f"{name}.so"
        compile_model(model, library, "sm_80")
        loaded = loader.load(library, device="cuda:0")
        assert "ptx" in loaded.image.lower(), f"it runs {loaded.image}"
        feed = feeds(model, 3)
        assert relative_error(loaded.run(feed), run_reference(widen(model), widened_feed(feed))) <= TOLERANCE[precision]


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("model", zoo.FULL)
def test_no_spills_where_the_time_goes(model: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKC_POISON")
    case = Case(model, precision, str(tmp_path))
    made = build(case)
    case.path("").mkdir()
    case.path("model.onnx").write_bytes(made.SerializeToString())
    found = profile(str(case.path("model.onnx")), case.path("model.so"), target_here(), feeds(made, 1), repeat=16)
    seen, spilling = 0.0, []
    for row in found["rows"]:  # slowest first
        if seen < MOST_OF_THE_TIME * found["sum_us"] and row["spill"]:
            spilling.append(f"{row['symbol']} ({row['schedule']}, {row['us']} us): {row['spill']} bytes")
        seen += row["us"]
    assert np.isfinite(seen) and seen > 0
    assert not spilling, "\n".join(spilling)
