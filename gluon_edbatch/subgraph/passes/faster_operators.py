"""Replace operators by equal ones that are faster on CPU.

Gluon's own cells use slow operators. The table has microseconds before and after each replacement,
on one thread, for arrays of 150 columns (600 for ``split``; products from 150 to 600 columns).
Figures are medians in compiled graphs of several operators, MXNet 1.9.1.

===============================  =======================  =======================
rows                             16                       256
                                 forward   and backward   forward    and backward
===============================  =======================  =======================
tanh -> Activation               80, 18     90, 54        1037, 49   1186, 210
sigmoid -> Activation            28, 17     53, 57        287, 59    422, 219
split in 4 -> slice_axis         112, 51    256, 181      1434, 362  2772, 1023
dot, transpose_b -> product      174, 64    469, 255      1892, 398  5104, 1476
dot -> transpose, product        166, 131   677, 414      1983, 426  5699, 1356
x ** 2 -> square                 56, 72     336, 266      1332, 99   3004, 147
product + bias -> with bias      132, 132   533, 418      281, 232   2200, 982
===============================  =======================  =======================

``relu`` and ``softsign`` are as fast as ``Activation``, and there is nothing faster for ``exp``.
"""

from collections.abc import Sequence
from typing import Optional, Union

from ..ir import Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite

_ACTIVATIONS = frozenset('tanh sigmoid'.split())
_DENSE = (None, '-1', '0')  # MXNet's numbers for storage types: not known, not known, default


def operators(graph: Subgraph, shapes: dict[str, Shape]) -> Subgraph:
    """Replace operators by faster ones that compute the same."""
    return rewrite(graph, shapes, _rule)


def _rule(rewriter: Rewriter, node: NodeView) -> Union[Operand, Sequence[Operand], None]:
    if node.op in _ACTIVATIONS and node.floating:
        return rewriter.instead(node, 'Activation', act_type=node.op)
    if (
        node.op == '_power_scalar'
        and node.attrs.number('scalar', 1) == 2
        and (
            node.floating or node.attrs.flag('is_int', True)  # else integers become real numbers
        )
    ):
        return rewriter.instead(node, 'square')
    if node.op in ('SliceChannel', '_split_v2') and not node.attrs.flag('squeeze_axis'):
        return _slices(rewriter, node)
    if node.op == 'dot':
        return _product(rewriter, node)
    if node.op == 'broadcast_add':
        return _bias(rewriter, node)
    return None


def _slices(rewriter: Rewriter, node: NodeView) -> list[Operand]:
    """Return each part of a split as a slice."""
    axis = node.attrs.axis('axis', len(node.shape), 1)
    parts, begin = [], 0
    for shape in node.shapes:
        parts.append(
            rewriter.add(
                'slice_axis', node.inputs, shape, axis=axis, begin=begin, end=begin + shape[axis]
            )
        )
        begin += shape[axis]
    return parts


def _product(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    """Return ``dot`` with a matrix as ``FullyConnected``, which takes it transposed."""
    left, right = node.inputs
    if (
        node.attrs.flag('transpose_a')
        or len(left.shape) < 2
        or len(right.shape) != 2
        or any(_storage(rewriter, operand) not in _DENSE for operand in node.inputs)
    ):
        return None
    if not node.attrs.flag('transpose_b'):
        right = rewriter.add('transpose', [right], right.shape[::-1])
    return rewriter.add(
        'FullyConnected',
        [left, right],
        node.shape,
        num_hidden=right.shape[0],
        no_bias=True,
        flatten=False,
    )


def _storage(rewriter: Rewriter, operand: Operand) -> Optional[str]:
    return rewriter.nodes[operand.node].attrs.get('__storage_type__')


def _bias(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    """Return the sum of a product and a parameter's row as a product with a bias."""
    for (product, row), uses in ((node.inputs, node.uses[0]), (node.inputs[::-1], node.uses[1])):
        source, columns = rewriter.nodes[product.node], node.shape[-1]
        if (
            source.op == 'FullyConnected'
            and source.attrs.flag('no_bias')
            and uses == 1
            and product.shape == node.shape
            and rewriter.is_parameter(row)
            and row.shape == (1,) * (len(row.shape) - 1) + (columns,)
        ):
            if len(row.shape) > 1:
                row = rewriter.add('Reshape', [row], (columns,), shape='(-1,)')
            inputs = [Operand(*source.inputs[i], ()) for i in range(2)] + [row]
            return rewriter.add(
                'FullyConnected', inputs, node.shape, **dict(source.attrs, no_bias=False)
            )
    return None
