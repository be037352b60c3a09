"""Who may import whom: a module imports only from layers above it, and heavy libraries have one home each.

Read from the source text, so nothing is imported, and a cycle cannot hide behind an import inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LAYER = {
    "taskc.errors": 0, "taskc.ir": 0, "taskc.targets": 1, "taskc.ops": 1, "taskc.importer": 2, "taskc.passes": 2, "taskc.fuse": 2,
    "taskc.schedules": 2, "taskc.codegen": 2, "taskc.artifact": 2, "taskc.tune": 3, "taskc.observe": 3,
    "taskc.compile": 4, "taskc.check": 4, "taskc.verify": 4, "taskc.bench": 4, "taskc.explain": 4, "taskc.doctor": 4, "taskc.feeds": 4,
    "taskc.gpus": 4, "taskc.inspection": 4, "taskc.cuda_memory": 4, "taskc": 4, "cli": 5,
}  # fmt: skip

# What a package of one layer may take from another package of the same layer; `fuse.stitch` and the templates build programs.
SAME_LAYER = {
    ("taskc.ir", "taskc.errors"), ("taskc.ops", "taskc.targets"), ("taskc.tune", "taskc.observe"),
}  # fmt: skip

# package -> the only modules (or folders) of ours that import it
HOMES = {
    "onnx": ("taskc/importer", "models", "tests"),
    "google": ("taskc/importer", "models", "tests"),
    "onnxruntime": ("taskc/verify.py", "models", "tests", "bench"),
    "pycuda": ("taskc/tune/device.py", "tests"),
    "click": ("cli",),
    "rich": ("cli",),
    "torch": ("models/export_skeletons.py", "models", "tests", "bench"),
    "cuda": ("taskc/codegen/nvrtc.py", "taskc/cuda_memory.py", "tests", "bench"),
}

# Optional or heavy, so imported only when they are used; each in its home.
LAZY = {"onnxruntime", "pycuda", "cuda", "torch"}


@dataclass(frozen=True)
class Import:
    """One import: where it stands, what it names, and whether a function holds it."""

    file: str
    line: int
    module: str
    inside: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def sources(*folders: str) -> list[Path]:
    return sorted(p for f in folders for p in (ROOT / f).rglob("*.py") if "__pycache__" not in p.parts)


def imports(path: Path) -> list[Import]:
    """Every import of a file, those by `import_module("…")` too. Blocks for type checkers only do not count."""
    return list(_imports(ast.parse(path.read_text()), path, False))


def _imports(node: ast.AST, path: Path, inside: bool) -> Iterator[Import]:
    file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        within = inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if isinstance(child, ast.Import):
            yield from (Import(file, child.lineno, a.name, within) for a in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level:
            yield from (Import(file, child.lineno, f"{child.module}.{a.name}", within) for a in child.names)
        elif isinstance(child, ast.Call) and _is_import_call(child):
            first = child.args[0]
            if isinstance(first, ast.Constant):
                yield Import(file, child.lineno, str(first.value), True)
        yield from _imports(child, path, within)


def _is_import_call(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
    return name in ("import_module", "__import__") and bool(call.args)


def package_of(module: str) -> str | None:
    """The entry of LAYER that a module belongs to; None for other people's modules."""
    parts = module.replace("taskc_cli", "cli").split(".")
    if parts[0] not in ("taskc", "cli"):
        return None
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in LAYER), None)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def why_not(importer: str, imported: str) -> str | None:
    """Why a module of one entry may not import one of the other, or None."""
    a, b = LAYER[importer], LAYER[imported]
    if imported in ("taskc", "taskc.errors") or importer == imported:
        return None
    if b < a or (a == b and (a in (2, 4) or (importer, imported) in SAME_LAYER)):
        return None
    return f"layer {a} must not import from layer {b}"


@pytest.mark.parametrize("path", sources("taskc", "cli"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_only_from_layers_above(path: Path) -> None:
    own = package_of(module_of(path))
    assert own is not None, f"{module_of(path)} is in no layer: add it to LAYER"
    bad = [f"{i}: {why}" for i in imports(path) if (other := package_of(i.module)) is not None and (why := why_not(own, other)) is not None]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("path", sources("taskc", "cli", "models"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_libraries_have_one_home(path: Path) -> None:
    file = path.relative_to(ROOT).as_posix()
    for i in imports(path):
        homes = HOMES.get(i.module.split(".")[0])
        assert homes is None or any(file == h or file.startswith(f"{h}/") for h in homes), f"{i}; its home is {homes}"


@pytest.mark.parametrize("path", sources("taskc", "cli", "models"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_import_inside_a_function(path: Path) -> None:
    """Except a heavy library in its home, and modules that are found by listing a folder (`import_module` of a variable)."""
    bad = [str(i) for i in imports(path) if i.inside and i.module.split(".")[0] not in LAZY]
    bad = [b for b in bad if "onnxruntime.capi" not in b]
    assert not bad, "\n".join(bad)


def test_the_loader_stands_alone() -> None:
    """It is copied beside each library: the standard library and NumPy only."""
    foreign = {i.module.split(".")[0] for i in imports(ROOT / "taskc/artifact/loader.py")}
    assert not foreign & {"taskc", "onnx", "cuda", "pycuda", "click", "rich"} and "numpy" in foreign


def test_no_top_level_package_called_cli() -> None:
    """`cli/` is installed as taskc_cli: a package called cli would be everybody's."""
    bad = [str(i) for p in sources("taskc", "cli") for i in imports(p) if i.module.split(".")[0] == "cli"]
    assert not bad, "\n".join(bad)


# ---- the test itself can fail ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "found"), [
    ("import taskc.compile", [("taskc.compile", False)]),
    ("def f():\n    from taskc.tune import choose", [("taskc.tune.choose", True)]),
    ("from importlib import import_module\nx = import_module('onnx')", [("importlib.import_module", False), ("onnx", True)]),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onnx", [("typing.TYPE_CHECKING", False)]),
])  # fmt: skip
def test_reading_imports(tmp_path: Path, text: str, found: list[tuple[str, bool]]) -> None:
    (tmp_path / "m.py").write_text(text)
    assert [(i.module, i.inside) for i in imports(tmp_path / "m.py")] == found


def test_rules_refuse() -> None:
    assert why_not("taskc.ir", "taskc.ops") and why_not("taskc.schedules", "taskc.tune") and why_not("taskc.compile", "cli")
    assert why_not("cli", "taskc.compile") is None and why_not("taskc.tune", "taskc.schedules") is None
