"""Verify once per type that a batch gives the same as one of its calls run alone.

Types whose operators all have batching rules are proved already. Others, and types with ragged
arguments, are compared at the first batch that could differ.
"""

from collections.abc import Sequence
from typing import Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RowDependenceError

from ..mx.modes import modes
from ..subgraph.node_type import Kind, NodeType
from ..subgraph.sentences import lengths_first
from .cached.compiled_graph import EMPTY, MASKED_SLICE, SLICE, program_for
from .executable import executable

_SMALLEST_SCALE = 4e-3  # where exact results are zero, only rounding is left
_TOLERANCE = {'float16': 2e-2, 'float32': 1e-3, 'float64': 1e-7}


def needs_verification(node_type: NodeType) -> bool:
    """Return whether a batch of several calls has to be compared."""
    known = executable(node_type)
    return not (known.verified and known.verified_padding)


def verify(state, batch) -> None:
    """Compare the batch that just ran with one of its calls; raise `RowDependenceError` if they
    differ."""
    node_type = batch.node_type
    if node_type.packed:
        _verify_packed(state, batch)
        return
    lengths, rows = state.lengths_of_calls(batch), state.rows_of_calls(batch)
    longest = lengths.max(axis=0) if lengths.size else np.zeros(0, int)
    which = int(lengths.sum(axis=1).argmin()) if lengths.size else len(rows) - 1
    padded = bool((lengths[which] < longest).any()) if lengths.size else True
    known = executable(node_type)
    if known.verified and not padded:
        return
    inputs = [state.read(batch, position) for position in range(len(batch.reads))]
    begin = sum(rows[:which])
    single = _cut(node_type, inputs, begin, begin + rows[which], lengths[which])
    own = lengths[which : which + 1]
    kinds = _kinds(node_type, own[0], MASKED_SLICE if 0 in own else SLICE)
    switched = node_type.mode.training and (
        node_type.random or bool(node_type.graph.subgraph.states)
    )
    if switched:  # neither dropout nor moving averages may tell the two apart, or be changed
        together = run_unrecorded(
            state,
            node_type,
            inputs,
            _kinds(node_type, longest, MASKED_SLICE),
            False,
            np.repeat(lengths, rows, axis=0),
        )
    else:
        together = [
            state.arenas[write.arena]._slice(write.begin, write.end) for write in batch.writes
        ]
    training = node_type.mode.training and not switched
    own = np.repeat(own, rows[which], axis=0)
    alone = run_unrecorded(state, node_type, single, kinds, training, own)
    for mine, others, factor in zip(alone, together, node_type.factors):
        expected = mine.asnumpy()
        found = others._slice(begin * factor, begin * factor + len(expected)).asnumpy()
        if not is_close(found, expected):
            raise RowDependenceError(_message(state, batch, found, expected, padded))
    known.verified = True
    known.verified_padding = known.verified_padding or padded


def _verify_packed(state, batch) -> None:
    """Compare the first of a batch of packed sequences with MXNet's operators."""
    node_type, known = batch.node_type, executable(batch.node_type)
    if node_type.mode.training and node_type.random:  # two draws of noise would differ
        known.verified = known.verified_padding = True
        return
    inputs = [
        state.first_packed(batch, position)
        if argument.kind is Kind.PACKED
        else state.read(batch, position)._slice(0, argument.rows)
        for position, argument in enumerate(node_type.arguments)
    ]
    alone = run_unrecorded(state, node_type, inputs, _kinds(node_type, ()), node_type.mode.training)
    results = zip(alone, batch.writes, node_type.outputs, node_type.packed)
    for mine, write, spec, along in results:
        expected = mine.asnumpy()
        if along:
            order = lengths_first(expected.ndim, [each.axis for each in along])
            expected = expected.transpose(order).reshape(-1, *spec.row_shape)
        rows = state.arenas[write.arena]._slice(write.begin, write.begin + len(expected))
        if not is_close(rows.asnumpy(), expected):
            raise RowDependenceError(_message(state, batch, rows.asnumpy(), expected, True))
    known.verified = known.verified_padding = True


def _cut(node_type, inputs, begin, end, lengths) -> list[NDArray]:
    lengths = iter(lengths.tolist())
    cut = []
    for argument, array in zip(node_type.arguments, inputs):
        rows = array._slice(begin * argument.rows, end * argument.rows)
        if argument.kind is Kind.RAGGED:
            length = next(lengths)
            rows = rows.slice_axis(axis=1, begin=0, end=max(length, 1))
        cut.append(rows)
    return cut


def _kinds(node_type, lengths, masked: str = SLICE) -> tuple[str, ...]:
    """Return how a program reads arrays; `masked` is for ragged ones whose padding needs a mask."""
    lengths = iter(np.asarray(lengths).tolist())

    def kind(argument) -> str:
        if argument.kind is not Kind.RAGGED:
            return SLICE
        empty = next(lengths) == 0
        return masked if node_type.masked else EMPTY if empty else SLICE

    return tuple(map(kind, node_type.arguments))


def run_unrecorded(
    state,
    node_type: NodeType,
    inputs: Sequence[NDArray],
    kinds: tuple[str, ...],
    training: bool,
    lengths: Optional[np.ndarray] = None,
) -> list[NDArray]:
    """Return a type's results for arrays, without autograd. `lengths` (rows, ragged arguments) are
    for arguments of a masked kind."""
    program = program_for(node_type, kinds)
    arguments = [
        inputs[source.position]
        if source.kind == 'rows'
        else _lengths_of(node_type, source.position, lengths)
        if source.kind == 'lengths'
        else state.weights.of(node_type, program, source)
        for source in program.sources
    ]
    with modes(recording=False, training=training):
        results = program.call(*arguments)
    return [results] if isinstance(results, mx.nd.NDArray) else results


def _lengths_of(node_type: NodeType, position: int, lengths: Optional[np.ndarray]) -> NDArray:
    assert lengths is not None  # which masked kinds ask for
    own = lengths[:, node_type.ragged.index(position)]
    return mx.nd.array(own, ctx=node_type.ctx, dtype='int32')


def is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether two results agree up to rounding."""
    if not np.issubdtype(expected.dtype, np.floating):
        return np.array_equal(found, expected)
    tolerance = _TOLERANCE[expected.dtype.name]
    finite = expected[np.isfinite(expected)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    return np.allclose(
        found,
        expected,
        rtol=tolerance,
        equal_nan=True,
        atol=tolerance * max(scale, _SMALLEST_SCALE),
    )


def _message(state, batch, found, expected, padded) -> str:
    node_type = batch.node_type
    cause = (
        'it lets the padding of its ragged argument change the result: use the lengths '
        '(ragged.lengths) to mask it'
        if padded
        and not executable(node_type).verified_padding
        and any(argument.kind is Kind.RAGGED for argument in node_type.arguments)
        else 'its result for a sample depends on the others of the batch'
    )
    extra = f' ({node_type.reason})' if node_type.reason else ''
    with np.errstate(all='ignore'):
        worst = float(np.nanmax(np.abs(found.astype(np.float64) - expected)))
    return (
        f'{node_type.name} gives another result in a batch than alone (largest difference '
        f'{worst:.3g}), so {cause}{extra}\n  called at {state.line_of(batch)}'
    )
