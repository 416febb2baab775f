"""Run the program of DyNet's page on automatic batching (https://dynet.io/autobatch).

    python example/sequence_acceptor/page.py                    # the page's three sequences
    python example/sequence_acceptor/page.py --data data/sst    # 64 sentences of the treebank

One minibatch is trained on ten times: its losses are built one by one, and summed. With
``edb.batching()`` around that they run in batches, without it one after the other; nothing else
differs, and the losses agree.
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path
from statistics import median

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Callable, NamedTuple, Optional

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from example.common.errors import DataError
from example.common.options import positive_int
from example.common.words import build_words
from example.sequence_acceptor.data import NUM_CLASSES, build_sentences, load_split
from example.sequence_acceptor.model import LSTMAcceptor
from example.tree_sst.data import tokens_of

__all__ = ['PAGE', 'Problem', 'main', 'predict', 'train']


class Problem(NamedTuple):
    """Sequences with their classes for training, others to classify, and the number of ids."""

    minibatch: Sequence[tuple[Sequence[int], int]]
    unseen: Sequence[Sequence[int]]
    vocab_size: int
    num_classes: int


PAGE = Problem(
    [((1, 4, 5, 1), 1), ((42, 1), 2), ((56, 2, 17), 1)],
    [(1, 4, 12, 1), (42, 2), (56, 2, 17)],
    vocab_size=1000,
    num_classes=3,
)


def train(
    problem: Problem, batching: Callable[[], AbstractContextManager], epochs: int, width: int
) -> tuple[LSTMAcceptor, list[float], list[float]]:
    """Return a trained acceptor, the loss of each epoch, and how many seconds it took.

    `batching` makes the scope that losses are built in: ``edb.batching``, or one that does nothing.
    """
    mx.random.seed(0)
    acceptor = LSTMAcceptor(problem.vocab_size, width, width, problem.num_classes)
    acceptor.initialize(mx.init.Xavier())
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(acceptor.collect_params(), 'adam', {'learning_rate': 1e-3})
    printed, seconds = [], []
    for _ in range(epochs):
        begin = time.perf_counter()
        with autograd.record():
            with batching():
                losses = []
                for sequence, label in problem.minibatch:
                    scores = acceptor(sequence)
                    losses.append(criterion(scores, mx.nd.array([label])))
            batch_loss = edb.add_n(losses) / len(losses)
        printed.append(batch_loss.asscalar())
        batch_loss.backward()
        trainer.step(1)
        mx.nd.waitall()
        seconds.append(time.perf_counter() - begin)
    return acceptor, printed, seconds


def predict(acceptor: LSTMAcceptor, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Return probabilities of the classes of each sequence, from one forward pass for all."""
    with edb.batching():
        predictions = [edb.nd.softmax(acceptor(sequence)) for sequence in sequences]
    edb.forward(predictions)
    return [prediction.asnumpy()[0] for prediction in predictions]


def read_problem(directory: str, size: int) -> Problem:
    """Return the first sentences of the treebank for training, and three others."""
    train_split, dev_split = (
        load_split(Path(directory) / f'{split}.txt') for split in ('train', 'dev')
    )
    words = build_words(tokens_of(train_split))
    minibatch, unseen = (
        build_sentences(phrases, words.ids) for phrases in (train_split[:size], dev_split[:3])
    )
    return Problem(
        [(sentence.tokens, int(sentence.label.item())) for sentence in minibatch],
        [sentence.tokens for sentence in unseen],
        len(words.vocab),
        NUM_CLASSES,
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        problem = PAGE if options.data is None else read_problem(options.data, options.batch_size)
    except DataError as error:
        print(f'page.py: {error}', file=sys.stderr)
        return 1
    _, one_by_one, slow = train(problem, contextlib.nullcontext, options.epochs, options.width)
    acceptor, batched, fast = train(problem, edb.batching, options.epochs, options.width)
    print('epoch  one by one     batched')
    for epoch, pair in enumerate(zip(one_by_one, batched), 1):
        print(f'{epoch:5d}  ' + '  '.join(f'{loss:10.7f}' for loss in pair))
    print(f'median {1e3 * median(slow):7.1f} ms  {1e3 * median(fast):7.1f} ms')
    print('\nPrediction time!\n')
    for probabilities in predict(acceptor, problem.unseen):
        print(probabilities.argmax(), probabilities)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument(
        '--data', metavar='DIR', help="directory of the treebank (default: the page's sequences)"
    )
    parser.add_argument(
        '--batch-size',
        type=positive_int,
        default=64,
        metavar='N',
        help='sentences in the minibatch of --data (default: 64)',
    )
    parser.add_argument(
        '--epochs',
        type=positive_int,
        default=10,
        metavar='N',
        help='how often it is trained on (default: 10)',
    )
    parser.add_argument(
        '--width',
        type=positive_int,
        default=100,
        metavar='H',
        help='of embedding and LSTM (default: 100)',
    )
    return parser


if __name__ == '__main__':
    sys.exit(main())
