"""Processes that measure: requests and answers are JSON lines; a crash or a time-out costs one answer, not the run.

A child calls `serve`; the parent talks to it through `Worker`. A process of its own a system is needed anyway: two
builds of onnxruntime cannot live in one, and an illegal access on the GPU ends the process's CUDA context.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]  # where `python -m bench.…` finds the package


class WorkerFailed(Exception):
    """A request that got no result; the message says why."""


def serve(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers requests from stdin until it closes. What libraries print to stdout goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = {"ok": handle(json.loads(line))}
        except Exception as e:  # one model's failure, of whatever kind, is that model's row
            traceback.print_exc()
            answer = {"error": f"{type(e).__name__}: {e}"[:800]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Worker:
    """A child process `python -m module`, started at the first request and again after a failure."""

    def __init__(self, module: str, *, path: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.module = module
        self._environment = {**os.environ, **(environment or {})}
        if path:
            self._environment["PYTHONPATH"] = os.pathsep.join(p for p in (path, os.environ.get("PYTHONPATH", "")) if p)
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the worker)

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request. WorkerFailed: the child's error, its death or no answer in time."""
        if seconds <= 0:
            raise WorkerFailed("no time left")
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.stop()
            raise WorkerFailed(f"no answer within {seconds:.0f} s") from None
        except OSError:
            line = None
        if line is None:
            code = process.wait()
            self.stop()
            raise WorkerFailed(f"the process ended with {code}: {self._tail()}")
        answer = json.loads(line)
        if "error" in answer:
            if "CUDA" in answer["error"] or "Accelerator" in answer["error"]:
                self.stop()  # its context may be lost: the next request gets a fresh process
            raise WorkerFailed(answer["error"])
        return answer["ok"]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
                env=self._environment, start_new_session=True, cwd=ROOT,
            )  # fmt: skip
            threading.Thread(target=_forward, args=(self._process, self._answers), daemon=True).start()
        return self._process

    def _tail(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()[-600:].strip()

    def stop(self) -> None:
        """Ends the child and what it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own process group, autotuning children included
        process.wait()


def _forward(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put(None)


def pool(workers: Sequence[Worker], requests: Sequence[Mapping[str, Any]], deadline: float) -> list[dict[str, Any]]:
    """Answers in the requests' order, as many at once as there are workers; a failure is {'error': text}."""
    results: list[dict[str, Any]] = [{"error": "not reached"} for _ in requests]
    waiting = queue.SimpleQueue[int]()
    for n in range(len(requests)):
        waiting.put(n)

    def work(worker: Worker) -> None:
        while True:
            try:
                n = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[n] = worker.ask(requests[n], deadline - time.monotonic())
            except WorkerFailed as e:
                results[n] = {"error": str(e)}

    threads = [threading.Thread(target=work, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results
