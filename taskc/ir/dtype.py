"""Element types. `compute` is the type arithmetic runs in: float32 for the 16-bit floats, the type itself otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BF16", "BOOL", "DTYPES", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "DType", "from_numpy"]


@dataclass(frozen=True)
class DType:
    """One element type: its name here (also its C name in kernels), bytes, kind and NumPy name."""

    name: str
    bytes: int
    kind: str  # 'float', 'int', 'uint' or 'bool'
    numpy_name: str  # of the type that holds its values in NumPy; bfloat16 travels as uint16 bits

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def compute(self) -> DType:
        """The type that arithmetic on this one runs in."""
        return F32 if self in (F16, BF16) else self

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return np.dtype(self.numpy_name)

    def __str__(self) -> str:
        return self.name


F16 = DType("f16", 2, "float", "float16")
BF16 = DType("bf16", 2, "float", "uint16")
F32 = DType("f32", 4, "float", "float32")
F64 = DType("f64", 8, "float", "float64")
I8 = DType("i8", 1, "int", "int8")
I16 = DType("i16", 2, "int", "int16")
I32 = DType("i32", 4, "int", "int32")
I64 = DType("i64", 8, "int", "int64")
U8 = DType("u8", 1, "uint", "uint8")
U16 = DType("u16", 2, "uint", "uint16")
U32 = DType("u32", 4, "uint", "uint32")
U64 = DType("u64", 8, "uint", "uint64")
BOOL = DType("b8", 1, "bool", "bool")

DTYPES: dict[str, DType] = {d.name: d for d in (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)}


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The DType with NumPy's `dtype`, or None; uint16 means U16, never bfloat16 bits."""
    found = [d for d in DTYPES.values() if d is not BF16 and d.numpy == dtype]
    return found[0] if found else None
