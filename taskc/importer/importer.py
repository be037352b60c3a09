"""`.onnx` -> Graph: reads nodes in dependency order, inlines functions and constant branches, reports all problems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from taskc.errors import BadModel, Unsupported
from taskc.importer.builder import Builder
from taskc.importer.constants import read_constant
from taskc.importer.functions import (
    DEPTH_LIMIT,
    FunctionKey,
    attributes_of_call,
    bind_attributes,
    expanded_size,
    is_defined_by_function,
    schema_function,
)
from taskc.importer.order import captured, label, needed_nodes, reads
from taskc.importer.problems import LearnedBound, NodeProblem, Problems
from taskc.importer.reading import NodeReading
from taskc.importer.schema import HIGHEST_OPSET, check_node, check_types, find_schema
from taskc.importer.source import Source, load_model
from taskc.importer.symbols import Shape, Symbols, is_named
from taskc.importer.tensors import read_sparse, read_tensor
from taskc.ir.graph import Graph
from taskc.ops.registry import Reader, find_reader, load_operators

Env = dict[str, "str | None"]  # a name in the file -> value name, '' absent, None when it could not be read

_NODE_LIMIT = 200_000  # nodes after inlining; a file of a few kB can ask for billions
_REASONS = {
    "Loop": "loops are not handled", "Scan": "loops are not handled", "SequenceMap": "sequences are not handled",
    **dict.fromkeys(("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceLength",
                     "SplitToSequence", "ConcatFromSequence"), "sequences are not handled"),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), "optional values are not handled"),
    **dict.fromkeys(("NonZero", "Compress", "Unique", "NonMaxSuppression"), "the output's size depends on data"),
    **dict.fromkeys(("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"), "strings are not handled"),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"),
                    "random numbers are not handled"),
}


def import_model(source: Source, *, shapes: Mapping[str, Shape] | None = None, dims: Mapping[str, int] | None = None) -> Graph:
    """Reads an ONNX model given as a path, bytes or ModelProto.

    `shapes` gives inputs whole shapes (None leaves a dim as it is), `dims` fixes named dims. Initializers that are also
    inputs are constants. BadModel: missing, damaged or inconsistent file. Unsupported: every node taskc cannot take.
    UsageError: `shapes` or `dims` do not fit the model."""
    load_operators()
    model, folder, name = load_model(source)
    most: dict[str, int] = {}
    while True:  # each round learns a bound of one more symbol, or a smaller one
        try:
            return _Importer(model, folder, name, Symbols(dims or {}, shapes or {}, most)).run()
        except LearnedBound as learned:
            if learned.most >= most.get(learned.symbol, learned.most + 1):
                raise AssertionError(f"{learned} was known already") from None
            most[learned.symbol] = learned.most


@dataclass(frozen=True)
class _Scope:
    """Where nodes are read: the names in sight, opset versions by domain, a label prefix, and the functions being inlined."""

    env: Env
    opsets: Mapping[str, int]
    prefix: str = ""
    inlining: tuple[FunctionKey, ...] = ()


@dataclass
class _Importer:
    model: ModelProto
    folder: Path | None
    name: str
    symbols: Symbols
    builder: Builder = field(default_factory=Builder)
    problems: Problems = field(default_factory=Problems)
    functions: dict[FunctionKey, FunctionProto] = field(default_factory=dict[FunctionKey, FunctionProto])
    sizes: dict[FunctionKey, int] = field(default_factory=dict[FunctionKey, int])  # nodes of a call, by function
    count: int = 0

    def run(self) -> Graph:
        opsets = _opsets(self.model)
        self.functions = {(_domain(f.domain), f.name, f.overload): f for f in self.model.functions}
        graph, env = self.model.graph, Env()
        public = [o.name for o in graph.output]
        _refuse_duplicates("output", public)
        inputs = self._inputs(graph, env)
        try:
            self._graph_body(graph, public, _Scope(env, opsets))
        except NodeProblem as problem:
            raise BadModel(f"{self.name} is not a valid ONNX model: {problem.reason}") from None
        self.problems.raise_any(self.name)
        outputs: list[tuple[str, str]] = []
        for o in public:
            value = env[o]
            assert value is not None, "a value that could not be read has its problem reported"
            outputs.append((o, self.builder.at_run_time(value)))
        return self.builder.graph(self.name, inputs, tuple(outputs))

    def _inputs(self, graph: GraphProto, env: Env) -> tuple[str, ...]:
        """Declares the inputs that are not initializers. A file's other names are reserved as they come."""
        given = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        own = [i for i in graph.input if i.name not in given]
        _refuse_duplicates("input", [i.name for i in graph.input])
        declared = {d.dim_param for i in own for d in i.type.tensor_type.shape.dim if is_named(d)}
        self.symbols.fix_by_shapes(own)
        self.symbols.check_used(declared)
        for info in own:
            env[info.name] = self.builder.fresh(info.name)
            self.builder.types[info.name] = self.symbols.input_type(info)
        return tuple(i.name for i in own)

    def _graph_body(self, graph: GraphProto, wanted: Sequence[str], scope: _Scope) -> None:
        """Reads what `wanted` needs of a graph (the main one or a branch) into the scope's environment."""
        tensors = {t.name: t for t in graph.initializer}
        sparse = {t.values.name: t for t in graph.sparse_initializer}
        _refuse_duplicates("initializer", [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer])
        made = {o for n in graph.node for o in n.output if o}
        twice = made & (set(tensors) | set(sparse) | {i.name for i in graph.input})
        if twice:
            raise NodeProblem(f"value {min(twice)!r} is made by a node but is also an input or initializer", bad=True)
        nodes = needed_nodes(graph.node, wanted, set(scope.env) | set(tensors) | set(sparse))
        used = {name for n in nodes for name in reads(n)} | set(wanted)
        for name in [n for n in (*tensors, *sparse) if n in used]:
            array, dtype = read_tensor(tensors[name], self.folder) if name in tensors else read_sparse(sparse[name], self.folder)
            scope.env[name] = self.builder.constant(array, dtype, name)
        self._nodes(nodes, used, scope)

    def _nodes(self, nodes: Sequence[NodeProto], used: set[str], scope: _Scope) -> None:
        for node in nodes:
            self.count += 1
            if self.count > _NODE_LIMIT:
                raise NodeProblem(f"it has more than {_NODE_LIMIT} nodes when its functions are inlined", bad=True)
            wanted = max((i + 1 for i, o in enumerate(node.output) if o in used), default=0)
            outputs = [o for o in node.output[:wanted] if o]
            if any(scope.env[i] is None for i in reads(node) if i in scope.env):
                scope.env.update(dict.fromkeys(outputs))
                self._note_unknown(node, scope)
                continue
            try:
                values = self._read(node, wanted, scope)
            except NodeProblem as problem:
                self._note(node, scope, problem)
                scope.env.update(dict.fromkeys(outputs))
            except (BadModel, Unsupported) as error:  # a tensor inside the node
                self._note(node, scope, NodeProblem(str(error), bad=isinstance(error, BadModel)))
                scope.env.update(dict.fromkeys(outputs))
            else:
                scope.env.update((o, v) for o, v in zip(node.output, values, strict=False) if o)

    def _note(self, node: NodeProto, scope: _Scope, problem: NodeProblem) -> None:
        domain = _domain(node.domain)
        version = scope.opsets.get(domain)
        operator = f"{node.op_type} ({domain or 'ai.onnx'}{'' if version is None else f' {version}'})"
        self.problems.add(scope.prefix + label(node), operator, problem)

    def _note_unknown(self, node: NodeProto, scope: _Scope) -> None:
        """A node behind one that cannot be read is still reported when its operator is unknown."""
        domain = _domain(node.domain)
        if (domain, node.op_type, node.overload) in self.functions or node.op_type in ("If", "Constant"):
            return
        opset = scope.opsets.get(domain, 0)
        schema = find_schema(node.op_type, domain, opset) if opset else None
        defined = schema is not None and is_defined_by_function(schema)
        if self._reader(node.op_type, opset, domain) is None and not defined:
            self._note(node, scope, NodeProblem(_why_unknown(node, domain, schema is not None), bad=False))

    def _read(self, node: NodeProto, wanted: int, scope: _Scope) -> Sequence[str | None]:
        """The values of the node's first `wanted` outputs."""
        builder, domain = self.builder, _domain(node.domain)
        key = (domain, node.op_type, node.overload)
        inputs = [scope.env[i] or "" if i else "" for i in node.input]
        if key in self.functions:
            if expanded_size(self.functions, key, self.sizes) > _NODE_LIMIT:
                raise NodeProblem(f"it becomes more than {_NODE_LIMIT} nodes when its functions are inlined", bad=True)
            return self._inline(self.functions[key], key, node, inputs, scope)
        if domain not in scope.opsets:
            raise NodeProblem(f"the model does not import the operator set {domain or 'ai.onnx'!r}", bad=True)
        opset = scope.opsets[domain]
        schema = find_schema(node.op_type, domain, opset)
        if schema is not None:
            check_node(node, schema)
        builder.source = scope.prefix + label(node)
        builder.stem = next((o for o in node.output if o), node.op_type)
        if node.op_type == "Constant" and not domain:
            return [read_constant(node, builder, self.folder)]
        if node.op_type == "If" and not domain:
            return self._branch(node, inputs[0], scope)
        types = [builder.types[i] if i else None for i in inputs]
        if schema is not None:
            check_types(schema, types)
        read = self._reader(node.op_type, opset, domain)
        if read is None:
            function = schema_function(schema, node, opset, types) if schema is not None else None
            if function is None:
                raise NodeProblem(_why_unknown(node, domain, schema is not None), bad=False)
            return self._inline(function, key, node, inputs, scope)
        while inputs and not inputs[-1]:
            inputs.pop()
        start = len(builder.nodes)
        outs = _guarded(read, NodeReading(node, opset, tuple(inputs), wanted, builder, self.folder))
        values = (outs,) if isinstance(outs, str) else tuple(outs)
        if len(values) < wanted:
            raise NodeProblem(f"its output {node.output[wanted - 1]!r} is not handled", bad=False)
        return [builder.rename(v, o, start) if o else v for v, o in zip(values, node.output, strict=False)]

    @staticmethod
    def _reader(op_type: str, opset: int, domain: str) -> Reader | None:
        """The reader; none for an operator that ONNX has only in other opsets than this."""
        if find_schema(op_type, domain, opset) is None and find_schema(op_type, domain, HIGHEST_OPSET) is not None:
            return None
        return find_reader(op_type, opset, domain)

    def _inline(self, function: FunctionProto, key: FunctionKey, call: NodeProto, inputs: Sequence[str], scope: _Scope) -> list[str | None]:
        """Reads a function's body with the call's inputs and attributes in place of its own."""
        if len(scope.inlining) > DEPTH_LIMIT or (key in scope.inlining and key not in self.functions):
            raise NodeProblem(f"{key[1]!r} is defined by itself, or functions call each other more than {DEPTH_LIMIT} deep", bad=True)
        if len(inputs) > len(function.input) or len(call.output) > len(function.output):
            raise NodeProblem(f"has {len(inputs)} inputs and {len(call.output)} outputs, more than its function declares", bad=True)
        env = Env(zip(function.input, [*inputs, *[""] * (len(function.input) - len(inputs))], strict=True))
        given = attributes_of_call(function, call)
        opsets = {**scope.opsets, **{_domain(o.domain): o.version for o in function.opset_import}}
        inner = _Scope(env, opsets, f"{scope.prefix}{label(call)}/", (*scope.inlining, key))
        wanted = list(function.output[: len(call.output)])
        nodes = needed_nodes([bind_attributes(n, given) for n in function.node], wanted, set(env))
        self._nodes(nodes, {name for n in nodes for name in reads(n)} | set(wanted), inner)
        return [env[o] for o in wanted]

    def _branch(self, node: NodeProto, condition: str, scope: _Scope) -> list[str | None]:
        """If with a condition known at compile time: the branch that runs takes the node's place."""
        known = self.builder.contents(condition)
        if known is None or known.size != 1 or known.dtype == object:
            raise NodeProblem("its condition is not known at compile time", bad=False)
        name = "then_branch" if bool(known.ravel()[0]) else "else_branch"
        graph = next(a.g for a in node.attribute if a.name == name and a.type == AttributeProto.GRAPH)
        captured(graph)  # refuses endless nesting
        env = Env(scope.env)  # names of the branch hide outer ones, and do not leak out
        wanted = [o.name for o in graph.output]
        if len(wanted) < len(node.output):
            raise NodeProblem(f"its {name} has fewer outputs than the node", bad=True)
        self._graph_body(graph, wanted, _Scope(env, scope.opsets, f"{scope.prefix}{label(node)}/", scope.inlining))
        return [env[o] for o in wanted]


def _guarded(read: Reader, reading: NodeReading) -> str | Sequence[str]:
    """Runs a reader. Readers check what users get wrong; what only a broken or hostile node can do ends here, named."""
    try:
        return read(reading)
    except (IndexError, KeyError, ValueError, TypeError, OverflowError, ZeroDivisionError, MemoryError) as error:
        raise NodeProblem(f"its inputs and attributes do not fit together ({type(error).__name__}: {error})", bad=True) from error


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _opsets(model: ModelProto) -> dict[str, int]:
    """The operator set versions the model imports, checked."""
    out = {_domain(o.domain): o.version for o in model.opset_import}
    if not out and model.ir_version < 3:
        return {"": 1}
    if not out:
        raise BadModel("the model imports no operator set; export it again with an opset version")
    version = out.get("", 1)
    if version < 1:
        raise BadModel(f"the model imports opset {version}, which does not exist")
    if version > HIGHEST_OPSET:
        raise Unsupported(f"the model uses opset {version}; the highest that taskc knows is {HIGHEST_OPSET}. "
                          f"Export it with opset {HIGHEST_OPSET} or lower")
    return out


def _why_unknown(node: NodeProto, domain: str, in_standard: bool) -> str:
    if not domain and node.op_type in _REASONS:
        return _REASONS[node.op_type]
    if in_standard:
        return "taskc has no such operator"
    return f"not an operator of {domain or 'ai.onnx'} at this opset, and no function of the model"


def _refuse_duplicates(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for n in names:
        if n in seen:
            raise BadModel(f"{what} {n!r} is there twice")
        if not n:
            raise BadModel(f"the graph has an {what} without a name")
        seen.add(n)
