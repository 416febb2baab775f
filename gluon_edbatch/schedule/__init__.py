"""Schedulers: which recorded calls run together, and in which order. Needs NumPy only.

``protocol`` says what a scheduler is, ``frontier`` is what step-by-step schedulers are built on,
``bound`` how few batches are possible at all; the other modules are one scheduler each.
"""
from typing import Callable, Dict, Union

from .agenda import AgendaScheduler
from .bound import lower_bound
from .depth import DepthScheduler
from .frontier import Frontier
from .protocol import Schedule, Scheduler
from .unbatched import UnbatchedScheduler

__all__ = [
    "AgendaScheduler",
    "DepthScheduler",
    "Frontier",
    "Schedule",
    "Scheduler",
    "UnbatchedScheduler",
    "get_scheduler",
    "lower_bound",
]

_SCHEDULERS: Dict[str, Callable[[], Scheduler]] = {
    "agenda": AgendaScheduler,
    "agenda-remaining": lambda: AgendaScheduler(remaining=True),
    "depth": DepthScheduler,
    "unbatched": UnbatchedScheduler,
}


def get_scheduler(scheduler: Union[str, Scheduler]) -> Scheduler:
    """The scheduler of a name; an object that is a scheduler is returned as it is.

    Parameters
    ----------
    scheduler : str or Scheduler
        ``"agenda"``, ``"agenda-remaining"``, ``"depth"`` or ``"unbatched"``, or any object with a
        ``name`` and a method ``schedule(graph)``.
    """
    if isinstance(scheduler, str):
        if scheduler not in _SCHEDULERS:
            names = ", ".join(repr(name) for name in sorted(_SCHEDULERS))
            raise ValueError(f"there is no scheduler {scheduler!r}; there are {names}")
        return _SCHEDULERS[scheduler]()
    if isinstance(scheduler, type) or not callable(getattr(scheduler, "schedule", None)):
        raise TypeError(
            f"{scheduler!r} is not a scheduler: it must be a name or an object with a method "
            "schedule(graph)"
        )
    return scheduler
