"""What random programs (`scripts/walk_programs.py`) have found: as few lines as showed it."""

import mxnet as mx
import numpy as np
from mxnet import gluon
from programs.case import same

import gluon_edbatch as edb


class Written(gluon.Block):
    """One function, with what it may call."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.anchor = mx.nd.ones((1, 4))
        with self.name_scope():
            self.dense = gluon.nn.Dense(4, in_units=4)

    def forward(self, x):
        return self.function(self, x)

    def parted(self, x):
        """Samples go two ways in it."""
        if x.sum() > 0:
            return x - 4
        return x + 1


def assert_is_eager(function):
    """On samples that part."""
    net = Written(function)
    net.initialize()
    samples = [mx.nd.array(np.random.RandomState(seed).randn(1, 4)) for seed in range(6)]
    expected = [net(sample) for sample in samples]
    program = edb.compile_program(net, samples[0])
    for results in (program(samples), [program([sample])[0] for sample in samples]):
        for number, pair in enumerate(zip(expected, results)):
            same(f'sample {number}', *pair)


def appends_what_a_call_gives(net, x):
    rows = []
    rows.append(net.parted(x))
    return rows, [net.parted(each) for each in (x, x + 1)], x.clip(net.parted(x).size * 0, 1)


def test_a_method_of_a_list_is_that_of_the_list_when_its_arguments_are_there():
    assert_is_eager(appends_what_a_call_gives)
