"""Add an extra batch axis in front of all axes of a subgraph, as JAX's ``vmap`` does.

An operator that treats a value (n, m) as a matrix, not as n rows, needs a batch (N, n, m). Arenas
hold it as N n rows of m, one value after the other, so a reshape before and after is enough. In
between, each operator works on one axis more, by a rule of this module. An operator that keeps rows
independent (see `rowwise`) needs no rule.
"""

from collections.abc import Collection

import mxnet as mx

from ..mx.symbols import symbol_function
from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.whole import LiftedCall, NoRule, all_shaped, as_rows, shaped
from .ir import Entry, Node, Subgraph
from .loops import FOREACH, Loop
from .padding_proof import loop_keeps_rows_apart
from .rowwise import Verdict, analyse


def lift(
    graph: Subgraph, shapes: dict[str, Shape], along: Collection[str] = (), as_values: bool = False
) -> Subgraph:
    """Return the subgraph for a batch with an extra axis.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Shapes of the inputs of one call, (n, ...) each. In the result they are (N n, ...). The
        calls share all other variables, whose shapes MXNet must know.
    along : collection of str, default ()
        Inputs of which the result takes (N, n, ...), for any n.
    as_values : bool, default False
        Whether results keep the extra axis.

    Returns
    -------
    Subgraph
        A result that is (p, ...) for one call is (N p, ...), or (N, p, ...) with `as_values`.

    Raises
    ------
    NoRule
        If an operator has no rule for its arguments.
    """
    found = graph.infer(shapes)
    if found is None:
        raise NoRule('shapes that cannot be inferred')
    if not all(shape for own in found for shape in own):
        raise NoRule('values without axes')
    symbols: dict[Entry, mx.sym.Symbol] = {}
    batched: set[Entry] = set()
    for index, (node, own) in enumerate(zip(graph.nodes, found)):
        if node.is_variable:
            symbol, differs = graph.variable(node.name), node.name in shapes
            symbol = shaped(symbol, own[0]) if differs and node.name not in along else symbol
        else:
            call = LiftedCall(
                node.op,
                node.attrs,
                [entry in batched for entry in node.inputs],
                [found[entry.node][entry.output] for entry in node.inputs],
                own,
                [symbols[entry] for entry in node.inputs],
            )
            symbol, differs = _loop(node, call) if node.op == FOREACH else _lifted(call)
        for output, each in enumerate([symbol] if len(own) == 1 else symbol):
            symbols[Entry(index, output)] = each
            if differs:
                batched.add(Entry(index, output))
    if not batched.issuperset(graph.heads):
        raise NoRule('a result that does not depend on the inputs')
    results = [symbols[head] for head in graph.heads]
    if not as_values:
        ends = [found[head.node][head.output] for head in graph.heads]
        results = list(map(as_rows, results, ends))
    return Subgraph(mx.sym.Group(results))


def _lifted(call: LiftedCall) -> tuple[mx.sym.Symbol, bool]:
    """Return the results of an operator, and whether they differ from call to call."""
    op = op_of(call.op)
    if not any(call.batched):
        if not call.inputs and 'shape' in call.attrs and not op.noise:  # such as zeros
            return call.apply(shape=call.outputs[0]), False
        if not call.inputs or op.noise:
            raise NoRule(f'{call.op} of nothing that differs from call to call')
        return call.apply(*call.symbols), False
    axis = op.of_axis(call.attrs)
    if axis is not None:
        return call.apply(call.x, axis=axis % call.rank + 1), False
    symbol = None if op.whole is None else op.whole(call)
    return (_by_rows(call) if symbol is None else symbol), True


def _loop(node: Node, call: LiftedCall) -> tuple[mx.sym.Symbol, bool]:
    """Return the results of a loop, which differ from call to call."""
    loop = Loop(node)
    shared = set(range(len(call.inputs))) - {*loop.data, *loop.states}
    if any(call.batched[position] for position in shared):
        raise NoRule('foreach that reads in each step what differs from call to call')
    if not any(call.batched) or not loop_keeps_rows_apart(loop, call.inputs):
        raise NoRule('foreach whose steps do not keep rows independent')
    return loop.side_by_side(call), True


def _by_rows(call: LiftedCall) -> mx.sym.Symbol:
    """Apply an operator with independent rows to the rows of all values at once."""
    names = [f'x{position}' for position in range(len(call.inputs))]
    rows, variables = {}, []
    for name, batched, shape in zip(names, call.batched, call.inputs):
        variables.append(mx.sym.var(name, shape=None if batched else shape))
        if batched:
            rows[name] = shape[1:]
    alone = Subgraph(symbol_function(call.op)(*variables, **call.attrs))
    counts = {shape[0] for batched, shape in zip(call.batched, call.inputs) if batched}
    found = analyse(alone, rows, training=False)
    if found.verdict is not Verdict.PROVED or len(counts) > 1:
        raise NoRule(f'{call.op} of these shapes')
    inputs = [
        as_rows(symbol, shape) if batched else symbol
        for symbol, shape, batched in zip(call.symbols, call.inputs, call.batched)
    ]
    return all_shaped(call.apply(*inputs), call.outputs)
