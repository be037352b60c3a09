"""Every way a command can end -> a message on stderr and an exit code. The one place that does this.

0 done, 2 usage, 3 bad model, 4 unsupported, 5 accuracy, 6 untuned, 7 toolchain, 8 no fitting GPU, 130 interrupted, 1 a bug in taskc.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import traceback
from collections.abc import Callable

import click

from taskc import __version__
from taskc.artifact.loader import ModelError
from taskc.errors import TaskcError, ToolchainError, UsageError

BUG, USAGE, INTERRUPTED = 1, UsageError.exit_code, 130
DEBUG = "TASKC_DEBUG"
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than the system allows",
}


def guarded(run: Callable[[], object], arguments: list[str]) -> int:
    """The exit code of a command; no traceback reaches the user unless TASKC_DEBUG is set."""
    try:
        result = run()
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted; nothing was written")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left: no second complaint at exit
        return 0
    except (TaskcError, ModelError) as e:
        _debug()
        _say(str(e))
        return e.exit_code
    except OSError as e:
        _debug()
        _say(_system(e))
        return USAGE
    except MemoryError:
        _debug()
        _say("this machine's memory is used up; close other programs, or compile with fewer --jobs")
        return ToolchainError.exit_code
    except Exception as e:  # the only place that may: whatever is left is a bug, and is reported as one
        _debug()
        _say(_bug(e, arguments))
        return BUG
    return result if isinstance(result, int) else 0


def _debug() -> None:
    if os.environ.get(DEBUG):
        traceback.print_exc()


def _say(message: str) -> None:
    click.echo(f"taskc: {message}", err=True)


def _system(e: OSError) -> str:
    what = _FULL.get(e.errno or 0, e.strerror or str(e))
    return f"{e.filename}: {what}" if e.filename else f"{what} (in the temporary folder? TMPDIR names another)"


def _bug(e: Exception, arguments: list[str]) -> str:
    frame = traceback.extract_tb(e.__traceback__)[-1]
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    command = f"{DEBUG}=1 taskc {shlex.join(arguments)}"
    return (f"this is a bug in taskc {__version__}, not in your model: {type(e).__name__}: {e} ({where})\n"
            f"please report it with the output of:\n  {command}")
