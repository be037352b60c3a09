"""Commands side by side, ended together: a failure or an interrupt stops what runs and starts nothing more."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from taskc.errors import ToolchainError


class Commands:
    """Runs commands on up to `at_once` threads. Use as a context: leaving it by an exception kills the children."""

    def __init__(self, at_once: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(at_once or os.cpu_count() or 1)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.stop()
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def run_all(self, commands: Sequence[Sequence[str]]) -> None:
        """Runs all; raises the first ToolchainError."""
        list(self._pool.map(self.run, commands))

    def run(self, command: Sequence[str]) -> str:
        """What the command printed; ToolchainError with the command and its errors when it fails."""
        with self._lock:
            if self._stopped:
                raise ToolchainError(f"{shlex.join(command)} was not started: the compile was stopped")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self._running.add(process)
        try:
            out, errors = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        if process.returncode:
            raise ToolchainError(f"{shlex.join(command)}\nfailed with exit code {process.returncode}:\n{errors[-8000:]}")
        return out

    def stop(self) -> None:
        """Kills what runs and starts nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()
