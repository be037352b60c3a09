"""The CPU that runs the same kernel text: threads are fibers, so the facts only bound what a schedule may ask for."""

from taskc.targets.sm_90a import CORES, MMA
from taskc.targets.target import Architecture, Device, Target

HOST = Architecture(
    name="host",
    instructions=frozenset({"mma_f16", "mma_bf16", "mma_tf32", "cp_async", "ldmatrix", "cluster"}),
    max_shared_bytes=227 * 1024, shared_bytes_per_sm=228 * 1024, registers_per_sm=65536, max_threads_per_sm=2048, max_blocks_per_sm=32,
)
CPU = Device("CPU", HOST, 2, 1e10, 2e10, 1 << 25, 2e9, 2e9, 1e-5, MMA, CORES)
TARGET = Target("host", CPU)
