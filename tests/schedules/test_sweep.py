"""The sweep of schedules on `host`: a pairwise sample in every test run, every schedule on every subject by `make schedules`."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from taskc.ir.dtype import BF16, F16, F32
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Var
from taskc.ir.interpret import evaluate_task
from taskc.ir.task import Contraction, inputs, outputs
from taskc.schedules import TEMPLATES
from taskc.schedules.template import Traits
from taskc.targets import TARGETS, Target
from tests.host_kernels import build_library
from tests.schedules.sweep import Case, all_subjects, data_of, every_schedule, find, groups, legal, pairwise, program_of, space_of, text_of, why_wrong
from tests.schedules.sweep_machines import HostMemory, checked_in_memory, compiled_for, early_stores, run_on_host
from tests.schedules.sweep_products import LONG, long_points

HOST, GPU = TARGETS["host"], TARGETS["sm_90a"]
PARTS = 24  # of a group's cases in `make schedules`
PIECE = 15  # kernels in one library


def failures(cases: list[Case], folder: Path, long: bool = False) -> str:
    wrong: list[str] = []
    for n in range(0, len(cases), PIECE):
        here = folder / str(n)
        here.mkdir()
        some = cases[n : n + PIECE]
        wrong += [f"{c}: {reason}" for c, reason in zip(some, run_on_host(some, here, long), strict=True) if reason is not None]
    return "\n".join(wrong)


# ---- what is swept -------------------------------------------------------------------------------------------------------


def test_no_template_is_missing() -> None:
    """A template that is registered is swept, with every element type that this page names for it and at least 16 and 32 bits."""
    assert {s.template.NAME for s in all_subjects().values()} == {t.NAME for t in TEMPLATES}
    for t in TEMPLATES:
        swept = {(s.operand, s.precision) for s in all_subjects().values() if s.template.NAME == t.NAME}
        halves = set() if t.NAME == "matmul_simt" else {(F16, "native")}  # which it leaves to tensor cores
        assert {(F32, "native")} | halves <= swept
        if t.NAME == "matmul_mma":
            assert {(BF16, "native"), (F32, "tf32")} <= swept
        for operand, precision in swept:
            assert t.space(HOST, Traits(operand, operand, precision)), f"{t.NAME} has no schedule for {operand} {precision}"


@pytest.mark.parametrize("target", [HOST, GPU], ids=lambda t: t.name)
@pytest.mark.parametrize("group", groups())
def test_every_schedule_runs_unfused_and_fused(group: str, target: Target) -> None:
    chosen = every_schedule(group, target)
    space = set(space_of(group, target))
    assert {c.schedule for c in chosen if c.subject.fused} == space
    assert {c.schedule for c in chosen if not c.subject.fused} == space
    assert {c.subject.kind for c in chosen} == {c.subject.kind for c in legal(group, target)}
    assert find(chosen[0].key, target) == chosen[0]


@pytest.mark.parametrize("label", all_subjects())
def test_sizes_include_one_primes_and_one_past_the_tile(label: str) -> None:
    """Sizes of one symbol are multiples of its divisor: there 'one' is the divisor, and 'one past' the next multiple."""
    subject = all_subjects()[label]
    for case in [c for c in legal(subject.group, HOST) if c.subject is subject][::17]:
        points, s = subject.points(case.schedule), case.schedule
        names = {name for name, _ in points[0].sizes}
        assert all({n for n, _ in p.sizes} == names for p in points)
        assert max(v for _, v in points[0].sizes) in (1, 8)
        assert {p.data for p in points} == {"normal", "special"}
        sizes = {v for p in points for _, v in p.sizes}
        assert any(v > 2 and all(v % d for d in range(2, v)) for v in sizes) or names == {"rows"} or label.endswith(("wide", "turned"))
        tile = next((getattr(s, f) for f in ("bm", "block_rows", "i") if hasattr(s, f)), 0) or s.threads * s.elements
        assert any(v == tile + 1 or v == -(-(tile + 1) // 8) * 8 for v in sizes), f"{s}: {sorted(sizes)}"


def test_accesses_are_narrow_and_wide() -> None:
    """Templates whose width follows from facts see symbols with and without a divisor."""
    divisors: dict[str, set[int]] = {}
    for s in all_subjects().values():
        found = {v.div for t in (*inputs(s.task), *outputs(s.task)) for d in t.shape for v in ([d] if isinstance(d, Var) else [])}
        divisors.setdefault(s.group, set()).add(max(found, default=1))
    assert all(found == {1, 8} for group, found in divisors.items() if not group.startswith("attention"))  # there heads are as long as they are
    for kind, width in (("product", 1), ("product wide", 8), ("product turned", 8), ("product wide, fused", 8)):
        case = next(c for c in legal("matmul_mma f16", HOST) if c.subject.kind == kind)
        notes = program_of(case, HOST, "k").notes
        assert all(note.startswith(f"width {width} ") for note in notes.values()) and {"a", "b", "out"} <= notes.keys(), f"{kind}: {notes}"


def test_fused_prologues_are_not_zero_where_their_operand_is() -> None:
    """f(0) != 0: with inputs of zeros, every fused contraction without padding multiplies something."""
    for s in all_subjects().values():
        if s.fused and isinstance(s.task, Contraction):
            point = s.points(next(c.schedule for c in legal(s.group, HOST) if c.subject is s))[0]
            given = {t.name: np.zeros([evaluate(d, dict(point.sizes)) for d in t.shape], t.dtype.numpy) for t in inputs(s.task)}
            given = {name: x + 1 if (name == "b" and "convolution" in s.kind) or (name == "b" and "wide" in s.kind) else x for name, x in given.items()}
            wide = {k: x.astype(np.float32) for k, x in given.items()} if s.operand == BF16 else given
            assert (evaluate_task(s.task, wide, dict(point.sizes), np.float64)["y"] > 0).all(), s.label


@pytest.mark.parametrize("group", groups())
def test_the_sample_covers_every_pair(group: str) -> None:
    """Every two values of the schedule's fields, and each with every kind of subject, that occur together at all."""

    def pairs(cases: list[Case]) -> set[object]:
        found: set[object] = set()
        for c in cases:
            values = [(f.name, getattr(c.schedule, f.name)) for f in fields(c.schedule)] + [("kind", c.subject.kind)]
            found |= set(combinations(values, 2))
        return found

    cases = list(legal(group, HOST))
    sample = pairwise(cases)
    assert pairs(sample) == pairs(cases)
    assert len(sample) <= 130
    assert sample == pairwise(cases)


# ---- the runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", groups())
def test_sample(group: str, tmp_path: Path) -> None:
    assert not failures(pairwise(legal(group, HOST)), tmp_path)


@pytest.mark.schedules
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("group", groups())
def test_all(group: str, part: int, tmp_path: Path) -> None:
    """Every schedule on every subject that it can compute."""
    assert not failures(list(legal(group, HOST)[part::PARTS]), tmp_path)


# ---- float32 accuracy ----------------------------------------------------------------------------------------------------

CHAINED = (
    ("matmul_mma f32 product", "32x32x32 warp 16x16 async6"), ("matmul_mma f32 product wide", "32x32x16 warp 16x16 register2 split4"),
    ("matmul_mma f32 product turned", "16x64x32 warp 16x16 async6 split8"), ("matmul_simt f32 product", "32x32x16 thread 4x2 async3"),
    ("matmul_simt f32 product wide", "16x64x32 thread 2x4 register2 split4"), ("matmul_gemv f32 product", "rows 8 threads 8x32 4x4"),
    ("matmul_gemv f32 product turned", "rows 4 threads 8x16 8x4 split2"),
)  # fmt: skip


@pytest.mark.parametrize("key", CHAINED, ids=lambda k: " ".join(k))
def test_float32_errors_are_at_most_twice_a_chain_s(key: tuple[str, str], tmp_path: Path) -> None:
    """For k from 64 to 16384, random and positive data: the norm of the error against that of sequential multiply-adds."""
    case = find(key, HOST)
    points = long_points(case.subject)
    assert {dict(p.sizes)["depth"] for p in points} == set(LONG) == {64, 512, 1000, 4096, 16384}
    assert all(p.chain for p in points)
    assert not failures([case], tmp_path, long=True)


# ---- the sweep itself ----------------------------------------------------------------------------------------------------


def test_one_block_of_memory_as_on_the_gpu(tmp_path: Path) -> None:
    """What the GPU's path does beside its driver calls, on host; a store outside of the outputs is told of."""
    cases = [pairwise(legal(g, HOST))[3] for g in ("matmul_mma f16", "matmul_gemv bf16", "rows f16", "attention f32", "transpose i8", "elementwise f32")]
    programs = [program_of(c, HOST, f"k{n}") for n, c in enumerate(cases)]
    library = build_library({p.name: text_of(p) for p in programs}, tmp_path)
    memory = HostMemory(library)
    for case, program in zip(cases, programs, strict=True):
        assert checked_in_memory(case, program, memory, long=False) is None, case

    class Careless(HostMemory):
        def launch(self, program, image, offsets, scalars, grid):  # type: ignore[no-untyped-def]
            after = super().launch(program, image, offsets, scalars, grid)
            after[offsets[-1] - 3] = 0
            return after

    wrong = checked_in_memory(cases[0], programs[0], Careless(library), long=False)
    assert wrong is not None and "outside of the outputs" in wrong


def test_what_is_wrong_is_seen() -> None:
    """The comparison itself: a small error, a NaN too many, one too few, a wrong sign of an infinity."""
    case = next(c for c in legal("matmul_mma f32", HOST) if c.subject.kind == "product")
    point = next(p for p in case.subject.points(case.schedule) if p.data == "special")
    want = data_of(case.subject.label, point)[1]["y"]
    good = want.astype(np.float32)
    assert np.isnan(want).any() and np.isinf(want).any() and np.isfinite(want).any()
    assert why_wrong(case, point, {"y": good}) is None
    for where, value in ((np.isfinite(want), np.nan), (np.isnan(want), 1), (np.isposinf(want), -np.inf), (np.isfinite(want), 1e-4)):
        bad = good.copy()
        at = tuple(np.argwhere(where)[0])
        bad[at] = bad[at] + value if value == 1e-4 else value
        assert why_wrong(case, point, {"y": bad}) is not None, value


def test_special_data_reach_every_output() -> None:
    for label, subject in all_subjects().items():
        if "float" in label or not subject.operand.is_float or subject.part:
            continue
        schedule = next(c.schedule for c in legal(subject.group, HOST) if c.subject is subject)
        for point in subject.points(schedule):
            want = data_of(label, point)[1]
            strange = any(not np.isfinite(w).all() for w in want.values() if w.dtype.kind == "f")
            finite = any(np.isfinite(w).any() for w in want.values() if w.dtype.kind == "f")
            assert strange == (point.data == "special") or all(w.dtype.kind != "f" for w in want.values()), f"{label} at {point}"
            assert finite or all(w.dtype.kind != "f" for w in want.values()), f"{label} at {point}: nothing is left to compare"


@pytest.mark.parametrize("group", groups())
def test_nvrtc_takes_a_sample(group: str) -> None:
    """Compiles for a GPU without one: one unfused and one fused case of each group."""
    chosen = every_schedule(group, GPU, seed=3)
    for fused in (False, True):
        case = next(c for c in chosen[len(chosen) // 3 :] if c.subject.fused == fused)
        program, cubin = compiled_for(case, GPU, "k")
        assert cubin[:4] == b"\x7fELF" and program.symbols


def test_stores_before_the_last_block_are_seen(tmp_path: Path) -> None:
    """Kernels without shared sums have nothing to see; the planted fault is in test_planted_faults."""
    shared = find(("matmul_gemv f32 product", "rows 4 threads 8x16 8x4 split2"), HOST)
    alone = find(("matmul_gemv f32 product", "rows 4 threads 8x16 8x4"), HOST)
    programs = [program_of(c, HOST, f"k{n}") for n, c in enumerate((shared, alone))]
    library = build_library({p.name: text_of(p) for p in programs}, tmp_path)
    assert early_stores(shared, programs[0], library) is None
    assert early_stores(alone, programs[1], library) is None
