"""What goes wrong on a user's side: each case ends with its exit code and a message that names the thing and the next step."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.cli_support import Taskc

USAGE, BAD_MODEL, UNSUPPORTED, ACCURACY, TOOLCHAIN, NO_DEVICE, INTERRUPTED = 2, 3, 4, 5, 7, 8, 130


def one_node(path: Path, op_type: str, element: int = TensorProto.FLOAT, domain: str = "") -> Path:
    """A model of one node `culprit`, from x[3, 5] to y."""
    node = helper.make_node(op_type, ["x"], ["y"], name="culprit", domain=domain)
    graph = helper.make_graph([node], "one", [helper.make_tensor_value_info("x", element, [3, 5])],
                              [helper.make_tensor_value_info("y", element, None)])
    opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


# ---- the model's file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["compile", "check", "explain"])
def test_missing_file(taskc: Taskc, tmp_path: Path, verb: str) -> None:
    taskc(verb, tmp_path / "nothing.onnx").failed(BAD_MODEL, "nothing.onnx", "no such file")


def test_truncated_file(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    taskc("compile", cut, "-o", tmp_path / "cut.so").failed(BAD_MODEL, "cut.onnx", "cut short")
    assert not (tmp_path / "cut.so").exists()


@pytest.mark.parametrize(("content", "word"), [(b"", "empty"), (b"PK\x03\x04 rest", "zip"), (b"<html>", "HTML"), (b"\x7fELF....", "library"),
                                               (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull")])
def test_foreign_file(taskc: Taskc, tmp_path: Path, content: bytes, word: str) -> None:
    foreign = tmp_path / "foreign.onnx"
    foreign.write_bytes(content)
    taskc("check", foreign).failed(BAD_MODEL, "foreign.onnx", word)


def test_unsupported_operator(taskc: Taskc, tmp_path: Path) -> None:
    path = one_node(tmp_path / "m.onnx", "Frobnicate", domain="com.example")
    for command in ("compile", "check"):
        taskc(command, path).failed(UNSUPPORTED, "Frobnicate", "com.example", "culprit")
    assert not (tmp_path / "m.so").exists()


def test_unsupported_element_type(taskc: Taskc, tmp_path: Path) -> None:
    path = one_node(tmp_path / "m.onnx", "Identity", TensorProto.STRING)
    taskc("check", path).failed(UNSUPPORTED, "'x'", "STRING")


# ---- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "words"), [
    (("--target", "sm_12"), ("sm_12", "sm_90a")),
    (("--target", ","), ("--target",)),
    (("--shape", "nope:1x2"), ("nope", "it has x")),
    (("--shape", "x:1x2x3"), ("'x'", "2 dims")),
    (("--shape", "x:axb"), ("--shape x:axb", "NAME:1x3x224x224")),
    (("--dim", "batch=two"), ("--dim batch=two", "NAME=SIZE")),
    (("--dim", "batch=2"), ("batch",)),
    (("--jobs", "-1"), ("--jobs",)),
    (("--stop-after", "lunch"), ("lunch", "import")),
    (("--nonsense",), ("--nonsense",)),
    (("-o", "nowhere/m.so"), ("nowhere", "no folder")),
    (("-o", "m.py"), ("m.py",)),
])  # fmt: skip
def test_wrong_option(taskc: Taskc, model: Path, tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    ended = taskc("compile", model, *(() if "-o" in arguments else ("-o", tmp_path / "m.so")), *arguments, cwd=tmp_path)
    ended.failed(USAGE, *words)
    assert not list(tmp_path.iterdir())


def test_unknown_precision(taskc: Taskc, model: Path) -> None:
    taskc("compile", model, "--precision", "fp8").failed(USAGE, "--precision", "fp8", "tf32")


def test_native_needs_a_gpu(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    taskc("compile", model, "-o", tmp_path / "m.so", "--target", "native").failed(NO_DEVICE, "native", "--target sm_90a")


def test_no_command(taskc: Taskc) -> None:
    taskc("frobnicate").failed(USAGE, "frobnicate")


# ---- running --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inputs", "words"), [
    ((), ("'x'", "--input x=random")),
    (("x=random", "z=random"), ("z", "x: float32[7, 13]")),
    (("x=7x13xi32=1",), ("'x'", "int32", "float32[7, 13]")),
    (("x=7x14xf32=1",), ("x", "14", "13")),
    (("x=7x13xf99=1",), ("f99", "f32")),
    (("x",), ("--input x", "NAME=FILE.npy")),
    (("x=missing.npy",), ("missing.npy", "no file")),
    (("x=what",), ("x=what", "random")),
])  # fmt: skip
def test_wrong_feed(taskc: Taskc, library: Path, inputs: tuple[str, ...], words: tuple[str, ...]) -> None:
    taskc("run", library, "--device", "host", *(a for i in inputs for a in ("--input", i))).failed(USAGE, *words)


def test_damaged_npy(taskc: Taskc, library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((7, 13), np.float32))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:100])
    taskc("run", library, "--input", f"x={tmp_path / 'x.npy'}").failed(USAGE, "x.npy", "not a readable .npy")


@pytest.mark.parametrize("verb", ["run", "inspect", "bench"])
def test_library_that_is_none(taskc: Taskc, model: Path, tmp_path: Path, verb: str) -> None:
    taskc(verb, model).failed(BAD_MODEL, str(model), "not a model library")
    taskc(verb, tmp_path / "no.so").failed(USAGE, "no.so")


def test_truncated_library(taskc: Taskc, library: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.so"
    cut.write_bytes(library.read_bytes()[:-5000])
    taskc("inspect", cut).failed(BAD_MODEL, "cut.so", "truncated")


def test_no_gpu(taskc: Taskc, gpu_library: Path) -> None:
    taskc("run", gpu_library, "--input", "x=random").failed(NO_DEVICE)
    taskc("run", gpu_library, "--input", "x=random", "--device", "cuda:0").failed(NO_DEVICE)
    taskc("run", gpu_library, "--input", "x=random", "--device", "host").failed(NO_DEVICE, "host")


def test_accuracy(taskc: Taskc, library: Path, model: Path) -> None:
    taskc("verify", library, model, "--bar", "1e-12").failed(ACCURACY, "differs from onnxruntime", "host")


def test_verify_with_another_model(taskc: Taskc, library: Path, tmp_path: Path) -> None:
    """The same graph with other weights must not pass."""
    other = tmp_path / "other.onnx"
    made = onnx.load(library.with_suffix(".onnx"))
    for tensor in made.graph.initializer:
        if tensor.dims:
            values = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(1.001), tensor.name))
    onnx.save(made, other)
    taskc("verify", library, other).failed(ACCURACY, "relative norm")


def test_bench_refuses_a_provider_that_is_not_there(taskc: Taskc, library: Path, model: Path) -> None:
    taskc("bench", library, "--against", model, "--provider", "cuda", "--runs", "1").failed(NO_DEVICE, "CUDAExecutionProvider")


# ---- the machine ----------------------------------------------------------------------------------------------------


def test_no_compiler(taskc: Taskc, model: Path, tmp_path: Path) -> None:
    taskc("compile", model, "-o", tmp_path / "m.so", "--target", "host", env={"CXX": "no-such-compiler"}).failed(TOOLCHAIN, "no-such-compiler")
    assert not (tmp_path / "m.so").exists()


def test_full_disk(taskc: Taskc, model: Path, library: Path, tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk: the library does not fit, and nothing is left behind."""
    del library  # it built the runtime, which would not fit either

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    ended = taskc("compile", model, "-o", tmp_path / "m.so", "--target", "sm_90a", before=limit)
    ended.failed(USAGE, "m.so", "larger than the system allows")
    assert not list(tmp_path.iterdir())


def test_existing_library_survives_a_failure(taskc: Taskc, tmp_path: Path) -> None:
    old = tmp_path / "m.so"
    old.write_bytes(b"precious")
    taskc("compile", one_node(tmp_path / "m.onnx", "Frobnicate", domain="com.example"), "-o", old).failed(UNSUPPORTED)
    assert old.read_bytes() == b"precious"


def test_folder_that_cannot_be_written(taskc: Taskc, model: Path) -> None:
    taskc("compile", model, "-o", "/proc/m.so", "--target", "sm_90a").failed(USAGE, "/proc/m.so")


def test_interrupt(environment: Mapping[str, str], command: list[str], model: Path, tmp_path: Path) -> None:
    """SIGINT in the middle of a compile: the compiler stand-in says when, and then waits."""
    started, slow = tmp_path / "started", tmp_path / "slow-g++"
    slow.write_text(f"#!/bin/sh\ncase \"$*\" in *--version*) exec g++ \"$@\";; esac\ntouch {started}\nexec sleep 60\n")
    slow.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    cache = tmp_path / "cache"
    process = subprocess.Popen([*command, "compile", str(model), "-o", str(out / "m.so"), "--target", "host"], stderr=subprocess.PIPE, text=True,
                               env={**environment, "CXX": str(slow), "TASKC_CACHE_DIR": str(cache)}, start_new_session=True)
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, err = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED, err
    assert "interrupted" in err and "Traceback" not in err
    assert not list(out.iterdir())


def test_a_bug_is_reported_as_one(environment: Mapping[str, str], command: list[str], tmp_path: Path) -> None:
    program = ("import sys\nfrom taskc_cli import main, failures\n"
               "def broken(): raise ZeroDivisionError('oops')\n"
               "sys.exit(failures.guarded(broken, ['compile', 'a b.onnx']))\n")
    done = subprocess.run([command[0], "-c", program], capture_output=True, text=True, check=False, env={**environment}, cwd=tmp_path)
    assert done.returncode == 1
    assert "bug in taskc" in done.stderr and "ZeroDivisionError: oops" in done.stderr and "taskc compile 'a b.onnx'" in done.stderr
    assert "Traceback" not in done.stderr
    again = subprocess.run([command[0], "-c", program], capture_output=True, text=True, check=False, env={**environment, "TASKC_DEBUG": "1"})
    assert "Traceback" in again.stderr
