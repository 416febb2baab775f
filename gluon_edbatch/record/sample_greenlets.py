"""Run samples in greenlets, which wait where they read a value of the present scope.

Cython compiles this module where a compiler is present, as `calls`.
"""

import sys
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any, Callable, Optional

import numpy as np
from greenlet import GreenletExit, getcurrent

from . import interpreter
from .idle_greenlets import OVER, new_worker, take_result
from .lazy import RAGGED, VALUES
from .scopes import current_recording
from .stores import Arena

_LARGE = 1 << 20  # elements of an arena
_MOST_COPIES = 16


class ComputedRows:
    """Read computed values for samples: several reads of a round cost one copy of their arena."""

    def __init__(self) -> None:
        self._blocks: dict[Any, Any] = {}
        self._store: Any = None  # of the last read, and
        self._evaluation = -1
        self._rows: Any = None  # one for each value, and
        self._given = bytearray()  # which of them somebody has got, who may have written to it
        self.has_read = False

    def read(self, value: Any) -> Optional[np.ndarray]:
        """Return what a value holds, in an array of its own; None if it has to be read alone."""
        own = value
        store, place = own._store, own._id
        if store.packed or value.__class__ not in VALUES or hasattr(value, '_array'):
            return None
        self.has_read = True
        locations = store.locations
        evaluation = locations.evaluation.item(place)
        if store is not self._store or evaluation != self._evaluation:
            key = store, evaluation
            if key not in self._blocks:
                if len(self._blocks) >= _MOST_COPIES:
                    self._blocks.clear()
                self._blocks[key] = _rows_of(store, evaluation)
            self._store, self._evaluation = key
            self._rows, self._given = self._blocks[key]
        if not self._given:
            return None
        row = locations.row.item(place)
        if not self._given[row]:
            self._given[row] = 1
            return self._rows[row]
        return self._read_again(row)

    def _read_again(self, row: int) -> np.ndarray:
        store, evaluation = self._store, self._evaluation
        key = store, evaluation, 'again'  # a copy that nobody gets
        if key not in self._blocks:
            self._blocks[key] = _rows_of(store, evaluation)
        return self._blocks[key][0][row].copy()


def _rows_of(store: Any, evaluation: int) -> tuple[Any, bytearray]:
    arena = store.arenas.get(evaluation)
    if arena.__class__ is not Arena or arena.raw.size > _LARGE or store.spec.rows != 1:
        return None, bytearray()
    rows = arena.raw.asnumpy()
    return rows.reshape((len(rows), *store.shape)), bytearray(len(rows))


class SuspendedSample:
    """Run a function on one sample, and suspend it where it reads a value of the present scope.

    Attributes
    ----------
    wanted : NDArray
        What the sample waits for.
    result : object
        What the function has returned.
    """

    def __init__(self, fn: Callable[[Any], Any], sample: Any, suspension: Any):
        self._fn, self._sample, self._suspension = fn, sample, suspension
        self._serial, self._computed = suspension.serial, suspension.computed
        self._recording = current_recording()
        self._mode = self._recording.mode
        self._begin_of = self._end_of = 0  # of the values that it recorded since it waited last
        self._worker: Any = None
        self._resume: Any = None
        self._leave: Any = None
        self._closing = False
        self.wanted: Any = None
        self.result: Any = None

    def waits(self, answer: Any) -> bool:
        """Run the sample until it reads a value, or ends; return whether it waits."""
        self._begin_of = self._recording.next_value
        self.wanted = self._start() if self._resume is None else self._resume(answer)
        if self.wanted is OVER:
            self._finish()
            return False
        self._end_of = self._recording.next_value
        return True

    def _start(self) -> Any:
        worker = self._worker = new_worker()
        worker.parent, worker.gr_context = getcurrent(), copy_context()
        worker.fn, worker.sample, worker.contents = self._fn, self._sample, self.contents
        self._resume, self._leave = worker.switch, worker.parent.switch
        return worker.switch(None) if worker else worker.switch()

    def close(self) -> None:
        """End the sample where it waits. Reads of what it does meanwhile evaluate in place."""
        self._closing = True
        if self._worker is not None:
            self._worker.throw(GreenletExit)
            self._finish()

    def _finish(self) -> None:
        """Give the worker back, and keep the sample's result, or raise its error."""
        worker, self._worker, self._resume, self._leave = self._worker, None, None, None
        self.result, error = take_result(worker)
        if error is not None and not isinstance(error, GreenletExit):
            raise error

    def contents(self, value: Any) -> Optional[np.ndarray]:
        """Return what a value holds, for which the sample is suspended if it is not computed;
        return None if it must be read in place."""
        recording, own = self._recording, value
        store = own._store
        if store.recording is not recording:
            return None
        place, known = own._id, recording.locations.evaluation
        if value.__class__ in RAGGED:
            several = value
            place = several._ids[0] if several._ids else 0
        is_known = place < 0 or (place < len(known) and known.item(place) >= 0)
        if is_known and value.is_known():
            return self._computed.read(value)
        if self._closing or current_recording() is not recording or recording.mode != self._mode:
            return None
        if not interpreter.frames_pass(self._serial):
            if not self._suspension.allows(sys._getframe()):
                return None
            interpreter.let_frames_pass(self._serial)
        return self._leave(value)


def advance_plain(sample: Any, own: SuspendedSample, answer: Any) -> bool:
    """Run plain code of an `AdvancingSample` until it waits; return False if it has finished."""
    try:
        waits = own.waits(answer)
    except Exception as error:
        raise sample.failed(error) from error
    sample.wanted = own.wanted
    return waits or sample.follow(own.result)


def advance_all(
    samples: Sequence[Any], answers: Sequence[Any], waiting: list[Any], suspended: list[Any]
) -> None:
    """Advance samples, each an `AdvancingSample`. Append those that wait to `waiting`, and to
    `suspended` what they are if they are plain code, else None."""
    for sample, answer in zip(samples, answers):
        own = sample.suspended
        if sample.advance(answer) if own is None else advance_plain(sample, own, answer):
            waiting.append(sample)
            suspended.append(sample.suspended)


def recorded_by(samples: Sequence[SuspendedSample]) -> tuple[list[int], list[Any]]:
    """Return ranges of the values that suspended samples recorded since they waited last, as first
    and last numbers in turn, and what they wait for besides."""
    ranges: list[int] = []
    others = []
    end = -1
    for sample in samples:
        wanted = sample.wanted
        begin = sample._begin_of
        if begin == end:
            ranges.pop()
        else:
            ranges.append(begin)
        end = sample._end_of
        ranges.append(end)
        if wanted.__class__ in RAGGED:
            several = wanted
            for place in several._ids:
                if not begin <= place < end:
                    others.append(wanted)
                    break
        elif wanted.__class__ in VALUES:
            value = wanted
            if not begin <= value._id < end:
                others.append(wanted)
        else:
            others.append(wanted)
    return ranges, others
