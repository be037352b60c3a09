"""A path, bytes or ModelProto -> ModelProto and the folder its external data may lie in. Says what a wrong file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Union

from google.protobuf.message import DecodeError
from onnx import ModelProto

from taskc.errors import BadModel

Source = Union[str, "os.PathLike[str]", bytes, ModelProto]

_FOREIGN: tuple[tuple[int, bytes, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer, not the model itself; run `git lfs pull` where it came from"),
    (0, b"<", "an HTML or XML page, so the download went wrong"),
    (0, b"PK\x03\x04", "a zip archive (a PyTorch checkpoint?); export it to ONNX first"),
    (0, b"\x89HDF", "an HDF5 file (Keras?); convert it to ONNX first"),
    (0, b"GGUF", "a GGUF file; taskc reads ONNX"),
    (4, b"ORTM", "an onnxruntime .ort file; compile the .onnx that it was made from"),
    (4, b"TFL3", "a TensorFlow Lite file; convert it to ONNX first"),
    (0, b"\x7fELF", "a program or library"),
    (0, b"{", "a JSON text"),
    (0, b"\x80\x02", "a Python pickle (a PyTorch checkpoint?); export it to ONNX first"),
)


def load_model(source: Source) -> tuple[ModelProto, Path | None, str]:
    """(model, folder, name). `folder` is None when the source has no place, then external data is refused."""
    if isinstance(source, ModelProto):
        return _checked(source, "the model"), None, source.graph.name or "model"
    if isinstance(source, bytes):
        model = _parse(source, "the model")
        return model, None, model.graph.name or "model"
    path = Path(source)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadModel(f"{path}: no such file") from None
    except IsADirectoryError:
        raise BadModel(f"{path} is a folder; name the .onnx file inside it") from None
    except OSError as error:
        raise BadModel(f"{path} cannot be read: {error.strerror}") from None
    return _parse(data, str(path)), path.parent, path.stem


def _parse(data: bytes, what: str) -> ModelProto:
    if not data:
        raise BadModel(f"{what} is empty (0 bytes)")
    for offset, magic, meaning in _FOREIGN:
        if data.startswith(magic, offset):
            raise BadModel(f"{what} is not an ONNX model: it looks like {meaning}")
    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        raise BadModel(f"{what} is not an ONNX model, or is cut short or damaged ({len(data)} bytes that do not parse)") from None
    return _checked(model, what)


def _checked(model: ModelProto, what: str) -> ModelProto:
    if not model.HasField("graph"):
        raise BadModel(f"{what} is not an ONNX model: it holds no graph")
    if not model.graph.output:
        raise BadModel(f"{what}: the graph has no outputs, so there is nothing to compute")
    return model
