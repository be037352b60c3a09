"""Every operator's examples whose task is one of rows, or can be turned around, on the `host` machine under the best-ranked schedules."""

from __future__ import annotations

from math import isinf
from pathlib import Path
from types import ModuleType

from taskc.ir.dtype import BF16, from_numpy
from taskc.ir.graph import Array, OpError, TensorType
from taskc.ir.task import Task
from taskc.ir.value import Tensor
from taskc.ops.registry import EXAMPLES, Example, load_operators
from taskc.schedules import rows, traits_of, transpose
from taskc.targets import TARGETS
from tests.schedules.task_cases import Case, run

load_operators()
GPU = TARGETS["sm_90a"]


def task_of(example: Example) -> Task | None:
    """The example's task; None for operators without one."""
    kinds = [None if a is None else from_numpy(a.dtype) for a in example.inputs]
    types = [None if a is None or d is None else TensorType(d, a.shape) for a, d in zip(example.inputs, kinds, strict=True)]
    outs = example.op.infer(types)
    if any(t.dtype == BF16 for t in outs):
        return None
    ins = [None if t is None else Tensor(f"in{k}", t.dtype, t.shape) for k, t in enumerate(types)]
    try:
        return example.op.task(ins, [Tensor(f"out{k}", t.dtype, t.shape) for k, t in enumerate(outs)])
    except OpError:
        return None


def cases(template: ModuleType, many: int) -> list[Case]:
    found: list[Case] = []
    for example in (e for make in EXAMPLES for e in make()):
        task = task_of(example)
        if task is None or template.why_not(task, GPU) is not None:
            continue
        feeds: dict[str, Array] = {f"in{k}": a for k, a in enumerate(example.inputs) if a is not None}
        scored = sorted((template.estimate(task, s, GPU, {}), n, s) for n, s in enumerate(template.space(GPU, traits_of(task))))
        label = f"{example.op.name} {example.name}"
        found += [Case(task, s, [({}, feeds)], label=label) for seconds, _, s in scored[:many] if not isinf(seconds)]
    return found


def test_rows(tmp_path: Path) -> None:
    found = cases(rows, 1)
    assert len(found) > 30
    run(rows, found, tmp_path, seeds=(2,))


def test_transpose(tmp_path: Path) -> None:
    found = cases(transpose, 1)
    assert found
    run(transpose, found, tmp_path, seeds=(2,))
