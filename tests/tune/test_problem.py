"""A problem's key: equal for equal kernels, different for all that a time or a text depends on."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from taskc.fuse.units import Unit
from taskc.ir.dtype import BF16, F32
from taskc.ir.expr import Var
from taskc.ir.task import Contraction
from taskc.targets import TARGETS
from taskc.tune.kernels import build_kernel
from taskc.tune.problem import make_problem
from taskc.tune.tuner import problems_of
from tests.tune.tune_support import product, sums

SM_90A = TARGETS["sm_90a"]


def key(unit: Unit, target: str = "sm_90a", **sizes: int) -> str:
    return make_problem(unit, TARGETS[target], sizes).key


def test_layers_share_a_problem() -> None:
    first, second = product(source="layer0"), product(names=("h7", "weight_13", "out"), source="layer1")
    assert key(first) == key(second)
    assert [p.nodes for p in problems_of([first, second, product(m=34)], SM_90A, {})] == ["layer0", "matmul"]


@pytest.mark.parametrize("other", [product(dtype=F32), product(dtype=BF16), product(m=34), product(n=66), product(k=41), product(constant=False), sums()],
                         ids=["f32", "bf16", "m", "n", "k", "variable", "another"])
def test_what_differs(other: Unit) -> None:
    assert key(product()) != key(other)


def test_target_and_precision_differ() -> None:
    unit = product(dtype=F32)
    assert isinstance(unit.task, Contraction)
    assert len({key(unit), key(unit, "sm_80"), key(unit, "host"), key(replace(unit, task=replace(unit.task, precision="tf32")))}) == 4


def test_sizes_and_facts_of_symbols_differ() -> None:
    unit, aligned, bounded = (product(n=n) for n in (Var("d_batch", 1), Var("d_batch", 1, None, 8), Var("d_batch", 1, 512)))
    keys = [key(unit, d_batch=8), key(unit, d_batch=64), key(aligned, d_batch=64), key(bounded, d_batch=64)]
    assert len(set(keys)) == 4
    assert key(unit) == key(unit, d_batch=64), "the middling size is the default"
    assert key(unit, unrelated=5) == key(unit)
    texts = [build_kernel(u, SM_90A, {"d_batch": 64}).text for u in (unit, aligned)]
    assert texts[0] != texts[1], "this is why facts are part of the key"


PROGRAM = """
from taskc.ir.expr import Var
from taskc.targets import TARGETS
from taskc.tune.problem import make_problem
from tests.tune.tune_support import product, sums
for unit in (product(), product(m=Var("d_batch", 1)), sums()):
    print(make_problem(unit, TARGETS["sm_90a"], {}).key)
"""


def test_stable_across_processes() -> None:
    root = Path(__file__).resolve().parents[2]
    found = [subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=root,
                            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}).stdout.split() for seed in ("1", "77")]
    here = [key(product()), key(product(m=Var("d_batch", 1))), key(sums())]
    assert found[0] == found[1] == here
