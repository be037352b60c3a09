"""ONNX's element type numbers and type strings <-> DType."""

from __future__ import annotations

from onnx import TensorProto

from taskc.ir.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

FROM_ONNX: dict[int, DType] = {
    TensorProto.FLOAT: F32, TensorProto.UINT8: U8, TensorProto.INT8: I8, TensorProto.UINT16: U16, TensorProto.INT16: I16,
    TensorProto.INT32: I32, TensorProto.INT64: I64, TensorProto.BOOL: BOOL, TensorProto.FLOAT16: F16, TensorProto.DOUBLE: F64,
    TensorProto.UINT32: U32, TensorProto.UINT64: U64, TensorProto.BFLOAT16: BF16,
}

TYPE_STRINGS: dict[DType, str] = {
    F32: "tensor(float)", F64: "tensor(double)", F16: "tensor(float16)", BF16: "tensor(bfloat16)", BOOL: "tensor(bool)",
    I8: "tensor(int8)", I16: "tensor(int16)", I32: "tensor(int32)", I64: "tensor(int64)", U8: "tensor(uint8)",
    U16: "tensor(uint16)", U32: "tensor(uint32)", U64: "tensor(uint64)",
}


def type_name(number: int) -> str | None:
    """ONNX's name of an element type number, or None when the number means nothing."""
    known = {int(v): k for k, v in TensorProto.DataType.items()}
    return None if number == TensorProto.UNDEFINED else known.get(number)
