"""The wheel: what is in it, and that it works where there is no source tree and no C compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.cli_support import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"  # a build leaves files beside the sources
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(copy)], capture_output=True,
                          text=True, check=False)
    if done.returncode and "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("no network: pip cannot download setuptools to build with")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("taskc_compiler-*.whl"))


def test_what_is_in_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if ".dist-info" not in n}
    assert tops == {"taskc", "taskc_cli"}, "a top-level `cli`, `tests` or `models` would be everybody's"
    for needed in ("taskc/codegen/device/taskc_device.cuh", "taskc/codegen/device/host_fiber.cpp", "taskc/artifact/runtime/model.h",
                   "taskc/artifact/runtime/api.c", "taskc/artifact/loader.py", "taskc_cli/main.py"):
        assert needed in names
    assert any(n.startswith("taskc/artifact/runtime/prebuilt/") for n in names)


def test_its_runtime_needs_no_compiler(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = "from taskc.artifact.runtime_build import runtime_elf; print(runtime_elf())"
    environment = {**os.environ, "PATH": "/nonexistent", "CC": "", "PYTHONPATH": str(tmp_path), "TASKC_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert str(tmp_path / "taskc/artifact/runtime/prebuilt") in done.stdout
