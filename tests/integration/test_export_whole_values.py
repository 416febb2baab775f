"""Exported models whose operators mix rows of values, and networks that decide by values."""

from typing import ClassVar

import mxnet as mx
import numpy as np
import pytest

import gluon_edbatch as edb
import gluon_edbatch_runtime
from example.dynamic.networks import NETWORKS, build, samples
from example.pointer.data import shuffle
from example.pointer.model import PointerNetwork
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of
from tests.runtime import whole_models


@pytest.fixture
def runtime():
    return gluon_edbatch_runtime


def compared(runtime, net, data, folder, some):
    """Export on some samples, and compare all; return the model that runs there."""
    edb.export(net, data[:some], folder / 'bundle')
    model = runtime.load(folder / 'bundle')
    assert model.check() == some
    found, wanted = model(data[some:]), [net(sample) for sample in data[some:]]
    for mine, other in zip(found, wanted):
        assert are_close(json_of(mine), json_of(other))
    return model


@pytest.mark.parametrize('kind', whole_models.MODELS, ids=lambda kind: kind.__name__)
def test_models(kind, runtime, tmp_path):
    """The samples that are compared have other lengths than those of the export."""
    net, data = whole_models.made(kind, 24)
    compared(runtime, net, data, tmp_path, 8)


def test_parameters_are_copied_once(runtime, tmp_path):
    net, data = whole_models.made(whole_models.Shifts, 8)
    edb.export(net, data, tmp_path / 'bundle')
    model = runtime.load(tmp_path / 'bundle')
    with runtime.batching() as scope:
        values = [model._model.net(*model._model.read(sample, 'it')) for sample in data]
    runtime.forward(values)
    assert sum(array.shape == (1, 6) for _, array in scope._recording.arrays) == 1


class Pointer(PointerNetwork):
    """Writes as well as reads."""

    def forward(self, sentence):
        """Return probabilities of the right words, and the order that is predicted."""
        right, memory, order = self.right(sentence), self._read(sentence), []
        word, context, states = self._no_word, self._no_state, memory.states
        left = np.ones(len(sentence.words), bool)
        for _ in sentence.words:
            states = self.step(word, context, *states)
            weights, context = self.pointer(states[0], memory.keys, memory.values)
            chances = weights.asnumpy().reshape(-1)
            order.append(int(np.where(left, chances, -1).argmax()))
            left[order[-1]] = False
            word = memory.words[order[-1]]
        return right, order

    right = PointerNetwork.forward


def test_pointer_network(runtime, tmp_path):
    """A cell has a result for each of any number of values, and decisions are equal."""
    rng, data = np.random.RandomState(0), []
    for number in range(40):
        words = rng.randint(0, 30, rng.randint(2, 9)).tolist()
        data.append(shuffle(list(map(str, words)), words, [number]))
    net = Pointer(30, 6, 8)
    net.initialize(mx.init.Xavier())
    model = compared(runtime, net, data, tmp_path, 20)
    assert model.evaluations <= 10  # 20 samples with 2 to 8 reads each


class Sizes:
    """Small networks, and a threshold by which their paths differ."""

    SMALL: ClassVar = {'width': 4, 'each': 2}
    OF: ClassVar = {
        'mobilenet': {'width': 2}, 'vgg': {'width': 2}, 'resnet': SMALL, 'wideresnet': SMALL,
        'skipnet-recurrent': SMALL, 'skipnet-feedforward': SMALL, 'blockdrop': SMALL,
        'caption-resnext': {'width': 4, 'hidden': 8},
        'caption-googlenet': {'width': 4, 'hidden': 8},
    }  # fmt: skip


class Chances:
    """A threshold above all chances, which it collects."""

    __array_ufunc__ = None  # NumPy's numbers ask it to compare

    def __init__(self):
        self.met = []

    def __lt__(self, chance):
        self.met.append(float(chance))
        return False


@pytest.mark.parametrize('name', NETWORKS)
def test_networks_that_decide(name, runtime, tmp_path):
    """Convolutions, pooling and batch norm; samples wait for each other at decisions."""
    mx.random.seed(3)
    net, data = build(name, **Sizes.OF[name]), samples(name, count=30)
    if hasattr(net, 'thresholds'):  # about half of the decisions are one way
        seen = [Chances() for _ in net.thresholds]
        net.thresholds = seen
        for image in data:
            net(image)
        net.thresholds = [float(np.median(each.met)) for each in seen]
        assert len({net(image)[1] for image in data}) > 1
    model = compared(runtime, net, data, tmp_path, 15)
    assert model.evaluations <= net.most + 1
