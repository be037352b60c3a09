"""What this machine has of what taskc needs, with the next step for what is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from taskc.artifact.runtime_build import find_compiler, runtime_elf
from taskc.codegen.hostcc import cache_dir
from taskc.codegen.nvrtc import compile_cuda, nvrtc_version
from taskc.errors import ToolchainError
from taskc.gpus import OLDEST_DRIVER, find_machine

PROBE = '#include "taskc_device.cuh"\nextern "C" __global__ void probe(float* x) { x[threadIdx.x] = 1.0f; }\n'


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `needed` for compiling at all; `advice` is the next step where it is missing."""

    what: str
    ok: bool
    detail: str
    needed: bool = False
    advice: str = ""


def examine() -> list[Finding]:
    """Every finding; nothing raises."""
    return [check() for check in (_python, _packages, _nvrtc, _runtime, _cxx, _cache, _driver, _gpu, _pycuda)]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", sys.version_info >= (3, 10), f"{version} at {sys.executable}", True, "install Python 3.10 or newer")


def _packages() -> Finding:
    found: list[str] = []
    missing: list[str] = []
    for name in ("onnx", "numpy", "onnxruntime", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    return Finding("packages", not missing, ", ".join(found), True, f"pip install {' '.join(missing)}" if missing else "")


def _attempt(what: str, needed: bool, run: Callable[[], str], advice: str) -> Finding:
    try:
        return Finding(what, True, run(), needed)
    except ToolchainError as e:
        return Finding(what, False, str(e).splitlines()[0], needed, advice)


def _nvrtc() -> Finding:
    def run() -> str:
        compile_cuda(PROBE, "sm_90a", "probe")
        return f"version {'.'.join(map(str, nvrtc_version()))}; a kernel compiles for sm_90a"

    return _attempt("NVRTC", True, run, 'pip install "nvidia-cuda-nvrtc>=13.0,<13.1" "cuda-bindings>=13.0,<13.1"')


def _runtime() -> Finding:
    return _attempt("C runtime", True, lambda: str(runtime_elf()), "sudo apt-get install gcc (or install a taskc wheel)")


def _cxx() -> Finding:
    path = shutil.which("g++")
    if path is None:
        return Finding("g++", False, "not on PATH; the host target needs it", False, "sudo apt-get install g++")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return Finding("g++", done.returncode == 0, done.stdout.partition("\n")[0] or done.stderr.strip()[:200])


def _cache() -> Finding:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free >> 20
    except OSError as e:
        return Finding("cache", False, f"{folder}: {e.strerror}", True, "set TASKC_CACHE_DIR to a folder that can be written")
    return Finding("cache", free > 100, f"{folder} ({free} MB free)", True, "free some space")


def _driver() -> Finding:
    machine = find_machine()
    if machine.driver == (0, 0):
        return Finding("NVIDIA driver", False, machine.reason, False, "only running on a GPU needs it")
    version = ".".join(map(str, machine.driver))
    wanted = ".".join(map(str, OLDEST_DRIVER))
    advice = f"taskc's code needs {wanted} (driver 580) or newer"
    return Finding("NVIDIA driver", machine.driver >= OLDEST_DRIVER, f"offers CUDA {version}", False, advice)


def _gpu() -> Finding:
    machine = find_machine()
    if not machine.gpus:
        return Finding("GPU", False, machine.reason, False, "run on a machine with one, or use --device host")
    return Finding("GPU", all(g.capability >= (8, 0) for g in machine.gpus),
                   ", ".join(f"{g.ordinal}: {g.name} ({g.capability[0]}.{g.capability[1]})" for g in machine.gpus), False,
                   "taskc needs compute capability 8.0 or newer")


def _pycuda() -> Finding:
    """pycuda serves tuning on a GPU; it is built from source, so its prerequisites are looked at."""
    try:
        return Finding("pycuda", True, metadata.version("pycuda"))
    except metadata.PackageNotFoundError:
        pass
    missing = [] if find_compiler() and shutil.which("g++") else ["a C++ compiler (apt-get install g++)"]
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        missing.append("Python's headers (apt-get install python3-dev)")
    if shutil.which("nvcc") is None and find_spec("nvidia") is None:
        missing.append("the CUDA headers and libcuda (a CUDA toolkit with nvcc on PATH)")
    advice = f"to build it, first: {'; '.join(missing)}" if missing else "pip install 'taskc-compiler[gpu]'"
    return Finding("pycuda", False, "not installed; only measuring schedules on a GPU uses it", False, advice)
