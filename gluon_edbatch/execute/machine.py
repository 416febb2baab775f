"""Running a plan: arenas are filled, then each batch is one compiled call that writes its slice,
or many are one call of a native operator."""

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from ..mx.arrays import detached
from ..mx.host import allocated, upload, write_new
from ..mx.modes import set_recording, set_training
from ..mx.pool import Memory
from ..mx.segment_matrix import segment_matrix
from ..plan.plan import ArenaPlan, Batch, Group, Plan, Read
from ..record.inputs import GivenArray
from ..record.recording import Recording
from ..record.stores import Arena
from .cached.program import EMPTY, GATHER, LONG_GATHER, LONG_SLICE, SLICE, program_for
from .native.run import NativeRun, kind_of_run
from .sparse_tables import look_up
from .verify import needs_verification
from .weights import Weights


class Tape(NamedTuple):
    """One batch's own small autograd tape."""

    batch: Batch
    outputs: List[NDArray]
    gradients: List[NDArray]  # slices of the gradient arenas

    def backward(self) -> None:
        """Add to the gradients of what the batch read."""
        autograd.backward(
            self.outputs,
            self.gradients,
            retain_graph=True,
            train_mode=self.batch.node_type.mode.training,
        )


class Machine:
    """Arenas, weights and tapes of one evaluation.

    Attributes
    ----------
    arenas : list of (NDArray or None)
        Unknown to autograd, as all its views that batches read; None for results on the user's
        own tape (see `own_tape`).
    gradients : list of (NDArray or None)
        Gradient arenas, for the kinds that can have gradients.
    tapes : list of (Tape or NativeRun)
        In the order in which the batches ran.
    weights : Weights
    """

    def __init__(self, recording: Recording, plan: Plan, results: Dict[int, List[Arena]]):
        self.recording = recording
        self.plan = plan
        self.taped = any(group.node_type.mode.recording for group in plan.groups)
        self.memories: List[Optional[Memory]] = []  # of the arenas; None if not pooled
        self.arenas = [self._arena_for(arena) for arena in plan.arenas]
        self._gradient_memories = [
            Memory(array.shape, array.dtype, array.ctx)
            if self.taped and array is not None and np.issubdtype(array.dtype, np.floating)
            else None
            for array in self.arenas
        ]
        self.gradients = [memory and memory.array for memory in self._gradient_memories]
        self.tapes: List[Union[Tape, NativeRun]] = []
        self.weights = Weights(recording, self.taped)
        self.given: List[Tuple[NDArray, int, int, int]] = []  # array, arena, begin, end
        self.looked_up = False  # whether rows of tables are on the user's tape (see lookup)
        self.unread: List[NDArray] = []  # gradients of private rows that no batch needed
        self._aliases: Dict[Tuple[int, int], NDArray] = {}
        self._indices: Dict[mx.Context, NDArray] = {}
        self._fill(results)

    # --- inputs ----------------------------------------------------------------------------------

    def _arena_for(self, arena: ArenaPlan) -> Optional[NDArray]:
        if arena.key.eager:
            self.memories.append(None)
            return None
        shape = (max(arena.rows, 1),) + arena.key[0]
        from_host = arena.scalars is not None or arena.arrays
        self.memories.append(None if from_host else Memory(shape, *arena.key[1:3]))
        return allocated(shape, *arena.key[1:3]) if from_host else self.memories[-1].array

    def _fill(self, results) -> None:
        """Write what was given: host arrays first, while nothing waits to write the arenas."""
        device: List[tuple] = []
        filled = [
            (index, arena, array)
            for index, (arena, array) in enumerate(zip(self.plan.arenas, self.arenas))
            if array is not None
        ]
        for index, arena, array in filled:
            self._fill_from_host(arena, array, device, index)
        for rows in _neighbours(device):
            index, _, begin, _ = rows[0]
            _write(
                [given.contents() for _, given, _, _ in rows],
                self.arenas[index]._slice(begin, rows[-1][3]),
            )
        for index, given, begin, end in device:
            if self.taped and self.gradients[index] is not None:
                self.given.append((given.original, index, begin, end))
        for index, arena, array in filled:
            for imported in arena.imports:
                self._import(index, arena, array, imported, results)

    def _fill_from_host(self, arena: ArenaPlan, array, device, index) -> None:
        pieces: List[Tuple[int, np.ndarray]] = []
        if arena.zero is not None and self.memories[index] is not None:
            array._slice(arena.zero, arena.zero + 1)[:] = 0
        elif arena.zero is not None:
            pieces.append((arena.zero, np.zeros((1,) + arena.key[0], arena.key[1])))
        if arena.scalars is not None:
            begin, first, last = arena.scalars
            pieces.append((begin, self.recording.numbers(first, last)))
        for begin, which in arena.arrays:
            spec, value = self.recording.arrays[which]
            if isinstance(value, GivenArray):
                device.append((index, value, begin, begin + spec.rows))
            else:
                pieces.append((begin, value))
        while pieces:  # neighbours go up in one copy
            run = [pieces.pop(0)]
            while pieces and pieces[0][0] == run[-1][0] + len(run[-1][1]):
                run.append(pieces.pop(0))
            rows = run[0][1] if len(run) == 1 else np.concatenate([piece for _, piece in run])
            write_new(array, run[0][0], rows)

    def _import(self, index, arena, array, imported, results) -> None:
        """Copy rows of an earlier evaluation; under autograd they are inputs of this one."""
        source = results[imported.evaluation][arena.key]
        rows = upload(imported.rows.astype(np.int32), arena.key[2])
        begin, end = imported.begin, imported.begin + len(imported.rows)
        taped = imported.taped and source.taped is not None and self.taped
        previous = set_recording(taped)
        try:
            value = mx.nd.take(source.taped if taped else source.raw, rows)
        finally:
            set_recording(previous)
        detached(value).copyto(array._slice(begin, end))
        if taped and self.gradients[index] is not None:
            self.given.append((value, index, begin, end))

    # --- batches ---------------------------------------------------------------------------------

    def run(self, step: 'Step') -> None:
        """Run one of the `steps`: the results appear in their rows of the arenas."""
        if step.native:
            run = NativeRun(self, step.first, step.last)
            if run.forward():
                self.tapes.append(run)
        else:
            (batch,) = self.plan.batches_between(step.first, step.last)
            if batch.node_type.tables:
                look_up(self, batch)
            else:
                self._call(batch)

    def finish(self) -> None:
        """All has run. Backward does not need the recording, which refers to arenas that are on
        autograd's tape, which refers to this machine: none of them would ever be freed, as
        Python's garbage collector does not see MXNet's references."""
        del self.recording
        self.weights.finish()

    def _call(self, batch: Batch) -> None:
        node_type = batch.node_type
        mode = node_type.mode
        program = program_for(
            node_type, tuple(map(_reading, batch.reads)), node_type.fused(batch.rows)
        )
        inputs, differentiable = [], False
        for source in program.sources:
            kind, position = source
            if kind in ('parameter', 'pack'):
                inputs.append(self.weights.of(node_type, program, source))
                differentiable |= any(
                    node_type.parameters[member].grad_req != 'null'
                    for member in program.parameters(source)
                )
            elif kind == 'index':
                inputs.append(self._index(batch.reads[position], node_type))
            elif kind == 'parents':
                inputs.append(self._index(_parents(batch.reads[position]), node_type))
            elif kind == 'segments':
                inputs.append(self._segments(batch, position))
            else:
                leaf = mode.recording and node_type.arguments[position].differentiable
                differentiable |= leaf
                inputs.append(
                    self._rows(batch, position, leaf)
                    if kind == 'rows'
                    else self._arena(batch.reads[position].arena, position, leaf)
                )
        outputs = [
            self.arenas[write.arena]._slice(write.begin, write.end) for write in batch.writes
        ]
        previous = set_recording(mode.recording), set_training(mode.training)
        try:
            program.call(*inputs, out=outputs)
        finally:
            set_recording(previous[0])
            set_training(previous[1])
        if mode.recording and differentiable:
            self._note_unread(batch, program, self._remember(batch, outputs))

    def _remember(self, batch, outputs) -> bool:
        """Keep what backward needs; False if there is no result of a floating type."""
        kept = [
            (output, self.gradients[write.arena]._slice(write.begin, write.end))
            for output, write in zip(outputs, batch.writes)
            if self.gradients[write.arena] is not None
        ]
        if kept:
            self.tapes.append(Tape(batch, [pair[0] for pair in kept], [pair[1] for pair in kept]))
        return bool(kept)

    def _note_unread(self, batch, program, remembered: bool) -> None:
        """Of a batch without gradients, all; and the form of a subgraph for empty arguments may
        leave out others, too."""
        used = {position for kind, position in program.sources if kind == 'rows' and remembered}
        self.unread += [
            self.gradients[read.arena]._slice(read.begin, read.end)
            for position, read in enumerate(batch.reads)
            if self.plan.arenas[read.arena].private and position not in used
        ]

    def _rows(self, batch: Batch, position: int, leaf: bool) -> NDArray:
        """Neighbouring rows of an arena, as a variable whose gradient is a slice, too."""
        read = batch.reads[position]
        argument = batch.node_type.arguments[position]
        if read.length == 0:
            return mx.nd.zeros(
                (batch.rows, 1) + argument.arena[0], ctx=argument.arena[2], dtype=argument.arena[1]
            )
        arena = self.plan.arenas[read.arena]
        rows = self.arenas[read.arena]._slice(read.begin, read.end)
        gradient = self.gradients[read.arena]._slice(read.begin, read.end) if leaf else None
        if read.length is not None:
            shape = (batch.rows, read.length) + argument.arena[0]
            rows, gradient = rows.reshape(shape), gradient.reshape(shape) if leaf else None
        if leaf:
            autograd.mark_variables([rows], [gradient], 'write' if arena.private else 'add')
        return rows

    def _arena(self, index: int, position: int, leaf: bool) -> NDArray:
        """An arena to gather from. Each argument has its own alias of it, because the gradients
        of two gathers from one variable would be added as two arrays of the arena's whole size."""
        if not leaf:
            return self.arenas[index]
        alias = self._aliases.get((index, position))
        if alias is None:
            alias = self._aliases[index, position] = self.arenas[index].detach()
            autograd.mark_variables([alias], [self.gradients[index]], 'add')
        return alias

    def index_array(self, ctx: mx.Context) -> NDArray:
        """All indices of the evaluation, on a device."""
        if ctx not in self._indices:
            self._indices[ctx] = upload(self.plan.indices, ctx)
        return self._indices[ctx]

    def _index(self, read: Read, node_type) -> NDArray:
        index = self.index_array(node_type.ctx)._slice(read.begin, read.end)
        return index if read.length is None else index.reshape((-1, read.length))

    def _segments(self, batch: Batch, position: int) -> NDArray:
        parents = _parents(batch.reads[position])
        arena = batch.node_type.arguments[position].arena
        return segment_matrix(
            self.plan.indices[parents.begin : parents.end], batch.rows, arena.dtype, arena.ctx
        )

    def read(self, batch: Batch, position: int) -> NDArray:
        """One argument of a batch as an array of its own, ragged ones padded."""
        read = batch.reads[position]
        if read.parents is not None:
            return self._padded(batch, read)
        if not read.gather:
            return self._rows(batch, position, False)
        return mx.nd.take(self.arenas[read.arena], self._index(read, batch.node_type))

    def _padded(self, batch: Batch, read: Read) -> NDArray:
        indices, arena = self.plan.indices, self.plan.arenas[read.arena]
        rows = indices[read.begin : read.end] if read.gather else np.arange(read.begin, read.end)
        parents = _parents(read)
        counts = np.bincount(indices[parents.begin : parents.end], minlength=batch.rows)
        padded = np.full((batch.rows, counts.max()), arena.zero, np.int32)
        padded[np.arange(counts.max()) < counts[:, None]] = rows
        return mx.nd.take(
            self.arenas[read.arena], mx.nd.array(padded, ctx=arena.key[2], dtype='int32')
        )


class Step(NamedTuple):
    """Batches that run at once: those of a plan from `first` to before `last`.

    Attributes
    ----------
    first, last : int
    native : bool
        Whether as one call of a native operator.
    unproved : bool
        Whether it is one batch of a type that is to be verified.
    """

    first: int
    last: int
    native: bool
    unproved: bool


def steps(plan: Plan) -> Iterator[Step]:
    """What to run at once of all that is batched: neighbours that run natively together, all else
    one by one. (Calls on the user's own tape are the last of a plan.)

    Which types need verification is asked just before a step is given out.
    """
    count = sum([group.size for group in plan.groups if not group.node_type.eager])
    kinds = np.zeros(plan.size, np.int8)
    for group in plan.groups:
        kinds[group.numbers] = kind_of_run(group)
    first, known = 0, None
    while first < count:
        verified = [
            (group.node_type.verified, group.node_type.verified_padding) for group in plan.groups
        ]
        if verified != known:  # a few times, while there are thousands of batches
            known, unproved = verified, _unproved(plan)
            alone = unproved | (kinds == 0)
            begins = np.flatnonzero(alone[1:] | alone[:-1] | (kinds[1:] != kinds[:-1])) + 1
            ends = np.append(begins, plan.size)
        last = int(ends[np.searchsorted(ends, first, side='right')])
        yield Step(first, last, bool(kinds[first]), bool(unproved[first]))
        first = last


def _unproved(plan: Plan) -> np.ndarray:
    unproved = np.zeros(plan.size, bool)
    for group in plan.groups:
        if needs_verification(group.node_type):
            unproved[group.numbers] = (np.diff(group.bounds) > 1) & (
                _uneven(group) | (not group.node_type.verified)
            )
    return unproved


def _uneven(group: Group) -> np.ndarray:
    """Of which batches the calls have ragged arguments of different lengths."""
    uneven = np.zeros(group.size, bool)
    for read in group.reads:
        if read.uneven is not None:
            uneven |= read.uneven
    return uneven


def _reading(read: Read) -> str:
    if read.length == 0:
        return EMPTY
    if read.parents is not None:
        return LONG_GATHER if read.gather else LONG_SLICE
    return GATHER if read.gather else SLICE


def _parents(read: Read) -> Read:
    """Where in the indices the parents of a ragged argument's values are."""
    return Read(read.arena, True, read.parents, read.parents + read.end - read.begin)


def _neighbours(device: List[tuple]) -> Iterator[List[tuple]]:
    """Inputs that lie one after the other in an arena, together."""
    run: List[tuple] = []
    for item in device:
        if run and (item[0], item[2]) != (run[-1][0], run[-1][3]):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def _write(arrays: List[NDArray], target: NDArray) -> None:
    """Copy arrays into the rows of another: the engine is given one operator, not one an array."""
    if len(arrays) == 1 or target.dtype == np.bool_:
        for array, begin in zip(arrays, np.cumsum([0] + [len(array) for array in arrays])):
            array.copyto(target._slice(int(begin), int(begin) + len(array)))
    else:
        mx.nd.concat(*arrays, dim=0, out=target)
