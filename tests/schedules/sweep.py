"""Schedules x subjects -> cases; which of them to run; their data; and whether results are what float64 says, without NaN too many or too few.

Two sets of cases. `every_schedule`: each schedule of each space once with unfused and once with fused ends, on subjects that a seed
picks. `pairwise`: few cases in which every two values of a schedule's fields, and each with every subject, occur together.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from itertools import combinations
from typing import Any
from zlib import crc32

import numpy as np

from taskc.codegen.emit import emit_kernel
from taskc.fuse.stitch import stitch
from taskc.ir.convert import bf16_bits, values_of
from taskc.ir.dtype import BF16, F16, F32, F64, DType
from taskc.ir.evaluation import evaluate
from taskc.ir.graph import Array
from taskc.ir.interpret import evaluate_task
from taskc.ir.program import Program
from taskc.ir.task import inputs, outputs
from taskc.ir.value import Tensor
from taskc.ir.verify import verify
from taskc.schedules.template import traits_of
from taskc.targets import Target
from tests.schedules.sweep_products import long_points
from tests.schedules.sweep_subject import Point, Subject
from tests.schedules.sweep_subjects import subjects

TOLERANCE = {F16: 2e-3, BF16: 1.6e-2, F32: 4e-6, F64: 1e-13}  # of the largest value: a rounding, and sums in another order
CHAIN = 2.0  # a float32 product's error may be this many times that of a sequential chain


@dataclass(frozen=True)
class Case:
    """A subject under a schedule. `key` names it between processes: (the subject's label, the schedule's text)."""

    subject: Subject
    schedule: Any

    @property
    def key(self) -> tuple[str, str]:
        return self.subject.label, str(self.schedule)

    def __str__(self) -> str:
        return f"{self.subject.label} | {self.schedule}"


@cache
def all_subjects() -> Mapping[str, Subject]:
    found = {s.label: s for s in subjects()}
    assert len(found) == len(subjects()), "two subjects have one label"
    return found


@cache
def space_of(group: str, target: Target) -> tuple[Any, ...]:
    """The schedule space of a template and an element type."""
    first = next(s for s in all_subjects().values() if s.group == group)
    return first.template.space(target, traits_of(first.task))


@cache
def groups() -> tuple[str, ...]:
    return tuple(dict.fromkeys(s.group for s in all_subjects().values()))


@cache
def legal(group: str, target: Target) -> tuple[Case, ...]:
    """Every schedule of the space with every subject that it can compute."""
    some = [s for s in all_subjects().values() if s.group == group]
    return tuple(Case(s, x) for x in space_of(group, target) for s in some if s.why_not(x, target) is None)


def find(key: tuple[str, str], target: Target) -> Case:
    subject = all_subjects()[key[0]]
    return Case(subject, next(x for x in space_of(subject.group, target) if str(x) == key[1]))


def every_schedule(group: str, target: Target, seed: int = 0) -> list[Case]:
    """Each schedule with one unfused and one fused subject, if it can compute any such."""
    out: list[Case] = []
    by_schedule: dict[Any, list[Case]] = {}
    for c in legal(group, target):
        by_schedule.setdefault(c.schedule, []).append(c)
    for schedule, some in by_schedule.items():
        rng = random.Random(f"{seed} {group} {schedule}")
        for fused in (False, True):
            found = [c for c in some if c.subject.fused == fused]
            out += [rng.choice(found)] if found else []
    return out


def _values(c: Case) -> tuple[tuple[str, Any], ...]:
    chosen = [(f.name, getattr(c.schedule, f.name)) for f in fields(c.schedule)]
    return (*chosen, ("subject", c.subject.kind))


def pairwise(cases: Sequence[Case], seed: int = 0) -> list[Case]:
    """Greedily, cases with every pair of values that any case has. Gains only fall, so the queue's best is looked at again first."""
    order = list(cases)
    random.Random(seed).shuffle(order)
    pairs = [frozenset(combinations(_values(c), 2)) for c in order]
    left = set[Any]().union(*pairs)
    queue = [(-len(p), n) for n, p in enumerate(pairs)]
    heapq.heapify(queue)
    out: list[Case] = []
    while left:
        _, n = heapq.heappop(queue)
        gain = len(pairs[n] & left)
        if queue and gain < -queue[0][0]:
            heapq.heappush(queue, (-gain, n))
            continue
        left -= pairs[n]
        out.append(order[n])
    return out


# ---- kernels, data, meaning ----------------------------------------------------------------------------------------------


def program_of(case: Case, target: Target, name: str) -> Program:
    """The stitched and verified kernel of a case."""
    task = case.subject.task
    program = stitch(case.subject.template.build(task, case.schedule, target, name), task)
    verify(program)
    return program


def text_of(program: Program) -> str:
    return emit_kernel(program)


def points_of(case: Case, long: bool) -> tuple[Point, ...]:
    """Where a case runs. long: also where float32 products are compared with a chain, which takes a host some time."""
    return (*case.subject.points(case.schedule), *(long_points(case.subject) if long else ()))


def _random(t: Tensor, point: Point, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    shape = tuple(evaluate(d, dict(point.sizes)) for d in t.shape)
    if not t.dtype.is_float:
        return rng.integers(-9, 10, shape).astype(t.dtype.numpy)
    x = rng.standard_normal(shape)
    return np.abs(x) if point.data == "positive" else x


def _plant(x: Array, rank: int, seed: int) -> None:
    """NaN, both infinities and the two of them in one row, in a few places of an operand."""
    rng = np.random.default_rng(seed)
    if x.dtype.kind != "f" or x.ndim < 2 or x.size < 2:
        return
    flat = x.reshape(-1)
    where = rng.choice(x.size, min(4, max(1, x.size // 16)), replace=False)
    flat[where] = np.array([np.nan, np.inf, -np.inf, np.inf])[: len(where)] if rank == 0 else np.inf


@lru_cache(maxsize=64)
def data_of(label: str, point: Point) -> tuple[dict[str, Array], dict[str, Array]]:
    """(stored inputs, float64 outputs) of a subject at a point, by tensor name. Read-only."""
    task = all_subjects()[label].task
    given: dict[str, Array] = {}
    for rank, t in enumerate(inputs(task)):
        seed = crc32(f"{label} {t.name} {point}".encode())
        x = _random(t, point, seed)
        if point.data == "special":
            _plant(x, rank, seed)
        given[t.name] = bf16_bits(x.astype(np.float32)) if t.dtype == BF16 else x.astype(t.dtype.numpy)
    with np.errstate(all="ignore"):
        return given, evaluate_task(task, given, dict(point.sizes), np.float64)


# ---- checks --------------------------------------------------------------------------------------------------------------


def why_wrong(case: Case, point: Point, got: Mapping[str, Array]) -> str | None:
    """What is wrong with a launch's outputs, or None.

    NaN and infinities must be where float64 has them, without exception: sums of them do not depend on their order, and a split float32
    carries an infinity in one part only. (Splitting does differ for an infinity times a number below 2^-126, whose big part may be
    zero; the data have none.)"""
    want = data_of(case.subject.label, point)[1]
    for t in outputs(case.subject.task):
        if point.chain:
            reason = _worse_than_chain(got[t.name], want[t.name], case, point)
        else:
            reason = _differs(got[t.name], want[t.name], t.dtype, case.subject)
        if reason is not None:
            return f"{t.name} at {point}: {reason}"
    return None


def _differs(got: Array, want: Array, dtype: DType, subject: Subject) -> str | None:
    if not dtype.is_float:
        wrong = int(np.sum(got != want))
        return f"{wrong} of {want.size} integers differ" if wrong else None
    found = np.asarray(values_of(got, dtype), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        want = want.astype(np.float16).astype(np.float64) if dtype == F16 else want
        strange = ~np.isfinite(want)
        same = (np.isnan(found) & np.isnan(want)) | (found == want)
        odd = int(np.sum((strange | ~np.isfinite(found)) & ~same))
        if odd:
            return f"{odd} of {want.size} values are NaN or infinite where float64's are not, or the other way round"
        error = float(np.max(np.abs(np.where(strange, 0, found) - np.where(strange, 0, want)), initial=0))
    scale = max(float(np.max(np.abs(np.where(strange, 0, want)), initial=0)), subject.floor)
    allowed = (subject.tolerance or TOLERANCE[dtype]) * scale
    return f"an error of {error:.3g}, {allowed:.3g} is allowed" if not error <= allowed else None


@lru_cache(maxsize=512)
def _chain_error(label: str, point: Point) -> float:
    """The error of sequential float32 multiply-adds, relative to float64 in the Euclidean norm."""
    given, want = data_of(label, point)
    sizes = dict(point.sizes)
    a, b = given["a"], given["b"]
    a, b = (a if a.shape[1] == sizes["depth"] else a.T), (b if b.shape[0] == sizes["depth"] else b.T)
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(sizes["depth"]):
        out = (a[:, k, None].astype(np.float64) * b[None, k].astype(np.float64) + out).astype(np.float32)
    return _norm(out, want["y"])


def _norm(got: Array, want: Array) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


def _worse_than_chain(got: Array, want: Array, case: Case, point: Point) -> str | None:
    error, chain = _norm(got, want), _chain_error(case.subject.label, point)
    return f"an error of {error:.3g}, {error / chain:.2f} times a sequential chain's" if not error <= CHAIN * chain else None
