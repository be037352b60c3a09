"""Commands on a compiled library: `taskc run`, `verify`, `bench`, `inspect`."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from taskc.artifact import loader
from taskc.artifact.library import write_whole
from taskc.bench import bench_library, bench_onnxruntime
from taskc.errors import AccuracyError
from taskc.feeds import Array, Request, make_feed
from taskc.inspection import LibraryFacts, TargetFacts, inspect_library
from taskc.verify import Verified, verify

from .options import PATH, feed_options, parse_dims, parse_inputs, parse_shapes
from .text import bytes_text, print_table


@click.command("run")
@click.argument("library", type=PATH)
@feed_options
@click.option("--output", "folder", type=PATH, metavar="DIR", help="Write each output there as NAME.npy.")
def run_command(library: Path, inputs: tuple[str, ...], dims: tuple[str, ...], seed: int, device: str | None, folder: Path | None) -> None:
    """Run LIBRARY (.so) once.

    \b
    taskc run model.so --input image=cat.npy --output results
    taskc run model.so --input ids=random:0:30000 --dim sequence=17 --device host
    """
    model = loader.load(library, device)
    feed = make_feed(model.inputs, Request(parse_inputs(inputs), parse_dims(dims), seed=seed))
    results = model.run(feed)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for path, array in zip(_files(folder, list(results)), results.values(), strict=True):
            _save(path, array)
    click.echo(f"{model.name} on {model.device_name} ({model.target}):")
    rows = [(k, str(v.dtype), str(list(v.shape)), *_summary(v)) for k, v in results.items()]
    print_table(("output", "type", "shape", "min", "mean", "max"), rows)


def _summary(values: Array) -> tuple[str, str, str]:
    if not values.size:
        return "-", "-", "-"
    numbers = values.astype(np.float64)
    return f"{numbers.min():.6g}", f"{numbers.mean():.6g}", f"{numbers.max():.6g}"


def _files(folder: Path, names: list[str]) -> list[Path]:
    """A file for each output; characters that a path cannot take become '_'."""
    safe = [re.sub(r"[^0-9A-Za-z._-]", "_", n) for n in names]
    return [folder / f"{s}{f'_{i}' if s in safe[:i] else ''}.npy" for i, s in enumerate(safe)]


def _save(path: Path, array: Array) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_whole(path, [(0, buffer.getvalue())])


@click.command("verify")
@click.argument("library", type=PATH)
@click.argument("model", type=PATH)
@feed_options
@click.option("--bar", type=float, help="Largest relative norm that passes; without it, what the model's types allow.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME:DIMS", help="An input's shape, where MODEL has none.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_command(library: Path, model: Path, inputs: tuple[str, ...], dims: tuple[str, ...], seed: int, device: str | None,
                   bar: float | None, shapes: tuple[str, ...], as_json: bool) -> None:
    """Compare LIBRARY (.so) with onnxruntime's CPU provider on MODEL (.onnx), on seeded random inputs.

    --device all compares on every device there is. Exit code 5 when an output differs by more than the bar.
    """
    request = Request(parse_inputs(inputs), parse_dims(dims), seed=seed)
    found = verify(library, model, (device,), request, bar=bar, shapes=parse_shapes(shapes))
    if as_json:
        click.echo(json.dumps([asdict(v) | {"passed": v.passed} for v in found], indent=2))
    else:
        for verified in found:
            _print_verified(verified)
    failed = [f"{d.name!r} on {v.device}: {d.why_failed}" for v in found for d in v.differences if not d.passed]
    if failed:
        raise AccuracyError("differs from onnxruntime: " + "; ".join(failed) + ". Another --seed and --device host narrow it down")


def _print_verified(verified: Verified) -> None:
    rows = [(d.name, f"{d.dtype}{list(d.shape)}", f"{d.max_abs:.3g}", f"{d.relative:.3g}", f"{d.bar:g}",
             ("PASS" if d.passed else f"FAIL ({d.why_failed})") + (f"; {d.note}" if d.note else "")) for d in verified.differences]
    dims = "".join(f", {k}={v}" for k, v in verified.dims.items())
    click.echo(f"{'PASS' if verified.passed else 'FAIL'} on {verified.device} ({verified.image}) against onnxruntime CPU{dims}")
    print_table(("output", "type", "max abs", "relative", "bar", "result"), rows)


@click.command("bench")
@click.argument("library", type=PATH)
@feed_options
@click.option("--against", type=PATH, metavar="MODEL", help="Also measure onnxruntime on this .onnx file.")
@click.option("--provider", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="onnxruntime's; auto: as the library.")
@click.option("--runs", type=click.IntRange(min=1), default=200, show_default=True, help="Medians are taken over this many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON rows, as in bench/results.")
def bench_command(library: Path, inputs: tuple[str, ...], dims: tuple[str, ...], seed: int, device: str | None, against: Path | None,
                  provider: str, runs: int, as_json: bool) -> None:
    """Measure the latency of LIBRARY (.so): device time of one run, and host time from the call to the result."""
    described = loader.load(library, device)
    request = Request(parse_inputs(inputs), parse_dims(dims), seed=seed, fill_all=True)
    rows = [bench_library(library, device, request, runs)]
    if against is not None:
        if provider == "auto":
            provider = "cpu" if described.device == "host" else "cuda"
        rows.append(bench_onnxruntime(against, described.name, rows[0].prec, described.inputs, [o.name for o in described.outputs], request,
                                      runs, provider=provider))
    dead = [r.mode for r in rows if not r.live]
    if as_json:
        click.echo(json.dumps([asdict(r) for r in rows], indent=2))
    else:
        print_table(("what ran", "model", "type", "device us", "host us", "ready s", "live"),
                    [(r.mode, r.model, r.prec, str(r.us), str(r.wall_us), str(r.ready_s), "yes" if r.live else "NO") for r in rows],
                    f"{described.device_name}, medians of {runs}")
    if dead:
        click.echo(f"taskc: {', '.join(dead)}: the outputs are not finite or hardly depend on the input: these times say little", err=True)


@click.command("inspect")
@click.argument("library", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--launches", is_flag=True, help="List every launch with the nodes it computes.")
def inspect_command(library: Path, as_json: bool, launches: bool) -> None:
    """Show what is in LIBRARY (.so): targets, kernels, registers, spills, access widths, memory. Needs no GPU."""
    facts = inspect_library(library)
    if as_json:
        click.echo(facts.as_json())
        return
    _print_library(facts)
    for target in facts.targets:
        _print_target(target)
        if launches:
            for number, name in enumerate(target.launches):
                click.echo(f"  {number:4d}  {name}")


def _print_library(facts: LibraryFacts) -> None:
    click.echo(f"{facts.name}: {bytes_text(facts.file_bytes)}, weights {bytes_text(facts.weights_bytes)}, format {facts.format_version}, "
               f"{facts.metadata.get('producer', 'unknown producer')}")
    for what, ports in (("input", facts.inputs), ("output", facts.outputs)):
        for port in ports:
            click.echo(f"  {what:6}  {port}")


def _print_target(target: TargetFacts) -> None:
    click.echo(f"\ntarget {target.name}: {', '.join(target.images)} ({bytes_text(target.image_bytes)}), {len(target.kernels)} kernels, "
               f"{len(target.launches)} launches in {target.steps} steps, arena {bytes_text(target.arena_bytes)}")
    if not target.kernels:
        return
    rows = [(k.symbol, str(k.launches), str(k.threads), str(k.registers or "-"), str(k.spill_bytes), bytes_text(k.shared_bytes), k.ports)
            for k in target.kernels]
    print_table(("kernel", "launches", "threads", "registers", "spills", "shared", "access widths"), rows)
