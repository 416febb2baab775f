"""Execution state of an evaluation: arenas, filled with inputs, and how batches read them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from gluon_edbatch_core.graph.collect import Calls
from gluon_edbatch_core.plan.plan import ArenaPlan, Batch, Group, Plan, Read

from ..mx.arrays import detached, rows_of, wait_for
from ..mx.host import allocated, upload, write_new
from ..mx.pool import Memory
from ..mx.segment_matrix import segment_matrix
from ..record.inputs import GivenArray
from ..record.recording import Recording
from ..record.stores import Arena
from ..subgraph.node_type import NodeType
from ..subgraph.padded import bucket_of
from ..subgraph.sentences import inverse, lengths_first
from ..subgraph.spec import ArenaKey
from .clock import Clock
from .native.library import gather
from .weights import Weights

_MOST_ELEMENTS_NOW = 1 << 18  # of an arena: to compute larger ones takes too long to run now


class Imported(NamedTuple):
    """Rows of an earlier evaluation that have a gradient, and those that are their copies."""

    source: Arena
    rows: np.ndarray
    arena: int  # where the copies are
    begin: int
    end: int


class ExecutionState:
    """Arenas, weights and tapes of one evaluation."""

    def __init__(
        self, recording: Recording, plan: Plan, calls: Calls, clock: Optional[Clock] = None
    ):
        self.recording, self._calls = recording, calls
        self.plan = plan
        self.clock = clock  # if somebody asks how long batches take
        self.taped = any(group.node_type.mode.recording for group in plan.groups)
        # Arenas are new, or computed before, and the engine has nothing to do with them so far. In
        # training that is of use while the user waits for results: else Python runs ahead.
        self.is_quiet = not (self.taped and recording.closed)
        self.memories: list[Optional[Memory]] = []  # of the arenas; None if not pooled
        self._touched: list[Memory] = []
        # Unknown to autograd, as all their views that batches read.
        self.arenas: list[NDArray] = [self._arena_for(arena) for arena in plan.arenas]
        self._gradient_memories = [
            Memory((max(arena.rows, 1), *arena.key[0]), *arena.key[1:3])
            if self.taped and issubclass(arena.key[1], np.floating)
            else None
            for arena in plan.arenas
        ]
        # Gradient arenas, for the kinds that can have gradients.
        self.gradients: list[Any] = [memory and memory.array for memory in self._gradient_memories]
        self.tapes: list[Any] = []  # what differentiates batches, in the order in which they ran
        self.fence: Optional[NDArray] = None  # something small that the last step writes at its end
        self.weights = Weights(recording, self.taped)
        self.given: list[tuple[NDArray, int, int, int]] = []  # array, arena, begin, end
        self.imported: list[Imported] = []
        self.looked_up = False  # whether rows of tables are on the user's tape (see lookup)
        self.unread: list[NDArray] = []  # gradients of private rows that no batch needed
        self.is_over = False  # all has run that is to run
        self._aliases: dict[tuple[int, int], NDArray] = {}
        self._indices: dict[mx.Context, NDArray] = {}
        self._fill()

    # --- inputs ----------------------------------------------------------------------------------

    def _arena_for(self, arena: ArenaPlan) -> NDArray:
        if arena.earlier is not None:
            self.memories.append(None)
            earlier: Any = self.recording.results[arena.earlier][arena.key]
            self._read_earlier([earlier])
            return earlier.raw
        shape = (max(arena.rows, 1),) + arena.key[0]
        idle = self.is_quiet and math.prod(shape) <= _MOST_ELEMENTS_NOW
        _, dtype, ctx, _ = arena.key
        memory = None if arena.is_from_host else Memory(shape, dtype, ctx, idle)
        self.memories.append(memory)
        if memory is None:
            return allocated(shape, dtype, ctx)
        self.is_quiet = self.is_quiet and memory.idle
        self._touch(memory)
        return memory.array

    def _touch(self, memory: Memory) -> None:
        """Note that memory may be handed to the engine by what runs next."""
        self._touched.append(memory)
        memory.handed.append(id(self))

    def _read_earlier(self, sources: Sequence[Arena]) -> None:
        """Prepare to read arenas of earlier evaluations. While the scope records, wait for them:
        the user waits for results, and Python cannot run ahead."""
        late = [source for source in sources if not source.is_over]
        if late and self.is_quiet and not self.recording.closed:
            wait_for([source.raw.handle for source in late])
            for source in late:
                source.is_over = True
        for source in sources:
            self.is_quiet = self.is_quiet and source.is_over
            if source.memory is not None:
                self._touch(source.memory)

    def _fill(self) -> None:
        """Write the inputs: host arrays first, while no operator waits to write the arenas."""
        device: list[tuple] = []
        filled = list(zip(range(len(self.arenas)), self.plan.arenas, self.arenas))
        for index, arena, array in filled:
            self._fill_from_host(arena, array, device, index)
        if device:
            self.is_quiet = False
        for rows in _neighbours(device):
            index, _, begin, _ = rows[0]
            _write(
                [given.contents() for _, given, _, _ in rows],
                self.arenas[index]._slice(begin, rows[-1][3]),
            )
        for index, given, begin, end in device:
            self._differentiate(given, index, begin, end)
        for index, arena, array in filled:
            if not arena.imports:
                continue
            if not self._gather(arena, array):
                self.is_quiet = False
                for imported in arena.imports:
                    self._import(index, arena, array, imported)
            if self.taped and self.gradients[index] is not None:
                self._note_imports(index, arena)

    def _differentiate(self, given: GivenArray, index: int, begin: int, end: int) -> None:
        """Pass the gradient of these arena rows on to the user's array."""
        if self.taped and self.gradients[index] is not None and given.original is not None:
            self.given.append((given.original, index, begin, end))

    def _fill_from_host(self, arena: ArenaPlan, array, device, index) -> None:
        runs: list[tuple[int, list]] = []  # consecutive rows, which go up in one copy
        place, given = -1, self.recording.arrays
        if arena.zero is not None and self.memories[index] is not None and not self.is_quiet:
            zero = array._slice(arena.zero, arena.zero + 1)
            mx.nd.zeros_like(zero, out=zero)
        elif arena.zero is not None:
            runs.append((arena.zero, [np.zeros((1,) + arena.key[0], arena.key[1])]))
            place = arena.zero + 1
        if arena.scalars is not None:
            begin, first, last = arena.scalars
            runs.append((begin, [self.recording.numbers(first, last)]))
            place = begin + last - first
        values = [given[which][1] for _, which in arena.arrays]
        held = [
            value.values if value.__class__ is GivenArray and value.original is None else value
            for value in values
        ]
        if {*map(type, held)} == {np.ndarray}:  # most often: they are consecutive rows
            if arena.arrays[0][0] != place:
                runs.append((arena.arrays[0][0], []))
            runs[-1][1].extend(held)
            values = []
        for (begin, which), value in zip(arena.arrays, values):
            end = begin + given[which][0].rows
            if isinstance(value, GivenArray):
                if not isinstance(value.values, np.ndarray):
                    device.append((index, value, begin, end))
                    continue
                self._differentiate(value, index, begin, end)
                value = value.values
            if begin != place:
                runs.append((begin, []))
            runs[-1][1].append(value)
            place = end
        for begin, rows in runs:
            write_new(array, begin, rows[0] if len(rows) == 1 else _joined(rows, arena.key))

    def _gather(self, arena: ArenaPlan, array: NDArray) -> bool:
        """Copy rows of all earlier evaluations in one call. Return False if the native operators
        cannot do it, or results are in separate arrays."""
        results, key = self.recording.results, arena.key
        sources = [results[imported.evaluation][key] for imported in arena.imports]
        arenas = [source for source in sources if isinstance(source, Arena)]
        rows = [imported.rows for imported in arena.imports]
        self._read_earlier(arenas)
        return len(arenas) == len(rows) and gather(
            [source.raw for source in arenas], rows, array, arena.imports[0].begin, self.is_quiet
        )

    def _import(self, index, arena, array, imported) -> None:
        """Copy rows of an earlier evaluation. If they are on the user's tape, they are inputs."""
        source: Any = self.recording.results[imported.evaluation][arena.key]
        begin, end = imported.begin, imported.begin + len(imported.rows)
        if isinstance(source, Arena):
            source.take(imported.rows).copyto(array._slice(begin, end))
            return
        value = source.take(imported.rows, imported.taped and self.taped)
        detached(value).copyto(array._slice(begin, end))
        if imported.taped and self.taped and self.gradients[index] is not None:
            self.given.append((value, index, begin, end))

    def _note_imports(self, index: int, arena: ArenaPlan) -> None:
        """Note which rows of earlier evaluations get gradients from this one."""
        for imported in arena.imports:
            source: Any = self.recording.results[imported.evaluation][arena.key]
            if imported.taped and isinstance(source, Arena) and source.origin is not None:
                begin, end = imported.begin, imported.begin + len(imported.rows)
                self.imported.append(Imported(source, imported.rows, index, begin, end))

    # --- batches ---------------------------------------------------------------------------------

    def note_over(self) -> None:
        """Note that the whole evaluation ran inline, without the engine, which may still
        differentiate it."""
        self.is_over = True
        for memory in () if self.taped else self._touched:
            memory.handed.remove(id(self))

    def finish(self) -> None:
        """Drop references to the recording after all has run. Backward does not need it, and
        MXNet's references, which Python's garbage collector does not see, would make a cycle
        through autograd's tape."""
        del self.recording, self._calls
        self.weights.finish()

    def rows(self, batch: Batch, position: int, leaf: bool) -> NDArray:
        """Return consecutive rows of an arena, as a variable whose gradient is a slice, too."""
        read = batch.reads[position]
        argument = batch.node_type.arguments[position]
        if read.length == 0:
            return mx.nd.zeros(
                (batch.rows, 1) + argument.arena[0], ctx=argument.arena[2], dtype=argument.arena[1]
            )
        arena = self.plan.arenas[read.arena]
        rows = rows_of(self.arenas[read.arena], read.begin, read.end)
        gradient: Any = self.gradients[read.arena]._slice(read.begin, read.end) if leaf else None
        if read.length is not None:
            shape = (-1, read.length) + argument.arena[0]
            rows, gradient = rows.reshape(shape), gradient.reshape(shape) if leaf else None
        if leaf:
            autograd.mark_variables([rows], [gradient], 'write' if arena.private else 'add')
        return rows

    def arena(self, index: int, position: int, leaf: bool) -> NDArray:
        """Return an arena to gather from. Each argument has its own alias of it, as gradients of
        two gathers from one variable would be added as arrays of the arena's whole size."""
        if not leaf:
            return self.arenas[index]
        alias = self._aliases.get((index, position))
        if alias is None:
            alias = self._aliases[index, position] = self.arenas[index].detach()
            autograd.mark_variables([alias], [self.gradients[index]], 'add')
        return alias

    def index_array(self, ctx: mx.Context) -> NDArray:
        """Return all indices of the evaluation, on a device."""
        if ctx not in self._indices:
            self._indices[ctx] = upload(self.plan.indices, ctx)
        return self._indices[ctx]

    def index(self, read: Read, node_type: NodeType) -> NDArray:
        """Return the indices of the rows that a batch reads for one argument."""
        index = self.index_array(node_type.ctx)._slice(read.begin, read.end)
        return index if read.length is None else index.reshape((-1, read.length))

    def segments(self, batch: Batch, position: int) -> NDArray:
        """Return the sparse matrix of values of a ragged argument by row of the batch."""
        parents = parents_of(batch.reads[position])
        arena = batch.node_type.arguments[position].arena
        return segment_matrix(
            self.plan.indices[parents.begin : parents.end], batch.rows, arena.dtype, arena.ctx
        )

    def lengths(self, batch: Batch, position: int) -> NDArray:
        """Return how many values of a ragged argument each row of the batch has."""
        if batch.node_type.packed:
            counts = self._counts(batch, position).astype(np.int32)
            return upload(counts, batch.node_type.ctx)
        begin = batch.reads[position].lengths
        if begin is None:  # no call of the batch has any
            return mx.nd.zeros((batch.rows,), batch.node_type.ctx, 'int32')
        return self.index_array(batch.node_type.ctx)._slice(begin, begin + batch.rows)

    def rows_of_calls(self, batch: Batch) -> list[int]:
        """Return how many rows each call of a batch has."""
        forms = self._calls.forms[batch.nodes].tolist()
        return [self.recording.forms[form].rows for form in forms]

    def lengths_of_calls(self, batch: Batch) -> np.ndarray:
        """Return the lengths of the ragged arguments of each call, (calls, ragged arguments)."""
        first = self._calls.length_offsets[batch.nodes]
        return self._calls.lengths[first[:, None] + np.arange(len(batch.node_type.ragged))]

    def line_of(self, batch: Batch) -> str:
        """Return the user's line that recorded the first call of a batch."""
        return str(self.recording.site(int(self._calls.ids[batch.nodes[0]])))

    def read(self, batch: Batch, position: int) -> NDArray:
        """Return one argument of a batch as a separate array; ragged ones are padded."""
        read = batch.reads[position]
        if read.parents is not None:
            longest = self._counts(batch, position).max()
            return mx.nd.take(self.arenas[read.arena], self.padded_index(batch, position, longest))
        if not read.gather:
            return self.rows(batch, position, False)
        return mx.nd.take(self.arenas[read.arena], self.index(read, batch.node_type))

    def data_among(self, group: Group, first: int, last: int) -> tuple[int, ...]:
        """Return the positions of arguments of which batches read, as slices, nothing but the
        user's arrays without gradients."""
        found, with_gradients = [], {index for _, index, _, _ in self.given}
        for position, read in enumerate(group.reads):
            given = self.plan.arenas[read.arena].arrays
            if not given or read.arena in with_gradients or read.gather[first:last].any():
                continue
            end = given[-1][0] + self.recording.arrays[given[-1][1]][0].rows
            if given[0][0] <= read.begin[first:last].min() and read.end[first:last].max() <= end:
                found.append(position)
        return tuple(found)

    def first_packed(self, batch: Batch, position: int) -> NDArray:
        """Return a packed argument of the first call of a batch, (1, L, ...), or as users see it if
        the graph is of one call."""
        read = batch.reads[position]
        parents = parents_of(read)
        length = np.count_nonzero(self.plan.indices[parents.begin : parents.end] == 0)
        only = read._replace(end=read.begin + length, parents=None)
        rows = self.arenas[read.arena]._slice(only.begin, only.end)
        if read.gather:
            rows = mx.nd.take(self.arenas[read.arena], self.index(only, batch.node_type))
        axis = dict(batch.node_type.axes).get(position, 1)
        rows = rows.expand_dims(0) if axis else rows
        return rows if axis < 2 else rows.transpose(inverse(lengths_first(rows.ndim, (axis,))))

    def _counts(self, batch: Batch, position: int) -> np.ndarray:
        """Return how many values each row of a batch has for a ragged argument, or positions."""
        parents = parents_of(batch.reads[position])
        return np.bincount(self.plan.indices[parents.begin : parents.end], minlength=batch.rows)

    def padded_lengths(self, batch: Batch) -> dict[int, int]:
        """Return the length to which each packed argument of a batch is padded, by position: that
        of the longest, or its bucket if each length has a program of its own."""
        node_type = batch.node_type
        if not node_type.packed:
            return {}
        longest = {place: int(self._counts(batch, place).max()) for place in node_type.ragged}
        return {
            place: bucket_of(length) if node_type.axes else length
            for place, length in longest.items()
        }

    def padded_index(self, batch: Batch, position: int, length: int) -> NDArray:
        """Return the rows of an argument, (calls, length); padding is a row of zeros, or the first
        row."""
        read = batch.reads[position]
        indices, arena = self.plan.indices, self.plan.arenas[read.arena]
        rows = indices[read.begin : read.end] if read.gather else np.arange(read.begin, read.end)
        counts = self._counts(batch, position)
        padding = rows[0] if arena.zero is None else arena.zero
        padded = np.full((batch.rows, length), padding, np.int32)
        padded[np.arange(length) < counts[:, None]] = rows
        return upload(padded, arena.key[2])

    def unpadded(self, batch: Batch, output: int, lengths: Mapping[int, int]) -> NDArray:
        """Return the places of a result that are no padding, among (calls, length) or (calls,
        length, length); `lengths` are as in `padded_lengths`."""
        inside = np.ones((batch.rows,), bool)
        counts = {place: self._counts(batch, place) for place in lengths}
        for along in batch.node_type.packed[output]:
            own = along.length(counts)
            below = np.arange(along.length(lengths)) < own[:, None]
            inside = inside[..., None] & below.reshape(len(own), *(1,) * (inside.ndim - 1), -1)
        return upload(np.flatnonzero(inside).astype(np.int32), batch.node_type.ctx)


def parents_of(read: Read) -> Read:
    """Return where in the indices the parents of a ragged argument's values are."""
    return Read(read.arena, True, read.parents, read.parents + read.end - read.begin)


def _neighbours(device: list[tuple]) -> Iterator[list[tuple]]:
    """Yield groups of inputs that are consecutive in an arena."""
    run: list[tuple] = []
    for item in device:
        if run and (item[0], item[2]) != (run[-1][0], run[-1][3]):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def _joined(rows: list[Any], key: ArenaKey) -> np.ndarray:
    """Return the rows of arrays of one kind, one after the other."""
    try:
        return np.frombuffer(b''.join(rows), key.dtype).reshape(-1, *key.row_shape)
    except TypeError:  # one is not contiguous
        return np.concatenate(rows)


def _write(arrays: list[NDArray], target: NDArray) -> None:
    """Copy arrays into consecutive rows of another array by one operator of the engine."""
    if len(arrays) == 1 or target.dtype == np.bool_:
        for array, begin in zip(arrays, np.cumsum([0] + [len(array) for array in arrays])):
            array.copyto(target._slice(int(begin), int(begin) + len(array)))
    else:
        mx.nd.concat(*arrays, dim=0, out=target)
