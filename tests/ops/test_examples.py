"""Every registered example: infer, NumPy reference and task agree. A new operator is tested by its examples alone."""

from __future__ import annotations

import numpy as np
import pytest

from taskc.ir.dtype import BF16, from_numpy
from taskc.ir.graph import Array, OpError, TensorType
from taskc.ir.interpret import evaluate_task
from taskc.ir.value import Tensor
from taskc.ops.registry import EXAMPLES, Example, load_operators

load_operators()
_ALL = [e for make in EXAMPLES for e in make()]


def _type(a: Array | None) -> TensorType | None:
    if a is None:
        return None
    dtype = from_numpy(a.dtype)
    assert dtype is not None
    return TensorType(dtype, a.shape)


@pytest.mark.parametrize("example", _ALL, ids=[f"{e.op.name}-{e.name}" for e in _ALL])
def test_infer_reference_and_task_agree(example: Example) -> None:
    types = [_type(a) for a in example.inputs]
    inferred = example.op.infer(types)
    expected = example.op.reference(*example.inputs)
    assert len(inferred) == len(expected)
    for t, e in zip(inferred, expected, strict=True):
        assert t.shape == e.shape
        assert np.dtype(t.dtype.compute.numpy if t.dtype == BF16 else t.dtype.numpy) == e.dtype or t.dtype.compute.numpy == e.dtype
    ins = [None if t is None else Tensor(f"in{k}", t.dtype, t.shape) for k, t in enumerate(types)]
    outs = [Tensor(f"out{k}", t.dtype, t.shape) for k, t in enumerate(inferred)]
    try:
        task = example.op.task(ins, outs)
    except OpError as error:
        pytest.skip(f"no task: {error}")
    feeds = {f"in{k}": a for k, a in enumerate(example.inputs) if a is not None}
    found = evaluate_task(task, feeds)
    wide = [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a for a in example.inputs]
    exact = example.op.reference(*wide)
    for k, (t, e, x) in enumerate(zip(inferred, expected, exact, strict=True)):
        if t.dtype == BF16 or f"out{k}" not in found:
            continue
        if not t.dtype.is_float:
            np.testing.assert_array_equal(found[f"out{k}"], e)
            continue
        _close(found[f"out{k}"], e, x)


def _close(found: Array, reference: Array, exact: Array) -> None:
    """Within a few roundings of the operator's type of the double-precision result, at the size of its largest element."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact) & np.isfinite(reference)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(reference))
    np.testing.assert_array_equal(found[~finite], reference[~finite])
    unit = np.finfo(found.dtype).eps
    scale = np.abs(exact[finite]).max(initial=0.0)
    np.testing.assert_allclose(found[finite].astype(np.float64), exact[finite].astype(np.float64), rtol=8 * unit, atol=32 * unit * scale)
