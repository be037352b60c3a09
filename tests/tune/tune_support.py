"""Tasks to tune, and stand-ins for what compiles and what measures."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field

from taskc.fuse.units import Unit
from taskc.ir.dtype import F16, F32, DType
from taskc.ir.expr import Index
from taskc.ir.task import Map, Store, Task, axis
from taskc.ir.value import Tensor, call
from taskc.ops.matmul import MatMul
from taskc.tune.cache import Entry, Measured
from taskc.tune.tuner import Progress
from taskc.tune.worker import Answer, Candidate, Check, CompiledCandidate, Trial, compile_candidate


def product(m: Index = 33, n: int = 65, k: int = 40, *, names: tuple[str, str, str] = ("x", "w", "y"), dtype: DType = F16, constant: bool = True,
            source: str = "matmul") -> Unit:
    """y[m, n] = x @ w, a unit as the importer makes it."""
    x, w, y = (Tensor(names[0], dtype, (m, k)), Tensor(names[1], dtype, (k, n), constant), Tensor(names[2], dtype, (m, n)))
    return Unit(MatMul().task([x, w], [y]), (source,))


def sums(n: int = 1000, source: str = "add") -> Unit:
    """c = a + b in float32."""
    a, b, c = (Tensor(name, F32, (n,)) for name in "abc")
    i = axis("i", n)
    task: Task = Map((i,), (Store(c, (i.var,), call("add", a.at(i.var), b.at(i.var))),))
    return Unit(task, (source,))


def entry(key: str = "k1", us: float = 2.5, toolchain: str = "nvrtc 13.0", *, kernel: str = "abc", schedule: str = "s") -> Entry:
    best = Measured("matmul_simt", schedule, us)
    return Entry(key, "text", "sm_90a", "H200", "matmul", best, kernel, toolchain, (best, Measured("matmul_simt", "t", us + 1)),
                 (("matmul_mma", "u", "no result within 10 seconds"),))


Outcome = Callable[[Candidate], "CompiledCandidate | Exception | None"]


@dataclass
class FakeCompilers:
    """Builds every candidate at once and in this process; the cubin is a word. `outcome` may put something else in a result's
    place: an exception to raise from the future, or None for a future that never ends."""

    outcome: Outcome | None = None
    submitted: list[Candidate] = field(default_factory=list[Candidate])
    closed: bool = False

    def submit(self, candidate: Candidate) -> Future[CompiledCandidate]:
        self.submitted.append(candidate)
        future: Future[CompiledCandidate] = Future()
        made = self.outcome(candidate) if self.outcome else built(candidate)
        if isinstance(made, Exception):
            future.set_exception(made)
        elif made is not None:
            future.set_result(made)
        return future

    def close(self) -> None:
        self.closed = True


def built(candidate: Candidate) -> CompiledCandidate:
    """A candidate's program without its machine code."""
    return compile_candidate(candidate, lambda text, arch, name: b"cubin of " + name.encode())


@dataclass
class FakeMeasurer:
    """Times candidates by number; `wrong` says for a check what is wrong."""

    times: Callable[[int, Trial], Answer] = lambda n, trial: (10.0 + n, "")
    wrong: Callable[[int, Check], str] = lambda n, check: ""
    trials: list[Trial] = field(default_factory=list[Trial])
    checks: list[Check] = field(default_factory=list[Check])
    closed: bool = False

    def time(self, trial: Trial) -> Answer:
        assert trial.library.exists(), "the library is there while it is measured"
        self.trials.append(trial)
        return self.times(len(self.trials) - 1, trial)

    def check(self, check: Check) -> str:
        assert check.trial.library.exists()
        self.checks.append(check)
        return self.wrong(len(self.checks) - 1, check)

    def close(self) -> None:
        self.closed = True


class Died(BrokenExecutor):
    """A compiling process that ended."""


Events = list[Progress]
