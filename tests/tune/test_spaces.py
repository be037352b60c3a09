"""Spaces are small, legal and independent of any size; schedules have texts of their own, because caches name them so."""

from __future__ import annotations

import pytest

from taskc.explain import spaces
from taskc.ir.dtype import BF16, F16, F32, F64, DType
from taskc.schedules import TEMPLATES, Template, Traits
from taskc.targets import TARGETS

MOST = 200


@pytest.mark.parametrize("precision", ["native", "tf32"])
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.NAME)
def test_space(template: Template, target: str, dtype: DType, precision: str) -> None:
    found = template.space(TARGETS[target], Traits(dtype, dtype, precision))
    assert len(found) <= MOST
    assert len({str(s) for s in found}) == len(set(found)) == len(found), "two schedules have one text"
    assert found or template.NAME in ("matmul_mma", "attention"), "every type has a schedule"


def test_listing() -> None:
    listed = {(f.template, f.target, f.operand): f.schedules for f in spaces()}
    assert {t for t, _, _ in listed} == {t.NAME for t in TEMPLATES} and {t for _, t, _ in listed} == set(TARGETS)
    assert all(0 < len(s) <= MOST for s in listed.values())
    assert {("matmul_mma", "sm_90a", "f16"), ("matmul_mma", "sm_90a", "f32")} <= set(listed)
