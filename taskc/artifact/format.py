"""ModelPlan -> the payload of a library: the header, tables, strings, code images and weights at their offsets.

The records are in `records.py`. Images and weights are not copied: a `Payload` lists them as pieces, in order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from taskc.artifact.check_plan import check_plan
from taskc.artifact.layout import Record, size_of
from taskc.artifact.plan import (
    ArenaMemory,
    Arg,
    Copy,
    CounterArg,
    Fill,
    Image,
    InputMemory,
    IntArg,
    Kernel,
    Launch,
    ModelPlan,
    OutputMemory,
    PlanTensor,
    Port,
    ScratchArg,
    Step,
    TargetPlan,
    TensorArg,
    TensorMapArg,
)
from taskc.artifact.postfix import postfix
from taskc.artifact.records import (
    MAGIC,
    VERSION,
    ArgKind,
    ArgRow,
    Code,
    DimRow,
    DTypeCode,
    EdgeRow,
    Header,
    ImageKind,
    ImageRow,
    IndexRef,
    KernelFlag,
    KernelRow,
    MapRow,
    MemoryKind,
    PortRow,
    Span,
    StepKind,
    StepRow,
    SymbolRow,
    Table,
    TargetRow,
    TensorRow,
    Text,
)
from taskc.ir.dtype import DType
from taskc.ir.expr import Index

Buffer = bytes | memoryview

_CRC_FROM = 16  # the magic, the version and the sum itself come before
_IMAGE_ALIGN = 64
_WEIGHT_ALIGN = 4096
_TABLES: dict[str, type[Record]] = {
    "code": Code, "symbols": SymbolRow, "dims": DimRow, "inputs": PortRow, "outputs": PortRow, "targets": TargetRow,
    "images": ImageRow, "kernels": KernelRow, "tensors": TensorRow, "steps": StepRow, "args": ArgRow, "maps": MapRow,
    "edges": EdgeRow,
}  # fmt: skip


@dataclass(frozen=True)
class Payload:
    """(offset, bytes) pieces in ascending order, zeros between them; `size` bytes in all."""

    pieces: tuple[tuple[int, Buffer], ...] = field(repr=False)
    size: int


def dtype_code(dtype: DType) -> int:
    """The format's number of an element type."""
    return DTypeCode[dtype.name.upper()]


def serialize(plan: ModelPlan) -> Payload:
    """The payload of `plan`; the same plan gives the same bytes. ValueError names what is inconsistent in the plan."""
    check_plan(plan)
    writer = _Writer({s.name: i for i, s in enumerate(plan.symbols)})
    name, metadata = writer.text(plan.name), writer.text(plan.metadata)
    for s in plan.symbols:
        writer.add("symbols", SymbolRow(writer.text(s.name), s.input, s.axis, s.low, s.multiple, s.high))
    writer.ports("inputs", plan.inputs)
    writer.ports("outputs", plan.outputs)
    for target in plan.targets:
        writer.target(target)
    images = [_image_bytes(i) for t in plan.targets for i in t.images]
    return writer.finish(name, metadata, images, plan.weights)


def _image_bytes(image: Image) -> bytes:
    terminated = image.kind != "ptx" or image.data.endswith(b"\0")  # the driver reads PTX as a C string
    return image.data if terminated else image.data + b"\0"


class _Writer:
    """Collects rows; the offsets of images are filled in when all tables are known."""

    def __init__(self, symbols: dict[str, int]) -> None:
        self.symbols = symbols
        self.rows: dict[str, list[Record]] = {name: [] for name in _TABLES}
        self.strings = bytearray()
        self.known_text: dict[str, Text] = {}
        self.known_code: dict[str, IndexRef] = {}

    def add(self, table: str, row: Record) -> int:
        self.rows[table].append(row)
        return len(self.rows[table]) - 1

    def span(self, table: str, rows: Iterable[Record]) -> Span:
        first = len(self.rows[table])
        self.rows[table].extend(rows)
        return Span(first, len(self.rows[table]) - first)

    def text(self, value: str) -> Text:
        if value not in self.known_text:
            data = value.encode()
            self.known_text[value] = Text(len(self.strings), len(data))
            self.strings += data + b"\0"
        return self.known_text[value]

    def index(self, e: Index) -> IndexRef:
        if isinstance(e, int):
            if not -(2**63) <= e < 2**63:
                raise ValueError(f"an index that does not fit 64 bits: {e}")
            return IndexRef(e, 0, 0)
        if e.key not in self.known_code:
            code = postfix(e, self.symbols)
            span = self.span("code", code)
            self.known_code[e.key] = IndexRef(0, span.first, span.count)
        return self.known_code[e.key]

    def dims(self, shape: Sequence[Index], names: Sequence[str] = ()) -> int:
        names = names or [""] * len(shape)
        rows = [DimRow(self.text(n), self.index(d)) for n, d in zip(names, shape, strict=True)]
        return self.span("dims", rows).first

    def ports(self, table: str, ports: Sequence[Port]) -> None:
        for p in ports:
            row = PortRow(self.text(p.name), dtype_code(p.dtype), len(p.shape), self.dims(p.shape, p.dim_names), 0)
            self.add(table, row)

    def target(self, t: TargetPlan) -> None:
        row = TargetRow(
            name=self.text(t.target),
            arena=self.index(t.arena_bytes),
            images=self.span("images", [self.image(i) for i in t.images]),
            kernels=self.span("kernels", [self.kernel(k) for k in t.kernels]),
            tensors=self.span("tensors", [self.tensor(x) for x in t.tensors]),
            steps=self.span("steps", [self.step(s) for s in t.steps]),
        )
        self.add("targets", row)

    def image(self, i: Image) -> ImageRow:
        return ImageRow(self.text(i.arch), ImageKind[i.kind.upper()], 0, 0, 0)

    def kernel(self, k: Kernel) -> KernelRow:
        flags = KernelFlag.PDL * k.pdl | KernelFlag.COOPERATIVE * k.cooperative
        text = self.text(k.symbol), self.text(k.notes)
        return KernelRow(*text, k.threads, k.shared_bytes, k.cluster, flags, k.registers, k.spill_bytes)

    def tensor(self, t: PlanTensor) -> TensorRow:
        m = t.memory
        if isinstance(m, InputMemory):
            kind, number, offset = MemoryKind.INPUT, m.number, self.index(0)
        elif isinstance(m, OutputMemory):
            kind, number, offset = MemoryKind.OUTPUT, m.number, self.index(0)
        elif isinstance(m, ArenaMemory):
            kind, number, offset = MemoryKind.ARENA, 0, self.index(m.offset)
        else:
            kind, number, offset = MemoryKind.WEIGHT, 0, self.index(m.offset)
        return TensorRow(
            self.text(t.name), dtype_code(t.dtype), len(t.shape), self.dims(t.shape), kind, number, 0, offset
        )

    def step(self, s: Step) -> StepRow:
        zero = self.index(0)
        blank = StepRow(
            self.text(s.name), StepKind.LAUNCH, 0, 0, 0, 0, 0, zero, (zero, zero, zero), Span(0, 0), Span(0, 0)
        )
        after = self.span("edges", [EdgeRow(n) for n in sorted(set(s.after))])
        if isinstance(s, Launch):
            x, y, z = s.grid
            grid = (self.index(x), self.index(y), self.index(z))
            return replace(
                blank, kernel=s.kernel, grid=grid, args=self.span("args", [self.arg(a) for a in s.args]), after=after
            )
        size = self.index(s.size)
        if isinstance(s, Copy):
            return replace(blank, kind=StepKind.COPY, source=s.source, target=s.target, size=size, after=after)
        assert isinstance(s, Fill)
        return replace(blank, kind=StepKind.FILL, target=s.target, byte=s.byte, size=size, after=after)

    def arg(self, a: Arg) -> ArgRow:
        zero = self.index(0)
        if isinstance(a, TensorArg):
            return ArgRow(ArgKind.TENSOR, 8, a.tensor, 0, self.index(a.offset), zero)
        if isinstance(a, IntArg):
            return ArgRow(ArgKind.INT, a.bytes, 0, 0, self.index(a.value), zero)
        if isinstance(a, ScratchArg):
            return ArgRow(ArgKind.SCRATCH, 8, 0, 0, self.index(a.offset), self.index(a.size))
        if isinstance(a, CounterArg):
            return ArgRow(ArgKind.COUNTER, 8, 0, 0, zero, self.index(a.size))
        return ArgRow(ArgKind.TENSOR_MAP, 128, a.tensor, self.add("maps", self.map(a)), zero, zero)

    def map(self, a: TensorMapArg) -> MapRow:
        sizes = [self.index(x) for x in (*a.sizes, 1, 1, 1, 1, 1)]
        strides = [self.index(x) for x in (*a.strides, 0, 0, 0, 0, 0)]
        b = (*a.box, 1, 1, 1, 1, 1)
        return MapRow(
            rank=len(a.sizes),
            swizzle_bytes=a.swizzle_bytes,
            sizes=(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]),
            strides=(strides[0], strides[1], strides[2], strides[3], strides[4]),
            box=(b[0], b[1], b[2], b[3], b[4]),
            reserved=0,
        )

    def finish(
        self, name: Text, metadata: Text, images: Sequence[bytes], weights: Sequence[tuple[int, Buffer]]
    ) -> Payload:
        """Lays out header, tables, strings, images, weights."""
        place = _up(size_of(Header), 8)
        tables: dict[str, Table] = {}
        for table, record in _TABLES.items():
            tables[table] = Table(place, len(self.rows[table]), size_of(record))
            place = _up(place + len(self.rows[table]) * size_of(record), 8)
        tables["strings"] = Table(place, len(self.strings), 1)
        head_bytes = _up(place + len(self.strings), _IMAGE_ALIGN)
        pieces: list[tuple[int, Buffer]] = []
        place = head_bytes
        for n, data in enumerate(images):
            row = self.rows["images"][n]
            assert isinstance(row, ImageRow)
            self.rows["images"][n] = replace(row, offset=place, bytes=len(data))
            pieces.append((place, data))
            place = _up(place + len(data), _IMAGE_ALIGN)
        origin = _up(place, _WEIGHT_ALIGN)
        weight_bytes = max((offset + memoryview(data).nbytes for offset, data in weights), default=0)
        pieces += [(origin + offset, memoryview(data).cast("B")) for offset, data in weights if memoryview(data).nbytes]
        size = origin + weight_bytes
        header = Header(MAGIC, VERSION, 0, size, head_bytes, origin, weight_bytes, name, metadata, **tables)
        return Payload(((0, self.head(header)), *pieces), size)

    def head(self, header: Header) -> bytes:
        out = bytearray(header.head_bytes)
        for table in _TABLES:
            place: int = getattr(header, table).offset
            data = b"".join(row.pack() for row in self.rows[table])
            out[place : place + len(data)] = data
        out[header.strings.offset : header.strings.offset + len(self.strings)] = self.strings
        out[: size_of(Header)] = header.pack()
        return seal(out)


def seal(head: bytearray) -> bytes:
    """`head` with its check sum written."""
    head[12:16] = zlib.crc32(head[_CRC_FROM:]).to_bytes(4, "little")
    return bytes(head)


def _up(n: int, to: int) -> int:
    return (n + to - 1) // to * to
