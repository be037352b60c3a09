"""Compiling from a cache: the tuned schedule, stale and failed entries, --locked, and the same bytes everywhere."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models import zoo
from taskc.codegen.nvrtc import nvrtc_version
from taskc.compile import Options, compile_model, read_groups
from taskc.errors import Untuned
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.cache import FILE, Cache, Entry, Measured
from taskc.tune.kernels import BuiltKernel, build_kernels, build_problem, build_scheduled
from taskc.tune.pick import CachedSchedules
from taskc.tune.problem import Problem, make_problem, toolchain
from taskc.tune.tuner import candidates_of
from tests.tune.tune_support import product, sums

TARGET = TARGETS["sm_90a"]
UNITS = [product(source="first"), product(names=("p", "q", "r"), source="twin"), sums(source="second")]


def tuned(p: Problem, place: int = 3) -> Entry:
    """An entry whose winner is not the model's first choice."""
    template, schedule = candidates_of(p, place + 1)[place]
    kernel = build_scheduled(p.unit, p.target, template, schedule)
    best = Measured(template, str(schedule), 3.0)
    return Entry(p.key, p.text, p.target.name, p.target.device.name, p.nodes, best, kernel.symbol.rsplit("_", 1)[1], toolchain(), (best,))


def picked(folder: Path, entries: list[Entry], locked: bool = False, made_by: str = "") -> tuple[list[BuiltKernel], CachedSchedules, list[str]]:
    for e in entries:
        Cache(folder, print).add(e)
    warnings: list[str] = []
    schedules = CachedSchedules(Cache(folder, warnings.append), made_by or toolchain(), warnings.append, locked)
    kernels = build_kernels(UNITS, TARGET, {}, None, schedules)
    schedules.finish(TARGET)
    return kernels, schedules, warnings


@pytest.fixture
def entries() -> list[Entry]:
    return [tuned(make_problem(u, TARGET, {})) for u in (UNITS[0], UNITS[2])]


def test_tuned_schedules_are_used(tmp_path: Path, entries: list[Entry]) -> None:
    kernels, schedules, warnings = picked(tmp_path, entries, locked=True)
    assert not warnings and schedules.used == 2
    assert [str(k.choice.schedule) for k in kernels] == [e.best.schedule for e in (entries[0], entries[0], entries[1]) if e.best]
    assert kernels[0].text == kernels[1].text and [t.name for t in kernels[1].tensors] == ["p", "q", "r"]
    default = build_kernels(UNITS, TARGET, {})
    assert all(a.text != b.text for a, b in zip(kernels, default, strict=True))


def test_stale_by_toolchain(tmp_path: Path, entries: list[Entry]) -> None:
    kernels, schedules, warnings = picked(tmp_path, [replace(entries[0], toolchain="nvrtc 12.4"), entries[1]])
    assert schedules.stale == ["first"] and len(warnings) == 1 and "stale" in warnings[0] and "first" in warnings[0]
    assert str(kernels[0].choice.schedule) in str(entries[0].best), "used all the same"
    with pytest.raises(Untuned, match="1 are stale") as e:
        picked(tmp_path, [], locked=True)
    assert e.value.exit_code == 6 and "taskc tune" in str(e.value)


def test_stale_by_kernel(tmp_path: Path, entries: list[Entry]) -> None:
    _, schedules, warnings = picked(tmp_path, [entries[0], replace(entries[1], kernel="0123456789ab")])
    assert schedules.stale == ["second"] and len(warnings) == 1
    _, schedules, _ = picked(tmp_path / "empty hash", [entries[0], replace(entries[1], kernel="")])
    assert schedules.stale == ["second"], "an empty hash fits no kernel"


def test_missing(tmp_path: Path, entries: list[Entry]) -> None:
    kernels, schedules, warnings = picked(tmp_path, entries[:1])
    assert schedules.missing == ["second"] and not warnings and kernels[2].text == build_kernels(UNITS[2:], TARGET, {})[0].text
    with pytest.raises(Untuned, match=r"1 kernel\(s\) are not in the cache and 0 are stale for sm_90a: second"):
        picked(tmp_path, [], locked=True)


def test_schedule_that_no_longer_exists(tmp_path: Path, entries: list[Entry]) -> None:
    gone = replace(entries[1], best=Measured("elementwise", "3 threads x 5", 1.0))
    assert picked(tmp_path, [entries[0], gone])[1].missing == ["second"]
    other = replace(entries[1], best=Measured("no_such_template", "x", 1.0))
    assert picked(tmp_path, [other])[1].missing == ["second"]


def test_nothing_worked(tmp_path: Path, entries: list[Entry]) -> None:
    """What failed is not chosen; the user is told."""
    p = make_problem(UNITS[0], TARGET, {})
    failed = tuple((t, str(s), "wrong result: 1 of 256 elements") for t, s in candidates_of(p, 5))
    hopeless = replace(entries[0], best=None, kernel="", measured=(), failed=failed)
    kernels, schedules, warnings = picked(tmp_path, [hopeless, entries[1]])
    assert schedules.failed == ["first"] and len(warnings) == 1 and "no schedule that was tried worked" in warnings[0] and "first" in warnings[0]
    chosen = (kernels[0].choice.template.NAME, str(kernels[0].choice.schedule))
    assert chosen not in {f[:2] for f in failed} and build_problem(p).choice != kernels[0].choice
    with pytest.raises(Untuned, match="for 1 nothing worked"):
        picked(tmp_path, [], locked=True)


def test_host_needs_no_tuning(tmp_path: Path) -> None:
    schedules = CachedSchedules(Cache(tmp_path, print), toolchain(), print, locked=True)
    build_kernels(UNITS, TARGETS["host"], {}, None, schedules)
    schedules.finish(TARGETS["host"])
    assert nvrtc_version()[0] >= 13


# ---- a whole model --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model file, cache with a result for each of its problems)."""
    folder = tmp_path_factory.mktemp("tuned")
    path = folder / "gelu.onnx"
    onnx.save(zoo.build("matmul_gelu", m=7, n=11, k=13), path)
    front = read_groups(path, Options(), Observer())
    cache = Cache(folder / "cache", print)
    for u in front.groups:
        cache.add(tuned(make_problem(u, TARGET, front.sizes), 2))
    return path, folder / "cache"


def _bytes(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_another_machine_makes_the_same_bytes(model: tuple[Path, Path], tmp_path: Path) -> None:
    """Another process with another hash seed, and a cache that was copied and merged with `cat`."""
    path, cache = model
    options: dict[str, Any] = {"targets": ("sm_90a",), "locked": True}
    compile_model(path, tmp_path / "here.so", options=Options(cache=cache, **options))
    compile_model(path, tmp_path / "untuned.so", options=Options(targets=("sm_90a",)))
    (tmp_path / "copy").mkdir()
    other = '{"key": "of another model"}\n'
    (tmp_path / "copy" / FILE).write_text(other + (cache / FILE).read_text() * 2)
    program = ("import sys; from pathlib import Path; from taskc.compile import Options, compile_model\n"
               "compile_model(Path(sys.argv[1]), sys.argv[2], options=Options(('sm_90a',), cache=Path(sys.argv[3]), locked=True, warn=print))")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program, str(path), str(tmp_path / "there.so"), str(tmp_path / "copy")], check=True, text=True,
                          capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(root)})
    assert "1 damaged line(s) skipped (line 1)" in done.stdout
    assert _bytes(tmp_path / "here.so") == _bytes(tmp_path / "there.so") != _bytes(tmp_path / "untuned.so")


def test_tune_for(tmp_path: Path) -> None:
    """One model at two sizes of its batch: two entries, each found again; a third size is untuned."""
    info = onnx.helper.make_tensor_value_info
    weights = onnx.numpy_helper.from_array(np.random.default_rng(2).standard_normal((24, 40)).astype(np.float16), "w")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "g",
                                   [info("x", onnx.TensorProto.FLOAT16, ["batch", 24])], [info("y", onnx.TensorProto.FLOAT16, None)], [weights])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    cache = Cache(tmp_path, print)
    for size in (1, 500):
        front = read_groups(tmp_path / "m.onnx", Options(sizes={"batch": size}), Observer())
        (problem,) = (make_problem(u, TARGET, front.sizes) for u in front.groups)
        assert dict(problem.sizes) == {"d_batch": size}
        cache.add(tuned(problem, 2 if size == 1 else 5))
    assert len(cache.entries) == 2
    found: set[str] = set()
    for size in (1, 500):
        options = Options(("sm_90a",), sizes={"batch": size}, cache=tmp_path, locked=True)
        found.add(compile_model(tmp_path / "m.onnx", tmp_path / f"m{size}.so", options=options).targets[0].kernels[0].symbol)
    assert found == {f"{e.best.template}_{e.kernel}" for e in cache.entries.values() if e.best} and len(found) == 2
    with pytest.raises(Untuned, match="product"):
        compile_model(tmp_path / "m.onnx", tmp_path / "m.so", options=Options(("sm_90a",), sizes={"batch": 7}, cache=tmp_path, locked=True))
