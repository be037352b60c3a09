"""Weights in files beside the model: read where they belong, refused anywhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

sys.path.insert(0, str(Path(__file__).parent))
from taskc.errors import BadModel
from taskc.importer import import_model
from tests.importer.onnx_models import model, node

W = np.arange(6, dtype=np.float32).reshape(3, 2)


def external(**fields: str) -> ModelProto:
    m = model([node("MatMul", "x w", "y")], {"x": np.ones((2, 3), np.float32)}, "y", constants={"w": W})
    t = m.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for key, value in fields.items():
        t.external_data.add(key=key, value=value)
    return m


def written(folder: Path, m: ModelProto) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "m.onnx").write_bytes(m.SerializeToString())
    return folder / "m.onnx"


def test_offset_length_and_subfolder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"\xff" * 4096 + W.tobytes())
    path = written(tmp_path, external(location="sub/w.bin", offset="4096", length="24"))
    np.testing.assert_array_equal(import_model(path).constants["w"], W)


def test_large_weights_are_mapped(tmp_path: Path) -> None:
    big = np.random.default_rng(9).standard_normal((3, 1 << 17)).astype(np.float32)
    m = external(location="w.bin")
    m.graph.initializer[0].dims[1] = big.shape[1]
    (tmp_path / "w.bin").write_bytes(big.tobytes())
    found = import_model(written(tmp_path, m)).constants["w"]
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, big)


@pytest.mark.parametrize("location", ["../secret.bin", "sub/../../secret.bin", "sub\\..\\..\\secret.bin", "C:\\secret.bin", "", ".",
                                      "gone.bin", "a\0b"])
def test_places_outside_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    path = written(tmp_path / "model", external(location=location))
    with pytest.raises(BadModel, match="'w'"):
        import_model(path)
    absolute = written(tmp_path / "model", external(location=str(tmp_path / "secret.bin")))
    with pytest.raises(BadModel, match="plain path inside"):
        import_model(absolute)


def test_links_out_are_refused_and_links_inside_are_not(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(W.tobytes())
    path = written(tmp_path / "model", external(location="w.bin"))
    (path.parent / "w.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(BadModel, match="link out"):
        import_model(path)
    (path.parent / "w.bin").unlink()
    (path.parent / "real.bin").write_bytes(W.tobytes())
    (path.parent / "w.bin").symlink_to("real.bin")
    np.testing.assert_array_equal(import_model(path).constants["w"], W)


@pytest.mark.parametrize(("fields", "reason"), [
    ({"length": "8"}, "needs 24 bytes"), ({"offset": "4"}, "has only 24"), ({"offset": "-8"}, "not a byte count"),
    ({"length": "abc"}, "not a byte count"), ({"offset": str(10**18)}, "has only 24"), ({"offset": "9" * 400}, "not a byte count"),
])
def test_wrong_lengths(tmp_path: Path, fields: dict[str, str], reason: str) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(BadModel, match=reason):
        import_model(written(tmp_path, external(location="w.bin", **fields)))


def test_bytes_have_no_folder() -> None:
    with pytest.raises(BadModel, match="give its path"):
        import_model(external(location="w.bin").SerializeToString())
