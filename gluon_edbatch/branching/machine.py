"""Runs a program for many samples at once: they regroup at every branch.

Samples wait at blocks, with their values. The block that comes first in the program runs for all
that wait there; then they wait where their conditions lead them. So those that skip something wait
for the others where ways meet, and those that are done leave. NumPy only: a host computes.
"""

import heapq
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import numpy as np

from ..errors import StepsError
from .calculate import calculate
from .graph import (
    Calculate,
    FillTensor,
    Finish,
    GiveTensor,
    Goto,
    NumberSpec,
    ProgramBlock,
    ProgramGraph,
    ReadNumber,
    RunNetwork,
    TensorSpec,
)

NEAR = 1e-5  # of the larger of two numbers that are compared, or of 1
ORDERED = ('lt', 'le', 'gt', 'ge')
NUMBERS = {'float': np.float64, 'int': np.int64, 'bool': np.bool_}


class Host(Protocol):
    """What computes: arrays are its own, of so many rows for each sample."""

    def run(self, run: RunNetwork, inputs: List[Any], samples: int) -> Sequence[Any]:
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

    def fill(self, constant: int, samples: int) -> Any:
        """A constant of the program's, for each sample."""


class Waiting(NamedTuple):
    """Samples that wait at a block, and the values that they have for it."""

    samples: np.ndarray
    values: List[Any]


class ProgramMachine:
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
    chosen : list of [int, int]
        For each block, how many samples went on by the condition, and by its contrary.
    near : list of (str, int)
        Comparisons, by line, and samples, where the two were as good as equal.
    latest : numpy.ndarray
        The samples of the last run of a block.
    """

    def __init__(self, graph: ProgramGraph, host: Host, max_steps: int):
        self._blocks, self._host, self._max_steps = graph.blocks, host, max_steps
        self._waiting: Dict[int, List[Waiting]] = {}
        self._heap: List[int] = []
        self._steps = np.zeros(0, np.int64)
        self.latest = np.zeros(0, np.int64)
        self.clear()

    def clear(self) -> None:
        """Count anew."""
        self.ran: List[List[int]] = [[] for _ in self._blocks]
        self.chosen = [[0, 0] for _ in self._blocks]
        self.near: List[Tuple[str, int]] = []

    def run(
        self, values: List[Any], samples: int
    ) -> Iterator[Tuple[np.ndarray, Finish, List[Tuple[Any, bool]]]]:
        """What comes out, by samples that finish together; of each value, whether it is a tensor.

        Raises
        ------
        StepsError
            If a sample runs more blocks than it may.
        """
        self.admit(np.arange(samples), values)
        while self._heap:
            done = self.step()
            if done is not None:
                yield done

    def admit(self, samples: np.ndarray, values: List[Any]) -> None:
        """Let samples begin, by their numbers, also while others are on their way."""
        most = int(samples.max()) + 1
        if most > len(self._steps):
            self._steps = np.append(self._steps, np.zeros(2 * most, np.int64))
        self._steps[samples] = 0
        self._wait(0, Waiting(samples, values))

    def step(self) -> Optional[Tuple[np.ndarray, Finish, List[Tuple[Any, bool]]]]:
        """Run the first block at which samples wait; what comes out, if it is their last one."""
        number = heapq.heappop(self._heap)
        block = self._blocks[number]
        group = self._together(block, self._waiting.pop(number))
        steps, self.latest = self._steps, group.samples
        steps[group.samples] += 1
        if steps[group.samples].max() > self._max_steps:
            raise StepsError(
                f'a sample ran more than {self._max_steps} blocks, the last at {block.name}: '
                f'a loop that does not end, or max_steps is to be larger'
            )
        self.ran[number].append(len(group.samples))
        made = self._computed(block, group)
        if isinstance(block.end, Finish):
            return group.samples, block.end, self._results(block, made)
        for to, chosen in self._ways(number, group, made):
            self._wait(to.block, chosen)
        return None

    def _wait(self, block: int, group: Waiting) -> None:
        if block not in self._waiting:
            heapq.heappush(self._heap, block)
        self._waiting.setdefault(block, []).append(group)

    def _results(self, block: ProgramBlock, values: Dict[int, Any]) -> List[Tuple[Any, bool]]:
        tensors = {place for place, spec in enumerate(block.takes) if isinstance(spec, TensorSpec)}
        for step in block.steps:
            if isinstance(step, RunNetwork):
                tensors.update(step.outputs)
            elif isinstance(step, (GiveTensor, FillTensor)):
                tensors.add(step.output)
        end: Any = block.end
        return [(_of(values, place), place in tensors) for place in end.values]

    def _together(self, block: ProgramBlock, groups: List[Waiting]) -> Waiting:
        """All that wait at a block."""
        if len(groups) == 1:
            return groups[0]
        samples = np.concatenate([group.samples for group in groups])
        values = [
            np.concatenate(columns) if isinstance(spec, NumberSpec) else self._host.concat(columns)
            for spec, columns in zip(block.takes, zip(*[group.values for group in groups]))
        ]
        return Waiting(samples, values)

    def _computed(self, block: ProgramBlock, group: Waiting) -> Dict[int, Any]:
        """All values of a block."""
        values: Dict[int, Any] = dict(enumerate(group.values))
        count, host = len(group.samples), self._host
        step: Any
        for step in block.steps:
            kind = type(step)
            if kind is RunNetwork:
                made = host.run(step, [values[place] for place in step.inputs], count)
                values.update(zip(step.outputs, made))
            elif kind is ReadNumber:
                values[step.output] = host.read(values[step.input]).astype(NUMBERS[step.kind])
            elif kind is Calculate:
                operands = [_of(values, place) for place in step.operands]
                if step.op in ORDERED:
                    self._note_near(step.line, operands, group.samples)
                values[step.output] = calculate(step, operands, count)
            elif kind is GiveTensor:
                values[step.output] = host.give(values[step.input], step.dtype)
            else:
                values[step.output] = host.fill(step.constant, count)
        return values

    def _note_near(self, line: str, operands: List[Any], samples: np.ndarray) -> None:
        """Where rounding could have decided otherwise."""
        first, second = operands
        scale = np.maximum(np.maximum(np.abs(first), np.abs(second)), 1)
        near = np.broadcast_to(np.abs(np.subtract(first, second)) <= NEAR * scale, samples.shape)
        if near.any() and not _are_whole(operands):
            self.near += [(line, sample) for sample in samples[near].tolist()]

    def _ways(self, number: int, group: Waiting, values: Dict[int, Any]):
        end: Any = self._blocks[number].end
        if isinstance(end, Goto):
            return [(end, self._given(end, group.samples, values, None))]
        condition = values[end.condition]
        count = int(np.count_nonzero(condition))
        self.chosen[number][0] += count
        self.chosen[number][1] += len(condition) - count
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

    def _given(
        self, to: Goto, samples: np.ndarray, values, chosen: Optional[np.ndarray]
    ) -> Waiting:
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
        return Waiting(samples, taken)


def _are_whole(operands: List[Any]) -> bool:
    """Whether no rounding is in them."""
    return all([np.asarray(each).dtype.kind in 'iub' for each in operands])


def _of(values: Dict[int, Any], place: Any) -> Any:
    return place[0] if isinstance(place, tuple) else values[place]
