"""The tuning benchmarks' arithmetic: counts and sums of a session, regret of a ranking, the distribution of a space."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import any_size, fusion, quality, spaces, tuning
from bench.any_size import COLD_BYTES, PRODUCTS, buffers, figures, our_calls, product_model, sets_of, turns
from bench.cases import Case
from bench.machines import Host
from bench.quality import convolution, distribution, histogram, problem_of
from bench.quality import measure as measure_space
from bench.regret import Name, match, ranking, regret, shape_of, summary, times_of
from bench.report import unit_of
from bench.side_tune import compiled, tuned
from bench.spaces import MOST, default_name, read_entries, regrets, sample, sizes, summaries
from bench.tuning import Plan
from bench.tuning import measure as measure_case
from taskc.compile import Options, compile_model, read_groups
from taskc.errors import Untuned
from taskc.fuse.units import Unit
from taskc.ir.interpret import evaluate_task
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.cache import FILE, Cache, Entry, Measured
from taskc.tune.problem import Problem, make_problem
from tests.tune.tune_support import FakeCompilers, FakeMeasurer, product, sums

SM_90A = TARGETS["sm_90a"]


def problem(unit: Unit) -> Problem:
    return make_problem(unit, SM_90A, {})


def entry_of(p: Problem, times: dict[Name, float]) -> Entry:
    measured = tuple(Measured(t, s, us) for (t, s), us in times.items())
    return Entry(p.key, p.text, "sm_90a", "H200", p.nodes, min(measured, key=lambda m: m.us), "abc", "nvrtc", measured)


# ---- regret -----------------------------------------------------------------------------------------------------------


def ranked_names(template: str, count: int) -> list[Name]:
    return [(template, f"s{i}") for i in range(count)]


def test_regret_of_a_known_ranking() -> None:
    ranked = ranked_names("a", 20)
    times = {n: 10.0 + i for i, n in enumerate(ranked)} | {ranked[4]: 8.0, ranked[15]: 4.0}
    found = regret(ranked, times)
    assert found is not None
    assert found.loss == {1: pytest.approx(10 / 4 - 1), 10: pytest.approx(8 / 4 - 1)}
    assert (found.best, found.best_us, found.rank, found.covered) == (ranked[15], 4.0, 15, 1.0) and not found.missing


def test_regret_counts_only_templates_that_were_measured() -> None:
    whole, half = ranked_names("a", 10), ranked_names("b", 10)
    times = dict.fromkeys(whole[1:], 5.0) | dict.fromkeys(half[:5], 1.0)  # a's first has no time; of b half is missing
    found = regret([*whole, *half], times)
    assert found is not None and found.templates == ("a",) and found.missing == ("b",)
    assert found.best_us == 5.0 and found.known == 9 and found.covered == pytest.approx(0.9)
    assert regret([*half, *whole], times) is None, "the template that is ranked first was not measured"
    assert regret([*half], times) is None and regret([], times) is None


def test_means_of_losses() -> None:
    assert summary([]) is None
    mean, worst = summary([0.0, 0.21]) or (0, 0)
    assert mean == pytest.approx(math.sqrt(1.21) - 1) and worst == 0.21


def test_matching_entries_to_problems() -> None:
    same, other, strange = problem(product(64, 64, 64)), problem(product(64, 64, 96)), problem(sums())
    merged = problem(product(64, 64, 64, constant=False))  # another key, the same operands
    assert same.key != merged.key and shape_of(same.text, True) == shape_of(merged.text, True)
    assert shape_of(strange.text, True) is None
    entry = entry_of(same, {("matmul_mma", "x"): 1.0})
    assert [how for _, _, how in match([other, same], [entry])] == ["key"]
    assert [(p.key, how) for p, _, how in match([other, merged], [entry])] == [(merged.key, "operands")]
    assert match([other, strange], [entry]) == []
    # A problem with an entry of its own gets no other.
    assert [how for _, _, how in match([same, merged], [entry, entry_of(merged, {("matmul_mma", "x"): 2.0})])] == ["key", "key"]


def test_matching_by_extents() -> None:
    p = problem(product(64, 64, 64))
    entry = Entry(**{**entry_of(p, {("matmul_mma", "x"): 1.0}).__dict__, "key": "gone", "problem": p.text.replace("  a = t0[", "  a = t9[")})
    assert [how for _, _, how in match([p], [entry])] == ["extents"]
    moved = Entry(**{**entry.__dict__, "problem": entry.problem.replace("k<64", "k<65")})
    assert match([p], [moved]) == []


def test_rows_of_regret(tmp_path: Path) -> None:
    p = problem(product(64, 64, 64))
    ranked = ranking(p)
    rng = np.random.default_rng(0)
    times = {n: float(us) for n, us in zip(ranked, rng.uniform(2, 9, len(ranked)), strict=True)}
    entry = entry_of(p, times)
    cache = Cache(tmp_path, print)
    cache.add(entry)
    with (tmp_path / FILE).open("a") as f:
        f.write(json.dumps({**json.loads((tmp_path / FILE).read_text()), "complete": False}) + "\n{damaged\n")
    entries = read_entries([tmp_path / FILE])
    assert len(entries) == 1, "neither the incomplete nor the damaged line counts"
    (row,) = regrets({p.key: (p, "model")}, entries)
    assert row["top1_%"] == pytest.approx(100 * (times[ranked[0]] / min(times.values()) - 1), abs=0.01)
    assert row["top10_%"] == pytest.approx(100 * (min(times[n] for n in ranked[:10]) / min(times.values()) - 1), abs=0.01)
    assert row["known"] == len(ranked) == len(times_of(entry)) and row["by"] == "key" and row["not measured"] == ""
    assert summaries([row])["top 10, all"] == {"count": 1, "geomean_%": row["top10_%"], "worst_%": row["top10_%"]}
    assert summaries([])["top 1, every template measured"] is None


def test_sizes_of_spaces() -> None:
    rows = sizes()
    assert all(r["within"] and 0 < r["schedules"] <= MOST for r in rows)
    assert {"sm_80", "sm_90a", "host"} == {r["target"] for r in rows} and ("matmul_mma", "tf32") in {(r["template"], r["precision"]) for r in rows}


def test_names_and_meanings_of_results() -> None:
    p = problem(sums())
    assert default_name([]) == "spaces.json" and default_name([entry_of(p, {("a", "b"): 1.0})] * 2) == "spaces-h200.json"
    assert unit_of("Title.\n\n  command\n\nWhat it\nmeans.\n\nMore.") == "What it means." and unit_of(None) == ""
    for module in (any_size, fusion, quality, spaces, tuning):
        assert len(unit_of(module.__doc__)) > 100, module.__name__


def test_a_sample_is_the_same_for_any_order() -> None:
    found = {p.key: (p, "m") for p in (problem(product(m, 64, 64)) for m in range(16, 26))}
    turned = dict(reversed(found.items()))
    assert [p.key for p in sample(found, 3, 1)] == [p.key for p in sample(turned, 3, 1)] != [p.key for p in sample(found, 3, 2)]
    assert len(sample(found, 99, 0)) == 10


# ---- a tuning session -------------------------------------------------------------------------------------------------


def request(folder: Path) -> dict[str, Any]:
    source = folder / "model.onnx"
    source.write_bytes(product_model(40).SerializeToString())
    return {"source": str(source), "cache": str(folder / "cache"), "target": "sm_90a", "top": 4, "budget": 60, "jobs": 1, "out": str(folder / "m.so")}


def test_counts_and_sums_of_a_session(tmp_path: Path) -> None:
    """Four candidates: the first takes 10 us, the third hangs, the last is fastest but wrong."""
    times = [(10.0, ""), (9.0, ""), (None, "no result within 10 seconds"), (3.0, "")]
    measurer = FakeMeasurer(lambda n, t: times[n], lambda n, c: "wrong result: all of it" if n == 0 else "")
    asked = request(tmp_path)
    found = tuned(asked, lambda jobs: FakeCompilers(), lambda ordinal: measurer)
    expected = {"problems": 1, "tuned": 1, "compiled": 4, "measured": 3, "most_candidates": 4, "failed": 1, "wrong": 1, "complete": True,
                "launches": 1, "best_sum_us": 9.0, "first_sum_us": 10.0, "without": 0, "hopeless": []}
    assert expected.items() <= found.items(), found
    with pytest.raises(Untuned, match="1 are stale"):
        compiled({**asked, "cache": str(_stale(tmp_path)), "locked": True})
    warm = compiled({**asked, "locked": True})
    assert warm["kernels"] == 1 and set(warm["steps_s"]) >= {"import", "compile"} and (tmp_path / "m.so").exists()


def _stale(folder: Path) -> Path:
    lines = [json.loads(line) | {"toolchain": "nvrtc 9.9"} for line in (folder / "cache" / FILE).read_text().splitlines()]
    (folder / "stale").mkdir()
    (folder / "stale" / FILE).write_text("\n".join(map(json.dumps, lines)))
    return folder / "stale"


def test_launches_without_a_time_are_counted_not_summed(tmp_path: Path) -> None:
    measurer = FakeMeasurer(lambda n, t: (None, "it fails") if n == 0 else (5.0, ""))
    found = tuned(request(tmp_path), lambda jobs: FakeCompilers(), lambda ordinal: measurer)
    assert (found["without"], found["best_sum_us"], found["first_sum_us"]) == (1, 0.0, 0.0)


def test_a_case_that_fails_is_a_row(tmp_path: Path) -> None:
    case = Case("no_such_model", "fp16", str(tmp_path))
    assert measure_case(case, Plan("sm_90a", 1, 1, 1.0, -1e9))["error"] == "no time left"
    assert "no model 'no_such_model'" in measure_case(case, Plan("sm_90a", 1, 1, 1.0, 1e18))["error"]


# ---- one space --------------------------------------------------------------------------------------------------------


def test_distribution() -> None:
    ranked = ranked_names("a", 30)
    times = {n: 40.0 - i for i, n in enumerate(ranked)}
    found = distribution(ranked, times, 10)
    assert (found["best_us"], found["tuned_us"], found["first_us"], found["measured"]) == (11.0, 31.0, 40.0, 30)
    assert [r["us"] for r in found["rows"]] == sorted(times.values())
    assert {r["mark"]: r["rank"] for r in found["rows"] if r["mark"]} == {"best": 29, "tuned": 9, "first": 0}
    assert found["slower"]["1.25x"] == round(2 / 30, 3) and found["slower"]["2x"] == 0  # 39 and 40 are over 38.75
    with pytest.raises(RuntimeError, match="none of the 10"):
        distribution(ranked, {ranked[20]: 1.0}, 10)


def test_histogram_holds_every_schedule_and_mark() -> None:
    ranked = ranked_names("a", 50)
    rng = np.random.default_rng(3)
    rows = distribution(ranked, {n: float(us) for n, us in zip(ranked, rng.uniform(2, 200, 50), strict=True)}, 10)["rows"]
    text = histogram(rows)
    assert sum(int(line.split()[2]) for line in text.splitlines()) == 50
    assert all(word in text for word in ("best", "tuned", "first"))
    assert histogram(rows[:1]).count("\n") == 0


def test_the_whole_space_is_measured(tmp_path: Path) -> None:
    p = problem(sums())
    names = ranking(p)
    entry = measure_space(p, tmp_path, 300.0, lambda jobs: FakeCompilers(), lambda ordinal: FakeMeasurer())
    assert {(m.template, m.schedule) for m in entry.measured} == set(names) and len(names) > 10 and entry.complete
    with pytest.raises(RuntimeError, match="no schedule was measured"):
        measure_space(p, tmp_path / "none", 0.0, lambda jobs: FakeCompilers(), lambda ordinal: FakeMeasurer())


def test_the_convolution_is_one_product() -> None:
    p = problem_of(convolution(), SM_90A)
    assert "m<196 n<256 k<2304 of f16" in (shape_of(p.text, False) or "")
    names = ranking(p)
    assert names[0][0] == "matmul_mma" and len(set(names)) == len(names) > 100


# ---- any size ---------------------------------------------------------------------------------------------------------


def test_figures_of_a_size() -> None:
    assert figures(1000, 20.0, 30.0) == {"us": 20.0, "cublas_us": 30.0, "ratio": 1.5, "TFLOP/s": 100.0, "cublas_TFLOP/s": 66.7}


@pytest.mark.parametrize("n", [1500, 2039, 2048, 5000, 8192])
def test_buffers_exceed_the_cache(n: int) -> None:
    count = sets_of(6 * n * n)
    assert 2 <= count <= PRODUCTS and count * 6 * n * n >= COLD_BYTES
    assert count == 2 or (count - 1) * 6 * n * n < COLD_BYTES


def test_our_calls_compute_every_set_s_product(tmp_path: Path) -> None:
    n = 21
    plan = compile_model(product_model(n), tmp_path / "m.so", "host")
    machine = Host(plan.targets[0])
    sets = buffers(machine, n)
    calls = our_calls(plan, machine, sets)
    assert len(sets) == len(calls) == PRODUCTS
    for call in calls[0] + calls[-1]:
        call()

    def values(memory: object) -> np.ndarray:
        return np.frombuffer(machine.download(memory).tobytes(), np.float16)[: n * n].reshape(n, n).astype(np.float64)

    for s in (sets[0], sets[-1]):
        np.testing.assert_allclose(values(s["y"]), values(s["a"]) @ values(s["b"]), atol=5e-3)
    assert np.isnan(values(sets[1]["y"])).all(), "a set that was not called keeps its poison"


def test_turns_are_whole_rounds() -> None:
    made: list[int] = []
    per_set = [[lambda i=i, j=j: made.append(10 * i + j) for j in range(2)] for i in range(3)]
    calls, products = turns(per_set, 7)
    for c in calls:
        c()
    assert products == 6 and made == [0, 1, 10, 11, 20, 21] * 2
    assert turns(per_set, 1)[1] == 3


def test_product_model_multiplies() -> None:
    (unit,) = read_groups(product_model(5), Options(), Observer()).groups
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((5, 5)).astype(np.float16) for _ in range(2))
    got = evaluate_task(unit.task, {"a": a, "b": b})["y"]
    np.testing.assert_allclose(got.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), atol=5e-3)
