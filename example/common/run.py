"""Train: task, model, trainer, and measurements of one run."""

import argparse
import contextlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd

import gluon_edbatch as edb
from gluon_edbatch.data import BalancedSampler
from gluon_edbatch.distributed import Trainer, Workers, connect

from . import checkpoint as checkpoints
from .checkpoint import Checkpoint, Place
from .errors import OptionError
from .options import saved_options
from .progress import progress_bar
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
        Where to continue from.
    workers : gluon_edbatch.distributed.Workers, optional
        Workers that train together; by default this process alone.
    """

    def __init__(
        self,
        task: type[Task],
        options: argparse.Namespace,
        found: Optional[Checkpoint] = None,
        workers: Optional[Workers] = None,
    ):
        self.options = options
        self.workers = workers or connect()
        self.task = task(options, found.state if found else None)
        self.net = self.task.build()
        self.objective = Objective(self.task, self.net)
        if options.unbatched:  # as fast as one sample at a time gets
            self.objective.hybridize()
        self.trainer = Trainer(
            self.net.collect_params(),
            task.optimizer,
            {'learning_rate': options.lr, 'wd': options.weight_decay, **task.optimizer_options},
            workers=self.workers,
        )
        self.sampler = self._make_sampler() if options.mode == 'train' else None
        self.history: list[dict[str, float]] = []
        self.epochs_saved = 0
        self.best = (0, checkpoints.parameter_arrays(self.net))
        self.scope = None  # of the last minibatch, for its report
        self._place: Optional[Place] = None
        if found is not None:
            self._go_on_from(found)

    def train(self) -> None:
        """Train the remaining epochs; afterwards the network is the best of all."""
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

    def train_epoch(self, epoch: int) -> tuple[float, float]:
        """Run one pass over the training samples; return their mean loss, and samples a second."""
        samples, joined = self.task.samples['train'], self.sampler.joined_sizes
        place, self._place = self._place or Place(0, self.workers.size, 0.0), None
        self._seed(epoch, place.steps)
        minibatches = self.sampler.epoch(epoch)[place.steps :]
        losses: list[tuple[mx.nd.NDArray, int]] = []
        total, done = place.loss, sum(joined[: place.steps])
        begin = time.perf_counter()
        with self._bar(f'epoch {epoch}/{self.options.epochs}', len(samples)) as bar:
            bar.update(done)
            for steps, indices in enumerate(minibatches, place.steps + 1):
                count = joined[steps - 1]
                losses.append((self.step([samples[i] for i in indices], count), count))
                bar.update(count)
                if not bar.disable and len(losses) % self.options.log_interval == 0:
                    bar.set_postfix(loss=f'{losses[-1][0].asscalar():.4f}')
                if self._is_to_be_saved(steps):
                    total += self._sum(losses)
                    losses.clear()
                    self.save(Place(steps, self.workers.size, total))
                    self._seed(epoch, steps)
            total += self._sum(losses)
        speed = (len(samples) - done) / (time.perf_counter() - begin)
        if not np.isfinite(total):
            raise FloatingPointError(f'the loss of epoch {epoch} is {total}; try a smaller --lr')
        return total / len(samples), speed

    def step(self, minibatch: Sequence[Any], joined: Optional[int] = None) -> mx.nd.NDArray:
        """Update the parameters once; return the minibatch's part of the mean loss.

        Parameters
        ----------
        minibatch : sequence
            This worker's samples.
        joined : int, optional
            Number of samples of all workers; by default there are no others.
        """
        with autograd.record():
            with self.batching() as scope:
                losses = self.objective(minibatch)
            loss = edb.concat(losses).sum() / (joined or len(minibatch))
        loss.backward()
        self.trainer.step(1, ignore_stale_grad=True)  # not every minibatch meets every cell
        self.scope = scope
        return loss.detach()

    def _make_sampler(self) -> BalancedSampler:
        samples, workers = self.task.samples['train'], self.workers
        balanced = workers.size > 1 and self.options.shards == 'balanced'
        try:
            return BalancedSampler(
                self.task.costs(self.objective, samples) if balanced else len(samples),
                self.options.batch_size,
                num_workers=workers.size,
                rank=workers.rank,
                seed=self.options.seed,
            )
        except ValueError as error:
            raise OptionError(f'--kvstore {self.options.kvstore}: {error}') from None

    def _seed(self, epoch: int, steps: int) -> None:
        """Seed noise for each epoch alone, so that a run can be resumed, and for each worker."""
        seed = [self.options.seed, epoch]
        if steps or self.workers.rank:
            seed += [steps, self.workers.rank]
        mx.random.seed(int(np.random.RandomState(seed).randint(2**31)))

    def _is_to_be_saved(self, steps: int) -> bool:
        every = self.options.checkpoint_steps
        last = steps == len(self.sampler)  # the epoch's own checkpoint is about to come
        return bool(every and not steps % every and not last)

    def _sum(self, losses: Sequence[tuple[mx.nd.NDArray, int]]) -> float:
        """Return the sum over all samples of all workers. It is read only now: waiting for each
        loss would keep the next minibatch from starting."""
        own = sum(float(loss.asscalar()) * count for loss, count in losses)
        return float(self.workers.sum_numbers(np.array([own], np.float64))[0])

    def evaluate(self, split: str) -> tuple[NamedTuple, float]:
        """Return figures of the network on a split, and samples a second."""
        samples, size = self.task.samples[split], self.options.eval_batch_size
        share = self._share(len(samples))
        outputs = []
        begin = time.perf_counter()
        with self._bar(split, len(share)) as bar:
            for start in share[::size]:
                minibatch = samples[start : min(start + size, share.stop)]
                with self.batching() as scope:
                    results = self.task.predict_all(self.net, minibatch)
                outputs.append(edb.concat(results))
                bar.update(len(minibatch))
            rows = np.concatenate([part.asnumpy() for part in outputs])
            if len(share) < len(samples):
                rows = self.workers.gather(rows)
        speed = len(samples) / (time.perf_counter() - begin)
        if self.options.mode == 'infer':
            self.scope = scope
        return self.task.measure(rows, samples), speed

    def _share(self, count: int) -> range:
        """Return the samples that this worker evaluates: all, if there are too few to be
        divided."""
        workers = self.workers
        if count < workers.size:
            return range(count)
        return range(
            count * workers.rank // workers.size, count * (workers.rank + 1) // workers.size
        )

    def batching(self):
        """Return the scope in which the model's calls are batched; none with --unbatched."""
        if self.options.unbatched:
            return contextlib.nullcontext()
        if self.options.scheduler is None:
            return edb.batching()
        return edb.batching(scheduler=self.options.scheduler)

    def save(self, place: Optional[Place] = None) -> None:
        """Write the checkpoint, maybe within an epoch. The first of several workers, which are all
        alike, does."""
        if self.workers.rank:
            return
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
                place=place,
            ),
        )
        self.epochs_saved = len(self.history)

    def _go_on_from(self, found: Checkpoint) -> None:
        self.history = list(found.history)
        self.epochs_saved = len(self.history)
        self.best = (found.best_epoch, found.best_parameters)
        training = self.options.mode == 'train'
        if training and found.place is not None and found.place.workers != self.workers.size:
            raise OptionError(
                f'{self.options.checkpoint} was written within an epoch that {found.place.workers} '
                f'workers divided: go on with as many, not {self.workers.size}'
            )
        self._place = found.place
        checkpoints.set_parameters(
            self.net, found.parameters if training else found.best_parameters
        )
        if training:
            checkpoints.restore_trainer(self.trainer, found.trainer)

    def _bar(self, what: str, total: int) -> progress_bar:
        """Return a progress bar, visible on a terminal."""
        return progress_bar(
            total=total,
            desc=what,
            unit=self.task.unit,
            leave=False,
            disable=True if self.workers.rank else None,
        )
