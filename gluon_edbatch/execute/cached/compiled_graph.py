"""Compile a static subgraph to one call per batch: ``take -> body -> outputs``."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import CachedOp

from ... import debug
from ...mx.symbols import without_casts_of_amp
from ...subgraph.empty import specialise
from ...subgraph.ir import Shape
from ...subgraph.node_type import NO_LENGTHS, Kind, NodeType
from ...subgraph.padding_proof import LENGTHS
from ...subgraph.passes import apply_passes
from ...subgraph.passes.horizontal import horizontal, packs
from ...subgraph.segments import PARENTS, SEGMENTS
from ...subgraph.sentences import whole_sentences
from ...subgraph.trace import INPUT
from ..executable import executable

SLICE, GATHER, EMPTY = 'slice', 'gather', 'empty'
LONG_SLICE, LONG_GATHER = 'long slice', 'long gather'  # ragged, not padded
MASKED_SLICE, MASKED_GATHER = 'masked slice', 'masked gather'  # ragged, padded
PADDED = 'padded'  # packed, laid out as (calls, length, ...)
_GATHERS = (GATHER, LONG_GATHER, MASKED_GATHER)
_TRIAL_CALLS = 5  # of a batch, for passes
_ARENA, _INDEX, _UNPADDED = 'edb_arena%d', 'edb_index%d', 'edb_unpadded%d'


class Source(NamedTuple):
    """What a compiled call gets at one position of its arguments.

    Kinds are ``'rows'`` (a slice of an arena), ``'arena'``, ``'index'``, ``'parameter'`` and
    ``'pack'``. Ragged arguments have ``'parents'`` and ``'segments'`` if they are not padded,
    ``'lengths'`` if their padding is masked. Packed ones have ``'lengths'``, too, ``'padded'`` in
    place of ``'index'``, and ``'unpadded'`` tells the places that are no padding in a result.
    """

    kind: str
    position: int  # which argument, result, parameter of the type, or pack of the program


class InTurns:
    """A CachedOp that threads call one after the other. Concurrent calls of MXNet's own CachedOp
    infer shapes in one shared graph, and fail or corrupt it."""

    __slots__ = ('_op', '_lock')

    def __init__(self, op: CachedOp):
        self._op, self._lock = op, threading.Lock()

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        """Call the operator; other threads wait until the engine has it."""
        with self._lock:
            return self._op(*arrays, **options)


class CompiledGraph(NamedTuple):
    """A type's static subgraph, compiled for one way of reading its arguments."""

    call: InTurns
    sources: tuple[Source, ...]  # what to pass, in order
    operators: int  # gathers included
    packs: tuple[tuple[int, ...], ...] = ()  # parameters that are wanted as one array

    def parameters(self, source: Source) -> tuple[int, ...]:
        """Return the positions of the parameters that a source stands for."""
        return self.packs[source.position] if source.kind == 'pack' else (source.position,)


def program_for(
    node_type: NodeType,
    reads: tuple[str, ...],
    fused: bool = False,
    lengths: Mapping[int, int] = NO_LENGTHS,
) -> CompiledGraph:
    """Return a type's program for arguments read as `reads` says, one of the names above for each;
    `fused` asks for horizontal fusion. A type with `axes` has a program for each choice of the
    `lengths`, by position, to which sentences are padded. It is compiled at first use."""
    programs = executable(node_type).programs
    key = reads, fused, tuple(lengths.values())
    program = programs.get(key)
    if program is None:
        program = programs[key] = _compile(node_type, reads, fused, lengths)
    return program


def _compile(
    node_type: NodeType, reads: tuple[str, ...], fused: bool, lengths: Mapping[int, int]
) -> CompiledGraph:
    segmented = [
        position for position, read in enumerate(reads) if read in (LONG_SLICE, LONG_GATHER)
    ]
    graph: Any = node_type.graph.subgraph
    debug.show(debug.SUBGRAPHS, f'{node_type}, read as {", ".join(reads)}', graph)
    graph = debug.changed('segments', graph, node_type.by_segments) if segmented else graph
    if {MASKED_SLICE, MASKED_GATHER}.intersection(reads):
        graph = debug.changed('padding', graph, node_type.masked)
    if PADDED in reads and node_type.layout is not None:
        graph = debug.changed('padding', graph, node_type.layout.masked or graph)
    trial = trial_shapes(node_type, bool(segmented))
    if lengths:
        shapes, axes = node_type.shapes_of_one(lengths), dict(node_type.axes)
        along = [[each.axis for each in own] for own in node_type.packed]
        lifted = whole_sentences(graph, shapes, axes, along)
        graph = debug.changed('whole sentences', graph, lifted)
        trial.update(
            {
                INPUT % position: (_TRIAL_CALLS, lengths[position], *each.arena.row_shape)
                if position in lengths
                else (_TRIAL_CALLS * each.rows, *each.arena.row_shape)
                for position, each in enumerate(node_type.arguments)
            }
        )
        trial.update({LENGTHS % (INPUT % position): (_TRIAL_CALLS,) for position in lengths})
    empty = {INPUT % position for position, read in enumerate(reads) if read == EMPTY}
    if empty and node_type.neutral:  # else the graph is for these lengths already
        graph = debug.changed('specialise', graph, specialise(graph, empty) or graph)
    graph, changed = apply_passes(  # once for all ways to read, which gathers tell apart
        graph,
        trial,
        node_type.options,
        node_type.ctx.device_type,
        argument_dtypes(node_type),
    )
    graph = debug.changed('horizontal', graph, horizontal(graph)) if fused else graph
    packed = packs(graph)
    executable(node_type).changed_by.update(
        changed + ['segments'] * bool(segmented) + ['horizontal'] * bool(packed)
    )
    gathers = {
        INPUT % position: mx.sym.take(mx.sym.var(_ARENA % position), mx.sym.var(_INDEX % position))
        for position, read in enumerate(reads)
        if read in _GATHERS and INPUT % position in graph.variables
    }
    gathers.update(_padded(reads, graph.variables, node_type))
    symbol = graph.symbol(**gathers) if gathers else graph.symbol
    if PADDED in reads:
        symbol = _unpadded(symbol, node_type)
    place = {name: position for position, name in enumerate(node_type.graph.parameters)}
    known = {name: Source('parameter', position) for name, position in place.items()}
    known.update({name: Source('pack', index) for index, name in enumerate(packed)})
    for position, read in enumerate(reads):
        known[INPUT % position] = Source('rows', position)
        known[_ARENA % position] = Source('arena', position)
        known[_INDEX % position] = Source('padded' if read == PADDED else 'index', position)
        known[LENGTHS % (INPUT % position)] = Source('lengths', position)
    if PADDED in reads:
        known.update(
            {_UNPADDED % output: Source('unpadded', output) for output in range(len(symbol))}
        )
    if segmented:
        known[PARENTS] = Source('parents', segmented[0])
        known[SEGMENTS] = Source('segments', segmented[0])
    sources: list[Source] = [known[name] for name in symbol.list_inputs()]
    return CompiledGraph(
        cached_op(symbol),
        tuple(sources),
        len(graph.operators) + len(gathers),
        tuple(tuple(place[name] for name in names) for names in packed.values()),
    )


def _padded(
    reads: Sequence[str], variables: Sequence[str], node_type: NodeType
) -> dict[str, mx.sym.Symbol]:
    """Return what packed inputs become: arrays (calls, length, ...), with finite padding."""
    found = {}
    for position, read in enumerate(reads):
        name = INPUT % position
        if read == PADDED and name in variables:
            rows = mx.sym.take(mx.sym.var(_ARENA % position), mx.sym.var(_INDEX % position))
            if node_type.arguments[position].arena.dtype != np.bool_:  # no operator masks these
                lengths = mx.sym.var(LENGTHS % name)
                rows = mx.sym.SequenceMask(rows, lengths, use_sequence_length=True, axis=1)
            found[name] = rows
    return found


def _unpadded(symbol: mx.sym.Symbol, node_type: NodeType) -> mx.sym.Symbol:
    """Return results without their padding, as rows."""
    return mx.sym.Group(
        [
            mx.sym.take(
                mx.sym.reshape(result, (-1, *spec.shape[1:])), mx.sym.var(_UNPADDED % output)
            )
            if node_type.packed[output]
            else result
            for output, (result, spec) in enumerate(zip(symbol, node_type.outputs))
        ]
    )


def cached_op(
    symbol: mx.sym.Symbol, in_place: Optional[tuple[Sequence[int], Sequence[int]]] = None
) -> InTurns:
    """Return the graph as one operator. Parts without a gradient in MXNet are cut off from
    autograd. Casts that AMP put around a gather are removed: their gradients are not added on some
    processors.

    `in_place` tells which inputs are new arrays at each call, and which stay: memory in between is
    then planned once, for one shape of each, and kept.
    """
    flags: list[tuple[str, Any]] = []
    if in_place:
        data, same = in_place
        flags = [('static_alloc', True), ('static_shape', True)]
        flags += [('data_indices', list(data)), ('param_indices', list(same))]
    try:
        return InTurns(CachedOp(without_casts_of_amp(symbol), flags))
    except mx.MXNetError as error:
        if 'non-differentiable' not in str(error):
            raise
        blocked = mx.sym.Group([mx.sym.BlockGrad(output) for output in symbol])
        return InTurns(CachedOp(without_casts_of_amp(blocked), flags))


def argument_dtypes(node_type: NodeType) -> dict[str, Any]:
    """Return the dtypes of a type's arguments, by the names of the inputs."""
    return {
        INPUT % position: argument.arena.dtype
        for position, argument in enumerate(node_type.arguments)
    }


def trial_shapes(node_type: NodeType, segmented: bool) -> dict[str, Shape]:
    """Return shapes of the inputs for some batch, from which passes take ranks."""
    shapes = dict(node_type.trial_shapes)
    shapes.update({LENGTHS % name: shape[:1] for name, shape in node_type.trial_shapes.items()})
    if segmented:
        ragged = [
            INPUT % position
            for position, argument in enumerate(node_type.arguments)
            if argument.kind is Kind.RAGGED
        ]
        rows, length, _ = shapes[ragged[0]]
        shapes.update({name: (rows * length,) + shapes[name][2:] for name in ragged})
        shapes[PARENTS], shapes[SEGMENTS] = (rows * length,), (rows * length, rows)
    return shapes
