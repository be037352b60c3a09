"""What a schedule may rely on: an architecture's facts and instructions, and a device's sizes and speeds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """`instructions` names what the architecture has: 'mma_f16', 'mma_bf16', 'mma_tf32', 'cp_async', 'pdl', 'cluster', 'wgmma'."""

    name: str  # as the compiler takes it: 'sm_90a'
    instructions: frozenset[str]
    max_shared_bytes: int  # of a block
    shared_bytes_per_sm: int
    registers_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int


@dataclass(frozen=True)
class Device:
    """A product. Rates: bytes/s of memory and of L2, FLOP/s of float32 FMA and of dense float16 tensor cores (`mma.sync`)."""

    name: str
    architecture: Architecture
    multiprocessors: int
    memory_rate: float
    l2_rate: float
    l2_bytes: int
    fp32_rate: float
    mma_f16_rate: float
    launch_seconds: float  # a dependent kernel in a graph


@dataclass(frozen=True)
class Target:
    """What a library is compiled for: an architecture and the device its schedules are ranked for."""

    name: str
    device: Device

    @property
    def architecture(self) -> Architecture:
        return self.device.architecture

    def has(self, instruction: str) -> bool:
        return instruction in self.architecture.instructions

    @property
    def is_host(self) -> bool:
        return self.name == "host"
