"""An operator's shape rule at a symbolic size, bound to a number, is its rule at that number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from taskc.ir.dtype import from_numpy
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Var
from taskc.ir.graph import Op, OpError, TensorType
from taskc.ops.registry import EXAMPLES, Example, load_operators

load_operators()


def _concrete(example: Example) -> list[TensorType | None]:
    out: list[TensorType | None] = []
    for array in example.inputs:
        dtype = None if array is None else from_numpy(array.dtype)
        out.append(None if array is None or dtype is None else TensorType(dtype, array.shape))
    return out


def _with_symbol(types: list[TensorType | None], size: int, everywhere: bool, axis: int) -> list[TensorType | None]:
    """The first input's `axis` as a symbol; `everywhere`: each dim of this size in any input."""
    symbol, out = Var("N", lo=1), list[TensorType | None]()
    for k, t in enumerate(types):
        changed = () if t is None else tuple(
            symbol if d == size and (everywhere or (k == 0 and i == axis)) else d for i, d in enumerate(t.shape))
        out.append(None if t is None else TensorType(t.dtype, changed))
    return out


def _pairs() -> Iterator[tuple[Op, list[TensorType | None], list[TensorType | None], int]]:
    for make in EXAMPLES:
        for example in make():
            types = _concrete(example)
            first = types[0] if types else None
            for axis, size in enumerate(first.shape if first is not None else ()):
                if isinstance(size, int) and size > 1:
                    for everywhere in (False, True):
                        yield example.op, types, _with_symbol(types, size, everywhere, axis), size


def test_shapes_at_a_symbol_are_the_shapes_at_its_size() -> None:
    agreed: Counter[str] = Counter()
    for op, types, symbolic, size in _pairs():
        try:
            found = op.infer(symbolic)
        except OpError:  # this operator needs a number there, or two sizes must be tied
            continue
        shapes = [tuple(evaluate(d, {"N": size}) for d in t.shape) for t in found]
        assert shapes == [t.shape for t in op.infer(types)], f"{op} of {symbolic}"
        agreed[type(op).__name__] += 1
    missing = {"Conv", "ConvTranspose", "Pool", "Reduce", "Softmax", "LayerNorm", "GroupNorm", "Resize", "Attention",
               "Einsum", "ArgExtreme", "Quantize", "LocalResponseNorm"} - set(agreed)
    assert not missing, f"no symbolic size was accepted by {missing}"
