"""The written file: what it needs, what survives, that it is the same each time, and that it is whole or absent."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taskc.artifact import loader
from taskc.artifact.elf import BadElf, extend
from taskc.artifact.library import LOADER, write_library
from taskc.artifact.plan import WeightMemory
from taskc.artifact.runtime_build import build_runtime, runtime_elf
from taskc.errors import TaskcError, ToolchainError, UsageError
from tests.artifact.artifact_plans import affine, affine_plan, host_code, rng_weights, symbolic_plan
from tests.artifact.artifact_process import ROOT, python

Write = Callable[..., Path]

ONCE = """
import sys, numpy as np
from taskc.artifact import loader
m = loader.load(sys.argv[1], "host")
feed = {n: np.random.default_rng(4).standard_normal((3, 5)).astype("f") for n in "ab"}
print(m.run(feed)["y"].tobytes().hex())
"""


def expected() -> str:
    a = np.random.default_rng(4).standard_normal((3, 5)).astype(np.float32)
    return affine(a, a, rng_weights(5)).tobytes().hex()


def tool(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def test_needs_libc_and_its_kin_only(library: Write) -> None:
    path = library(affine_plan(host_code()))
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", tool("readelf", "-dW", str(path))))
    assert "libc.so.6" in needed and needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    for line in tool("ldd", str(path)).splitlines():
        assert re.match(r"\s*(linux-vdso|libc\.|libdl\.|libpthread\.|/lib.*/ld-linux|linux-gate)", line), line


def test_glibc_symbols_are_old_enough(library: Write) -> None:
    path = library(affine_plan(host_code()))
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", tool("readelf", "-W", "--dyn-syms", "--version-info", str(path)))
    assert len(versions) > 10
    assert max((int(a), int(b)) for a, b in versions) <= (2, 28)


def test_exports_one_symbol(library: Write) -> None:
    symbols = tool("readelf", "-W", "--dyn-syms", str(library(affine_plan(host_code()))))
    defined = [line.split()[7] for line in symbols.splitlines() if len(line.split()) > 7 and line.split()[6].isdigit()]
    assert defined == ["taskc_get_api"]


def test_no_relocation_refers_to_the_payload(library: Write) -> None:
    path = library(affine_plan(host_code()))
    segments = re.findall(r"LOAD\s+0x\w+ 0x(\w+)", tool("readelf", "-lW", str(path)))
    payload = max(int(a, 16) for a in segments)
    relocations = re.findall(
        r"^([0-9a-f]{16})\s+\w+ R_\w+\s+([0-9a-f]+)?", tool("readelf", "-rW", str(path)), re.MULTILINE
    )
    assert relocations and all(
        int(place, 16) < payload and int(value or "0", 16) < payload for place, value in relocations
    )


@pytest.mark.parametrize("options", [(), ("--strip-all",), ("--strip-unneeded",)])
def test_strip_keeps_the_model(library: Write, options: tuple[str, ...]) -> None:
    path = library(affine_plan(host_code(), weights=rng_weights(5)))
    size = path.stat().st_size
    subprocess.run(["strip", *options, str(path)], check=True)
    assert path.stat().st_size < size
    assert ".taskc.payload" in tool("readelf", "-SW", str(path))
    done = python(ONCE, str(path))
    assert done.stdout.strip() == expected(), done.stderr


def test_the_same_plan_gives_the_same_bytes(library: Write, tmp_path: Path) -> None:
    def digest(p: Path) -> str:
        return hashlib.sha256(p.read_bytes()).hexdigest()

    first, second = library(symbolic_plan(host_code()), "one.so"), library(symbolic_plan(host_code()), "two.so")
    assert digest(first) == digest(second)
    assert digest(first) != digest(library(symbolic_plan(host_code(), low=2), "three.so"))
    build_runtime(tmp_path / "a" / "rt.so")
    build_runtime(tmp_path / "b" / "other.so")
    assert digest(tmp_path / "a" / "rt.so") == digest(tmp_path / "b" / "other.so") == digest(runtime_elf())


def test_the_loader_stands_alone(library: Write, tmp_path: Path) -> None:
    """The copied file, beside the library, from another folder, with nothing of taskc on the path."""
    path = library(affine_plan(host_code()), "net.so")
    assert (tmp_path / "net.py").read_bytes() == LOADER.read_bytes()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(path, moved / "net.so")
    shutil.move(tmp_path / "net.py", moved / "net.py")
    load = f"import importlib.util as u; s = u.spec_from_file_location('net', {str(moved / 'net.py')!r}); "
    load += "loader = u.module_from_spec(s); sys.modules['net'] = loader; s.loader.exec_module(loader)"
    code = ONCE.replace("from taskc.artifact import loader", load)
    code = code.replace(
        'loader.load(sys.argv[1], "host")', 'loader.load(device="host"); assert "taskc" not in sys.modules'
    )
    done = python(code, env={"PYTHONPATH": ""})
    assert done.stdout.strip() == expected(), done.stderr
    code = f"import runpy, numpy as np; m = runpy.run_path({str(moved / 'net.py')!r})['load'](device='host'); "
    code += "print(m.run({n: np.ones((3, 5), 'f') for n in 'ab'})['y'].shape)"
    assert python(code, env={"PYTHONPATH": ""}).stdout.strip() == "(3, 5)"
    printed = subprocess.run([sys.executable, str(moved / "net.py")], capture_output=True, text=True, check=True).stdout
    assert "input a: float32[3, 5]" in printed and "target host: 4 kernels, 2 steps" in printed
    with pytest.raises(loader.ModelError, match="no library beside"):
        loader.load()


def test_without_a_compiler(tmp_path: Path) -> None:
    """Once the runtime is there, a library is written without gcc; before, the message says what is missing."""
    runtime_elf()
    image = host_code().images[0].data
    (tmp_path / "image").write_bytes(image)
    code = (
        "import sys; from pathlib import Path; import artifact_plans as p\n"
        "from taskc.artifact.library import write_library; from taskc.artifact.plan import Image\n"
        "code = p.Code('host', (Image('host', 'host', Path(sys.argv[1]).read_bytes()),))\n"
        "write_library(p.affine_plan(code), Path(sys.argv[2]))"
    )
    empty = {"PATH": str(tmp_path / "nothing"), "CC": ""}
    done = python(code, str(tmp_path / "image"), str(tmp_path / "m.so"), env=empty)
    assert done.returncode == 0, done.stderr
    assert python(ONCE, str(tmp_path / "m.so"), env=empty).stdout.strip() == expected()
    done = python(
        code, str(tmp_path / "image"), str(tmp_path / "n.so"), env={**empty, "TASKC_CACHE_DIR": str(tmp_path / "c")}
    )
    assert done.returncode and "no C compiler was found" in done.stderr and not (tmp_path / "n.so").exists()


def test_a_failing_compiler_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="does not compile"):
        build_runtime(tmp_path / "rt.so", extra=["-Dpayload=int"])
    with pytest.raises(ToolchainError, match=r"does not start: .*absent"):
        build_runtime(tmp_path / "rt.so", compiler=[str(tmp_path / "absent")])
    assert list(tmp_path.iterdir()) == []


def test_disk_full_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "m.so"
    plan = affine_plan(host_code(), cols=50_000, weights=np.ones(50_000, np.float32))
    write_library(affine_plan(host_code()), out)
    before = out.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(UsageError, match=r"cannot write .*m\.so: the file would be larger") as e:
            write_library(plan, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert e.value.exit_code == 2 and out.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.py", "m.so"]


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("taskc.artifact.library.os.fsync", full)
    with pytest.raises(UsageError, match=r"the disk is full \(\d+ MB free\)"):
        write_library(affine_plan(host_code()), tmp_path / "m.so")
    assert list(tmp_path.iterdir()) == []


def test_bad_places(tmp_path: Path) -> None:
    with pytest.raises(TaskcError, match=r"cannot write .*absent/m\.so: No such file"):
        write_library(affine_plan(host_code()), tmp_path / "absent" / "m.so")
    with pytest.raises(UsageError, match="the library's loader would have the same name"):
        write_library(affine_plan(host_code()), tmp_path / "m.py")
    with pytest.raises(BadElf, match="not a 64-bit"):
        extend(b"MZ" + bytes(100), 10)
    with pytest.raises(BadElf, match=r"no section \.taskc\.anchor"):
        extend(host_code().images[0].data, 10)


@pytest.mark.slow
def test_weights_of_2500_megabytes(tmp_path: Path) -> None:
    """A sparse file: only the last weights are not zero. They are mapped, not read, so memory stays small."""
    cols, rows = 312, 1
    plan = affine_plan(host_code(), rows, cols, weights=rng_weights(cols))
    place = 2_500_000_000 // 256 * 256
    target = plan.targets[0]
    tensors = tuple(
        t if not isinstance(t.memory, WeightMemory) else type(t)(t.name, t.dtype, t.shape, WeightMemory(place))
        for t in target.tensors
    )
    moved = type(target)(target.target, target.images, target.kernels, tensors, target.steps, target.arena_bytes)
    big = type(plan)(
        plan.name,
        plan.symbols,
        plan.inputs,
        plan.outputs,
        (moved,),
        ((0, b"\1" * 4096), (place, rng_weights(cols).tobytes())),
    )
    path = tmp_path / "big.so"
    write_library(big, path)
    assert path.stat().st_size > 2_500_000_000 and path.stat().st_blocks * 512 < 50_000_000
    code = (
        "import sys, resource, numpy as np; from taskc.artifact import loader\n"
        "from artifact_plans import affine, rng_weights\n"
        "m = loader.load(sys.argv[1], 'host'); a = np.random.default_rng(0).standard_normal((1, 312)).astype('f')\n"
        "assert np.array_equal(m.run({'a': a, 'b': a})['y'], affine(a, a, rng_weights(312)))\n"
        "assert loader.describe(sys.argv[1])['weights_bytes'] > 2_500_000_000\n"
        "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 400_000, 'the weights were read into memory'"
    )
    done = python(code, str(path))
    path.unlink()
    assert done.returncode == 0, done.stderr


def test_example_program_and_header(library: Write, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    write_library(symbolic_plan(host_code()), path, header=True)
    program = tmp_path / "run"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I", str(tmp_path)]
    subprocess.run(["gcc", *flags, "-o", str(program), str(ROOT / "examples/run.c"), "-ldl"], check=True)
    subprocess.run(
        ["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", str(tmp_path / "model.h")], check=True
    )
    subprocess.run(
        ["gcc", "-std=c99", "-pedantic", "-Werror", "-fsyntax-only", "-x", "c", str(tmp_path / "model.h")], check=True
    )
    done = subprocess.run([str(program), str(path), "host", "17"], capture_output=True, text=True, check=True)
    rows = {line.split(" ", 1)[0]: line for line in done.stdout.splitlines()}
    assert rows["a"].startswith("a [17, 5] ") and rows["y"].startswith("y [17, 5] ")
    values = {k: np.array(v.split("] ")[1].split(), np.float32) for k, v in rows.items()}
    assert np.abs(values["y"][:5] - (values["a"] + values["b"])[:5] * rng_weights(5)).max() < 1e-5
    done = subprocess.run([str(program), str(path), "mars"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "device 'mars'" in done.stderr
    path.write_bytes(path.read_bytes()[:-8_000])
    done = subprocess.run([str(program), str(path), "host"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "truncated" in done.stderr
