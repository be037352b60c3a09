"""Einsum of one or two operands: labels sort into batch, rows, columns and summed axes of one contraction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taskc.ir.expr import Index, prod
from taskc.ir.graph import Array, Op, OpError, TensorType
from taskc.ir.positions import unravel
from taskc.ir.task import Contraction, Map, Rows, Statistic, Store, Task, axis
from taskc.ir.value import Dim, Hole, Load, Tensor
from taskc.ops.constants import widened
from taskc.ops.matmul import accumulator
from taskc.ops.registry import Example, Reading, examples, onnx_reader


@dataclass(frozen=True)
class Einsum(Op):
    """out[output labels] = sum of the product of the operands over all other labels; one letter a dim, no ellipsis."""

    operands: tuple[str, ...]
    output: str

    def _sizes(self, shapes: Sequence[Sequence[Dim]]) -> dict[str, Dim]:
        sizes: dict[str, Dim] = {}
        for labels, shape in zip(self.operands, shapes, strict=True):
            for label, d in zip(labels, shape, strict=True):
                if sizes.setdefault(label, d) != d:
                    raise OpError(f"label {label} is {sizes[label]} and {d}; sizes of one do not stretch")
        return sizes

    def infer(self, ins: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        given = [t for t in ins if t is not None]
        if len(given) != len(self.operands) or len({t.dtype for t in given}) != 1 or len(given) > 2:
            raise OpError(f"operands {', '.join(map(str, given))} do not fit {self.operands}")
        if any(t.rank != len(labels) for t, labels in zip(given, self.operands, strict=True)):
            raise OpError(f"labels {self.operands} do not fit {', '.join(map(str, given))}")
        sizes = self._sizes([t.shape for t in given])
        if len(set(self.output)) != len(self.output) or any(label not in sizes for label in self.output):
            raise OpError(f"output labels {self.output!r} repeat or are not among the inputs'")
        return (TensorType(given[0].dtype, tuple(sizes[label] for label in self.output)),)

    def reference(self, *ins: Array | None) -> tuple[Array, ...]:
        dtype = np.asarray(ins[0]).dtype
        out = np.einsum(f"{','.join(self.operands)}->{self.output}", *(widened(i) for i in ins))
        return (np.asarray(out).astype(dtype),)

    def task(self, ins: Sequence[Tensor | None], outs: Sequence[Tensor]) -> Task:
        given = [t for t in ins if t is not None]
        sizes = self._sizes([t.shape for t in given])
        return self._two(given[0], given[1], outs[0], sizes) if len(given) == 2 else self._one(given[0], outs[0], sizes)

    def _one(self, x: Tensor, out: Tensor, sizes: dict[str, Dim]) -> Task:
        summed = [label for label in sizes if label not in self.output]
        if not summed:
            axes = tuple(axis(f"i{d}", e) for d, e in enumerate(out.shape))
            index = tuple(a.var for a in axes)
            places = dict(zip(self.output, index, strict=True))
            return Map(axes, (Store(out, index, _load(x, self.operands[0], places)),))
        extents = [sizes[label] for label in summed]
        row, column = axis("row", prod(out.shape)), axis("column", prod(extents))
        at = unravel(row.var, out.shape)
        places = dict(zip((*self.output, *summed), (*at, *unravel(column.var, extents)), strict=True))
        dtype = x.dtype.compute
        return Rows(row, column, _load(x, self.operands[0], places), (Statistic("sum", Hole("x", dtype)),),
                    row_stores=(Store(out, at, Hole("s0", dtype)),))

    def _two(self, a: Tensor, b: Tensor, out: Tensor, sizes: dict[str, Dim]) -> Contraction:
        left, right = self.operands
        groups = {
            "b": [x for x in self.output if x in left and x in right], "m": [x for x in self.output if x not in right],
            "n": [x for x in self.output if x not in left], "k": [x for x in sizes if x not in self.output]}
        axes = {name: axis(name, prod([sizes[x] for x in labels])) for name, labels in groups.items()}
        places: dict[str, Index] = {}
        for name, labels in groups.items():
            places |= dict(zip(labels, unravel(axes[name].var, [sizes[x] for x in labels]), strict=True))
        kind = accumulator(a.dtype)
        return Contraction(axes["b"], axes["m"], axes["n"], axes["k"], _load(a, left, places), _load(b, right, places),
                           a.dtype, kind, (Store(out, tuple(places[x] for x in self.output), Hole("acc", kind)),))


def _load(t: Tensor, labels: str, places: Mapping[str, Index]) -> Load:
    return t.at(*(places[label] for label in labels))


@onnx_reader("Einsum")
def _read_einsum(r: Reading) -> str:
    equation = r.string("equation").replace(" ", "")
    left, arrow, output = equation.partition("->")
    operands = left.split(",")
    if len(operands) != len(r.inputs):
        r.bad(f"equation {equation!r} has {len(operands)} operands, the node has {len(r.inputs)}")
    if len(operands) > 2:
        r.unsupported(f"{len(operands)} operands; split the equation {equation!r} into steps of two")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation]
    dots = [r.type(i).rank - len(o.replace("...", "")) if "..." in o else 0
            for i, o in zip(r.inputs, operands, strict=True)]
    if min(dots) < 0 or max(dots) > len(free):
        r.bad(f"equation {equation!r} does not fit the ranks of the inputs")
    shared = "".join(free[: max(dots)])
    if not arrow:  # every label that occurs once, in alphabetical order, after the ellipsis
        plain = left.replace("...", "").replace(",", "")
        output = "..." * any(dots) + "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
    named = tuple(o.replace("...", shared[len(shared) - n :]) for o, n in zip(operands, dots, strict=True))
    for i, o in zip(r.inputs, named, strict=True):
        if r.type(i).rank != len(o):
            r.bad(f"labels {o!r} of equation {equation!r} do not fit {r.type(i)}")
    return r.add(Einsum(named, output.replace("...", shared)), *r.inputs)


@examples
def _examples() -> list[Example]:
    rng = np.random.default_rng(59)

    def v(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        Example(Einsum(("bhik", "bhjk"), "bhij"), (v(2, 3, 5, 4), v(2, 3, 7, 4)), "scores"),
        Example(Einsum(("bik", "kj"), "jbi"), (v(2, 3, 5), v(5, 4)), "permuted output"),
        Example(Einsum(("i", "j"), "ij"), (v(5), v(3)), "outer product"),
        Example(Einsum(("ij", "ij"), ""), (v(5, 3).astype(np.float16), v(5, 3).astype(np.float16)),
                "to a scalar, float16"),
        Example(Einsum(("ija", "jb"), "ib"), (v(4, 3, 2), v(3, 5)), "a label of one operand is summed"),
        Example(Einsum(("iji",), "ji"), (v(3, 4, 3),), "diagonal"),
        Example(Einsum(("ijk",), "ki"), (v(3, 4, 5),), "sum and transpose"),
    ]
