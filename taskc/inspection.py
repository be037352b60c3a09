"""What is in a library, without a GPU: targets, code images, kernels, launches, memory."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taskc.artifact import loader


@dataclass(frozen=True)
class KernelFacts:
    """`threads` of a block, `registers` of a thread, bytes spilled by a thread, shared memory of a block; `ports` tells
    the width of each global access; `launches` counts its uses in a run."""

    symbol: str
    threads: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    ports: str
    launches: int


@dataclass(frozen=True)
class TargetFacts:
    """One target of the library. `arena_bytes` is None where it depends on symbolic dims."""

    name: str
    images: tuple[str, ...]
    image_bytes: int
    kernels: tuple[KernelFacts, ...]
    steps: int
    launches: tuple[str, ...]
    arena_bytes: int | None


@dataclass(frozen=True)
class LibraryFacts:
    """A whole library; sizes in bytes."""

    name: str
    metadata: dict[str, Any]
    format_version: int
    file_bytes: int
    weights_bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    targets: tuple[TargetFacts, ...]

    def as_json(self) -> str:
        """Every field, as JSON text."""
        return json.dumps(asdict(self), indent=2)


def inspect_library(path: Path) -> LibraryFacts:
    """Reads a library. The loader's ModelError says what a wrong file is."""
    found = loader.describe(path)
    return LibraryFacts(
        found["name"], json.loads(found["metadata"] or "{}"), found["format_version"], path.stat().st_size, found["weights_bytes"],
        tuple(f"{t.name}: {t}" for t in found["inputs"]), tuple(f"{t.name}: {t}" for t in found["outputs"]),
        tuple(_target(t) for t in found["targets"]),
    )  # fmt: skip


def _target(found: dict[str, Any]) -> TargetFacts:
    launches = [s for s in found["steps"] if s["kind"] == "launch"]
    uses = Counter(s["kernel"] for s in launches)
    kernels = tuple(
        KernelFacts(k["symbol"], k["threads"], k["registers"], k["spill_bytes"], k["shared_bytes"], k["notes"], uses[n])
        for n, k in enumerate(found["kernels"])
    )
    images = Counter(f"{i['kind']} {i['arch']}" if i["kind"] != i["arch"] else i["kind"] for i in found["images"])
    arena = found["arena_bytes"]
    return TargetFacts(
        found["name"], tuple(f"{n} x {name}" if n > 1 else name for name, n in images.items()), sum(i["bytes"] for i in found["images"]),
        kernels, len(found["steps"]), tuple(s["name"] for s in launches), None if arena < 0 else arena,
    )  # fmt: skip
