"""The documentation is true: dumps in design.md are what the code makes now, links lead somewhere, commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from cli.main import taskc
from docs.dumps import DUMPS, MACHINE
from docs.make_design import DESIGN, blocks, clean, render, stale
from taskc.ops.registry import find_reader, load_operators

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [p.relative_to(ROOT).as_posix() for p in PAGES]


@pytest.mark.parametrize("name", sorted(DUMPS.keys() - MACHINE))
def test_dumps_of_the_design_are_up_to_date(name: str) -> None:
    assert clean(DUMPS[name]()) == blocks(DESIGN.read_text())[name], "run python -m docs.make_design and read what changed"


def test_every_dump_is_shown_once() -> None:
    shown = re.findall(r"<!-- dump (\w+) -->", DESIGN.read_text())
    assert sorted(shown) == sorted(DUMPS) and all(blocks(DESIGN.read_text())[n].strip() for n in shown)


def test_a_changed_dump_is_seen_and_renewed() -> None:
    text = DESIGN.read_text()
    changed = text.replace("x/moved, weight/moved)", "x/moved, other)")
    assert changed != text and "graph_after" in stale(changed)
    assert render(changed, ["graph_after"]) == text


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not link.startswith("http") and not (page.parent / link).exists()]
    assert not missing, f"{page.name}: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_and_their_options_exist(page: Path) -> None:
    """`taskc WORD --option …` in code: the command and every option of it."""
    problems: list[str] = []
    for word, rest in re.findall(r"(?:^|[`(\s])taskc ([a-z]+)((?: [^`#\n]*)?)", _code(page.read_text())):
        command = taskc.commands.get(word)
        if command is None:
            problems.append(f"taskc {word}")
            continue
        known = {o for c in _commands(command) for p in c.params for o in p.opts}
        problems += [f"taskc {word} {o}" for o in re.findall(r"(?<!\S)(--[a-z-]+)", rest) if o not in known]
    assert not problems, problems


def _commands(c: click.Command) -> list[click.Command]:
    return [c, *c.commands.values()] if isinstance(c, click.Group) else [c]


def _code(text: str) -> str:
    fenced = re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return "\n".join([*fenced, *inline])


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for p in PAGES for t in re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)", _code(p.read_text()))}
    assert named and named <= targets, named - targets


# ---- the README's list of what is refused -----------------------------------------------------------------------------


class _Refused(Exception):
    pass


class _Node:
    """As much of a node as an operator that is always refused looks at."""

    opset = 23

    def __init__(self, op_type: str) -> None:
        self.op_type = op_type
        self.inputs = ("x",)

    def unsupported(self, reason: str) -> None:
        raise _Refused(reason)

    def contents(self, value: str) -> None:
        """Nothing is known of any value."""


def refused(op_type: str) -> bool:
    reader = find_reader(op_type, _Node.opset)
    if reader is None:
        return True
    try:
        reader(_Node(op_type))  # type: ignore[arg-type]
    except _Refused:
        return True
    except AttributeError:  # it looks at the node: it may well take it
        return False
    return False


def test_what_the_readme_refuses_is_refused() -> None:
    load_operators()
    limits = (ROOT / "README.md").read_text().split("- Refused:")[1].split("\n- ")[0]
    named = re.findall(r"`([A-Z]\w+)`", limits)
    assert len(named) > 10 and not [n for n in named if not refused(n)], "the README refuses more than the code does"
    assert not refused("Conv") and not refused("Einsum")
