"""The interface of an example's training program."""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Optional

import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

import gluon_edbatch as edb

__all__ = ['SPLITS', 'Objective', 'Task']

SPLITS = ('train', 'dev', 'test')


class Task(ABC):
    """Data, model, loss and figures of an example; everything is written for one sample.

    A task is made with the options of the command line and, to continue from a checkpoint, with its
    `state` then. It reads its data, sets `samples`, and sets options whose defaults depend on the
    data.

    Attributes
    ----------
    name : str
        Name of the example; a checkpoint keeps it.
    description : str
        For ``--help``.
    sample : Path
        Directory of the embedded sample, the default of ``--data``.
    layout : str
        What a data directory holds, for ``--help``.
    unit, units : str
        Nouns for one sample, and for many.
    batched : bool
        Whether a scope batches the calls of minibatches. Otherwise `loss_all` computes many samples
        together, and there are no options about scopes.
    columns : dict
        Field of the figures -> its heading in the final table.
    best_by : str
        The field by which the best epoch is chosen; more is better.
    optimizer : str
        Optimizer of `gluon.Trainer`.
    optimizer_options : dict
        Options of the optimizer beyond learning rate and weight decay.
    defaults : dict
        Defaults of options, where they differ from those in ``options.py``.
    shape, training, paths : tuple of str
        Options that a checkpoint keeps: those for the shape of the model, those that must not
        change within a run, and names of files.
    samples : dict
        Split -> list of samples: ``train``, ``dev`` and, where the data has one, ``test``.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    sample: ClassVar[Path]
    layout: ClassVar[str]
    unit: ClassVar[str] = 'sample'
    units: ClassVar[str] = 'samples'
    batched: ClassVar[bool] = True
    columns: ClassVar[dict[str, str]]
    best_by: ClassVar[str]
    optimizer: ClassVar[str] = 'adam'
    optimizer_options: ClassVar[dict[str, Any]] = {}
    defaults: ClassVar[dict[str, Any]] = {}
    shape: ClassVar[tuple[str, ...]] = ('hidden',)
    training: ClassVar[tuple[str, ...]] = ('lr', 'weight_decay', 'batch_size', 'seed')
    paths: ClassVar[tuple[str, ...]] = ('data',)

    samples: dict[str, list[Any]]

    @classmethod
    def add_options(cls, data, model) -> None:
        """Add the task's own options to two groups of an `argparse.ArgumentParser`."""

    @classmethod
    def add_run_options(cls, running) -> None:
        """Add options for how the task runs to their group."""

    @abstractmethod
    def __init__(self, options: argparse.Namespace, state: Optional[dict[str, Any]] = None):
        """Read the data, with the vocabularies of `state` if it is given."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep besides parameters, vocabularies above all; JSON."""

    @abstractmethod
    def build(self) -> gluon.Block:
        """Return a new model, initialised on ``options.ctx`` after ``options.seed``."""

    @abstractmethod
    def criterion(self) -> gluon.HybridBlock:
        """Return the block that compares the model's output with the target."""

    @abstractmethod
    def loss(self, net: gluon.Block, criterion: gluon.HybridBlock, sample: Any) -> NDArray:
        """Return the loss of one sample: (r,), to be summed over its r parts."""

    def loss_all(
        self, net: gluon.Block, criterion: gluon.HybridBlock, samples: Sequence[Any]
    ) -> Sequence[NDArray]:
        """Return `loss` of each sample of a minibatch. Override it if what a sample does depends on
        values in training, too (`gluon_edbatch.run_concurrently`)."""
        return [self.loss(net, criterion, sample) for sample in samples]

    def costs(self, objective: 'Objective', samples: Sequence[Any]) -> np.ndarray:
        """Return the training cost of each sample, (len(samples),), by which workers divide them:
        by default its recorded calls. Override it if a sample's path depends on values, which would
        have to be computed."""
        return edb.data.recorded_calls(lambda sample: objective([sample]), samples)

    @abstractmethod
    def predict(self, net: gluon.Block, sample: Any) -> NDArray:
        """Return the model's output for one sample: (r, ...), any number of rows."""

    def predict_all(self, net: gluon.Block, samples: Sequence[Any]) -> Sequence[NDArray]:
        """Return `predict` for a minibatch: the rows of all samples, in one array or more. Override
        it if what a sample does depends on values (`gluon_edbatch.run_concurrently`)."""
        return [self.predict(net, sample) for sample in samples]

    @abstractmethod
    def measure(self, rows: np.ndarray, samples: Sequence[Any]) -> NamedTuple:
        """Return figures of some samples, from the rows of `predict` of all of them in order.

        The figures print themselves (``str``) in one line of an epoch.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the program's text on vocabulary and model at the start."""

    def conclude(self, net: gluon.Block) -> Iterator[str]:
        """Do what else the options ask for with the trained model, and yield lines about it."""
        return iter(())


class Objective(edb.AutoBatchMixin, gluon.Block):
    """The losses of a minibatch as a model: it takes targets as NumPy arrays, eagerly, too."""

    def __init__(self, task: Task, net: gluon.Block, **kwargs):
        super().__init__(**kwargs)
        self.net = net
        self.criterion = task.criterion()
        self._losses = task.loss_all

    def forward(self, samples):
        """Return the loss (r,) of each sample."""
        return self._losses(self.net, self.criterion, samples)
