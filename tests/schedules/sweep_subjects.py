"""What the sweep computes: tasks of symbolic sizes for every template and element type, with unfused and with fused ends.

A fused prologue has f(0) != 0, so that it shows where padding or a tail is computed on; a fused epilogue adds a residual, applies an
activation and stores in another order. Plain symbols allow narrow accesses only; symbols that are multiples of 8 keep them wide.
"""

from __future__ import annotations

from taskc.ir.dtype import BF16, F16, F32, F64, I8
from taskc.schedules import matmul_gemv, matmul_mma, matmul_simt
from tests.schedules.sweep_maps import maps, row_subjects
from tests.schedules.sweep_products import attentions, contractions
from tests.schedules.sweep_subject import Subject


def subjects() -> tuple[Subject, ...]:
    """All of them; labels are unique."""
    out: list[Subject] = []
    for dtype in (F16, BF16, F32):
        out += contractions(matmul_mma, dtype)
    out += contractions(matmul_mma, F32, "tf32")
    for dtype in (F32, F64, I8):  # 16-bit operands are left to tensor cores, which every target has
        out += contractions(matmul_simt, dtype)
    for dtype in (F32, F16, BF16, F64):
        out += contractions(matmul_gemv, dtype)
    for dtype in (F16, BF16, F32):
        out += attentions(dtype)
    for dtype in (F32, F16, F64):
        out += row_subjects(dtype)
    for dtype in (F32, F16, I8, F64):
        out += maps(dtype)
    return tuple(out)
