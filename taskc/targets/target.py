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
class MmaCosts:
    """What tensor-core kernels cost on a device, fitted to whole schedule spaces measured on it (docs/experiments.md).

    Seconds, but for the first three: a warp reaches `efficiency` + `reuse_gain` * (its tile's reuse) of the rate, at most all of
    it, and a multiprocessor its full rate from `full_warps` warps on; `l2_share` scales the rate of operand traffic."""

    efficiency: float
    reuse_gain: float
    full_warps: float
    l2_share: float
    latency: float  # of a load; divided by the tiles in flight
    register_latency: float  # of a k step whose operands go through registers
    step: float  # barriers and addressing of a k step of 64
    step_per_k: float  # the part of it that grows with the depth of the k tile
    block: float  # start and end of a block
    store: float  # a 64 x 64 tile of results
    fill: float  # each tile of the ring before the first product
    split: float  # partial sums: a fixed part,
    split_traffic: float  # their traffic as a multiple of bytes over the L2 rate,
    split_sum: float  # and the last block's reading, likewise over one multiprocessor's share
    float_rate: float  # FLOP/s of float32 products taken as three TF32 ones, splitting included,
    float_full_warps: float  # reached from this many warps on,
    float_efficiency: float  # and this share of it by the smallest warp tiles


@dataclass(frozen=True)
class CoreCosts:
    """What products on CUDA cores cost: tiled (`matmul_simt`), and with few rows (`matmul_gemv`). Fitted like `MmaCosts`."""

    arithmetic: float  # multiple of the time at the peak rate
    shared: float  # of it again, for each operand read a multiply-add
    register_latency: float  # of a k step through registers
    latency: float  # of a load, divided by the tiles in flight
    step: float
    split: float
    split_sum: float
    row_memory: float  # few rows: multiple of the time of reading the second operand once
    row_arithmetic: float
    row_full_warps: float
    row_loads: float  # of one row's element by a warp
    row_block: float
    row_split: float


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
    mma: MmaCosts
    cores: CoreCosts
    spread_blocks: bool = False  # whether small grids take shared memory for an even share of blocks (measured to pay)


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
