"""What docs/design.md shows: each dump is a function of this repository, except those in MACHINE, which need NVRTC and gcc."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from docs.program_text import program_text
from models import zoo
from taskc.artifact.assemble import Facts, KernelLaunch, plan_ports, plan_target, weight_offsets, weight_pieces
from taskc.artifact.library import write_library
from taskc.artifact.plan import Image, Launch, ModelPlan, TargetPlan, TensorArg
from taskc.codegen.nvrtc import CompiledKernel, compile_cuda, nvrtc_version
from taskc.fuse.inverse import Refusal, invert
from taskc.fuse.partition import partition
from taskc.fuse.units import Unit, make_units
from taskc.fuse.width import LANE, contiguous_width, lane, main_load
from taskc.importer import import_model
from taskc.ir.expr import Index, Var
from taskc.ir.facts import divisor
from taskc.ir.graph import Graph
from taskc.ir.mapping import repeat, spatial, tile_mapping
from taskc.ir.printer import graph_text, task_text
from taskc.ir.proofs import positive
from taskc.ir.task import Contraction, axis
from taskc.ir.value import at
from taskc.passes.pipeline import default_passes, run_passes
from taskc.schedules import TEMPLATES, matmul_mma, traits_of
from taskc.targets import TARGETS
from taskc.tune.choose import rank
from taskc.tune.kernels import BuiltKernel, build_scheduled, canonical

SIZES = {"h": 56, "w": 56, "c": 64, "co": 64}
TARGET = TARGETS["sm_90a"]
# Named here, so that a better analytic model changes the ranking in the text and not the kernel that it walks through.
SCHEDULES = (("elementwise", "64 threads x 8"), ("matmul_mma", "64x32x64 warp 32x16 async6"))
GELU_SCHEDULE = ("matmul_gemv", "rows 1 threads 32x8 2x8")
MACHINE = frozenset({"compiled", "sections"})

Dump = Callable[[], str]
DUMPS: dict[str, Dump] = {}


def dump(f: Dump) -> Dump:
    """Registers what the block of the function's name holds."""
    DUMPS[f.__name__] = f
    return f


# ---- the example on its way ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A model at every hop up to its groups."""

    imported: Graph
    graph: Graph
    changed: tuple[str, ...]
    units: tuple[Unit, ...]
    groups: tuple[Unit, ...]


@lru_cache
def example(name: str, channels: int = SIZES["c"]) -> Example:
    imported = import_model(zoo.build(name, half=True, **(SIZES | {"c": channels} if name == "conv_residual" else {})))
    lines: list[str] = []
    before = graph_text(imported)

    def saw(what: str, g: Graph) -> None:
        nonlocal before
        lines.append(f"{what:<22} {'-' if graph_text(g) == before else 'changed the graph'}")
        before = graph_text(g)

    graph = run_passes(imported, default_passes(), saw)
    units, _ = make_units(graph)
    return Example(imported, graph, tuple(lines), tuple(units), tuple(partition(units, graph.output_values())))


def build(unit: Unit, template: str, schedule: str) -> BuiltKernel:
    """The unit with the schedule that `schedule` is the text of."""
    task, _ = canonical(unit.task)
    found = next(t for t in TEMPLATES if template == t.NAME)
    (chosen,) = [s for s in found.space(TARGET, traits_of(task)) if str(s) == schedule]
    return build_scheduled(unit, TARGET, template, chosen)


@lru_cache
def kernels() -> tuple[BuiltKernel, ...]:
    return tuple(build(u, *s) for u, s in zip(example("conv_residual").groups, SCHEDULES, strict=True))


def conv() -> BuiltKernel:
    return kernels()[1]


@dump
def onnx() -> str:
    model = zoo.build("conv_residual", half=True, **SIZES)
    lines = [f"{n.op_type}({', '.join(n.input)}) -> {', '.join(n.output)}" for n in model.graph.node]
    weights = [f"{w.name} {list(w.dims)}" for w in model.graph.initializer]
    return "\n".join([f"opset {model.opset_import[0].version}; float16; weights {', '.join(weights)}", *lines])


@dump
def graph() -> str:
    return graph_text(example("conv_residual").imported)


@dump
def passes() -> str:
    return "\n".join(example("conv_residual").changed)


@dump
def graph_after() -> str:
    return graph_text(example("conv_residual").graph)


@dump
def units() -> str:
    return "\n".join(f"# {' + '.join(u.source)}\n{task_text(u.task)}" for u in example("conv_residual").units)


def group_text(g: Unit) -> str:
    notes = [f"#   joined:  {j}\n" for j in g.joined] + [f"#   refused: {r}\n" for r in g.refused]
    return f"# {' + '.join(g.source)}\n{''.join(notes)}{task_text(g.task)}"


@dump
def groups() -> str:
    return "\n".join(map(group_text, example("conv_residual").groups))


def ranking(unit: Unit, most: int = 5) -> str:
    """Every template's space for the unit and the best-ranked schedules of all of them."""
    lines: list[str] = []
    ranked: list[tuple[float, str, str]] = []
    for t in TEMPLATES:
        why = t.why_not(unit.task, TARGET)
        if why is not None:
            lines.append(f"{t.NAME:<12} refused: {why}")
            continue
        found = rank(t, unit.task, TARGET, {})
        lines.append(f"{t.NAME:<12} {len(t.space(TARGET, traits_of(unit.task)))} schedules")
        ranked += [(seconds, t.NAME, str(s)) for seconds, s in found]
    best = sorted(ranked, key=lambda x: x[0])[:most]
    return "\n".join(lines + [f"{seconds * 1e6:6.2f} us  {name} {s}" for seconds, name, s in best])


@dump
def schedules() -> str:
    return ranking(example("conv_residual").groups[1])


# ---- ideas on numbers --------------------------------------------------------------------------------------------------


@dump
def mapping() -> str:
    rows, lanes = repeat(2, 1), spatial(8, 4)
    both = rows * lanes * repeat(1, 2)
    lines = [f"{what:<44} {m.workers:>3} workers  domain {m.shape}  {m.reps} each" for what, m in (
        ("repeat(2, 1)", rows), ("spatial(8, 4)", lanes), ("repeat(1, 2)", repeat(1, 2)), ("repeat(2, 1) * spatial(8, 4)", rows * lanes),
        ("repeat(2, 1) * spatial(8, 4) * repeat(1, 2)", both))]
    lines += [f"lane {w:>2}: {both.tasks(w)}" for w in (0, 1, 4, 31)]
    tid, r = Var("tid", 0, 127), Var("r", 0, 3)
    row, column = tile_mapping((64, 64), 1, 8, 128).at(tid, r)
    return "\n".join([*lines, "", f"tile_mapping((64, 64), axis 1, width 8, 128 threads).at(tid, r) = ({row}, {column})"])


@dump
def normal_form() -> str:
    m, k = Var("m", 0, 3135), Var("k", 0, 575)
    lines = [
        f"m // 56 * 56 + m % 56                 -> {m // 56 * 56 + m % 56}",
        f"(k * 64 + m) // 64 with 0 <= m < 64   -> {(k * 64 + Var('m', 0, 63)) // 64}",
        f"(k * 64 + m) % 64 with m <= 3135       -> {(k * 64 + m) % 64}",
        f"divisor of 64 * k + 8 * m             -> {divisor(k * 64 + m * 8)}",
        f"3136 - m > 0 with m <= 3135           -> {positive(3136 - m)} > 0",
    ]
    return "\n".join(lines)


@dump
def width() -> str:
    """The width of A's loads for 64 channels and for 12: vectors of up to 8 lanes along k, at a multiple of 8."""
    row: Index = Var("row", 0, 63)
    m, k = Var("m0", 0, 3072, 64) + row, Var("kt") * 64 + Var("column", 0, 56, 8) + lane(8)
    lines: list[str] = []
    for channels in (64, 12):
        task = example("conv_residual", channels).groups[1].task
        assert isinstance(task, Contraction)
        found = main_load(at(task.a, {"m": m, "k": k}))
        assert found is not None
        load, conditions = found
        address = load.tensor.address(load.index)
        lines.append(f"{channels} channels: width {contiguous_width(address, conditions, 8)}")
        lines += [f"  address {address}", *(f"  guard   {c} > 0" for c in conditions[2:3])]
    return "\n".join(lines).replace(LANE, "lane")


@dump
def inverse() -> str:
    axes = tuple(axis(f"i{d}", e) for d, e in enumerate((1, 64, 56, 56)))
    i = [a.var for a in axes]
    m, n = Var("m", 0, 3135), Var("n", 0, 63)
    before: Sequence[Index] = (0, m // 56, m % 56, n)

    def solved(what: str, image: Sequence[Index], shape: Sequence[Index], at: Sequence[Index], over: Sequence[object] = axes) -> str:
        found = invert(over, image, shape, at)  # type: ignore[arg-type]
        text = found.reason if isinstance(found, Refusal) else ", ".join(f"{k} = {v}" for k, v in found.items())
        return f"{what:<34} {'refused: ' if isinstance(found, Refusal) else ''}{text}"

    flat = (axis("j", 64 * 56 * 56),)
    j = flat[0].var
    return "\n".join([
        solved("y[i0, i2, i3, i1] at (0, h, w, n)", (i[0], i[2], i[3], i[1]), (1, 56, 56, 64), before),
        solved("flattened, channels first", (0, j // 56 % 56, j % 56, j // 3136), (1, 56, 56, 64), before, flat),
        solved("y[i1 + i2]", (i[1] + i[2],), (119,), (m,)),
        solved("y[2 * i3]", (i[3] * 2,), (112,), (m,)),
        solved("y[i1] (the others broadcast)", (i[1],), (64,), (n,)),
    ])


# ---- programs and text ---------------------------------------------------------------------------------------------------


@dump
def program() -> str:
    unit = example("conv_residual").groups[1]
    task, _ = canonical(unit.task)
    (schedule,) = [s for s in matmul_mma.space(TARGET, traits_of(task)) if str(s) == SCHEDULES[1][1]]
    assert isinstance(task, Contraction)
    return program_text(matmul_mma.build(task, schedule, TARGET, "conv"))


@dump
def widths() -> str:
    return "\n".join(f"port {port}: {what}" for port, what in sorted(conv().program.notes.items()))


def excerpt(text: str, first: str, last: str, after: str = "extern") -> str:
    """The lines from one that matches `first` to the next that matches `last`, behind one that holds `after`; long ones broken."""
    every = text.splitlines()
    start = next(n for n, line in enumerate(every) if after in line)
    begin = next(n for n, line in enumerate(every) if n >= start and re.search(first, line))
    end = next(n for n, line in enumerate(every) if n >= begin and re.search(last, line))
    return "\n".join(part for line in every[begin:end + 1] for part in _broken(line))


def _broken(line: str, most: int = 118) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    out: list[str] = []
    while len(line) > most and (at := max(line.rfind(mark, 24, most) for mark in (", ", "&& "))) > 0:
        at = line.index(" ", at) + 1
        out.append(line[:at].rstrip())
        line = indent + line[at:]
    return [*out, line]


@dump
def cuda_start() -> str:
    return excerpt(conv().text, "extern", "int warp")


@dump
def cuda_fill() -> str:
    first = excerpt(conv().text, r"cp_async<16>\(Bs", "cp_async")
    return f"{first}\n    …\n{excerpt(conv().text, 'grid_dependency_wait', 'cp_async_commit')}"


@dump
def cuda_loop() -> str:
    return excerpt(conv().text, r"for \(int kt", "slot = ")


@dump
def cuda_stores() -> str:
    stores = excerpt(conv().text, r"for \(int r_", r"^ +st<f16", "cp_async_wait<0>").splitlines()
    return "\n".join(line for line in stores if not re.search(r"acc \+ [2-7],|out_r\[[1-7]\]", line))


# ---- what the compiler and the runtime get ---------------------------------------------------------------------------


@lru_cache
def compiled() -> tuple[CompiledKernel, ...]:
    return tuple(compile_cuda(k.text, "sm_90a", k.symbol, ptx=True) for k in kernels())


def compiled_text() -> str:
    lines = [f"NVRTC {'.'.join(map(str, nvrtc_version()))}, sm_90a"]
    kinds = {"cp.async, 16 bytes": r"cp\.async\.c[ag]\.shared\.global[^;]*, 16", "ldmatrix": "ldmatrix", "mma.sync": r"mma\.sync",
             "ld.global, 16 bytes": r"ld\.global\S*\.v4", "st.global, 16 bytes": r"st\.global\S*\.v4",
             "ld.global, 2 bytes": r"ld\.global\S*\.[bu]16", "griddepcontrol": "griddepcontrol"}
    for c in compiled():
        ptx = (c.ptx or b"").decode()
        lines.append(f"{c.name}: {c.registers} registers, {c.spill_bytes} bytes spilled, cubin of {len(c.cubin)} bytes")
        found = {what: len(re.findall(pattern, ptx)) for what, pattern in kinds.items()}
        lines += [f"  {n:>3} x {what}" for what, n in found.items() if n]
    return "\n".join(lines)


def plan(facts: Mapping[str, Facts], images: tuple[Image, ...]) -> ModelPlan:
    g = example("conv_residual").graph
    weights = weight_offsets(g, [t.name for k in kernels() for t in k.tensors])
    launches = [KernelLaunch(k.symbol, k.program, tuple(t.name for t in k.tensors), " + ".join(k.unit.source)) for k in kernels()]
    symbols, inputs, outputs = plan_ports(g)
    target = plan_target(g, TARGET.name, launches, images, facts, {}, weights)
    return ModelPlan(g.name, symbols, inputs, outputs, (target,), weight_pieces(g, weights))


@dump
def tables() -> str:
    (t,) = plan({}, ()).targets
    return plan_text(t)


def plan_text(t: TargetPlan) -> str:
    lines = [f"arena {t.arena_bytes} bytes"]
    lines += [f"tensor {n}  {x.name}: {x.dtype}{list(x.shape)} in {x.memory}" for n, x in enumerate(t.tensors)]
    lines += [f"kernel {n}  {k.symbol}: {k.threads} threads, {k.shared_bytes} bytes shared, {'pdl' if k.pdl else 'plain'}; {k.notes}"
              for n, k in enumerate(t.kernels)]
    for n, s in enumerate(t.steps):
        assert isinstance(s, Launch)
        args = ", ".join(f"tensor {a.tensor}" if isinstance(a, TensorArg) else str(a) for a in s.args)
        lines.append(f"step {n}    kernel {s.kernel} grid {s.grid} args ({args}) after {list(s.after)}  # {s.name}")
    return "\n".join(lines)


def sections() -> str:
    """The library's sections, as readelf (binutils) lists them."""
    facts = {c.name: Facts(c.registers, c.spill_bytes) for c in compiled()}
    images = tuple(Image("cubin", "sm_90a", c.cubin) for c in compiled())
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "conv.so")
        write_library(plan(facts, images), out)
        listing = subprocess.run(["readelf", "-SW", str(out)], capture_output=True, text=True, check=True).stdout
        needed = subprocess.run(["readelf", "-dW", str(out)], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"\[ *\d+\] (\.\S+) +(\S+) +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+)", listing)
    kept = [f"{name:<20} {kind:<12} {int(size, 16):>8} bytes" for name, kind, size in rows
            if name in (".text", ".rodata", ".data", ".bss", ".taskc.anchor", ".taskc.payload")]
    return "\n".join([*kept, "needs " + ", ".join(re.findall(r"\(NEEDED\).*\[(.*)\]", needed))])


DUMPS["compiled"], DUMPS["sections"] = compiled_text, sections


# ---- the second example ------------------------------------------------------------------------------------------------


@dump
def gelu_group() -> str:
    return group_text(example("matmul_gelu").groups[0])


@dump
def gelu_schedules() -> str:
    return ranking(example("matmul_gelu").groups[0])


@dump
def gelu_stores() -> str:
    text = build(example("matmul_gelu").groups[0], *GELU_SCHEDULE).text
    return excerpt(text, r"f16 t2_v", r"^ +st<f16")
