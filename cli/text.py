"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def bytes_text(n: int | None) -> str:
    """1536 -> '1.5 kB'; None: it depends on symbolic dims."""
    if n is None:
        return "depends on dims"
    value = float(n)
    for unit in ("B", "kB", "MB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GB"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table on stdout; columns are aligned on a terminal and in a pipe alike."""
    console = Console()
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
