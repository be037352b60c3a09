"""Events of a compile -> a live display on a terminal, plain lines elsewhere; both on stderr."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from taskc.observe import Event, Listener

SAYING = {"import": "reading the model", "passes": "simplifying", "partition": "grouping", "kernels": "choosing schedules",
          "launches": "joining branches", "compile": "compiling kernels", "write": "building the library"}  # fmt: skip
_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(verbose: bool) -> Generator[Listener, None, None]:
    """A listener for an Observer."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(verbose)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description:<22}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(),
               TimeRemainingColumn(compact=True), TextColumn("{task.fields[item]}", style="dim"))
    with Progress(*columns, console=console, transient=not verbose) as bars:
        yield _Bars(bars)


class _Lines:
    """One line a step, and one every few seconds inside a long one."""

    def __init__(self, verbose: bool) -> None:
        self.verbose, self.last = verbose, time.monotonic()

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if not event.total:
            click.echo(f"taskc: {SAYING.get(event.step, event.step)}", err=True)
        elif self.verbose or event.done == event.total or now - self.last >= _SECONDS_BETWEEN_LINES:
            click.echo(f"taskc:   {event.done} of {event.total}" + (f"  {event.item}" if self.verbose else ""), err=True)
        else:
            return
        self.last = now


class _Bars:
    """A bar for each step that counts, a spinner for the others; a step that begins again starts a new one."""

    def __init__(self, bars: Progress) -> None:
        self.bars, self.tasks = bars, dict[str, TaskID]()

    def __call__(self, event: Event) -> None:
        if not event.total:
            for step, task in self.tasks.items():
                if step != "write":
                    total = self.bars.tasks[self.bars.task_ids.index(task)].total or 1
                    self.bars.update(task, total=total, completed=total, item="")
            self.tasks[event.step] = self.bars.add_task(SAYING.get(event.step, event.step), total=None, item="")
            return
        self.bars.update(self.tasks[event.step], total=event.total, completed=event.done, item=event.item[:60])
