"""Correct gradients of graphs that MXNet 1.9.1 computes wrongly, or not at all."""

from functools import partial
from typing import Optional, Union

from ...ops import op_of
from ..ir import Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite


def gradients(graph: Subgraph, shapes: dict[str, Shape]) -> Subgraph:
    """Replace operators that lose gradients of variables, or have none; runs after passes that may
    add some.

    MXNet refuses a gradient of ids, which are differentiated if they are computed or used as
    numbers, too. It also refuses a row_sparse gradient of a table whose array is dense. So ids are
    cut off from autograd, and gradients of tables are dense. (The user's parameters keep their kind
    of gradient: see `lookup`.)

    A gradient with ``grad_req='add'`` is lost, or overwrites the others, where one of these
    operators reads a variable directly:

    - ``x + y``, if the sum is a result: the gradient of the result is passed through in place, and
      a compiled graph forgets to add it. ``add_n(x, y)`` is right.
    - operators whose backward pass overwrites in any case, writes nothing (`amp_cast`), or fails
      (`RNN`). They read a copy. So do operators without a batching rule, which are untested.
    """
    return rewrite(graph, shapes, partial(_mended, frozenset(graph.states)))


def _mended(
    states: frozenset[str], rewriter: Rewriter, node: NodeView
) -> Union[Operand, list[Operand], None]:
    op = op_of(node.op)
    if node.op == 'Embedding':
        return _embedding(rewriter, node)
    added = [_is_variable(rewriter, operand, states) for operand in node.inputs]
    if any(added) and node.op in ('elemwise_add', '_grad_add'):
        return rewriter.instead(node, 'add_n', num_args=2)
    if any(added) and (op.never_adds or not op.batches):
        inputs = [
            rewriter.add('_copy', [operand], operand.shape) if is_added else operand
            for operand, is_added in zip(node.inputs, added)
        ]
        return rewriter.of_others(node, inputs)
    return None


def _embedding(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    ids, table = node.inputs
    plain = not rewriter.op_of(ids) and node.uses[0] == 1
    if plain and not node.attrs.flag('sparse_grad'):
        return None
    if not plain:
        ids = rewriter.add('BlockGrad', [ids], ids.shape)
    return rewriter.add(
        'Embedding', [ids, table], node.shape, **dict(node.attrs, sparse_grad='False')
    )


def _is_variable(rewriter: Rewriter, operand: Operand, states: frozenset[str]) -> bool:
    node = rewriter.nodes[operand.node]
    return node.is_variable and node.name not in states
