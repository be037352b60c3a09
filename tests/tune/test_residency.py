"""How much shared memory launches ask for, so that their blocks spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from taskc.ir.expr import Index, Var
from taskc.ir.program import Program
from taskc.ops.matmul import MatMul
from taskc.targets import TARGETS
from taskc.tune.kernels import build_kernels
from taskc.tune.launches import make_launches
from taskc.tune.residency import FEW, spread
from tests.graphs import GraphBuilder, groups_of

H200 = TARGETS["sm_90a"]
SM = H200.device.multiprocessors
PER_SM = H200.device.architecture.shared_bytes_per_sm


def asked(blocks: Index, own: int = 1000, beside: bool = False, sizes: dict[str, int] | None = None, branches: int = 1) -> int:
    p = replace(Program("k", (blocks, 1, 1), 128, own), branches=branches)
    return spread(p, H200, sizes or {}, beside).shared_bytes


def residents(shared: int) -> int:
    """Blocks that a multiprocessor has room for, with the kilobyte that each costs."""
    return PER_SM // (shared + 1024)


@pytest.mark.parametrize("blocks", [1, SM - 1, SM, SM + 1, 2 * SM, 3 * SM + 1, 4 * SM])
@pytest.mark.parametrize("beside", [False, True])
def test_a_multiprocessor_holds_an_even_share(blocks: int, beside: bool) -> None:
    share = -(-blocks // SM)
    got = asked(blocks, beside=beside)
    assert residents(got) == share * (2 if beside else 1)
    assert got <= H200.device.architecture.max_shared_bytes


def test_what_needs_nothing_keeps_its_memory() -> None:
    assert asked(FEW * SM + 1) == 1000  # many blocks even out
    assert asked(1, own=200_000) == 200_000  # one fills the multiprocessor already
    assert asked(0) == 1000
    p = Program("k", (7, 1, 1), 128, 1000)
    assert spread(p, TARGETS["sm_80"], {}, False) is p  # not measured there, and not known which GPU runs it


def test_symbolic_grids_and_branches_count() -> None:
    n = Var("n", 1)
    assert residents(asked(n * 4, sizes={"n": 50})) == 2
    assert residents(asked(n, sizes={"n": 100}, branches=3)) == 3


def test_launches_side_by_side_leave_room_for_each_other() -> None:
    """A chain, then two products of different shapes side by side, then one that reads both."""
    rng = np.random.default_rng(5)
    b = GraphBuilder()

    def product(x: str, k: int, n: int) -> str:
        return b.add(MatMul(), x, b.constant(rng.standard_normal((k, n)).astype(np.float32)))

    first = product(b.input("x", (64, 96)), 96, 96)
    left, right = product(first, 96, 160), product(product(first, 96, 192), 192, 160)
    graph = b.graph(b.add(MatMul(transpose_b=True), left, right))
    groups, derived = groups_of(graph)
    assert not derived
    launches = make_launches(build_kernels(groups, H200, {}), H200, {})
    held = [residents(x.program.shared_bytes) for x in launches]
    assert len(launches) == 5
    assert held[0] == held[-1] == 1
    assert max(held[1:-1]) == 2
    assert make_launches(build_kernels(groups, H200, {}), H200, {}, branches=False)[0].program.shared_bytes == launches[0].program.shared_bytes
