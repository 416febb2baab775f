"""Rewriting a Symbol: its nodes are visited in order, and each is kept or replaced."""
import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import mxnet as mx

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
    shape : tuple of int
        Of the node's first output.
    """

    op: str
    attrs: Dict[str, str]
    inputs: List[Entry]
    shape: Shape


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


Rule = Callable[[Rewriter, NodeView], Optional[Entry]]


def rewrite(symbol: mx.sym.Symbol, shapes: Dict[str, Shape], rule: Rule) -> mx.sym.Symbol:
    """A Symbol in which `rule` has replaced nodes.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
    shapes : dict
        Shapes of its inputs for some number of rows; parameters know theirs.
    rule : callable
        (rewriter, node) -> the entry that stands for the node's only output, or None to keep it.
        Nodes with several outputs can be kept only.
    """
    used = set(symbol.list_inputs())
    internals = symbol.get_internals()
    _, outputs, _ = internals.infer_shape(
        **{name: shape for name, shape in shapes.items() if name in used})
    if outputs is None:
        return symbol
    graph = json.loads(symbol.tojson())
    names, rewriter, moved, position, changed = [
        output.name for output in internals], Rewriter(), {}, 0, False
    for index, node in enumerate(graph['nodes']):
        first = position
        position += 1
        while node['op'] != 'null' and position < len(names) and names[position] == node['name']:
            position += 1
        count = position - first
        inputs = [moved[source[0], source[1]] for source in node['inputs']]
        replaced = None
        if node['op'] != 'null':
            replaced = rule(rewriter, NodeView(node['op'], node.get('attrs', {}), inputs,
                                               outputs[first]))
        if replaced is not None:
            moved[index, 0], changed = replaced, True
            continue
        rewriter.nodes.append(dict(node, inputs=[[entry.node, entry.output, source[2]]
                                                 for entry, source in zip(inputs,
                                                                          node['inputs'])]))
        for output in range(count):
            moved[index, output] = Entry(len(rewriter.nodes) - 1, output,
                                         outputs[first + output])
    if not changed:
        return symbol
    heads = [moved[head[0], head[1]] for head in graph['heads']]
    return load(dict(graph, nodes=rewriter.nodes,
                     heads=[[entry.node, entry.output, 0] for entry in heads]))


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
