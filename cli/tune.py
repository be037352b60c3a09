"""`taskc tune` and `taskc cache`."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from taskc.check import find_target
from taskc.compile import Options, read_groups
from taskc.errors import UsageError
from taskc.gpus import Machine, find_machine, gpu_for
from taskc.observe import Observer
from taskc.targets import TARGETS
from taskc.tune.cache import FILE, Cache, Entry
from taskc.tune.device import require_pycuda
from taskc.tune.tuner import Progress, TuneOptions, TuneResult, tune

from .options import PATH, model_options, parse_dims, parse_seconds, parse_shapes, parse_targets, precision_option, target_option


@click.command("tune")
@click.argument("model", type=PATH)
@click.option("--cache", "folder", type=PATH, required=True, metavar="DIR", help="Where the schedules go; made when it does not exist.")
@target_option(default="native")
@model_options
@click.option("--tune-for", "sizes", multiple=True, metavar="NAME=SIZE", help="The size of a symbolic dim to tune for.")
@precision_option
@click.option("--budget", metavar="TIME", help="Stop after this long (90s, 2m); what was measured is kept.")
@click.option("--top", type=click.IntRange(1, 200), default=10, show_default=True, help="Candidates a kernel, the best-ranked.")
@click.option("--jobs", type=click.IntRange(min=0), default=0, metavar="N", help="Compilers at once (0: one for each CPU).")
@click.option("--again", is_flag=True, help="Measure what the cache already has once more (--resume, the default, does not).")
@click.option("--resume", is_flag=True, help="Go on where an earlier run stopped; the default.")
def tune_command(model: Path, folder: Path, target: str, shapes: tuple[str, ...], dims: tuple[str, ...], sizes: tuple[str, ...],
                 precision: str, budget: str | None, top: int, jobs: int, again: bool, resume: bool) -> None:
    """Measure schedules for every kernel of MODEL on the GPU and keep the best in a cache.

    \b
    taskc tune model.onnx --cache schedules --budget 2m
    taskc compile model.onnx --cache schedules
    """
    if again and resume:
        raise UsageError("--again and --resume exclude each other")
    machine = find_machine()
    targets = tuple(dict.fromkeys(g.target for g in machine.gpus)) or ("native",) if target == "native" else parse_targets(target)
    options = Options((), parse_shapes(shapes), parse_dims(dims), parse_dims(sizes, "--tune-for"), precision=precision)
    run_tuning(model, folder, targets, options,
               TuneOptions(top, parse_seconds(budget, "--budget"), jobs, again), machine)


def run_tuning(model: Path, folder: Path, targets: tuple[str, ...], options: Options, how: TuneOptions, machine: Machine | None = None) -> None:
    """Tunes a model for each GPU target and prints the counts. Exits with 130 after an interrupt; what was measured is kept."""
    gpus = [t for t in targets if t == "native" or not find_target(t).is_host]
    if not gpus:
        raise UsageError("--target host: tuning is for GPUs; kernels for the host are chosen without measuring, compile without --cache")
    machine = machine or find_machine()
    ordinals = {name: gpu_for(name, machine).ordinal for name in gpus}
    require_pycuda()
    front = read_groups(model, options, Observer())
    cache = Cache(folder, lambda m: click.echo(f"warning: {m}", err=True))
    for name, ordinal in ordinals.items():
        with _table() as listen:
            result = tune(front.groups, TARGETS[name], front.sizes, cache, replace(how, ordinal=ordinal), listen)
        click.echo(summary(name, result, folder))
        if result.interrupted:
            raise click.exceptions.Exit(INTERRUPTED)


def summary(target: str, r: TuneResult, folder: Path) -> str:
    """The counts of a session, what is left, and what did not work."""
    left = r.problems - r.cached - r.tuned - len(r.hopeless)
    ended = "interrupted" if r.interrupted else "the budget ended"
    lines = [f"{target}: {r.problems} kernels, {r.cached} cached, {r.tuned} tuned, {r.compiled} candidates compiled, {r.measured} measured, "
             f"{r.failed} failed in {r.seconds:.1f} s -> {folder / FILE}"]
    if not r.complete:
        lines.append(f"{ended}{f' with {left} kernel(s) untuned' if left > 0 else ''}; what was measured is kept: run it again to go on")
    if r.hopeless:
        lines.append(f"for {len(r.hopeless)} kernel(s) no candidate worked; `taskc cache show` tells why, --top 50 tries more:")
        lines += [f"  {nodes[:100]}" for nodes in r.hopeless]
    return "\n".join(lines)


@contextmanager
def _table() -> Generator[Listen, None, None]:
    """A live table on a terminal, a line a kernel elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield _Rows(live)


class _Lines:
    def __call__(self, p: Progress) -> None:
        if p.done:
            best = f"{p.best.us:.2f} us, {p.best.template} {p.best.schedule}" if p.best else "nothing worked"
            click.echo(f"taskc: kernel {p.problem} of {p.problems}: {p.nodes[:70]}: {best}", err=True)


class _Rows:
    def __init__(self, live: Live) -> None:
        self.live, self.rows, self.start = live, dict[int, Progress](), time.monotonic()

    def __call__(self, p: Progress) -> None:
        self.rows[p.problem] = p
        table = Table("kernel", "nodes", "best µs", "template", "schedule")
        for n in sorted(self.rows)[-12:]:
            q = self.rows[n]
            best = ("", "nothing worked" if q.done else "", "") if q.best is None else (f"{q.best.us:.2f}", q.best.template, q.best.schedule)
            table.add_row(f"{n}/{q.problems}", q.nodes[:40], *best)
        spent = time.monotonic() - self.start
        tried = max(1, p.measured + p.failed)
        left = spent / tried * max(0, p.candidates - tried)
        table.caption = (f"of {p.candidates} candidates {p.compiled} compiled, {p.measured} measured, {p.failed} failed; "
                         f"{spent:.0f} s, about {left:.0f} s left")
        self.live.update(table)


Listen = _Lines | _Rows
INTERRUPTED = 130


@click.group("cache")
def cache_group() -> None:
    """Looks into caches of tuned schedules."""


def _open(folder: Path) -> Cache:
    if not (folder / FILE).exists():
        raise UsageError(f"{folder}: there is no {FILE} here; `taskc tune --cache {folder}` makes one")
    return Cache(folder, lambda m: click.echo(f"warning: {m}", err=True))


@cache_group.command("ls")
@click.argument("folder", type=PATH)
def cache_ls(folder: Path) -> None:
    """One line a tuned kernel."""
    for e in _open(folder).entries.values():
        tried = f"[{len(e.measured)} measured, {len(e.failed)} failed]"
        best = f"{e.best.us:9.2f} µs  {e.best.template} {e.best.schedule}" if e.best else "   nothing worked"
        click.echo(f"{e.key}  {e.target:8} {best}  {tried}{'' if e.complete else ' incomplete'}  {e.nodes[:60]}")


@cache_group.command("show")
@click.argument("folder", type=PATH)
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="The entry as JSON.")
def cache_show(folder: Path, key: str, as_json: bool) -> None:
    """The entry whose key begins with KEY: its problem and every schedule measured."""
    found = [e for e in _open(folder).entries.values() if e.key.startswith(key)]
    if len(found) != 1:
        raise UsageError(f"{key}: {len(found)} entries have a key that begins so; `taskc cache ls {folder}` lists them")
    click.echo(json.dumps(asdict(found[0]), indent=1) if as_json else _entry_text(found[0]))


def _entry_text(e: Entry) -> str:
    lines = [f"{e.key} {e.nodes}", e.problem, f"toolchain {e.toolchain}, kernel {e.kernel}, {e.device}"]
    lines += [f"{m.us:10.2f} µs  {m.template} {m.schedule}" for m in sorted(e.measured, key=lambda m: m.us)]
    return "\n".join(lines + [f"    failed  {t} {s}: {why}" for t, s, why in e.failed])


def _faster(e: Entry, known: Entry) -> bool:
    return e.best is not None and (known.best is None or e.best.us < known.best.us)


@cache_group.command("merge")
@click.argument("into", type=PATH)
@click.argument("sources", type=PATH, nargs=-1, required=True)
def cache_merge(into: Path, sources: tuple[Path, ...]) -> None:
    """Adds the entries of SOURCES to INTO; the faster of two entries for one kernel stays."""
    target = Cache(into, lambda m: click.echo(f"warning: {m}", err=True))
    added = 0
    for source in sources:
        for e in _open(source).entries.values():
            known = target.find(e.key)
            if known is None or known.toolchain != e.toolchain or _faster(e, known):
                target.add(e)
                added += 1
    click.echo(f"{added} entries added to {into / FILE}")
