"""TensorProto -> (array, DType), with every length checked, from the file or from external data beside it."""

from __future__ import annotations

from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from onnx import SparseTensorProto, TensorProto

from taskc.errors import BadModel, Unsupported
from taskc.importer.types import FROM_ONNX, type_name
from taskc.ir.convert import stored_as
from taskc.ir.dtype import BF16, DType
from taskc.ir.graph import Array

_MAP_FROM = 1 << 20  # external tensors of this many bytes or more are memory-mapped, not read
_SPARSE_LIMIT = 1 << 28  # elements of a sparse tensor written out densely


def element_type(number: int, what: str) -> DType:
    """The DType of ONNX's number; Unsupported for types taskc lacks, BadModel for numbers ONNX lacks."""
    found = FROM_ONNX.get(number)
    if found is not None:
        return found
    name = type_name(number)
    if name is None:
        raise BadModel(f"{what} has element type {number}, which ONNX does not define")
    hint = "; do the text processing outside of the model" if name == "STRING" else ""
    raise Unsupported(f"{what} holds {name} elements, which taskc does not handle{hint}")


def read_tensor(t: TensorProto, folder: Path | None) -> tuple[Array, DType]:
    """The tensor's array (bfloat16 as uint16 bits) and element type."""
    what = f"tensor {t.name!r}" if t.name else "an unnamed tensor"
    dtype = element_type(t.data_type, what)
    shape = tuple(t.dims)
    if any(d < 0 for d in shape):
        raise BadModel(f"{what} has a negative dim: {list(shape)}")
    count = prod(shape)
    if prod(max(d, 1) for d in shape) * dtype.bytes >= 1 << 62:
        raise BadModel(f"{what} has impossible dims: {list(shape)}")
    if t.HasField("segment"):
        raise Unsupported(f"{what} is stored in segments, which taskc does not handle")
    if t.data_location == TensorProto.EXTERNAL:
        return _external(t, what, dtype, shape, folder), dtype
    if t.HasField("raw_data"):
        if len(t.raw_data) != count * dtype.bytes:
            raise BadModel(f"{what} of shape {list(shape)} and type {dtype} needs {count * dtype.bytes} bytes, "
                           f"but the file holds {len(t.raw_data)}")
        return np.frombuffer(t.raw_data, dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False).reshape(shape), dtype
    return _typed_fields(t, what, dtype, count).reshape(shape), dtype


def _typed_fields(t: TensorProto, what: str, dtype: DType, count: int) -> Array:
    """Numbers held one by one in the field that ONNX prescribes for the type."""
    name = {"f32": "float_data", "f64": "double_data", "i64": "int64_data", "u64": "uint64_data", "u32": "uint64_data"}
    field = name.get(dtype.name, "int32_data")
    numbers = {"float_data": t.float_data, "double_data": t.double_data, "int64_data": t.int64_data,
               "uint64_data": t.uint64_data, "int32_data": t.int32_data}[field]
    if len(numbers) != count:
        raise BadModel(f"{what} of shape {list(t.dims)} needs {count} elements, but its {field} holds {len(numbers)}")
    wide = np.array(numbers, {"float_data": np.float32, "double_data": np.float64, "int64_data": np.int64,
                              "uint64_data": np.uint64, "int32_data": np.int64}[field])
    if dtype.name in ("f16", "bf16"):  # the bits, one pattern an element
        bits = (wide.astype(np.int64) & 0xFFFF).astype(np.uint16)
        return bits if dtype == BF16 else bits.view(np.float16)
    return wide.astype(dtype.numpy)


def _external(t: TensorProto, what: str, dtype: DType, shape: tuple[int, ...], folder: Path | None) -> Array:
    fields = {e.key: e.value for e in t.external_data}
    path = _inside(fields.get("location", ""), what, folder)
    offset = _number(fields.get("offset", "0"), "offset", what)
    need = prod(shape) * dtype.bytes
    length = _number(fields["length"], "length", what) if fields.get("length") else need
    if length != need:
        raise BadModel(f"{what} of shape {list(shape)} and type {dtype} needs {need} bytes, but its external length is {length}")
    size = path.stat().st_size
    if offset + need > size:
        raise BadModel(f"{what} wants bytes {offset} to {offset + need} of {path.name}, which has only {size}; is it cut short?")
    if need == 0:
        return np.zeros(shape, dtype.numpy)
    if need >= _MAP_FROM:
        return np.memmap(path, dtype.numpy, "r", offset, shape)
    return np.fromfile(path, dtype.numpy, prod(shape), offset=offset).reshape(shape)


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadModel(f"{what}: external data {key} {text[:40]!r} is not a byte count")
    return int(text)


def _inside(location: str, what: str, folder: Path | None) -> Path:
    """The file that `location` names, which must truly lie in the model's folder: no '..', no link out of it."""
    if folder is None:
        raise BadModel(f"{what} lies in external data ({location[:80]!r}), but a model given as bytes has no folder; give its path")
    parts = {*PurePosixPath(location).parts, *PureWindowsPath(location).parts}
    absolute = PurePosixPath(location).is_absolute() or bool(PureWindowsPath(location).anchor)
    if not location or absolute or ".." in parts or "\0" in location:
        raise BadModel(f"{what}: external data location {location[:80]!r} is refused: it must be a plain path inside the model's folder")
    path = folder / location
    try:
        real, home = path.resolve(strict=True), folder.resolve(strict=True)
    except (OSError, RuntimeError):
        raise BadModel(f"{what}: external data file {location[:80]!r} does not exist beside the model; copy it there") from None
    if home not in real.parents:
        raise BadModel(f"{what}: external data {location[:80]!r} is a link out of the model's folder and is refused; copy the file there")
    if not real.is_file():
        raise BadModel(f"{what}: external data {location[:80]!r} is not a regular file")
    return real


def read_sparse(t: SparseTensorProto, folder: Path | None) -> tuple[Array, DType]:
    """A sparse tensor written out densely; indices are linear [nnz] or coordinates [nnz, rank]."""
    what = f"sparse tensor {t.values.name!r}"
    values, dtype = read_tensor(t.values, folder)
    indices, index_dtype = read_tensor(t.indices, folder)
    shape = tuple(t.dims)
    if any(d < 0 for d in shape) or prod(shape) > _SPARSE_LIMIT:
        raise BadModel(f"{what} has impossible dims: {list(shape)}")
    if values.ndim != 1 or index_dtype.name != "i64" or indices.shape not in ((values.size,), (values.size, len(shape))):
        raise BadModel(f"{what}: values {list(values.shape)} and indices {list(indices.shape)} do not fit together")
    if indices.ndim == 2:
        limits = np.array(shape, np.int64)
        if values.size and (np.any(indices < 0) or np.any(indices >= limits)):
            raise BadModel(f"{what}: an index lies outside of {list(shape)}")
        flat = np.ravel_multi_index(tuple(indices.T), shape) if values.size else indices[:, 0]
    else:
        flat = indices
        if values.size and (flat.min() < 0 or flat.max() >= prod(shape)):
            raise BadModel(f"{what}: an index lies outside of {list(shape)}")
    out = stored_as(np.zeros(prod(shape), np.float32), dtype)
    out[flat] = values
    return out.reshape(shape), dtype
