"""Published models: taskc reads them or says what it lacks, and those that run on `host` agree with onnxruntime.

They need a network once (`make test-real`); without one the tests skip and say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from taskc.check import check_model
from taskc.compile import Options, compile_model
from taskc.errors import Unsupported
from taskc.feeds import Request
from taskc.verify import verify
from tests.real.fetch import MODELS, CannotFetch, RealModel, fetch

pytestmark = pytest.mark.real

ACCEPTED_AT_LEAST = 20  # of all of them, with the shapes that are fed


@dataclass(frozen=True)
class Refusal:
    """Words that the refusal of a model must hold: the operator, and why."""

    words: tuple[str, ...]


REFUSED = {
    "ddddocr": Refusal(("LSTM",)),
    "minimol_v1": Refusal(("ScatterElements",)),
    "silero_vad_16k_sequence": Refusal(("LSTM",)),
    "plcmos_v2": Refusal(("GRU",)),
    "bilstm.int8": Refusal(("DynamicQuantizeLSTM", "com.microsoft")),
    "rawi.int8": Refusal(("DynamicQuantizeLSTM", "com.microsoft")),
    "rawi_v3.int8": Refusal(("DynamicQuantizeLSTM", "com.microsoft")),
    "traceforge_encoder": Refusal(("MatMulInteger",)),
    "pipecat_silero_vad": Refusal(("If", "condition")),
    "silero_vad": Refusal(("If", "condition")),
    "silero_vad_16k_op15": Refusal(("If", "condition")),
}


def file_of(model: RealModel) -> Path:
    try:
        return fetch(model)
    except CannotFetch as e:
        pytest.skip(str(e))


def named(*uses: str) -> pytest.MarkDecorator:
    chosen = [m for m in MODELS if m.use in uses]
    return pytest.mark.parametrize("model", chosen, ids=[m.name for m in chosen])


@named("check", "compile", "compare")
def test_accepts_or_names_the_operator(model: RealModel) -> None:
    path = file_of(model)
    refusal = REFUSED.get(model.name)
    if refusal is None:
        assert sum(check_model(path, ("sm_90a", "host"), shapes=model.shapes()).operators.values()) > 0
        return
    with pytest.raises(Unsupported) as caught:
        check_model(path, ("sm_90a", "host"), shapes=model.shapes())
    for word in refusal.words:
        assert word in str(caught.value)


def test_most_are_accepted() -> None:
    assert len(MODELS) - len(REFUSED) >= ACCEPTED_AT_LEAST


@named("compile")
def test_light_files_compile(model: RealModel, tmp_path: Path) -> None:
    """Their weights are constant, so any output would pass: only that they compile is tested."""
    out = tmp_path / "model.so"
    compile_model(file_of(model), out, options=Options(("sm_90a",), model.shapes()))
    assert out.stat().st_size > 100_000


@named("compare")
def test_agrees_with_onnxruntime(model: RealModel, tmp_path: Path) -> None:
    path, out = file_of(model), tmp_path / "model.so"
    compile_model(path, out, options=Options(("host",), model.shapes()))
    inputs = {name: _text(f, tmp_path / f"{number}.npy") for number, (name, f) in enumerate(model.feed.items())}
    (found,) = verify(out, path, ("host",), Request(inputs, seed=7), shapes=model.shapes())
    assert found.passed, found.differences
    assert not any(d.note for d in found.differences), "a constant output shows nothing"


def _text(feed: dict[str, Any], file: Path) -> str:
    """What to feed, as `--input` takes it."""
    if feed.get("kind") == "text lines":
        np.save(file, text_lines(*feed["shape"]))
        return str(file)
    return f"random:{feed['low']}:{feed['high']}" if "low" in feed else "random"


def text_lines(batch: int, channels: int, height: int, width: int, cell: int = 3, rows: int = 7) -> NDArray[np.float32]:
    """Dark random glyphs in lines on a light page: a text detector answers noise with zeros, and this with text."""
    rng = np.random.default_rng(11)
    page = np.full((height, width), 2.0, np.float32)
    for top in range(20, height - rows * cell, 2 * rows * cell):
        glyphs = np.kron(rng.random((rows, (width - 60) // cell)) < 0.5, np.ones((cell, cell), bool))
        page[top : top + glyphs.shape[0], 30 : 30 + glyphs.shape[1]][glyphs] = -2.0
    return np.ascontiguousarray(np.broadcast_to(page, (batch, channels, height, width)))
