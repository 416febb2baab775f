"""A subgraph for whole values: the batch gets an axis of its own, in front of all others.

Of a value (n, m) that an operator treats as a matrix, not as n rows, a batch is (N, n, m). In the
arenas that is N n rows of m, one value after the other, so a reshape before and after is all that
it takes; in between each operator works on one axis more. What it becomes is a rule here; an
operator that leaves rows alone (see `rowwise`) needs none, as the rows of all values are rows, too.
The idea is that of JAX's ``vmap``.
"""

import mxnet as mx

from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.whole import LiftedCall, LiftedValue, NoRule, all_shaped, shaped
from .ir import Entry, Subgraph


def lift(graph: Subgraph, shapes: dict[str, Shape]) -> Subgraph:
    """The subgraph for a batch of whole values.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Of its inputs in one call, (n, ...) each. In the result they are (N n, ...); all other
        variables are shared by the calls, and their shapes must be known to MXNet.

    Returns
    -------
    Subgraph
        Results that are (p, ...) of one call are (N p, ...).

    Raises
    ------
    NoRule
        If an operator has none for what it is applied to.
    """
    found = graph.infer(shapes)
    if found is None:
        raise NoRule('shapes that cannot be inferred')
    if not all(shape for own in found for shape in own):
        raise NoRule('values without axes')
    values: dict[Entry, LiftedValue] = {}
    for index, (node, own) in enumerate(zip(graph.nodes, found)):
        if node.is_variable:
            values[Entry(index)] = _variable(graph.variable(node.name), node.name, own[0], shapes)
            continue
        call = LiftedCall(node.op, node.attrs, [values[entry] for entry in node.inputs], own)
        for output, value in enumerate(_lifted(call)):
            values[Entry(index, output)] = value
    return Subgraph(mx.sym.Group([_result(values[entry]) for entry in graph.heads]))


def _variable(symbol, name: str, shape: Shape, shapes: dict[str, Shape]) -> LiftedValue:
    if name in shapes:
        return LiftedValue(shaped(symbol, shape), shape, True)
    return LiftedValue(symbol, shape, False)


def _result(value: LiftedValue) -> mx.sym.Symbol:
    if not value.batched:
        raise NoRule('a result that does not depend on the inputs')
    return mx.sym.reshape(value.symbol, shape=(-1,) + value.shape[1:])


def _lifted(call: LiftedCall) -> list[LiftedValue]:
    batched = any(value.batched for value in call.inputs)
    axis = op_of(call.op).of_axis(call.attrs)
    if batched and axis is not None:
        length = call.apply(call.inputs[0].symbol, axis=axis % call.rank + 1)
        return [LiftedValue(length, call.outputs[0], False)]
    if not batched:
        if not call.inputs or op_of(call.op).noise:
            raise NoRule(f'{call.op} of nothing that differs from call to call')
        symbol = call.apply(*[value.symbol for value in call.inputs])
    else:
        rule = op_of(call.op).whole
        symbol = None if rule is None else rule(call)
        if symbol is None:
            symbol = _by_rows(call)
    outputs = call.outputs
    symbols = [symbol] if len(outputs) == 1 else list(symbol)
    return [LiftedValue(each, shape, batched) for each, shape in zip(symbols, outputs)]


def _by_rows(call: LiftedCall) -> mx.sym.Symbol:
    """An operator that leaves rows alone: the rows of all values at once."""
    as_rows = call.call
    rows = {shape[0] for batched, shape in zip(as_rows.batched, as_rows.inputs) if batched}
    rule = op_of(call.op).rows
    if (
        rule is None
        or len(rows) != 1
        or not rule(as_rows)
        or any(shape[0] % next(iter(rows)) for shape in call.outputs)
    ):
        raise NoRule(f'{call.op} of these shapes')
    result = call.apply(
        *[
            mx.sym.reshape(value.symbol, shape=(-1,) + value.shape[1:])
            if value.batched
            else value.symbol
            for value in call.inputs
        ]
    )
    return all_shaped(result, call.outputs)
