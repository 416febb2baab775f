"""Workloads ``transformer-sst`` and ``adaptive``: the examples' models on sentences of the Stanford
Sentiment Treebank, with their default options but for the width."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mxnet as mx

import gluon_edbatch as edb
from example.adaptive.task import AdaptiveTask
from example.sentence_sst.data import Sentence
from example.sentence_sst.task import SentenceTask
from example.tree_sst.data import NUM_CLASSES

from .contexts import context
from .tasks import TaskWorkload
from .workloads import Products

__all__ = ['Adaptive', 'TransformerSST']


class _Sentences(TaskWorkload):
    """A workload on sentences of the treebank (or the sample of the tree models), with a loss, and
    scores, for each. ``--embed`` does not apply: words and layers have one width."""

    widths = ('hidden',)

    def files(self, data: Path) -> dict[str, Path]:
        return {'data': data / 'sst'}

    def predict(self, net, sample: Sentence) -> Any:
        return net(sample)

    def targets(self, sample: Sentence):
        return [sample.label]


class TransformerSST(_Sentences):
    """A transformer of two layers with four heads."""

    task_class = SentenceTask

    def products(self, samples: Sequence[Sentence]) -> Products:
        """Return the products: a word's query, key, value and projection in each layer, and its two
        products between; the scores of a sentence. Products of words with each other are left
        out."""
        options, words = self.task.options, sum(map(len, samples))
        h = options.hidden
        products: Counter = Counter({(h, NUM_CLASSES): len(samples)})
        for wide, high, times in ((h, h, 4), (h, 4 * h, 1), (4 * h, h, 1)):
            products[wide, high] += times * options.layers * words
        return dict(products)

    def levels(self, samples: Sequence[Sentence]) -> int:
        return 1

    def rival(self, system: str):
        nested = system == 'nested-torch'
        return self.padded_rival(system, f'{"Nested" if nested else "Padded"}Transformer')


class Adaptive(_Sentences):
    """A reader that steps until a sentence needs no more, eight steps at most. Parameters decide
    on the steps: `products` and `levels` are for a new model."""

    task_class = AdaptiveTask
    waits = True

    def predict(self, net, sample: Sentence) -> Any:
        return self.predict_all(net, [sample])[0]

    def predict_all(self, net, samples: Sequence[Sentence]) -> list[Any]:
        return [reading.scores for reading in edb.run_concurrently(samples, net.read)]

    def loss(self, net, loss, sample: Sentence, eager: bool):
        return self.loss_all(net, loss, [sample], eager)[0]

    def loss_all(self, net, loss, samples: Sequence[Sentence], eager: bool) -> list[Any]:
        device = context(self.settings.ctx)
        labels = [mx.nd.array(x.label, ctx=device) if eager else x.label for x in samples]
        readings = edb.run_concurrently(samples, net.read)
        return [
            loss(reading.scores, reading.cost, label) for reading, label in zip(readings, labels)
        ]

    def products(self, samples: Sequence[Sentence]) -> Products:
        """Return the products: a word's; a query, two of a cell and the chance to stop in each
        step; scores. Products of the query with words are left out."""
        h, words, steps = (
            self.task.options.hidden,
            sum(map(len, samples)),
            sum(self._steps(samples)),
        )
        products: Counter = Counter()  # added up: widths may coincide
        for wide, high, rows in (
            (2 * h, h, words),
            (h, h, steps),
            (h, 3 * h, 2 * steps),
            (h, 1, steps),
            (h, NUM_CLASSES, len(samples)),
        ):
            products[wide, high] += rows
        return dict(products)

    def levels(self, samples: Sequence[Sentence]) -> int:
        return max(self._steps(samples))

    def _steps(self, samples: Sequence[Sentence]) -> list[int]:
        with edb.batching():
            readings = edb.run_concurrently(samples, self.task.build().read)
        return [reading.steps for reading in readings]

    def rival(self, system: str):
        return self.padded_rival(system, 'PaddedReader', self.task.options)
