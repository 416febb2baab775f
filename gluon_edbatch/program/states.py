"""Where a program is: the functions that are being run, and what their variables hold.

Two ways of getting somewhere are one where all that Python knows is the same: the place in the
code, and the variables but for values of the sample. So branches meet again, and loops end.
"""

from typing import Any, Dict, FrozenSet, List, NamedTuple, Sequence, Tuple

import numpy as np

from .graph import NumberSpec, Spec, TensorSpec
from .rewrite import Block, Flow
from .values import Dynamic, Number, Tensor

_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))


class Frame(NamedTuple):
    """A function that is being run.

    Attributes
    ----------
    flow : Flow
    block : Block
        Where it goes on.
    names : dict
        Its variables.
    target : str
        Which of the caller's variables gets what it returns.
    """

    flow: Flow
    block: Block
    names: Dict[str, Any]
    target: str


State = Tuple[Frame, ...]


class Taken(NamedTuple):
    """A state taken apart.

    Attributes
    ----------
    key : tuple
        All that Python knows. The same for states that are one.
    values : list of Dynamic
        What it does not know, each once.
    """

    key: Tuple
    values: List[Any]


def take_apart(state: State, widened: FrozenSet[Tuple]) -> Taken:
    """The key of a state, and its values; `widened` are paths (see `Walk`) of numbers that count
    as values there, though Python knows them."""
    walk = _Walk(widened)
    key = tuple(
        [
            (id(frame.flow), frame.block.number, frame.target, walk.names(depth, frame))
            for depth, frame in enumerate(state)
        ]
    )
    return Taken(key, walk.values)


def rebuilt(state: State, fresh: Sequence[Any], widened: FrozenSet[Tuple]) -> State:
    """The same state with containers of its own, and other values in the place of its own."""
    walk = _Rebuilding(widened, iter(fresh))
    return tuple(
        [
            frame._replace(names={name: walk.value(value, (depth, name)) for name, value in
                                  sorted(frame.names.items())})
            for depth, frame in enumerate(state)
        ]
    )


class _Walk:
    """Takes values apart. A path is where a value is: the frame, the variable, then keys."""

    def __init__(self, widened: FrozenSet[Tuple]):
        self.values: List[Any] = []
        self._widened = widened
        self._seen: Dict[int, int] = {}

    def names(self, depth: int, frame: Frame) -> Tuple:
        """Of all variables of a frame."""
        return tuple(
            [(name, self.value(value, (depth, name))) for name, value in sorted(frame.names.items())]
        )

    def value(self, value: Any, path: Tuple) -> Any:
        """What Python knows of a value."""
        if isinstance(value, Dynamic):
            return self._dynamic(value)
        if path in self._widened:
            self.values.append(value)
            return 'number', type(value)
        kind = type(value)
        if kind in _PLAIN:
            return kind, repr(value) if kind in (float, complex) else value
        if not isinstance(value, (list, tuple, dict, set)):
            return 'object', id(value)
        if id(value) in self._seen:
            return 'again', self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        if isinstance(value, dict):
            items = [(self.value(key, path + (('key', i),)), self.value(item, path + (i,)))
                     for i, (key, item) in enumerate(value.items())]
        elif isinstance(value, set):
            items = [repr(sorted(map(repr, value)))]  # type: ignore[list-item]
        else:
            items = [self.value(item, path + (i,)) for i, item in enumerate(value)]
        return kind, tuple(items)

    def _dynamic(self, value: Any) -> Any:
        if id(value) in self._seen:
            return 'again', self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        self.values.append(value)
        shared = isinstance(value, Tensor) and value.shared
        return spec_of(value), shared


def spec_of(value: Any) -> Spec:
    """Of a value, or of a number that counts as one."""
    if isinstance(value, Tensor):
        return TensorSpec(value.shape, np.dtype(value.dtype).name)
    if isinstance(value, Number):
        return NumberSpec(value.kind)
    kind = type(value)
    return NumberSpec('bool' if kind is bool else 'int' if kind is int else 'float')


class _Rebuilding:
    """Makes the same again, in the same order as `_Walk`."""

    def __init__(self, widened: FrozenSet[Tuple], fresh):
        self._widened, self._fresh = widened, fresh
        self._made: Dict[int, Any] = {}

    def value(self, value: Any, path: Tuple) -> Any:
        if id(value) in self._made:
            return self._made[id(value)]
        if isinstance(value, Dynamic):
            made = self._made[id(value)] = next(self._fresh)
            if isinstance(made, Tensor):
                made.shared = value.shared  # type: ignore[attr-defined]
            return made
        if path in self._widened:
            return next(self._fresh)
        if isinstance(value, tuple):
            items = [self.value(item, path + (i,)) for i, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, '_fields') else type(value)(items)
        if isinstance(value, list):
            made = self._made[id(value)] = []
            made.extend([self.value(item, path + (i,)) for i, item in enumerate(value)])
            return made
        if isinstance(value, dict):
            made = self._made[id(value)] = type(value)()
            for i, (key, item) in enumerate(value.items()):
                made[key] = self.value(item, path + (i,))
            return made
        if isinstance(value, set):
            self._made[id(value)] = made = set(value)
            return made
        return value


def known_numbers(state: State) -> Dict[Tuple, Any]:
    """The numbers that Python knows, by path."""
    found: Dict[Tuple, Any] = {}

    def look(value: Any, path: Tuple) -> None:
        if type(value) in (int, float, bool):
            found[path] = value
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                look(item, path + (i,))
        elif isinstance(value, dict):
            for i, item in enumerate(value.values()):
                look(item, path + (i,))

    for depth, frame in enumerate(state):
        for name, value in frame.names.items():
            look(value, (depth, name))
    return found
