"""How attention takes its products, q key' and weights v: on tensor cores, or on CUDA cores."""

from __future__ import annotations

from collections.abc import Callable

from taskc.ir.dtype import BF16, F16, F32, U32
from taskc.ir.expr import Index
from taskc.ir.mapping import LDMATRIX_ROW, padded, swizzled
from taskc.ir.program import Buffer, Set, VectorLoad
from taskc.ir.task import Attention
from taskc.ir.value import call
from taskc.schedules.attention_kernel import FlashKernel, Pieces, power_of_two

INSTRUCTION = {F16: "mma_m16n8k16_f16", BF16: "mma_m16n8k16_bf16"}
CORES_THREADS = 128
_COLUMNS = 32  # of a unit on CUDA cores


class TensorCores(FlashKernel):
    """A warp owns 16 rows; a unit is the accumulator tile of one instruction."""

    lanes, rows, neighbours, unit, workers, step = 4, 2, 2, (16, 8), 32, 16

    def tiles(self) -> tuple[Pieces, Pieces, Pieces]:
        def tile(rows: int, columns: int) -> Pieces:
            width = power_of_two(columns)
            return Pieces(rows, columns, width, swizzled(width, 8), rows * width)

        return tile(self.bm, self.kd), tile(self.bj, self.kd), tile(self.bj, self.nd)

    def score_products(self, slot: Index) -> None:
        """Keys lie as rows of k, which is the instruction's B as it stands: lane -> (8 keys, 8 of k) of four 8 x 8 tiles."""
        p, lane = self.p, self.worker
        row, chunk = LDMATRIX_ROW.at(lane, 0)
        with p.loop("ks", 0, self.kd // 16) as ks:
            a, b = p.declare(Buffer("fq", U32, 4)), p.declare(Buffer("fk", U32, 4))
            p.do("ldmatrix_x4", a.pointer(), self.qs.pointer(self.tile_q.place(self.group * 16 + row, ks * 16 + chunk * 8)))
            with p.loop("jj", 0, self.bj // 16) as jj:
                place = self.tile_k.place(jj * 16 + lane // 16 * 8 + lane % 8, ks * 16 + lane // 8 % 2 * 8)
                p.do("ldmatrix_x4", b.pointer(), self.ks.pointer(place + slot * (self.tile_k.count * self.tile_k.size)))
                for half in (0, 1):
                    p.do(INSTRUCTION[self.task.operand], self.scores.pointer((jj * 2 + half) * 4), a.pointer(), b.pointer(half * 2))

    def value_products(self, slot: Index) -> None:
        p = self.p
        row, chunk = LDMATRIX_ROW.at(self.worker, 0)
        with p.loop("jj", 0, self.bj // 16) as jj:
            a, b = p.declare(Buffer("fw", U32, 4)), p.declare(Buffer("fv", U32, 4))
            left, right = self.scores.pointer(jj * 8), self.scores.pointer(jj * 8 + 4)
            p.do("accumulators_as_a", a.pointer(), left, right, template=(self.task.operand.name,))
            with p.loop("nn", 0, self.nd // 16) as nn:
                place = self.tile_v.place(jj * 16 + row, nn * 16 + chunk * 8)
                p.do("ldmatrix_x4_trans", b.pointer(), self.vs.pointer(place + slot * (self.tile_v.count * self.tile_v.size)))
                for half in (0, 1):
                    p.do(INSTRUCTION[self.task.operand], self.out.pointer((nn * 2 + half) * 4), a.pointer(), b.pointer(half * 2))


class CudaCores(FlashKernel):
    """Eight lanes share a row; all threads share a unit of bm x 32. q and keys lie with k outermost, weights with j outermost."""

    lanes, neighbours, workers, step = 8, 4, CORES_THREADS, _COLUMNS

    def __init__(self, task: Attention, bm: int, bj: int, stages: int, threads: int, name: str) -> None:
        self.unit = (bm, _COLUMNS)
        self.rows = bm * self.lanes // self.workers
        super().__init__(task, bm, bj, stages, threads, name)
        self.weights = Buffer("Ws", F32, bj * (bm + 4), "shared", self.spare)

    def extra_bytes(self) -> int:
        return self.bj * (self.bm + 4) * 4

    def tiles(self) -> tuple[Pieces, Pieces, Pieces]:
        def k_outermost(columns: int) -> Pieces:
            width = power_of_two(self.kd)
            return Pieces(self.kd, columns, width, padded(columns, 4), width * (columns + 4), down=True)

        width = power_of_two(self.nd)
        v = Pieces(self.bj, self.nd, width, padded(width, 4), self.bj * (width + 4))
        return k_outermost(self.bm), k_outermost(self.bj), v

    def prepare(self) -> None:
        self.p.declare(self.weights)
        self.row0, self.column0 = self.p.let("row0", self.worker // self.lanes), self.p.let("column0", self.worker % self.lanes * 4)

    def score_products(self, slot: Index) -> None:
        p = self.p
        with p.loop("k8", 0, self.kd // 8, unroll=False) as k8, p.loop("k1", 0, 8) as k1:
            k = k8 * 8 + k1
            q = self._rows_of(self.qs, self.tile_q.place(k, 0))
            base = self.tile_k.place(k, 0) + slot * (self.tile_k.count * self.tile_k.size)
            self._outer_product(self.scores, self.score_units, q, self.ks, lambda column: base + column)

    def value_products(self, slot: Index) -> None:
        """A row's weights are written and read by the lanes of one warp."""
        p = self.p
        with p.loop("uq", 0, self.score_units) as uq, p.loop("ur", 0, self.rows) as ur, p.loop("uc", 0, self.neighbours) as uc:
            row, column = self.at(uq, ur, uc)
            p.put(Set(self.weights[column * (self.bm + 4) + row], self.scores[self.cell(uq, ur, uc)]))
        p.do("syncwarp")
        with p.loop("j8", 0, self.bj // 8, unroll=False) as j8, p.loop("j1", 0, 8) as j1:
            j = j8 * 8 + j1
            weights = self._rows_of(self.weights, j * (self.bm + 4))
            offset = slot * (self.tile_v.count * self.tile_v.size)
            self._outer_product(self.out, self.out_units, weights, self.vs, lambda column: self.tile_v.place(j, column) + offset)

    def _rows_of(self, shared: Buffer, base: Index) -> Buffer:
        """The elements at this thread's rows."""
        p = self.p
        mine = p.declare(Buffer("fa", F32, self.rows))
        with p.loop("ur", 0, self.rows) as ur:
            p.put(VectorLoad(F32, 1, mine.pointer(ur), shared.pointer(base + self.row0 + ur * (self.workers // self.lanes))))
        return mine

    def _outer_product(self, into: Buffer, units: int, a: Buffer, shared: Buffer, place: Callable[[Index], Index]) -> None:
        p = self.p
        with p.loop("uq", 0, units) as uq:
            b = p.declare(Buffer("fb", F32, self.neighbours))
            p.put(VectorLoad(F32, self.neighbours, b.pointer(), shared.pointer(place(uq * _COLUMNS + self.column0))))
            with p.loop("ur", 0, self.rows) as ur, p.loop("uc", 0, self.neighbours) as uc:
                x = into[self.cell(uq, ur, uc)]
                p.put(Set(x, call("add", x, call("mul", a[ur], b[uc]))))
