"""The analytic model that ranks schedules of a Rows task: memory traffic, instructions and latency, whichever is the most."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from taskc.fuse.width import contiguous_width, lane, main_load
from taskc.ir.evaluation import substitute
from taskc.ir.expr import Var
from taskc.ir.task import Rows
from taskc.ir.value import loads
from taskc.schedules.rows_schedule import Schedule
from taskc.schedules.template import concrete, stride
from taskc.targets.target import Target

_LATENCY = 7e-7  # seconds of one trip to memory
_MEETING = 1.5e-7  # of one exchange through shared memory


def seconds(task: Rows, s: Schedule, passes: int, target: Target, sizes: Mapping[str, int]) -> float:
    """Predicted seconds of a launch with the symbols at `sizes`; `passes`: over x, for the statistics."""
    rows, columns, d = concrete(task.row.extent, sizes), concrete(task.column.extent, sizes), target.device
    blocks = ceil(rows / s.block_rows) * s.split
    registers = min(255, 40 + s.width * (s.vectors + 2))
    limits = (d.architecture.max_threads_per_sm // s.block_threads, d.architecture.registers_per_sm // (registers * s.block_threads),
              d.architecture.max_blocks_per_sm)
    resident = max(1, min(limits))
    waves = ceil(blocks / (d.multiprocessors * resident))
    active = min(1.0, blocks / d.multiprocessors) or 1.0

    steps = 1 if s.keep else ceil(ceil(columns / s.step) / s.split)
    trips = passes + bool(task.element)
    element, sectors, pieces = access(task, s, sizes)
    stored = sum(st.tensor.dtype.bytes for st in task.element)
    first = rows * columns * (element + stored) * sectors
    again = 0 if s.keep else rows * columns * element * sectors * max(0, trips - 1)
    near = first < d.l2_bytes / 2
    traffic = (first / (d.l2_rate if near else d.memory_rate) + again / (d.l2_rate if near else d.memory_rate)) / active

    vectors = steps * s.vectors
    work = s.width * (6 * len(task.statistics) + 6 * len(task.element)) + 12 * pieces * (1 if s.keep else trips) + 12 * trips
    if sectors > 2:
        work += 36 * pieces  # an access that takes several trips through the load unit
    lanes = d.fp32_rate / 2  # instructions a second of all lanes of the device
    issue = blocks * s.block_threads * vectors * work / lanes / active
    serial = vectors * work * 1.5 * 128 * d.multiprocessors / lanes  # of one thread: few warps do not hide its own latency
    meeting = _MEETING * (1 + (s.block_threads > 32) + (s.threads > 32 or s.along == "rows") + s.block_threads / 512)
    latency = waves * (serial + _LATENCY * (steps * (1 if s.keep else trips) + bool(task.element)) + meeting * len(task.statistics))
    return d.launch_seconds + max(traffic, issue, latency) + 0.2 * (traffic + issue) + (2.5e-6 if s.split > 1 else 0.0)


def access(task: Rows, s: Schedule, sizes: Mapping[str, int]) -> tuple[int, float, int]:
    """(bytes of an element of x, traffic over need, accesses a vector takes) of the load x is made of."""
    found = main_load(task.x)
    if found is None:
        return 0, 1.0, 0
    load, conditions = found
    size = load.tensor.dtype.bytes
    others = sum(x.tensor.dtype.bytes for x, _ in loads(task.x) if x is not load and len(x.tensor.shape) == len(load.tensor.shape))
    moving, still = (task.column, task.row) if s.along == "columns" else (task.row, task.column)
    address = load.tensor.address(load.index)
    wide = {moving.var.name: Var("vector_") * s.width + lane(s.width)}
    limit = min(s.width, 16 // size)
    guards = tuple(substitute(c, wide) for c in (*conditions, moving.extent - moving.var))
    got = max(1, contiguous_width(substitute(address, wide), guards, limit)) if s.width > 1 else 1
    near = stride(address, moving.var.name, sizes) == 1
    sectors = 1.0 if near else min(4.0, 32 / size / 2) if stride(address, still.var.name, sizes) == 1 else 32 / size
    if near and got < s.width:
        sectors = 1.0 + 0.25 * s.width / got  # neighbours are read in turn: caches serve loads, but stores write part of a sector
    return size + others, max(1.0, sectors), s.width // got
