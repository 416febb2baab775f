"""Gradients of graphs as batches need them, where MXNet 1.9.1 gives others or none."""

from functools import partial
from typing import Optional, Union

from ...ops import Arithmetic, op_of
from ..ir import Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite


def embeddings(graph: Subgraph, shapes: dict[str, Shape]) -> Subgraph:
    """Cut ids off from autograd, and let the gradients of tables be dense.

    MXNet refuses to compute a gradient of ids, which they would get if they are computed, or used
    as numbers, too; and one of a table that is row_sparse, where there is an array for a dense one.
    (Which gradients the user's parameters get does not depend on that: see `lookup`.)
    """
    return rewrite(graph, shapes, _embedding) if 'Embedding' in graph.operators else graph


def _embedding(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    if node.op != 'Embedding':
        return None
    ids, table = node.inputs
    plain = not rewriter.op_of(ids) and node.uses[0] == 1
    if plain and not node.attrs.flag('sparse_grad'):
        return None
    if not plain:
        ids = rewriter.add('BlockGrad', [ids], ids.shape)
    return rewriter.add(
        'Embedding', [ids, table], node.shape, **dict(node.attrs, sparse_grad='False')
    )


def added_inputs(graph: Subgraph, shapes: dict[str, Shape]) -> Subgraph:
    """Replace operators that lose gradients of variables; to run after passes that make some.

    A gradient with ``grad_req='add'`` is lost, or takes the place of the others, where these
    operators read a variable directly:

    - ``x + y``, if the sum is a result: the gradient is that of the result, handed through in
      place, and in a compiled graph the request is then forgotten. ``add_n(x, y)`` does it right.
    - operators whose backward pass writes whatever is requested, or nothing (`amp_cast`), or fails
      (`RNN`). They read a copy; so do all that have no batching rule, of which nobody has tried.
    """
    states = frozenset(graph.states)
    return rewrite(graph, shapes, partial(_added, states))


def _added(
    states: frozenset[str], rewriter: Rewriter, node: NodeView
) -> Union[Operand, list[Operand], None]:
    added = [_is_variable(rewriter, operand, states) for operand in node.inputs]
    if not any(added):
        return None
    op = op_of(node.op)
    if op.arithmetic is Arithmetic.SUM and op.broadcasting not in (None, node.op):
        return rewriter.instead(node, 'add_n', num_args=2)
    if op.never_adds or not op.batches:
        inputs = [
            rewriter.add('_copy', [operand], operand.shape) if is_added else operand
            for operand, is_added in zip(node.inputs, added)
        ]
        return rewriter.of_others(node, inputs)
    return None


def _is_variable(rewriter: Rewriter, operand: Operand, states: frozenset[str]) -> bool:
    node = rewriter.nodes[operand.node]
    return node.is_variable and node.name not in states
