"""Which calls run at once, and which in batches: measured at the first uses of their types.

An evaluation of few calls, or of large ones, may gain less from batches than planning it, packing
weights and copying arguments takes. So the first evaluations with some number of calls of a type go
both ways in turn, each timed to its end; what was faster stays. Nothing runs twice for that, and
values differ by rounding alone.
"""

import threading
import time
from typing import Dict, List, NamedTuple, Optional, Sequence

import mxnet as mx
import numpy as np

from ..subgraph.node_type import NodeType
from .executable import executable

_FEW = 32  # calls of an evaluation; of more than that only large ones may run at once
_LARGE = 1 << 16  # bytes of results
_HEAVY = 1 << 20  # bytes of results and parameters
_UNTIMED, _UNTIMED_HEAVY = 32, 2  # evaluations in batches before any is timed
_TIMED = 5  # evaluations of each way


class Trial:
    """What was measured for calls of one type, as many in an evaluation up to a factor of two.

    Attributes
    ----------
    batched, at_once : list of float
        Seconds of evaluations, divided by their calls: all in batches, and these calls at once.
    untimed : int
        Evaluations in batches that are still to come before any is timed.
    said : bool or None
        What a file says that was faster, if one was loaded (see `measured`).
    """

    __slots__ = ('batched', 'at_once', 'untimed', 'said')

    def __init__(self, untimed: int, said: Optional[bool] = None):
        self.batched: List[float] = []
        self.at_once: List[float] = []
        self.untimed = untimed
        self.said = said

    @property
    def decided(self) -> bool:
        """Whether enough was measured: no more will be."""
        return self.said is not None or min(len(self.batched), len(self.at_once)) >= _TIMED

    @property
    def faster_at_once(self) -> bool:
        """What was found, if it is decided."""
        if self.said is not None:
            return self.said
        return self.decided and min(self.at_once) < min(self.batched)

    def rule_out(self) -> None:
        """These calls read what is computed in batches, which comes later."""
        self.said = None
        self.batched[:], self.at_once[:] = [0.0] * _TIMED, [float('inf')] * _TIMED

    def __str__(self) -> str:
        if self.said is not None:
            return 'as was measured elsewhere, by load_measured()'
        if not self.decided:
            return 'being measured'
        at_once, batched = (1e3 * min(each) for each in (self.at_once, self.batched))
        return f'measured, {at_once:.3g} ms a call so, {batched:.3g} ms in batches'


class Choice(NamedTuple):
    """What an evaluation is to do.

    Attributes
    ----------
    at_once : dict of NodeType to Trial
        What runs at once where it can.
    timed : context manager
        To be entered while the evaluation runs.
    """

    at_once: Dict[NodeType, Trial]
    timed: Optional['Timed']


def candidates(types: Sequence[NodeType], calls: int) -> List[NodeType]:
    """Those of which calls may run at once in an evaluation of so many calls in all."""
    known = [(node_type, executable(node_type)) for node_type in types]
    return [
        node_type
        for node_type, of_type in known
        if (calls <= _FEW or of_type.result_bytes >= _LARGE) and of_type.may_run_at_once
    ]


def choose(counts: Dict[NodeType, int], types: Sequence[NodeType], calls: int) -> Choice:
    """What an evaluation is to do.

    Parameters
    ----------
    counts : dict
        How many calls there are of each of the candidates.
    types : sequence of NodeType
        Those of all calls.
    calls : int
        How many there are in all.
    """
    trials = {node_type: _trial(node_type, count) for node_type, count in counts.items()}
    open_ones = {node_type: trial for node_type, trial in trials.items() if not trial.decided}
    at_once = {node_type: trial for node_type, trial in trials.items() if trial.faster_at_once}
    for trial in open_ones.values():
        trial.untimed -= 1
    if all([trial.untimed >= 0 for trial in open_ones.values()]):  # or there are none
        return Choice(at_once, None)
    now = sum([len(trial.at_once) - len(trial.batched) for trial in open_ones.values()]) <= 0
    lists = [trial.at_once if now else trial.batched for trial in open_ones.values()]
    return Choice({**at_once, **open_ones} if now else at_once, Timed(lists, types, calls))


def rule_out(choice: Choice, ran: Sequence[NodeType]) -> None:
    """Of the types that were to run at once, those of which no call could."""
    for node_type, trial in choice.at_once.items():
        if node_type not in ran and not trial.decided:
            trial.rule_out()


def _trial(node_type: NodeType, count: int) -> Trial:
    known, size = executable(node_type), count.bit_length()
    if size not in known.trials:
        heavy = known.result_bytes + known.parameter_bytes >= _HEAVY
        said = what_is_said(name_of(node_type, size))
        known.trials[size] = Trial(_UNTIMED_HEAVY if heavy else _UNTIMED, said)
    return known.trials[size]


class _FromFile:
    known: Optional[Dict[str, bool]] = None


_from_file = _FromFile()


def settle(known: Optional[Dict[str, bool]]) -> None:
    """Measure nothing any more: what is faster at once is known, by name; None to measure again."""
    _from_file.known = known


def what_is_said(name: str) -> Optional[bool]:
    """What is known to be faster at once; None if it is to be measured."""
    return None if _from_file.known is None else _from_file.known.get(name, False)


def name_of(node_type: NodeType, size: int) -> str:
    """The same type's calls, so many up to a factor of two, in each process."""
    arguments = ', '.join(
        [f'{np.dtype(each.arena[1]).name}{each.arena[0]}' for each in node_type.arguments]
    )
    mode = '+'.join([name for name, on in node_type.mode._asdict().items() if on])
    return f'{node_type!r} ({arguments}) {mode} below {1 << size} calls'


class Timed:
    """Times an evaluation to its end: under autograd that is where the next one of its thread
    begins, so that backward and update are in it.

    On a CPU it goes by processor time, which other programs disturb least.

    Parameters
    ----------
    learning : list of (list of float)
        Where it goes.
    types : sequence of NodeType
        What runs.
    calls : int
    """

    def __init__(self, learning: List[List[float]], types: Sequence[NodeType], calls: int):
        self._learning, self._calls, self._begin = learning, calls, 0.0
        self._taped = any([node_type.mode.recording for node_type in types])
        on_host = all([node_type.ctx.device_type == 'cpu' for node_type in types])
        self._now = time.process_time if on_host else time.perf_counter

    def __enter__(self) -> None:
        mx.nd.waitall()
        _running.begun += 1
        self._begin = self._now()

    def __exit__(self, kind, error, trace) -> None:
        if error is None and self._taped:
            _running.timed = self
        elif error is None:
            self.stop()

    def stop(self) -> None:
        """The end."""
        mx.nd.waitall()
        seconds = (self._now() - self._begin) / self._calls
        for each in self._learning:
            each.append(seconds)


class _Running(threading.local):
    timed: Optional[Timed] = None
    begun = 0


_running = _Running()


def next_evaluation() -> None:
    """To be called before an evaluation: the one before it, of this thread, is over."""
    timed, _running.timed = _running.timed, None
    if timed is not None:
        timed.stop()


def evaluations_timed() -> int:
    """How many of this thread's were."""
    return _running.begun
