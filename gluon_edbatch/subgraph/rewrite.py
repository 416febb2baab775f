"""Rewrite a subgraph: visit its nodes in order, and keep or replace each."""

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np

from ..mx.numpy_compat import attribute_text
from .ir import Attrs, Body, Entry, Node, Shape, Subgraph


class Operand(NamedTuple):
    """One output of a node of the new graph, with its shape."""

    node: int
    output: int
    shape: Shape

    @property
    def entry(self) -> Entry:
        """Node and output number, without the shape."""
        return Entry(self.node, self.output)


class NodeView(NamedTuple):
    """A node of the old graph as a rule sees it."""

    op: str
    attrs: Attrs
    inputs: list[Operand]  # in the new graph
    shapes: list[Shape]  # of the node's outputs
    result_dtype: Optional[type]  # of the node's first output, where inputs tell
    input_dtypes: list[Optional[type]]  # of the inputs
    uses: list[int]  # how many operators and results read each of the inputs
    bodies: tuple[Body, ...]  # the graphs inside it
    index: int  # type: ignore[assignment]  # in the old graph

    @property
    def same_dtypes(self) -> bool:
        """Whether the first output and all inputs are known to have one dtype."""
        return self.result_dtype is not None and {*self.input_dtypes} == {self.result_dtype}

    @property
    def shape(self) -> Shape:
        """Shape of the node's first output."""
        return self.shapes[0]

    @property
    def floating(self) -> bool:
        """Whether the first output and all inputs are known to have one floating dtype."""
        return self.same_dtypes and np.issubdtype(self.result_dtype, np.floating)


class Rewriter:
    """Build a new graph node by node; a rule calls `add` for what replaces a node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, op: str, inputs: Sequence[Operand], result: Shape = (), **attrs: Any) -> Operand:
        """Append an operator with one output, and return it. `result` is its shape, for rules that
        need it; attributes become text."""
        name = f'edb_{op.strip("_").lower()}{len(self.nodes)}'
        text = Attrs({key: attribute_text(value) for key, value in attrs.items()})
        return self.keep(Node(op, name, text), inputs)._replace(shape=result)

    def instead(self, node: NodeView, op: str, **attrs: Any) -> Operand:
        """Append an operator with the inputs and result shape of `node`."""
        return self.add(op, node.inputs, node.shape, **attrs)

    def of_others(self, node: NodeView, inputs: Sequence[Operand]) -> list[Operand]:
        """Append the operator of `node` with other inputs; return all its outputs."""
        place = self.add(node.op, inputs, node.shape, **node.attrs).node
        self.nodes[place] = self.nodes[place]._replace(bodies=node.bodies)
        return [Operand(place, output, shape) for output, shape in enumerate(node.shapes)]

    def variable(self, name: str, **attrs: str) -> Operand:
        """Append a further input of the graph."""
        return self.keep(Node('', name, Attrs(attrs)), ())

    def keep(self, node: Node, inputs: Sequence[Operand]) -> Operand:
        """Append a node with these inputs; return its first output."""
        self.nodes.append(node._replace(inputs=tuple([operand.entry for operand in inputs])))
        return Operand(len(self.nodes) - 1, 0, ())

    def is_parameter(self, operand: Operand) -> bool:
        """Return whether an operand is a parameter of the graph."""
        return self.nodes[operand.node].is_parameter

    def op_of(self, operand: Operand) -> str:
        """Return the operator that makes an operand; empty for a variable."""
        return self.nodes[operand.node].op


Rule = Callable[[Rewriter, NodeView], Union[Operand, Sequence[Operand], None]]


def rewrite(
    graph: Subgraph,
    shapes: Mapping[str, Shape],
    rule: Rule,
    dtypes: Optional[Mapping[str, Any]] = None,
) -> Subgraph:
    """Return the subgraph in which `rule` has replaced nodes; the graph itself if it replaced none.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Shapes of its inputs for some number of rows; parameters know theirs.
    rule : callable
        (rewriter, node) -> the operand that stands for the node's only output, or a list with one
        for each of its outputs, or None to keep it. A node that is kept becomes the next of
        ``rewriter.nodes``.
    dtypes : dict, optional
        Dtypes of the inputs; parameters know theirs.
    """
    outputs = graph.outputs(shapes, dtypes or {})
    if outputs is None:
        return graph
    rewriter, changed = Rewriter(), False
    moved: dict[Entry, Operand] = {}
    for index, (node, (own, dtype)) in enumerate(zip(graph.nodes, outputs)):
        inputs = [moved[entry] for entry in node.inputs]
        replaced = (
            None
            if node.is_variable
            else rule(
                rewriter,
                NodeView(
                    node.op,
                    node.attrs,
                    inputs,
                    own,
                    dtype,
                    [outputs[entry.node].dtype for entry in node.inputs],
                    [graph.uses[entry] for entry in node.inputs],
                    node.bodies,
                    index,
                ),
            )
        )
        if replaced is None:
            kept = rewriter.keep(node, inputs)
            replaced = [Operand(kept.node, output, shape) for output, shape in enumerate(own)]
        else:
            replaced, changed = [replaced] if isinstance(replaced, Operand) else replaced, True
        for output, operand in enumerate(replaced):
            moved[Entry(index, output)] = operand
    if not changed:
        return graph
    return Subgraph.of(rewriter.nodes, [moved[head].entry for head in graph.heads])
