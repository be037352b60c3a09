"""Symbolic dims: dim_param names -> variables with C-identifier names, and the sizes the caller fixes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import TensorShapeProto, TypeProto, ValueInfoProto

from taskc.errors import BadModel, Unsupported, UsageError
from taskc.importer.tensors import element_type
from taskc.ir.expr import Index, Var
from taskc.ir.graph import TensorType

Shape = Sequence["int | None"]


@dataclass
class Symbols:
    """The model's symbols. Names start with `d_`, so that no task's index variable is ever called the same.

    `dims` fixes symbols by the name they have in the file; `shapes` fixes an input's dims (None leaves one as it is)."""

    dims: Mapping[str, int]
    shapes: Mapping[str, Shape]
    most: Mapping[str, int] = field(default_factory=dict[str, int])  # the largest value of a symbol, by our name
    known: dict[str, Index] = field(default_factory=dict[str, Index])
    names: dict[str, str] = field(default_factory=dict[str, str])  # the file's name of each symbol by ours

    def fix_by_shapes(self, inputs: Sequence[ValueInfoProto]) -> None:
        """Takes over the sizes of all named dims before any type is read, so that a symbol is fixed everywhere."""
        by_name = {v.name: v for v in inputs}
        for name, size in self.dims.items():
            self._fix(name, size, f"--dim {name}")
        for name, shape in self.shapes.items():
            if name not in by_name:
                raise UsageError(f"the model has no input {name!r} to give a shape to; it has {', '.join(by_name) or 'none'}")
            declared = by_name[name].type.tensor_type
            if not declared.HasField("shape"):
                continue
            if len(declared.shape.dim) != len(shape):
                raise UsageError(f"input {name!r} has {len(declared.shape.dim)} dims, but the shape given for it has {len(shape)}")
            for given, dim in zip(shape, declared.shape.dim, strict=True):
                if given is None:
                    continue
                if is_named(dim):
                    self._fix(dim.dim_param, given, f"the shape given for {name!r}")
                elif dim.HasField("dim_value") and dim.dim_value > 0 and dim.dim_value != given:
                    raise UsageError(f"input {name!r} has a dim of {dim.dim_value} in the file; it cannot be {given}")

    def check_used(self, declared: set[str]) -> None:
        """UsageError for a `dims` name that no input's dim has."""
        for name in self.dims:
            if name not in declared:
                raise UsageError(f"no input has a dim called {name!r}; the model's dims are {', '.join(sorted(declared)) or 'all fixed'}")

    def _fix(self, name: str, size: int, who: str) -> None:
        if size < 0:
            raise UsageError(f"{who}: a dim of {size} is impossible")
        before = self.known.setdefault(name, size)
        if before != size:
            raise UsageError(f"{who} makes dim {name!r} {size}, but it was already made {before}")

    def named(self, name: str) -> Index:
        """The dim called `name` in the file: its fixed size, or its variable."""
        if name not in self.known:
            self.known[name] = self._new(name)
        return self.known[name]

    def _new(self, name: str) -> Var:
        stem = "d_" + (re.sub(r"[^0-9A-Za-z_]", "_", name) or "dim")
        ours, n = stem, 1
        while ours in self.names:
            ours, n = f"{stem}_{n}", n + 1
        self.names[ours] = name
        return Var(ours, lo=1, hi=self.most.get(ours))

    def input_type(self, info: ValueInfoProto) -> TensorType:
        """The type of a graph input."""
        what = f"input {info.name!r}"
        given = self.shapes.get(info.name)
        tensor = tensor_type(info.type, what)
        dtype = element_type(tensor.elem_type, what)
        if not tensor.HasField("shape"):
            if given is None or any(d is None for d in given):
                raise Unsupported(f"{what} has no shape in the file; give one with --shape {info.name}:AxB")
            return TensorType(dtype, tuple(d for d in given if d is not None))
        shape: list[Index] = []
        for i, dim in enumerate(tensor.shape.dim):
            wanted = given[i] if given is not None else None
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                shape.append(dim.dim_value)
            elif dim.HasField("dim_value") and dim.dim_value < -1:
                raise BadModel(f"{what} has a dim of {dim.dim_value}")
            elif is_named(dim):
                shape.append(self.named(dim.dim_param))
            else:
                shape.append(wanted if wanted is not None else self._new(f"{info.name}_{i}"))
        return TensorType(dtype, tuple(shape))


def is_named(dim: TensorShapeProto.Dimension) -> bool:
    """Whether a dim has a name that means something; exporters also write '?' and '-1'."""
    return dim.HasField("dim_param") and dim.dim_param not in ("", "?", "-1")


def tensor_type(t: TypeProto, what: str) -> TypeProto.Tensor:
    """The tensor inside a type; sequences, maps, optionals and sparse tensors are refused."""
    kind = t.WhichOneof("value")
    if kind == "tensor_type":
        return t.tensor_type
    if kind is None:
        raise BadModel(f"{what} has no type")
    raise Unsupported(f"{what} is a {kind.removesuffix('_type').replace('_', ' ')}; taskc handles tensors only")
