"""Texts of options -> values; a wrong text is a usage error that shows the right form."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from taskc.errors import UsageError
from taskc.gpus import resolve_targets
from taskc.passes.precision import PRECISIONS

F = TypeVar("F", bound=Callable[..., Any])

_SHAPE = re.compile(r"(?:\d+|\?)(?:x(?:\d+|\?))*")


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int | None, ...]]:
    """`NAME:1x3x?x224` -> {NAME: (1, 3, None, 224)}. The name may hold colons."""
    out: dict[str, tuple[int | None, ...]] = {}
    for text in texts:
        name, _, dims = text.rpartition(":")
        if not name or not (dims == "" or _SHAPE.fullmatch(dims)):
            raise UsageError(f"--shape {text}: wanted NAME:1x3x224x224 (? leaves a dim as it is)")
        if name in out:
            raise UsageError(f"--shape {text}: {name!r} was given a shape before")
        out[name] = tuple(None if d == "?" else int(d) for d in dims.split("x") if d)
    return out


def parse_dims(texts: Sequence[str], option: str = "--dim") -> dict[str, int]:
    """`batch=4` -> {batch: 4}."""
    out: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise UsageError(f"{option} {text}: wanted NAME=SIZE, such as batch=1")
        if out.setdefault(name, int(size)) != int(size):
            raise UsageError(f"{option} {text}: {name!r} was given as {out[name]} before")
    return out


def parse_seconds(text: str | None, option: str) -> float | None:
    """`90s`, `2m`, `45` -> seconds; None stays None."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if not found:
        raise UsageError(f"{option} {text}: wanted a time such as 90s or 2m")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def parse_inputs(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=random` -> {NAME: random}; what the right side means is `taskc.feeds`' business."""
    out: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"--input {text}: wanted NAME=FILE.npy, NAME=random or NAME=1x3x224x224xf32=0")
        if name in out:
            raise UsageError(f"--input {text}: {name!r} was given before")
        out[name] = value
    return out


def parse_targets(text: str) -> tuple[str, ...]:
    """`sm_80,host` or `native` -> target names, checked by the compiler."""
    names = [t.strip() for t in text.split(",") if t.strip()]
    if not names:
        raise UsageError("--target: no target named; try --target sm_90a,host")
    return resolve_targets(names)


# ---- options that several commands share ----------------------------------------------------------------------------


def model_options(command: F) -> F:
    """--target, --shape, --dim of what reads an .onnx file."""
    command = click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Fix a symbolic dim, such as batch=1.")(command)
    return click.option("--shape", "shapes", multiple=True, metavar="NAME:DIMS", help="An input's shape, such as x:1x3x224x224.")(command)


def target_option(default: str = "sm_90a") -> Callable[[F], F]:
    """--target with its names."""
    return click.option("--target", default=default, show_default=True, metavar="LIST",
                        help="sm_80, sm_90a, host or native (the GPU here); several with commas.")


def precision_option(command: F) -> F:
    """--precision of what compiles or tunes."""
    return click.option("--precision", type=click.Choice(PRECISIONS), default="keep", show_default=True,
                        help="tf32: products of float32 may use TF32; fp16, bf16: float32 tensors are stored in 16 bits inside.")(command)


def feed_options(command: F) -> F:
    """--input, --dim, --seed, --device of what runs a library."""
    command = click.option("--device", metavar="DEVICE", help="cuda, cuda:N or host; without it the best there is.")(command)
    command = click.option("--seed", type=int, default=0, show_default=True, help="Of random inputs.")(command)
    command = click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="A symbolic dim of random inputs (else 1).")(command)
    return click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE",
                        help="FILE.npy, random, random:LOW:HIGH or 1x3x224x224xf32=0.")(command)


PATH = click.Path(path_type=Path)
