"""Rewriting a Symbol: its nodes are visited in order, and each is kept or replaced."""
import json
from collections import Counter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np

Shape = Tuple[int, ...]


class Entry(NamedTuple):
    """One output of a node of the new graph."""

    node: int
    output: int
    shape: Shape


class NodeView(NamedTuple):
    """A node of the old graph as a rule sees it.

    Attributes
    ----------
    op : str
    attrs : dict of str to str
    inputs : list of Entry
        In the new graph.
    shapes : list of tuple of int
        Of the node's outputs.
    dtype : type or None
        Of the node's first output, where those of the inputs tell.
    uses : list of int
        How many operators and results read each of the inputs.
    """

    op: str
    attrs: Dict[str, str]
    inputs: List[Entry]
    shapes: List[Shape]
    dtype: Optional[type]
    uses: List[int]

    @property
    def shape(self) -> Shape:
        """Of the node's first output."""
        return self.shapes[0]

    @property
    def floating(self) -> bool:
        """Whether the dtype is known to be a floating one."""
        return self.dtype is not None and np.issubdtype(self.dtype, np.floating)


class Rewriter:
    """Builds a new graph node by node; a rule calls `add` for what replaces a node."""

    def __init__(self):
        self.nodes: List[Dict[str, Any]] = []

    def add(self, op: str, inputs: List[Entry], result: Shape, **attrs: Any) -> Entry:
        """Append an operator with one output, of shape `result`; attributes become text."""
        self.nodes.append({
            'op': op, 'name': f'edb_{op.strip("_").lower()}{len(self.nodes)}',
            'attrs': {key: str(value) for key, value in attrs.items()},
            'inputs': [[entry.node, entry.output, 0] for entry in inputs]})
        return Entry(len(self.nodes) - 1, 0, result)

    def variable(self, name: str) -> Entry:
        """Append a further input of the graph."""
        self.nodes.append({'op': 'null', 'name': name, 'inputs': []})
        return Entry(len(self.nodes) - 1, 0, ())


Rule = Callable[[Rewriter, NodeView], Union[Entry, Sequence[Entry], None]]


def rewrite(symbol: mx.sym.Symbol, shapes: Dict[str, Shape], rule: Rule) -> mx.sym.Symbol:
    """A Symbol in which `rule` has replaced nodes.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
    shapes : dict
        Shapes of its inputs for some number of rows; parameters know theirs.
    rule : callable
        (rewriter, node) -> the entry that stands for the node's only output, or a list with one
        for each of its outputs, or None to keep it. A node that is kept becomes the next of
        ``rewriter.nodes``.
    """
    graph = json.loads(symbol.tojson())
    outputs = _outputs(symbol, graph['nodes'], shapes)
    if outputs is None:
        return symbol
    uses = _uses(graph)
    rewriter, moved, changed = Rewriter(), {}, False
    for index, node in enumerate(graph['nodes']):
        inputs = [moved[source[0], source[1]] for source in node['inputs']]
        replaced = None
        if node['op'] != 'null':
            replaced = rule(rewriter, NodeView(
                node['op'], node.get('attrs', {}), inputs, outputs[index].shapes,
                outputs[index].dtype, [uses[tuple(source[:2])] for source in node['inputs']]))
        if replaced is None:
            rewriter.nodes.append(dict(node, inputs=[
                [entry.node, entry.output, source[2]]
                for entry, source in zip(inputs, node['inputs'])]))
            replaced = [Entry(len(rewriter.nodes) - 1, output, shape)
                        for output, shape in enumerate(outputs[index].shapes)]
        else:
            replaced, changed = [replaced] if isinstance(replaced, Entry) else replaced, True
        moved.update({(index, output): entry for output, entry in enumerate(replaced)})
    if not changed:
        return symbol
    heads = [_computed(rewriter, moved[head[0], head[1]]) for head in graph['heads']]
    return load(dict(graph, nodes=rewriter.nodes,
                     heads=[[entry.node, entry.output, 0] for entry in heads]))


def _computed(rewriter: Rewriter, entry: Entry) -> Entry:
    """A compiled graph does not write a variable to its output."""
    if rewriter.nodes[entry.node]['op'] != 'null':
        return entry
    return rewriter.add('_copy', [entry], entry.shape)


class _Outputs(NamedTuple):
    """Of one node."""

    shapes: List[Shape]
    dtype: Optional[type]


def _outputs(symbol: mx.sym.Symbol, nodes: List[dict], shapes: Dict[str, Shape]
             ) -> Optional[List[_Outputs]]:
    """Shapes and dtypes in a graph, node by node; None if the shapes cannot be inferred."""
    internals, used = symbol.get_internals(), set(symbol.list_inputs())
    _, found, _ = internals.infer_shape(
        **{name: shape for name, shape in shapes.items() if name in used})
    if found is None:
        return None
    try:
        dtypes = internals.infer_type_partial()[1]
    except mx.base.MXNetError:  # some operators insist on knowing
        dtypes = [None] * len(found)
    names, outputs, position = [output.name for output in internals], [], 0
    for node in nodes:
        first = position
        position += 1
        while node['op'] != 'null' and position < len(names) and names[position] == node['name']:
            position += 1
        outputs.append(_Outputs(found[first:position], dtypes[first]))
    return outputs


def _uses(graph: Dict[str, Any]) -> Counter:
    """How often each output of each node is read, or is a result."""
    return Counter(tuple(source[:2]) for sources in
                   [node['inputs'] for node in graph['nodes']] + [graph['heads']]
                   for source in sources)


def load(graph: Dict[str, Any]) -> mx.sym.Symbol:
    """A Symbol from its JSON form, without the nodes that its heads do not need."""
    nodes, needed = graph['nodes'], set()
    stack = [head[0] for head in graph['heads']]
    while stack:
        index = stack.pop()
        if index not in needed:
            needed.add(index)
            stack += [source[0] for source in nodes[index]['inputs']]
    position = {index: new for new, index in enumerate(sorted(needed))}

    def moved(source):
        return [position[source[0]]] + list(source[1:])

    kept = [dict(nodes[index], inputs=[moved(source) for source in nodes[index]['inputs']])
            for index in sorted(needed)]
    graph = dict(graph, nodes=kept, heads=[moved(head) for head in graph['heads']],
                 arg_nodes=[i for i, node in enumerate(kept) if node['op'] == 'null'])
    graph.pop('node_row_ptr', None)
    return mx.sym.load_json(json.dumps(graph))
