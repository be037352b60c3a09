"""Recurrent operators, refused with the reason."""

from __future__ import annotations

from taskc.ops.registry import Reading, onnx_reader


@onnx_reader("LSTM")
@onnx_reader("GRU")
@onnx_reader("RNN")
def _refuse(r: Reading) -> str:
    r.unsupported(f"{r.op_type} is recurrent over time; unroll it into matrix products for a fixed length")
