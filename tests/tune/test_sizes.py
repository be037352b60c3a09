"""Sizes that schedules are ranked for: a model's symbols and what is derived from them fit together."""

from __future__ import annotations

import numpy as np
import pytest

from taskc.artifact.loader import _operand  # pyright: ignore[reportPrivateUsage]
from taskc.errors import NoDevice, ToolchainError, UsageError
from taskc.gpus import Gpu, Machine, gpu_for
from taskc.ir.dtype import BF16, F16, U16
from taskc.ir.expr import Var
from taskc.tune.choose import all_sizes, default_sizes
from taskc.tune.device import DeviceTensor, require_pycuda
from taskc.tune.processes import GpuMeasurer
from taskc.tune.trial import Operand

BATCH, LENGTH = Var("d_batch", 1), Var("d_length", 1, 512, 8)


def test_derived_sizes_follow() -> None:
    derived = {"d1": BATCH * LENGTH, "d2": (LENGTH + 6) // 2}
    sizes = all_sizes({v.name: v for v in (BATCH, LENGTH)}, derived, {"batch": 3, "length": 128})
    assert sizes == {"d_batch": 3, "d_length": 128, "d1": 384, "d2": 67}


def test_facts_hold() -> None:
    """A size inside the bounds, and a multiple of what the symbol is known to be."""
    symbols = {v.name: v for v in (BATCH, LENGTH, Var("small", 1, 20), Var("large", 100))}
    assert default_sizes(symbols, {}) == {"d_batch": 64, "d_length": 64, "small": 20, "large": 100}
    assert default_sizes(symbols, {"d_length": 13})["d_length"] == 16


def test_unknown_name() -> None:
    with pytest.raises(UsageError, match=r"--tune-for bach: .* it has batch, length"):
        all_sizes({v.name: v for v in (BATCH, LENGTH)}, {}, {"bach": 3})


# ---- the machine ----------------------------------------------------------------------------------------------------

H200, A100 = Gpu(0, "NVIDIA H200", (9, 0)), Gpu(1, "NVIDIA A100", (8, 0))


def test_the_gpu_that_fits() -> None:
    machine = Machine((13, 0), (H200, A100))
    assert gpu_for("sm_90a", machine) == H200 and gpu_for("sm_80", machine).ordinal == 1
    with pytest.raises(NoDevice, match=r"NVIDIA A100 \(sm_80\): use --target native"):
        gpu_for("sm_90a", Machine((13, 0), (A100,)))
    with pytest.raises(NoDevice, match=r"there is none here: the driver is missing. Run `taskc tune` on a machine") as e:
        gpu_for("sm_90a", Machine((0, 0), (), "the driver is missing"))
    assert e.value.exit_code == 8


def test_no_pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskc.tune.device.find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"pip install 'taskc-compiler\[gpu\]'") as e:
        require_pycuda()
    assert e.value.exit_code == 7


def test_measurer_without_gpu() -> None:
    """The reason travels from the measuring process: no pycuda, no driver or no such GPU."""
    with pytest.raises(NoDevice, match=r"nothing can be measured on GPU 99: .+; `taskc doctor`"):
        GpuMeasurer(99)


# ---- operands as the loader sees them -------------------------------------------------------------------------------


def test_bfloat16_operands_are_its_bits() -> None:
    """bfloat16 travels as uint16 through an interface that has no bfloat16; a uint16 input stays one."""
    number = {"bfloat16": 2, "uint16": 10, "float16": 1}
    bits = DeviceTensor(4096, Operand("t0_0", BF16, (3, 4), False))
    for wanted in ("bfloat16", "uint16"):
        o = _operand(bits, number[wanted], None)
        assert (o.pointer, o.on_device, o.dtype, o.dtype_name, o.shape) == (4096, True, number[wanted], wanted, (3, 4))
    assert _operand(DeviceTensor(4096, Operand("t0_0", U16, (3,), False)), number["float16"], None).dtype_name == "uint16"
    assert _operand(DeviceTensor(4096, Operand("t0_0", F16, (3,), False)), number["bfloat16"], None).dtype_name == "float16", "not taken for its bits"
    assert _operand(np.zeros(3, np.uint16), number["bfloat16"], None).dtype_name == "bfloat16"
