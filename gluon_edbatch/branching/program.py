"""A program with the host that runs it: called with a list of samples."""

from typing import Any, List, Sequence, Tuple

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
        each = [self._leaves(number, sample) for number, sample in enumerate(samples)]
        return self._of_one(each[0]) if len(each) == 1 else self._of_many(each)

    def _of_one(self, leaves: List[Any]) -> List[Any]:
        end, found = run_alone(self.graph, self._host, leaves, self._max_steps, self.counts)
        return [unflatten(end.template, iter(found))]

    def _of_many(self, samples: List[List[Any]]) -> List[Any]:
        values = list(map(self._host.concat, zip(*samples)))
        machine = ProgramMachine(self.graph, self._host, self._max_steps, self.counts)
        results: List[Any] = [None] * len(samples)
        for who, end, found in machine.run(values, len(samples)):
            self._finish(who, end, found, results)
        return results

    def report(self) -> ProgramReport:
        """What samples did, in all calls so far."""
        return ProgramReport([(self.graph, self.counts)])

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
