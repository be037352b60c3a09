"""Each command does what it says, on small models, on the host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import taskc as package
from models import zoo
from tests.cli.cli_support import ROOT, Taskc


def test_compile_writes_the_library_and_its_loader(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.so"
    taskc("compile", model, "-o", out, "--target", "sm_80,sm_90a,host", "--header", "--jobs", "2").succeeded("m.so", "sm_80", "sm_90a", "host")
    assert {p.name for p in tmp_path.iterdir()} == {"m.so", "m.py", "model.h"}
    facts = json.loads(taskc("inspect", out, "--json").out)
    assert [t["name"] for t in facts["targets"]] == ["sm_80", "sm_90a", "host"]
    images = {t["name"]: " ".join(t["images"]) for t in facts["targets"]}
    assert "ptx sm_80" in images["sm_80"], "newer GPUs translate the PTX of the generic kernels"
    assert "cubin sm_90a" in images["sm_90a"] and "ptx" not in images["sm_90a"]


def test_same_bytes_with_any_jobs(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    for jobs in ("1", "3"):
        taskc("compile", model, "-o", tmp_path / f"{jobs}.so", "--target", "sm_90a", "--jobs", jobs).succeeded()
    assert (tmp_path / "1.so").read_bytes() == (tmp_path / "3.so").read_bytes()


def test_dump_and_stop_after(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    ended = taskc("compile", model, "-o", tmp_path / "m.so", "--dump", tmp_path / "dump", "--stop-after", "partition")
    ended.succeeded("stopped after partition")
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert names[0] == "01-import.txt" and names[-1].endswith("-partition.txt")
    assert not (tmp_path / "m.so").exists()
    assert "MatMul" in (tmp_path / "dump" / "01-import.txt").read_text()


def test_progress_is_plain_lines_without_a_terminal(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    ended = taskc("compile", model, "-o", tmp_path / "m.so", "--target", "sm_90a", "-v")
    ended.succeeded()
    assert "\x1b" not in ended.err and "taskc: compiling kernels" in ended.err and "import 0." in ended.err


def test_run_gives_what_onnxruntime_gives(taskc: Taskc, library: Path, model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((7, 13)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    taskc("run", library, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out", "--device", "host").succeeded("float32", "[7, 11]")
    y = np.load(tmp_path / "out" / "y.npy")
    np.testing.assert_allclose(y, onnxruntime.InferenceSession(model).run(["y"], {"x": x})[0], rtol=2e-5, atol=2e-6)


def test_run_with_a_filled_input(taskc: Taskc, library: Path, model: Path, tmp_path: Path) -> None:
    taskc("run", library, "--input", "x=7x13xf32=0.5", "--output", tmp_path).succeeded()
    x = np.full((7, 13), 0.5, np.float32)
    wanted = onnxruntime.InferenceSession(model).run(["y"], {"x": x})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=2e-5, atol=2e-6)


def test_random_inputs_depend_on_the_seed_only(taskc: Taskc, library: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        taskc("run", library, "--input", "x=random", "--seed", seed, "--output", tmp_path / name).succeeded()
    a, b, c = (np.load(tmp_path / name / "y.npy") for name in "abc")
    assert np.array_equal(a, b) and not np.allclose(a, c)


def test_verify_passes(taskc: Taskc, library: Path, model: Path) -> None:
    taskc("verify", library, model, "--device", "all").succeeded("PASS on host", "y")
    found = json.loads(taskc("verify", library, model, "--json").out)
    assert found[0]["passed"] and 0 < found[0]["differences"][0]["relative"] < 5e-5


def test_symbolic_dims(taskc: Taskc, tmp_path: Path) -> None:
    """One library, several sizes; token ids are drawn from the table's range, which the file tells."""
    model, out = tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(zoo.build("bert_tiny_dyn"), model)
    taskc("compile", model, "-o", out, "--target", "host").succeeded()
    for batch, sequence in ((1, 5), (3, 17)):
        taskc("verify", out, model, "--dim", f"batch={batch}", "--dim", f"sequence={sequence}").succeeded("PASS", f"sequence={sequence}")
    taskc("verify", out, model, "--dim", "nope=3").failed(2, "nope", "batch, sequence")


def test_bench_measures_both(taskc: Taskc, library: Path, model: Path) -> None:
    rows = json.loads(taskc("bench", library, "--against", model, "--runs", "3", "--json").out)
    assert [r["mode"] for r in rows] == ["taskc host", "ort cpu"]
    assert all(r["live"] and r["us"] > 0 and r["wall_us"] > 0 and r["prec"] == "fp32" for r in rows)


def test_inspect_shows_registers_and_widths(taskc: Taskc, gpu_library: Path) -> None:
    taskc("inspect", gpu_library, "--launches").succeeded("target sm_90a", "registers", "spills", "width", "float32[7, 13]")
    kernels = json.loads(taskc("inspect", gpu_library, "--json").out)["targets"][0]["kernels"]
    assert kernels and all(k["registers"] > 0 and k["launches"] > 0 for k in kernels)


def test_check_and_explain(taskc: Taskc, model: Path) -> None:
    taskc("check", model).succeeded("can be compiled for sm_90a, host", "MatMul", "f32[7, 13]")
    taskc("explain", model).succeeded("target sm_90a: 1 kernels", "epilogue", "us predicted")
    groups = json.loads(taskc("explain", model, "--target", "sm_80", "--json").out)["sm_80"]
    assert groups[0]["template"] and len(groups[0]["schedules"]) > 1


def test_ops(taskc: Taskc) -> None:
    taskc("ops", "softmax").succeeded("Softmax", "operators")
    assert "Conv" in json.loads(taskc("ops", "--json").out)


def test_doctor(taskc: Taskc) -> None:
    taskc("doctor").succeeded("Python", "NVRTC", "a kernel compiles for sm_90a", "g++", "pycuda", "GPU")


@pytest.mark.parametrize("verb", ["", "compile", "run", "verify", "bench", "inspect", "check", "explain", "ops", "doctor"])
def test_help(taskc: Taskc, verb: str) -> None:
    taskc(*verb.split(), "--help").succeeded("Usage: taskc")


def test_python_interface(model: Path, tmp_path: Path) -> None:
    package.compile_model(onnx.load(model), tmp_path / "m.so", target="host")
    loaded = package.load(tmp_path / "m.so", device="host")
    assert isinstance(loaded, package.Model) and loaded.inputs[0].shape == (7, 13)
    x = np.random.default_rng(0).standard_normal((7, 13)).astype(np.float32)
    got = loaded.run({"x": x})["y"]
    np.testing.assert_allclose(got, onnxruntime.InferenceSession(model).run(["y"], {"x": x})[0], rtol=2e-5, atol=2e-6)
    assert np.array_equal(loaded.bind({"x": x}).run()["y"], got)
    with pytest.raises(package.BadModel):
        package.compile_model(tmp_path / "none.onnx", tmp_path / "n.so")


def test_import_is_light(environment: Mapping[str, str]) -> None:
    """`import taskc` brings neither onnx nor numpy."""
    program = "import sys, taskc; print(sorted({'onnx', 'numpy', 'onnxruntime', 'click', 'cuda'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=dict(environment))
    assert done.stdout.strip() == "[]"


def test_version_is_the_packages(taskc: Taskc) -> None:
    taskc("--version").succeeded(package.__version__)


def test_readme_commands(taskc: Taskc, tmp_path: Path) -> None:
    """Every `taskc` line of the README's shell blocks runs, on the model that the README makes."""
    lines = [line.strip().removeprefix("$ ") for block in (ROOT / "README.md").read_text().split("```sh")[1:]
             for line in block.partition("```")[0].splitlines()]
    commands = [line.partition("#")[0].split() for line in lines if line.startswith("taskc ")]
    assert len(commands) >= 5
    onnx.save(zoo.build("cnn_tiny"), tmp_path / "model.onnx")
    np.save(tmp_path / "cat.npy", np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32))
    for arguments in commands:
        taskc(*arguments[1:], cwd=tmp_path).succeeded()
