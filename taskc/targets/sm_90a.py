"""Hopper (compute capability 9.0): H100 and H200 share the architecture, not their memory. Datasheets; H200 rates measured."""

from taskc.targets.target import Architecture, CoreCosts, Device, MmaCosts, Target

SM_90A = Architecture(
    name="sm_90a",
    instructions=frozenset({"mma_f16", "mma_bf16", "mma_tf32", "cp_async", "ldmatrix", "pdl", "cluster", "wgmma"}),
    max_shared_bytes=227 * 1024, shared_bytes_per_sm=228 * 1024, registers_per_sm=65536, max_threads_per_sm=2048, max_blocks_per_sm=32,
)
# Fitted to 34 float16 problems of ResNet-50, Inception-v3, MobileNet-v2 and BERT, each with its whole space, on an H200.
MMA = MmaCosts(
    efficiency=0.666, reuse_gain=1.489, full_warps=0.215, l2_share=3.71, latency=6.67e-7, register_latency=4.23e-7, step=7.1e-9, step_per_k=3.02,
    block=2.03e-6, store=6.28e-7, fill=8.7e-8, split=1.92e-6, split_traffic=0.0413, split_sum=1.10,
    float_rate=47.1e12, float_full_warps=22.7, float_efficiency=0.416,
)
CORES = CoreCosts(
    arithmetic=1.57, shared=3.71, register_latency=6.6e-7, latency=1.2e-8, step=1.59e-7, split=2.93e-6, split_sum=2.37,
    row_memory=0.723, row_arithmetic=1.18, row_full_warps=16.1, row_loads=4.37e-10, row_block=1.25e-6, row_split=4.66e-6,
)
H100 = Device("H100 SXM", SM_90A, 132, 3.1e12, 7e12, 50 << 20, 60e12, 620e12, 1.4e-6, MMA, CORES, True)
H200 = Device("H200", SM_90A, 132, 4.3e12, 7e12, 60 << 20, 60e12, 620e12, 1.4e-6, MMA, CORES, True)
TARGET = Target("sm_90a", H200)
