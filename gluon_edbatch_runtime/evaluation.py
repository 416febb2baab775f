"""Run a plan: neighbouring batches by the native executor, all others by NumPy, one by one."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluon_edbatch_core.bundle.numpy_steps import segments_of
from gluon_edbatch_core.errors import BatchError, RecordError
from gluon_edbatch_core.graph.collect import Calls
from gluon_edbatch_core.native.executor_library import addresses, executor, run_arrays
from gluon_edbatch_core.native.run_table import MAGIC, Table, size_of
from gluon_edbatch_core.native.threads import get_num_threads
from gluon_edbatch_core.plan.call_type import Kind
from gluon_edbatch_core.plan.plan import (
    NATIVE,
    ArenaPlan,
    Batch,
    Capabilities,
    Group,
    Plan,
    Read,
)  # fmt: skip
from gluon_edbatch_core.plan.rows import rows_read
from gluon_edbatch_core.schedule import Schedule

from .forms import ArenaKey, CellType

_BY_NUMPY = Capabilities(pads=False, hoisted_below=0, fused_up_to=0)
_MOST_FRAMES = 64


def is_native(kind: CellType) -> bool:
    """Return whether the native executor runs a type."""
    return kind.native is not None and executor() is not None


def capabilities(kind: CellType) -> Capabilities:
    """Return what planning needs to know of what runs a type."""
    return NATIVE if is_native(kind) else _BY_NUMPY


def by_type(schedule: Schedule, kinds: np.ndarray) -> Schedule:
    """Return a schedule with batches split by the types of their calls."""
    batches = np.arange(len(schedule)).repeat(np.diff(schedule.bounds))
    keys = batches * (int(kinds.max()) + 1) + kinds[schedule.order]
    places = np.argsort(keys, kind='stable')
    ends = np.flatnonzero(np.diff(keys[places])) + 1
    return Schedule(schedule.order[places], np.array([0, *ends, len(places)], np.int64))


def check_lengths(calls: Calls, kinds: np.ndarray, types: Sequence[CellType]) -> None:
    """Raise if ragged arguments of a call differ in length."""
    for place, kind in enumerate(types):
        if len(kind.ragged) > 1:
            first = calls.length_offsets[:-1][kinds == place]
            lengths = calls.lengths[first[:, None] + np.arange(len(kind.ragged))]
            if (lengths != lengths[:, :1]).any():
                raise RecordError(f'{kind} got ragged arguments of different lengths in one call')


class Evaluation:
    """Run a plan once: `arenas` are all rows of each kind, of which the recording keeps results."""

    def __init__(self, recording: Any, plan: Plan):
        self._recording, self._plan = recording, plan
        self.arenas = [self._filled(arena) for arena in plan.arenas]
        for group in plan.groups:
            if is_native(group.node_type):  # else NumPy looks up, and raises itself
                self._check_words(group)
        for first, last, native in _steps(plan):
            if native:
                self._run_natively(first, last)
            else:
                self._run_batches(first, last)

    def results(self) -> dict[ArenaKey, np.ndarray]:
        """Return the arenas that have values."""
        pairs = zip(self._plan.arenas, self.arenas)
        return {arena.key: rows for arena, rows in pairs if arena.public}

    def _filled(self, arena: ArenaPlan) -> np.ndarray:
        """Return an arena with what is known beforehand."""
        if arena.earlier is not None:
            return self._recording.results[arena.earlier][arena.key]
        row_shape, dtype = arena.key
        rows = np.empty((arena.rows, *row_shape), dtype)
        if arena.scalars is not None:
            begin, first, last = arena.scalars
            rows[begin : begin + last - first] = self._recording.given_numbers(first, last)
        for begin, index in arena.arrays:
            array = self._recording.arrays[index][1]
            rows[begin : begin + len(array)] = array
        for each in arena.imports:
            source = self._recording.results[each.evaluation][arena.key]
            rows[each.begin : each.begin + len(each.rows)] = source[each.rows]
        return rows

    # --- by NumPy --------------------------------------------------------------------------------

    def _run_batches(self, first: int, last: int) -> None:
        for batch in self._plan.batches_between(first, last):
            try:
                self._run_batch(batch)
            except Exception as error:
                raise failed(batch.node_type, error) from error

    def _run_batch(self, batch: Batch) -> None:
        inputs, segments = [], None
        for argument, read in zip(batch.node_type.arguments, batch.reads):
            inputs.append(self._rows(read))
            if argument.kind is Kind.RAGGED:
                segments = segments_of(self._lengths(read, batch.rows))
        outs = [self.arenas[write.arena][write.begin : write.end] for write in batch.writes]
        batch.node_type.run(inputs, outs, segments)

    def _rows(self, read: Read) -> np.ndarray:
        arena = self.arenas[read.arena]
        if read.gather:
            return arena.take(self._plan.indices[read.begin : read.end], axis=0)
        return arena[read.begin : read.end]

    def _lengths(self, read: Read, rows: int) -> np.ndarray:
        """Return how many values of a ragged argument each row of a batch has."""
        count = 0 if read.parents is None else read.end - read.begin
        parents = self._plan.indices[read.parents or 0 :][:count]
        return np.bincount(parents, minlength=rows)

    # --- natively --------------------------------------------------------------------------------

    def _run_natively(self, first: int, last: int) -> None:
        plan, parts = self._plan, self._plan.parts(first, last)
        frame = _frame(tuple([group.node_type for group, _, _ in parts]))
        slots: dict[int, int] = {}
        for group, _, _ in parts:
            for place in group.reads + group.writes:
                slots.setdefault(place.arena, len(slots))
        table = Table(size_of(frame.start, frame.programs, parts), plan.indices)
        table.begin(frame.start, get_num_threads(), len(slots), first, last - first)
        for (group, begin, end), words in zip(parts, frame.programs):
            table.add(words)
            table.add_batches(group, begin, end, slots, plan.private)
        try:
            arenas = addresses([self.arenas[slot] for slot in slots])
            run_arrays(table.words, np.concatenate([frame.places, arenas], axis=1))
        except RuntimeError as error:
            raise failed(parts[0][0].node_type, error) from error

    def _check_words(self, group: Group) -> None:
        """Raise if a number of the user that is looked up is no row of the table."""
        for position, count in group.node_type.native.program.tables:
            read = group.reads[position]
            arena, ids = self._plan.arenas[read.arena], self.arenas[read.arena]
            end = 0
            for begin, index in arena.arrays[-1:]:
                end = begin + self._recording.arrays[index][0].rows
            if arena.scalars is not None:
                begin, first, last = arena.scalars
                end = max(end, begin + last - first)
            if not end:
                continue
            rows = rows_read(self._plan.indices, read)
            given = ids[rows[rows < end]]
            wrong = given[~((given >= 0) & (given < count))]
            if len(wrong):
                error = IndexError(f'{wrong[0]:g} is no row of a table of {count} rows')
                raise failed(group.node_type, error)


def failed(kind: CellType, error: Exception) -> BatchError:
    """Return the error that says which cell's batch failed."""
    return BatchError(f'a batch of calls of {kind} failed: {type(error).__name__}: {error}')


def _steps(plan: Plan) -> Iterator[tuple[int, int, bool]]:
    """Yield neighbouring batches that the native executor runs together, or NumPy runs; native ones
    of one floating-point type."""
    sizes = [is_native(group.node_type) * group.node_type.item_size for group in plan.groups]
    if len({*sizes}) == 1:  # most often
        yield 0, plan.size, bool(sizes[0])
        return
    of_batch = np.array(sizes)[plan.places[0]]
    bounds = [0, *(np.flatnonzero(np.diff(of_batch)) + 1).tolist(), plan.size]
    for first, last in zip(bounds, bounds[1:]):
        yield first, last, bool(of_batch[first])


class Frame(NamedTuple):
    """What native runs of batches of the same types share."""

    start: np.ndarray  # the first words of their tables
    programs: list[np.ndarray]  # of each type
    weights: list[np.ndarray]
    places: np.ndarray  # of the weights, see `addresses`


def _frame(types: tuple[CellType, ...]) -> Frame:
    known: dict[tuple[CellType, ...], Frame] = types[0].frames
    frame = known.get(types)
    if frame is None:
        frame = _new_frame(types)
        if len(known) >= _MOST_FRAMES:
            known.clear()
        known[types] = frame
    return frame


def _new_frame(types: Sequence[CellType]) -> Frame:
    weights: list[np.ndarray] = []
    places: dict[int, int] = {}  # of arrays, by id
    programs = []
    for kind in types:
        assert kind.native is not None  # else NumPy would run it
        program, arrays = kind.native
        words = [len(arrays)]
        for array, (_, begin) in zip(arrays, program.parameters):
            place = places.setdefault(id(array), len(weights))
            if place == len(weights):
                weights.append(array)
            words += [place, 0, begin]
        programs.append(np.concatenate([program.words, np.array(words, np.int64)]))
    start: list[Any] = [MAGIC, types[0].item_size, 0, 0, 0, len(weights), len(types), 0, 0, 0]
    for array in weights:
        start += [array.size, -1, 1]
    return Frame(np.array(start, np.int64), programs, weights, addresses(weights))
