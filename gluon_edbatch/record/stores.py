"""Store the results of recorded calls as rows of arenas, which evaluations fill."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import StaleValueError
from gluon_edbatch_core.recorded_columns import Locations

from ..mx.arrays import alias, concatenated, copy_of_rows, detached, keep_on_tape, rows_of
from ..mx.host import upload
from ..mx.modes import modes, set_recording
from ..mx.pool import Memory
from ..subgraph.sentences import inverse, lengths_first
from ..subgraph.spec import Spec
from .sites import Site, current_site

SEVERAL = -1  # see `ShownAs`
_MOST_AXES = 5  # of arrays whose views MXNet can differentiate


class Arena:
    """All rows of one kind that one evaluation computed."""

    __slots__ = ('raw', 'is_over', 'memory', '_taped', 'origin')

    def __init__(
        self,
        raw: NDArray,
        origin: Optional[tuple[Any, int]],
        memory: Optional[Memory],
        is_over: bool = False,
    ):
        self.raw = raw  # the rows, unknown to autograd
        self.is_over = is_over  # whether the rows are known to be computed
        self.memory = memory  # what the rows are in, if it is handed on when this goes
        self._taped: Optional[NDArray] = None
        # The evaluation's backward pass, and which of its arenas this is; None without a gradient.
        self.origin = origin

    @property
    def taped(self) -> Optional[NDArray]:
        """The arena as an output of the evaluation on autograd's tape; None if nothing has a
        gradient. It is put on the tape at its first use, as each arena there costs a gradient of
        its whole size."""
        if self._taped is None and self.origin is not None:
            self._show()
            backward, index = self.origin
            self._taped = backward.connected(index, self.raw)
        return self._taped

    def take(self, rows: np.ndarray) -> NDArray:
        """Return a copy of some rows, unknown to autograd."""
        return mx.nd.take(self.handed(), upload(rows.astype(np.int32), self.raw.ctx))

    def handed(self) -> NDArray:
        """Return the rows for an engine operator, and mark their memory as in use."""
        if self.memory is not None:
            self.memory.handed.append(None)
        return self.raw

    def _show(self) -> None:
        """Note that there are views of the arena's memory from now on."""
        if self.memory is not None:
            self.memory.shown = True

    def read(self, begin: int, end: int, taped: bool) -> NDArray:
        """Return a view of some rows, connected to autograd if they were recorded so."""
        self._show()
        source = self.taped if taped else None
        if source is None:
            return rows_of(self.raw, begin, end)
        previous = set_recording(True)  # at every value that is read: `modes` would take longer
        try:
            if source.ndim > _MOST_AXES:
                return copy_of_rows(source, begin, end)
            return rows_of(source, begin, end)
        finally:
            set_recording(previous)


class EagerArena:
    """Results of one kind that are on the user's own tape, each in a separate array."""

    __slots__ = ('rows',)

    def __init__(self):
        self.rows: dict[int, NDArray] = {}  # by first row, a number that has no memory behind it

    def read(self, begin: int, _end: int, taped: bool) -> NDArray:
        """Return the value that begins at a row, connected to autograd if it was recorded so."""
        return alias(keep_on_tape(self.rows[begin])) if taped else detached(self.rows[begin])

    def values(self, rows: np.ndarray) -> Iterator[NDArray]:
        """Yield the values that have these rows, one after the other."""
        place = 0
        while place < len(rows):
            value = self.rows[int(rows[place])]
            place += len(value)
            yield value

    def take(self, rows: np.ndarray, taped: bool) -> NDArray:
        """Return a copy of some rows, connected to autograd as `taped` asks."""
        values = list(self.values(rows))
        if taped:
            values = list(map(keep_on_tape, values))
        with modes(taped):
            return concatenated(values)


class ShownAs(NamedTuple):
    """How users see values whose shape is not that of their spec."""

    shape: tuple[int, ...]
    axis: int = 0  # of a packed sentence: where its positions are, or `SEVERAL`; 0 for other values
    axes: tuple[int, ...] = ()  # those with lengths, if they are several


class StoreKind:
    """Stands for the stores of one kind of all recordings in the key of a call."""

    def __init__(self, any_length: Any):
        # Stands for sentences of any length there: values (1, L, ...) or (L, 1, ...) of this kind,
        # or sentences that are packed along an axis. None for other values.
        self.any_length = any_length


_kinds: dict[tuple, StoreKind] = {}
_sentences: dict[tuple, object] = {}
_MOST_KINDS = 1 << 16


def _kind_of(shape: tuple[int, ...], axis: int, axes: tuple[int, ...], spec: Spec) -> StoreKind:
    """Return what stands for stores of values of this shape, packed along an axis if it is not 0,
    or along several `axes`. Equal kinds are one object."""
    key = shape, axis, axes, spec
    known = _kinds.get(key)
    if known is None:
        any_length = None
        if axis > 0 or (axis == 0 and len(shape) > 1 and 1 in shape[:2]):
            axis = axis or 1 - shape[:2].index(1)
            alike = shape[:axis] + shape[axis + 1 :], axis, spec.dtype, spec.ctx
            any_length = _sentences.setdefault(alike, object())
        if len(_kinds) >= _MOST_KINDS:
            _kinds.clear()
        known = _kinds.setdefault(key, StoreKind(any_length))
    return known


class Store:
    """The values with one spec in one recording."""

    def __init__(self, recording, spec: Spec, shown: Optional[ShownAs], kind: Any):
        # None once nothing is left to run: values then need the results only, and keep neither the
        # recording nor the arenas of other kinds alive.
        self.recording = recording
        self.spec = spec
        self.shown = shown  # None if users see the shape of the spec
        # As users see it: () for some values (1,), (1, L, ...) or (1, ..., L, ...) for packed ones.
        self.shape = spec.shape if shown is None else shown.shape
        self.kind = kind  # equal for such stores of other recordings: spec, and axes for users
        # Where the positions of packed sentences are, each of which is a row; 0 for other values.
        # `SEVERAL` of values with a row for each pair of positions.
        self.packed = 0 if shown is None else shown.axis
        # Axes with lengths, as users see them; none of values that are not packed.
        self.axes = () if shown is None else shown.axes or (shown.axis,)[: shown.axis]
        self.token = _kind_of(self.shape, self.packed, self.axes, spec)
        self.ragged = object()  # stands for "ragged values of this spec" in the key of a call
        self.arenas: dict[int, Union[Arena, EagerArena]] = {}  # by evaluation
        self.locations: Locations = recording.locations
        # What somebody may ask for when the recording is gone, by value: a number, what a constant
        # or a row (in bytes) holds, or a function that makes the NDArray.
        self.given: dict[int, Any] = {}

    def arena(self, evaluation: int) -> Union[Arena, EagerArena]:
        """Return the arena with an evaluation's values; raise if it was forgotten."""
        found = self.arenas.get(evaluation)
        if found is None:
            raise forgotten(current_site())
        return found

    def read(self, value: int) -> NDArray:
        """Return the computed value; if it is not there yet, run all that is recorded."""
        if value < 0:
            given = self.given.get(value)
            if isinstance(given, float):
                return mx.nd.array([given], self.spec.ctx)
            if isinstance(given, bytes):
                given = np.frombuffer(given, self.spec.dtype).reshape(self.spec.shape)
            if isinstance(given, np.ndarray):
                return upload(given, self.spec.ctx)
            return (given or self.recording.original(value))()
        locations = self.locations
        if not locations.known(value):
            self.recording.flush(asked=value)
        row = locations.row.item(value)
        array = self.arena(locations.evaluation.item(value)).read(
            row, row + self.spec.rows, locations.taped.item(value)
        )
        recording = self.recording
        if self.packed:
            order = lengths_first(len(self.shape), self.axes)
            with modes(recording=True):
                array = array.reshape([self.shape[axis] for axis in order])
                if self.packed != 1:
                    array = array.transpose(inverse(order))
        if recording is None or not recording.will_read(value):
            return array
        return copied(array)  # the user may write to it

    def gathered(self, values: Sequence[int]) -> Optional[NDArray]:
        """Return a copy of the rows of computed values, concatenated by one gather. None unless all
        are in one arena, and all or none on a tape."""
        found = self._among(values)
        if found is None:
            return None
        arena, rows, taped = found
        connected = taped and arena.taped is not None
        source = arena.taped if connected else arena.handed()
        with modes(recording=connected):
            if _are_neighbours(rows):
                return copy_of_rows(source, rows.item(0), rows.item(0) + len(rows))
            return mx.nd.take(source, mx.nd.array(rows, ctx=self.spec.ctx, dtype='int32'))

    def neighbours(self, values: Sequence[int]) -> Optional[NDArray]:
        """Return a view of the rows of computed values; None unless the rows are consecutive."""
        found = self._among(values)
        if found is None or not _are_neighbours(found[1]):
            return None
        arena, rows, _ = found
        return arena.read(int(rows[0]), int(rows[0]) + len(rows), False)

    def _among(self, values: Sequence[int]) -> Optional[tuple[Arena, np.ndarray, bool]]:
        """Return the arena that holds all of some values, their rows in it, and whether autograd
        records them; None if there is no such arena."""
        ids, known = np.array(values), self.locations
        if self.spec.eager or ids.min() < 0 or ids.max() >= len(known.evaluation):
            return None
        evaluation, *others = {*known.evaluation[ids].tolist()}
        taped, *unlike = {*known.taped[ids].tolist()}
        if evaluation < 0 or others or unlike:
            return None
        arena = self.arena(evaluation)
        if isinstance(arena, EagerArena):
            return None
        rows, counts = known.row[ids], known.rows[ids]
        if (counts != 1).any():
            rows = np.repeat(rows - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return arena, rows, taped


def _are_neighbours(rows: np.ndarray) -> bool:
    return bool((rows[1:] - rows[: len(rows) - 1] == 1).all())


def forgotten(site: Site) -> StaleValueError:
    """Return the error for reading an earlier sample's value in a scope that forgets results."""
    return StaleValueError(
        f'{site} reads a value that was computed for an earlier sample, and is not kept any more: '
        f'keep what it holds (value.asnumpy()), or compute it before the first sample'
    )


def copied(array: NDArray) -> NDArray:
    """Return a copy of an array, which is on a tape if the array is."""
    with modes(recording=True):
        return array.copy()
