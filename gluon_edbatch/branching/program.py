"""A program with the host that runs it: called with a list of samples."""

from typing import Any, List, Optional, Protocol, Sequence, Tuple

import numpy as np

from ..brief import brief
from ..errors import ProgramError
from .graph import Finish, ProgramGraph, TensorSpec
from .machine import Host, ProgramMachine
from .shown import ProgramReport, shown
from .structure import flatten, unflatten


class SampleHost(Host, Protocol):
    """A host that knows its arrays.

    Attributes
    ----------
    arrays : type
        Of samples and results.
    """

    arrays: Any

    def put(self, array: Any) -> Any:
        """An array of a sample's as the host has it."""


class BranchingProgram:
    """Called with a list of samples, gives the list of their results.

    Parameters
    ----------
    graph : ProgramGraph
    host : SampleHost
    max_steps : int
        A sample that runs more blocks is taken for one whose loop does not end.
    report : ProgramReport, optional
        Where to count.
    """

    def __init__(
        self,
        graph: ProgramGraph,
        host: SampleHost,
        max_steps: int,
        report: Optional[ProgramReport] = None,
    ):
        self.graph, self._host, self._max_steps = graph, host, max_steps
        self._report = report or ProgramReport()

    def __call__(self, samples: Sequence[Any]) -> List[Any]:
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
        running = self.running()
        running.admit(range(len(samples)), samples)
        results: List[Any] = [None] * len(samples)
        while len(running):
            for number, result in running.step():
                results[number] = result
        self._report.add(self.graph, running.machine)
        return results

    def running(self) -> 'RunningProgram':
        """A run that samples may join while it goes on."""
        return RunningProgram(self, self._host, self._max_steps)

    def report(self) -> ProgramReport:
        """What samples did, in all calls so far."""
        return self._report

    def __str__(self) -> str:
        """The blocks of the program, with the user's lines."""
        return shown(self.graph)


class RunningProgram:
    """Samples on their way through a program: others join at its first block, and each leaves when
    it is done.

    Parameters
    ----------
    program : BranchingProgram
    host : SampleHost
    max_steps : int

    Attributes
    ----------
    machine : ProgramMachine
    """

    def __init__(self, program: BranchingProgram, host: SampleHost, max_steps: int):
        self._graph, self._host, self._count = program.graph, host, 0
        self.machine = ProgramMachine(program.graph, host, max_steps)

    def __len__(self) -> int:
        """How many samples are on their way."""
        return self._count

    def admit(self, numbers: Sequence[int], samples: Sequence[Any]) -> None:
        """Let samples join, each known by a number that no other has meanwhile.

        Raises
        ------
        ProgramError
            If one is not like the example that the program was made with; none joins then.
        """
        host = self._host
        columns = list(zip(*[self._leaves(number, each) for number, each in zip(numbers, samples)]))
        values = [column[0] if len(column) == 1 else host.concat(column) for column in columns]
        self.machine.admit(np.array(numbers, np.int64), values)
        self._count += len(samples)

    def step(self) -> List[Tuple[int, Any]]:
        """Run one block; gives number and result of samples that are done.

        Raises
        ------
        ProgramError, StepsError
            See `BranchingProgram`.
        """
        done = self.machine.step()
        if done is None:
            return []
        who, end, found = done
        self._count -= len(who)
        return self._finished(who, end, found)

    def _leaves(self, number: int, sample: Any) -> List[Any]:
        leaves: List[Any] = []
        sample = sample if isinstance(sample, tuple) else (sample,)
        if flatten(sample, self._host.arrays, leaves) != self._graph.arguments:
            raise ProgramError(f'sample {number} is not like the example: {brief(sample)}')
        for leaf, spec in zip(leaves, self._graph.blocks[0].takes):
            found = TensorSpec(tuple(leaf.shape), np.dtype(leaf.dtype).name)
            if found != spec:
                raise ProgramError(
                    f'sample {number} has {found.dtype}{found.shape}, and the example '
                    f'{spec.dtype}{spec.shape}'  # type: ignore[union-attr]
                )
        return list(map(self._host.put, leaves))

    def _finished(
        self, who: np.ndarray, end: Finish, values: Sequence[Any]
    ) -> List[Tuple[int, Any]]:
        """Take the results of samples that are done apart."""
        columns = [self._column(value, spec, len(who)) for value, spec in values]
        return [
            (sample, unflatten(end.template, iter([column[place] for column in columns])))
            for place, sample in enumerate(who.tolist())
        ]

    def _column(self, value: Any, is_tensor: bool, count: int) -> List[Any]:
        if is_tensor:
            return self._host.split(value, len(value) // count, count)
        return value.tolist() if isinstance(value, np.ndarray) else [value] * count


def as_arguments(example: Any) -> Tuple[Any, ...]:
    """One sample as a tuple of arguments."""
    return example if isinstance(example, tuple) else (example,)
