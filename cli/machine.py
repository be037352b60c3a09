"""`taskc doctor`."""

from __future__ import annotations

import click

from taskc.doctor import examine
from taskc.errors import ToolchainError


@click.command("doctor")
def doctor_command() -> None:
    """Look at what this machine has of what taskc needs. Exit code 7 when something is missing without which it cannot compile."""
    findings = examine()
    for f in findings:
        mark = "ok     " if f.ok else "MISSING" if f.needed else "absent "
        click.echo(f"{mark}  {f.what}: {f.detail}")
        if not f.ok and f.advice:
            click.echo(f"         -> {f.advice}")
    missing = [f.what for f in findings if f.needed and not f.ok]
    if missing:
        raise ToolchainError(f"compiling needs: {', '.join(missing)}")
