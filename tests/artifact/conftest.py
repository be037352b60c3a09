"""Fixtures: a cache folder for the runtime, libraries by plan, the stand-in driver, whether there is a GPU."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taskc.artifact.library import write_library
from taskc.artifact.plan import ModelPlan
from taskc.artifact.runtime_build import SOURCES
from tests.artifact.artifact_process import ROOT


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")
    config.addinivalue_line("markers", "slow: takes more than a few seconds or much address space")


def no_gpu() -> str:
    """Why GPU tests cannot run here; empty when they can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no GPU here: libcuda.so.1 does not open"
    return "" if driver.cuInit(0) == 0 else "no GPU here: cuInit fails"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = no_gpu()
    for item in items:
        if reason and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def _runtime_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The runtime is built once a session, away from the user's cache."""
    before = os.environ.get("TASKC_CACHE_DIR")
    folder = tmp_path_factory.mktemp("cache")
    os.environ["TASKC_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["TASKC_CACHE_DIR"]
    else:
        os.environ["TASKC_CACHE_DIR"] = before


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the stand-in is the driver."""
    folder = tmp_path_factory.mktemp("driver")
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-I", str(SOURCES)]
    source = str(ROOT / "tests/artifact/fake_driver.c")
    subprocess.run(["gcc", *flags, "-o", str(folder / "libcuda.so.1"), source], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def library(tmp_path: Path) -> Callable[[ModelPlan], Path]:
    """plan -> its library in a folder of the test."""

    def write(plan: ModelPlan, name: str = "model.so") -> Path:
        write_library(plan, tmp_path / name)
        return tmp_path / name

    return write
