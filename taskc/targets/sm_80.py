"""Ampere (compute capability 8.0): A100. CUDA C++ Programming Guide, table of technical specifications; A100 datasheet."""

from taskc.targets.sm_90a import CORES, MMA
from taskc.targets.target import Architecture, Device, Target

SM_80 = Architecture(
    name="sm_80",
    instructions=frozenset({"mma_f16", "mma_bf16", "mma_tf32", "cp_async", "ldmatrix"}),
    max_shared_bytes=163 * 1024, shared_bytes_per_sm=164 * 1024, registers_per_sm=65536, max_threads_per_sm=2048, max_blocks_per_sm=32,
)
# The costs are Hopper's: nobody has measured an A100 for taskc yet.
A100 = Device("A100 SXM", SM_80, 108, 1.9e12, 5e12, 40 << 20, 19.5e12, 312e12, 2.5e-6, MMA, CORES)
TARGET = Target("sm_80", A100)
