"""Base class of tasks about sentences, with vocabularies."""

import argparse
from collections import Counter
from collections.abc import Iterable

from mxnet import gluon

from .extras import nlp
from .task import Task

__all__ = ['VocabTask', 'build_vocab', 'saved_vocabs']


class VocabTask(Task):
    """A task whose samples are sentences.

    Attributes
    ----------
    options : argparse.Namespace
    vocabs : dict
        Maps a kind of unit to its `gluonnlp.Vocab`.
    """

    unit, units = 'sentence', 'sentences'

    options: argparse.Namespace
    vocabs: dict[str, nlp.Vocab]

    def state(self) -> dict[str, str]:
        return {name: vocab.to_json() for name, vocab in self.vocabs.items()}

    def criterion(self) -> gluon.HybridBlock:
        return gluon.loss.SoftmaxCrossEntropyLoss()

    def predict(self, net, sample):
        return net(sample)

    @property
    def sizes(self) -> str:
        """Return the sizes of the vocabularies as text."""
        return ', '.join(f'{name}: {len(vocab)}' for name, vocab in self.vocabs.items())

    def describe(self) -> str:
        return f'{self.sizes}; hidden {self.options.hidden}, embedding {self.options.embed}'


def build_vocab(units: Iterable[str], min_freq: int = 1, unknown: bool = True) -> nlp.Vocab:
    """Return a vocabulary of units that occur often enough; all others are its unknown unit, if
    any."""
    return nlp.Vocab(
        Counter(units),
        min_freq=min_freq,
        unknown_token='<unk>' if unknown else None,
        padding_token=None,
        bos_token=None,
        eos_token=None,
    )


def saved_vocabs(state: dict[str, str]) -> dict[str, nlp.Vocab]:
    """Return the vocabularies in the `VocabTask.state` of a checkpoint."""
    return {name: nlp.Vocab.from_json(text) for name, text in state.items()}
