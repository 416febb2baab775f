#!/usr/bin/env python3
"""Whether an installed gluon_edbatch works: trains a small Tree-LSTM, away from any checkout.

    python scripts/check_install.py --expect compiled|python

Prints one line: what runs in compiled form, and the losses. Used by scripts/test_install.sh.
"""

import argparse
import json
import sys
from importlib.metadata import files
from pathlib import Path

import gluon_edbatch as edb  # before MXNet, which it prepares

# isort: split
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from gluon_edbatch.execute.native import library
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch_core.native import compiler


class Classifier(edb.AutoBatchMixin, gluon.Block):
    """Which of two words is more frequent in a tree of words."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(2, 8)
            self.cell = edb.rnn.ChildSumTreeLSTMCell(16, input_size=8)
            self.output = gluon.nn.Dense(2, in_units=16)

    def state(self, tree):
        """The state of a tree: a word and its children."""
        word, children = tree
        return self.cell(self.embed(word), [self.state(child) for child in children])

    def forward(self, tree):
        return self.output(self.state(tree)[0])


def random_tree(random, depth=3):
    """A tree, of at most so many levels."""
    children = random.randint(0, 4) if depth > 1 else 0
    return int(random.randint(2)), [random_tree(random, depth - 1) for _ in range(children)]


def words(tree):
    """All words of a tree."""
    return [tree[0]] + [word for child in tree[1] for word in words(child)]


def train():
    """The mean loss before and after training."""
    random = np.random.RandomState(1)
    mx.random.seed(1)
    trees = [random_tree(random) for _ in range(64)]
    labels = mx.nd.array([np.mean(words(tree)) > 0.5 for tree in trees])
    net, loss_of = Classifier(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.02})
    losses = []
    for _ in range(40):
        with autograd.record():
            with edb.batching():
                values = [net(tree) for tree in trees]
            loss = loss_of(edb.concat(values), labels).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar()))
    assert_matches_eager(net, trees[:8])
    return losses[0], losses[-1]


def compiled_in():
    """Names of packages whose code the wheel says that it contains."""
    paths = (path for path in files('gluon-edbatch') or () if path.parent.name == 'sboms')
    return {part['name'] for path in paths for part in json.loads(path.read_text())['components']}


def main() -> int:
    """Command line; gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--expect', choices=('compiled', 'python'), required=True)
    expected = parser.parse_args().expect == 'compiled'
    before, after = train()
    path = library.loaded()
    print(
        f'modules: {"compiled" if edb.COMPILED else "Python"}, native operators: '
        f'{path.stem.partition("-")[0] if path else "none"}, loss: {before:.2f} to {after:.2f}'
    )
    faults = [
        fault
        for fault, is_one in (
            (
                'the package is not that of the environment',
                Path(sys.prefix) not in Path(edb.__file__).parents,
            ),
            (f'COMPILED is {edb.COMPILED}', expected != edb.COMPILED),
            (f'native_available() is {edb.native_available()}', edb.native_available() != expected),
            (f'{path} did not come with the package', bool(path) and path.parent != compiler.BUILT),
            (
                f'the SBOM names {compiled_in()}',
                expected != ({'Cython', 'mxnet'} <= compiled_in()),
            ),
            ('the loss did not fall', not after < 0.5 * before),
        )
        if is_one
    ]
    for fault in faults:
        print(f'check_install: {fault}', file=sys.stderr)
    return int(bool(faults))


if __name__ == '__main__':
    sys.exit(main())
