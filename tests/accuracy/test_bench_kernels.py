"""bench.kernels walks a plan whose launches have several branches."""

# pyright: basic
from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from bench.cases import feeds
from bench.kernels import profile
from tests.tune.test_launches import towers_model


def test_launches_of_branches(tmp_path: Path) -> None:
    model = towers_model()
    onnx.save(model, tmp_path / "m.onnx")
    found = profile(str(tmp_path / "m.onnx"), tmp_path / "m.so", "host", feeds(model, 1, {"batch": 7}), repeat=1)
    rows = sorted(found["rows"], key=lambda r: r["launch"])
    assert found["launches"] == 2 and [r["branches"] for r in rows] == [2, 2]
    assert rows[0]["name"] == "product0 | product1" and rows[0]["problem"] == "2 x 1x7x18x24" and rows[0]["grid"][2] == 2
    assert rows[0]["flops"] == 2 * 2 * 7 * 18 * 24 and rows[0]["bytes"] == 2 * 4 * (7 * 24 + 24 * 20 + 7 * 18)  # rows of weights begin on vectors
    assert rows[1]["us"] > 0 and rows[1]["x_floor"] == pytest.approx(rows[1]["us"] / rows[1]["floor_us"], rel=0.1)
