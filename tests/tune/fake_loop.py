"""What a measuring process may do, told by the trial's file name; run in a process of its own in place of the GPU's loop."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection

from taskc.tune.worker import READY, Check


def loop(pipe: Connection, ordinal: int) -> None:
    """ok: 5 us; hang: no answer; die: the process ends; fault: answers and ends; late: answers after 0.4 seconds."""
    if ordinal == 9:
        pipe.send((0, (None, "there is no GPU 9"), False))
        return
    pipe.send((0, READY, True))
    while True:
        try:
            number, request = pipe.recv()
        except EOFError:
            return
        if isinstance(request, Check):
            pipe.send((number, (None, "wrong result: all of it"), True))
            continue
        what = request.library.name
        if what == "hang":
            time.sleep(60)
        elif what == "die":
            os._exit(3)
        elif what == "fault":
            pipe.send((number, (None, "ModelError: an illegal memory access"), False))
            return
        elif what == "late":
            time.sleep(0.4)
        pipe.send((number, (5.0 + os.getpid(), "") if what != "wrong" else (None, "ValueError: no"), True))
