"""The command as a user has it: a process of its own. It works installed and from a source tree alike."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest

from models import zoo
from tests.cli.cli_support import ROOT, Ended, Taskc


@pytest.fixture(scope="session")
def package_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `cli/` has its installed name."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "taskc_cli").symlink_to(ROOT / "cli")
    return folder


@pytest.fixture(scope="session")
def environment(package_path: Path) -> Mapping[str, str]:
    """Of the command: no GPU is visible, so that what is tested does not depend on the machine."""
    path = os.pathsep.join([str(package_path), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}


@pytest.fixture(scope="session")
def command() -> list[str]:
    return [sys.executable, "-m", "taskc_cli.main"]


@pytest.fixture(scope="session")
def taskc(environment: Mapping[str, str], command: list[str]) -> Taskc:
    """Runs `taskc ARGUMENTS`."""

    def run(*arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, before: Callable[[], None] | None = None,
            timeout: float = 120) -> Ended:
        done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd, timeout=timeout,
                              env={**environment, **(env or {})}, preexec_fn=before)
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def model(folder: Path) -> Path:
    """matmul_gelu at odd sizes: x[7, 13] and more."""
    path = folder / "gelu.onnx"
    onnx.save(zoo.build("matmul_gelu", m=7, n=11, k=13), path)
    return path


@pytest.fixture(scope="session")
def library(taskc: Taskc, model: Path, folder: Path) -> Path:
    """The model compiled for the host."""
    out = folder / "gelu.so"
    taskc("compile", model, "-o", out, "--target", "host").succeeded(str(out))
    return out


@pytest.fixture(scope="session")
def gpu_library(taskc: Taskc, model: Path, folder: Path) -> Path:
    """The model compiled for a GPU only."""
    out = folder / "gelu_gpu.so"
    taskc("compile", model, "-o", out, "--target", "sm_90a").succeeded(str(out))
    return out
