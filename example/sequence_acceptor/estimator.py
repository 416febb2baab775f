"""Train the LSTM acceptor by Gluon's Estimator, with what that offers; see --help."""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Optional

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
from mxnet import gluon
from mxnet.gluon.contrib.estimator import (
    CheckpointHandler,
    EarlyStoppingHandler,
    Estimator,
    GradientUpdateHandler,
)

from example.common.errors import DataError
from example.common.options import add_size, nonnegative_float, positive_float, seed_number
from example.common.words import build_words
from example.sequence_acceptor.data import NUM_CLASSES, Sentence, build_sentences, load_split
from example.sequence_acceptor.model import LSTMAcceptor
from example.sequence_acceptor.task import AcceptorTask
from example.tree_sst.data import tokens_of

__all__ = ['Update', 'main']


class Update(GradientUpdateHandler):
    """Update parameters after some minibatches, with the mean of their gradients, clipped.

    Parameters
    ----------
    minibatches : int
        Number of minibatches whose gradients are summed, in parameters with ``grad_req='add'``.
    largest : float
        Norm of all gradients together above which they are scaled down to it; 0 clips nothing.
    """

    def __init__(self, minibatches: int, largest: float):
        super().__init__()
        self._minibatches, self._largest = minibatches, largest
        self._waiting = self._samples = 0

    def batch_end(self, estimator, *args, loss, **kwargs):
        self._waiting += 1
        self._samples += sum(len(each) for each in loss)
        if self._waiting < self._minibatches:
            return
        parameters = estimator.net.collect_params()
        estimator.trainer.allreduce_grads()  # over contexts, each of which then has the sums
        if self._largest:
            for gradients in zip(*(parameter.list_grad() for parameter in parameters.values())):
                gluon.utils.clip_global_norm(list(gradients), self._largest * self._samples)
        estimator.trainer.update(self._samples)
        parameters.zero_grad()
        self._waiting = self._samples = 0


class NewOrder(gluon.data.DataLoader):
    """Yield minibatches as lists, in a new order in each epoch."""

    def __init__(self, sentences: Sequence[Sentence], batch_size: int, seed: int):
        self._sampler = edb.data.BalancedSampler(len(sentences), batch_size, seed=seed)
        self._epochs = 0
        super().__init__(
            gluon.data.SimpleDataset(sentences),
            batch_sampler=self._sampler.epoch(0),
            batchify_fn=edb.data.as_list,
        )

    def __iter__(self):
        self._epochs += 1
        self._batch_sampler = self._sampler.epoch(self._epochs)
        return super().__iter__()


def handlers(options: argparse.Namespace, metric: mx.metric.EvalMetric) -> list[object]:
    """Return event handlers: updates, and on request early stopping, checkpoints, TensorBoard."""
    found: list[object] = [Update(options.accumulate, options.clip)]
    if options.patience:
        found.append(EarlyStoppingHandler(metric, patience=options.patience, mode='max'))
    if options.checkpoints:
        found.append(
            CheckpointHandler(options.checkpoints, monitor=metric, save_best=True, mode='max')
        )
    if options.tensorboard:
        from tensorboardX import SummaryWriter

        found.append(edb.estimator.TensorBoardHandler(SummaryWriter(options.tensorboard)))
    return found


def train(options: argparse.Namespace) -> None:
    """Train, and print the figures of each epoch."""
    raw = {name: load_split(Path(options.data) / f'{name}.txt') for name in ('train', 'dev')}
    words = build_words(tokens_of(raw['train']))
    samples = {name: build_sentences(raw[name], words.ids) for name in raw}
    mx.random.seed(options.seed)
    # MXNet adds nothing to row_sparse gradients.
    net = LSTMAcceptor(
        len(words.vocab), options.embed, options.hidden, NUM_CLASSES, sparse_grad=False
    )
    contexts = [mx.cpu(number) for number in range(options.contexts)]
    net.initialize(mx.init.Xavier(factor_type='in', magnitude=1), ctx=contexts)
    net.collect_params().setattr('grad_req', 'add')
    estimator = Estimator(
        net,
        gluon.loss.SoftmaxCrossEntropyLoss(),
        train_metrics=mx.metric.Accuracy(),
        trainer=gluon.Trainer(
            net.collect_params(), 'adam', {'learning_rate': options.lr}, update_on_kvstore=False
        ),
        context=contexts,
        batch_processor=edb.estimator.BatchProcessor(timing=bool(options.profile)),
    )
    loaders = {name: NewOrder(samples[name], options.batch_size, options.seed) for name in samples}
    with profile(options.profile) if options.profile else nullcontext():
        estimator.fit(
            loaders['train'],
            val_data=loaders['dev'],
            epochs=options.epochs,
            event_handlers=handlers(options, estimator.val_metrics[0]),
        )


class profile:
    """Write a profile of what runs inside the ``with`` for chrome://tracing, batches by name."""

    def __init__(self, file: str):
        self._file = file

    def __enter__(self) -> None:
        mx.profiler.set_config(profile_all=True, filename=self._file)
        mx.profiler.set_state('run')

    def __exit__(self, *_) -> None:
        mx.nd.waitall()
        mx.profiler.set_state('stop')
        mx.profiler.dump()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument('--data', default=str(AcceptorTask.sample), metavar='DIR')
    add_size(parser, '--epochs', 4, 'N', 'passes over the data, at most')
    add_size(parser, '--batch-size', 64, 'N', 'sentences in a minibatch')
    add_size(parser, '--hidden', 100, 'H', 'width of the LSTM')
    add_size(parser, '--embed', 100, 'D', 'width of the vectors of words')
    add_size(parser, '--contexts', 1, 'N', 'of the processor, among which minibatches are divided')
    add_size(parser, '--accumulate', 1, 'N', 'minibatches whose gradients make one update')
    parser.add_argument('--lr', type=positive_float, default=1e-3, help='learning rate of Adam')
    parser.add_argument(
        '--clip', type=nonnegative_float, default=0.0, help='largest norm of gradients; 0: any'
    )
    parser.add_argument('--patience', type=int, default=0, help='epochs without a better one')
    parser.add_argument('--checkpoints', metavar='DIR', help='of each epoch, and the best')
    parser.add_argument('--tensorboard', metavar='DIR', help='metrics; needs tensorboardX')
    parser.add_argument('--profile', metavar='FILE', help='written by the profiler of MXNet')
    parser.add_argument('--seed', type=seed_number, default=0)
    try:
        train(parser.parse_args(arguments))
    except DataError as error:
        print(f'estimator.py: {error}', file=sys.stderr)
        return 1
    finally:
        mx.nd.waitall()  # nothing may be under way when Python ends
    return 0


if __name__ == '__main__':
    sys.exit(main())
