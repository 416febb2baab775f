"""Tasks about sentences, with vocabularies of what these are made of."""

import argparse
from collections import Counter
from collections.abc import Iterable

from mxnet import gluon

from .extras import nlp
from .task import Task

__all__ = ['VocabTask', 'build_vocab', 'saved_vocabs']


class VocabTask(Task):
    """A task of which one sample is one sentence.

    Attributes
    ----------
    options : argparse.Namespace
    vocabs : dict
        What it is of -> `gluonnlp.Vocab`.
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
        """Of the vocabularies, for people."""
        return ', '.join(f'{name}: {len(vocab)}' for name, vocab in self.vocabs.items())

    def describe(self) -> str:
        return f'{self.sizes}; hidden {self.options.hidden}, embedding {self.options.embed}'


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


def saved_vocabs(state: dict[str, str]) -> dict[str, nlp.Vocab]:
    """The vocabularies in the `VocabTask.state` of a checkpoint."""
    return {name: nlp.Vocab.from_json(text) for name, text in state.items()}
