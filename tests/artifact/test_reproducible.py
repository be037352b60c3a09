"""The same model, cache and toolchain give the same bytes, whatever the number of compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import zoo
from taskc.compile import Options, compile_model


@pytest.mark.parametrize("target", ["sm_90a", "host"])
def test_same_bytes_twice_with_any_jobs(tmp_path: Path, target: str) -> None:
    model = zoo.build("cnn_tiny", half=True)
    made: list[bytes] = []
    for n, jobs in enumerate((1, 2)):
        out = tmp_path / str(n) / "model.so"
        out.parent.mkdir()
        compile_model(model, out, options=Options((target,), jobs=jobs))
        made.append(out.read_bytes())
    assert made[0] == made[1]
