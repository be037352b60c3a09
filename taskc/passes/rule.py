"""Rewrite rules: before (finds a place), why_not (the reason to leave it alone), after (what stands there instead).

`apply_rules` runs rules from the first node to the last until nothing changes; refusals are given to `note`, once each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from taskc.ir.graph import Graph, Node
from taskc.passes.editor import Editor, queue_of

Found = TypeVar("Found")
_SWEEPS = 50


class Rule(ABC, Generic[Found]):
    """A rewrite that ends in one node. Its docstring is `before -> after`."""

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def before(self, e: Editor, n: Node) -> Found | None:
        """What there is to rewrite at node `n` and above it, or None."""

    def why_not(self, e: Editor, found: Found) -> str | None:
        """The reason not to rewrite what was found; None to go on."""
        return None

    @abstractmethod
    def after(self, e: Editor, found: Found) -> str:
        """Adds the new nodes and returns the value that replaces the node's output."""


@dataclass(frozen=True)
class Refusal:
    """A rule that found its place and did not apply."""

    rule: str
    node: str
    reason: str


Note = Callable[[Refusal], None]


def apply_rules(graph: Graph, rules: Sequence[Rule[object]], note: Note | None = None) -> Graph:
    """The graph with the rules applied until none of them applies. RuntimeError when rules undo each other for ever."""
    told: set[Refusal] = set()

    def tell(refusal: Refusal) -> None:
        if note is not None and refusal not in told:
            told.add(refusal)
            note(refusal)

    for _ in range(_SWEEPS):
        graph, changed = _sweep(graph, rules, tell)
        if not changed:
            return graph
    raise RuntimeError(f"the rules {', '.join(r.name for r in rules)} do not come to rest")


def _sweep(graph: Graph, rules: Sequence[Rule[object]], tell: Note) -> tuple[Graph, bool]:
    e, queue = Editor(graph), queue_of(graph)
    changed = False
    while queue:
        n = e.current(queue.popleft())
        value = _first(e, n, rules, tell) if len(n.outputs) == 1 else None
        if value is None:
            e.keep(n)
        else:
            changed = True
            queue.extendleft(reversed(e.put(n, value)))
    return e.finish(), changed


def _first(e: Editor, n: Node, rules: Sequence[Rule[object]], tell: Note) -> str | None:
    """The value that the first applicable rule puts in place of the node's output."""
    for rule in rules:
        found = rule.before(e, n)
        if found is None:
            continue
        reason = rule.why_not(e, found)
        if reason is None:
            return rule.after(e, found)
        tell(Refusal(rule.name, n.source or n.op.name, reason))
    return None
