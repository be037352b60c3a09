"""acc[b, m, n] = sum over k of a * b on tensor cores (mma.sync): one template for any size and any fusion.

A block computes a bm x bn tile, its warps wm x wn each; operands arrive in bk-wide tiles through a ring of `stages` shared
buffers. With split > 1 several blocks share a tile's k range: each leaves its partial sums in float32, and the last to arrive
adds them in a fixed order and runs the stores.

float32 operands are multiplied as TF32 where the task allows it. Where it does not, each is split into two TF32 numbers and three
products are taken; the sums of every 8 steps of k start at zero and join the accumulators by float32 additions, because the
matrix unit truncates when it adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskc.ir.dtype import BF16, F16, F32, U32, DType
from taskc.ir.expr import Index
from taskc.ir.mapping import LDMATRIX_ROW, MMA_M16N8_C, padded, repeat, spatial, swizzled
from taskc.ir.program import Buffer, Pointer, Program, VectorLoad, VectorStore
from taskc.ir.task import Contraction, Task
from taskc.schedules.contraction import ContractionKernel, SharedTile, Tiling, add_to, fill
from taskc.schedules.loads import lies_along
from taskc.schedules.template import Traits, concrete
from taskc.targets.target import Target

NAME = "matmul_mma"
INSTRUCTION = {F16: "mma_m16n8k16_f16", BF16: "mma_m16n8k16_bf16", F32: "mma_m16n8k8_tf32"}
FEATURE = {F16: "mma_f16", BF16: "mma_bf16", F32: "mma_tf32"}


@dataclass(frozen=True)
class Schedule:
    """Tile of a block (bm, bn, bk) and of a warp (wm, wn), ring length, how operands travel, blocks along k."""

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    stages: int
    copy: str  # 'async' or 'register'
    split: int = 1

    @property
    def warps(self) -> tuple[int, int]:
        return self.bm // self.wm, self.bn // self.wn

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    def shared_bytes(self, operand: DType) -> int:
        """Of the ring, or of the results that take its place."""
        pads = 16 if operand == F32 else 0
        return max(self.stages * self.bk * (self.bm + self.bn + pads) * operand.bytes, self.bm * (self.bn + 4) * 4)

    def __str__(self) -> str:
        split = f" split{self.split}" if self.split > 1 else ""
        return f"{self.bm}x{self.bn}x{self.bk} warp {self.wm}x{self.wn} {self.copy}{self.stages}{split}"


_LARGE = ((256, 128, 64, 64), (128, 256, 64, 64), (128, 128, 64, 64), (128, 128, 64, 32))
_SMALL = (
    (128, 64, 64, 32), (64, 128, 32, 64), (128, 64, 32, 32), (64, 64, 32, 32), (64, 64, 32, 16), (64, 32, 32, 16), (32, 64, 16, 32),
    (32, 32, 16, 16), (16, 64, 16, 16), (16, 128, 16, 32),
)
# Bytes in flight hide the memory's latency: small tiles want long rings or deep k tiles, large ones have enough with three.
_RINGS = {"large": ((32, 4), (64, 3), (64, 4)), "small": ((32, 4), (64, 3), (64, 4), (64, 6))}


def space(target: Target, traits: Traits) -> tuple[Schedule, ...]:
    """Every legal schedule; the same for every size. Through registers only where nothing can be copied as it lies."""
    if traits.operand not in INSTRUCTION:
        return ()
    half = 2 if traits.operand == F32 else 1
    found = [Schedule(*tile[:2], bk // half, *tile[2:], stages, "async") for tile in _LARGE for bk, stages in _RINGS["large"]]
    found += [Schedule(*tile[:2], bk // half, *tile[2:], stages, "async", split)
              for tile in _SMALL for bk, stages in _RINGS["small"] for split in (1, 2, 4, 8)]
    found += [Schedule(*tile[:2], 32 // half, *tile[2:], 2, "register", split) for tile in (*_LARGE[2:], *_SMALL[2:]) for split in (1, 4)]
    return tuple(s for s in found if illegal(s, target, traits.operand, traits.precision) is None)


def illegal(s: Schedule, target: Target, operand: DType = F16, precision: str = "native") -> str | None:
    """Why the schedule cannot be, or None."""
    if s.shared_bytes(operand) > target.architecture.max_shared_bytes:
        return f"{s.shared_bytes(operand)} bytes of shared memory"
    if s.wm * s.wn > (32 * 16 if operand == F32 and precision == "native" else 64 * 64):  # both halves of both operands are held
        return "more accumulators than registers"
    vector = 16 // operand.bytes
    if (s.bm * s.bk // vector) % s.threads or (s.bk * s.bn // vector) % s.threads:
        return "threads do not divide the tiles' vectors"
    if s.split > 1 and s.bm * s.bn > 128 * 64:
        return "split-k serves small grids, which want small tiles"
    return None


def why_not(task: Task, target: Target) -> str | None:
    """Why this template cannot compute the task, or None."""
    if not isinstance(task, Contraction):
        return "not a contraction"
    dtype = task.operand
    if dtype not in INSTRUCTION or task.accumulate != F32:
        return f"no tensor-core instruction for {dtype} operands summed in {task.accumulate}"
    if not target.has(FEATURE[dtype]) or not target.has("ldmatrix"):
        return f"{target.name} has no mma.sync for {dtype}"
    return None


def estimate(task: Task, s: Schedule, target: Target, sizes: Mapping[str, int]) -> float:
    """Waves of blocks; a k step takes the tensor cores' time, the operands' traffic or their latency, and a barrier."""
    assert isinstance(task, Contraction)
    m, n, k, batch = (concrete(a.extent, sizes) for a in (task.m, task.n, task.k, task.batch))
    d, c = target.device, target.device.mma
    tiles = -(-m // s.bm) * -(-n // s.bn) * batch
    blocks, steps = tiles * s.split, -(-k // (s.bk * s.split))
    resident = _resident(s, task, target)
    waves = -(-blocks // (d.multiprocessors * resident))
    busy = min(resident, -(-blocks // d.multiprocessors))
    compute = busy * 2 * s.bm * s.bn * s.bk * d.multiprocessors / _rate(s, task, target, busy * s.threads / 32)
    one = d.l2_rate / d.multiprocessors
    traffic = busy * (s.bm + s.bn) * s.bk * task.operand.bytes / (one * c.l2_share)
    latency = c.latency / (s.stages - 1) if s.copy == "async" else c.register_latency
    step = max(compute, traffic, latency) + c.step * (1 + c.step_per_k * s.bk / 64)
    seconds = waves * (steps * step + c.block + c.store * busy * s.bm * s.bn / 4096) + c.fill * min(steps, s.stages - 1)
    if s.split > 1:
        part = s.bm * s.bn * 4
        seconds += c.split + c.split_traffic * blocks * part / d.l2_rate + c.split_sum * s.split * part / one
    return seconds


def _rate(s: Schedule, task: Contraction, target: Target, warps: float) -> float:
    """FLOP/s of the device with so many warps a multiprocessor."""
    d, c = target.device, target.device.mma
    if task.operand == F32 and task.precision != "tf32":  # three products and the splits
        tile = c.float_efficiency + (1 - c.float_efficiency) * s.wm * s.wn / 512
        return c.float_rate * min(1.0, warps / c.float_full_warps) * min(1.0, tile)
    reuse = s.wm * s.wn / (s.wm + s.wn) / 32  # shared-memory traffic of a warp: 1 for 64 x 64
    reached = min(1.0, c.efficiency + c.reuse_gain * reuse) * min(1.0, warps / c.full_warps)
    return d.mma_f16_rate * reached * (0.5 if task.operand == F32 else 1.0)


def _resident(s: Schedule, task: Contraction, target: Target) -> int:
    """Blocks that fit a multiprocessor at once."""
    a = target.architecture
    registers = s.threads * min(255, s.wm * s.wn // 32 + 80)
    shared = a.shared_bytes_per_sm // (s.shared_bytes(task.operand) + 1024)
    return max(1, min(shared, a.max_threads_per_sm // s.threads, a.registers_per_sm // registers))


def build(task: Task, s: Schedule, target: Target, name: str) -> Program:
    """The anchor alone. Port accesses are logical; everything they turn into is stitching's business."""
    assert isinstance(task, Contraction)
    if task.operand != F32:
        return _Kernel(task, s, name).build()
    return (_Tf32 if task.precision == "tf32" else _SplitFloat)(task, s, name).build()


class _Kernel(ContractionKernel):
    """16-bit operands, 16 steps of k an instruction."""

    depth = 16  # of an instruction

    def __init__(self, task: Contraction, s: Schedule, name: str) -> None:
        self.s = s
        self.mi, self.nj = s.wm // 16, s.wn // 8  # fragments a warp holds
        self.m_together = lies_along(task.a, task.m)
        self.k_together = lies_along(task.b, task.k) and not lies_along(task.b, task.n)
        tiling = Tiling(s.bm, s.bn, s.bk, s.threads, s.stages, s.copy, s.split)
        super().__init__(task, tiling, name, self.a_place(task.operand), self.b_place(task.operand), self.mi * self.nj * 4)

    def a_place(self, dtype: DType) -> SharedTile:
        """Rows run along what lies together in memory, so that copies are wide: m of a transposed operand or of images, else k."""
        s, chunk = self.s, 16 // dtype.bytes
        if self.m_together:
            return SharedTile((s.bk, s.bm), 0, swizzled(s.bm, chunk), s.bk * s.bm)
        return SharedTile((s.bm, s.bk), 1, swizzled(s.bk, chunk), s.bm * s.bk)

    def b_place(self, dtype: DType) -> SharedTile:
        s, chunk = self.s, 16 // dtype.bytes
        if self.k_together:
            return SharedTile((s.bn, s.bk), 1, swizzled(s.bk, chunk), s.bn * s.bk)
        return SharedTile((s.bk, s.bn), 0, swizzled(s.bn, chunk), s.bk * s.bn)

    def prepare(self) -> None:
        p, s = self.p, self.s
        self.lane, self.warp = p.let("lane", self.tid % 32), p.let("warp", self.tid // 32)
        self.wm0, self.wn0 = (spatial(*s.warps) * repeat(s.wm, s.wn)).at(self.warp, 0)  # this warp's corner of the tile

    def compute(self, slot: Index) -> None:
        """One k tile: fragments from shared memory, then mi x nj instructions a step."""
        with self.p.loop("ks", 0, self.s.bk // self.depth) as ks:
            a, b = self.load_a(ks, slot), self.load_b(ks, slot)
            with self.p.loop("i", 0, self.mi) as i, self.p.loop("j", 0, self.nj) as j:
                self.multiply(self.acc.pointer((i * self.nj + j) * 4), a.pointer(i * 4), b.pointer(j * 2))

    def multiply(self, d: Pointer, a: Pointer, b: Pointer) -> None:
        self.p.do(INSTRUCTION[self.task.operand], d, a, b)

    def load_a(self, ks: Index, slot: Index) -> Buffer:
        """ldmatrix moves rows of 16 bytes: 8 halves, or 4 floats whose fragment has the same lanes."""
        row, chunk = self._across_k() if self.m_together else LDMATRIX_ROW.at(self.lane, 0)
        a = self.p.declare(Buffer("fa", U32, self.mi * 4))
        with self.p.loop("i", 0, self.mi) as i:
            if self.m_together:
                place = self.a_tile.place(ks * self.depth + row, self.wm0 + i * 16 + chunk * 8)
            else:
                place = self.a_tile.place(ks * self.depth + chunk * (self.depth // 2), self.wm0 + i * 16 + row)
            self.p.do("ldmatrix_x4_trans" if self.m_together else "ldmatrix_x4", a.pointer(i * 4),
                      self.smem_a.pointer(place + slot * self.a_tile.size))
        return a

    def load_b(self, ks: Index, slot: Index) -> Buffer:
        row, chunk = self._across_k() if self.k_together else LDMATRIX_ROW.at(self.lane, 0)
        b = self.p.declare(Buffer("fb", U32, self.nj * 2))
        with self.p.loop("j", 0, self.nj // 2) as j:
            if self.k_together:
                place = self.b_tile.place(ks * self.depth + chunk * (self.depth // 2), self.wn0 + j * 16 + row)
            else:
                place = self.b_tile.place(ks * self.depth + row, self.wn0 + j * 16 + chunk * 8)
            self.p.do("ldmatrix_x4" if self.k_together else "ldmatrix_x4_trans", b.pointer(j * 4),
                      self.smem_b.pointer(place + slot * self.b_tile.size))
        return b

    def _across_k(self) -> tuple[Index, Index]:
        """lane -> (row, chunk) it addresses where the four tiles of an ldmatrix come in the other order: chunks first, then rows."""
        return self.lane // 16 * 8 + self.lane % 8, self.lane // 8 % 2

    def stage(self) -> None:
        """The tile goes through shared memory, so that the final stores are wide along whichever axis stitching picks."""
        p = self.p
        with p.loop("i", 0, self.mi) as i, p.loop("j", 0, self.nj) as j:
            for half in (0, 2):
                row, column = MMA_M16N8_C.at(self.lane, half)
                place = self.staging_layout(self.wm0 + i * 16 + row, self.wn0 + j * 8 + column)
                p.put(VectorStore(F32, 2, self.staging.pointer(place), self.acc.pointer((i * self.nj + j) * 4 + half)))


class _Tf32(_Kernel):
    """float32 operands rounded to TF32, 8 steps of k an instruction."""

    depth = 8

    def a_place(self, dtype: DType) -> SharedTile:
        return self._k_outermost(self.s.bm) if self.m_together else super().a_place(dtype)

    def b_place(self, dtype: DType) -> SharedTile:
        return super().b_place(dtype) if self.k_together else self._k_outermost(self.s.bn)

    def _k_outermost(self, columns: int) -> SharedTile:
        """Padding of 8: the four rows and eight columns that a warp reads at once lie in 32 different banks."""
        return SharedTile((self.s.bk, columns), 0, padded(columns, 8), self.s.bk * (columns + 8))

    def load_a(self, ks: Index, slot: Index) -> Buffer:
        """a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4) with g = lane / 4 and t = lane % 4.

        ldmatrix cannot transpose 32-bit elements."""
        if not self.m_together:
            return super().load_a(ks, slot)
        a = self.p.declare(Buffer("fa", U32, self.mi * 4))
        with self.p.loop("i", 0, self.mi) as i, self.p.loop("h", 0, 4) as h:
            place = self.a_tile.place(ks * 8 + h // 2 * 4 + self.lane % 4, self.wm0 + i * 16 + h % 2 * 8 + self.lane // 4)
            self.p.put(VectorLoad(U32, 1, a.pointer(i * 4 + h), Pointer("Abits", place + slot * self.a_tile.size)))
        return a

    def load_b(self, ks: Index, slot: Index) -> Buffer:
        """b0 (t, g) and b1 (t + 4, g)."""
        if self.k_together:
            return super().load_b(ks, slot)
        b = self.p.declare(Buffer("fb", U32, self.nj * 2))
        with self.p.loop("j", 0, self.nj) as j, self.p.loop("h", 0, 2) as h:
            place = self.b_tile.place(ks * 8 + h * 4 + self.lane % 4, self.wn0 + j * 8 + self.lane // 4)
            self.p.put(VectorLoad(U32, 1, b.pointer(j * 2 + h), Pointer("Bbits", place + slot * self.b_tile.size)))
        return b

    def prepare(self) -> None:
        super().prepare()
        self.p.declare(Buffer("Abits", U32, self.smem_a.size, "shared", self.smem_a.place))
        self.p.declare(Buffer("Bbits", U32, self.smem_b.size, "shared", self.smem_b.place))

    def compute(self, slot: Index) -> None:
        with self.p.loop("ks", 0, self.s.bk // 8) as ks:
            a, b = self.load_a(ks, slot), self.load_b(ks, slot)
            self.p.do("round_tf32", a.pointer(), template=(a.size,))
            self.p.do("round_tf32", b.pointer(), template=(b.size,))
            with self.p.loop("i", 0, self.mi) as i, self.p.loop("j", 0, self.nj) as j:
                self.multiply(self.acc.pointer((i * self.nj + j) * 4), a.pointer(i * 4), b.pointer(j * 2))


class _SplitFloat(_Tf32):
    """float32 accuracy: x = big + small, both TF32; a * b = big * big + big * small + small * big, to about 2^-23 of a * b."""

    def compute(self, slot: Index) -> None:
        p = self.p
        with p.loop("ks", 0, self.s.bk // 8) as ks:
            a, b = self.load_a(ks, slot), self.load_b(ks, slot)
            a_small, b_small = self._split(a), self._split(b)
            with p.loop("i", 0, self.mi) as i, p.loop("j", 0, self.nj) as j:
                few = p.declare(Buffer("few", F32, 4))
                fill(p, few)
                self.multiply(few.pointer(), a_small.pointer(i * 4), b.pointer(j * 2))  # the small ones first: they lose least
                self.multiply(few.pointer(), a.pointer(i * 4), b_small.pointer(j * 2))
                self.multiply(few.pointer(), a.pointer(i * 4), b.pointer(j * 2))
                with p.loop("e", 0, 4) as e:
                    p.put(add_to(self.acc[(i * self.nj + j) * 4 + e], few[e]))

    def _split(self, x: Buffer) -> Buffer:
        """The small parts of x, which keeps the big ones."""
        small = self.p.declare(Buffer(f"{x.name}_small", U32, x.size))
        self.p.do("split_tf32", x.pointer(), small.pointer(), template=(x.size,))
        return small
