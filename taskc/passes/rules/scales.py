"""Constant factors after a convolution or matrix product go into its weights; additions before a factor go behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskc.ir.graph import Array, Node
from taskc.ops.conv import Conv
from taskc.ops.elementwise import Elementwise
from taskc.ops.matmul import MatMul
from taskc.passes.editor import Editor
from taskc.passes.rule import Rule
from taskc.passes.rules.operands import WithConstant, along_axis, is_ordinary, with_constant


@dataclass(frozen=True)
class _Scaled:
    factor: WithConstant
    product: Node


def _vector(e: Editor, product: Node, constant: str) -> Array | None:
    """The factor as a vector along the product's output channels, or None."""
    values = e.numbers(constant)
    rank = e.type(product.outputs[0]).rank
    axis = 1 if isinstance(product.op, Conv) and not product.op.channels_last else rank - 1
    return None if values is None else along_axis(values, rank, axis)


def _product(e: Editor, value: str) -> Node | None:
    return e.made_by(value, Conv) or e.made_by(value, MatMul)


class FoldScaleIntoWeights(Rule[_Scaled]):
    """conv(x, w) * s -> conv(x, w * s); matmul(x, w) * s -> matmul(x, w * s), for a number s an output channel"""

    def before(self, e: Editor, n: Node) -> _Scaled | None:
        factor = with_constant(e, n, "mul")
        product = _product(e, factor.value) if factor else None
        return _Scaled(factor, product) if factor and product else None

    def why_not(self, e: Editor, found: _Scaled) -> str | None:
        weight, s = e.numbers(found.product.inputs[1]), _vector(e, found.product, found.factor.constant)
        if not e.once(found.factor.value):
            return "the product is used elsewhere"
        if weight is None:
            return "the weight is not constant"
        if e.type(found.product.inputs[1]).dtype.bytes < 4:
            return "the weights have 16 bits: scaled, they would be rounded a second time"
        if e.type(found.factor.node.outputs[0]) != e.type(found.factor.value) or s is None:
            return "the factor is not one number an output channel"
        return None if is_ordinary(s) else "the factor is not finite, or vanishes"

    def after(self, e: Editor, found: _Scaled) -> str:
        op, (x, w) = found.product.op, found.product.inputs
        weight, s = e.numbers(w), _vector(e, found.product, found.factor.constant)
        assert weight is not None and s is not None
        if isinstance(op, Conv) and not op.channels_last:
            s = s.reshape(-1, *(1,) * (weight.ndim - 1))
        elif isinstance(op, MatMul) and op.transpose_b:
            s = s.reshape(-1, 1)
        return e.add(op, x, e.constant(weight * s, e.type(w).dtype))


@dataclass(frozen=True)
class _ScaledSum:
    factor: WithConstant
    addend: WithConstant


class ScaleBeforeSum(Rule[_ScaledSum]):
    """(product + b) * s -> product * s + b * s, so that s can go into the product's weights"""

    def before(self, e: Editor, n: Node) -> _ScaledSum | None:
        factor = with_constant(e, n, "mul")
        addend = with_constant(e, e.node(factor.value), "add") if factor else None
        if factor is None or addend is None or _product(e, addend.value) is None:
            return None
        return _ScaledSum(factor, addend)

    def why_not(self, e: Editor, found: _ScaledSum) -> str | None:
        product = _product(e, found.addend.value)
        assert product is not None
        if not (e.once(found.factor.value) and e.once(found.addend.value)):
            return "a value in between is used elsewhere"
        if e.numbers(product.inputs[1]) is None:
            return "the weight is not constant"
        s, b = _vector(e, product, found.factor.constant), _vector(e, product, found.addend.constant)
        if s is None or b is None or e.type(found.factor.node.outputs[0]) != e.type(found.addend.value):
            return "the factor or addend is not one number an output channel"
        return None if is_ordinary(s) else "the factor is not finite, or vanishes"

    def after(self, e: Editor, found: _ScaledSum) -> str:
        s, b = e.numbers(found.factor.constant), e.numbers(found.addend.constant)
        assert s is not None and b is not None
        scaled = e.add(Elementwise("mul"), found.addend.value, found.factor.constant)
        return e.add(Elementwise("add"), scaled, e.constant(np.asarray(b * s), e.type(found.factor.constant).dtype))
