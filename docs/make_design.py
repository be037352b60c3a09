"""Writes the dumps in docs/design.md anew, from the code as it is: `python -m docs.make_design` (`--check` only compares).

A dump stands between `<!-- dump NAME -->` and `<!-- end -->`. Those in `MACHINE` depend on the compilers installed (NVRTC, gcc);
all others are a function of this repository, and tests/test_docs.py fails when one of them is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.dumps import DUMPS, MACHINE

DESIGN = Path(__file__).parent / "design.md"
BLOCK = re.compile(r"(<!-- dump (\w+) -->\n```(\w+)\n)(.*?)(```\n<!-- end -->)", re.DOTALL)


def blocks(text: str) -> dict[str, str]:
    """The dumps that the text holds, by name."""
    return {m[2]: m[4] for m in BLOCK.finditer(text)}


def clean(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n"


def render(text: str, names: Sequence[str]) -> str:
    """The text with the named dumps written anew. KeyError for a block that no function makes."""
    return BLOCK.sub(lambda m: f"{m[1]}{clean(DUMPS[m[2]]())}{m[5]}" if m[2] in names else m[0], text)


def stale(text: str) -> list[str]:
    """The text's dumps that are not what the code makes now, without those that depend on the machine."""
    return [n for n, was in blocks(text).items() if n not in MACHINE and clean(DUMPS[n]()) != was]


def main(arguments: Sequence[str]) -> int:
    text = DESIGN.read_text()
    if "--check" in arguments:
        old = stale(text)
        print(f"out of date: {', '.join(old)}; run python -m docs.make_design" if old else "docs/design.md is up to date")
        return 1 if old else 0
    DESIGN.write_text(render(text, list(DUMPS)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
