"""taskc: compiles an ONNX model into one self-contained CUDA shared library and a small Python loader.

    taskc.compile_model("model.onnx", "model.so", target=("sm_90a", "host"))
    model = taskc.load("model.so")
    result = model.run({"x": array})

What is named here is imported at first use, so that `import taskc` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskc.artifact.loader import Model, ModelError, load
    from taskc.compile import Options, compile_model
    from taskc.errors import AccuracyError, BadModel, NoDevice, TaskcError, ToolchainError, Unsupported, Untuned, UsageError

__version__ = "0.1.0"

__all__ = [
    "AccuracyError", "BadModel", "Model", "ModelError", "NoDevice", "Options", "TaskcError", "ToolchainError", "Unsupported", "Untuned",
    "UsageError", "compile_model", "load",
]  # fmt: skip

_ERRORS = ("AccuracyError", "BadModel", "NoDevice", "TaskcError", "ToolchainError", "Unsupported", "Untuned", "UsageError")
_HOMES = {
    **dict.fromkeys(_ERRORS, "taskc.errors"),
    **dict.fromkeys(("Options", "compile_model"), "taskc.compile"),
    **dict.fromkeys(("Model", "ModelError", "load"), "taskc.artifact.loader"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'taskc' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
