"""Prove that each row of a Symbol's results depends on that row of its inputs only.

Operators have rules for their rows (`ops.row_rules`), or none. An entry of the graph is *batched*
if one of its axes runs over the rows of the batch, in order, with a whole number of positions for
each row. That is axis 0, except between transpositions, as around a recurrent layer. An entry is
*constant* if it does not depend on the inputs. Shapes are inferred for two numbers of rows. So a
reshape that names the batch size, or a mean over all rows, is found without running anything.
"""

import re
from enum import Enum
from typing import Any, NamedTuple, Optional

import mxnet as mx

from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.row_rules import OpCall, first_only
from .ir import Subgraph

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


class _Dependent(Exception):
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
            call = OpCall(
                node.op,
                node.attrs,
                [axis is not None for axis in own],
                [trials[0][entry.node][entry.output] for entry in node.inputs],
                trials[0][index],
            )
            axes[index] = axis = (
                _rows_axis(call, {*own} - {None}, training)
                if any(call.batched) and not _is_of_axis(call)
                else None
            )
            if axis is None and op_of(call.op).draws(call.attrs, training):
                raise _Dependent(
                    f'{call.op} draws noise that depends on no argument, which is to '
                    f'be another for each call'
                )
            if axis is not None:
                for shapes in zip(*(trial[index] for trial in trials)):
                    _factor(call.op, axis, *shapes)
        factors = []
        for index, output in graph.heads:
            if axes[index] is None:
                raise _Dependent('a result does not depend on the inputs')
            factors.append(_factor('result', 0, *(trial[index][output] for trial in trials)))
    except _Dependent as dependent:
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


def _factor(op: str, axis: int, first: Shape, second: Shape) -> int:
    """Return how many positions on an axis each row of the batch has."""
    if len(first) <= axis:
        raise _Dependent(f'{op} has a result without axes')
    factors = [divmod(shape[axis], rows) for shape, rows in zip((first, second), _TRIAL_ROWS)]
    if factors[0] != factors[1] or factors[0][1] or not factors[0][0]:
        raise _Dependent(f'{op} does not keep axis {axis} as the batch axis')
    return factors[0][0]


def _is_of_axis(call: OpCall) -> bool:
    """Return whether an operator reads only the length of an axis that all rows share."""
    axis = op_of(call.op).of_axis(call.attrs)
    return axis is not None and axis % len(call.inputs[0]) != 0


def _rows_axis(call: OpCall, axes: set[Any], training: bool) -> int:
    """Return the axis that the rows have in the results; `axes` are those of the inputs."""
    op = op_of(call.op)
    if op.statistics is not None and op.statistics(call.attrs, training):
        raise _Dependent(
            f'{call.op} in training mode takes its statistics over the batch', Verdict.STATISTICS
        )
    if len(axes) == 1:
        (axis,) = axes
        moved = op.moved_rows(call, axis) if op.moved_rows else None
        if (op.elementwise and len(call.inputs) == 1) or (
            op.by_value(call.attrs) and first_only(call) and axis < len(call.inputs[0]) - 1
        ):
            moved = axis
        if moved is not None:
            return moved
    if op.rows is None and op.moved_rows is None and axes == {0}:
        raise _Dependent(f'no batching rule is declared for {call.op}')
    if op.rows is None or axes != {0} or not op.rows(call):
        raise _Dependent(f'{call.op}{_shown(call)} mixes the rows of the batch')
    return 0


def _shown(call: OpCall) -> str:
    shown = ', '.join(f'{key}={value}' for key, value in call.attrs.items() if key in _SHOWN)
    return f'({shown})' if shown else ''
