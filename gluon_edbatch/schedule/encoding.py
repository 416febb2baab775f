"""State encodings: what a policy sees of a graph on its way, as a tuple of small integers.

``E_base``, ``E_sort`` and ``E_max`` are those of ED-Batch (Chen et al., 2023). Where chains of
different types compete, only ``E_path`` tells which type holds up the longest way to the end.
"""

import warnings
from typing import Callable, Optional, Protocol, Union

from ..brief import brief
from .protocol import of_name
from .rules import LongestWay
from .run import Run

State = tuple[int, ...]


class StateEncoding(Protocol):
    """What a policy sees; write another for chains that these do not tell apart.

    Types in a state are the policy's numbers, which are those of the graph that is run. Anything
    else in a state must not depend on them, on the process, or on the size of the minibatch.

    Attributes
    ----------
    name : str
        Tells it from others in the files of policies (see `Policy.load`).
    """

    name: str

    def follow(self, run: Run) -> Callable[[], State]:
        """A function that gives the state of a run, whenever there is a type to choose.

        Parameters
        ----------
        run : Run
            At its beginning; the function is asked as it goes on.

        Returns
        -------
        callable
            Of no arguments; gives a state, a tuple of int. (Of any hashable states a policy can be
            learned, but one that is saved is read again only if they are such tuples.)
        """
        ...

    def coarser(self, state: State) -> Optional[State]:
        """A state to look up if this one is unknown; None if there is none.

        Parameters
        ----------
        state : hashable
            One that `follow` gave.

        Returns
        -------
        hashable or None
        """
        ...


class _Encoding:
    """An encoding without coarser states."""

    name: str

    def __repr__(self) -> str:
        return f'{type(self).__name__}()'

    def coarser(self, state: State) -> Optional[State]:
        """There is none."""
        return None


class BaseEncoding(_Encoding):
    """The ready types, ascending: E_base of ED-Batch (see `get_encoding`)."""

    name = 'E_base'

    def follow(self, run: Run) -> Callable[[], State]:
        """See `StateEncoding`."""
        return run.frontier.kinds


class SortEncoding(_Encoding):
    """The ready types, those with more ready nodes first, then those with lower numbers.

    E_sort of ED-Batch (see `get_encoding`).
    """

    name = 'E_sort'

    def follow(self, run: Run) -> Callable[[], State]:
        """See `StateEncoding`."""
        return run.frontier.by_size


class MaxEncoding(_Encoding):
    """The ready types, ascending, and the one with most ready nodes once more.

    E_max of ED-Batch (see `get_encoding`).
    """

    name = 'E_max'

    def follow(self, run: Run) -> Callable[[], State]:
        """See `StateEncoding`."""
        frontier = run.frontier
        return lambda: frontier.kinds() + frontier.by_size()[:1]


class PathEncoding(_Encoding):
    """The ready types by the longest ways to the end that their ready nodes begin.

    The first is the type that presses most: a way weighs e**2 times as much as one that is a node
    shorter. Each type is followed by how many nodes its longest way is shorter than that of the
    type before: -1 to 2, which stands for more, too. Coarser states leave out types from the end.

    Parameters
    ----------
    steps : int, optional
        Deprecated: it has no effect.
    """

    name = 'E_path'

    def __init__(self, steps: Optional[int] = None) -> None:
        if steps is not None:
            warnings.warn(
                'PathEncoding(steps) has no effect any more: leave it out',
                DeprecationWarning,
                stacklevel=2,
            )

    def follow(self, run: Run) -> Callable[[], State]:
        """See `StateEncoding`."""
        return LongestWay(run).state

    def coarser(self, state: State) -> Optional[State]:
        """The state without its last type.

        Parameters
        ----------
        state : tuple of int
            One that `follow` gave.

        Returns
        -------
        tuple of int or None
            None where one type is left.
        """
        return state[:-2] if len(state) > 2 else None


_ENCODINGS: dict[str, Callable[[], StateEncoding]] = {
    'E_base': BaseEncoding,
    'E_sort': SortEncoding,
    'E_max': MaxEncoding,
    'E_path': PathEncoding,
}


def get_encoding(encoding: Union[str, StateEncoding]) -> StateEncoding:
    """The encoding of a name; an object that is an encoding is returned as it is.

    Parameters
    ----------
    encoding : str or StateEncoding
        ``"E_base"``, ``"E_sort"``, ``"E_max"`` or ``"E_path"``, or any object with a ``name`` and
        the methods of `StateEncoding`. The first three are those of ED-Batch [1]_.

    Returns
    -------
    StateEncoding

    Raises
    ------
    ValueError
        If no encoding has this name.
    TypeError
        If it is neither a name nor an object with these methods.

    References
    ----------
    .. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
       learned finite state machines. https://arxiv.org/abs/2302.03851
    """
    if isinstance(encoding, str):
        return of_name('state encoding', encoding, _ENCODINGS)
    if isinstance(encoding, type) or not all(
        callable(getattr(encoding, method, None)) for method in ('follow', 'coarser')
    ):
        raise TypeError(
            f'{brief(encoding)} is not a state encoding: it must be a name or an '
            'object with methods follow(run) and coarser(state)'
        )
    return encoding
