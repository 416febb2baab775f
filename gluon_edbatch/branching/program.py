"""A program with the host that runs it: called with a list of samples."""

from typing import Any, List, Optional, Protocol, Sequence, Tuple

import numpy as np

from ..brief import brief
from ..errors import ProgramError
from .graph import Finish, ProgramGraph, TensorSpec, gotos
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

    Attributes
    ----------
    graph : ProgramGraph
    taken : list of list of int
        For each block, how many samples took each of its ways (where there is none, how many were
        done), in all calls so far.
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
        self.taken = [[0] * max(1, len(gotos(block.end))) for block in graph.blocks]

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
        host = self._host
        columns = list(zip(*[self._leaves(number, each) for number, each in enumerate(samples)]))
        values = [column[0] if len(column) == 1 else host.concat(column) for column in columns]
        machine = ProgramMachine(self.graph, host, self._max_steps)
        results: List[Any] = [None] * len(samples)
        for who, end, found in machine.run(values, len(samples)):
            self._finish(who, end, found, results)
        self._report.add(self.graph, machine)
        self._count(machine)
        return results

    def _count(self, machine: ProgramMachine) -> None:
        for taken, ran, chosen in zip(self.taken, machine.ran, machine.chosen):
            for way, count in enumerate(chosen if len(taken) > 1 else [sum(ran)]):
                taken[way] += count

    def report(self) -> ProgramReport:
        """What samples did, in all calls so far."""
        return self._report

    def __str__(self) -> str:
        """The blocks of the program, with the user's lines."""
        return shown(self.graph)

    def _leaves(self, number: int, sample: Any) -> List[Any]:
        leaves: List[Any] = []
        sample = sample if isinstance(sample, tuple) else (sample,)
        if flatten(sample, self._host.arrays, leaves) != self.graph.arguments:
            raise ProgramError(f'sample {number} is not like the example: {brief(sample)}')
        for leaf, spec in zip(leaves, self.graph.blocks[0].takes):
            found = TensorSpec(tuple(leaf.shape), np.dtype(leaf.dtype).name)
            if found != spec:
                raise ProgramError(
                    f'sample {number} has {found.dtype}{found.shape}, and the example '
                    f'{spec.dtype}{spec.shape}'  # type: ignore[union-attr]
                )
        return list(map(self._host.put, leaves))

    def _finish(
        self, who: np.ndarray, end: Finish, values: Sequence[Any], results: List[Any]
    ) -> None:
        """Take the results of samples that are done apart."""
        columns = [self._column(value, spec, len(who)) for value, spec in values]
        for place, sample in enumerate(who.tolist()):
            leaves = iter([column[place] for column in columns])
            results[sample] = unflatten(end.template, leaves)

    def _column(self, value: Any, is_tensor: bool, count: int) -> List[Any]:
        if is_tensor:
            return self._host.split(value, len(value) // count, count)
        return value.tolist() if isinstance(value, np.ndarray) else [value] * count


def as_arguments(example: Any) -> Tuple[Any, ...]:
    """One sample as a tuple of arguments."""
    return example if isinstance(example, tuple) else (example,)
