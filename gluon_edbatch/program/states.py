"""Where a program is: the functions that are being run, and what their variables hold.

Two ways of getting somewhere are one where all that Python knows is the same: the place in the
code, and the variables but for values of the sample. So branches meet again, and loops end.
"""

import copy
from collections import abc
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import (
    Any,
    Callable,
    NamedTuple,
)

import numpy as np
from mxnet.ndarray import NDArray

from ..branching.program_graph import NumberSpec, Spec
from ..errors import ProgramError
from .abstract_values import Dynamic, SampleNumber, SampleTensor
from .flow import CodeBlock, Flow

_PLAIN = (int, bool, str, bytes, type(None), type(Ellipsis), range)
_BY_REPR = (float, complex, slice)
_CONTAINERS = (list, tuple, dict, set)
_REBUILT = (Dynamic, *_CONTAINERS, np.ndarray)
_NUMBERS = (int, float, bool)
_USED_UP = (abc.Iterator, abc.KeysView, abc.ItemsView, abc.ValuesView)
_SMALL = 1 << 16  # bytes of an array that is compared by what is in it

Path = tuple[Any, ...]  # where a value is: the activation, the variable, then places in containers


class Activation(NamedTuple):
    """A function that is being run.

    Attributes
    ----------
    flow : Flow
    block : CodeBlock
        Where it goes on.
    names : dict
        Its variables.
    target : str
        Which of the caller's variables gets what it returns.
    """

    flow: Flow
    block: CodeBlock
    names: dict[str, Any]
    target: str


State = tuple[Activation, ...]


class Taken(NamedTuple):
    """A state taken apart.

    Attributes
    ----------
    key : tuple
        All that Python knows. The same for states that are one.
    values : list
        What it does not know: tensors once each, numbers wherever they are; those that count as
        values among them.
    paths : list of tuple
        Where they are.
    size : int
        How many values there are in all, known ones and those that are there again, too.
    """

    key: tuple
    values: list[Any]
    paths: list[Path]
    size: int


def take_apart(state: State, foreign: AbstractSet[int], widened: frozenset[Path]) -> Taken:
    """The key of a state, and its values.

    Parameters
    ----------
    foreign : frozenset of int
        The ``id`` of containers that are not the program's own: they are what they are.
    widened : frozenset of tuple
        Paths of numbers that count as values, though Python knows them.
    """
    walk = _StateWalk(foreign, widened)
    key = tuple(
        [
            (id(each.flow), each.block.number, each.target, *walk.items(_variables(each), (depth,)))
            for depth, each in enumerate(state)
        ]
    )
    return Taken(key, walk.values, walk.paths, walk.size)


def rebuilt(
    state: State, fresh: Sequence[Any], foreign: AbstractSet[int], widened: frozenset[Path]
) -> State:
    """The same state with containers of its own, and other values in the place of its own."""
    walk = _Rebuilding(foreign, widened, iter(fresh))
    return tuple(
        [
            each._replace(
                names={name: walk.value(value, (depth, name)) for name, value in _variables(each)}
            )
            for depth, each in enumerate(state)
        ]
    )


def pruned(state: State) -> State:
    """Without variables that nothing reads any more."""
    return tuple([each._replace(names=_read_later(each)) for each in state])


def _read_later(activation: Activation) -> dict[str, Any]:
    live = activation.block.live
    return {name: each for name, each in activation.names.items() if name in live}


def _variables(activation: Activation) -> list[tuple[str, Any]]:
    return sorted(activation.names.items())


def items_of(container: Any) -> list[tuple[Any, Any]]:
    """What is in a list, tuple or dict, by its place."""
    values = container.values() if isinstance(container, dict) else container
    return list(enumerate(values))


class _StateWalk:
    """Takes values apart, in an order that `_Rebuilding` follows."""

    def __init__(self, foreign: AbstractSet[int], widened: frozenset[Path]):
        self.values: list[Any] = []
        self.paths: list[Path] = []
        self.size = 0
        self._foreign, self._widened = foreign, widened
        self._seen: dict[int, int] = {}

    def items(self, items: Sequence[tuple[Any, Any]], path: Path) -> Iterator[Any]:
        """What Python knows of several values."""
        self.size += len(items)
        for place, value in items:
            yield place, self._value(value, (*path, place))

    def _value(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if isinstance(value, SampleNumber) or (path in self._widened and kind in _NUMBERS):
            return self._dynamic(value, path)
        if kind in _PLAIN:
            return kind, value
        if kind in _BY_REPR:
            return kind, repr(value)
        if type(value) is NDArray:
            return _known_array(value)
        if isinstance(value, _USED_UP):
            raise ProgramError(
                'an iterator, or a view of a dict, is kept in a variable while a value decides: '
                'make a list of it'
            )
        if not isinstance(value, _REBUILT) or id(value) in self._foreign:
            return 'object', id(value)
        if id(value) in self._seen:
            return 'again', self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        if isinstance(value, np.ndarray):
            return _known_array(value)
        if isinstance(value, SampleTensor):
            return self._dynamic(value, path)
        if isinstance(value, set):
            return kind, tuple(sorted(map(repr, value)))
        keys = tuple(map(repr, value)) if isinstance(value, dict) else ()
        return kind, keys, tuple(self.items(items_of(value), path))

    def _dynamic(self, value: Any, path: Path) -> Spec:
        self.values.append(value)
        self.paths.append(path)
        return spec_of(value)


def _known_array(array: Any) -> Any:
    size = int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize
    if size > _SMALL:
        return 'object', id(array)
    values = array.asnumpy() if isinstance(array, NDArray) else array
    return type(array), array.shape, values.dtype.str, values.tobytes()


def spec_of(value: Any) -> Spec:
    """Of a value, or of a number that counts as one."""
    if isinstance(value, SampleTensor):
        return value.spec
    kind = value.kind if isinstance(value, SampleNumber) else type(value).__name__
    return NumberSpec(kind)


class _Rebuilding:
    """Makes the same again."""

    def __init__(self, foreign: AbstractSet[int], widened: frozenset[Path], fresh: Iterator[Any]):
        self._foreign, self._widened, self._fresh = foreign, widened, fresh
        self._made: dict[int, Any] = {}

    def value(self, value: Any, path: Path) -> Any:
        """A value, or its like."""
        if isinstance(value, SampleNumber) or (path in self._widened and type(value) in _NUMBERS):
            return next(self._fresh)
        if not isinstance(value, _REBUILT) or id(value) in self._foreign:
            return value
        if id(value) not in self._made:
            self._made[id(value)] = self._anew(value, path)
        return self._made[id(value)]

    def _anew(self, value: Any, path: Path) -> Any:
        if isinstance(value, SampleTensor):
            return next(self._fresh)
        if isinstance(value, (set, np.ndarray)):
            return value.copy()
        if isinstance(value, tuple):
            items = self._items(value, path)
            return type(value)(*items) if hasattr(value, '_fields') else type(value)(items)
        made = self._made[id(value)] = copy.copy(value)  # before its items, which may hold it
        made.clear()
        items = self._items(value, path)
        made.update(zip(value, items)) if isinstance(value, dict) else made.extend(items)
        return made

    def _items(self, container: Any, path: Path) -> list[Any]:
        return [self.value(item, (*path, place)) for place, item in items_of(container)]


def known_numbers(state: State, foreign: AbstractSet[int]) -> dict[Path, Any]:
    """The numbers of the user's that Python knows, by path; but for those that count what a ``for``
    loop is over, if that is known."""
    found: dict[Path, Any] = {}

    def look(value: Any, path: Path) -> None:
        if type(value) in _NUMBERS:
            found[path] = value
        elif isinstance(value, (list, tuple, dict)) and id(value) not in foreign:
            for place, item in items_of(value):
                look(item, (*path, place))

    for depth, each in enumerate(state):
        for name, value in each.names.items():
            if not isinstance(each.names.get(each.flow.places.get(name, '')), list):
                look(value, (depth, name))
    return found


def containers_within(roots: Sequence[Any], children: Callable[[Any], Any]) -> set[int]:
    """The ``id`` of each list, dict, set, tuple and array of NumPy that can be reached from
    objects; `children` gives what an object that is none of them holds."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            found.add(id(value))
        elif isinstance(value, _CONTAINERS):
            found.add(id(value))
            waiting += list(value.values()) if isinstance(value, dict) else list(value)
        else:
            waiting += children(value)
    return found
