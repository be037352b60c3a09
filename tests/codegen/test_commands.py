"""A failure or an interrupt ends every compiler that runs, and starts none that waits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from taskc.codegen.commands import Commands
from taskc.errors import ToolchainError


def test_a_failure_ends_the_others(tmp_path: Path) -> None:
    start = time.monotonic()
    commands = [["sh", "-c", "sleep 0.2; echo no good >&2; exit 3"], *[["sleep", "30"]] * 3, ["touch", str(tmp_path / "late")]]
    with pytest.raises(ToolchainError, match="exit code 3:\nno good"), Commands(2) as running:
        running.run_all(commands)
    assert time.monotonic() - start < 10
    assert not (tmp_path / "late").exists()


def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Commands(2) as running:
        running._pool.submit(running.run, ["sleep", "30"])  # pyright: ignore[reportPrivateUsage]
        time.sleep(0.2)
        raise KeyboardInterrupt
    assert time.monotonic() - start < 10
    with pytest.raises(ToolchainError, match="not started"):
        running.run(["touch", str(tmp_path / "late")])


def test_output_and_order() -> None:
    with Commands(1) as one:
        assert one.run(["echo", "hello"]) == "hello\n"
