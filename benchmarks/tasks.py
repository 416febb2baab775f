"""Workloads that are tasks of the examples, with their default options but for the widths."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import mxnet as mx
import numpy as np

from example.common.options import parse
from example.common.task import Task

from .contexts import context
from .settings import Settings
from .workloads import Workload

__all__ = ['TaskWorkload']


class TaskWorkload(Workload):
    """A workload of the training samples and the model of an example.

    Attributes
    ----------
    task_class : subclass of Task
    arguments : tuple of str
        Options of the example's command line.
    widths : tuple of str
        Settings that are options of the example, too.
    """

    task_class: ClassVar[type[Task]]
    arguments: ClassVar[tuple[str, ...]] = ()
    widths: ClassVar[tuple[str, ...]] = ('hidden', 'embed')

    def __init__(self, settings: Settings):
        super().__init__(settings)
        names = (*self.widths, 'seed', 'ctx')
        arguments = {name: getattr(settings, name) for name in names}
        if settings.data is not None:
            arguments.update(self.files(Path(settings.data)))
        command = [f'--{name}={value}' for name, value in arguments.items()]
        options, _ = parse(self.task_class, [*self.arguments, *command])
        self.task = self.task_class(options)
        self.samples = self.task.samples['train']

    @abstractmethod
    def files(self, data: Path) -> dict[str, Path]:
        """Return the task's options that name files, for a directory of data sets."""

    @abstractmethod
    def targets(self, sample: Any) -> Sequence[np.ndarray]:
        """Return the arguments of the loss besides the model's output."""

    def build(self):
        return self.task.build(), self.task.criterion()

    def loss(self, net, loss, sample, eager: bool):
        targets = self.targets(sample)
        if eager:
            targets = [mx.nd.array(target, ctx=context(self.settings.ctx)) for target in targets]
        return loss(net(sample), *targets)
