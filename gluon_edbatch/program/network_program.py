"""The user's interface: a network with branches over values, as a program for many samples."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import mxnet as mx
from mxnet import autograd, gluon

from gluon_edbatch_core.branching.program_graph import spec_of_array
from gluon_edbatch_core.branching.program_interpreter import (
    ControlFlowProgram,
    ProgramRun,
    as_arguments,
)
from gluon_edbatch_core.branching.program_report import ProgramReport
from gluon_edbatch_core.branching.pytree import flatten
from gluon_edbatch_core.errors import ProgramError

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
        A network for one sample; its ``forward`` may have Python control flow over values.
        Attributes that it reads are constants from now on; parameters are read at each call.
    example : NDArray, or tuple of arguments
        One sample. All other samples have its shapes and dtypes.
    max_steps : int, default 10000
        A sample that runs more blocks raises a StepsError, as its loop may not end.
    without : sequence of str
        Passes over the program to leave out (see `optimise.PASSES`).

    Returns
    -------
    Program

    Raises
    ------
    ProgramError
        If the code has something that cannot be compiled; the message names the line and says what
        to write instead.
    """
    return Program(net, example, max_steps, without)


class Program:
    """A compiled network: call it with a list of samples to get a list of the network's results.

    Under ``autograd.record()`` a call is recorded, as the network's would be. Training mode has its
    own program, compiled at the first such call.

    Parameters
    ----------
    net : gluon.Block
        The network, see `compile_program`.
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
        self._specs: list[Any] = list(map(spec_of_array, leaves))
        self._ctx = leaves[0].ctx
        self._effects: dict[str, int] = {}
        self._programs: dict[bool, ControlFlowProgram] = {}
        self._of_mode(False)

    def _of_mode(self, training: bool) -> ControlFlowProgram:
        if training not in self._programs:
            blocks = specialise(self._net, self._template, self._specs, training, self._ctx)
            blocks, self._effects = optimise(blocks, self._without)
            graph = lowered(blocks, self._template, training)
            host = MXNetHost(graph, self._ctx)
            self._programs[training] = ControlFlowProgram(graph, host, self._max_steps)
        return self._programs[training]

    @property
    def inference(self) -> ControlFlowProgram:
        """The program of inference mode."""
        return self._of_mode(False)

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        """Return the results of all samples.

        Parameters
        ----------
        samples : sequence
            One or more samples like the example: an NDArray, or a tuple of arguments.

        Returns
        -------
        list
            The network's result for each sample, in order.

        Raises
        ------
        ProgramError
            If a sample is not like the example, there are no samples, or a number that decides is
            NaN; the message says which.
        StepsError
            If a sample runs more than `max_steps` blocks.
        """
        return self._of_mode(autograd.is_training())(samples)

    def running(self) -> ProgramRun:
        """Return a run that samples may join while it goes on, for your own loops.

        Returns
        -------
        ProgramRun
            A run in autograd's present mode. ``admit(numbers, samples)`` lets samples join, each
            with a distinct int. ``step()`` runs one block and returns (number, result) of each
            sample that is finished by it. ``len()`` is the number of unfinished samples. Errors are
            those of a call.
        """
        return self._of_mode(autograd.is_training()).running()

    def report(self) -> ProgramReport:
        """Return what samples did, in all calls so far."""
        modes = [(each.graph, each.counts) for each in self._programs.values()]
        return ProgramReport(modes, self._effects)

    def export(self, folder: Union[str, Path], onnx: bool = False, cpp: bool = False) -> Path:
        """Deprecated: call ``edb.export(program, folder)``, which writes the same bundle.

        Parameters
        ----------
        folder : str or Path
            Where the bundle is written.
        onnx : bool, default False
            Whether to write each network as ONNX, too.
        cpp : bool, default False
            Whether to write sources of a C++ program.

        Returns
        -------
        Path
            The folder.
        """
        told = 'program.export() is deprecated: call edb.export(program, folder, onnx=..., cpp=...)'
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        return write_program(self.inference, self._ctx, folder, onnx, cpp)

    def __str__(self) -> str:
        """Return the blocks of the program as text, with the user's lines."""
        return str(self.inference)
