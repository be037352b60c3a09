"""Zoo models compiled for the GPU present, with their reference outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.cases import Array, Case, make_files
from bench.report import target_here
from bench.side_prepare import run_reference
from taskc.artifact import loader
from taskc.compile import compile_model


def prepared(model: str, precision: str, folder: Path) -> Case:
    """The case with all its files and its library."""
    case = Case(model, precision, str(folder))
    made = make_files(case, run_reference)
    compile_model(made, case.path("model.so"), target_here())
    return case


def load(case: Case) -> Any:
    return loader.load(case.path("model.so"), device="cuda:0")


def on_gpu(arrays: dict[str, Array]) -> dict[str, Any]:
    """The arrays as torch tensors on the GPU."""
    import torch

    return {name: torch.from_numpy(a).cuda() for name, a in arrays.items()}
