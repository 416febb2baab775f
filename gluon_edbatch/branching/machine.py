"""Runs a program for many samples at once: they regroup at every branch.

Samples wait at blocks, with their values. The block that comes first in the program runs for all
that wait there; then they wait where their conditions lead them. So those that skip something wait
for the others where ways meet, and those that are done leave. NumPy only: a host computes.
"""

import heapq
from typing import Any, NamedTuple, Optional

import numpy as np

from ..errors import StepsError
from .calculate import NUMBERS, ORDERED, are_near, calculate, have_rivals
from .counts import Counts, too_many
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
from .host import Host


class Waiting(NamedTuple):
    """Samples that wait at a block, and the values that they have for it."""

    samples: np.ndarray
    values: list[Any]


class ProgramMachine:
    """Runs a program.

    Parameters
    ----------
    graph : ProgramGraph
    host : Host
    max_steps : int
        Blocks that a sample may run.
    counts : Counts
        What to count in.

    Attributes
    ----------
    latest : numpy.ndarray
        The samples of the last run of a block.
    """

    def __init__(self, graph: ProgramGraph, host: Host, max_steps: int, counts: Counts):
        self._blocks, self._host, self._max_steps = graph.blocks, host, max_steps
        self._counts = counts
        self._waiting: dict[int, list[Waiting]] = {}
        self._heap: list[int] = []
        self._ends = frozenset(
            [
                number
                for number, block in enumerate(graph.blocks)
                if isinstance(block.end, Finish)
                and not any([isinstance(step, RunNetwork) for step in block.steps])
            ]
        )
        self._steps = np.zeros(0, np.int64)
        self.latest = np.zeros(0, np.int64)

    def admit(self, samples: np.ndarray, values: list[Any]) -> None:
        """Let samples begin, by their numbers, also while others are on their way."""
        self._counts.samples += len(samples)
        most = int(samples.max()) + 1
        if most > len(self._steps):
            self._steps = np.append(self._steps, np.zeros(2 * most, np.int64))
        self._steps[samples] = 0
        self._wait(0, Waiting(samples, values))

    def step(
        self, ends_first: bool = False
    ) -> Optional[tuple[np.ndarray, Finish, list[tuple[Any, bool]]]]:
        """Run the first block at which samples wait; what comes out, if it is their last one: each
        value, and whether it is a tensor.

        Parameters
        ----------
        ends_first : bool
            Whether blocks that only tell what comes out are first: whoever is there need not wait
            for others that come there later.

        Raises
        ------
        StepsError
            If a sample runs more blocks than it may.
        """
        number = self._next(ends_first)
        block = self._blocks[number]
        group = self._together(block, self._waiting.pop(number))
        steps, self.latest = self._steps, group.samples
        steps[group.samples] += 1
        if steps[group.samples].max() > self._max_steps:
            raise StepsError(too_many(self._max_steps, block.name))
        self._counts.runs += 1
        made = self._computed(block, group)
        if isinstance(block.end, Finish):
            self._counts.taken[number][0] += len(group.samples)
            return group.samples, block.end, self._results(block, made)
        for to, chosen in self._ways(number, group, made):
            self._wait(to.block, chosen)
        return None

    @property
    def at_end(self) -> bool:
        """Whether samples wait at a block that only tells what comes out."""
        return not self._ends.isdisjoint(self._heap)

    def _next(self, ends_first: bool) -> int:
        ends = self._ends.intersection(self._heap) if ends_first else ()
        if not ends:
            return heapq.heappop(self._heap)
        number = min(ends)
        self._heap.remove(number)
        heapq.heapify(self._heap)
        return number

    def _wait(self, block: int, group: Waiting) -> None:
        if block not in self._waiting:
            heapq.heappush(self._heap, block)
        self._waiting.setdefault(block, []).append(group)

    def _results(self, block: ProgramBlock, values: dict[int, Any]) -> list[tuple[Any, bool]]:
        tensors = {place for place, spec in enumerate(block.takes) if isinstance(spec, TensorSpec)}
        for step in block.steps:
            if isinstance(step, RunNetwork):
                tensors.update(step.outputs)
            elif isinstance(step, (GiveTensor, FillTensor)):
                tensors.add(step.output)
        end: Any = block.end
        return [(_of(values, place), place in tensors) for place in end.values]

    def _together(self, block: ProgramBlock, groups: list[Waiting]) -> Waiting:
        """All that wait at a block."""
        if len(groups) == 1:
            return groups[0]
        samples = np.concatenate([group.samples for group in groups])
        values = [
            np.concatenate(columns) if isinstance(spec, NumberSpec) else self._host.concat(columns)
            for spec, columns in zip(block.takes, zip(*[group.values for group in groups]))
        ]
        return Waiting(samples, values)

    def _computed(self, block: ProgramBlock, group: Waiting) -> dict[int, Any]:
        """All values of a block."""
        values: dict[int, Any] = dict(enumerate(group.values))
        count, host = len(group.samples), self._host
        step: Any
        for step in block.steps:
            kind = type(step)
            if kind is RunNetwork:
                made = host.run(step, [values[place] for place in step.inputs], count)
                values.update(zip(step.outputs, made))
            elif kind is ReadNumber:
                values[step.output] = host.read(values[step.input]).astype(NUMBERS[step.kind])
                for place in step.rivals:
                    rows = host.read(values[place]).reshape(count, -1)
                    self._note(step.line, have_rivals(rows), group.samples)
            elif kind is Calculate:
                operands = [_of(values, place) for place in step.operands]
                if step.op in ORDERED:
                    self._note(step.line, are_near(*operands), group.samples)
                values[step.output] = calculate(step, operands, count)
            elif kind is GiveTensor:
                values[step.output] = host.give(values[step.input], step.dtype)
            else:
                values[step.output] = host.fill(step.constant, count)
        return values

    def _note(self, line: str, are_near: Any, samples: np.ndarray) -> None:
        """Where rounding could have decided otherwise."""
        near = np.broadcast_to(are_near, samples.shape)
        if near.any():
            self._counts.near += [(line, sample) for sample in samples[near].tolist()]

    def _ways(self, number: int, group: Waiting, values: dict[int, Any]):
        end: Any = self._blocks[number].end
        taken = self._counts.taken[number]
        if isinstance(end, Goto):
            taken[0] += len(group.samples)
            return [(end, self._given(end, group.samples, values, None))]
        condition = values[end.condition]
        count = int(np.count_nonzero(condition))
        taken[0] += count
        taken[1] += len(condition) - count
        if count == len(condition):
            return [(end.then, self._given(end.then, group.samples, values, None))]
        if not count:
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


def _of(values: dict[int, Any], place: Any) -> Any:
    return place[0] if isinstance(place, tuple) else values[place]
