"""Abstract state of a program: the functions that are being run, and what their variables hold.

Two paths become one where all that Python knows is equal: the place in the code, and the variables
without values of the sample. So branches meet again, and loops end.
"""

import copy
from collections import abc
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Callable, NamedTuple

import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.branching.program_graph import NumberSpec, Spec, TensorSpec
from gluon_edbatch_core.errors import ProgramError

from .abstract_values import Dynamic, SampleNumber, SampleTensor
from .flow import CodeBlock, Flow

_PLAIN = (int, bool, str, bytes, type(None), type(Ellipsis), range)
_BY_REPR = (float, complex, slice)
_CONTAINERS = (list, tuple, dict, set)
_REBUILT = (Dynamic, *_CONTAINERS, np.ndarray)
_NUMBERS = (int, float, bool)
_SPECS = (TensorSpec, NumberSpec)
_USED_UP = (abc.Iterator, abc.KeysView, abc.ItemsView, abc.ValuesView)
_SMALL = 1 << 16  # bytes of an array that is compared by what is in it

Path = tuple[Any, ...]  # where a value is: the activation, the variable, then places in containers


class Activation(NamedTuple):
    """A function that is being run: where it goes on, its variables, and the caller's variable that
    gets its result."""

    flow: Flow
    block: CodeBlock
    names: dict[str, Any]
    target: str


State = tuple[Activation, ...]


class Taken(NamedTuple):
    """A state split into parts: `key` is all that Python knows, equal for states that become one.
    `values`, at `paths`, are unknown: tensors once each, numbers wherever they are. `size` counts
    all values."""

    key: tuple
    values: list[Any]
    paths: list[Path]
    size: int


class _Part(NamedTuple):
    """A value in a state, where it is, and all that Python knows of it."""

    path: Path
    value: Any
    known: Any


class StateParts:
    """All values of a state, in the order in which `rebuilt` visits them. Containers whose ``id``
    is in `foreign` are not the program's own, and stay as they are. `numbers` are those that Python
    knows, except counters of ``for`` loops."""

    def __init__(self, state: State, foreign: AbstractSet[int]):
        self.numbers: dict[Path, Any] = {}
        self._foreign = foreign
        self._parts: list[_Part] = []
        self._where: list[Any] = []
        self._seen: dict[int, int] = {}
        for depth, each in enumerate(state):
            names = sorted(each.names)
            self._where.append((id(each.flow), each.block.number, each.target, *names))
            for name in names:
                value, path = each.names[name], (depth, name)
                self._add(value, path)
                if isinstance(each.names.get(each.flow.places.get(name, '')), list):
                    self.numbers.pop(path, None)

    def taken(self, widened: AbstractSet[Path]) -> Taken:
        """Return the state's key and values, if numbers at these paths count as values, too."""
        parts = self._parts
        own = [each for each in parts if each.path in widened or isinstance(each.known, _SPECS)]
        known = [spec_of(each.value) if each.path in widened else each.known for each in parts]
        values, paths = [each.value for each in own], [each.path for each in own]
        return Taken((*self._where, *known), values, paths, len(parts))

    def _add(self, value: Any, path: Path) -> None:
        items: list[tuple[Any, Any]] = []
        self._parts.append(_Part(path, value, self._known(value, items)))
        if type(value) in _NUMBERS:
            self.numbers[path] = value
        for key, item in items:
            self._add(item, (*path, key))

    def _known(self, value: Any, items: list[tuple[Any, Any]]) -> Any:
        """Return what is known of a value at compile time; add its items to `items`."""
        kind = type(value)
        if isinstance(value, SampleNumber):
            return spec_of(value)
        if kind in _PLAIN:
            return kind, value
        if kind in _BY_REPR:
            return kind, repr(value)
        if kind is NDArray:
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
            return value.spec
        if isinstance(value, set):
            return kind, tuple(sorted(map(repr, value)))
        items += items_of(value)
        keys = tuple(map(repr, value)) if isinstance(value, dict) else ()
        return kind, keys, len(items)


def rebuilt(
    state: State, fresh: Sequence[Any], foreign: AbstractSet[int], widened: frozenset[Path]
) -> State:
    """Copy a state with its containers, and with other values in it."""
    walk = _Rebuilding(foreign, widened, iter(fresh))
    return tuple(
        [
            each._replace(
                names={
                    name: walk.value(each.names[name], (depth, name)) for name in sorted(each.names)
                }
            )
            for depth, each in enumerate(state)
        ]
    )


def pruned(state: State) -> State:
    """Return the state without variables that nothing reads any more."""
    kept = []
    for each in state:
        live = each.block.live
        names = {name: value for name, value in each.names.items() if name in live}
        kept.append(each._replace(names=names))
    return tuple(kept)


def items_of(container: Any) -> list[tuple[Any, Any]]:
    """Return the items of a list, tuple or dict, with the place of each."""
    values = container.values() if isinstance(container, dict) else container
    return list(enumerate(values))


def _known_array(array: Any) -> Any:
    size = int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize
    if size > _SMALL:
        return 'object', id(array)
    values = array.asnumpy() if isinstance(array, NDArray) else array
    return type(array), array.shape, values.dtype.str, values.tobytes()


def spec_of(value: Any) -> Spec:
    """Return the spec of a value, or of a number that counts as one."""
    if isinstance(value, SampleTensor):
        return value.spec
    kind = value.kind if isinstance(value, SampleNumber) else type(value).__name__
    return NumberSpec(kind)


class _Rebuilding:
    """Copy values of a state, with other values in place of unknown ones."""

    def __init__(self, foreign: AbstractSet[int], widened: frozenset[Path], fresh: Iterator[Any]):
        self._foreign, self._widened, self._fresh = foreign, widened, fresh
        self._made: dict[int, Any] = {}

    def value(self, value: Any, path: Path) -> Any:
        """Return a value or its copy."""
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


def containers_within(roots: Sequence[Any], children: Callable[[Any], Any]) -> set[int]:
    """Return the ``id`` of each list, dict, set, tuple and NumPy array that can be reached from
    objects. `children` returns what an object of another kind holds."""
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
