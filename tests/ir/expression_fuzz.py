"""Random index expressions beside their meaning on plain integers: what the simplifier is tested against."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from taskc.ir.arithmetic import maximum, minimum
from taskc.ir.evaluation import evaluate
from taskc.ir.expr import Index, Var

Values = Mapping[str, int]
Meaning = Callable[[Values], int]
Pair = tuple[Index, Meaning]

CONSTANTS = (0, 1, 2, 3, 4, 6, 8, 16, 24, 64, -1, -3)
DIVISORS = (1, 2, 3, 4, 7, 8, 16, 32, 48)


def variables(rng: random.Random) -> list[Var]:
    """Variables with every kind of fact: threads, lanes, blocks, tile origins, symbols, indices below a symbol or a product."""
    b, s, t = Var("B", 1), Var("S", 1, None, rng.choice([1, 8, 64])), Var("T", 1, rng.choice([None, 9]))
    return [
        Var("t", 0, 255), Var("l", 0, 7), Var("b", 0, None, rng.choice([1, 8, 64])), Var("k", 0, None, rng.choice([1, 32])),
        Var("w", -5, None), Var("r", 0, 3), b, s, t, Var("i", 0, None, below=b), Var("j", 0, None, below=s), Var("q", 0, below=s * t),
    ]


def assignment(rng: random.Random, env: list[Var]) -> dict[str, int]:
    """Values within the variables' facts."""
    out: dict[str, int] = {}
    for v in env:
        top = v.hi if v.hi is not None else evaluate(v.below, out) - 1 if v.below is not None else rng.choice([3, 40, 4000])
        low = -(-v.lo // v.div)
        out[v.name] = rng.randrange(low, max(low, top // v.div) + 1) * v.div
    return out


@dataclass
class Fuzz:
    """Makes random expressions over `env`."""

    rng: random.Random
    env: list[Var]

    def pair(self, depth: int) -> Pair:
        if depth == 0 or self.rng.random() < 0.15:
            return self._leaf()
        op = self.rng.choice("+*+/%/%-mMsS")
        x = self.pair(depth - 1)
        if op in "+-mM":
            return self._two(op, x, self.pair(depth - 1))
        if op in "sS":
            return _divided(op == "s", x, self._symbolic_divisor())
        if op == "*":
            if self.rng.random() < 0.3:
                y, fy = self.pair(depth - 1)
                return x[0] * y, lambda a: x[1](a) * fy(a)
            c = self.rng.choice(DIVISORS)
            return x[0] * c, lambda a: x[1](a) * c
        c = self.rng.choice(DIVISORS)
        return _divided(op == "/", x, (c, lambda _: c))

    def _leaf(self) -> Pair:
        if self.rng.random() < 0.3:
            c = self.rng.choice(CONSTANTS)
            return c, lambda _: c
        v = self.rng.choice(self.env)
        return v, lambda a: a[v.name]

    @staticmethod
    def _two(op: str, x: Pair, y: Pair) -> Pair:
        (a, fa), (b, fb) = x, y
        if op == "m":
            return minimum(a, b), lambda v: min(fa(v), fb(v))
        if op == "M":
            return maximum(a, b), lambda v: max(fa(v), fb(v))
        return (a + b, lambda v: fa(v) + fb(v)) if op == "+" else (a - b, lambda v: fa(v) - fb(v))

    def _symbolic_divisor(self) -> Pair:
        s = self.rng.choice([v for v in self.env if v.name in "BST"])
        c = self.rng.choice([1, 1, 2, 4, 64])
        if self.rng.random() < 0.3:
            t = next(v for v in self.env if v.name == "T")
            return s * t * c, lambda a: a[s.name] * a["T"] * c
        return s * c, lambda a: a[s.name] * c


def _divided(quotient: bool, x: Pair, d: Pair) -> Pair:
    if quotient:
        return x[0] // d[0], lambda a: x[1](a) // d[1](a)
    return x[0] % d[0], lambda a: x[1](a) % d[1](a)
