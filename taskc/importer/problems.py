"""What is wrong with single nodes, collected over the whole model and reported at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskc.errors import BadModel, Unsupported


class NodeProblem(Exception):
    """Stops the reading of one node; the rest of the model is still looked at."""

    def __init__(self, reason: str, *, bad: bool) -> None:
        super().__init__(reason)
        self.reason, self.bad = reason, bad


class LearnedBound(Exception):
    """The model can only run when a symbol is at most `most`; reading starts again with that fact."""

    def __init__(self, symbol: str, most: int) -> None:
        super().__init__(f"{symbol} <= {most}")
        self.symbol, self.most = symbol, most


@dataclass(frozen=True)
class Problem:
    """One node that cannot be taken: its name, operator with domain and opset, and the reason."""

    node: str
    operator: str
    reason: str


@dataclass
class Problems:
    """All problems of a model."""

    bad: list[Problem] = field(default_factory=list[Problem])
    unsupported: list[Problem] = field(default_factory=list[Problem])

    def add(self, node: str, operator: str, problem: NodeProblem) -> None:
        (self.bad if problem.bad else self.unsupported).append(Problem(node, operator, problem.reason))

    def raise_any(self, model: str) -> None:
        """BadModel with every bad node, else Unsupported with every unsupported one, else nothing."""
        if self.bad:
            raise BadModel(f"{model} is not a valid ONNX model:\n{_listing(self.bad)}")
        if self.unsupported:
            raise Unsupported(f"{model} uses what taskc does not handle:\n{_listing(self.unsupported)}")


def _listing(problems: list[Problem]) -> str:
    """Grouped by operator, then by reason; every node is named."""
    groups: dict[str, dict[str, list[str]]] = {}
    for p in problems:
        groups.setdefault(p.operator, {}).setdefault(p.reason, []).append(p.node)
    lines: list[str] = []
    for operator, reasons in groups.items():
        count = sum(map(len, reasons.values()))
        lines.append(f"  {operator}: {count} node{'s' if count > 1 else ''}")
        lines += [f"    {', '.join(nodes)}: {reason}" for reason, nodes in reasons.items()]
    return "\n".join(lines)
