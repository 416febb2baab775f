"""Calls that were noted, and what stands for their results until they run."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import MethodType
from typing import Any, Callable, NoReturn, Optional, Union

from mxnet import gluon

from ..errors import RecordError
from ..record.sites import Site, site_at
from ..subgraph.trace import describe


class Handle(ABC):
    """What a noted call will return, or a part of it. Results in one list are put together along
    `batch_axis`; `batch` is False after `no_batch`."""

    __slots__ = ()

    batch_axis: int
    batch: bool

    def __getitem__(self, index: Union[int, slice]) -> Union['Handle', tuple['Handle', ...]]:
        """An element of the list or tuple that the call returns, or a row of the array.

        ``[:n]`` gives the first n; how many there are is not known before the call runs.
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
        """The first `num` results."""
        return tuple([self._part(i) for i in range(num)] if num > 0 else self[:num])

    def no_batch(self) -> 'Handle':
        """The handle itself, marked as one value for all samples.

        In mxnet-jit-batch and torchfold the calls of a batch shared such an argument, as it had
        no batch axis. Here each call is one sample's, with whole arguments, so nothing is to be
        said where it is passed on. The mark counts where results are asked for: a list of this
        handle, however often it is in there, gives the value once.
        """
        self.batch = False  # type: ignore[misc]  # each kind of handle has a slot for it
        return self

    nobatch = no_batch

    def expand_dims(self, axis: int) -> 'Handle':
        """The result with one more axis, of length 1."""
        return self._part(('expand_dims', operator.index(axis)))

    @abstractmethod
    def _part(self, step: Any) -> 'Handle':
        """The handle for an index, or for another axis, of this."""


class NotedCall:
    """A call that was noted.

    `op` is what is called; a string names a method of the block that is applied. `args` have
    handles in the place of results; lists and dicts are copies. `depth` is one more than that of
    the calls that it reads. `owner` stands for the fold until its next reset, and `value` is what
    `op` returned, if it ran.
    """

    __slots__ = (
        'op',
        'batch_axis',
        'args',
        'index',
        'depth',
        'owner',
        'code',
        'instruction',
        'value',
    )

    def __init__(
        self,
        op: Union[Callable, str],
        batch_axis: int,
        args: Iterable[Any],
        index: int,
        depth: int,
        owner: object,
        code: int,
        instruction: int,
    ):
        self.op = op
        self.batch_axis = batch_axis
        self.args = args
        self.index = index
        self.depth = depth
        self.owner = owner
        self.code = code
        self.instruction = instruction
        self.value = None

    @property
    def site(self) -> Site:
        """The user's line that noted it."""
        return site_at(self.code, self.instruction)

    def __str__(self) -> str:
        return op_name(self.op)


class Virtual(Handle):
    """A handle of a call of a `Fold`; there is one for each part of what the call returns. `path`
    leads from what the call returns to this part of it: indices and ``('expand_dims', axis)``."""

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
        """The value, once the call ran. `parts` has rows of arrays, and arrays with more axes, by
        index of the call and path: each is made once."""
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
    """An element or row, or the value with one more axis."""
    return value.expand_dims(step[1]) if type(step) is tuple else value[step]


def op_name(op: Union[Callable, str]) -> str:
    """What is called, as its user knows it."""
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
