"""ModelPlan -> nothing, or a ValueError that names the first inconsistency: a plan that passes can be serialized."""

from __future__ import annotations

from collections.abc import Sequence

from taskc.artifact.plan import (
    Arg,
    Copy,
    Fill,
    InputMemory,
    IntArg,
    Launch,
    ModelPlan,
    OutputMemory,
    Port,
    TargetPlan,
    TensorArg,
    TensorMapArg,
    WeightMemory,
)
from taskc.artifact.records import MAX_RANK
from taskc.ir.expr import Var

_KINDS = ("cubin", "ptx", "host")


def check_plan(plan: ModelPlan) -> None:
    """Raises ValueError where a number points outside its table or a rule of the format is broken."""
    for s in plan.symbols:
        what = f"symbol '{s.name}'"
        _within(what, "input", s.input, len(plan.inputs))
        port = plan.inputs[s.input]
        _within(what, "axis", s.axis, len(port.shape))
        dim = port.shape[s.axis]
        if not (isinstance(dim, Var) and dim.name == s.name):
            raise ValueError(f"{what} is dim {s.axis} of input '{port.name}', but that dim is {dim}")
    if len({s.name for s in plan.symbols}) != len(plan.symbols):
        raise ValueError("two symbols of one name")
    _check_ports("input", plan.inputs)
    _check_ports("output", plan.outputs)
    if not plan.targets:
        raise ValueError("a plan without a target")
    end = 0
    for offset, data in plan.weights:
        if offset < end:
            raise ValueError(f"weights overlap or are not in ascending order at offset {offset}")
        end = offset + memoryview(data).nbytes
    for t in plan.targets:
        _check_target(plan, t)


def _within(what: str, field: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise ValueError(f"{what}: {field} {value} is not below {count}")


def _check_ports(kind: str, ports: Sequence[Port]) -> None:
    if len({p.name for p in ports}) != len(ports):
        raise ValueError(f"two {kind}s of one name")
    for p in ports:
        if len(p.shape) > MAX_RANK:
            raise ValueError(f"{kind} '{p.name}': rank {len(p.shape)} is above {MAX_RANK}")
        if p.dim_names and len(p.dim_names) != len(p.shape):
            raise ValueError(f"{kind} '{p.name}': {len(p.dim_names)} dim names for rank {len(p.shape)}")


def _check_target(plan: ModelPlan, t: TargetPlan) -> None:
    for image in t.images:
        if image.kind not in _KINDS:
            raise ValueError(f"target {t.target}: image kind '{image.kind}' is none of {', '.join(_KINDS)}")
    for x in t.tensors:
        what = f"target {t.target}, tensor '{x.name}'"
        if len(x.shape) > MAX_RANK:
            raise ValueError(f"{what}: rank {len(x.shape)} is above {MAX_RANK}")
        if isinstance(x.memory, InputMemory):
            _within(what, "input", x.memory.number, len(plan.inputs))
        elif isinstance(x.memory, OutputMemory):
            _within(what, "output", x.memory.number, len(plan.outputs))
        elif isinstance(x.memory, WeightMemory) and x.memory.offset % 256:
            raise ValueError(f"{what}: weight offset {x.memory.offset} is not a multiple of 256")
    for number, step in enumerate(t.steps):
        what = f"target {t.target}, step {number} '{step.name}'"
        for n in step.after:
            _within(what, "predecessor", n, number)
        if isinstance(step, Launch):
            _within(what, "kernel", step.kernel, len(t.kernels))
            for a in step.args:
                _check_arg(what, a, len(t.tensors))
        if isinstance(step, Copy):
            _within(what, "source", step.source, len(t.tensors))
        if isinstance(step, (Copy, Fill)):
            _within(what, "target", step.target, len(t.tensors))


def _check_arg(what: str, a: Arg, tensors: int) -> None:
    if isinstance(a, (TensorArg, TensorMapArg)):
        _within(what, "argument's tensor", a.tensor, tensors)
    if isinstance(a, IntArg) and a.bytes not in (4, 8):
        raise ValueError(f"{what}: an integer argument of {a.bytes} bytes")
    if isinstance(a, TensorMapArg):
        rank = len(a.sizes)
        if not 1 <= rank <= 5 or len(a.box) != rank or len(a.strides) != rank - 1:
            raise ValueError(f"{what}: a tensor map of rank 1 to 5 has one box size a dim and one stride less")
