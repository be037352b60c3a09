"""bench.launching: each policy changes what its name says, and nothing else."""

from __future__ import annotations

from pathlib import Path

from bench.cases import Case, build
from bench.side_launching import NAMES, POLICIES, handle
from models import zoo
from taskc.compile import Options, read_groups
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.kernels import TRIGGER, build_kernels
from taskc.tune.launches import BuiltLaunch, make_launches

TARGET = TARGETS["sm_90a"]


def launches(policy: str, half: bool = False) -> list[BuiltLaunch]:
    front = read_groups(zoo.build("inception_tiny", half=half), Options(), Observer())
    with POLICIES[policy]():
        return make_launches(build_kernels(front.groups, TARGET, front.sizes), TARGET, front.sizes)


def test_policies_change_what_they_say() -> None:
    found = {name: launches(name) for name in POLICIES}
    usual = found["us"]
    trigger = f"{TRIGGER.intrinsic}();"
    assert all(trigger in x.text for x in usual)
    for name, texts in found.items():
        bare = [x.text.replace(trigger, "").replace(x.symbol, "").split() for x in texts]
        assert bare == [x.text.replace(trigger, "").replace(x.symbol, "").split() for x in usual], name
    assert not any(trigger in x.text for x in found["never_us"])
    assert all(x.text.index(trigger) < x.text.index("grid_dependency_wait();") for x in found["at_once_us"])
    for half in (False, True):
        at = [(x.text.index(trigger), x.text.index("grid_dependency_wait();")) for x in launches("us", half)]
        assert all(a < b for a, b in at) if half else all(a > b for a, b in at)
    assert [x.text for x in launches("late_us", half=True)] != [x.text for x in launches("us", half=True)]
    asked = {name: [x.program.shared_bytes for x in found[name]] for name in found}
    assert asked["us"] == asked["never_us"] == asked["at_once_us"] == asked["late_us"]
    assert all(a <= b <= c for a, b, c in zip(*(asked[n] for n in ("no_shares_us", "two_shares_us", "one_share_us")), strict=True))
    assert len({tuple(a) for a in asked.values()}) == 4


def test_libraries_agree(tmp_path: Path) -> None:
    case = Case("matmul_gelu", "fp32", str(tmp_path))
    case.path("").mkdir()
    case.path("model.onnx").write_bytes(build(case).SerializeToString())
    common = {"case": {"model": case.model, "precision": case.precision, "folder": case.folder}, "target": "host", "cache": None}
    for name in NAMES:
        assert handle({**common, "do": "build", "policy": name})["launches"]
    row = handle({**common, "do": "measure", "count": 2})
    assert row["same"] is True and all(row[name] > 0 for name in NAMES)
