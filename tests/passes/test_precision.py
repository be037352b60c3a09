"""--precision: other types inside, the same inputs and outputs, and errors of the size the type allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models import zoo
from taskc.artifact import loader
from taskc.compile import Options, compile_model
from taskc.errors import UsageError
from taskc.importer import import_model
from taskc.ir.dtype import BF16, F16, F32
from taskc.ir.interpret import evaluate_graph
from taskc.passes.pipeline import default_passes, run_passes
from taskc.passes.precision import in_precision

ALLOWED = {"keep": (0, 2e-6), "tf32": (1e-6, 5e-3), "fp16": (1e-5, 2e-2), "bf16": (1e-4, 1.5e-1)}
EXACT = {("bert_tiny", "tf32")}  # TF32 may be used and need not be: for 16 rows another template is chosen


@pytest.mark.parametrize("precision", ALLOWED)
@pytest.mark.parametrize("name", ["cnn_tiny", "bert_tiny"])
def test_error_is_of_the_size_of_the_type(tmp_path: Path, name: str, precision: str) -> None:
    model, out = zoo.build(name), tmp_path / "model.so"
    compile_model(model, out, options=Options(("host",), precision=precision))
    m = loader.load(out, device="host")
    rng = np.random.default_rng(5)
    feed = {i.name: (rng.integers(0, 900, i.shape) if "int" in i.dtype else rng.standard_normal(i.shape)).astype(i.dtype) for i in m.inputs}
    assert all(o.dtype == "float32" for o in m.outputs)
    got, wanted = m.run(feed), evaluate_graph(import_model(model), feed, np.float64)
    for o in m.outputs:
        error = np.linalg.norm(got[o.name] - wanted[o.name]) / np.linalg.norm(wanted[o.name])
        low, high = ALLOWED[precision]
        low = 0 if (name, precision) in EXACT else low
        assert low <= error <= high


@pytest.mark.parametrize(("precision", "stored"), [("fp16", F16), ("bf16", BF16)])
def test_floats_between_inputs_and_outputs_are_stored_in_16_bits(precision: str, stored: object) -> None:
    graph = in_precision(run_passes(import_model(zoo.build("resnet_tiny")), default_passes()), precision)
    ends = {*graph.inputs, *(v for _, v in graph.outputs)}
    assert {graph.types[v].dtype for v in ends} == {F32}
    assert {t.dtype for v, t in graph.types.items() if v not in ends and t.dtype.is_float} == {stored}


def test_unknown_precision() -> None:
    graph = import_model(zoo.build("matmul_gelu"))
    with pytest.raises(UsageError, match=r"fp8.*tf32"):
        in_precision(graph, "fp8")
