"""Schedulers decide which recorded calls run together, and in which order. Needs NumPy only.

``protocol`` defines schedulers. Schedulers that choose among ready types use ``frontier``
and ``rules``. ``bound`` computes a lower bound of the number of batches, and ``optimum`` proves how
few there can be. README.md has the rest.
"""

from typing import Callable, Union

from ..compiled import load
from ..short_repr import brief

load(f'{__name__}.frontier')
load(f'{__name__}.rules')
load(f'{__name__}.sufficient')

from .beam import BeamScheduler
from .bound import lower_bound
from .cache import CachedScheduler
from .encoding import (
    BaseEncoding,
    MaxEncoding,
    PathEncoding,
    SortEncoding,
    StateEncoding,
    get_encoding,
)
from .fixed_rules import AgendaScheduler, DepthScheduler, UnbatchedScheduler
from .frontier import Frontier, Run
from .fsm import FSMScheduler
from .learning import learn_policy
from .optimum import fewest_batches
from .policy import Policy, QLearningConfig
from .protocol import Schedule, Scheduler, of_name
from .sufficient import SufficientConditionScheduler

__all__ = [
    'AgendaScheduler',
    'BaseEncoding',
    'BeamScheduler',
    'CachedScheduler',
    'DepthScheduler',
    'FSMScheduler',
    'Frontier',
    'MaxEncoding',
    'PathEncoding',
    'Policy',
    'QLearningConfig',
    'Run',
    'Schedule',
    'Scheduler',
    'SortEncoding',
    'StateEncoding',
    'SufficientConditionScheduler',
    'UnbatchedScheduler',
    'fewest_batches',
    'get_encoding',
    'get_scheduler',
    'learn_policy',
    'lower_bound',
]


# One for all who ask by name, so that what it learned lasts from scope to scope.
_FSM = FSMScheduler()
_SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
    'agenda': AgendaScheduler,
    'agenda-remaining': lambda: AgendaScheduler(remaining=True),
    'beam': BeamScheduler,
    'depth': DepthScheduler,
    'fsm': lambda: _FSM,
    'sufficient': SufficientConditionScheduler,
    'unbatched': UnbatchedScheduler,
}


def get_scheduler(scheduler: Union[str, Scheduler]) -> Scheduler:
    """Return the scheduler of a name; an object that is a scheduler is returned as it is.

    Parameters
    ----------
    scheduler : str or Scheduler
        ``"agenda"``, ``"agenda-remaining"``, ``"beam"``, ``"depth"``, ``"fsm"``, ``"sufficient"``
        or ``"unbatched"``, or any object with a ``name`` and a method ``schedule(graph)``.
        ``"fsm"`` is one object for the whole process, and keeps its policies.

    Returns
    -------
    Scheduler

    Raises
    ------
    ValueError
        If no scheduler has this name.
    TypeError
        If it is neither a name nor such an object.
    """
    if isinstance(scheduler, str):
        return of_name('scheduler', scheduler, _SCHEDULERS)
    if (
        isinstance(scheduler, type)
        or not callable(getattr(scheduler, 'schedule', None))
        or not isinstance(getattr(scheduler, 'name', None), str)
    ):
        raise TypeError(
            f'{brief(scheduler)} is not a scheduler: it must be a name or an object with a '
            'string `name` and a method schedule(graph)'
        )
    return scheduler
