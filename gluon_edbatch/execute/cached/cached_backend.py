"""Run batches by MXNet's own operators: each is a call of a compiled graph, and writes a slice."""

from typing import Callable, NamedTuple, Optional, Union

from mxnet import autograd
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import BatchError
from gluon_edbatch_core.plan.plan import Batch, Capabilities, Read

from ...mx.modes import modes
from ...subgraph.node_type import NO_LENGTHS, NodeType
from ..execution_state import ExecutionState, parents_of
from ..gradients import Gradients
from ..sparse_tables import look_up
from .compiled_graph import (
    EMPTY,
    GATHER,
    LONG_GATHER,
    LONG_SLICE,
    MASKED_GATHER,
    MASKED_SLICE,
    PADDED,
    SLICE,
    CompiledGraph,
    program_for,
)


class BatchTape(NamedTuple):
    """One batch's own small autograd tape."""

    batch: Batch
    outputs: list[NDArray]
    gradients: list[NDArray]  # slices of the gradient arenas

    def backward(self, gradients: Gradients) -> None:
        """Add to the gradients of the arguments that the batch read."""
        gradients.zero_arenas()
        autograd.backward(
            self.outputs,
            self.gradients,
            retain_graph=True,
            train_mode=self.batch.node_type.mode.training,
        )


class LoopTape:
    """The tape of a batch with loops of MXNet, which forget their steps in a backward pass. A
    further pass runs the batch again first."""

    def __init__(self, tape: BatchTape, run_again: Callable[[], BatchTape]):
        self._tape: Optional[BatchTape] = tape  # until a backward pass
        self._run_again = run_again

    def backward(self, gradients: Gradients) -> None:
        """Add to the gradients of the arguments that the batch read."""
        tape, self._tape = self._tape or self._run_again(), None
        tape.backward(gradients)


def capabilities(node_type: NodeType) -> Optional[Capabilities]:
    """Return the capabilities of a type for this backend; None if it cannot run the type."""
    if node_type.graph.function is not None:
        return Capabilities(False, 0, 0)
    if node_type.packed:
        return Capabilities(True, 0, 0) if node_type.layout is not None else None
    return Capabilities(node_type.by_segments is None, float('inf'), node_type.fused_up_to)


def run(state: ExecutionState, batch: Batch) -> Union[BatchTape, LoopTape, None]:
    """Run one batch; return its tape, or None if it has no gradient."""
    if batch.node_type.tables:
        look_up(state, batch)
        return None
    node_type = batch.node_type
    mode = node_type.mode
    reads = tuple([_reading(read, node_type) for read in batch.reads])
    lengths = state.padded_lengths(batch)
    of_length = lengths if node_type.axes else NO_LENGTHS
    program = program_for(node_type, reads, batch.rows <= node_type.fused_up_to, of_length)
    inputs, differentiable = [], False
    for source in program.sources:
        kind, position = source
        if kind in ('parameter', 'pack'):
            inputs.append(state.weights.of(node_type, program, source))
            differentiable |= any(
                node_type.parameters[member].grad_req != 'null'
                for member in program.parameters(source)
            )
        elif kind == 'padded':
            inputs.append(state.padded_index(batch, position, lengths[position]))
        elif kind == 'index':
            inputs.append(state.index(batch.reads[position], node_type))
        elif kind == 'unpadded':
            inputs.append(state.unpadded(batch, position, lengths))
        elif kind == 'parents':
            inputs.append(state.index(parents_of(batch.reads[position]), node_type))
        elif kind == 'segments':
            inputs.append(state.segments(batch, position))
        elif kind == 'lengths':
            inputs.append(state.lengths(batch, position))
        else:
            leaf = (
                mode.recording
                and node_type.arguments[position].differentiable
                and batch.reads[position].length != 0  # of which there is one of zeros
            )
            differentiable |= leaf
            inputs.append(
                state.rows(batch, position, leaf)
                if kind == 'rows'
                else state.arena(batch.reads[position].arena, position, leaf)
            )
    outputs = [state.arenas[write.arena]._slice(write.begin, write.end) for write in batch.writes]
    with modes(mode.recording, mode.training):
        program.call(*inputs, out=outputs)
    if not (mode.recording and differentiable):
        return None
    tape = _tape(state, batch, outputs)
    _note_unread(state, batch, program, tape is not None)
    if tape is None or not node_type.has_loops:
        return tape

    def run_again() -> BatchTape:
        if node_type.random:
            raise BatchError(
                f'a second backward pass through {node_type.name}, whose loop draws numbers: '
                f'differentiate the sum of its results once'
            )
        copies = [output.copy() for output in outputs]
        with modes(mode.recording, mode.training):
            program.call(*inputs, out=copies)
        again = _tape(state, batch, copies)
        assert again is not None  # as the first was
        return again

    return LoopTape(tape, run_again)


def _tape(state: ExecutionState, batch: Batch, outputs: list[NDArray]) -> Optional[BatchTape]:
    """Return what the backward pass of a batch needs; None without a result of a floating type."""
    kept = [
        (output, state.gradients[write.arena]._slice(write.begin, write.end))
        for output, write in zip(outputs, batch.writes)
        if state.gradients[write.arena] is not None
    ]
    return (
        BatchTape(batch, [pair[0] for pair in kept], [pair[1] for pair in kept]) if kept else None
    )


def _note_unread(state: ExecutionState, batch: Batch, program: CompiledGraph, taped: bool) -> None:
    """Note the gradient rows that a batch's backward pass will not write. A batch without gradients
    writes none, and a graph for empty arguments may leave out some."""
    used = {position for kind, position in program.sources if kind == 'rows' and taped}
    state.unread += [
        state.gradients[read.arena]._slice(read.begin, read.end)
        for position, read in enumerate(batch.reads)
        if state.plan.arenas[read.arena].private and position not in used
    ]


def _reading(read: Read, node_type: NodeType) -> str:
    if read.length == 0:
        return MASKED_SLICE if node_type.masked else EMPTY
    if read.parents is not None:
        if node_type.packed:
            return PADDED
        return LONG_GATHER if read.gather else LONG_SLICE
    if read.lengths is not None:
        return MASKED_GATHER if read.gather else MASKED_SLICE
    return GATHER if read.gather else SLICE
