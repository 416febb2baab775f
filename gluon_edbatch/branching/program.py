"""A program with the host that runs it: called with a list of samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..brief import brief
from ..errors import ProgramError
from .alone import run_alone
from .counts import Counts
from .graph import Finish, ProgramGraph, TensorSpec
from .host import Host
from .machine import ProgramMachine
from .shown import ProgramReport, shown
from .structure import flatten, unflatten


class BranchingProgram:
    """Called with a list of samples, gives the list of their results.

    Parameters
    ----------
    graph : ProgramGraph
    host : Host
    max_steps : int
        A sample that runs more blocks is taken for one whose loop does not end.

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
        """The results of all samples, which are NDArrays (or arrays) or tuples of arguments.

        Raises
        ------
        ProgramError
            If a sample is not like the example that the program was made with, or a number that
            decides is not one (NaN); the message says which.
        StepsError
            If a sample runs more than `max_steps` blocks.
        """
        if not len(samples):
            raise ProgramError('a program is called with a list of samples, and this one is empty')
        return self._of_one(samples[0]) if len(samples) == 1 else self._of_many(samples)

    def _of_one(self, sample: Any) -> list[Any]:
        leaves = leaves_of(0, sample, self.graph, self._host)
        end, found = run_alone(self.graph, self._host, leaves, self._max_steps, self.counts)
        return [unflatten(end.template, iter(found))]

    def _of_many(self, samples: Sequence[Any]) -> list[Any]:
        running = self.running()
        running.admit(range(len(samples)), samples)
        results: list[Any] = [None] * len(samples)
        while len(running):
            for number, result in running.step():
                results[number] = result
        return results

    def running(self) -> 'RunningProgram':
        """A run that samples may join while it goes on."""
        return RunningProgram(self, self._host, self._max_steps)

    def report(self) -> ProgramReport:
        """What samples did, in all calls so far."""
        return ProgramReport([(self.graph, self.counts)])

    def __str__(self) -> str:
        """The blocks of the program, with the user's lines."""
        return shown(self.graph)


class RunningProgram:
    """Samples on their way through a program: others join at its first block, and each leaves when
    it is done.

    Parameters
    ----------
    program : BranchingProgram
    host : Host
    max_steps : int

    Attributes
    ----------
    machine : ProgramMachine
    """

    def __init__(self, program: BranchingProgram, host: Host, max_steps: int):
        self._graph, self._host, self._count = program.graph, host, 0
        self.machine = ProgramMachine(program.graph, host, max_steps, program.counts)

    def __len__(self) -> int:
        """How many samples are on their way."""
        return self._count

    @property
    def at_end(self) -> bool:
        """Whether some only wait for their results."""
        return self.machine.at_end

    def admit(self, numbers: Sequence[int], samples: Sequence[Any]) -> None:
        """Let samples join, each known by a number that no other has meanwhile.

        Raises
        ------
        ProgramError
            If one is not like the example that the program was made with; none joins then.
        """
        host = self._host
        columns = list(
            zip(*[leaves_of(*each, self._graph, host) for each in zip(numbers, samples)])
        )
        values = [column[0] if len(column) == 1 else host.concat(column) for column in columns]
        self.machine.admit(np.array(numbers, np.int64), values)
        self._count += len(samples)

    def step(self, ends_first: bool = False) -> list[tuple[int, Any]]:
        """Run one block; gives number and result of samples that are done. With `ends_first` those
        that only wait for their results are first (see `ProgramMachine.step`).

        Raises
        ------
        ProgramError, StepsError
            See `BranchingProgram`.
        """
        done = self.machine.step(ends_first)
        if done is None:
            return []
        who, end, found = done
        self._count -= len(who)
        return self._finished(who, end, found)

    def _finished(
        self, who: np.ndarray, end: Finish, values: Sequence[Any]
    ) -> list[tuple[int, Any]]:
        """Take the results of samples that are done apart."""
        columns = [self._column(value, spec, len(who)) for value, spec in values]
        return [
            (sample, unflatten(end.template, iter([column[place] for column in columns])))
            for place, sample in enumerate(who.tolist())
        ]

    def _column(self, value: Any, is_tensor: bool, count: int) -> list[Any]:
        if is_tensor:
            return self._host.split(value, len(value) // count, count)
        return value.tolist() if isinstance(value, np.ndarray) else [value] * count


def leaves_of(number: int, sample: Any, graph: ProgramGraph, host: Host) -> list[Any]:
    """The arrays of a sample, if it is like the example that the program was made with."""
    leaves: list[Any] = []
    sample = sample if isinstance(sample, tuple) else (sample,)
    if flatten(sample, host.arrays, leaves) != graph.arguments:
        raise ProgramError(f'sample {number} is not like the example: {brief(sample)}')
    for leaf, spec in zip(leaves, graph.blocks[0].takes):
        found = TensorSpec(tuple(leaf.shape), np.dtype(leaf.dtype).name)
        if found != spec:
            raise ProgramError(
                f'sample {number} has {found.dtype}{found.shape}, and the example '
                f'{spec.dtype}{spec.shape}'  # type: ignore[union-attr]
            )
    return list(map(host.put, leaves))


def as_arguments(example: Any) -> tuple[Any, ...]:
    """One sample as a tuple of arguments."""
    return example if isinstance(example, tuple) else (example,)
