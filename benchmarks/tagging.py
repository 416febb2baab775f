"""Workloads ``lattice-lstm``, ``lattice-gru``, ``bilstm-tagger``, ``bilstm-tagger-char``,
``bilstm-tagger-equal``: named entities by the examples' taggers, with their default options but for
the widths."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median_low
from typing import Any, ClassVar

from example.lattice.data import Lattice
from example.lattice.task import LatticeTask
from example.tagger.data import Sentence
from example.tagger.task import TaggerTask

from .settings import Settings
from .tasks import TaskWorkload
from .workloads import Products

__all__ = ['BiLSTMTagger', 'BiLSTMTaggerChar', 'BiLSTMTaggerEqual', 'LatticeGRU', 'LatticeLSTM']

GATES = {'lstm': 4, 'gru': 3}


class _Tagging(TaskWorkload):
    """A workload of sentences to tag. One sample is one sentence; its loss is a row a unit."""

    def predict(self, net, sample) -> Any:
        return net(sample)

    def targets(self, sample):
        return [sample.tags]

    def _num_tags(self) -> int:
        return len(self.task.vocabs['tags'])


class LatticeLSTM(_Tagging):
    """Tag Weibo NER (or the example's own sample) by the lattice LSTM, from left to right."""

    task_class = LatticeTask
    cell: ClassVar[str] = 'lstm'
    arguments = ('--model=lstm',)

    def files(self, data: Path) -> dict[str, Path]:
        return {'data': data / 'zh_ner_weibo', 'words': data / 'zh_wordlist' / 'dict.txt.small'}

    def products(self, samples: Sequence[Lattice]) -> Products:
        """Return the products: a cell's two for every character and word, those of the gates for
        all states that meet somewhere, the scores for every character."""
        h, e, gates = self.settings.hidden, self.settings.embed, GATES[self.cell]
        chars = sum(map(len, samples))
        words = sum(len(arcs) for lattice in samples for arcs in lattice.arcs)
        meeting = sum(bool(arcs) for lattice in samples for arcs in lattice.arcs)
        products: Counter = Counter()  # added up: widths may coincide
        products[e, gates * h] += chars + words
        products[h, gates * h] += chars + words
        products[h, h] += words + meeting
        products[h, self._num_tags()] += chars
        return dict(products)

    def levels(self, samples: Sequence[Lattice]) -> int:
        return max(map(len, samples))  # words are short cuts


class LatticeGRU(LatticeLSTM):
    """Tag Weibo NER (or the example's own sample) by the lattice with GRU cells."""

    cell = 'gru'
    arguments = ('--model=gru',)


class BiLSTMTagger(_Tagging):
    """Tag WikiNER (or the example's own sample) by the BiLSTM tagger with two layers.

    Gradients of words' vectors are row_sparse: if calls are not batched, dense ones, one of the
    whole table for each word, would take most of the time.
    """

    task_class = TaggerTask
    arguments = ('--sparse-grad',)

    def files(self, data: Path) -> dict[str, Path]:
        return {'data': data / 'wikiner'}

    def products(self, samples: Sequence[Sentence]) -> Products:
        """Return the matrix products: two for each of two cells, for every word in each layer and
        every character of a word that is spelt; and the scores of every word."""
        options = self.task.options
        h, e = options.hidden, options.embed
        words = sum(map(len, samples))
        chars = sum(len(token.chars) for sentence in samples for token in sentence.tokens)
        products: Counter = Counter()  # added up: widths may coincide
        for layer in range(options.layers):
            products[2 * h if layer else e, 4 * h] += 2 * words
            products[h, 4 * h] += 2 * words
        products[2 * h, self._num_tags()] += words
        if chars:
            products[options.char_embed, 4 * (e // 2)] += 2 * chars
            products[e // 2, 4 * (e // 2)] += 2 * chars
        return dict(products)

    def levels(self, samples: Sequence[Sentence]) -> int:
        """Return calls on the longest path: a word's characters, then to and fro through the
        layers."""
        lengths: list[int] = []
        for sentence in samples:
            size = len(sentence)
            first = max(
                len(token.chars) + max(size - position, position + 1)
                for position, token in enumerate(sentence.tokens)
            )
            lengths.append(first + (self.task.options.layers - 1) * size)
        return max(lengths)


class BiLSTMTaggerChar(BiLSTMTagger):
    """Tag WikiNER by the BiLSTM tagger that reads rare words by their characters."""

    arguments = (*BiLSTMTagger.arguments, '--char')


class BiLSTMTaggerEqual(BiLSTMTagger):
    """Tag sentences of one length, where batching by hand is easiest: the longer half of WikiNER's,
    each cut to the length of the shortest."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        length = median_low(map(len, self.samples))
        self.samples = [
            Sentence(sentence.tokens[:length], sentence.tags[:length])
            for sentence in self.samples
            if len(sentence) >= length
        ]

    def rival(self, system: str):
        from .rivals.manual_bilstm import ManualBiLSTM

        settings = self.settings
        return ManualBiLSTM(
            self.task.build(),
            len(self.samples[0]),
            system == 'manual-fused',
            settings.optimizer,
            settings.learning_rate,
            settings.ctx,
        )
