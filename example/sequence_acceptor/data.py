"""Sentences and whether they sound positive: words in order, and the label of the tree's root.

The files are those of `tree_sst.data`; a sentence's words and the root's label are read. Neutral
sentences are left out, as is usual where the treebank serves for two classes.
"""

from collections.abc import Iterable
from typing import Callable, NamedTuple

import numpy as np

from example.common.errors import DataError
from example.tree_sst import data
from example.tree_sst.data import Phrase

__all__ = ['NUM_CLASSES', 'Sentence', 'build_sentences', 'load_split']

NUM_CLASSES = 2
NEUTRAL = 2  # of the five labels


class Sentence(NamedTuple):
    """Ids of a sentence's words, and its class: (1,) float32, 1 if positive."""

    tokens: list[int]
    label: np.ndarray


def build_sentences(
    phrases: Iterable[Phrase], to_ids: Callable[[list[str]], list[int]]
) -> list[Sentence]:
    """Return samples for a model whose vocabulary turns words into ids with `to_ids`."""
    return [
        Sentence(to_ids(phrase.words()), np.array([phrase.label > NEUTRAL], np.float32))
        for phrase in phrases
    ]


def load_split(path) -> list[Phrase]:
    """Read and check one file (``train.txt``, ``dev.txt`` or ``test.txt``).

    Raises
    ------
    DataError
        If the file is missing, a line is not a tree, or no sentence is positive or negative.
    """
    phrases = [phrase for phrase in data.load_split(path) if phrase.label != NEUTRAL]
    if not phrases:
        raise DataError(
            f'{path}: all sentences are neutral (label {NEUTRAL}), and these are left out'
        )
    return phrases
