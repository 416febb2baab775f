"""Prove that each row of a Symbol's results depends on that row of its inputs only.

An entry of the graph is *batched* if one of its axes runs over the rows of the batch, in order,
with a whole number of positions for each row. That is axis 0, except between transpositions, as
around a recurrent layer. An entry is *constant* if it does not depend on the inputs. Shapes are
inferred for two numbers of rows, and tell which axis it is. So a reshape that names the batch size,
or a mean over all rows, is found without running anything. Axis rules of operators
(`ops.axis_rules`) tell whether each position depends on the same position of the inputs only.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Optional

import mxnet as mx

from ..ops import op_of
from ..ops.attrs import Shape, unlike
from ..ops.axis_rules import At, AxisCall, AxisEntry, Unproved
from .ir import Node, Subgraph

_TRIAL_ROWS = (7, 11)  # primes, so that no other axis has them by accident
_SHOWN = 'axis dim shape axes begin end transpose_a transpose_b dim1 dim2'.split()


class Verdict(Enum):
    """Outcome of the row analysis."""

    PROVED = 'proved'
    DEPENDENT = 'dependent'  # rows depend on each other, or an operator has no rule
    STATISTICS = 'statistics'  # and what is kept would depend on the batch, too


class RowwiseResult(NamedTuple):
    """What the row analysis found out about a Symbol."""

    verdict: Verdict
    reason: str  # the operator and the rule it breaks or does not have
    factors: list[int]  # rows of each output per row of input (if not dependent)


class RowsDependent(Exception):
    """Raised where rows of a batch depend on each other."""

    def __init__(self, reason: str, verdict: Verdict = Verdict.DEPENDENT):
        super().__init__(reason)
        self.reason, self.verdict = reason, verdict


def analyse(graph: Subgraph, row_shapes: dict[str, Shape], training: bool) -> RowwiseResult:
    """Analyse a subgraph whose inputs `row_shapes` (name -> shape without axis 0) are batched.

    All other variables (parameters, auxiliary states) must have shapes known to MXNet.
    """
    try:
        trials = [_infer(graph, row_shapes, rows) for rows in _TRIAL_ROWS]
    except mx.base.MXNetError:
        misfit = _misfit(graph, row_shapes)
        return RowwiseResult(
            Verdict.DEPENDENT, f'its shapes do not fit a batch of several calls: {misfit}', []
        )
    axes: dict[int, Optional[int]] = {}  # of the rows, by node; None of a constant
    try:
        for index, node in enumerate(graph.nodes):
            if node.is_variable:
                axes[index] = 0 if node.name in row_shapes else None
                continue
            own = [axes[entry.node] for entry in node.inputs]
            inputs = [trials[0][entry.node][entry.output] for entry in node.inputs]
            results = [trial[index] for trial in trials]
            if {*own} <= {None} or _is_of_axis(node, own, inputs):
                axes[index] = None
                if op_of(node.op).draws(node.attrs, training):
                    raise RowsDependent(
                        f'{node.op} draws noise that depends on no argument, which is to '
                        f'be another for each call'
                    )
            else:
                _check_statistics(node, training)
                axes[index] = rows_axis(node, own, inputs, *results)
        factors = []
        for index, output in graph.heads:
            if axes[index] is None:
                raise RowsDependent('a result does not depend on the inputs')
            factors.append(_factor('result', 0, *(trial[index][output] for trial in trials)))
    except RowsDependent as dependent:
        return RowwiseResult(dependent.verdict, dependent.reason, [])
    return RowwiseResult(Verdict.PROVED, '', factors)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if 'Error in operator' in line]
    line = (lines or str(error).splitlines() or [''])[0].strip()
    return re.sub(r'\[[\d:]+\] \S+: Check failed: .*?: ', '', line)[:200]  # where MXNet's code is


def _misfit(graph: Subgraph, row_shapes: dict[str, Shape]) -> str:
    """Return MXNet's error about the shapes of a batch, with n in place of the number of rows."""
    messages = []
    for rows in _TRIAL_ROWS:
        try:
            _infer(graph, row_shapes, rows)
        except mx.base.MXNetError as error:
            messages.append(re.split(r'(\d+)', _first_line(error)))
    words, rows = list(messages[0]), _TRIAL_ROWS[0]
    for place, others in enumerate(zip(*messages)):
        if len({*others}) > 1 and others[0].isdigit():
            factor = int(others[0]) // rows
            words[place] = 'n' if factor == 1 else f'{factor}n'
    return ''.join(words)


def _infer(graph: Subgraph, row_shapes: dict[str, Shape], rows: int) -> list[list[Shape]]:
    found = graph.infer({name: (rows,) + shape for name, shape in row_shapes.items()})
    if found is None:
        raise mx.base.MXNetError('shapes cannot be inferred')
    return found


def rows_axis(
    node: Node,
    axes: Sequence[Optional[int]],
    inputs: Sequence[Shape],
    results: Sequence[Shape],
    of_more: Sequence[Shape],
) -> int:
    """Return the axis that the rows have in the results of an operator, or raise `RowsDependent`.

    Parameters
    ----------
    node : Node
    axes : sequence of (int or None)
        The axis that the rows have in each input; None in a constant.
    inputs, results : sequence of tuple of int
        Shapes for a first number of rows.
    of_more : sequence of tuple of int
        Shapes of the results for another number of rows.
    """
    op = op_of(node.op)
    if op.axis is None:
        raise RowsDependent(f'no batching rule is declared for {node.op}')
    if not all(results):
        raise RowsDependent(f'{node.op} has a result without axes')
    differing = unlike(results[0], of_more[0])
    axis = differing[0] if len(differing) == 1 else None
    call = AxisCall(
        node.attrs,
        [None if own is None else At.FINITE for own in axes],
        list(map(AxisEntry, inputs, axes)),
        AxisEntry(results[0], axis),
        padded=False,
    )
    try:
        apart = op.axis(call) is not None and not call.across
    except Unproved:
        apart = False
    if axis is None or not apart:
        raise RowsDependent(f'{node.op}{_shown(node)} mixes the rows of the batch')
    for one, other in zip(results, of_more):
        _factor(node.op, axis, one, other)
    return axis


def _factor(op: str, axis: int, first: Shape, second: Shape) -> int:
    """Return how many positions on an axis each row of the batch has."""
    if len(first) <= axis:
        raise RowsDependent(f'{op} has a result without axes')
    factors = [divmod(shape[axis], rows) for shape, rows in zip((first, second), _TRIAL_ROWS)]
    if factors[0] != factors[1] or factors[0][1] or not factors[0][0]:
        raise RowsDependent(f'{op} does not keep axis {axis} as the batch axis')
    return factors[0][0]


def _is_of_axis(node: Node, axes: Sequence[Optional[int]], inputs: Sequence[Shape]) -> bool:
    """Return whether an operator reads only the length of an axis that all rows share."""
    axis = op_of(node.op).of_axis(node.attrs)
    return axis is not None and axis % len(inputs[0]) != axes[0]


def _check_statistics(node: Node, training: bool) -> None:
    """Raise if an operator takes statistics over the batch."""
    statistics = op_of(node.op).statistics
    if statistics is not None and statistics(node.attrs, training):
        raise RowsDependent(
            f'{node.op} in training mode takes its statistics over the batch', Verdict.STATISTICS
        )


def _shown(node: Node) -> str:
    shown = ', '.join(f'{key}={value}' for key, value in node.attrs.items() if key in _SHOWN)
    return f'({shown})' if shown else ''
