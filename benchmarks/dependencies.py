"""Workloads ``graph-messages``, ``graph-attention`` and ``pointer``: the examples' models on
English sentences with dependency trees, with their default options but for the widths."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mxnet as mx

import gluon_edbatch as edb
from example.graph_attention.data import Graph
from example.graph_attention.task import GraphTask
from example.pointer.data import Shuffled
from example.pointer.task import PointerTask

from .contexts import context
from .tasks import TaskWorkload
from .workloads import Products

__all__ = ['GraphAttention', 'GraphMessages', 'Pointer']


class _Dependencies(TaskWorkload):
    """A workload on UD English EWT (or the sample of the parser). One sample is one sentence."""

    def files(self, data: Path) -> dict[str, Path]:
        lite = data / 'ud_ewt' / 'lite'  # with the columns that are read alone
        return {'data': lite if lite.is_dir() else data / 'ud_ewt'}


class GraphMessages(_Dependencies):
    """Label relations of words by two layers that sum messages; a loss, and scores, for every
    word."""

    task_class = GraphTask
    arguments = ('--model=sum',)

    def predict(self, net, sample: Graph) -> Any:
        return net(sample)

    def targets(self, sample: Graph):
        return [sample.relations]

    def products(self, samples: Sequence[Graph]) -> Products:
        """Return the products: a word's projection, its messages in each layer, its scores."""
        options, nodes = self.task.options, sum(map(len, samples))
        h = options.hidden
        products: Counter = Counter()  # added up: widths may coincide
        for layer in range(options.layers):
            products[h if layer else options.embed, h] += nodes
            for wide, high, rows in self._gathering(samples):
                products[wide, high] += rows
        products[h, len(self.task.vocabs['relations'])] += nodes
        return dict(products)

    def _gathering(self, samples: Sequence[Graph]):
        """Return (columns in, columns out, rows) of the products by which a layer gathers."""
        h = self.task.options.hidden
        return [(2 * h, h, sum(map(len, samples)))]

    def levels(self, samples: Sequence[Graph]) -> int:
        return self.task.options.layers

    def rival(self, system: str):
        return self.padded_rival(system, 'PaddedGraphs')


class GraphAttention(GraphMessages):
    """Label relations of words by two layers of attention with two heads."""

    arguments = ('--model=attention',)

    def _gathering(self, samples: Sequence[Graph]):
        options, nodes = self.task.options, sum(map(len, samples))
        edges = sum(len(near) for graph in samples for near in graph.neighbours)
        return [(options.hidden // options.heads, 1, options.heads * (nodes + edges))]


class Pointer(_Dependencies):
    """Put words in order; a loss for every word, and in inference the order that is found."""

    task_class = PointerTask
    waits = True

    def predict(self, net, sample: Shuffled) -> Any:
        return self.predict_all(net, [sample])[0]

    def predict_all(self, net, samples: Sequence[Shuffled]) -> list[Any]:
        device = context(self.settings.ctx)
        orders = edb.run_concurrently(samples, net.write)
        return [mx.nd.array(order, ctx=device) for order in orders]

    def targets(self, sample: Shuffled):
        return []

    def products(self, samples: Sequence[Shuffled]) -> Products:
        """Return the products: two of a cell and one of attention for every word, when it is read
        and when it is written, and then a score of every position."""
        h, e = self.task.options.hidden, self.task.options.embed
        words = sum(map(len, samples))
        products: Counter = Counter()  # added up: widths may coincide
        for wide, high in ((e, 4 * h), (e + h, 4 * h), (h, 4 * h), (h, 4 * h), (h, h), (h, h)):
            products[wide, high] += words
        products[h, 1] += sum(len(sample) ** 2 for sample in samples)
        return dict(products)

    def levels(self, samples: Sequence[Shuffled]) -> int:
        return 2 * max(map(len, samples))  # read, and written

    def rival(self, system: str):
        return self.padded_rival(system, 'PaddedPointer', max(map(len, self.samples)))
