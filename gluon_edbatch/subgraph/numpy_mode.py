"""Replace operators of ``mx.np`` by equal ones of ``mx.nd``, with equal gradients.

All later stages know one set of operators. An operator without an equal stays as it is. Values
without axes, frequent in MXNet's NumPy mode, are (1,) in the new graph and in all storage, as in
``mx.nd``. Users see ``()``.
"""

import math
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import mxnet as mx
import numpy as np

from ..ops import op_of
from ..ops.attrs import Attrs, Shape
from ..ops.numbers import NUMPY_ARITHMETIC
from .ir import Subgraph
from .rewrite import NodeView, Operand, Rewriter, rewrite
from .trace import StaticGraph

Replaced = Union[Operand, list[Operand], None]
Rule = Callable[[Rewriter, NodeView], Replaced]
OTHER_LENGTHS = 1, 7  # what is alike with these is taken to be so with any


def in_terms_of_nd(
    graph: StaticGraph,
    shapes: dict[str, Shape],
    dtypes: dict[str, Any],
    others: Sequence[dict[str, Shape]] = (),
) -> StaticGraph:
    """Return a graph traced in NumPy mode with operators of ``mx.nd`` where they are equal.

    `shapes` and `dtypes` are those of the inputs, as the user sees them; `others` are further
    shapes for which the graph must be right.
    """
    if graph.subgraph.infer(shapes) is None:
        return graph._replace(scalars=(False,) * len(graph.subgraph.heads))
    found = graph.subgraph.results(shapes, dtypes)
    scalars = tuple([not shape for shape, _ in found])
    kept = {name: shape or (1,) for name, shape in shapes.items()}
    wanted = [(shape or (1,), dtype) for shape, dtype in found]
    for rule in (_equal_or_kept, _kept):
        subgraph = rewrite(graph.subgraph, shapes, rule, dtypes)
        if subgraph.results(kept, dtypes) == wanted and all(
            _as_large(graph.subgraph, subgraph, other)
            for other in [*_of_other_rows(shapes), *others]
        ):
            break
    return graph._replace(subgraph=subgraph, scalars=scalars)


def _of_other_rows(shapes: dict[str, Shape]) -> list[dict[str, Shape]]:
    """Return shapes with other numbers of rows, for which calls of a type must be right, too:
    NumPy's ``squeeze`` and ``broadcast_to`` treat one row differently."""
    if not all(shapes.values()) or len({shape[0] for shape in shapes.values()}) > 1:
        return []  # calls have these rows
    return [{name: (rows, *shape[1:]) for name, shape in shapes.items()} for rows in OTHER_LENGTHS]


def _as_large(one: Subgraph, other: Subgraph, shapes: dict[str, Shape]) -> bool:
    """Return whether two graphs have results of the same shapes for these arguments."""
    found = [_shapes_of(graph, shapes) for graph in (one, other)]
    return None in found or found[0] == found[1]


def _shapes_of(graph: Subgraph, shapes: dict[str, Shape]) -> Optional[list[Shape]]:
    try:
        found = graph.infer(shapes)
    except mx.base.MXNetError:
        return None
    if found is None:
        return None
    return [found[head.node][head.output] or (1,) for head in graph.heads]


def _equal_or_kept(rewriter: Rewriter, node: NodeView) -> Replaced:
    if node.op in _VIEWS and not (node.inputs[0].shape and node.shape):  # of one element
        return rewriter.instead(node, 'Reshape', shape=node.shape or (1,))
    rule = _RULES.get(node.op)
    replaced = None if rule is None else rule(rewriter, node)
    return _kept(rewriter, node) if replaced is None else replaced


def _kept(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Keep an operator; reshape its inputs and outputs without axes around it."""
    if all(operand.shape for operand in node.inputs) and all(node.shapes):
        return None
    if op_of(node.op).elementwise:
        return rewriter.instead(node, node.op, **node.attrs)
    inputs = [
        operand if operand.shape else rewriter.add('_npx_reshape', [operand], (), newshape='()')
        for operand in node.inputs
    ]
    return [_with_axis(rewriter, result) for result in rewriter.of_others(node, inputs)]


def _with_axis(rewriter: Rewriter, operand: Operand) -> Operand:
    return operand if operand.shape else rewriter.add('_npx_reshape', [operand], (), newshape='1')


# --- elementwise ---------------------------------------------------------------------------------


def _alike(op: str) -> Rule:
    """Return a rule that puts `op` in place of an operator if all dtypes are one floating type."""
    return lambda rewriter, node: _applied(rewriter, node, op) if node.floating else None


def _comparison(op: str) -> Rule:
    """Return a rule for comparisons: NumPy has truth values where ``mx.nd`` has ones and zeros."""

    def rule(rewriter: Rewriter, node: NodeView) -> Replaced:
        types = set(node.input_dtypes)
        if len(types) != 1 or not np.issubdtype(next(iter(types)), np.floating):
            return None
        return rewriter.add('Cast', [_applied(rewriter, node, op)], node.shape, dtype='bool')

    return rule


def _applied(rewriter: Rewriter, node: NodeView, op: str) -> Operand:
    """Apply `op` to a node's inputs, with the node's scalar if there is one."""
    number = {'scalar': node.attrs['scalar']} if 'scalar' in node.attrs else {}
    return rewriter.instead(node, op, **number)


def _or_of_truth(op: str) -> Rule:
    """Return a rule that puts `op` in place of an operator; truth values become numbers first."""

    def rule(rewriter: Rewriter, node: NodeView) -> Replaced:
        dtype = node.result_dtype
        if dtype is None or not np.issubdtype(dtype, np.floating):
            return None
        if not {*node.input_dtypes} <= {dtype, np.bool_}:
            return None
        inputs = [
            operand
            if own is dtype
            else rewriter.add('Cast', [operand], operand.shape, dtype=np.dtype(dtype).name)
            for operand, own in zip(node.inputs, node.input_dtypes)
        ]
        return rewriter.add(op, inputs, node.shape)

    return rule


def _where(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Apply ``where`` of ``mx.nd``, which takes numbers and does not broadcast."""
    condition, one, other = node.inputs
    dtypes = {*node.input_dtypes[1:]}
    if (
        not condition.shape == one.shape == other.shape
        or node.input_dtypes[0] not in (node.result_dtype, np.bool_)
        or np.bool_ in dtypes
        or dtypes != {node.result_dtype}
    ):
        return None
    condition = rewriter.add('Cast', [condition], condition.shape, dtype='float32')
    return rewriter.add('where', [condition, one, other], node.shape)


def _full_like(rewriter: Rewriter, node: NodeView) -> Replaced:
    if not node.floating:
        return None
    value = node.attrs.number('fill_value', 0)
    if value == 1:
        return rewriter.instead(node, 'ones_like')
    zeros = rewriter.instead(node, 'zeros_like')
    return rewriter.add('_plus_scalar', [zeros], node.shape, scalar=value) if value else zeros


# --- along axes ----------------------------------------------------------------------------------


def _reduction(op: str) -> Rule:
    """Return a rule for a reduction: NumPy's dtype may differ, as in a sum of truth values."""

    def rule(rewriter: Rewriter, node: NodeView) -> Replaced:
        if node.result_dtype is None or node.attrs.get('initial', 'None') != 'None':
            return None
        (operand,) = node.inputs
        if not node.same_dtypes:
            if np.issubdtype(node.input_dtypes[0], np.floating):
                return None  # it is summed up in its own dtype
            dtype = np.dtype(node.result_dtype).name
            operand = rewriter.add('Cast', [operand], operand.shape, dtype=dtype)
        rank, keepdims = len(operand.shape), node.attrs.flag('keepdims')
        named = node.attrs.get('axis', 'None') != 'None'
        axes = node.attrs.integers('axis') if named else range(rank)
        if not axes:
            return rewriter.add('_copy', [operand], node.shape)
        axes = tuple([axis % rank for axis in axes])
        return rewriter.add(op, [operand], node.shape, axis=axes, keepdims=keepdims)

    return rule


def _over_all(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Apply a reduction without an equal to an array with axes, and remove them from the result."""
    (operand,) = node.inputs
    if node.shape or not operand.shape:
        return None
    attrs = {**node.attrs, 'keepdims': True}
    kept = rewriter.add(node.op, [operand], (1,) * len(operand.shape), **attrs)
    return rewriter.add('Reshape', [kept], (), shape=(1,))


def _arg(op: str) -> Rule:
    """Return a rule for positions, such as ``argmax``, which are integers in NumPy."""

    def rule(rewriter: Rewriter, node: NodeView) -> Replaced:
        (operand,) = node.inputs
        axis, keepdims = node.attrs.integer('axis', None), node.attrs.flag('keepdims')
        if not operand.shape or math.prod(operand.shape) > 1 << 24 or (axis is None and keepdims):
            return None
        if axis is None:
            axis, operand = 0, rewriter.add('Reshape', [operand], (), shape=(-1,))
        position = rewriter.add(op, [operand], node.shape, axis=axis, keepdims=keepdims)
        return rewriter.add('Cast', [position], node.shape, dtype=np.dtype(node.result_dtype).name)

    return rule


def _concatenate(rewriter: Rewriter, node: NodeView) -> Replaced:
    axis = node.attrs.integer('axis', 0)
    if axis is None or not node.same_dtypes or node.result_dtype is np.bool_:
        return None
    return rewriter.instead(node, 'Concat', dim=axis % len(node.shape), num_args=len(node.inputs))


def _stacked(axis: int) -> Rule:
    """Return a rule that stacks vectors along an axis, and joins other arrays. MXNet has no
    gradient of ``column_stack`` in graphs."""

    def rule(rewriter: Rewriter, node: NodeView) -> Replaced:
        ranks = {len(operand.shape) for operand in node.inputs}
        if 0 in ranks or len(ranks) > 1:
            return None
        along = node._replace(attrs=Attrs(node.attrs, axis=str(axis)))
        return (_stack if ranks == {1} else _concatenate)(rewriter, along)

    return rule


def _stack(rewriter: Rewriter, node: NodeView) -> Replaced:
    if not node.same_dtypes:
        return None
    if not node.inputs[0].shape:
        return _concatenate(rewriter, node)
    count, axis = len(node.inputs), node.attrs.integer('axis', 0) % len(node.shape)
    return rewriter.instead(node, 'stack', axis=axis, num_args=count)


def _split(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Split an array in equal parts by an operator that has a native kernel."""
    parts = node.attrs.integer('sections', 0)
    if not parts or node.attrs.flag('squeeze_axis') or len(set(node.shapes)) > 1:
        return None
    axis = node.attrs.integer('axis', 0)
    first = rewriter.instead(node, 'SliceChannel', num_outputs=parts, axis=axis)
    return [first._replace(output=output) for output in range(parts)]


def _flip(rewriter: Rewriter, node: NodeView) -> Replaced:
    axes = tuple(sorted(node.attrs.axes(len(node.shape)))) if node.shape else ()
    return rewriter.instead(node, 'reverse', axis=axes) if axes else None


# --- shapes --------------------------------------------------------------------------------------


def _reshape(rewriter: Rewriter, node: NodeView) -> Replaced:
    codes = node.attrs.integers('newshape')
    if node.attrs.get('order', 'C') != 'C':
        return None
    if all(code == -1 or code > 0 for code in codes):
        return rewriter.instead(node, 'Reshape', shape=codes)
    if node.op == '_np_reshape':
        return None
    reverse = node.attrs.flag('reverse')
    if not reverse and set(codes) <= {-2, -3, -4} and -4 not in codes[:-1]:
        return _squeezed(rewriter, node, [i for i, code in enumerate(codes) if code == -3])
    if any(code == 0 or code == -3 for code in codes):
        return None
    same = {-2: 0, -4: -2, -5: -3, -6: -4}
    return rewriter.instead(
        node,
        'Reshape',
        shape=tuple([same.get(code, code) for code in codes]),
        **({'reverse': True} if reverse else {}),
    )


def _transpose(rewriter: Rewriter, node: NodeView) -> Replaced:
    rank = len(node.shape)
    axes = node.attrs.integers('axes') or range(rank)[::-1]
    return rewriter.instead(node, 'transpose', axes=tuple([axis % rank for axis in axes]))


def _squeeze(rewriter: Rewriter, node: NodeView) -> Replaced:
    (operand,) = node.inputs
    named = node.attrs.integers('axis')
    axes = [axis % len(operand.shape) for axis in named] or [
        axis for axis, length in enumerate(operand.shape) if length == 1
    ]
    return _squeezed(rewriter, node, axes)


def _squeezed(rewriter: Rewriter, node: NodeView, axes: list[int]) -> Replaced:
    if not axes:
        return rewriter.instead(node, '_copy')
    return rewriter.instead(node, 'squeeze', axis=tuple(axes))


def _broadcast_to(rewriter: Rewriter, node: NodeView) -> Replaced:
    (operand,) = node.inputs
    shape = (1,) * (len(node.shape) - len(operand.shape)) + operand.shape
    if shape != operand.shape:
        operand = rewriter.add('Reshape', [operand], shape, shape=shape)
    kept = [0 if old == new else new for old, new in zip(shape, node.shape)]
    return rewriter.add('broadcast_to', [operand], node.shape, shape=tuple(kept))


# --- products ------------------------------------------------------------------------------------


def _dot(rewriter: Rewriter, node: NodeView) -> Replaced:
    one, other = node.inputs
    if not node.floating or len(other.shape) > 2:
        return None
    return rewriter.instead(node, 'dot' if one.shape and other.shape else 'broadcast_mul')


def _matmul(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Multiply matrices, of one head or of several."""
    one, other = node.inputs
    if len(other.shape) <= 2:
        return _dot(rewriter, node)
    rank = len(one.shape)
    if not node.floating or rank not in (3, 4) or one.shape[:-2] != other.shape[:-2]:
        return None
    other, turned = _not_turned(rewriter, other)
    rows = math.prod(node.shape[:-2])
    if rank == 4:
        one, other = (
            rewriter.add('Reshape', [each], (rows, *each.shape[2:]), shape=(-3, 0, 0))
            for each in (one, other)
        )
    product = rewriter.add(
        'batch_dot', [one, other], (rows, *node.shape[-2:]), transpose_b=bool(turned)
    )
    if rank == 3:
        return product
    return rewriter.add('Reshape', [product], node.shape, shape=(-4, -1, node.shape[1], 0, 0))


def _batch_dot(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Multiply matrices without a transposed copy: native operators transpose by an attribute."""
    one, other = node.inputs
    other, turned = _not_turned(rewriter, other)
    if not turned:
        return None
    return rewriter.add(
        'batch_dot',
        [one, other],
        node.shape,
        transpose_a=node.attrs.flag('transpose_a'),
        transpose_b=not node.attrs.flag('transpose_b'),
    )


def _not_turned(rewriter: Rewriter, operand: Operand) -> tuple[Operand, bool]:
    """Return the operand before a transposition of its matrices, and whether there is one."""
    made, rank = rewriter.nodes[operand.node], len(operand.shape)
    if made.op not in ('transpose', 'SwapAxis'):
        return operand, False
    if made.attrs.order(made.op, rank) != [*range(rank - 2), rank - 1, rank - 2]:
        return operand, False
    (entry,), shape = made.inputs, operand.shape
    return Operand(entry.node, entry.output, (*shape[:-2], shape[-1], shape[-2])), True


def _of_one_matrix(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Apply an operator to a stack of one matrix: MXNet crashes on a gradient without axes."""
    (operand,) = node.inputs
    if node.shape:
        return None
    shape = (1, *operand.shape)
    stack = rewriter.add('Reshape', [operand], shape, shape=shape)
    first = rewriter.add(node.op, [stack], (1,), **node.attrs)
    return [first._replace(output=output) for output in range(len(node.shapes))]


# --- positions -----------------------------------------------------------------------------------


def _of_one_position(rewriter: Rewriter, node: NodeView) -> Replaced:
    """Look up a position without axes as one row, which is the result."""
    position = node.inputs[1 if node.op == 'take' else 0]
    if position.shape or len(node.shape) != 1:
        return None
    row = rewriter.add(node.op, node.inputs, (1,) + node.shape, **node.attrs)
    return rewriter.add('Reshape', [row], node.shape, shape=node.shape)


_VIEWS = frozenset(
    '_np_reshape _npx_reshape _np_transpose _np_squeeze expand_dims _npi_broadcast_to'.split()
)
_RULES: dict[str, Rule] = {
    '_npi_where': _where,
    '_npi_full_like': _full_like,
    '_npi_logical_not': _comparison('logical_not'),
    '_npi_concatenate': _concatenate,
    '_npi_vstack': _stacked(0),
    '_npi_stack': _stack,
    '_npi_column_stack': _stacked(1),
    '_split_v2': _split,
    '_npi_flip': _flip,
    '_np_reshape': _reshape,
    '_npx_reshape': _reshape,
    '_np_transpose': _transpose,
    '_np_squeeze': _squeeze,
    '_npi_broadcast_to': _broadcast_to,
    '_np_dot': _dot,
    '_npi_matmul': _matmul,
    'batch_dot': _batch_dot,
    '_linalg_det': _of_one_matrix,
    '_linalg_slogdet': _of_one_matrix,
    **dict.fromkeys(('Embedding', 'one_hot', 'take'), _of_one_position),
    '_np_copy': lambda rewriter, node: rewriter.instead(node, '_copy'),
    '_npi_absolute': _alike('abs'),
    '_npi_argmax': _arg('argmax'),
    '_npi_argmin': _arg('argmin'),
    '_npi_mean': _reduction('mean'),
    '_npi_var': _over_all,
    '_npi_std': _over_all,
    **{f'_np_{op}': _reduction(op) for op in 'sum max min prod'.split()},
    **{f'_npx_{op}': _alike(op) for op in 'relu sigmoid'.split()},
    **{
        f'_npi_{op}': _alike(op)
        for op in (
            'tanh exp expm1 log log1p log2 log10 sqrt cbrt square negative reciprocal sign rint '
            'ceil floor trunc fix sin cos tan arcsin arccos arctan sinh cosh arcsinh arccosh '
            'arctanh degrees radians'
        ).split()
    },
}
for _np_name, (_of_arrays, _with_number, _of_number) in NUMPY_ARITHMETIC.items():
    _RULES[f'_npi_{_np_name}'] = _or_of_truth(_of_arrays)
    _RULES[f'_npi_{_np_name}_scalar'] = _alike(_with_number)
    if _of_number:
        _RULES[f'_npi_r{_np_name}_scalar'] = _alike(_of_number)
_RULES['_npi_hypot'] = _or_of_truth('broadcast_hypot')
for _np_name in 'equal not_equal less less_equal greater greater_equal'.split():
    _nd_name = _np_name.replace('less', 'lesser')
    _RULES[f'_npi_{_np_name}'] = _comparison(f'broadcast_{_nd_name}')
    _RULES[f'_npi_{_np_name}_scalar'] = _comparison(f'_{_nd_name}_scalar')
