"""Run consecutive batches as one call of a native operator, forward and backward: a backend for
types whose operators all have a native kernel.

Small runs go forward inline, in the calling thread, without MXNet's engine. Passing an operator to
the engine, waking a thread and waiting takes up to 200 microseconds; a single tree computes for 50.
There are no races: the arenas are new, and writers to a guarded parameter wait (see
`mx.mutation_guard`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

import mxnet as mx
import numpy as np

from gluon_edbatch_core.native.run_table import MAGIC, SEED, Table, size_of
from gluon_edbatch_core.native.threads import get_num_threads
from gluon_edbatch_core.plan.plan import NATIVE, Capabilities, Group, Part

from ...mx.arrays import run_native, wait_for
from ...mx.host import upload
from ...mx.invoke import run_for_effect
from ...mx.modes import modes
from ...mx.mutation_guard import no_touches
from ...mx.pool import Memory
from ...record.model_watch import key_of
from ...subgraph.node_type import NodeType
from ..executable import executable
from ..execution_state import ExecutionState
from ..gradients import NOT_WANTED, WRITTEN, Gradients
from ..weights import Weights
from .library import address
from .lowering import with_gradients
from .native_program import ALIGNED, WANTED, Layout, NativeProgram, layout, native_program

_MOST_WORDS = 1 << 13  # of inline runs: longer tables take longer than `kMostNanoseconds` in C++
_DTYPES = {4: np.float32, 8: np.float64}
_MOST_FRAMES = 64


class RunWeight(NamedTuple):
    """A parameter of a run: the type that has it, and its position there."""

    part: int  # which of the run's types has it
    position: int  # among the parameters of that type
    trained: bool


class Frame(NamedTuple):
    """What runs of batches of the same types share."""

    start: np.ndarray  # the first words of their tables
    programs: list[np.ndarray]  # of each type
    natives: list[NativeProgram]
    weights: list[RunWeight]
    keys: list[tuple]  # of each weight, see `ModelWatch.parameters`
    workspace: int  # elements that weights take there
    differentiable: bool
    draws: bool  # whether they draw noise


class NativeRun:
    """Batches `first` to before `last` of the plan, of one kind, as one call of an operator."""

    def __init__(self, state: ExecutionState, first: int, last: int):
        parts = state.plan.parts(first, last)
        node_type = parts[0][0].node_type
        self.training, self._ctx = node_type.mode.recording, node_type.ctx
        data = [state.data_among(*part) if self.training else () for part in parts]
        frame = _frame(state.weights, [part[0].node_type for part in parts], data)
        self._dtype = _DTYPES[frame.natives[0].program.element_size]
        self._differentiable = self.training and frame.differentiable
        self._words, self._elements, self._slots = self._table(state, frame, parts, first, last)
        if frame.draws:
            self._words = self._words.copy()
            self._words[SEED] = _seed(self._ctx)
        self._arenas = [state.arenas[arena] for arena in self._slots]
        watched = state.recording.model.parameters
        self._weights = [watched[key] for key in frame.keys]
        self._inputs = [  # of the tape, which of them each weight is
            state.weights.trained(parts[part][0].node_type.parameters[position], each.array)
            if trained
            else None
            for (part, position, trained), each in zip(frame.weights, self._weights)
        ]
        self._laps = [state.clock.laps(first, last)] if state.clock else []

    def forward_inline(self) -> bool:
        """Run the batches inline; return whether they ran. Nothing happens if that would take long
        or a parameter is about to be used.

        All is on the CPU. The arenas are new or only read: the engine must not be using them.
        """
        if self._laps or len(self._words) > _MOST_WORDS:
            return False
        handles = [each.handle() for each in self._weights]
        handles += [array.handle for array in self._arenas]
        if self.training:
            self._allocate_tape(idle=True)
            handles.append(self._workspace.array.handle)
        wait_for(handles)  # not under the lock: what writes a parameter may need that
        with no_touches():
            if any([each.touched for each in self._weights]):
                return False
            return run_native(address('edb_run_inline'), self._words, handles)

    def forward(self) -> None:
        """Run the batches into the arenas."""
        self._allocate_tape()
        arenas = [*self._arenas, self._workspace.array, *self._laps]
        weights = [each.handle() for each in self._weights]
        run_for_effect(
            'edb_run_forward',
            [self.table.handle, *weights, *[array.handle for array in arenas]],
            inputs=str(1 + len(self._weights) + len(arenas)),
            written=str(1 + len(self._weights)),
        )

    def _allocate_tape(self, idle: bool = False) -> None:
        """Allocate what a backward pass reads, in memory that is `idle` until then if asked for."""
        self.table = upload(self._words, self._ctx)  # to MXNet the operator writes it
        self._workspace = Memory((self._elements,), self._dtype, self._ctx, idle)
        self._workspace.handed.append(None)

    def tape(self) -> 'Optional[NativeRun]':
        """Return what differentiates the batches, once they ran; None if they have no gradient."""
        del self._words, self._weights, self._laps
        return self if self._differentiable else None

    def backward(self, gradients: Gradients) -> None:
        """Add to the gradients of the arguments that the batches read."""
        wanted = [gradients.of_arena(arena) for arena in self._slots]
        wanted += [gradients.of_input(place) for place in self._inputs]
        arrays = [self.table, *self._arenas, self._workspace.array]
        written = [mode == WRITTEN for _, mode in wanted]
        run_native(
            address('edb_push_backward'),
            np.array([self._ctx.device_typeid, self._ctx.device_id, len(self._arenas), *written]),
            [array.handle for array in arrays]
            + [None if to is None or mode == NOT_WANTED else to.handle for to, mode in wanted],
        )

    def _table(
        self, state, frame: Frame, parts: Sequence[Part], first: int, last: int
    ) -> tuple[np.ndarray, int, dict[int, int]]:
        """Return the table's words, the workspace's size, and the run's arena for each arena."""
        kept, key = state.plan.tables, (first, last, get_num_threads())
        if kept is not None and key in kept and kept[key][0] is frame:
            return kept[key][1]
        slots: dict[int, int] = {}
        for group, _, _ in parts:
            for place in group.reads + group.writes:
                slots.setdefault(place.arena, len(slots))
        table = Table(size_of(frame.start, frame.programs, parts), state.plan.indices)
        table.begin(frame.start, key[2], len(slots), first, last - first)
        workspace = 1 + frame.workspace
        for (group, begin, end), words, native in zip(parts, frame.programs, frame.natives):
            table.add(words)
            table.add_batches(group, begin, end, slots, state.plan.private)
            workspace += native.layouts[self.training].workspace(table.rows, table.values)
        result = table.words, workspace, slots
        if kept is not None:
            kept[key] = frame, result
        return result


def _seed(ctx: mx.Context) -> int:
    """Draw a seed by MXNet's generator, which ``mx.random.seed`` sets."""
    with modes(recording=False):
        return int(mx.nd.random.randint(0, 2**31 - 1, (1,), ctx=ctx).asscalar())


# --- what runs share -----------------------------------------------------------------------------


def _frame(
    weights: Weights, node_types: Sequence[NodeType], data: Sequence[tuple[int, ...]]
) -> Frame:
    """Return the frame of runs of these types, without gradients of arguments at `data`."""
    known = executable(node_types[0]).frames
    trained = node_types[0].mode.recording and tuple(
        [each.grad_req != 'null' for node_type in node_types for each in node_type.parameters]
    )
    key = tuple([executable(node_type).number for node_type in node_types]), trained, *data
    frame = known.get(key)
    if frame is None:
        if len(known) >= _MOST_FRAMES:
            known.clear()
        frame = known[key] = _FrameMaker(weights, node_types).frame(data)
    return frame


class _FrameMaker:
    def __init__(self, weights: Weights, node_types: Sequence[NodeType]):
        self._training = node_types[0].mode.recording
        self._known, self._node_types = weights, node_types
        self._weights: list[RunWeight] = []
        self._words: list[list[int]] = []  # of each: `Weight` in ``src/program.h``
        self._places: dict[tuple, int] = {}  # of weights and packs, by what they are
        self._differentiable = False

    def frame(self, data: Sequence[tuple[int, ...]]) -> Frame:
        """Return the frame that all runs of these types share."""
        natives = [_program(node_type) for node_type in self._node_types]
        programs = [
            np.concatenate([self._layout(part, places).words, self._parameters_of(part)])
            for part, places in enumerate(data)
        ]
        size = natives[0].program.element_size
        start = [MAGIC, size, self._training, 0, 0, len(self._words), len(programs), 0, 0, 0]
        return Frame(  # `Table.begin` knows the zeros
            np.array(start + [word for words in self._words for word in words], np.int64),
            programs,
            natives,
            self._weights,
            [self._key_of(each) for each in self._weights],
            sum([size + ALIGNED for size, kept_at, _ in self._words if kept_at == WANTED]),
            self._differentiable,
            any([native.program.draws for native in natives]),
        )

    def _layout(self, part: int, data: tuple[int, ...]) -> Layout:
        arguments, native = self._node_types[part].arguments, _program(self._node_types[part])
        if not data:
            return native.layouts[self._training]
        wanted = [each.differentiable and place not in data for place, each in enumerate(arguments)]
        return layout(with_gradients(native.program, wanted), True)

    def _key_of(self, weight: RunWeight) -> tuple:
        node_type = self._node_types[weight.part]
        return key_of(node_type.parameters[weight.position], node_type.ctx)

    def _parameters_of(self, part: int) -> np.ndarray:
        """Return words for the parameters of a program: for each its weight, whether it is trained,
        and the first element that is used."""
        node_type = self._node_types[part]
        program = _program(node_type).program
        alone = [(position,) for position in range(len(node_type.parameters))]
        packed = {position for members in program.packs for position in members}
        used = {position for position, _ in program.parameters}
        places = {
            index: self._weight(part, members)
            for index, members in enumerate(alone + program.packs)
            if index in used or index not in packed
        }
        self._differentiable |= any(trained for _, trained in places.values()) or any(
            argument.differentiable for argument in node_type.arguments
        )
        words: list[Any] = [len(program.parameters)]
        for index, begin in program.parameters:
            words += [*places[index], begin]
        return np.array(words, np.int64)

    def _weight(self, part: int, members: tuple[int, ...]) -> tuple[int, bool]:
        """Return the place in the run of a parameter or a pack, and whether it is trained."""
        node_type = self._node_types[part]
        parameters = [node_type.parameters[position] for position in members]
        trained = [self._training and each.grad_req != 'null' for each in parameters]
        place = self._places.setdefault(tuple(map(id, parameters)), len(self._weights))
        if place == len(self._weights):
            sizes = [  # those of imported symbols do not tell their shape
                self._known.watched(node_type, position).values().size for position in members
            ]
            self._weights += map(RunWeight, [part] * len(members), members, trained)
            self._words += [[size, -1, 0] for size in sizes]
            self._words[place][2] = len(members)
        read = self._training and any([node_type.read_backward[position] for position in members])
        if read or len(members) > 1:
            for words in self._words[place : place + len(members)]:
                words[1] = WANTED
        return place, any(trained)


def _program(node_type: NodeType) -> NativeProgram:
    program = native_program(node_type)
    assert program is not None  # else the backend would not run it
    return program


# --- as a backend --------------------------------------------------------------------------------


def capabilities(node_type: NodeType) -> Optional[Capabilities]:
    """Return the capabilities of a type for native operators; None if they cannot run it."""
    native = native_program(node_type)
    if native is None:
        return None
    return NATIVE if native.program.packs else NATIVE._replace(fused_up_to=0)


def kind(group: Group) -> Union[int, np.ndarray]:
    """Return a number by dtype and whether autograd records; 0 with padded arguments."""
    native = native_program(group.node_type)
    if native is None:
        return 0
    kind: Any = native.program.element_size * 2 + group.node_type.mode.recording
    for position in group.node_type.ragged:
        read = group.reads[position]
        padded = (read.length != 0) & (True if read.parents is None else read.parents < 0)
        if padded.any():
            kind = np.where(padded, 0, kind)
    return kind


def run(state: ExecutionState, first: int, last: int) -> Optional[NativeRun]:
    """Run batches; return what differentiates them, or None."""
    batches = NativeRun(state, first, last)
    if state.is_quiet and last - first == state.plan.size and batches.forward_inline():
        state.note_over()
    else:
        batches.forward()
        state.fence = batches.table
    return batches.tape()
