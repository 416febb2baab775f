"""Run programs: samples regroup at every branch, and a single sample takes a fast path.

Samples wait at blocks, with their values. The first block of the program with waiting samples runs
for all of them; then they wait where their conditions lead. So samples that skip something wait for
the others where paths meet, and finished samples leave. NumPy only: a host computes.

A single sample never waits, and its numbers are Python's own: arrays would take several calls of
NumPy for each number. So a branch costs no more than in the user's own code.
"""

import operator
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from ..errors import ProgramError, StepsError
from ..short_repr import brief
from .host_arithmetic import NUMBERS, ORDERED, are_near, calculate, have_near_ties
from .program_graph import (
    Calculate,
    Choose,
    Finish,
    GiveTensor,
    Goto,
    NumberSpec,
    ProgramBlock,
    ProgramGraph,
    ReadNumber,
    RunNetwork,
    TensorSpec,
    spec_of_array,
)
from .program_host import Host
from .program_report import Counts, ProgramReport, pretty_program
from .pytree import flatten, unflatten

# What Python computes as `calculate` does, of numbers that are `_plain`.
_QUICK: dict[str, Callable] = {
    name: getattr(operator, name) for name in 'add sub mul lt le gt ge eq ne'.split()
}
_EXACT = 2**53  # smaller integers are the same as float64
_PYTHON: dict[str, Callable] = {'float': float, 'int': int, 'bool': bool}


class ControlFlowProgram:
    """Run a control-flow graph on a host: called with a list of samples, return the list of their
    results.

    Parameters
    ----------
    graph : ProgramGraph
    host : Host
    max_steps : int
        A sample that runs more blocks raises a StepsError, as its loop may not end.

    Attributes
    ----------
    graph : ProgramGraph
    counts : Counts
        What samples did in all calls so far.
    """

    def __init__(self, graph: ProgramGraph, host: Host, max_steps: int):
        self.graph, self._host, self._max_steps = graph, host, max_steps
        self.counts = Counts(graph)

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        """Return the results of all samples, which are NDArrays (or arrays) or tuples of arguments.

        Raises
        ------
        ProgramError
            If a sample is not like the example that the program was made with, or a number that
            decides is NaN; the message says which.
        StepsError
            If a sample runs more than `max_steps` blocks.
        """
        if not len(samples):
            raise ProgramError('a program is called with a list of samples, and this one is empty')
        if len(samples) == 1:
            return [self._result_of_one(samples[0])]
        running = self.running()
        running.admit(range(len(samples)), samples)
        results: list[Any] = [None] * len(samples)
        while len(running):
            for number, result in running.step():
                results[number] = result
        return results

    def _result_of_one(self, sample: Any) -> Any:
        counts, blocks, number = self.counts, self.graph.blocks, 0
        given = leaves_of(0, sample, self.graph, self._host)
        counts.samples += 1
        for _ in range(self._max_steps):
            block = blocks[number]
            counts.runs += 1
            values = _computed(block, given, None, self._host, counts)
            end: Any = block.end
            if type(end) is Finish:
                counts.taken[number][0] += 1
                return unflatten(end.template, iter([_of(values, each) for each in end.values]))
            way = 0 if type(end) is Goto or values[end.condition] else 1
            counts.taken[number][way] += 1
            to = (end.then, end.other)[way] if type(end) is Choose else end
            number = to.block
            given = [
                _PYTHON[spec.kind](place[0]) if type(place) is tuple else values[place]  # type: ignore
                for place, spec in zip(to.values, blocks[number].takes)
            ]
        raise _too_many(self._max_steps, blocks[number])

    def running(self) -> 'ProgramRun':
        """Return a run that samples may join while it goes on."""
        return ProgramRun(self.graph, self._host, self._max_steps, self.counts)

    def report(self) -> ProgramReport:
        """Return what samples did, in all calls so far."""
        return ProgramReport([(self.graph, self.counts)])

    def __str__(self) -> str:
        """Return the blocks of the program as text, with the user's lines."""
        return pretty_program(self.graph)


class _Waiting(NamedTuple):
    """Samples that wait at a block, and the values that they have for it."""

    samples: np.ndarray
    values: list[Any]


class ProgramRun:
    """Samples running through a program: others join at its first block, and finished ones leave.
    `latest` are the samples of the last run of a block."""

    def __init__(self, graph: ProgramGraph, host: Host, max_steps: int, counts: Counts):
        self._graph, self._blocks, self._host = graph, graph.blocks, host
        self._max_steps, self._counts, self._count = max_steps, counts, 0
        self._waiting: dict[int, list[_Waiting]] = {}
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

    def __len__(self) -> int:
        """Return how many samples are not finished."""
        return self._count

    @property
    def at_end(self) -> bool:
        """Return whether samples wait at a block that only returns results."""
        return not self._ends.isdisjoint(self._waiting)

    def admit(self, numbers: Sequence[int], samples: Sequence[Any]) -> None:
        """Let samples join, each with a number that no other running sample has. Raise ProgramError
        if one is not like the example that the program was made with; none joins then."""
        host = self._host
        columns = zip(*[leaves_of(*each, self._graph, host) for each in zip(numbers, samples)])
        values = [column[0] if len(column) == 1 else host.concat(column) for column in columns]
        joining = np.array(numbers, np.int64)
        most = int(joining.max()) + 1
        if most > len(self._steps):
            self._steps = np.append(self._steps, np.zeros(2 * most, np.int64))
        self._steps[joining] = 0
        self._counts.samples += len(samples)
        self._count += len(samples)
        self._waiting.setdefault(0, []).append(_Waiting(joining, values))

    def step(self, ends_first: bool = False) -> list[tuple[int, Any]]:
        """Run the first block with waiting samples; return number and result of finished samples.
        With `ends_first`, blocks that only return results run first, so samples there need not
        wait. Raises as `ControlFlowProgram` does."""
        ends = self._ends.intersection(self._waiting) if ends_first else ()
        number = min(ends or self._waiting)
        block = self._blocks[number]
        group = self._together(block, self._waiting.pop(number))
        self.latest = group.samples
        self._steps[group.samples] += 1
        if self._steps[group.samples].max() > self._max_steps:
            raise _too_many(self._max_steps, block)
        self._counts.runs += 1
        made = _computed(block, group.values, group.samples, self._host, self._counts)
        if isinstance(block.end, Finish):
            self._counts.taken[number][0] += len(group.samples)
            self._count -= len(group.samples)
            return self._finished(block, group.samples, made)
        for to, chosen in self._ways(number, group, made):
            self._waiting.setdefault(to.block, []).append(chosen)
        return []

    def _together(self, block: ProgramBlock, groups: list[_Waiting]) -> _Waiting:
        """Join all samples that wait at a block."""
        if len(groups) == 1:
            return groups[0]
        samples = np.concatenate([group.samples for group in groups])
        values = [
            np.concatenate(columns) if isinstance(spec, NumberSpec) else self._host.concat(columns)
            for spec, columns in zip(block.takes, zip(*[group.values for group in groups]))
        ]
        return _Waiting(samples, values)

    def _ways(self, number: int, group: _Waiting, values: dict[int, Any]):
        end: Any = self._blocks[number].end
        taken = self._counts.taken[number]
        if isinstance(end, Goto):
            taken[0] += len(group.samples)
            return [(end, self._given(end, group.samples, values, None))]
        condition, ways = values[end.condition], []
        for way, (to, goes) in enumerate(((end.then, condition), (end.other, ~condition))):
            chosen = np.flatnonzero(goes)
            taken[way] += len(chosen)
            if len(chosen) == len(condition):
                ways.append((to, self._given(to, group.samples, values, None)))
            elif len(chosen):
                ways.append((to, self._given(to, group.samples[chosen], values, chosen)))
        return ways

    def _given(
        self, to: Goto, samples: np.ndarray, values, chosen: Optional[np.ndarray]
    ) -> _Waiting:
        """Return what goes on to a block; `chosen` are positions among the samples that ran."""
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
        return _Waiting(samples, taken)

    def _finished(
        self, block: ProgramBlock, who: np.ndarray, values: dict[int, Any]
    ) -> list[tuple[int, Any]]:
        """Split the results of finished samples."""
        numbers = {place for place, spec in enumerate(block.takes) if isinstance(spec, NumberSpec)}
        numbers.update(
            [step.output for step in block.steps if isinstance(step, (ReadNumber, Calculate))]
        )
        end: Any = block.end
        columns = []
        for place in end.values:
            value = _of(values, place)
            if isinstance(place, tuple) or (place in numbers and not isinstance(value, np.ndarray)):
                columns.append([value] * len(who))
            elif place in numbers:
                columns.append(value.tolist())
            else:
                columns.append(self._host.split(value, len(value) // len(who), len(who)))
        return [
            (sample, unflatten(end.template, iter([column[place] for column in columns])))
            for place, sample in enumerate(who.tolist())
        ]


def _computed(
    block: ProgramBlock,
    given: Sequence[Any],
    samples: Optional[np.ndarray],
    host: Host,
    counts: Counts,
) -> dict[int, Any]:
    """Compute all values of a block; without `samples`, for one sample with Python's numbers."""
    values: dict[int, Any] = dict(enumerate(given))
    count = 1 if samples is None else len(samples)
    step: Any
    for step in block.steps:
        kind = type(step)
        if kind is RunNetwork:
            made = host.run(step, [values[place] for place in step.inputs], count)
            values.update(zip(step.outputs, made))
        elif kind is ReadNumber:
            numbers = host.read(values[step.input]).astype(NUMBERS[step.kind])
            values[step.output] = numbers.item() if samples is None else numbers
            for place in step.rivals:
                rows = host.read(values[place]).reshape(count, -1)
                _note(counts, step.line, have_near_ties(rows), samples)
        elif kind is Calculate:
            operands = [_of(values, place) for place in step.operands]
            if step.op in ORDERED:
                _note(counts, step.line, are_near(*operands), samples)
            values[step.output] = (
                _calculated_alone(step, operands)
                if samples is None
                else calculate(step, operands, count)
            )
        elif kind is GiveTensor:
            numbers = values[step.input]
            numbers = np.array([numbers]) if samples is None else numbers
            values[step.output] = host.give(numbers, step.dtype)
        else:
            values[step.output] = host.fill(step.constant, count)
    return values


def _note(counts: Counts, line: str, are_near: Any, samples: Optional[np.ndarray]) -> None:
    """Note comparisons that rounding could have decided otherwise."""
    if samples is None:
        if are_near:
            counts.near.append((line, 0))
        return
    near = np.broadcast_to(are_near, samples.shape)
    if near.any():
        counts.near += [(line, sample) for sample in samples[near].tolist()]


def _calculated_alone(step: Calculate, operands: list[Any]) -> Any:
    """Compute a number of one sample, by Python where that equals `calculate`."""
    quick = _QUICK.get(step.op)
    if quick is not None and all(map(_plain, operands)):
        found = quick(*operands)
        if type(found) is not int or -_EXACT < found < _EXACT:
            return found
    arrays = [
        operand if isinstance(place, tuple) else np.array([operand])
        for place, operand in zip(step.operands, operands)
    ]
    return calculate(step, arrays, 1).item()


def _plain(number: Any) -> bool:
    """Return whether a number is a float but not NaN, or a small integer."""
    kind = type(number)
    return number == number if kind is float else kind is int and -_EXACT < number < _EXACT


def _of(values: dict[int, Any], place: Any) -> Any:
    return place[0] if isinstance(place, tuple) else values[place]


def _too_many(max_steps: int, block: ProgramBlock) -> StepsError:
    return StepsError(
        f'a sample ran more than {max_steps} blocks, the last at {block.name}: '
        f'a loop that does not end, or max_steps is to be larger'
    )


def leaves_of(number: int, sample: Any, graph: ProgramGraph, host: Host) -> list[Any]:
    """Return the arrays of a sample; raise unless it is like the program's example."""
    leaves: list[Any] = []
    sample = as_arguments(sample)
    if flatten(sample, host.arrays, leaves) != graph.arguments:
        raise ProgramError(f'sample {number} is not like the example: {brief(sample)}')
    for leaf, spec in zip(leaves, graph.blocks[0].takes):
        found = spec_of_array(leaf)
        if found != spec:
            raise ProgramError(
                f'sample {number} has {found.dtype}{found.shape}, and the example '
                f'{spec.dtype}{spec.shape}'  # type: ignore[union-attr]
            )
    return leaves


def as_arguments(example: Any) -> tuple[Any, ...]:
    """Return a sample as a tuple of arguments."""
    return example if isinstance(example, tuple) else (example,)
