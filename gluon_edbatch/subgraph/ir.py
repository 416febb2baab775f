"""The intermediate representation of static subgraphs, read from MXNet's Symbol and written back.

Analyses, passes, splits and the lowering to native programs all read a `Subgraph`. Only this module
reads and writes MXNet's JSON.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple, Optional, Union

import mxnet as mx

from ..mx.arrays import dtype_number
from ..mx.symbols import infer_shape, infer_type, without_casts_of_amp
from ..ops.attrs import Attrs, Shape

INPUT = 'edb_input%d'  # names of inputs, by position
_VARIABLE = 'null'  # what MXNet calls the operator of a variable


def is_argument(name: str) -> bool:
    """Return whether a variable of this name is an argument, not a parameter."""
    return name.startswith(INPUT[: -len('%d')])


class Entry(NamedTuple):
    """One output of a node."""

    node: int
    output: int = 0


class Node(NamedTuple):
    """A variable, or an operator with its attributes and inputs."""

    op: str  # of MXNet's registry; empty for a variable
    name: str  # unique among the operators of a subgraph, and among its variables
    attrs: Attrs
    inputs: tuple[Entry, ...] = ()
    bodies: tuple['Body', ...] = ()  # of loops and conditions

    @property
    def is_variable(self) -> bool:
        """Whether the node is an argument, a parameter or an auxiliary state."""
        return not self.op

    @property
    def is_parameter(self) -> bool:
        """Whether the node is a variable and not an argument."""
        return not self.op and not is_argument(self.name)


class Outputs(NamedTuple):
    """Inferred shapes of a node's outputs, and dtype of the first."""

    shapes: list[Shape]
    dtype: Optional[type]  # of the first, where those of the inputs tell


class Subgraph:
    """A graph of nodes in topological order, and the outputs that are its results; immutable.

    Nodes are in MXNet's own order, so that MXNet's inferred shapes can be assigned to them.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
    from_json : bool, default False
        Whether `symbol` was read from JSON, which has no casts of MXNet's AMP.

    Attributes
    ----------
    symbol : mxnet.symbol.Symbol
    nodes : tuple of Node
    heads : tuple of Entry
        The results.
    """

    def __init__(self, symbol: mx.sym.Symbol, from_json: bool = False):
        if not from_json:
            symbol = without_casts_of_amp(symbol)
        graph = json.loads(symbol.tojson())
        names = Counter(node['name'] for node in graph['nodes'])
        if max(names.values(), default=1) > 1:  # MXNet allows it, and would not tell them apart
            for index, node in enumerate(graph['nodes']):
                if node['op'] != _VARIABLE:
                    node['name'] = f'{node["name"]}_{index}'
            symbol = mx.sym.load_json(json.dumps(graph))
            graph = json.loads(symbol.tojson())
        self.symbol = symbol
        self.nodes, self.heads = _parsed(graph)
        self._last_outputs: tuple[Any, Optional[list[Outputs]]] = (None, None)  # for what

    @classmethod
    def of(cls, nodes: Sequence[Node], heads: Iterable[Entry]) -> 'Subgraph':
        """Make a graph of nodes in topological order; leave out those that no head needs.

        A compiled graph cannot return a variable, or one entry twice: such heads become copies.
        """
        nodes, distinct = list(nodes), []
        for entry in heads:
            if entry in distinct or nodes[entry.node].is_variable:
                nodes.append(Node('_copy', f'edb_copy{len(nodes)}', Attrs(), (entry,)))
                entry = Entry(len(nodes) - 1)
            distinct.append(entry)
        kept = sorted(_ancestors(nodes, distinct))
        place = {index: new for new, index in enumerate(kept)}

        def moved(entries: Iterable[Entry]) -> tuple[Entry, ...]:
            return tuple([Entry(place[index], output) for index, output in entries])

        own = [nodes[index]._replace(inputs=moved(nodes[index].inputs)) for index in kept]
        fields = {**_as_json(own, moved(distinct)), 'attrs': _version()}
        return cls(mx.sym.load_json(json.dumps(fields)), from_json=True)

    @classmethod
    def opaque(cls, op: str, inputs: Sequence[str], outputs: int) -> 'Subgraph':
        """Make a graph of one operator that MXNet does not know; such a graph has no symbol."""
        graph = cls.__new__(cls)
        nodes = [Node('', name, Attrs()) for name in inputs]
        nodes.append(Node(op, op, Attrs(), tuple(map(Entry, range(len(inputs))))))
        graph.nodes = tuple(nodes)
        graph.heads = tuple([Entry(len(inputs), output) for output in range(outputs)])
        graph.symbol = None
        graph.__dict__.update(variables=list(inputs), states=[])
        return graph

    def __str__(self) -> str:
        """Return the graph as text, one line for each node."""
        lines = []
        for index, node in enumerate(self.nodes):
            arguments = [self._named(entry) for entry in node.inputs]
            arguments += [
                f'{key}={value}'
                for key, value in sorted(node.attrs.items())
                if not key.startswith('__')
            ]
            lines.append(
                f'%{index} = {node.name}'
                if node.is_variable
                else f'%{index} = {node.op}({", ".join(arguments)})'
            )
        return '\n'.join(lines + [f'return {", ".join(map(self._named, self.heads))}'])

    def _named(self, entry: Entry) -> str:
        return f'%{entry.node}' + (f'.{entry.output}' if entry.output else '')

    @cached_property
    def variables(self) -> list[str]:
        """Names of the variables, in the order in which a compiled call takes them."""
        return self.symbol.list_inputs()

    def variable(self, name: str) -> mx.sym.Symbol:
        """Return a variable's Symbol, to build another graph on."""
        return self._internals[name]

    @cached_property
    def states(self) -> list[str]:
        """Names of the variables that operators write to."""
        return self.symbol.list_auxiliary_states()

    @cached_property
    def operators(self) -> list[str]:
        """Names of the operators, one for each node that is not a variable."""
        return [node.op for node in self.nodes if node.op]

    @cached_property
    def uses(self) -> 'Counter[Entry]':
        """How many operators and results read each entry."""
        return Counter(
            entry
            for entries in [*[node.inputs for node in self.nodes], self.heads]
            for entry in entries
        )

    @cached_property
    def structure(self) -> Optional[tuple]:
        """What graphs share that differ in names of operators only; None if there are bodies."""
        if any([node.bodies for node in self.nodes]):
            return None
        nodes = [
            (node.op or (node.name,), frozenset(node.attrs.items()), node.inputs)
            for node in self.nodes
        ]
        return (*nodes, self.heads)

    def with_variables(self, renamed: Mapping[str, str]) -> 'Subgraph':
        """Return the graph with some variables renamed."""
        nodes = [
            node._replace(name=renamed.get(node.name, node.name)) if node.is_variable else node
            for node in self.nodes
        ]
        return Subgraph.of(nodes, self.heads)

    def with_dtypes(self, dtypes: Mapping[str, Any]) -> 'Subgraph':
        """Return the graph with dtypes written at some variables, as Gluon does at parameters."""
        numbers = {name: str(dtype_number(dtype)) for name, dtype in dtypes.items()}
        nodes = [
            node._replace(attrs=Attrs(node.attrs, __dtype__=numbers[node.name]))
            if node.is_variable and node.name in numbers
            else node
            for node in self.nodes
        ]
        return Subgraph.of(nodes, self.heads)

    def ancestors(self, heads: Iterable[Entry]) -> set[int]:
        """Return all nodes that some entries need."""
        return _ancestors(self.nodes, heads)

    # --- shapes and dtypes -----------------------------------------------------------------------

    def infer(self, shapes: Mapping[str, Shape]) -> Optional[list[list[Shape]]]:
        """Return shapes of each node's outputs; None if they cannot be inferred.

        Raises
        ------
        mxnet.base.MXNetError
            If shapes do not fit.
        """
        _, found, _ = infer_shape(self._internals, self.known(shapes))
        if found is None:
            return None
        return [
            [tuple(shape) for shape in found[begin:end]]
            for begin, end in zip(self._bounds, self._bounds[1:])
        ]

    def outputs(
        self, shapes: Mapping[str, Shape], dtypes: Optional[Mapping[str, Any]] = None
    ) -> Optional[list[Outputs]]:
        """Return shapes and dtypes of each node's outputs; None if shapes cannot be inferred."""
        known = self.known(shapes), self.known(dtypes or {})
        if self._last_outputs[0] == known:  # most passes ask the same of a graph that stays
            return self._last_outputs[1]
        found, outputs = self.infer(shapes), None
        if found is not None:
            try:
                types = self._internals.infer_type_partial(**known[1])[1]
            except mx.base.MXNetError:  # some operators insist on knowing
                types = [None] * self._bounds[-1]
            outputs = [Outputs(own, types[begin]) for own, begin in zip(found, self._bounds)]
        self._last_outputs = known, outputs
        return outputs

    def results(
        self, shapes: Mapping[str, Shape], dtypes: Mapping[str, Any]
    ) -> list[tuple[Shape, type]]:
        """Return shape and dtype of each result."""
        _, found, _ = infer_shape(self.symbol, self.known(shapes))
        return list(zip(found, infer_type(self.symbol, self.known(dtypes))[1]))

    def known(self, of_variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the items of a dict whose keys are variables of this graph."""
        return {name: of_variables[name] for name in self.variables if name in of_variables}

    @cached_property
    def _internals(self) -> mx.sym.Symbol:
        return self.symbol.get_internals()

    @cached_property
    def _bounds(self) -> list[int]:
        """Positions of each node's first output among all outputs, and the end of the last."""
        names = [output.name for output in self._internals]
        bounds: list[int] = []
        for position, name in enumerate(names):
            node = self.nodes[len(bounds) - 1] if bounds else None
            if node is None or node.is_variable or node.name != name:
                bounds.append(position)
        return bounds + [len(names)]


def _ancestors(nodes: Sequence[Node], heads: Iterable[Entry]) -> set[int]:
    needed: set[int] = set()
    waiting = [entry.node for entry in heads]
    while waiting:
        index = waiting.pop()
        if index not in needed:
            needed.add(index)
            waiting += [entry.node for entry in nodes[index].inputs]
    return needed


def _parsed(graph: dict[str, Any]) -> tuple[tuple[Node, ...], tuple[Entry, ...]]:
    def entries(sources):
        return tuple([Entry(*source[:2]) for source in sources])

    nodes = tuple(
        [
            Node(
                '' if node['op'] == _VARIABLE else node['op'],
                node['name'],
                Attrs(node.get('attrs', {})),
                entries(node['inputs']),
                tuple([Body(inner) for inner in node.get('subgraphs', ())]),
            )
            for node in graph['nodes']
        ]
    )
    return nodes, entries(graph['heads'])


class Body:
    """A read-only subgraph inside an operator, as MXNet writes it."""

    def __init__(self, graph: dict[str, Any]):
        self.json = graph
        self.nodes, self.heads = _parsed(graph)

    @classmethod
    def of(cls, nodes: Sequence[Node], heads: Sequence[Entry]) -> 'Body':
        """Make a body of nodes in topological order, and its results."""
        return cls(_as_json(nodes, heads))

    @cached_property
    def symbol(self) -> mx.sym.Symbol:
        """The subgraph as a Symbol."""
        return mx.sym.load_json(json.dumps({**self.json, 'attrs': _version()}))


def operators_of(graph: Union[Subgraph, Body]) -> set[str]:
    """Return names of the operators of a graph, and of the bodies in it."""
    bodies = [body for node in graph.nodes for body in node.bodies]
    return {node.op for node in graph.nodes if node.op}.union(*map(operators_of, bodies))


def _as_json(nodes: Sequence[Node], heads: Sequence[Entry]) -> dict[str, Any]:
    def sources(entries):
        return [[entry.node, entry.output, 0] for entry in entries]

    written = []
    for node in nodes:
        item = {'op': node.op or _VARIABLE, 'name': node.name, 'inputs': sources(node.inputs)}
        if node.attrs:
            item['attrs'] = node.attrs
        if node.bodies:
            item['subgraphs'] = [body.json for body in node.bodies]
        written.append(item)
    return {
        'nodes': written,
        'heads': sources(heads),
        'arg_nodes': [index for index, node in enumerate(nodes) if node.is_variable],
    }


@cache
def _version() -> dict[str, Any]:
    """Return the graph attributes with MXNet's version: graphs without it count as older."""
    return json.loads(mx.sym.var('x').tojson())['attrs']
