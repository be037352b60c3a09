"""The payload: the C header, expressions against Python integers, inconsistent plans, version and damage."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taskc.artifact import loader
from taskc.artifact.c_header import HEADER_PATH, c_header
from taskc.artifact.format import seal, serialize
from taskc.artifact.layout import size_of
from taskc.artifact.plan import Copy, ModelPlan, Port, Symbol, TargetPlan
from taskc.artifact.records import VERSION, Header
from taskc.ir.arithmetic import maximum, minimum
from taskc.ir.dtype import F32
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index, Var
from tests.artifact.artifact_plans import affine_plan, host_code, symbolic_plan
from tests.artifact.artifact_process import python

Write = Callable[..., Path]


def test_header_is_up_to_date() -> None:
    assert HEADER_PATH.read_text() == c_header(), "run `python -m taskc.artifact.c_header`"


def random_index(rng: np.random.Generator, symbols: list[Var], depth: int) -> Index:
    if depth == 0 or rng.random() < 0.15:
        return symbols[rng.integers(len(symbols))] if rng.random() < 0.7 else int(rng.integers(-9, 40))
    a, b = random_index(rng, symbols, depth - 1), random_index(rng, symbols, depth - 1)
    kind = rng.integers(7)
    if kind < 2:
        return a + b
    if kind == 2:
        return a - b * 3
    if kind == 3:
        return a * b
    divisor = maximum(b, 1) if rng.random() < 0.5 else int(rng.integers(1, 12))
    return [a // divisor, a % divisor, minimum(a, b)][kind - 4]


def bare_plan(symbols: list[Var], outputs: list[Index]) -> ModelPlan:
    """No steps; input dims are the symbols, each output has one dim."""
    target = TargetPlan("host", host_code().images, (), (), (), 0)
    given = tuple(Symbol(s.name, 0, i, 0) for i, s in enumerate(symbols))
    ports = tuple(Port(f"y{i}", F32, (e,)) for i, e in enumerate(outputs))
    return ModelPlan("bare", given, (Port("x", F32, tuple(symbols)),), ports, (target,))


def test_expressions_match_python(library: Write) -> None:
    rng = np.random.default_rng(11)
    symbols = [Var("P", lo=0), Var("Q", lo=0), Var("R", lo=0)]
    found = [random_index(rng, symbols, int(rng.integers(1, 6))) for _ in range(400)]
    clipped = [minimum(maximum(e, 0), 100_000) for e in found] + [minimum(maximum(-1 * e, 0), 100_000) for e in found]
    outputs: list[Index] = [e for e in clipped if not isinstance(e, int)]
    assert len(outputs) > 300
    model = loader.load(library(bare_plan(symbols, outputs)), "host")
    seen: set[int] = set()
    for _ in range(12):
        values = {s.name: int(rng.integers(0, 60)) for s in symbols}
        result = model.run({"x": np.zeros(tuple(values.values()), np.float32)})
        for i, e in enumerate(outputs):
            assert result[f"y{i}"].shape == (evaluate(e, values),), (e, values)
            seen.add(evaluate(e, values))
    assert len(seen) > 100, "the expressions are too alike to test anything"


def test_overflow_and_division_by_zero_are_messages(library: Write) -> None:
    p, q = Var("P", lo=0), Var("Q", lo=0)
    huge: Index = 1
    for _ in range(11):
        huge = huge * p
    model = loader.load(library(bare_plan([p, q], [minimum(huge, 7)])), "host")
    with pytest.raises(loader.ModelError, match="output 'y0': a size overflows 64 bits"):
        model.run({"x": np.zeros((999_999, 0), np.float32)})
    assert model.run({"x": np.zeros((3, 0), np.float32)})["y0"].shape == (7,)
    model = loader.load(library(bare_plan([p, q], [p // q])), "host")
    with pytest.raises(loader.ModelError, match="output 'y0': a size divides by 0"):
        model.run({"x": np.zeros((3, 0), np.float32)})
    assert model.run({"x": np.zeros((5, 2), np.float32)})["y0"].shape == (2,)
    model = loader.load(library(bare_plan([p, q], [p - q])), "host")
    with pytest.raises(loader.ModelError, match=r"output 'y0' would be float32\[-2\]"):
        model.run({"x": np.zeros((1, 3), np.float32)})


def test_inconsistent_plans_are_refused() -> None:
    plan = affine_plan(host_code())
    target = plan.targets[0]
    launch, scale = target.steps
    cases: list[tuple[str, ModelPlan]] = [
        (
            "predecessor 1 is not below 1",
            replace(plan, targets=(replace(target, steps=(launch, replace(scale, after=(1,)))),)),
        ),
        ("source 9 is not below", replace(plan, targets=(replace(target, steps=(Copy(9, 2, 4),)),))),
        ("two inputs of one name", replace(plan, inputs=(plan.inputs[0], plan.inputs[0]))),
        ("no symbol of the plan", replace(plan, outputs=(Port("y", F32, (Var("M"),)),))),
        ("weights overlap", replace(plan, weights=((0, b"1234"), (2, b"12")))),
        ("is dim 0 of input 'a', but that dim is 3", replace(plan, symbols=(Symbol("N", 0, 0),))),
        ("does not fit 64 bits", replace(plan, outputs=(Port("y", F32, (2**63,)),))),
        ("a plan without a target", replace(plan, targets=())),
    ]  # fmt: skip
    for message, bad in cases:
        with pytest.raises(ValueError, match=re.escape(message)):
            serialize(bad)


def payload_place(library: bytes) -> tuple[int, int]:
    """(offset of the payload in the file, bytes of its head)."""
    start = library.index(b"TASKCMDL" + VERSION.to_bytes(4, "little"))
    return start, int.from_bytes(library[start + 24 : start + 32], "little")


def test_another_version_is_named(library: Write) -> None:
    path = library(affine_plan(host_code()))
    data = bytearray(path.read_bytes())
    start, _ = payload_place(data)
    data[start + 8] = 77
    path.write_bytes(data)
    with pytest.raises(loader.ModelError, match=f"format version 77, its runtime reads version {VERSION}") as e:
        loader.load(path, "host")
    assert e.value.exit_code == 3


def test_truncated_files(library: Write, tmp_path: Path) -> None:
    whole = library(affine_plan(host_code(), weights=np.ones(50_000, np.float32), cols=50_000)).read_bytes()
    cut = tmp_path / "cut.so"
    for size in (0, 10, 63, 100, 5000, len(whole) // 2, len(whole) - 60_000):
        cut.write_bytes(whole[:size])
        with pytest.raises(loader.ModelError, match=r"truncated|not a model library|does not load"):
            loader.load(cut, "host")
    with pytest.raises(loader.ModelError, match="cannot read"):
        loader.load(tmp_path / "absent.so")
    cut.write_bytes(b"PK\3\4" + bytes(200))
    with pytest.raises(loader.ModelError, match="not a model library"):
        loader.load(cut)


FLIP = """
import ctypes, sys, numpy as np
from pathlib import Path
from taskc.artifact import loader
from taskc.artifact.format import seal
path, resealed = Path(sys.argv[1]), sys.argv[2] == "sealed"
start, head, first, count = (int(a) for a in sys.argv[3:7])
whole = path.read_bytes()
outcomes = {}
for seed in range(first, first + count):
    rng = np.random.default_rng(seed)
    data = bytearray(whole)
    for _ in range(rng.integers(1, 4)):
        at = start + int(rng.integers(16 if resealed else 0, head))
        data[at] = rng.integers(256) if rng.random() < 0.5 else data[at] ^ (1 << rng.integers(8))
    if resealed:
        data[start : start + head] = seal(bytearray(data[start : start + head]))
    bad = path.with_name(f"bad{seed}.so")
    bad.write_bytes(data)
    try:
        loader.describe(bad)
        model = loader.load(bad, "host")
        shapes = [tuple(d if isinstance(d, int) else 3 for d in i.shape) for i in model.inputs]
        if sum(int(np.prod([max(d, 0) for d in s], dtype=float)) for s in shapes) < 1e6:
            types = [i.dtype.replace("bfloat16", "uint16") for i in model.inputs]
            feed = {i.name: np.zeros(s, t) for i, s, t in zip(model.inputs, shapes, types)}
            model.bind(feed)  # checks every size and offset; running would hand wrong numbers to right kernels
        outcome = "fine"
    except (loader.ModelError, ValueError, MemoryError) as e:
        outcome = "checksum" if "check sum" in str(e) else type(e).__name__
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
    bad.unlink()
print(outcomes)
"""


@pytest.mark.parametrize("mode", ["raw", "sealed"])
def test_flipped_bytes_never_crash(library: Write, mode: str) -> None:
    """With the check sum in place nearly all damage is seen at once; resealed, every other check has to hold."""
    path = library(symbolic_plan(host_code()))
    start, _ = payload_place(path.read_bytes())
    head = len(serialize(symbolic_plan(host_code())).pieces[0][1])
    done = python(FLIP, str(path), mode, str(start), str(head), "0", "300")
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    outcomes = eval(done.stdout)
    assert sum(outcomes.values()) == 300
    if mode == "raw":
        assert outcomes.get("checksum", 0) > 200 and "fine" not in outcomes
    else:
        assert outcomes.get("ModelError", 0) > 60 and outcomes.get("checksum", 0) < 10  # a hit on the head's size


def test_seal_is_what_the_serializer_writes() -> None:
    head = serialize(affine_plan(host_code())).pieces[0][1]
    assert seal(bytearray(head)) == bytes(head) and len(head) > size_of(Header)
