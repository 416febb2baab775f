"""What a user gets: a network with branches over values, as a program for many samples."""

from typing import Any, Dict, List, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from ..branching.graph import Finish, ProgramGraph, TensorSpec
from ..branching.machine import ProgramMachine
from ..brief import brief
from ..errors import ProgramError
from ..subgraph.structure import flatten, unflatten
from .host import MXNetHost
from .lower import lowered
from .optimise import optimise
from .shown import ProgramReport, shown
from .specialise import specialise


def compile_program(
    net: gluon.Block, example: Any, max_steps: int = 10_000, without: Sequence[str] = ()
) -> 'Program':
    """Compile a network whose path depends on values.

    Parameters
    ----------
    net : mxnet.gluon.Block
        For one sample; its ``forward`` may have Python control flow over values.
    example : NDArray, or tuple of arguments
        One sample. Shapes and dtypes of all others are the same.
    max_steps : int, default 10000
        A sample that runs more blocks is taken for one whose loop does not end.
    without : sequence of str
        Passes over the program to leave out (see `optimise.PASSES`).

    Returns
    -------
    Program

    Raises
    ------
    ProgramError
        If there is something that cannot be taken; the message names the line and says what to
        write instead.
    """
    return Program(net, example if isinstance(example, tuple) else (example,), max_steps, without)


class Program:
    """Called with a list of samples, it gives a list of what the network gives for each.

    Parameters
    ----------
    net, example, max_steps, without
        See `compile_program`.
    """

    def __init__(self, net: gluon.Block, example: Tuple[Any, ...], max_steps: int, without):
        self._net, self._max_steps, self._without = net, max_steps, without
        leaves: List[Any] = []
        self._template = flatten(example, mx.nd.NDArray, leaves)
        if not leaves:
            raise ProgramError('the example has no NDArray: a program computes with arrays')
        self._specs = [TensorSpec(leaf.shape, np.dtype(leaf.dtype).name) for leaf in leaves]
        self._ctx = leaves[0].ctx
        self._graphs: Dict[bool, Tuple[ProgramGraph, MXNetHost]] = {}
        self._counts = ProgramReport()
        self._of_mode(False)

    def _of_mode(self, training: bool) -> Tuple[ProgramGraph, MXNetHost]:
        if training not in self._graphs:
            made = specialise(self._net, self._template, self._specs, training, self._ctx)
            optimised = optimise(made.drafts, training, self._without)
            self._counts.effects = optimised.effects
            graph = lowered(optimised.drafts, made.constants, self._template, training)
            self._graphs[training] = graph, MXNetHost(graph, self._ctx)
        return self._graphs[training]

    def __call__(self, samples: Sequence[Any]) -> List[Any]:
        """The results of all samples."""
        if not len(samples):
            raise ProgramError('a program is called with a list of samples, and this one is empty')
        columns = list(zip(*[self._leaves(number, each) for number, each in enumerate(samples)]))
        graph, host = self._of_mode(autograd.is_training())
        values = [column[0] if len(column) == 1 else host.concat(column) for column in columns]
        machine = ProgramMachine(graph, host, self._max_steps)
        results: List[Any] = [None] * len(samples)
        for who, end, found in machine.run(values, len(samples)):
            _finish(host, who, end, found, results)
        self._counts.add(graph, machine)
        return results

    def report(self) -> ProgramReport:
        """What samples did, in all calls so far."""
        return self._counts

    def __str__(self) -> str:
        """The blocks of the program, with the user's lines."""
        return shown(self._of_mode(False)[0])

    def _leaves(self, number: int, sample: Any) -> List[Any]:
        leaves: List[Any] = []
        sample = sample if isinstance(sample, tuple) else (sample,)
        if flatten(sample, mx.nd.NDArray, leaves) != self._template:
            raise ProgramError(f'sample {number} is not like the example: {brief(sample)}')
        for leaf, spec in zip(leaves, self._specs):
            if leaf.shape != spec.shape or np.dtype(leaf.dtype).name != spec.dtype:
                raise ProgramError(
                    f'sample {number} has {np.dtype(leaf.dtype).name}{leaf.shape}, and the example '
                    f'{spec.dtype}{spec.shape}'
                )
        return leaves


def _finish(host: MXNetHost, who: np.ndarray, end: Finish, values, results: List[Any]) -> None:
    """Results of samples that are done."""
    columns = []
    for value in values:
        if isinstance(value, mx.nd.NDArray):
            columns.append(host.split(value, len(value) // len(who), len(who)))
        else:
            columns.append(value.tolist() if isinstance(value, np.ndarray) else [value] * len(who))
    for place, sample in enumerate(who.tolist()):
        results[sample] = unflatten(end.template, iter([column[place] for column in columns]))
