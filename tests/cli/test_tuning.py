"""`taskc tune`, `taskc cache`, `compile --cache`, `explain` and `ops --schedules` as a user meets them, without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from models import zoo
from taskc.compile import Options, read_groups
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.cache import FILE, Cache
from taskc.tune.problem import make_problem
from taskc.tune.tuner import TuneOptions, TuneResult, tune
from tests.cli.cli_support import Taskc
from tests.tune.test_launches import towers_model
from tests.tune.tune_support import FakeCompilers, FakeMeasurer

USAGE, UNTUNED, NO_DEVICE = 2, 6, 8


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a result for every kernel of the model, and a failed candidate in each."""
    folder = tmp_path_factory.mktemp("cache")
    result = _tune(model, folder, FakeMeasurer(lambda n, t: (9.0 - n, "") if n else (None, "no result within 10 seconds")))
    assert result.tuned == result.problems > 0
    return folder


def _tune(model: Path, folder: Path, measurer: FakeMeasurer) -> TuneResult:
    front = read_groups(model, Options(), Observer())
    return tune(front.groups, TARGETS["sm_90a"], front.sizes, Cache(folder, print), TuneOptions(top=4), compilers=lambda jobs: FakeCompilers(),
                measurer=lambda ordinal: measurer)


# ---- tune -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [(), ("--target", "native"), ("--target", "sm_90a"), ("--target", "sm_80,host")])
def test_tuning_needs_a_gpu(taskc: Taskc, model: Path, tmp_path: Path, target: tuple[str, ...]) -> None:
    ended = taskc("tune", model, "--cache", tmp_path / "c", *target)
    ended.failed(NO_DEVICE, "tuning measures kernels on a GPU, and there is none here: ", "Run `taskc tune` on a machine with the GPU")
    assert not (tmp_path / "c").exists()


def test_tuning_is_for_gpus(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    taskc("tune", model, "--cache", tmp_path, "--target", "host").failed(USAGE, "--target host", "tuning is for GPUs")


@pytest.mark.parametrize(("arguments", "words"), [
    (("--budget", "soon"), ("--budget soon", "2m")), (("--top", "0"), ("--top",)), (("--again", "--resume"), ("--again", "--resume")),
    (("--target", "sm_12"), ("sm_12",)), (("--tune-for", "batch"), ("--tune-for batch", "NAME=SIZE")),
])  # fmt: skip
def test_wrong_option(taskc: Taskc, model: Path, tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    taskc("tune", model, "--cache", tmp_path, *arguments).failed(USAGE, *words)


def test_no_cache(taskc: Taskc, model: Path) -> None:
    taskc("tune", model).failed(USAGE, "--cache")
    taskc("compile", model, "--locked").failed(USAGE, "--locked needs --cache")
    taskc("compile", model, "--budget", "9s").failed(USAGE, "--budget needs --cache")


SESSION = """
import sys
from functools import partial
from taskc.gpus import Gpu, Machine
from taskc_cli import main, tune
from tests.tune.tune_support import FakeCompilers, FakeMeasurer

def times(n, trial):
    if n == int(sys.argv[1]):
        raise KeyboardInterrupt
    return 9.0 - n, ""

tune.find_machine = lambda: Machine((13, 0), (Gpu(0, "a GPU", (9, 0)),))
tune.require_pycuda = lambda: None
tune.tune = partial(tune.tune, compilers=lambda jobs: FakeCompilers(), measurer=lambda ordinal: FakeMeasurer(times))
main.main(sys.argv[2:])
"""


@pytest.mark.parametrize(("interrupt", "code", "words"), [
    (99, 0, ("sm_90a: 1 kernels, 0 cached, 1 tuned, 4 candidates compiled, 4 measured, 0 failed",)),
    (2, 130, ("1 tuned, 3 candidates compiled, 2 measured", "interrupted; what was measured is kept")),
    (0, 130, ("0 tuned", "interrupted with 1 kernel(s) untuned")),
])  # fmt: skip
def test_a_session(environment: Mapping[str, str], model: Path, tmp_path: Path, interrupt: int, code: int, words: tuple[str, ...]) -> None:
    """The whole command, with stand-ins for the GPU and the compiler; an interrupt ends it with 130 and a valid cache."""
    arguments = [str(interrupt), "tune", str(model), "--cache", str(tmp_path), "--top", "4"]
    done = subprocess.run([sys.executable, "-c", SESSION, *arguments], capture_output=True, text=True, check=False, env=dict(environment))
    assert done.returncode == code, done.stderr
    assert all(w in done.stdout for w in words) and "Traceback" not in done.stderr, (done.stdout, done.stderr)
    entries = Cache(tmp_path, print).entries.values()
    assert [len(e.measured) for e in entries] == ([min(interrupt, 4)] if interrupt else [])
    assert not interrupt or "taskc: kernel 1 of 1: node_product" in done.stderr


# ---- compile --------------------------------------------------------------------------------------------------------


def test_locked(taskc: Taskc, model: Path, tuned: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.so"
    taskc("compile", model, "-o", out, "--cache", tmp_path / "empty", "--locked").failed(UNTUNED, "not in the cache", "node_product", "taskc tune")
    assert not out.exists()
    taskc("compile", model, "-o", out, "--cache", tuned, "--locked").succeeded(str(out))


def test_stale_and_damaged(taskc: Taskc, model: Path, tuned: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) | {"toolchain": "nvrtc 9.9"} for line in (tuned / FILE).read_text().splitlines()]
    (tmp_path / FILE).write_text("\n".join(["<<<<<<< HEAD", *map(json.dumps, lines), '{"key": "cut'] ))
    ended = taskc("compile", model, "-o", tmp_path / "m.so", "--cache", tmp_path)
    ended.succeeded()
    assert f"{tmp_path / FILE}: 2 damaged line(s) skipped (line 1, {len(lines) + 2})" in ended.err and "stale" in ended.err
    taskc("compile", model, "-o", tmp_path / "n.so", "--cache", tmp_path, "--locked").failed(UNTUNED, "stale for sm_90a")
    assert not (tmp_path / "n.so").exists()


def test_nothing_worked(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    result = _tune(model, tmp_path, FakeMeasurer(lambda n, t: (None, "wrong result: 7 of 256 elements")))
    assert len(result.hopeless) == result.problems
    ended = taskc("compile", model, "-o", tmp_path / "m.so", "--cache", tmp_path)
    ended.succeeded()
    assert "no schedule that was tried worked" in ended.err
    taskc("cache", "ls", tmp_path).succeeded("nothing worked", "[0 measured, 4 failed]")


# ---- cache ----------------------------------------------------------------------------------------------------------


def test_cache_commands(taskc: Taskc, model: Path, tuned: Path, tmp_path: Path) -> None:
    front = read_groups(model, Options(), Observer())
    key = make_problem(front.groups[0], TARGETS["sm_90a"], front.sizes).key
    taskc("cache", "ls", tuned).succeeded(key, "sm_90a", "[3 measured, 1 failed]")
    taskc("cache", "show", tuned, key[:9]).succeeded("target sm_90a device", "toolchain nvrtc", "failed", "no result within 10 seconds")
    assert json.loads(taskc("cache", "show", tuned, key, "--json").out)["key"] == key
    taskc("cache", "show", tuned, "zz").failed(USAGE, "zz: 0 entries")
    taskc("cache", "ls", tmp_path).failed(USAGE, FILE, "taskc tune --cache")
    slow = tmp_path / "slow"
    _tune(model, slow, FakeMeasurer(lambda n, t: (99.0, "")))
    count = len(front.groups)
    taskc("cache", "merge", slow, tuned).succeeded(f"{count} entries added")
    taskc("cache", "merge", slow, tuned).succeeded("0 entries added")
    assert {e.best.us < 99 for e in Cache(slow, print).entries.values() if e.best} == {True}


# ---- explain and ops ------------------------------------------------------------------------------------------------


def test_explain(taskc: Taskc, model: Path) -> None:
    taskc("explain", model).succeeded("us predicted in all", "Contraction", "epilogue", "port a: width", "along axis", "not attention", "next",
                                         "not rewritten: QuotientToProduct at node_scaled: the reciprocal is not exact")
    found = json.loads(taskc("explain", model, "--json").out)["sm_90a"]
    assert dict(found[0]["ports"])["a"].startswith("width ")
    node = found[0]["nodes"][0]
    taskc("explain", model, "--node", node).succeeded(node, "1 kernels")
    taskc("explain", model, "--node", "no such node").failed(USAGE, "--node no such node", node)


def test_explain_shows_shared_launches(taskc: Taskc, tmp_path: Path) -> None:
    onnx.save(towers_model(), tmp_path / "m.onnx")
    taskc("explain", tmp_path / "m.onnx").succeeded("4 kernels in 2 launches", "in one launch with product1", "in one launch with softmax0")
    large = taskc("explain", tmp_path / "m.onnx", "--tune-for", "batch=3000000")
    large.succeeded("4 kernels in 4 launches", "not in one launch with product1: one alone fills the GPU for")


def test_explain_shows_refusals(taskc: Taskc, tmp_path: Path) -> None:
    """Of fusion, with reasons."""
    onnx.save(zoo.build("bert_tiny"), tmp_path / "m.onnx")
    taskc("explain", tmp_path / "m.onnx").succeeded("not fused: node_MatMul_99 as epilogue: it reduces")


def test_ops_schedules(taskc: Taskc) -> None:
    taskc("ops", "--schedules").succeeded("matmul_mma", "sm_90a", "f32", "legal schedules")
    taskc("ops", "--schedules", "transpose").succeeded("transpose", "sm_80 f16, sm_80 f32")
    assert all(0 < len(f["schedules"]) <= 200 for f in json.loads(taskc("ops", "--schedules", "--json").out))
