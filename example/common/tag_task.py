"""Tasks that tag the units of a sentence, with the spans of named entities as the aim."""

import argparse
from collections import Counter
from typing import Any, ClassVar, Dict, Iterable, Sequence

import gluonnlp as nlp
import mxnet as mx
import numpy as np
from mxnet import gluon

from .errors import DataError
from .options import positive_int
from .spans import SpanScore, score_spans
from .task import Task

__all__ = ['TagTask', 'build_vocab', 'saved_vocabs']


class TagTask(Task):
    """A task whose model gives a row of scores, over the tags, for each unit of a sentence.

    A sample has ``tags``, (n,) float32 ids of the right ones.

    Attributes
    ----------
    options : argparse.Namespace
    vocabs : dict
        What it is of (``'tags'`` among them) -> `gluonnlp.Vocab`.
    """

    unit, units = 'sentence', 'sentences'
    columns = {'f1': 'F1', 'precision': 'precision', 'recall': 'recall', 'accuracy': 'accuracy'}
    best_by = 'f1'
    shape = (*Task.shape, 'embed')
    embed_width: ClassVar[int] = 100

    options: argparse.Namespace
    vocabs: Dict[str, nlp.Vocab]

    @classmethod
    def add_options(cls, data, model) -> None:
        model.add_argument(
            '--embed',
            type=positive_int,
            default=cls.embed_width,
            metavar='D',
            help='width of the embeddings',
        )

    def tag_id(self, tag: str) -> int:
        """The id of a tag."""
        tags = self.vocabs['tags']
        if tag not in tags:
            raise DataError(
                f'{self.options.data}: the tag {tag} is none of those that the '
                f'checkpoint knows ({" ".join(tags.idx_to_token)})'
            )
        return tags[tag]

    def state(self) -> Dict[str, str]:
        return {name: vocab.to_json() for name, vocab in self.vocabs.items()}

    def initialize(self, net: gluon.Block) -> None:
        """First values of a model."""
        for parameter in net.collect_params('.*embedding.*_weight').values():
            parameter.init = mx.init.Normal(0.3)
        net.initialize(mx.init.Xavier(), ctx=self.options.ctx)

    def criterion(self) -> gluon.HybridBlock:
        return gluon.loss.SoftmaxCrossEntropyLoss()

    def loss(self, net, criterion, sample):
        return criterion(net(sample), sample.tags)

    def predict(self, net, sample):
        return net(sample)

    def measure(self, rows: np.ndarray, samples: Sequence[Any]) -> SpanScore:
        names = self.vocabs['tags'].idx_to_token
        ends = np.cumsum([len(sample.tags) for sample in samples])
        predicted = np.split(rows.argmax(axis=1), ends[:-1])
        return score_spans(
            [[names[int(tag)] for tag in sample.tags] for sample in samples],
            [[names[tag] for tag in tags] for tags in predicted],
        )

    def describe(self) -> str:
        sizes = ', '.join(f'{name}: {len(vocab)}' for name, vocab in self.vocabs.items())
        return f'{sizes}; hidden {self.options.hidden}, embedding {self.options.embed}'


def build_vocab(units: Iterable[str], min_freq: int = 1, unknown: bool = True) -> nlp.Vocab:
    """A vocabulary of units that occur often enough; all others are its unknown unit, if any."""
    return nlp.Vocab(
        Counter(units),
        min_freq=min_freq,
        unknown_token='<unk>' if unknown else None,
        padding_token=None,
        bos_token=None,
        eos_token=None,
    )


def saved_vocabs(state: Dict[str, str]) -> Dict[str, nlp.Vocab]:
    """The vocabularies in the `TagTask.state` of a checkpoint."""
    return {name: nlp.Vocab.from_json(text) for name, text in state.items()}
