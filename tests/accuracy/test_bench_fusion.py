"""The fusion benchmark: what counts as traffic, as a view, as agreement; and its three libraries of one model, on the host."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.cases import Case
from bench.fusion import compare, counts, gains, measure, per_layer, show, traffic
from bench.side_fusion import agree, without_early_launches
from bench.side_fusion import measure as measure_libraries
from models import zoo
from taskc.artifact.plan import Image, Kernel, ModelPlan, TargetPlan
from taskc.compile import Options, read_groups
from taskc.ir.dtype import F16, F32, I64
from taskc.ir.task import Map, Store, axis
from taskc.ir.value import Tensor
from taskc.observe import Observer
from tests.tune.tune_support import product, sums


def test_traffic_of_tasks() -> None:
    weight, wide = 40 * 65 * 2, (33 * 40 + 40 * 65 + 33 * 65) * 2
    assert traffic(product(33, 65, 40).task, {}) == (wide, weight)
    assert traffic(product(33, 65, 40, constant=False).task, {}) == (wide, 0)
    assert traffic(sums(1000).task, {}) == (3 * 4000, 0)


def test_traffic_counts_only_what_is_read_and_written() -> None:
    """Ten elements of a table of 1000 go into a part of a tensor of 64."""
    i = axis("i", 10)
    table, out = Tensor("t", F32, (1000,), True), Tensor("y", F32, (64,))
    assert traffic(Map((i,), (Store(out, (i.var + 3,), table.at(i.var * 7)),)), {}) == (2 * 40, 40)


def chain() -> onnx.ModelProto:
    """relu(x @ w + b), reshaped and turned: three tasks that compute and two views."""
    rng = np.random.default_rng(1)
    w, b = (numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("w", (24, 40)), ("b", (40,))))
    shape = numpy_helper.from_array(np.array([16, 8, 5], np.int64), "shape")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["s"]), helper.make_node("Relu", ["s"], ["r"]),
             helper.make_node("Reshape", ["r", "shape"], ["v"]), helper.make_node("Transpose", ["v"], ["y"], perm=[1, 0, 2])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [16, 24]), ("y", [8, 16, 5])))
    return helper.make_model(helper.make_graph(nodes, "chain", [x], [y], [w, b, shape]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_kernels_and_bytes_before_and_after() -> None:
    row = compare(chain(), None)
    values = 16 * 40 * 4
    weights = (24 * 40 + 40) * 4
    assert (row["kernels_before"], row["views_before"], row["kernels"], row["views"]) == (5, 2, 1, 0)
    assert row["bytes"] == 16 * 24 * 4 + weights + values and row["weight_bytes"] == row["weight_bytes_before"] == weights
    assert row["bytes_before"] == row["bytes"] + 8 * values  # four tensors more are written and read again


def test_a_fused_front_is_the_default() -> None:
    assert counts(read_groups(chain(), Options(), Observer()))["kernels"] == 1


def test_kernels_of_a_layer() -> None:
    keys = ["norm"] * 25 + ["product"] * 12 + ["all but the last"] * 11 + ["first", "last"]
    assert per_layer(keys, 12) == 2 + 1 + 1


def test_gains() -> None:
    assert gains(100.0, 110.0, 250.0) == {"fusion_gain": 2.5, "pdl_gain": 1.1, "fusion_saved_us": 150.0}


def test_agreement() -> None:
    rng = np.random.default_rng(2)
    y = rng.standard_normal(50).astype(np.float32)
    near, far = y * np.float32(1 + 1e-6), y * np.float32(1.1)
    assert agree({"us": {"y": y}, "no_pdl_us": {"y": y.copy()}, "unfused_us": {"y": near}}, 2e-5)["right"]
    assert not agree({"us": {"y": y}, "no_pdl_us": {"y": y}, "unfused_us": {"y": far}}, 2e-5)["right"]
    assert not agree({"us": {"y": y}, "no_pdl_us": {"y": near}, "unfused_us": {"y": y}}, 2e-5)["right"]


def test_waiting_launches_change_flags_alone() -> None:
    kernels = (Kernel("k", 128, 0, pdl=True), Kernel("l", 64, 16))
    target = TargetPlan("sm_90a", (Image("cubin", "sm_90a", b"x"),), kernels, (), (), 0)
    plan = ModelPlan("m", (), (), (), (target,))
    changed = without_early_launches(plan)
    assert [k.pdl for k in changed.targets[0].kernels] == [False, False]
    assert changed.targets[0].images == target.images and plan.targets[0].kernels[0].pdl


def test_three_libraries_on_the_host(tmp_path: Path) -> None:
    case = Case("matmul_gelu", "fp32", str(tmp_path))
    case.path("").mkdir()
    case.path("model.onnx").write_bytes(zoo.build("matmul_gelu").SerializeToString())
    found = measure_libraries({"case": asdict(case), "target": "host", "cache": None, "count": 2})
    assert found["right"] and found["same_without_pdl"] and min(found[k] for k in ("us", "no_pdl_us", "unfused_us")) > 0


def test_a_model_that_fails_is_a_row(tmp_path: Path) -> None:
    row = measure(Case("no_such_model", "fp16", str(tmp_path)), None, {}, 60)
    assert row["model"] == "no_such_model" and row["error"]
    assert "no_such_model" in show([row])


@pytest.mark.parametrize("dtype", [F16, I64])
def test_bytes_follow_the_element_type(dtype: object) -> None:
    i = axis("i", 12)
    x, y = (Tensor(n, dtype, (12,)) for n in "xy")  # type: ignore[arg-type]
    assert traffic(Map((i,), (Store(y, (i.var,), x.at(i.var)),)), {})[0] == 2 * 12 * dtype.bytes  # type: ignore[attr-defined]
