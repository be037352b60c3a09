"""Loads a model library made by taskc and runs it. Needs Python, NumPy and, for GPU code, the NVIDIA driver; nothing
else.

    model = load("model.so")            # or load("model.so", device="cuda:0"); without a path the library beside this
    file
    result = model.run({"x": array})    # name -> NumPy array

This file stands alone: it is copied beside each library. `import model` would find model.so first, which is no Python
module; import this file by its path, or rename it:

    load = runpy.run_path("model.py")["load"]
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

__all__ = ["Bound", "Context", "DeviceArray", "Model", "ModelError", "TensorInfo", "describe", "load"]

_VERSION = 1
_MAX_RANK = 16
_MESSAGE = 2048
_OK, _USAGE, _BAD_LIBRARY, _NO_DEVICE, _NO_MEMORY = 0, 2, 3, 8, 9
_EXIT_CODES = {_NO_MEMORY: _NO_DEVICE}  # a GPU too small does not fit
_ON_STREAM = 1

# number -> (name, NumPy type that holds the values, DLPack type code, bits); bfloat16 travels as its bits in uint16
_DTYPES: dict[int, tuple[str, str, int, int]] = {
    1: ("float16", "<f2", 2, 16), 2: ("bfloat16", "<u2", 4, 16),
    3: ("float32", "<f4", 2, 32), 4: ("float64", "<f8", 2, 64),
    5: ("int8", "|i1", 0, 8), 6: ("int16", "<i2", 0, 16), 7: ("int32", "<i4", 0, 32), 8: ("int64", "<i8", 0, 64),
    9: ("uint8", "|u1", 1, 8), 10: ("uint16", "<u2", 1, 16), 11: ("uint32", "<u4", 1, 32), 12: ("uint64", "<u8", 1, 64),
    13: ("bool", "|b1", 6, 8),
}  # fmt: skip


class ModelError(Exception):
    """A failure with the runtime's message; `exit_code` as the taskc command returns it."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
        self.exit_code = _EXIT_CODES.get(status, status)


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: `shape` holds ints, and names (or '?') for symbolic dims."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


# ---- the C interface, as in model.h ---------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("memory", ctypes.c_uint32), ("dtype", ctypes.c_uint32), ("rank", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32), ("shape", ctypes.c_int64 * _MAX_RANK),
    ]  # fmt: skip


class _LibraryInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p), ("format_version", ctypes.c_uint32),
        ("symbols", ctypes.c_uint32), ("inputs", ctypes.c_uint32), ("outputs", ctypes.c_uint32),
        ("targets", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32), ("weights_bytes", ctypes.c_uint64),
    ]  # fmt: skip


class _SymbolInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("input", ctypes.c_uint32), ("axis", ctypes.c_uint32), ("low", ctypes.c_int64),
        ("multiple", ctypes.c_int64), ("high", ctypes.c_int64),
    ]  # fmt: skip


class _PortInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_uint32), ("rank", ctypes.c_uint32),
        ("shape", ctypes.c_int64 * _MAX_RANK), ("dims", ctypes.c_char_p * _MAX_RANK),
    ]  # fmt: skip


class _TargetInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("images", ctypes.c_uint32), ("kernels", ctypes.c_uint32),
        ("tensors", ctypes.c_uint32),
        ("steps", ctypes.c_uint32), ("arena_bytes", ctypes.c_int64),
    ]  # fmt: skip


class _ImageInfo(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char_p), ("arch", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64),
    ]  # fmt: skip


class _KernelInfo(ctypes.Structure):
    _fields_ = [
        ("symbol", ctypes.c_char_p), ("notes", ctypes.c_char_p), ("threads", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32), ("cluster", ctypes.c_uint32 * 3), ("pdl", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32), ("registers", ctypes.c_uint32), ("spill_bytes", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]  # fmt: skip


class _StepInfo(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char_p), ("name", ctypes.c_char_p), ("kernel", ctypes.c_uint32), ("args", ctypes.c_uint32),
        ("after_count", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("after", ctypes.POINTER(ctypes.c_uint32)),
        ("grid", ctypes.c_int64 * 3), ("bytes", ctypes.c_int64),
    ]  # fmt: skip


class _ModelInfo(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_char_p), ("target", ctypes.c_char_p), ("image", ctypes.c_char_p),
        ("ordinal", ctypes.c_int32),
        ("capability", ctypes.c_int32), ("weights_bytes", ctypes.c_uint64),
    ]  # fmt: skip


class _RunOptions(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("stream", ctypes.c_void_p)]


class _Statistics(ctypes.Structure):
    _fields_ = [
        ("runs", ctypes.c_uint64), ("builds", ctypes.c_uint64), ("updates", ctypes.c_uint64),
        ("replays", ctypes.c_uint64),
        ("graph", ctypes.c_uint32), ("programmatic_edges", ctypes.c_uint32), ("arena_bytes", ctypes.c_uint64),
        ("counter_bytes", ctypes.c_uint64),
    ]  # fmt: skip


def _function(result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)


_P, _U32, _STATUS = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int
_OUT = ctypes.POINTER(ctypes.c_void_p)
_TEXT = (ctypes.c_char_p, ctypes.c_size_t)
_TENSORS = ctypes.POINTER(_Tensor)


class _Api(ctypes.Structure):
    _fields_ = [
        ("version", _U32), ("bytes", _U32),
        ("library_open", _function(_STATUS, _OUT, *_TEXT)), ("library_release", _function(None, _P)),
        ("library_describe", _function(None, _P, ctypes.POINTER(_LibraryInfo))),
        ("symbol", _function(_STATUS, _P, _U32, ctypes.POINTER(_SymbolInfo))),
        ("input", _function(_STATUS, _P, _U32, ctypes.POINTER(_PortInfo))),
        ("output", _function(_STATUS, _P, _U32, ctypes.POINTER(_PortInfo))),
        ("target", _function(_STATUS, _P, _U32, ctypes.POINTER(_TargetInfo))),
        ("image", _function(_STATUS, _P, _U32, _U32, ctypes.POINTER(_ImageInfo))),
        ("kernel", _function(_STATUS, _P, _U32, _U32, ctypes.POINTER(_KernelInfo))),
        ("step", _function(_STATUS, _P, _U32, _U32, ctypes.POINTER(_StepInfo))),
        ("model_create", _function(_STATUS, _P, ctypes.c_char_p, _OUT, *_TEXT)), ("model_release", _function(None, _P)),
        ("model_describe", _function(None, _P, ctypes.POINTER(_ModelInfo))),
        ("allocate", _function(_STATUS, _P, ctypes.c_size_t, _OUT, *_TEXT)), ("deallocate", _function(None, _P, _P)),
        ("context_create", _function(_STATUS, _P, _OUT, *_TEXT)), ("context_release", _function(None, _P)),
        ("context_message", _function(ctypes.c_char_p, _P)), ("context_stream", _function(_P, _P)),
        ("output_shapes", _function(_STATUS, _P, _TENSORS, _TENSORS)),
        ("bind", _function(_STATUS, _P, _TENSORS, _TENSORS)),
        ("run", _function(_STATUS, _P, _TENSORS, _TENSORS, ctypes.POINTER(_RunOptions))),
        ("synchronize", _function(_STATUS, _P)),
        ("time_device", _function(_STATUS, _P, _U32, ctypes.POINTER(ctypes.c_float))),
        ("statistics", _function(None, _P, ctypes.POINTER(_Statistics))),
        ("wait_stream", _function(_STATUS, _P, _P, *_TEXT)),
    ]  # fmt: skip


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _check_file(path: Path) -> None:
    """Mapping a truncated file would fault later: its segments must lie inside it."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            size = file.seek(0, os.SEEK_END)
            if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
                raise ModelError(f"{path} is not a model library (no 64-bit ELF file)", _BAD_LIBRARY)
            offset, entry, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            file.seek(offset)
            table = file.read(entry * count)
    except OSError as e:
        raise ModelError(f"cannot read {path}: {e.strerror or e}", _USAGE) from e
    if entry != 56 or len(table) < entry * count:
        raise ModelError(f"{path} is truncated or damaged; copy or compile it again", _BAD_LIBRARY)
    for i in range(count):
        kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", table, i * entry)
        if kind == 1 and start + length > size:
            raise ModelError(
                f"{path} is truncated: it has {size} bytes of {start + length}; copy it again", _BAD_LIBRARY
            )


def _spelled(path: Path) -> str:
    """The path, spelled differently for each file that was ever there.

    dlopen takes an object of the same name for the same object, even when the file was replaced since. "/" and "/."
    mean the same folder and spell the bits of the file's identity."""
    whole, facts = path.resolve(), path.stat()
    identity = hash((facts.st_dev, facts.st_ino, facts.st_mtime_ns)) & 0xFFFFFFFF
    bits = "".join("/." if identity >> i & 1 else "/" for i in range(32))
    return f"{whole.parent}{bits}/{whole.name}"


class _Library:
    """The opened .so and its description."""

    def __init__(self, path: Path) -> None:
        _check_file(path)
        try:
            self.so = ctypes.CDLL(_spelled(path))
            get = self.so.taskc_get_api
        except OSError as e:
            raise ModelError(f"{path} does not load: {e}", _BAD_LIBRARY) from e
        except AttributeError as e:
            raise ModelError(f"{path} is not a taskc model library", _BAD_LIBRARY) from e
        get.restype, get.argtypes = ctypes.POINTER(_Api), [_U32]
        table = get(_VERSION)
        if not table:
            raise ModelError(
                f"{path} does not offer version {_VERSION} of the interface: use the loader beside it", _BAD_LIBRARY
            )
        self.path = path
        self.api: Any = table.contents
        self.handle = self.create(self.api.library_open)
        self._close = weakref.finalize(self, self.api.library_release, self.handle)
        self.inputs = self._ports(self.api.input, self.info().inputs)
        self.outputs = self._ports(self.api.output, self.info().outputs)
        self.dtypes_in = [self._port(self.api.input, i).dtype for i in range(len(self.inputs))]
        self.dtypes_out = [self._port(self.api.output, i).dtype for i in range(len(self.outputs))]

    def create(self, function: Any, *arguments: Any) -> ctypes.c_void_p:
        """Calls a function that makes an object; raises with its message."""
        out, message = ctypes.c_void_p(), ctypes.create_string_buffer(_MESSAGE)
        status = function(*arguments, ctypes.byref(out), message, _MESSAGE)
        if status != _OK:
            raise ModelError(
                f"{self.path}: {_text(message.value)}" if status == _BAD_LIBRARY else _text(message.value), status
            )
        return out

    def info(self) -> Any:
        out = _LibraryInfo()
        self.api.library_describe(self.handle, ctypes.byref(out))
        return out

    def _port(self, function: Any, number: int) -> Any:
        out = _PortInfo()
        function(self.handle, number, ctypes.byref(out))
        return out

    def _ports(self, function: Any, count: int) -> tuple[TensorInfo, ...]:
        found: list[TensorInfo] = []
        for n in range(count):
            p = self._port(function, n)
            shape = tuple(int(p.shape[d]) if p.shape[d] >= 0 else _text(p.dims[d]) or "?" for d in range(p.rank))
            found.append(TensorInfo(_text(p.name), _DTYPES[p.dtype][0], shape))
        return tuple(found)


class _Device:
    """The model on its device: the C object, its facts, its memory. Models, contexts and arrays share it."""

    def __init__(self, library: _Library, device: str) -> None:
        self.library = library
        self.handle = library.create(library.api.model_create, library.handle, device.encode())
        self._close = weakref.finalize(self, library.api.model_release, self.handle)
        info = _ModelInfo()
        library.api.model_describe(self.handle, ctypes.byref(info))
        self.device_name, self.target, self.image = _text(info.device), _text(info.target), _text(info.image)
        self.ordinal = int(info.ordinal)
        self.name = "host" if self.ordinal < 0 else f"cuda:{self.ordinal}"

    def wait_stream(self, stream: int) -> None:
        """Waits until a CUDA stream has done what it was given so far."""
        message = ctypes.create_string_buffer(_MESSAGE)
        status = self.library.api.wait_stream(self.handle, stream or None, message, _MESSAGE)
        if status != _OK:
            raise ModelError(_text(message.value), status)


class _DeviceMemory:
    """Memory on the device, freed with this object."""

    def __init__(self, device: _Device, nbytes: int) -> None:
        self.device = device
        api = device.library.api
        self.pointer = device.library.create(api.allocate, device.handle, nbytes).value or 0
        self._free = weakref.finalize(self, api.deallocate, device.handle, self.pointer)


# ---- arrays ---------------------------------------------------------------------------------------------------------


class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _DLDevice), ("rank", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _DLManaged(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManaged))
_DLManaged._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13

_python: Any = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_IsValid.restype = ctypes.c_int
_python.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

_exported: dict[int, tuple[_DLManaged, Any, Any]] = {}  # address -> what an exported tensor keeps alive


@_Deleter
def _forget(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _free_capsule(capsule: int | None) -> None:
    """A capsule nobody consumed still owns its tensor; a consumed one has another name."""
    is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
        ("PyCapsule_IsValid", ctypes.pythonapi)
    )
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    if is_valid(capsule, b"dltensor"):
        _exported.pop(pointer(capsule, b"dltensor"), None)


class DeviceArray:
    """A row-major tensor in GPU memory; the memory is freed with the last user of it.

    Hand it to torch (`torch.from_dlpack(a)`) or CuPy (`cupy.asarray(a)`) without a copy."""

    def __init__(self, device: _Device, dtype: int, shape: tuple[int, ...], stream: int | None) -> None:
        self._device = device
        self._dtype = dtype
        self.shape = shape
        self.dtype = _DTYPES[dtype][0]
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * (_DTYPES[dtype][3] // 8)
        self._memory = _DeviceMemory(device, self.nbytes) if self.nbytes else None
        self.pointer = self._memory.pointer if self._memory else 0
        self._stream = stream  # where it is written; None: writing has ended

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._device.ordinal

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> object:
        """A `dltensor` capsule. The consumer works on its own stream: writing must have ended, or be on that stream."""
        if self._stream is not None and stream not in (-1, self._stream or 1):  # -1: the consumer wants no waiting
            self._device.wait_stream(self._stream)
        _, _, code, bits = _DTYPES[self._dtype]
        shape = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        managed = _DLManaged()
        managed.tensor.data, managed.tensor.device = self.pointer, _DLDevice(_CUDA, self._device.ordinal)
        managed.tensor.rank, managed.tensor.lanes = len(self.shape), 1
        managed.tensor.code, managed.tensor.bits = code, bits
        managed.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = _forget
        address = ctypes.addressof(managed)
        _exported[address] = (managed, shape, self)
        return _python.PyCapsule_New(address, b"dltensor", ctypes.cast(_free_capsule, ctypes.c_void_p))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("__cuda_array_interface__ has no bfloat16; use __dlpack__")
        typestr = _DTYPES[self._dtype][1]
        stream = self._stream
        return {
            "shape": self.shape, "typestr": typestr, "data": (self.pointer or 0, False), "strides": None, "version": 3,
            "stream": 1 if stream == 0 else stream,
        }  # fmt: skip


@dataclass(frozen=True)
class _Operand:
    """A caller's tensor: where it lies, and what keeps it alive."""

    pointer: int
    on_device: bool
    dtype: int | None  # None: an element type the format does not have
    dtype_name: str
    shape: tuple[int, ...]
    keep: object
    stream: int | None = None  # a stream that still writes it
    copied: bool = False  # not the caller's own memory


def _from_numpy(value: Any, wanted: int, writable: bool) -> _Operand:
    array = np.asarray(value)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous and not writable:
        array = np.ascontiguousarray(array)
    name = array.dtype.name
    if name == "uint16" and wanted == 2:
        name = "bfloat16"  # its bits
    code = next((k for k, v in _DTYPES.items() if v[0] == name), None)
    if writable and not (
        isinstance(value, np.ndarray) and array is value and array.flags.c_contiguous and array.flags.writeable
    ):
        raise ModelError("an output must be a writable, C-contiguous NumPy array or GPU memory", _USAGE)
    return _Operand(array.ctypes.data, False, code, name, array.shape, array, copied=array is not value)


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides (in elements) are those of a row-major tensor."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return 0 in shape
        expected *= extent
    return True


def _from_dlpack(value: Any, on_device: bool, stream: int | None) -> _Operand:
    capsule = value.__dlpack__(stream=stream) if on_device else value.__dlpack__()
    if not _python.PyCapsule_IsValid(capsule, b"dltensor"):
        raise ModelError("an array's __dlpack__ gave no 'dltensor' capsule", _USAGE)
    t = _DLManaged.from_address(_python.PyCapsule_GetPointer(capsule, b"dltensor")).tensor
    shape = tuple(int(t.shape[d]) for d in range(t.rank))
    if t.strides and not _dense(shape, [int(t.strides[d]) for d in range(t.rank)]):
        raise ModelError("the array must be dense and row-major (call .contiguous())", _USAGE)
    key = (int(t.code), int(t.bits))
    code = next((k for k, v in _DTYPES.items() if (v[2], v[3]) == key and t.lanes == 1), None)
    name = _DTYPES[code][0] if code else f"DLPack type {key[0]} of {key[1]} bits"
    # The capsule stays unconsumed: when it dies, its maker's destructor releases the tensor.
    return _Operand((t.data or 0) + int(t.byte_offset), on_device, code, name, shape, (value, capsule))


def _from_interface(value: Any, wanted: int) -> _Operand:
    facts = value.__cuda_array_interface__
    shape, typestr = tuple(facts["shape"]), facts["typestr"]
    item = int(typestr[2:])
    strides = facts.get("strides")
    if strides and not _dense(shape, [s // item for s in strides]):
        raise ModelError("a GPU array must be dense and row-major", _USAGE)
    code = next((k for k, v in _DTYPES.items() if v[1].lstrip("<|") == typestr.lstrip("<|=") and k != 2), None)
    if code == 10 and wanted == 2:
        code = 2  # the interface has no bfloat16: its bits come as uint16, as with NumPy
    name = _DTYPES[code][0] if code else typestr
    return _Operand(int(facts["data"][0]), True, code, name, shape, value, facts.get("stream"))


def _operand(value: Any, wanted: int, stream: int | None, writable: bool = False) -> _Operand:
    """GPU arrays stay where they are; everything else becomes a NumPy array."""
    if isinstance(value, np.ndarray):
        return _from_numpy(value, wanted, writable)
    if hasattr(value, "__dlpack_device__"):
        kind = int(value.__dlpack_device__()[0])
        if kind in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
            return _from_dlpack(value, kind in (_CUDA, _CUDA_MANAGED), stream)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value, wanted)
    return _from_numpy(value, wanted, writable)


def _empty(dtype: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.empty(shape, dtype=np.dtype(_DTYPES[dtype][1]))


# ---- running --------------------------------------------------------------------------------------------------------


class Bound:
    """Inputs and outputs that stay the same from run to run: the arrays' memory is read and written in place."""

    def __init__(self, context: Context, inputs: Any, outputs: Any, keep: object, results: dict[str, Any]) -> None:
        self._context, self._inputs, self._outputs, self._keep = context, inputs, outputs, keep
        self.outputs = results

    def run(self, stream: int | None = None) -> dict[str, Any]:
        """Runs with the arrays' present contents; the outputs, the same objects each time. `stream`: as for
        Context.run."""
        self._context._call(self._inputs, self._outputs, stream)  # pyright: ignore[reportPrivateUsage]
        self._context._held = [self._keep, self.outputs]  # pyright: ignore[reportPrivateUsage]
        return self.outputs


class Context:
    """One caller's working memory; make one a thread. Contexts of one model share its kernels and weights."""

    def __init__(self, device: _Device) -> None:
        self._device = device
        self._library = device.library
        self._api = self._library.api
        self._lock = threading.RLock()
        self._handle = self._library.create(self._api.context_create, device.handle)
        self._close = weakref.finalize(self, self._api.context_release, self._handle)
        self._held: list[object] = []  # arrays of the last run: it may still go on, and time_device replays it

    def run(
        self, feed: Mapping[str, Any], *, outputs: Literal["numpy", "device"] = "numpy", stream: int | None = None
    ) -> dict[str, Any]:
        """Runs the model: name -> array in, name -> array out.

        Inputs are NumPy arrays (or what converts to one), or GPU arrays with `__dlpack__` or
        `__cuda_array_interface__`.
        outputs='device' leaves results on the GPU as DeviceArray. `stream`: a CUDA stream handle (0: the legacy default
        stream) on which the run is put; with outputs='device' the call does not wait for it. Without, the call waits.
        ModelError names the input, what was given and what is wanted."""
        with self._lock:
            given = [_Tensor() for _ in self._library.inputs]
            keep = self._fill_inputs(given, feed, stream)
            inputs, results = self._array(given), self._array([_Tensor() for _ in self._library.outputs])
            self._check(self._api.output_shapes(self._handle, inputs, results))
            arrays = self._new_outputs(results, outputs, stream)
            self._call(inputs, results, stream)
            self._held = [*keep, *arrays.values()]
            return arrays

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> Bound:
        """Prepares runs that read and write the given arrays in place; outputs left out become new NumPy arrays."""
        with self._lock:
            given = [_Tensor() for _ in self._library.inputs]
            keep: list[object] = list(self._fill_inputs(given, inputs, None, copy=False))
            made, results = self._array(given), self._array([_Tensor() for _ in self._library.outputs])
            self._check(self._api.output_shapes(self._handle, made, results))
            arrays = self._given_outputs(results, dict(outputs or {}), keep)
            self._check(self._api.bind(self._handle, made, results))
            self._held = [*keep, *arrays.values()]
            return Bound(self, made, results, keep, arrays)

    def time_device(self, count: int) -> list[float]:
        """Device time in microseconds of each of `count` replays of the last run, synchronised each time.

        The replays read and write the last run's arrays again, so on the `host` device its results change with its inputs."""
        out = (ctypes.c_float * max(count, 1))()
        with self._lock:
            self._check(self._api.time_device(self._handle, count, out))
        return [float(x) for x in out[:count]]

    def synchronize(self) -> None:
        """Waits for all runs of this context."""
        with self._lock:
            self._check(self._api.synchronize(self._handle))

    def statistics(self) -> dict[str, int]:
        """Counts of runs, bindings, pointer updates and replays, and how the last run was launched."""
        out = _Statistics()
        self._api.statistics(self._handle, ctypes.byref(out))
        return {name: int(getattr(out, name)) for name, *_ in _Statistics._fields_}

    @staticmethod
    def _array(tensors: list[Any]) -> Any:
        return (_Tensor * max(len(tensors), 1))(*tensors)

    def _check(self, status: int) -> None:
        if status != _OK:
            raise ModelError(_text(self._api.context_message(self._handle)), status)

    def _call(self, inputs: Any, outputs: Any, stream: int | None) -> None:
        options = None if stream is None else ctypes.byref(_RunOptions(_ON_STREAM, 0, stream or None))
        with self._lock:
            self._check(self._api.run(self._handle, inputs, outputs, options))

    def _fill_inputs(
        self, tensors: list[Any], feed: Mapping[str, Any], stream: int | None, copy: bool = True
    ) -> list[object]:
        names = [i.name for i in self._library.inputs]
        unknown = [k for k in feed if k not in names]
        missing = [n for n in names if n not in feed]
        if unknown or missing:
            what = (
                f"no input is named {', '.join(map(repr, unknown))}"
                if unknown
                else f"no value for input {missing[0]!r}"
            )
            wanted = ", ".join(f"{i.name}: {i}" for i in self._library.inputs)
            raise ModelError(f"{what}; the model wants {wanted or 'no inputs'}", _USAGE)
        keep: list[object] = []
        for t, info, dtype in zip(tensors, self._library.inputs, self._library.dtypes_in, strict=True):
            operand = self._operand("input", info, feed[info.name], dtype, stream)
            if not copy and operand.copied:
                raise ModelError(f"input '{info.name}': bind needs a C-contiguous NumPy array or GPU memory", _USAGE)
            self._fill(t, operand)
            keep.append(operand.keep)
        return keep

    def _operand(
        self, what: str, info: TensorInfo, value: Any, dtype: int, stream: int | None, writable: bool = False
    ) -> _Operand:
        try:
            # DLPack's numbers: 1 is the legacy default stream; the maker orders its work before what we do on the
            # stream.
            own = self._api.context_stream(self._handle) if stream is None else stream or 1
            operand = _operand(value, dtype, own, writable)
        except (ModelError, TypeError, ValueError, BufferError, RuntimeError) as e:
            raise ModelError(f"{what} '{info.name}': {e}", _USAGE) from e
        if operand.dtype != dtype:
            shape = ", ".join(map(str, operand.shape))
            raise ModelError(f"{what} '{info.name}': given {operand.dtype_name}[{shape}], wanted {info}", _USAGE)
        if len(operand.shape) > _MAX_RANK:
            raise ModelError(f"{what} '{info.name}': given rank {len(operand.shape)}, wanted {info}", _USAGE)
        if operand.stream is not None and operand.stream != (stream or 1):
            self._device.wait_stream(operand.stream)
        return operand

    @staticmethod
    def _fill(t: Any, operand: _Operand) -> None:
        t.data, t.memory, t.dtype, t.rank = (
            operand.pointer or None,
            int(operand.on_device),
            operand.dtype,
            len(operand.shape),
        )
        for d, extent in enumerate(operand.shape):
            t.shape[d] = extent

    def _new_outputs(self, tensors: Any, kind: str, stream: int | None) -> dict[str, Any]:
        if kind not in ("numpy", "device"):
            raise ModelError(f"outputs={kind!r}: wanted 'numpy' or 'device'", _USAGE)
        if kind == "device" and self._device.name == "host":
            raise ModelError("outputs='device': the model runs on device 'host'; its outputs are NumPy arrays", _USAGE)
        arrays: dict[str, Any] = {}
        for t, info in zip(tensors, self._library.outputs, strict=False):
            shape = tuple(int(t.shape[d]) for d in range(t.rank))
            if kind == "numpy":
                arrays[info.name] = array = _empty(t.dtype, shape)
                t.data, t.memory = array.ctypes.data, 0
            else:
                arrays[info.name] = made = DeviceArray(self._device, t.dtype, shape, stream)
                t.data, t.memory = made.pointer or None, 1
        return arrays

    def _given_outputs(self, tensors: Any, given: dict[str, Any], keep: list[object]) -> dict[str, Any]:
        names = [o.name for o in self._library.outputs]
        unknown = [k for k in given if k not in names]
        if unknown:
            raise ModelError(f"no output is named {unknown[0]!r}; the model has {', '.join(names)}", _USAGE)
        arrays: dict[str, Any] = {}
        for t, info, dtype in zip(tensors, self._library.outputs, self._library.dtypes_out, strict=False):
            if info.name not in given:
                given[info.name] = _empty(dtype, tuple(int(t.shape[d]) for d in range(t.rank)))
            operand = self._operand("output", info, given[info.name], dtype, None, writable=True)
            self._fill(t, operand)
            keep.append(operand.keep)
            arrays[info.name] = given[info.name]
        return arrays


class Model:
    """A model on a device. `run`, `bind` and `time_device` use the model's own context; see Context."""

    def __init__(self, device: _Device) -> None:
        self._device = device
        self.device_name, self.target, self.image = device.device_name, device.target, device.image
        self.device, self.ordinal = device.name, device.ordinal
        self.inputs, self.outputs = device.library.inputs, device.library.outputs
        info = device.library.info()
        self.name, self.metadata = _text(info.name), _text(info.metadata)
        self._context = Context(device)

    def context(self) -> Context:
        """A context of its own, for another thread."""
        return Context(self._device)

    def run(
        self, feed: Mapping[str, Any], *, outputs: Literal["numpy", "device"] = "numpy", stream: int | None = None
    ) -> dict[str, Any]:
        """See Context.run."""
        return self._context.run(feed, outputs=outputs, stream=stream)

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> Bound:
        """See Context.bind."""
        return self._context.bind(inputs, outputs)

    def time_device(self, count: int) -> list[float]:
        """See Context.time_device."""
        return self._context.time_device(count)

    def synchronize(self) -> None:
        """See Context.synchronize."""
        self._context.synchronize()

    def statistics(self) -> dict[str, int]:
        """See Context.statistics."""
        return self._context.statistics()


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a library holds, without a GPU: plain dicts and lists of inputs, outputs, symbols, targets with their
    images, kernels and steps, and the metadata's JSON text. Sizes are bytes; -1 is a size that depends on a symbol."""
    library = _Library(Path(path))
    api, info = library.api, library.info()

    def rows(function: Any, kind: Any, count: int, *first: int) -> list[dict[str, Any]]:
        return [_row(function, kind, library.handle, *first, n) for n in range(count)]

    targets = rows(api.target, _TargetInfo, info.targets)
    for n, t in enumerate(targets):
        t["images"] = rows(api.image, _ImageInfo, t["images"], n)
        t["kernels"] = rows(api.kernel, _KernelInfo, t["kernels"], n)
        t["steps"] = rows(api.step, _StepInfo, t["steps"], n)
    return {
        "name": _text(info.name), "metadata": _text(info.metadata), "format_version": info.format_version,
        "weights_bytes": info.weights_bytes, "inputs": library.inputs, "outputs": library.outputs,
        "symbols": rows(api.symbol, _SymbolInfo, info.symbols), "targets": targets,
    }  # fmt: skip


def _row(function: Any, kind: Any, *place: Any) -> dict[str, Any]:
    row = kind()
    function(*place, ctypes.byref(row))
    out: dict[str, Any] = {}
    for field, *_ in kind._fields_:
        value = getattr(row, field)
        if field == "after":
            value = [int(value[i]) for i in range(row.after_count)]
        elif field in ("cluster", "grid"):
            value = (int(value[0]), int(value[1]), int(value[2]))
        elif isinstance(value, bytes):
            value = _text(value)
        if field not in ("reserved", "data", "after_count"):
            out[field] = value
    return out


def load(path: str | os.PathLike[str] | None = None, device: str | None = None) -> Model:
    """Loads a library; without a path the one beside this file.

    `device`: 'cuda', 'cuda:N' or 'host'. None: the first GPU when there is one that the library's code fits, else
    'host' when the library holds that code. ModelError says what is missing."""
    library = _Library(_beside() if path is None else Path(path))
    if device is not None:
        return Model(_Device(library, device))
    try:
        return Model(_Device(library, "cuda:0"))
    except ModelError as on_gpu:
        if on_gpu.status != _NO_DEVICE:
            raise
        try:
            return Model(_Device(library, "host"))
        except ModelError as on_host:
            if on_host.status != _NO_DEVICE:
                raise
            raise on_gpu from on_host


def _beside() -> Path:
    here = Path(__file__)
    for candidate in (here.with_suffix(".so"), here.with_suffix("")):
        if candidate.is_file():
            return candidate
    raise ModelError(f"no library beside {here}: expected {here.with_suffix('.so')}; name it: load('model.so')", _USAGE)


if __name__ == "__main__":  # python model.py: what the library holds
    facts = describe(_beside())
    for kind in ("inputs", "outputs"):
        for port in facts[kind]:
            print(f"{kind[:-1]} {port.name}: {port}")
    for chosen in facts["targets"]:
        print(f"target {chosen['name']}: {len(chosen['kernels'])} kernels, {len(chosen['steps'])} steps")
