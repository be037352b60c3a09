"""GPU architectures and devices as frozen records of facts, one architecture a file; `TARGETS` by name."""

from taskc.targets import host, sm_80, sm_90a
from taskc.targets.target import Architecture, Device, Target

TARGETS: dict[str, Target] = {t.TARGET.name: t.TARGET for t in (sm_80, sm_90a, host)}

__all__ = ["TARGETS", "Architecture", "Device", "Target"]
