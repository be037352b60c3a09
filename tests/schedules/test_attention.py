"""The attention template on `host`: both bodies, odd sizes, masks, bias, shared heads, wide and narrow heads, fused stores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taskc.ir.dtype import F16, F32, F64
from taskc.ir.expr import Var
from taskc.ir.task import Attention as AttentionTask
from taskc.ir.task import Store
from taskc.ir.value import Hole, Tensor, call
from taskc.ops.attention import Attention
from taskc.schedules import attention
from taskc.schedules.attention import Schedule
from taskc.schedules.template import Traits
from taskc.targets import TARGETS
from tests.schedules.kernel_run import ORDERS, Array, Case, Compiled, check, compile_cases, operator_case

S16, S64, S128 = Schedule(16, 32, 2), Schedule(64, 32, 3), Schedule(128, 64, 2)


def random(seed: int, *shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _inputs(seed: int, shape: tuple[int, ...], dtype: str) -> tuple[Array, Array, Array]:
    """q, key and v for (batch, heads, key heads, m, j, k, n)."""
    b, h, hk, m, j, k, n = shape
    return random(seed, b, h, m, k, dtype=dtype), random(seed + 1, b, hk, j, k, dtype=dtype), random(seed + 2, b, hk, j, n, dtype=dtype)


def _task(shape: tuple[int, ...]) -> AttentionTask:
    b, h, hk, m, j, k, n = shape
    q, key, v = Tensor("q", F16, (b, h, m, k)), Tensor("key", F16, (b, hk, j, k)), Tensor("v", F16, (b, hk, j, n))
    return Attention(k**-0.5).task((q, key, v), (Tensor("y", F16, (b, h, m, n)),))


def _heads_merged() -> Case:
    """q scaled by a fused prologue; the store merges the heads and adds a residual; keys far behind are masked."""
    shape = (2, 2, 2, 37, 37, 16, 16)
    b, h, _, m, _, _, n = shape
    task = _task(shape)
    y, r = Tensor("y", F16, (b, m, h * n)), Tensor("r", F16, (b, m, h * n))
    image, head = task.batch.var // h, task.batch.var % h
    index = (image, task.m.var, head * n + task.n.var)
    q = task.q
    mask = (task.m.var - task.j.var + 1, task.j.var - task.m.var + 20)
    task = replace(task, q=call("mul", q, q), mask=mask, stores=(Store(y, index, call("add", Hole("acc", F32), r.at(*index))),))
    arrays = dict(zip(("q", "key", "v"), _inputs(40, shape, "float16"), strict=True))
    arrays["r"] = random(43, b, m, h * n, dtype="float16")
    squared = (arrays["q"].astype(np.float32) ** 2).astype(np.float16)
    far = np.arange(m)[None, :] - np.arange(m)[:, None] + 20
    near = np.arange(m)[:, None] - np.arange(m)[None, :] + 1
    hidden = np.where((far > 0) & (near > 0), 0.0, -np.inf)
    wide = [a.astype(np.float64) for a in (squared, arrays["key"], arrays["v"])]
    out = Attention(task.scale).reference(*wide, hidden)[0]
    want = out.transpose(0, 2, 1, 3).reshape(b, m, h * n) + arrays["r"]
    return Case("heads merged", attention, S16, task, arrays, {"y": want}, 2e-3)


def _symbolic(schedule: Schedule, m: int, j: int) -> Case:
    rows, keys = Var("rows", 1), Var("keys", 1)
    q, key, v = Tensor("q", F16, (1, 2, rows, 16)), Tensor("key", F16, (1, 2, keys, 16)), Tensor("v", F16, (1, 2, keys, 16))
    op = Attention(0.25, causal=True)
    task = op.task((q, key, v), (Tensor("y", F16, (1, 2, rows, 16)),))
    arrays = dict(zip(("q", "key", "v"), _inputs(50, (1, 2, 2, m, j, 16, 16), "float16"), strict=True))
    want = op.reference(*(a.astype(np.float64) for a in arrays.values()))[0]
    return Case(f"symbolic {m} {j}", attention, schedule, task, arrays, {"y": want}, 2e-3, {"rows": m, "keys": j})


def _cases() -> list[Case]:
    out: list[Case] = []

    def add(schedule: Schedule, label: str, op: Attention, shape: tuple[int, ...], seed: int, bias: Array | None = None) -> None:
        for dtype, tolerance in (("float16", 2e-3), ("float32", 3e-6)):
            if dtype == "float32" and schedule.bm > 64:
                continue
            fitting = replace(schedule, bj=32) if dtype == "float32" else schedule
            more = () if bias is None else (bias.astype(dtype),)
            arrays = (*_inputs(seed, shape, dtype), *more)
            out.append(operator_case(attention, fitting, op, arrays, tolerance, f"{label} {dtype} {schedule}"))

    add(S16, "primes", Attention(0.3), (1, 2, 2, 19, 37, 8, 8), 1)
    add(S64, "causal", Attention(0.25, causal=True), (1, 2, 1, 70, 70, 16, 16), 4)
    add(S128, "causal", Attention(0.25, causal=True), (1, 1, 1, 131, 131, 32, 48), 7)
    add(S16, "one key, one row", Attention(1.0), (3, 1, 1, 1, 1, 5, 3), 10)
    add(S16, "head 80, 96", Attention(0.1), (1, 1, 1, 20, 33, 80, 96), 13)
    add(S16, "more keys than rows", Attention(0.5, causal=True), (1, 1, 1, 5, 100, 16, 16), 16)
    add(S16, "more rows than keys", Attention(0.5, causal=True), (1, 1, 1, 50, 9, 16, 16), 19)
    hidden = random(22, 2, 1, 21, 45)
    hidden[1, 0, 3], hidden[0, 0, :, 7:40] = -np.inf, -np.inf
    add(S16, "bias hides", Attention(0.5), (2, 2, 2, 21, 45, 16, 16), 23, hidden)
    add(S64, "bias a row", Attention(0.5), (1, 2, 2, 33, 40, 16, 16), 26, random(27, 40) * 3)
    large = _inputs(30, (1, 1, 1, 20, 40, 16, 16), "float32")
    out.append(operator_case(attention, S16, Attention(30.0), large, 1e-5, "large scores"))
    broken = tuple(a.copy() for a in large)
    broken[0][0, 0, 3, 2] = np.nan
    broken[2][0, 0, 5, 1] = np.inf
    out.append(operator_case(attention, S16, Attention(0.1), broken, 1e-5, "NaN in a row, infinity in v"))
    out.append(operator_case(attention, S16, Attention(0.1), tuple(a.astype(np.float16) for a in broken), 2e-3, "the same in float16"))
    return [*out, _heads_merged(), _symbolic(S16, 37, 37), _symbolic(S64, 3, 70)]


CASES = _cases()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_cases(CASES, Path(tmp_path_factory.mktemp("attention")))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=[c.label for c in CASES])
def test_case(compiled: Compiled, index: int, order: int) -> None:
    check(compiled, index, CASES[index], order)


def test_masked_tiles_are_skipped(tmp_path: Path) -> None:
    """NaN among the keys that a causal mask hides does no harm: they are never read."""
    shape = (1, 1, 1, 16, 64, 16, 16)
    op = Attention(0.25, causal=True)
    q, key, v = _inputs(60, shape, "float32")
    key[0, 0, 32:], v[0, 0, 32:] = np.nan, np.nan
    case = operator_case(attention, S16, op, (q, key, v), 3e-6, "hidden NaN")
    visible = op.reference(q.astype(np.float64), key[:, :, :16].astype(np.float64), v[:, :, :16].astype(np.float64))[0]
    case = replace(case, expected={"y": visible})
    compiled = compile_cases([case], tmp_path)
    check(compiled, 0, case, 0)


@pytest.mark.parametrize("operand", [F16, F32])
def test_space(operand: object) -> None:
    for target in TARGETS.values():
        found = attention.space(target, Traits(operand, operand))  # type: ignore[arg-type]
        assert 6 <= len(found) <= 200


def test_refusals_name_the_reason() -> None:
    host = TARGETS["host"]
    task = _task((1, 1, 1, 8, 8, 16, 16))
    assert attention.why_not(task, host) is None
    wide = attention.why_not(_task((1, 1, 1, 8, 8, 300, 16)), host)
    assert wide is not None and "300" in wide
    assert "f64" in (attention.why_not(replace(task, operand=F64), host) or "")
    big = _task((1, 1, 1, 8, 8, 256, 256))
    assert attention.why_not(big, host) is None
    assert attention.illegal(Schedule(128, 64, 3), host, big) is not None
    assert attention.estimate(big, Schedule(128, 64, 3), host, {}) == float("inf")
    with pytest.raises(ValueError, match="shared memory"):
        attention.build(big, Schedule(128, 64, 3), host, "k")
