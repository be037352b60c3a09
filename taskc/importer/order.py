"""Which nodes the outputs need, in an order where every node follows its producers. Finds cycles and unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from taskc.importer.problems import NodeProblem

_DEPTH = 20  # subgraphs inside subgraphs


def label(node: NodeProto) -> str:
    """The user's name of a node: its name, else its operator and first output."""
    return node.name or f"{node.op_type}({next((o for o in node.output if o), '')})"


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs among a node's attributes."""
    own = [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]
    return own + [g for a in node.attribute if a.type == AttributeProto.GRAPHS for g in a.graphs]


def captured(graph: GraphProto, depth: int = 0) -> set[str]:
    """Names that a subgraph takes from the graphs around it."""
    if depth > _DEPTH:
        raise NodeProblem(f"subgraphs are nested more than {_DEPTH} deep", bad=True)
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    used: set[str] = set()
    for node in graph.node:
        used.update(i for i in node.input if i)
        for g in subgraphs(node):
            used |= captured(g, depth + 1)
    used.update(o.name for o in graph.output)
    return used - own - {o for n in graph.node for o in n.output}


def reads(node: NodeProto) -> list[str]:
    """Every value that a node reads, those of its subgraphs included."""
    names = [i for i in node.input if i]
    for g in subgraphs(node):
        names += sorted(captured(g))
    return names


def needed_nodes(nodes: Sequence[NodeProto], outputs: Iterable[str], available: frozenset[str] | set[str]) -> list[NodeProto]:
    """The nodes that `outputs` depend on, producers first. NodeProblem (bad) for cycles, unknown and twice-made names."""
    producer: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for o in node.output:
            if o and o in producer:
                raise NodeProblem(f"value {o!r} is made twice: by {label(nodes[producer[o]])} and by {label(node)}", bad=True)
            if o:
                producer[o] = i
    done: dict[int, bool] = {}  # False while a node's producers are being visited
    order: list[int] = []
    for wanted in outputs:
        stack = _open(wanted, "the graph's outputs", producer, available)
        while stack:
            i = stack[-1]
            if i in done:
                if not done[i]:
                    done[i] = True
                    order.append(i)
                stack.pop()
                continue
            done[i] = False
            for name in reads(nodes[i]):
                for j in _open(name, label(nodes[i]), producer, available):
                    if done.get(j) is False:
                        raise NodeProblem(f"nodes {label(nodes[i])} and {label(nodes[j])} depend on each other in a circle", bad=True)
                    if j not in done:
                        stack.append(j)
    position = {i: k for k, i in enumerate(order)}
    in_file_order = all(producer.get(name, -1) < i for i in order for name in reads(nodes[i]) if name in producer)
    return [nodes[i] for i in (sorted(order) if in_file_order else sorted(order, key=position.__getitem__))]


def _open(name: str, reader: str, producer: dict[str, int], available: frozenset[str] | set[str]) -> list[int]:
    if name in producer:
        return [producer[name]]
    if name in available:
        return []
    raise NodeProblem(f"{reader} reads {name!r}, which nothing produces", bad=True)
