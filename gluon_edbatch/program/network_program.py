"""What a user gets: a network with branches over values, as a program for many samples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from ..branching.program_graph import TensorSpec
from ..branching.program_interpreter import ControlFlowProgram, ProgramRun, as_arguments
from ..branching.program_report import ProgramReport
from ..branching.pytree import flatten
from ..errors import ProgramError
from .lower import lowered
from .mxnet_host import MXNetHost
from .optimise import optimise
from .program_bundle import write_program
from .specialise import specialise


def compile_program(
    net: gluon.Block, example: Any, max_steps: int = 10_000, without: Sequence[str] = ()
) -> 'Program':
    """Compile a network whose path depends on values.

    Parameters
    ----------
    net : mxnet.gluon.Block
        For one sample; its ``forward`` may have Python control flow over values. What it reads of
        its attributes is taken as it is now; parameters are read at each call.
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
    return Program(net, example, max_steps, without)


class Program:
    """Called with a list of samples, it gives a list of what the network gives for each.

    Under ``autograd.record()`` it is recorded, as the network would be; in training mode it is
    another program, compiled when it is first called so.

    Parameters
    ----------
    net : gluon.Block
        See `compile_program`, as of the others.
    example : object
        A sample.
    max_steps : int
        Blocks that a sample may run.
    without : sequence of str
        Passes to leave out.

    Raises
    ------
    ProgramError
        See `compile_program`; also if the example has no NDArray.
    """

    def __init__(self, net: gluon.Block, example: Any, max_steps: int, without: Sequence[str]):
        self._net, self._max_steps, self._without = net, max_steps, without
        leaves: list[Any] = []
        self._template = flatten(as_arguments(example), mx.nd.NDArray, leaves)
        if not leaves:
            raise ProgramError('the example has no NDArray: a program computes with arrays')
        self._specs: list[Any] = [
            TensorSpec(leaf.shape, np.dtype(leaf.dtype).name) for leaf in leaves
        ]
        self._ctx = leaves[0].ctx
        self._effects: dict[str, int] = {}
        self._programs: dict[bool, ControlFlowProgram] = {}
        self._of_mode(False)

    def _of_mode(self, training: bool) -> ControlFlowProgram:
        if training not in self._programs:
            drafts, constants = specialise(
                self._net, self._template, self._specs, training, self._ctx
            )
            drafts, self._effects = optimise(drafts, self._without)
            graph = lowered(drafts, constants, self._template, training)
            host = MXNetHost(graph, self._ctx)
            self._programs[training] = ControlFlowProgram(graph, host, self._max_steps)
        return self._programs[training]

    @property
    def inference(self) -> ControlFlowProgram:
        """The program of inference mode."""
        return self._of_mode(False)

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        """The results of all samples.

        Parameters
        ----------
        samples : sequence
            One or more, each as the example was: an NDArray, or a tuple of arguments.

        Returns
        -------
        list
            What the network gives for each, in this order.

        Raises
        ------
        ProgramError
            If a sample is not like the example, there is none, or a number that decides is not one
            (NaN); the message says which.
        StepsError
            If a sample runs more than `max_steps` blocks.
        """
        return self._of_mode(autograd.is_training())(samples)

    def running(self) -> ProgramRun:
        """A run that samples may join while it goes on; for loops of your own, as `serving.Engine`
        has one.

        Returns
        -------
        ProgramRun
            Of the mode that autograd is in now. ``admit(numbers, samples)`` lets samples join, each
            with an int that tells it from others; ``step()`` runs one block and gives the (number,
            result) of each sample that is done by it; ``len()`` is how many are on their way.
            Errors are those of a call.
        """
        return self._of_mode(autograd.is_training()).running()

    def report(self) -> ProgramReport:
        """What samples did, in all calls so far."""
        modes = [(each.graph, each.counts) for each in self._programs.values()]
        return ProgramReport(modes, self._effects)

    def export(self, folder: Union[str, Path], onnx: bool = False, cpp: bool = False) -> Path:
        """Write the program of inference mode as a bundle, with the parameters as they are now.

        Parameters
        ----------
        folder : str or Path
            An earlier bundle there is replaced when all is written.
        onnx : bool, default False
            With each network as ONNX, too, for ``gluon_edbatch_runtime``, which needs no MXNet; the
            package ``onnx``, older than 1.19, writes it.
        cpp : bool, default False
            With the sources of a program in C++ that ``make`` builds there, of g++ and MXNet's
            shared library, and that runs the samples of a file: ``./program --help``.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        BundleError
            If something cannot be written: the message says what. Nothing is written then.
        """
        graph = self.inference.graph
        return write_program(graph, self._max_steps, self._ctx, folder, onnx, cpp)

    def __str__(self) -> str:
        """The blocks of the program, with the user's lines."""
        return str(self.inference)
