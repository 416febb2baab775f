"""Evaluate a recursive network whose nodes have two outputs; see --help."""

import argparse
import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn
from mxnet.ndarray import NDArray

from example.common.options import positive_int
from example.torchfold.program import (
    FOLDED,
    ONE_BY_ONE,
    difference,
    make_parser,
    report,
    run,
    seconds_in_turns,
)

__all__ = ['main']

WORDS = 100


class Tree(NamedTuple):
    """A leaf with a word, or a node with two children."""

    word: int
    children: tuple['Tree', ...] = ()


class TreeNet(gluon.Block):
    """A recursive network; each node has an output and a memory, both (1, H)."""

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.output = nn.Embedding(WORDS, hidden_size)
            self.memory = nn.Embedding(WORDS, hidden_size)
            self.cell = edb.rnn.NaryTreeLSTMCell(hidden_size, arity=2, input_size=None)
            self.score = nn.Dense(1, in_units=hidden_size)

    def leaf(self, word):
        """Return output and memory of a leaf."""
        return self.output(word), self.memory(word)

    def node(self, left, left_memory, right, right_memory):
        """Return output and memory of a node from those of its children."""
        return self.cell(None, [(left, left_memory), (right, right_memory)])

    def root(self, output):
        """Return the score of a root, (1, 1)."""
        return self.score(output)


def encode(fold: Union[edb.Fold, edb.Unfold], tree: Tree) -> tuple:
    """Return handles of the two outputs of a node."""
    if not tree.children:
        return fold.add('leaf', tree.word).split(2)
    left, right = [encode(fold, child) for child in tree.children]
    return fold.add('node', *left, *right).split(2)


def evaluate(
    fold: Union[edb.Fold, edb.Unfold], net: TreeNet, trees: Sequence[Tree]
) -> list[NDArray]:
    """Return scores (N, 1) and memories (N, H) of the roots."""
    roots = [encode(fold, tree) for tree in trees]
    scores = [fold.add('root', output) for output, _ in roots]
    return fold.apply(net, [scores, [memory for _, memory in roots]])


def random_tree(generator: np.random.RandomState, leaves: int) -> Tree:
    """Return a binary tree of any form."""
    if leaves == 1:
        return Tree(int(generator.randint(WORDS)))
    left = generator.randint(1, leaves)
    return Tree(-1, (random_tree(generator, left), random_tree(generator, leaves - left)))


def program(options: argparse.Namespace) -> None:
    """Evaluate trees in batches and one by one."""
    generator, net = np.random.RandomState(options.seed), TreeNet(options.hidden)
    net.initialize(mx.init.Xavier(), ctx=options.ctx)
    trees = [random_tree(generator, generator.randint(1, 21)) for _ in range(options.batch_size)]
    fold = edb.Fold()
    worst = difference(evaluate(fold, net, trees), evaluate(edb.Unfold(net), net, trees))
    print(
        f'{len(trees)} trees with up to 20 leaves; largest relative difference between the two '
        f'ways: {worst:.1e}'
    )
    if options.show:
        print(fold)
    print(
        report(
            seconds_in_turns(
                {
                    ONE_BY_ONE: lambda: evaluate(edb.Unfold(net), net, trees),
                    FOLDED: lambda: evaluate(edb.Fold(), net, trees),
                },
                options.repeat,
            ),
            len(trees),
            'trees',
        )
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    parser = make_parser('A recursive network with two outputs a node.', 32)
    parser.add_argument(
        '--hidden', type=positive_int, default=64, metavar='H', help='width of the outputs'
    )
    parser.add_argument('--show', action='store_true', help='print what was noted, step by step')
    return run(parser, program, arguments)


if __name__ == '__main__':
    sys.exit(main())
