"""Hopper (compute capability 9.0): H100 and H200 share the architecture, not their memory. Datasheets; H200 rates measured."""

from taskc.targets.target import Architecture, Device, Target

SM_90A = Architecture(
    name="sm_90a",
    instructions=frozenset({"mma_f16", "mma_bf16", "mma_tf32", "cp_async", "ldmatrix", "pdl", "cluster", "wgmma"}),
    max_shared_bytes=227 * 1024, shared_bytes_per_sm=228 * 1024, registers_per_sm=65536, max_threads_per_sm=2048, max_blocks_per_sm=32,
)
H100 = Device("H100 SXM", SM_90A, 132, 3.1e12, 7e12, 50 << 20, 60e12, 620e12, 1.4e-6)
H200 = Device("H200", SM_90A, 132, 4.3e12, 7e12, 60 << 20, 60e12, 620e12, 1.4e-6)
TARGET = Target("sm_90a", H200)
