"""acc[b, m, n] = softmax over j (scale * q k' + bias, masked) * v in one pass over the keys: scores never reach memory.

16-bit operands on tensor cores, float32 on CUDA cores. The program itself is in `attention_kernel`, the two ways to take the
products in `attention_products`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskc.ir.dtype import F32, DType
from taskc.ir.program import Program
from taskc.ir.task import Attention, Task
from taskc.schedules.attention_kernel import FlashKernel
from taskc.schedules.attention_products import CORES_THREADS, INSTRUCTION, CudaCores, TensorCores
from taskc.schedules.template import Traits, concrete
from taskc.targets.target import Target

NAME = "attention"
WIDEST_HEAD = 256


@dataclass(frozen=True)
class Schedule:
    """Rows of q a block, keys a step, ring length."""

    bm: int
    bj: int
    stages: int

    def threads(self, operand: DType) -> int:
        return self.bm * 2 if operand in INSTRUCTION else CORES_THREADS

    def __str__(self) -> str:
        return f"{self.bm}x{self.bj} stages {self.stages}"


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every schedule; which of them fit a head size is the estimate's to say."""
    rows = (16, 32, 64, 128) if traits.operand in INSTRUCTION else (16, 32, 64) if traits.operand == F32 else ()
    keys = (32, 64) if traits.operand in INSTRUCTION else (32,)
    return tuple(Schedule(bm, bj, stages) for bm in rows for bj in keys for stages in (2, 3))


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    if not isinstance(task, Attention):
        return "not attention"
    if task.operand not in INSTRUCTION and task.operand != F32:
        return f"no attention kernel for {task.operand}"
    if task.operand in INSTRUCTION and not (target.has("mma_f16") and target.has("ldmatrix")):
        return f"{target.name} has no mma.sync"
    for a in (task.k, task.n):
        if not isinstance(a.extent, int) or a.extent > WIDEST_HEAD:
            return f"head size {a.extent}; at most {WIDEST_HEAD}, known when the model is compiled"
    least = space(target, Traits(task.operand, task.operand))[0]
    return illegal(least, target, task)


def illegal(s: Schedule, target: Target, task: Attention) -> str | None:
    """Why the schedule does not fit the task's head sizes, or None."""
    needed = _kernel(task, s, "size").p.shared_bytes
    if needed > target.architecture.max_shared_bytes:
        return f"{needed} bytes of shared memory"
    if _registers(task, s) > 250:
        return "more results than registers"
    return None


def _registers(task: Attention, s: Schedule) -> int:
    return (_kernel(task, s, "size").nd + s.bj) * s.bm // s.threads(task.operand) + 96


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Waves of blocks, each bound by its products, by the exponentials, by L2 traffic or by latency a step."""
    assert isinstance(task, Attention)
    if illegal(s, target, task) is not None:
        return float("inf")
    m, j, batch = (concrete(a.extent, sizes) for a in (task.m, task.j, task.batch))
    kernel = _kernel(task, s, "size")
    kd, nd = kernel.kd, kernel.nd
    d, threads, size = target.device, s.threads(task.operand), task.operand.bytes
    blocks = -(-m // s.bm) * batch
    resident = max(1, min(d.architecture.shared_bytes_per_sm // (kernel.p.shared_bytes + 1024),
                          d.architecture.max_threads_per_sm // threads, d.architecture.registers_per_sm // (threads * _registers(task, s))))
    waves = -(-blocks // (d.multiprocessors * resident))
    busy = min(resident, -(-blocks // d.multiprocessors))
    steps = -(-j // s.bj) * (0.5 + 0.5 * s.bm / max(m, s.bm) if task.mask else 1.0)
    rate = (d.mma_f16_rate * 0.55 if task.operand in INSTRUCTION else d.fp32_rate * 0.45) / d.multiprocessors
    products = busy * 2 * s.bm * s.bj * (kd + nd) / rate
    exponentials = busy * s.bm * s.bj * 20 / (d.fp32_rate / d.multiprocessors / 2)
    traffic = busy * s.bj * (kd + nd) * size / (d.l2_rate / d.multiprocessors)
    seconds = waves * (steps * max(products + exponentials, traffic, 1.2e-6 / (s.stages - 1)) + 2.5e-6)
    return seconds + d.launch_seconds


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """The anchor alone."""
    assert isinstance(task, Attention)
    reason = illegal(s, target, task)
    if reason is not None:
        raise ValueError(f"schedule {s} for {name}: {reason}")
    return _kernel(task, s, name).build()


def _kernel(task: Attention, s: Schedule, name: str) -> FlashKernel:
    body = TensorCores if task.operand in INSTRUCTION else CudaCores
    return body(task, s.bm, s.bj, s.stages, s.threads(task.operand), name)
