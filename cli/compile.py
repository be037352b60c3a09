"""`taskc compile`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from taskc.compile import STEPS, Options, compile_model
from taskc.errors import UsageError
from taskc.observe import Observer, Stopped
from taskc.tune.tuner import TuneOptions

from .options import PATH, model_options, parse_dims, parse_seconds, parse_shapes, parse_targets, precision_option, target_option
from .progress import progress
from .text import bytes_text
from .tune import run_tuning


@click.command("compile")
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=PATH, metavar="FILE", help="The library; MODEL.so without it. The loader MODEL.py lies beside it.")
@target_option()
@model_options
@click.option("--tune-for", "sizes", multiple=True, metavar="NAME=SIZE", help="The size of a symbolic dim that schedules are ranked for.")
@precision_option
@click.option("--dump", type=PATH, metavar="DIR", help="Write every step's result there as numbered text files.")
@click.option("--stop-after", type=click.Choice(STEPS[:-1]), help="End after a step; nothing is written but dumps.")
@click.option("--header", is_flag=True, help="Also write model.h, the library's C interface.")
@click.option("--cache", "folder", type=PATH, metavar="DIR", help="Use the schedules that `taskc tune` left there.")
@click.option("--locked", is_flag=True, help="With --cache: refuse untuned or stale kernels (exit code 6).")
@click.option("--budget", metavar="TIME", help="With --cache: tune what is missing first, for at most this long (90s, 2m).")
@click.option("--jobs", type=click.IntRange(min=0), default=0, metavar="N", help="Compilers at once (0: one for each CPU).")
@click.option("-v", "--verbose", is_flag=True, help="Name every kernel, and show each step's seconds.")
def compile_command(model: Path, output: Path | None, target: str, shapes: tuple[str, ...], dims: tuple[str, ...], sizes: tuple[str, ...],
                    precision: str, dump: Path | None, stop_after: str | None, header: bool, folder: Path | None, locked: bool,
                    budget: str | None, jobs: int, verbose: bool) -> None:
    """Compile MODEL (.onnx) into one library.

    \b
    taskc compile model.onnx -o model.so --target sm_90a,host
    taskc compile model.onnx --shape x:1x3x224x224 --dim batch=1
    """
    out = output or model.with_suffix(".so")
    if not out.parent.is_dir():
        raise UsageError(f"-o {out}: there is no folder {out.parent}; make it first")
    if folder is None and (locked or budget):
        raise UsageError(f"{'--locked' if locked else '--budget'} needs --cache DIR")
    options = Options(parse_targets(target), parse_shapes(shapes), parse_dims(dims), parse_dims(sizes, "--tune-for"), jobs, header, folder,
                      locked, precision, lambda m: click.echo(f"warning: {m}", err=True))
    start = time.perf_counter()
    if folder is not None and budget:
        run_tuning(model, folder, options.targets, options, TuneOptions(budget=parse_seconds(budget, "--budget"), jobs=jobs))
    with progress(verbose) as listen:
        observer = Observer(dump=dump, stop_after=stop_after, listen=listen)
        try:
            plan = compile_model(model, out, options=options, observe=observer)
        except Stopped:
            click.echo(f"stopped after {stop_after}; no library was written" + (f"; dumps are in {dump}" if dump else ""))
            return
    seconds = time.perf_counter() - start
    if verbose:
        click.echo("  ".join(f"{step} {spent:.2f} s" for step, spent in observer.seconds.items()), err=True)
    kernels = ", ".join(f"{t.target}: {len(t.kernels)} kernels" for t in plan.targets)
    click.echo(f"{out} ({bytes_text(out.stat().st_size)}) and {out.with_suffix('.py').name} in {seconds:.1f} s; {kernels}")
