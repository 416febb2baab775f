"""State encodings: what a policy sees of a running graph, as a tuple of small integers.

``E_base``, ``E_sort`` and ``E_max`` come from ED-Batch (Chen et al., 2023). Where chains of
different types compete, only ``E_path`` tells which type begins the longest path to the end.
"""

from typing import Callable, Optional, Protocol, Union

from ..short_repr import brief
from .frontier import Run
from .protocol import of_name
from .rules import LongestWay

State = tuple[int, ...]


class StateEncoding(Protocol):
    """Define what a policy sees; write your own for chains that the others do not tell apart.

    Types in a state are the policy's numbers, which are also those of the graph that runs. Anything
    else in a state must not depend on these numbers, the process, or the size of the minibatch.

    Attributes
    ----------
    name : str
        Name of the encoding in files of policies (see `Policy.load`).
    """

    name: str

    def follow(self, run: Run) -> Callable[[], State]:
        """Return a function that returns the state of a run, for each choice of a type.

        Parameters
        ----------
        run : Run
            A run at its beginning; the function is called as the run goes on.

        Returns
        -------
        callable
            Takes no arguments; returns a state, a tuple of int. Any hashable state works for
            learning, but a saved policy can be loaded only with tuples of int.
        """
        ...

    def coarser(self, state: State) -> Optional[State]:
        """Return a state to look up if this one is unknown; None if there is none.

        Parameters
        ----------
        state : hashable
            A state that the function of `follow` returned.

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
        """Return None: there are no coarser states."""
        return None


class BaseEncoding(_Encoding):
    """Encode the ready types, ascending: E_base of ED-Batch (see `get_encoding`)."""

    name = 'E_base'

    def follow(self, run: Run) -> Callable[[], State]:
        """Return a function that returns which types are ready in a schedule under way."""
        return run.frontier.kinds


class SortEncoding(_Encoding):
    """Encode the ready types, those with more ready nodes first, then those with lower numbers.

    This is E_sort of ED-Batch (see `get_encoding`).
    """

    name = 'E_sort'

    def follow(self, run: Run) -> Callable[[], State]:
        """Return a function that returns the state of a run."""
        return run.frontier.by_size


class MaxEncoding(_Encoding):
    """Encode the ready types, ascending, and then the one with most ready nodes.

    This is E_max of ED-Batch (see `get_encoding`).
    """

    name = 'E_max'

    def follow(self, run: Run) -> Callable[[], State]:
        """Return a function that returns the state of a run."""
        frontier = run.frontier
        return lambda: frontier.kinds() + frontier.by_size()[:1]


class PathEncoding(_Encoding):
    """Encode the ready types by the longest paths to the end that their ready nodes begin.

    The first type has the heaviest paths: a path weighs e**2 times as much as one that is a node
    shorter. Each type is followed by how many nodes its longest path is shorter than that of the
    type before: 0, 1, 2 (or more), or -1 if it is longer. Coarser states leave out last types.
    """

    name = 'E_path'

    def follow(self, run: Run) -> Callable[[], State]:
        """Return a function that returns the state of a run."""
        return LongestWay(run).state

    def coarser(self, state: State) -> Optional[State]:
        """Return the state without its last type.

        Parameters
        ----------
        state : tuple of int
            A state that the function of `follow` returned.

        Returns
        -------
        tuple of int or None
            None if only one type is left.
        """
        return state[:-2] if len(state) > 2 else None


_ENCODINGS: dict[str, Callable[[], StateEncoding]] = {
    'E_base': BaseEncoding,
    'E_sort': SortEncoding,
    'E_max': MaxEncoding,
    'E_path': PathEncoding,
}


def get_encoding(encoding: Union[str, StateEncoding]) -> StateEncoding:
    """Return the encoding of a name; an object that is an encoding is returned as it is.

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
