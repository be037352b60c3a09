"""Six kinds of faults, planted one place at a time in the kernels of every template: `host` must show each.

missing barrier, missing wait, wrong stage, wrong width, dropped guard, dropped last-block test. What plants them changes the stitched
program (or, for widths that facts forbid, stitching), so that no text has to be matched. `SILENT` names the places where a fault cannot
show on `host`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from taskc.codegen.host_library import HostFault, HostLibrary
from taskc.fuse import lower, stitch, width
from taskc.ir.expr import Var
from taskc.ir.graph import Array
from taskc.ir.program import Assign, Do, For, If, Pointer, Program, Return, Scope, Stmt, Variable, VectorLoad, VectorStore
from taskc.ir.task import outputs
from taskc.schedules import TEMPLATES, transpose
from taskc.targets import TARGETS
from tests.host_kernels import build_library, run_kernel
from tests.schedules.sweep import Case, data_of, find, program_of, text_of, why_wrong
from tests.schedules.sweep_machines import early_stores

ORDERS = (0, 1, 2, 5)
MOST = 6  # places of one kind that are tried in one kernel
HOST = TARGETS["host"]
CASES = tuple(find(key, HOST) for key in (
    ("matmul_mma f16 product wide", "64x64x32 warp 32x32 async4"),
    ("matmul_mma f16 product wide, fused", "32x32x64 warp 16x16 async3 split4"),
    ("matmul_mma bf16 product batched, fused", "64x32x32 warp 32x16 register2"),
    ("matmul_mma f32 product turned", "64x32x16 warp 32x16 async4 split2"),
    ("matmul_simt f32 product batched, fused", "32x32x16 thread 4x2 async3"),
    ("matmul_simt f32 product wide, fused", "32x32x16 thread 2x2 register2 split4"),
    ("matmul_gemv f32 product batched, fused", "rows 4 threads 4x32 4x4 split2"),
    ("matmul_gemv f16 product turned", "rows 4 threads 8x16 2x8"),
    ("attention f16 bias, causal, fused", "32x32 stages 2"),
    ("attention f32 bias, causal, fused", "16x32 stages 3"),
    ("rows f32 layer norm, at most 256 columns", "columns 128x1 width2 keep1"),
    ("rows f32 softmax of columns, fused", "rows 8x16 width2 stream"),
    ("rows f16 mean, fused", "columns 256x1 width4 stream split8"),
    ("transpose f32 turn wide", "32x64 128 threads async"),
    ("transpose f16 turn, fused", "32x32 128 threads register"),
    ("elementwise f32 mixed, fused", "64 threads x 4"),
    ("elementwise f16 flat wide", "64 threads x 8"),
))  # fmt: skip

# ---- planting ------------------------------------------------------------------------------------------------------------

Change = Callable[[Stmt], "list[Stmt] | None"]  # what stands in a statement's place; None: not a place for the fault


def no_barrier(s: Stmt) -> list[Stmt] | None:
    return [] if isinstance(s, Do) and s.intrinsic == "barrier" else None


def no_wait(s: Stmt) -> list[Stmt] | None:
    return [] if isinstance(s, Do) and s.intrinsic == "cp_async_wait" else None


def late_wait(s: Stmt) -> list[Stmt] | None:
    """One group of copies too many may still be on its way."""
    if not (isinstance(s, Do) and s.intrinsic == "cp_async_wait" and isinstance(s.template[0], int)):
        return None
    return [replace(s, template=(s.template[0] + 1,))]


def wrong_stage(s: Stmt) -> list[Stmt] | None:
    """The next tile goes where this one is read; or the reader stays where it is."""
    if isinstance(s, Variable) and s.var.name == "sn":
        return [replace(s, value=Var("slot", 0))]
    return [] if isinstance(s, Assign) and s.var.name == "slot" else None


def half_width(s: Stmt) -> list[Stmt] | None:
    return [replace(s, width=s.width // 2)] if isinstance(s, (VectorLoad, VectorStore)) and s.width > 1 else None


def unguarded(tensor: str) -> Change:
    """Accesses to a tensor without their guards."""

    def change(s: Stmt) -> list[Stmt] | None:
        if isinstance(s, (VectorLoad, VectorStore)) and s.conditions and tensor in (s.source.name, s.target.name):
            return [replace(s, conditions=())]
        if isinstance(s, Do) and s.intrinsic == "cp_async" and s.args[2] and isinstance(s.args[1], Pointer) and s.args[1].name == tensor:
            return [replace(s, args=(*s.args[:2], ()))]
        return None

    return change


def no_last_block_test(s: Stmt) -> list[Stmt] | None:
    is_test = isinstance(s, If) and len(s.body) == 1 and isinstance(s.body[0], Return) and "last" in str(s.conditions[0])
    return [] if is_test else None


PLACES: dict[str, Change] = {
    "missing barrier": no_barrier, "missing wait": no_wait, "late wait": late_wait, "wrong stage": wrong_stage,
    "half the width": half_width, "dropped last-block test": no_last_block_test,
}  # fmt: skip


def edited(body: Sequence[Stmt], change: Change, here: Callable[[int], bool], seen: list[int]) -> list[Stmt]:
    """The body with the change at its n-th place wherever `here(n)`; `seen` grows by one a place."""
    out: list[Stmt] = []
    for s in body:
        new = change(s)
        if new is not None:
            seen.append(len(seen))
            if here(seen[-1]):
                out += new
                continue
        out.append(replace(s, body=edited(s.body, change, here, seen)) if isinstance(s, (For, If, Scope)) else s)
    return out


def planted(program: Program, change: Change, name: str) -> list[Program]:
    """The program with the change at each of its places alone."""
    places: list[int] = []
    edited(program.body, change, lambda n: False, places)
    return [replace(program, name=f"{name}_{n}", body=edited(program.body, change, lambda k, n=n: k == n, [])) for n in places]


def everywhere(program: Program, change: Change, name: str) -> list[Program]:
    """The program with the change at all of its places, if it has any."""
    places: list[int] = []
    body = edited(program.body, change, lambda n: True, places)
    return [replace(program, name=name, body=body)] if places else []


def too_wide(case: Case, name: str) -> list[Program]:
    """The kernel as it is stitched when every address counts as aligned and no bound inside of a vector."""
    decide = width.contiguous_width
    with pytest.MonkeyPatch.context() as m:
        m.setattr(width, "divisor", lambda e: 0)
        for module in (width, stitch, lower, transpose):
            m.setattr(module, "contiguous_width", lambda address, conditions, limit: decide(address, (), limit))
        return [program_of(case, HOST, name)]


Fault = tuple[str, int]  # (what, at which place)


def faulty(case: Case, sound: Program) -> dict[Fault, Program]:
    """The kernel with each fault at each place."""
    out: dict[Fault, Program] = {}
    for n, (fault, change) in enumerate(PLACES.items()):
        for place, p in enumerate(planted(sound, change, f"p{n}")[:MOST]):
            out[fault, place] = p
    for n, t in enumerate(sound.tensors):
        for p in everywhere(sound, unguarded(t.name), f"g{n}"):
            out[f"dropped guard of {t.name}", 0] = p
    for p in too_wide(case, "w"):
        if text_of(replace(p, name="k")) != text_of(replace(sound, name="k")):
            out["too wide", 0] = p
    return out


def shown(library: HostLibrary, case: Case, program: Program) -> str | None:
    """How a run goes wrong at one of the case's points, or None."""
    for point in case.subject.points(case.schedule)[1:]:
        for order in ORDERS:
            values: dict[str, Array] = dict(data_of(case.subject.label, point)[0])
            try:
                run_kernel(library, program, values, dict(point.sizes), order)
            except (HostFault, AssertionError) as e:
                return str(e).splitlines()[0]
            reason = why_wrong(case, point, {t.name: values[t.name] for t in outputs(case.subject.task)})
            if reason is not None:
                return reason
    return early_stores(case, program, library)


LANDED = "every tile has landed in the loop already"
OWN = "each thread reads what it wrote itself"
MEET = "the blocks that share sums meet at barriers of their own"
UNUSED = "what is loaded outside is not used, and the compiler drops the load"
SILENT: dict[tuple[str, str, int], str] = {
    ("matmul_mma f16 product wide", "missing wait", 1): LANDED, ("matmul_mma f16 product wide", "late wait", 1): LANDED,
    ("matmul_mma f16 product wide, fused", "missing wait", 1): LANDED, ("matmul_mma f16 product wide, fused", "late wait", 1): LANDED,
    ("matmul_mma f16 product wide, fused", "missing barrier", 1): MEET, ("matmul_mma f32 product turned", "missing barrier", 1): MEET,
    ("matmul_mma f16 product wide, fused", "dropped guard of scales", 0): UNUSED,
    ("matmul_mma f16 product wide, fused", "dropped guard of shifts", 0): UNUSED,
    ("matmul_mma f32 product turned", "missing wait", 1): LANDED, ("matmul_mma f32 product turned", "late wait", 1): LANDED,
    ("matmul_simt f32 product batched, fused", "missing wait", 1): LANDED, ("matmul_simt f32 product batched, fused", "late wait", 1): LANDED,
    ("matmul_simt f32 product wide, fused", "dropped guard of shifts", 0): UNUSED,
    ("matmul_gemv f16 product turned", "missing barrier", 1): OWN,
    ("attention f16 bias, causal, fused", "missing wait", 1): LANDED, ("attention f16 bias, causal, fused", "late wait", 1): LANDED,
    ("attention f32 bias, causal, fused", "missing wait", 1): LANDED, ("attention f32 bias, causal, fused", "late wait", 1): LANDED,
    ("attention f32 bias, causal, fused", "missing barrier", 2): OWN,
    ("transpose f16 turn, fused", "missing wait", 0): "nothing is copied asynchronously",
    ("transpose f16 turn, fused", "late wait", 0): "nothing is copied asynchronously",
    ("elementwise f32 mixed, fused", "dropped guard of weights", 0): "the index wraps",
    ("elementwise f32 mixed, fused", "dropped guard of one", 0): "there is one element",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_place_is_shown(case: Case, tmp_path: Path) -> None:
    sound = program_of(case, HOST, "sound")
    kernels = faulty(case, sound)
    named = {fault: replace(p, name=f"k{n}") for n, (fault, p) in enumerate(kernels.items())}
    library = build_library({p.name: text_of(p) for p in (sound, *named.values())}, tmp_path)
    assert shown(library, case, sound) is None
    silent = {fault for fault in named if (case.subject.label, *fault) in SILENT}
    missed = [fault for fault, p in named.items() if fault not in silent and shown(library, case, p) is None]
    assert not missed, f"{case}: faults that change nothing to see: {missed}"


def test_every_kind_is_planted_in_every_template_that_has_its_place() -> None:
    """Waits and stages where there is a ring, the last-block test where blocks share sums, guards and widths everywhere."""
    planted_in: dict[str, set[str]] = {}
    for case in CASES:
        for fault in faulty(case, program_of(case, HOST, "k")):
            if (case.subject.label, *fault) not in SILENT:
                planted_in.setdefault(fault[0].split(" of ")[0], set()).add(case.subject.template.NAME)
    products = {"matmul_mma", "matmul_simt"}
    everything = {t.NAME for t in TEMPLATES}
    assert {c.subject.template.NAME for c in CASES} == everything
    assert planted_in["dropped guard"] == everything
    assert planted_in["too wide"] == everything
    assert planted_in["half the width"] >= everything - {"transpose"}
    assert planted_in["missing barrier"] == everything - {"elementwise"}
    assert planted_in["wrong stage"] == products | {"attention"}
    assert planted_in["missing wait"] == planted_in["late wait"] == products | {"attention", "transpose"}
    assert planted_in["dropped last-block test"] == products | {"matmul_gemv", "rows"}
    assert all(reason for reason in SILENT.values())
