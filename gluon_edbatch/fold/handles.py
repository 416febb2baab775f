"""Noted calls, handles of their results, and their arguments."""

import math
import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MethodType
from typing import Any, Callable, NoReturn, Optional, Union

import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.short_repr import brief

from ..record.sites import Site, site_at
from ..subgraph.trace import describe


class Handle(ABC):
    """A handle of what a noted call will return, or of a part. Results in one list are joined along
    `batch_axis`; `batch` is False after `no_batch`."""

    __slots__ = ()

    batch_axis: int
    batch: bool

    def __getitem__(self, index: Union[int, slice]) -> Union['Handle', tuple['Handle', ...]]:
        """Return a handle of an element of the call's list or tuple, or of a row of its array.

        ``[:n]`` gives the first n; the number of elements is not known before the call runs.
        """
        if index.__class__ is int:
            return self._part(index)
        if not isinstance(index, slice):
            return self._part(operator.index(index))
        if index.stop is None or index.stop < 0 or (index.start or 0) < 0:
            raise ValueError(
                f'{index} of {self}: how many results a call has is not known before '
                f'it runs, so a slice needs an end, and no bound below 0'
            )
        return tuple([self._part(i) for i in range(index.stop)[index]])

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f'how many results {self} has is not known before it runs; to unpack n of '
            f'them use .split(n)'
        )

    def split(self, num: int) -> tuple['Handle', ...]:
        """Return handles of the first `num` results."""
        return tuple([self._part(i) for i in range(num)] if num > 0 else self[:num])

    def no_batch(self) -> 'Handle':
        """Mark the handle as one value for all samples, and return it.

        In mxnet-jit-batch and torchfold the calls of a batch shared such an argument, which had no
        batch axis. Here each call belongs to one sample, and the mark has no effect on arguments.
        It counts where results are asked for: a list of this handle, once or more, gives the value
        once.
        """
        self.batch = False  # type: ignore[misc]  # each kind of handle has a slot for it
        return self

    nobatch = no_batch

    def expand_dims(self, axis: int) -> 'Handle':
        """Return a handle of the result with one more axis, of length 1."""
        return self._part(('expand_dims', operator.index(axis)))

    @abstractmethod
    def _part(self, step: Any) -> 'Handle':
        """Return the handle of a part of this noted result: of an index, or with a further axis."""


@dataclass(eq=False)
class NotedCall:
    """A call that a fold noted, to run later.

    `op` is the callable; a string names a method of the applied block. `args` have handles in place
    of results; lists and dicts are copies. `depth` is one more than that of the calls that it
    reads. `owner` identifies the fold until its next reset. `value` is the result of `op`, if it
    ran.
    """

    op: Union[Callable, str]
    batch_axis: int
    args: Iterable[Any]
    index: int
    depth: int
    owner: object
    code: int
    instruction: int
    value: Any = None

    @property
    def site(self) -> Site:
        """The user's line that noted the call."""
        return site_at(self.code, self.instruction)

    def __str__(self) -> str:
        return op_name(self.op)


class Virtual(Handle):
    """A handle of a call of a `Fold`, one for each part of the result. `path` leads from the result
    to this part: indices and ``('expand_dims', axis)``."""

    __slots__ = ('call', 'path', 'batch', 'batch_axis', '_parts')

    def __init__(self, call: NotedCall, path: tuple = (), batch: bool = True):
        self.call = call
        self.path = path
        self.batch = batch
        self.batch_axis = call.batch_axis
        self._parts: Optional[dict[Any, Virtual]] = None

    def _part(self, step: Any) -> 'Virtual':
        parts = self._parts
        if parts is None:
            parts = self._parts = {}
        part = parts.get(step)
        if part is None:
            added = step.__class__ is tuple  # an axis; elements are batched whatever the whole is
            part = parts[step] = Virtual(self.call, self.path + (step,), self.batch or not added)
        return part

    def value(self, parts: dict[tuple, Any]) -> Any:
        """Return the value, once the call ran. `parts` caches rows of arrays, and arrays with more
        axes, by index of the call and path."""
        value = self.call.value
        for position, step in enumerate(self.path, 1):
            if isinstance(value, (list, tuple)) and type(step) is int:
                try:
                    value = value[step]
                except IndexError:
                    raise RecordError(f'{self}: there are {len(value)} results') from None
            else:
                key = (self.call.index, *self.path[:position])
                if key not in parts:
                    parts[key] = part_of(value, step)
                value = parts[key]
        return value

    def __repr__(self) -> str:
        steps = ''.join(
            [f'[{step}]' if type(step) is int else f'.expand_dims({step[1]})' for step in self.path]
        )
        return f'{self.call}@{self.call.depth}{steps}'


def part_of(value: Any, step: Any) -> Any:
    """Return an element or row, or the value with one more axis."""
    return value.expand_dims(step[1]) if type(step) is tuple else value[step]


def op_name(op: Union[Callable, str]) -> str:
    """Return the name of a callable, as its user knows it."""
    if isinstance(op, str):
        return op
    if isinstance(op, gluon.Block):
        return describe(op)
    if isinstance(op, MethodType):
        owner = op.__self__
        name = (
            describe(owner)
            if isinstance(owner, gluon.Block)
            else getattr(owner, '__name__', type(owner).__name__)
        )
        return f'{name}.{op.__name__}'
    return getattr(op, '__qualname__', None) or repr(op)


# --- arguments of noted calls -------------------------------------------------------------------

_CONSTANTS = frozenset((int, bool, str, bytes, type(None)))


def key_of_op(op: Callable) -> Hashable:
    """Return a key that is equal for the same callable only, bound methods included."""
    if op.__class__ is MethodType:
        return id(op.__self__), id(op.__func__)
    return id(op)


def note(items: Iterable[Any], key: list[Hashable], owner: object) -> tuple[Iterable[Any], int]:
    """Return arguments as they are now, with copies of lists and dicts, which the user may change
    later, and the least depth of a call that reads them.

    Handles, arrays and most other objects are equal only if they are one object, which the call
    keeps alive. Numbers, strings and None are equal if type and value are (0.0 is not -0.0); lists,
    tuples and dicts if their contents are. A key of the arguments is appended to `key`, flat: the
    garbage collector would walk through nested keys again and again. Handles must be `owner`'s.
    """
    depth, copies = 0, None
    for position, item in enumerate(items):
        kind = item.__class__
        if kind is Virtual:
            call = item.call
            if call.owner is not owner:
                raise RecordError(
                    f'{item}, noted at {call.site}, is of another fold, or of this '
                    f'one before it was reset'
                )
            key.append(id(item))
            if call.depth >= depth:
                depth = call.depth + 1
        elif kind in _CONSTANTS:
            key += kind, item
        elif kind is float:
            key += kind, item, math.copysign(1.0, item)
        elif kind is dict or isinstance(item, (list, tuple)):
            key += kind, len(item)
            if kind is dict:
                for name in item:
                    key += name.__class__, name
            held, deep = note(item.values() if kind is dict else item, key, owner)
            depth = max(depth, deep)
            if kind is not tuple or held is not item:
                copies = list(items) if copies is None else copies
                copies[position] = like(item, list(held))
        else:
            key.append(id(item))
    return items if copies is None else copies, depth


def resolve(
    items: Any, parts: dict[tuple, Any], convert: Optional[Callable[[Any], Any]] = None
) -> list:
    """Return arguments from `note` with values in place of handles; `convert` is applied to other
    arguments."""
    values = []
    for item in items:
        kind = item.__class__
        if kind is Virtual:
            item = item.value(parts)
        elif isinstance(item, (list, tuple)):
            item = like(item, resolve(item, parts, convert))
        elif kind is dict:
            item = like(item, resolve(item.values(), parts, convert))
        elif convert is not None:
            item = convert(item)
        values.append(item)
    return values


def like(container: Any, items: list) -> Any:
    """Return a container of the same kind that holds these items."""
    kind = container.__class__
    if kind is list:
        return items
    if kind is dict:
        return dict(zip(container, items))
    return kind(*items) if hasattr(container, '_fields') else kind(items)


# --- what was noted, as text --------------------------------------------------------------------


def summary(calls: Sequence[NotedCall]) -> str:
    """Return lines such as ``15 x Dense(dense0)((1, 4))`` under the depth of these calls."""
    steps: dict[int, Counter] = {}
    for call in calls:
        steps.setdefault(call.depth, Counter())[_text(call)] += 1
    lines = [f'Fold: {len(calls)} calls in {len(steps)} steps']
    for depth in sorted(steps):
        lines.append(f'  step {depth}:')
        lines += [f'    {number} x {text}' for text, number in steps[depth].items()]
    return '\n'.join(lines)


def _text(call: NotedCall) -> str:
    axis = f', batch axis {call.batch_axis}' if call.batch_axis else ''
    return f'{call}({_arguments(call.args)}){axis}'


def _arguments(items: Iterable[Any]) -> str:
    """Return descriptions of arguments; equal neighbours are counted."""
    texts = [(text, len(list(alike))) for text, alike in groupby(map(_argument, items))]
    return ', '.join([text if number == 1 else f'{number} x {text}' for text, number in texts])


def _argument(item: Any) -> str:
    if isinstance(item, (NDArray, np.ndarray)):
        return str(item.shape)
    if isinstance(item, list):
        return f'[{_arguments(item)}]'
    if isinstance(item, tuple):
        return f'({_arguments(item)})'
    if isinstance(item, dict):
        return f'{{{", ".join([f"{key!r}: {_argument(value)}" for key, value in item.items()])}}}'
    return op_name(item) if isinstance(item, gluon.Block) else brief(item)
