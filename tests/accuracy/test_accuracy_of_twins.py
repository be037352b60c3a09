"""The small twins on `host`: errors against float64, at most twice those of a careful evaluation of the same file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import FACTOR, errors
from bench.cases import Array
from models import zoo
from taskc.artifact import loader
from taskc.compile import compile_model
from taskc.importer import import_model
from taskc.ir.interpret import evaluate_graph

SLOW = ("inception_tiny",)  # many kernels: a minute of compiling
MODELS = [pytest.param(t, marks=pytest.mark.slow) if t in SLOW else t for t in zoo.TWINS]
SIZES = {"batch": 3, "sequence": 17}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", MODELS)
def test_twin(name: str, precision: str, tmp_path: Path) -> None:
    model = zoo.build(name, half=precision == "fp16")
    compile_model(model, tmp_path / "model.so", "host")
    loaded = loader.load(tmp_path / "model.so", device="host")
    found = errors(model, precision, loaded.run, (1, 2), SIZES)
    assert 0 < found["careful"] < 0.05, "the reference evaluations do not agree: nothing can be said"
    assert found["within"], found


def test_a_small_mistake_is_seen() -> None:
    """The bar is tight: outputs that are wrong by a thousandth (float32) or a twentieth (float16) do not pass."""
    for precision, mistake in (("fp32", 1e-3), ("fp16", 0.05)):
        model = zoo.build("resnet_tiny", half=precision == "fp16")

        def scaled(feed: dict[str, Array], model: object = model, mistake: float = mistake) -> dict[str, Array]:
            from_float64 = _exact(model, feed)
            return {name: a * (1 + mistake) for name, a in from_float64.items()}

        found = errors(model, precision, scaled, (1,))
        assert found["error"] == pytest.approx(mistake, rel=1e-6)
        assert not found["within"]
    assert FACTOR == 2.0


def _exact(model: object, feed: dict[str, Array]) -> dict[str, Array]:
    return evaluate_graph(import_model(model), feed, np.float64)  # type: ignore[arg-type]
