"""What every result file starts with, and writing it whole or not at all."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().split("\n")[0]


def gpu_query(fields: str) -> str:
    """nvidia-smi's answer for the first GPU; '' without one."""
    return _first_line(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])


def target_here() -> str:
    """The taskc target that fits the GPU present: 'sm_90a', 'sm_80', or 'host' without a GPU."""
    capability = gpu_query("compute_cap")
    if not capability:
        return "host"
    return "sm_90a" if capability == "9.0" else "sm_80"


def short_name() -> str:
    """The GPU's model as it goes into a file name, such as 'h200'; 'host' without a GPU."""
    return (gpu_query("name").removeprefix("NVIDIA ").split() or ["host"])[0].lower()


def heading(commit: str | None = None) -> dict[str, Any]:
    """Machine, driver, date and commit. The commit is what git says, or the argument where there is no repository."""
    gpu, _, driver = gpu_query("name,driver_version").partition(", ")
    return {
        "machine": f"{'one ' + gpu if gpu else 'no GPU'}, {os.cpu_count()} cores, {platform.machine()}",
        "driver": driver or None,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit or _first_line(["git", "describe", "--always", "--dirty"]) or None,
        "python": platform.python_version(),
    }


def unit_of(doc: str | None) -> str:
    """What a benchmark's columns mean: the third paragraph of its docstring, after the title and the command, on one line."""
    return " ".join((doc or "\n\n\n\n").split("\n\n")[2].split())


def write_json(path: Path, value: object) -> None:
    """Writes the file through a rename, so that a reader or an interrupt never meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(dumps(value) + "\n")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def dumps(value: object) -> str:
    """JSON with one line for each row of a list at the top level. No number that JSON lacks: infinity becomes null."""
    if not isinstance(value, dict):
        return json.dumps(_finite(value))
    lines: list[str] = []
    for key, v in _finite(value).items():
        if isinstance(v, list) and v:
            rows = ",\n  ".join(json.dumps(row) for row in v)
            lines.append(f" {json.dumps(key)}: [\n  {rows}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(v)}")
    return "{\n" + ",\n".join(lines) + "\n}"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Aligned text; `columns` maps a row's key to its format, such as '8.1f' or '<20'."""
    lines = [list(columns)]
    for row in rows:
        lines.append([_cell(row.get(key), form) for key, form in columns.items()])
    widths = [max(len(line[c]) for line in lines) for c in range(len(columns))]
    left = [form.startswith("<") for form in columns.values()]
    return "\n".join(
        "  ".join(t.ljust(w) if start else t.rjust(w) for t, w, start in zip(line, widths, left, strict=True)).rstrip() for line in lines
    )


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "-"
    return str(value) if form.startswith("<") or isinstance(value, (str, bool)) else format(value, form)
