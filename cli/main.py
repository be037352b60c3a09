"""The command `taskc`."""

from __future__ import annotations

import sys

import click

from taskc import __version__

from .compile import compile_command
from .failures import guarded
from .library import bench_command, inspect_command, run_command, verify_command
from .machine import doctor_command
from .model import check_command, explain_command, ops_command
from .tune import cache_group, tune_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="taskc")
def taskc() -> None:
    """Compiles ONNX models into self-contained CUDA libraries, and runs, checks and measures them."""


for _command in (compile_command, run_command, verify_command, bench_command, inspect_command, check_command, explain_command, ops_command,
                 doctor_command, tune_command, cache_group):
    taskc.add_command(_command)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and exits with its code."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(guarded(lambda: taskc.main(given, prog_name="taskc", standalone_mode=False), given))


if __name__ == "__main__":
    main()
