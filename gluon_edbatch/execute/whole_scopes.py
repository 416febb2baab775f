"""Which scopes run their calls at once, as eager Gluon would, and record nothing.

Recording, a graph, a plan and arenas cost some tenths of a millisecond a scope, however little is
in it. Whether batches are worth that is measured in units of what users feel: a scope from its
begin to where the next one begins, with evaluation, backward and update. Scopes of one kind (they
begin on one line of the user's code, with a call of one block, in one mode) and about as many calls
are timed both ways in turn; what was faster stays. How many calls there will be is not known when
a scope begins: as many as lately, or else it records from some call on, and so do the next ones.
"""

import os
import threading
import time
from collections import deque
from statistics import median
from typing import Deque, Dict, Iterator, List, Optional, Tuple
from weakref import WeakKeyDictionary, ref

import mxnet as mx
from mxnet import gluon

from ..record.recording import Recording
from ..record.remembered import Made
from ..record.sites import site_at
from ..subgraph.node_type import Mode
from ..subgraph.options import CompileOptions
from ..subgraph.trace import describe
from . import choice
from .executable import executable

_FEW = 255  # calls of blocks; of scopes with more only those with nothing but large ones are timed
_LATELY = 4  # scopes, of which the one with most calls is what is expected
_UNTIMED, _UNTIMED_HEAVY = 32, 10  # scopes of a kind that are recorded before any is timed
_CLEAR = 1.5  # so many times as long is slower, whatever else runs on the machine
_CLEAR_AT_FIRST = 20.0  # in the first scope at once, in which blocks may be hybridized
_IN_TURN, _MOST_IN_TURN = 2, 40  # scopes of one way that are timed, and in all
_MOST_PLACES = 1024


class ScopeTrial(choice.Trial):
    """What was measured of scopes of one kind and up to a factor of two as many calls: seconds a
    scope, recorded (``batched``) and at once."""

    __slots__ = ('_found', '_now', '_place', '_enough')

    def __init__(self, untimed: int, said: Optional[bool] = None):
        super().__init__(untimed, said)
        self._found = said
        self._now, self._place, self._enough = False, 0, _IN_TURN

    def turn(self) -> Tuple[bool, Optional[List[float]]]:
        """Whether the next scope runs at once, and where its time goes: some of each way in turn,
        of which the first finds in memory what the other way left there."""
        times = self.at_once if self._now else self.batched
        if len(times) >= self._enough or self._place >= _MOST_IN_TURN:
            self._now, self._place = not self._now, 0
            times = self.at_once if self._now else self.batched
            self._enough = len(times) + _IN_TURN
        self._place += 1
        return self._now, None if self._place == 1 else times

    def rule_out(self) -> None:
        """See the base class."""
        super().rule_out()
        self._found = False

    @property
    def decided(self) -> bool:
        """See the base class; where it is clear, two of each are enough."""
        if self._found is None:
            pairs = min(len(self.batched), len(self.at_once))
            if pairs >= choice._TIMED or (pairs >= 2 and self._is_clear()):
                self._found = median(self.at_once) < median(self.batched)
        return self._found is not None

    def _is_clear(self) -> bool:
        ways = sorted((self.batched, self.at_once), key=min)
        return max(ways[0]) * _CLEAR < min(ways[1])

    @property
    def faster_at_once(self) -> bool:
        """See the base class; the middle one, as scopes of a kind do not all have the same work."""
        return self.decided and self._found is True

    def __str__(self) -> str:
        if self.said is not None or not self.decided:
            return super().__str__()
        at_once, batched = (1e3 * median(each) for each in (self.at_once, self.batched))
        return f'measured, {at_once:.3g} ms a scope so, {batched:.3g} ms recorded'


class ScopeKind:
    """Scopes of one kind.

    Parameters
    ----------
    where : tuple of (int, int)
        In the user's code, see `calls.place`.
    block : gluon.Block
    mode : Mode
    options : CompileOptions

    Attributes
    ----------
    records : str
        Why none of them may run at once; empty if they may.
    """

    def __init__(
        self, where: Tuple[int, int], block: gluon.Block, mode: Mode, options: CompileOptions
    ):
        self._where, self._block, self._mode, self.options = where, ref(block), mode, options
        self.records = ''
        self._counts: Deque[int] = deque(maxlen=_LATELY)
        self._trials: Dict[int, ScopeTrial] = {}

    def is_of(self, block: gluon.Block, mode: Mode) -> bool:
        """Whether scopes that begin with a call of this block are of this kind."""
        return self._block() is block and self._mode == mode

    @property
    def expected(self) -> int:
        """Calls of the next scope at most, to a factor of two."""
        return 2 << max(self._counts, default=0).bit_length()

    def trial(self) -> Optional[ScopeTrial]:
        """That of the next scope; None if it is to be recorded."""
        return None if self.records else self._trials.get(self.expected)

    def note(self, calls: int) -> None:
        """A scope had so many calls of blocks."""
        self._counts.append(calls)

    def note_recorded(self, recording: Recording) -> None:
        """The same of one that was recorded; it is told of what has to be the same at once."""
        self.note(recording.block_calls)
        if self.records or self.expected in self._trials:
            return
        types = [form.node_type for form in recording.forms]
        known = list(map(executable, types))
        if any([node_type.mode.training and node_type.random for node_type in types]):
            self.records = 'it draws noise, which is not to depend on what was measured'
        elif recording.has_control_flow:
            self.records = 'a block has control flow, whose gradients hybridized Gluon gets wrong'
        elif any([node_type.ctx.device_type != 'cpu' for node_type in types]):
            self.records = 'it is not on a CPU, where processor time tells how long it takes'
        elif recording.block_calls <= _FEW or all(
            [each.result_bytes >= choice._LARGE for each in known]
        ):
            heavy = any(
                [each.result_bytes + each.parameter_bytes >= choice._HEAVY for each in known]
            )
            self._trials[self.expected] = ScopeTrial(
                _UNTIMED_HEAVY if heavy else _UNTIMED,
                choice.what_is_said(self._name(self.expected)),
            )

    def trials(self) -> Iterator[Tuple[str, ScopeTrial]]:
        """Those that began, by names that are the same in each process."""
        for calls, trial in self._trials.items():
            yield self._name(calls), trial

    def _name(self, calls: int) -> str:
        block, site = self._block(), site_at(*self._where)
        mode = '+'.join([name for name, on in self._mode._asdict().items() if on])
        called = '' if block is None else describe(block)
        place = f'{os.path.basename(site.filename)}:{site.line}'
        return f'scope at {place} of {called} {mode} up to {calls} calls'


class ScopePlace:
    """The scopes that begin on one line of the user's code.

    Attributes
    ----------
    latest : ScopeKind or None
        That of the scope before.
    """

    def __init__(self, where: Tuple[int, int]) -> None:
        self.latest: Optional[ScopeKind] = None
        self._where = where
        self._kinds: WeakKeyDictionary[
            gluon.Block, Dict[Tuple[Mode, CompileOptions], ScopeKind]
        ] = WeakKeyDictionary()

    def kind(self, block: gluon.Block, mode: Mode, options: CompileOptions) -> ScopeKind:
        """That of scopes whose first call is of this block, in this mode."""
        of_block = self._kinds.get(block)
        if of_block is None:
            of_block = self._kinds[block] = {}
        found = of_block.get((mode, options))
        if found is None:
            found = of_block[mode, options] = ScopeKind(self._where, block, mode, options)
        return found

    def trials(self) -> Iterator[Tuple[str, ScopeTrial]]:
        """See `ScopeKind`."""
        for of_block in list(self._kinds.values()):
            for kind in of_block.values():
                yield from kind.trials()


def _same(options: CompileOptions, others: CompileOptions) -> bool:
    return options is others or options == others  # to compare them takes longer


_places: Dict[Tuple[int, int], ScopePlace] = {}


class Begun:
    """What was decided of a scope when it began.

    Parameters
    ----------
    where : tuple of (int, int)
        In the user's code, see `calls.place`.
    options : CompileOptions

    Attributes
    ----------
    kind : ScopeKind or None
        What it is expected to be of.
    trial : ScopeTrial or None
        What is known of that.
    at_once : bool
        Whether its calls are to run at once, if it is.
    """

    __slots__ = ('_place', '_options', 'kind', 'trial', 'at_once', '_timed', '_wanted')

    def __init__(self, where: Tuple[int, int], options: CompileOptions):
        _next_scope()
        place = _places.get(where)
        if place is None:
            if len(_places) >= _MOST_PLACES:
                _places.clear()
            place = _places[where] = ScopePlace(where)
        self._place, self._options, self._wanted = place, options, False
        self.kind, self.trial, self.at_once = place.latest, None, False
        self._timed: Optional[_ScopeTime] = None
        if self.kind is None or not _same(self.kind.options, options):
            return
        self.trial = trial = self.kind.trial()
        if trial is None or trial.decided:
            self.at_once = trial is not None and trial.faster_at_once
        elif trial.untimed > 0:
            trial.untimed -= 1
        else:
            self.at_once, times = trial.turn()
            self._timed = _ScopeTime(times)

    @property
    def is_timed(self) -> bool:
        """Whether it is."""
        return self._timed is not None

    def takes_too_long(self) -> bool:
        """Whether there is no need to time it to its end."""
        if self._timed is None or self.trial is None:
            return False
        times = _CLEAR if self._timed.counts else _CLEAR_AT_FIRST
        return self._timed.passed() > times * max(self.trial.batched, default=float('inf'))

    def give_up(self) -> None:
        """It was found to be slower at once."""
        if self.trial is not None:
            self.trial.rule_out()
        self._timed = None

    def refuse(self) -> None:
        """Eager Gluon does not run what can be recorded."""
        if self.kind is not None:
            self.kind.records = 'eager Gluon does not take the arguments of its calls'
        self._timed = None

    def wants_recording(self) -> None:
        """Somebody looks at what such scopes record."""
        self._wanted = True
        for kind in (self.kind, self._place.latest):
            if kind is not None:
                kind.records = 'somebody looks at what is recorded'

    def end_at_once(self, calls: int) -> None:
        """The scope ended; all of its calls ran at once."""
        if self.kind is not None:
            self.kind.note(calls)
            self._time_to_its_end()

    def end_recorded(self, recording: Recording, calls: int = 0) -> None:
        """It ended, and was recorded, but for so many of its calls."""
        if recording.first is None:
            return
        block, mode = recording.first
        kind = self._place.kind(block, mode, self._options)
        if self._wanted:
            kind.records = 'somebody looks at what is recorded'
        self._place.latest = kind
        if calls:
            kind.note(calls + recording.block_calls)
            return
        kind.note_recorded(recording)
        if kind is self.kind:
            self._time_to_its_end()

    def _time_to_its_end(self) -> None:
        _threads.timed = self._timed


class _ScopeTime:
    """Processor time from here to where the thread's next scope begins."""

    def __init__(self, times: Optional[List[float]]):
        self._times = times
        mx.nd.waitall()
        self._disturbed = _disturbances()
        self._begin = time.process_time()

    @property
    def counts(self) -> bool:
        """Whether it is not the first of its way."""
        return self._times is not None

    def passed(self) -> float:
        """Seconds so far."""
        return time.process_time() - self._begin

    def stop(self) -> None:
        """The next one begins."""
        mx.nd.waitall()
        if self._times is not None and _disturbances() == self._disturbed:
            self._times.append(self.passed())


def _disturbances() -> int:
    """Counts what takes time in some scopes only: evaluations that are timed themselves, and types
    that are made."""
    return choice.evaluations_timed() + Made.count


class _Threads(threading.local):
    timed: Optional[_ScopeTime] = None


_threads = _Threads()


def all_trials() -> Iterator[Tuple[str, ScopeTrial]]:
    """Those of all scopes."""
    for place in _places.values():
        yield from place.trials()


def forget() -> None:
    """All that was measured."""
    _places.clear()


def _next_scope() -> None:
    """A scope begins: the one before it, of this thread, is over."""
    choice.next_evaluation()
    timed, _threads.timed = _threads.timed, None
    if timed is not None:
        timed.stop()
