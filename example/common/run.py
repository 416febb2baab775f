"""One training run: task, model, trainer, and what was measured."""

import argparse
import contextlib
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from tqdm import tqdm

import gluon_edbatch as edb

from . import checkpoint as checkpoints
from .checkpoint import Checkpoint
from .options import saved_options
from .task import Objective, Task

__all__ = ['Run']


class Run:
    """Task, model and trainer of one run, and what it has measured so far.

    Parameters
    ----------
    task : subclass of Task
        What to train.
    options : argparse.Namespace
        The command line.
    found : Checkpoint, optional
        Where to go on from.
    """

    def __init__(
        self, task: Type[Task], options: argparse.Namespace, found: Optional[Checkpoint] = None
    ):
        self.options = options
        self.task = task(options, found.state if found else None)
        self.net = self.task.build()
        self.objective = Objective(self.task, self.net)
        if options.unbatched:  # as fast as one sample at a time gets
            self.objective.hybridize()
        self.trainer = gluon.Trainer(
            self.net.collect_params(),
            task.optimizer,
            {'learning_rate': options.lr, 'wd': options.weight_decay, **task.optimizer_options},
        )
        self.history: List[Dict[str, float]] = []
        self.epochs_saved = 0
        self.best = (0, checkpoints.parameter_arrays(self.net))
        self.scope = None  # of the last minibatch, for its report
        if found is not None:
            self._go_on_from(found)

    def train(self) -> None:
        """Train what is missing of all epochs; afterwards the network is the best of them."""
        by = self.task.best_by
        for epoch in range(len(self.history) + 1, self.options.epochs + 1):
            loss, speed = self.train_epoch(epoch)
            dev, _ = self.evaluate('dev')
            self.history.append(
                {'epoch': epoch, 'loss': loss, 'samples_per_s': speed, **dev._asdict()}
            )
            if epoch == 1 or getattr(dev, by) > self.history[self.best[0] - 1][by]:
                self.best = (epoch, checkpoints.parameter_arrays(self.net))
            if self.options.checkpoint is not None:
                self.save()
            print(
                f'epoch {epoch:3d}  loss {loss:.4f}  dev {dev}  {speed:7.1f} samples/s', flush=True
            )
        checkpoints.set_parameters(self.net, self.best[1])

    def train_epoch(self, epoch: int) -> Tuple[float, float]:
        """One pass over the training samples: their mean loss, and samples a second."""
        samples = self.task.samples['train']
        seed = [self.options.seed, epoch]  # of each epoch alone, so that a run can be resumed
        order = np.random.RandomState(seed).permutation(len(samples))
        mx.random.seed(int(np.random.RandomState(seed).randint(2**31)))
        size = self.options.batch_size
        losses: List[Tuple[mx.nd.NDArray, int]] = []
        begin = time.perf_counter()
        with self._bar(f'epoch {epoch}/{self.options.epochs}', len(samples)) as bar:
            for start in range(0, len(samples), size):
                minibatch = [samples[i] for i in order[start : start + size]]
                losses.append((self.step(minibatch), len(minibatch)))
                bar.update(len(minibatch))
                if not bar.disable and len(losses) % self.options.log_interval == 0:
                    bar.set_postfix(loss=f'{losses[-1][0].asscalar():.4f}')
            # Read only now: to wait for each loss would keep the next minibatch from starting.
            total = sum(float(loss.asscalar()) * count for loss, count in losses)
        speed = len(samples) / (time.perf_counter() - begin)
        if not np.isfinite(total):
            raise FloatingPointError(f'the loss of epoch {epoch} is {total}; try a smaller --lr')
        return total / len(samples), speed

    def step(self, minibatch: Sequence[Any]) -> mx.nd.NDArray:
        """One update of the parameters; gives the minibatch's mean loss."""
        with autograd.record():
            with self.batching() as scope:
                losses = self.objective(minibatch)
            loss = edb.concat(losses).sum() / len(minibatch)
        loss.backward()
        self.trainer.step(1, ignore_stale_grad=True)  # not every minibatch meets every cell
        self.scope = scope
        return loss.detach()

    def evaluate(self, split: str) -> Tuple[NamedTuple, float]:
        """Figures of the network on a split, and samples a second."""
        samples = self.task.samples[split]
        size = self.options.eval_batch_size
        outputs = []
        begin = time.perf_counter()
        with self._bar(split, len(samples)) as bar:
            for start in range(0, len(samples), size):
                minibatch = samples[start : start + size]
                with self.batching() as scope:
                    results = self.task.predict_all(self.net, minibatch)
                outputs.append(edb.concat(results))
                bar.update(len(minibatch))
            rows = np.concatenate([part.asnumpy() for part in outputs])
        speed = len(samples) / (time.perf_counter() - begin)
        if self.options.mode == 'infer':
            self.scope = scope
        return self.task.measure(rows, samples), speed

    def batching(self):
        """The scope in which the model's calls are batched; none with --unbatched."""
        if self.options.unbatched:
            return contextlib.nullcontext()
        if self.options.scheduler is None:
            return edb.batching()
        return edb.batching(scheduler=self.options.scheduler)

    def save(self) -> None:
        """Write the checkpoint."""
        checkpoints.save(
            self.options.checkpoint,
            Checkpoint(
                task=self.task.name,
                options=saved_options(type(self.task), self.options),
                state=self.task.state(),
                history=self.history,
                parameters=checkpoints.parameter_arrays(self.net),
                best_epoch=self.best[0],
                best_parameters=self.best[1],
                trainer=checkpoints.trainer_states(self.trainer),
            ),
        )
        self.epochs_saved = len(self.history)

    def _go_on_from(self, found: Checkpoint) -> None:
        self.history = list(found.history)
        self.epochs_saved = len(self.history)
        self.best = (found.best_epoch, found.best_parameters)
        training = self.options.mode == 'train'
        checkpoints.set_parameters(
            self.net, found.parameters if training else found.best_parameters
        )
        if training:
            checkpoints.restore_trainer(self.trainer, found.trainer)

    def _bar(self, what: str, total: int) -> tqdm:
        """A progress bar, where somebody can see it."""
        return tqdm(total=total, desc=what, unit=self.task.unit, leave=False, disable=None)
