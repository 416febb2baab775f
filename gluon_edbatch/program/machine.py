"""Runs a program for many samples at once: they regroup at every branch.

Samples wait at blocks, with their values. The block that comes first in the program runs for all
that wait there; then they wait where their conditions lead them. So those that skip something wait
for the others where ways meet, and those that are done leave. NumPy only: a host computes.
"""

import heapq
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import numpy as np

from .errors import ProgramError, StepsError
from .graph import (
    Calculate,
    Choose,
    Fill,
    Finish,
    Give,
    Goto,
    NumberSpec,
    ProgramBlock,
    ProgramGraph,
    Read,
    Run,
    TensorSpec,
)

NUMBERS = {'float': np.float64, 'int': np.int64, 'bool': np.bool_}


class Host(Protocol):
    """What computes: arrays are its own, of so many rows for each sample."""

    def run(self, run: Run, inputs: List[Any], samples: int) -> Sequence[Any]:
        """Results of a network."""

    def take(self, array: Any, samples: np.ndarray, rows: int) -> Any:
        """Rows of some samples, of an array with so many rows for each."""

    def concat(self, arrays: Sequence[Any]) -> Any:
        """Their rows one after the other."""

    def split(self, array: Any, rows: int, samples: int) -> List[Any]:
        """An array for each sample."""

    def read(self, array: Any) -> np.ndarray:
        """The elements of an array that has one for each sample."""

    def give(self, numbers: np.ndarray, dtype: str) -> Any:
        """An array (samples,) of numbers."""

    def fill(self, constant: np.ndarray, samples: int) -> Any:
        """A constant for each sample."""


class Group(NamedTuple):
    """Samples that wait at a block, and the values that they have for it."""

    samples: np.ndarray
    values: List[Any]


class Machine:
    """Runs a program.

    Parameters
    ----------
    graph : ProgramGraph
    host : Host
    max_steps : int
        Blocks that a sample may run.

    Attributes
    ----------
    ran : list of list of int
        For each block, how many samples each of its runs had.
    """

    def __init__(self, graph: ProgramGraph, host: Host, max_steps: int):
        self._blocks, self._host, self._max_steps = graph.blocks, host, max_steps
        self.ran: List[List[int]] = [[] for _ in graph.blocks]

    def run(self, values: List[Any], samples: int) -> Iterator[Tuple[np.ndarray, Finish, List[Any]]]:
        """What comes out, by samples that finish together.

        Raises
        ------
        StepsError
            If a sample runs more blocks than it may.
        """
        waiting: Dict[int, List[Group]] = {0: [Group(np.arange(samples), values)]}
        heap, steps = [0], np.zeros(samples, np.int64)
        while heap:
            number = heapq.heappop(heap)
            block = self._blocks[number]
            group = self._together(block, waiting.pop(number))
            steps[group.samples] += 1
            if steps[group.samples].max() > self._max_steps:
                raise StepsError(
                    f'a sample ran more than {self._max_steps} blocks, the last at {block.name}: '
                    f'a loop that does not end, or max_steps is to be larger'
                )
            self.ran[number].append(len(group.samples))
            values = self._computed(block, group)
            if isinstance(block.end, Finish):
                yield group.samples, block.end, [_of(values, place) for place in block.end.values]
                continue
            for to, chosen in self._ways(block, group, values):
                if to.block not in waiting:
                    heapq.heappush(heap, to.block)
                waiting.setdefault(to.block, []).append(chosen)

    def _together(self, block: ProgramBlock, groups: List[Group]) -> Group:
        """All that wait at a block."""
        if len(groups) == 1:
            return groups[0]
        samples = np.concatenate([group.samples for group in groups])
        values = [
            np.concatenate(columns)
            if isinstance(spec, NumberSpec)
            else self._host.concat(columns)
            for spec, columns in zip(block.takes, zip(*[group.values for group in groups]))
        ]
        return Group(samples, values)

    def _computed(self, block: ProgramBlock, group: Group) -> Dict[int, Any]:
        """All values of a block."""
        values: Dict[int, Any] = dict(enumerate(group.values))
        count, host = len(group.samples), self._host
        for step in block.steps:
            kind = type(step)
            if kind is Run:
                made = host.run(step, [values[place] for place in step.inputs], count)
                values.update(zip(step.outputs, made))
            elif kind is Read:
                values[step.output] = host.read(values[step.input]).astype(NUMBERS[step.kind])
            elif kind is Calculate:
                operands = [_of(values, place) for place in step.operands]
                values[step.output] = calculate(step, operands, count)
            elif kind is Give:
                values[step.output] = host.give(values[step.input], step.dtype)
            else:
                values[step.output] = host.fill(step.constant, count)
        return values

    def _ways(self, block: ProgramBlock, group: Group, values: Dict[int, Any]):
        end = block.end
        if isinstance(end, Goto):
            return [(end, self._given(end, group.samples, values, None))]
        condition = values[end.condition]
        if condition.all():
            return [(end.then, self._given(end.then, group.samples, values, None))]
        if not condition.any():
            return [(end.other, self._given(end.other, group.samples, values, None))]
        return [
            (to, self._given(to, group.samples[chosen], values, chosen))
            for to, chosen in (
                (end.then, np.flatnonzero(condition)),
                (end.other, np.flatnonzero(~condition)),
            )
        ]

    def _given(self, to: Goto, samples: np.ndarray, values, chosen: Optional[np.ndarray]) -> Group:
        """What goes on to a block; `chosen` are places among those that ran."""
        taken = []
        for place, spec in zip(to.values, self._blocks[to.block].takes):
            value = _of(values, place)
            if isinstance(spec, TensorSpec):
                value = value if chosen is None else self._host.take(value, chosen, spec.shape[0])
            elif not isinstance(value, np.ndarray):
                value = np.full(len(samples), value, NUMBERS[spec.kind])
            elif chosen is not None:
                value = value[chosen]
            taken.append(value)
        return Group(samples, taken)


def _of(values: Dict[int, Any], place: Any) -> Any:
    return place[0] if isinstance(place, tuple) else values[place]


_OPS = {
    'add': np.add,
    'sub': np.subtract,
    'mul': np.multiply,
    'truediv': np.true_divide,
    'floordiv': np.floor_divide,
    'mod': np.mod,
    'pow': np.power,
    'and': np.bitwise_and,
    'or': np.bitwise_or,
    'xor': np.bitwise_xor,
    'lt': np.less,
    'le': np.less_equal,
    'gt': np.greater,
    'ge': np.greater_equal,
    'eq': np.equal,
    'ne': np.not_equal,
    'neg': np.negative,
    'pos': np.positive,
    'abs': np.abs,
    'not': np.logical_not,
    'float': np.float64,
    'int': np.trunc,
    'bool': np.bool_,
    'round': np.rint,
    'floor': np.floor,
    'ceil': np.ceil,
    'sqrt': np.sqrt,
    'exp': np.exp,
    'log': np.log,
    'tanh': np.tanh,
}
_WHOLE = frozenset('int round floor ceil'.split())
_COMPARED = frozenset('lt le gt ge eq ne'.split())


def calculate(step: Calculate, operands: List[Any], count: int) -> np.ndarray:
    """Numbers of numbers, as Python computes them.

    Raises
    ------
    ProgramError
        For what Python raises an error for, or compares and finds no number.
    """
    op = step.op
    if op in ('max', 'min'):
        first, second = operands
        chosen = second > first if op == 'max' else second < first
        return np.where(chosen, second, first)
    if op in ('truediv', 'floordiv', 'mod') and not np.all(operands[1]):
        raise ProgramError(f'{step.line}\n  a number is divided by zero')
    if op in _COMPARED and any([np.isnan(each).any() for each in operands]):
        raise ProgramError(f'{step.line}\n  what is compared is not a number (NaN)')
    if op in _WHOLE and not np.isfinite(operands[0]).all():
        raise ProgramError(f'{step.line}\n  no integer can be made of NaN or infinity')
    if op in ('sub', 'neg', 'pos', 'add', 'mul') and any([_is_bool(each) for each in operands]):
        operands = [np.multiply(each, 1) if _is_bool(each) else each for each in operands]
    with np.errstate(all='ignore'):
        made = np.asarray(_OPS[op](*operands))
    if op in _WHOLE:
        made = made.astype(np.int64)
    return made if made.shape else np.full(count, made)


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or getattr(value, 'dtype', None) == np.bool_
