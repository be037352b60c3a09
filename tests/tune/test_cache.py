"""The cache file: what is written comes back, and nothing that is wrong with it stops a compile."""

from __future__ import annotations

import json
import multiprocessing as mp
from dataclasses import replace
from pathlib import Path

import pytest

from taskc.tune.cache import FILE, Cache, parse
from tests.tune.tune_support import entry


def opened(folder: Path) -> tuple[Cache, list[str]]:
    warnings: list[str] = []
    return Cache(folder, warnings.append), warnings


def test_round_trip(tmp_path: Path) -> None:
    entries = [entry("k1"), replace(entry("k2"), best=None, kernel="", measured=()), replace(entry("k3"), complete=False, nodes="façade\u2028\n")]
    cache, _ = opened(tmp_path / "new" / "folder")
    for e in entries:
        cache.add(e)
    again, warnings = opened(tmp_path / "new" / "folder")
    assert list(again.entries.values()) == entries == list(cache.entries.values()) and not warnings
    assert again.find("k2") == entries[1] and again.find("other") is None


def test_last_entry_wins(tmp_path: Path) -> None:
    cache, _ = opened(tmp_path)
    cache.add(entry(us=1.0))
    cache.add(entry(us=7.0))
    assert opened(tmp_path)[0].entries["k1"].best == entry(us=7.0).best


def test_files_merge_with_cat(tmp_path: Path) -> None:
    for name, e in (("a", entry("k1", 1.0)), ("b", entry("k2", 2.0)), ("c", entry("k1", 3.0))):
        opened(tmp_path / name)[0].add(e)
    (tmp_path / FILE).write_bytes(b"".join((tmp_path / n / FILE).read_bytes() for n in "abc"))
    merged, warnings = opened(tmp_path)
    assert {k: e.best.us for k, e in merged.entries.items() if e.best} == {"k1": 3.0, "k2": 2.0} and not warnings


GOOD = json.loads(json.dumps({"key": "k", "problem": "p", "target": "t", "device": "d", "nodes": "n", "kernel": "h", "toolchain": "c",
                              "best": {"template": "a", "schedule": "b", "us": 1.5}, "measured": [], "failed": []}))


@pytest.mark.parametrize("line", [
    "garbage", "[1, 2]", "{}", "null", "\x00\x01", "[" * 100_000, json.dumps(GOOD)[:-30], json.dumps({**GOOD, "best": 3}),
    json.dumps({**GOOD, "best": {"template": "a", "schedule": "b", "us": "fast"}}), json.dumps({**GOOD, "best": {"template": "a", "schedule": "b", "us": -1}}),
    json.dumps({**GOOD, "best": {"template": "a", "schedule": "b", "us": float("nan")}}), json.dumps({**GOOD, "measured": 1}),
    json.dumps({**GOOD, "failed": [["a", "b"]]}), json.dumps({**GOOD, "key": 5}),
], ids=range(14))  # fmt: skip
def test_damaged_line(tmp_path: Path, line: str) -> None:
    cache, _ = opened(tmp_path)
    cache.add(entry("before"))
    with (tmp_path / FILE).open("a") as f:
        f.write(line + "\n")
    cache.add(entry("after"))
    again, warnings = opened(tmp_path)
    assert set(again.entries) == {"before", "after"}
    assert len(warnings) == 1 and str(tmp_path / FILE) in warnings[0] and "line 2" in warnings[0]


def test_the_good_line_is_good() -> None:
    assert parse(json.dumps(GOOD)).complete


def test_many_damaged_lines_are_one_warning(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("x\n" * 100 + "\n\n" + "y\n")
    _, warnings = opened(tmp_path)
    assert len(warnings) == 1 and "101 damaged" in warnings[0] and "line 1, 2, 3, 4, 5 …" in warnings[0]


def test_missing_newline_at_the_end(tmp_path: Path) -> None:
    """A line cut off by a crash does not swallow the next one."""
    cache, _ = opened(tmp_path)
    cache.add(entry("k1"))
    cache.add(entry("k2"))
    file = tmp_path / FILE
    file.write_bytes(file.read_bytes()[:-20])
    opened(tmp_path)[0].add(entry("k3"))
    again, warnings = opened(tmp_path)
    assert set(again.entries) == {"k1", "k3"} and "line 2" in warnings[0]
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    opened(tmp_path)[0].add(entry("k4"))
    assert set(opened(tmp_path)[0].entries) == {"k1", "k3", "k4"}


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    cache, warnings = opened(tmp_path)
    assert not cache.entries and len(warnings) == 1 and FILE in warnings[0]


def _append(folder: Path, name: str) -> None:
    cache = Cache(folder, lambda _: None)
    for i in range(60):
        cache.add(replace(entry(f"{name}{i}"), problem="long " * 3000))  # longer than a pipe's atomic write


def test_two_processes_append_at_once(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    both = [context.Process(target=_append, args=(tmp_path, name)) for name in "ab"]
    for p in both:
        p.start()
    for p in both:
        p.join(60)
    cache, warnings = opened(tmp_path)
    assert not warnings and set(cache.entries) == {f"{name}{i}" for name in "ab" for i in range(60)}
