"""Do the emitted kernels differ? A refactoring must show no difference.

    git stash; python -m bench.replay save /tmp/before; git stash pop; python -m bench.replay compare /tmp/before

The fixed set is the zoo's full models and the twin with symbolic dims, both types, for sm_90a. Exit code 5: something differs.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from models import zoo
from taskc.compile import Options, read_groups
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.kernels import build_kernels
from taskc.tune.launches import make_launches

MODELS = (*zoo.FULL, "bert_tiny_dyn")
SHOWN = 40  # lines of the first difference


def launches(model: str, half: bool, target: str) -> str:
    """Every launch's kernel text, in order; equal kernels once."""
    front = read_groups(zoo.build(model, half=half), Options(), Observer())
    seen: set[str] = set()
    parts: list[str] = []
    for x in make_launches(build_kernels(front.groups, TARGETS[target], front.sizes), TARGETS[target], front.sizes):
        choice = x.kernels[0].choice
        head = f"// {x.name}: {choice.template.NAME} {choice.schedule}\n"
        parts.append(head + (f"// as {x.symbol} before\n" if x.symbol in seen else x.text))
        seen.add(x.symbol)
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Emitted kernels of a fixed set of models, saved or compared.")
    parser.add_argument("what", choices=("save", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--target", default="sm_90a", choices=TARGETS)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    different = 0
    for model in args.models.split(","):
        for half in (True, False):
            file = args.folder / f"{model}-{'fp16' if half else 'fp32'}-{args.target}.cu"
            now = launches(model, half, args.target)
            if args.what == "save":
                file.write_text(now)
                continue
            before = file.read_text() if file.exists() else ""
            lines = list(difflib.unified_diff(before.splitlines(), now.splitlines(), "before", "now", lineterm="", n=1))
            print(f"{file.name}: {'the same' if not lines else f'{len(lines)} lines of difference'}", flush=True)
            if lines and not different:
                print("\n".join(lines[:SHOWN]))
            different += bool(lines)
    return 5 if different else 0


if __name__ == "__main__":
    sys.exit(main())
