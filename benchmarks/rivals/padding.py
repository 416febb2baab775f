"""Pad minibatches to rectangles: the index arithmetic of the rivals that pad. NumPy only.

Sentences are rows with as many columns as the longest has words; masks mark the words.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Optional

import numpy as np

__all__ = [
    'Graphs',
    'Groups',
    'Height',
    'Jagged',
    'OfGraphs',
    'OfGroups',
    'OfWords',
    'Orders',
    'Phrases',
    'Sentences',
    'Words',
    'padded',
    'plan_graphs',
    'plan_jagged',
    'plan_orders',
    'plan_phrases',
    'plan_sentences',
    'plan_words',
]

GROUPS = 4  # of sentences


class Graphs(NamedTuple):
    """Graphs of n words each, T at most.

    Parameters
    ----------
    words : numpy.ndarray
        (N, T), ids.
    edges : numpy.ndarray
        (N, T, T), 1 where the column's word is next to the row's. Each is next to itself, padding
        as well, so that no row is empty.
    places : numpy.ndarray
        (sum of n,), of the words that are there in ``words``, flattened.
    """

    words: Any
    edges: Any
    places: Any


class Orders(NamedTuple):
    """Shuffled sentences of n words each, T at most.

    Parameters
    ----------
    read : numpy.ndarray
        (N, T), ids of words.
    lengths : numpy.ndarray
        (N,), n.
    positions : numpy.ndarray
        (N, T), 1 where a word is.
    written : numpy.ndarray
        (N, T), ids of words in the right order.
    right : numpy.ndarray
        (N, T, T), 1 where the column's word may be what is written in the row's step.
    """

    read: Any
    lengths: Any
    positions: Any
    written: Any
    right: Any


class Height(NamedTuple):
    """M phrases at one distance from their farthest words, with at most K phrases in each.

    Parameters
    ----------
    begin, end : int
        Their rows among all phrases of a minibatch.
    parts : numpy.ndarray
        (M, 2), rows of what they consist of.
    inside : numpy.ndarray
        (M, K), rows of all in them.
    there : numpy.ndarray
        (M, K) float32, 1 where ``inside`` is no padding.
    """

    begin: int
    end: int
    parts: Any
    inside: Any
    there: Any


class Phrases(NamedTuple):
    """Binary trees in the order in which they run: words come first, and then height by height.

    Parameters
    ----------
    words : numpy.ndarray
        Ids.
    heights : list of Height
    order : numpy.ndarray
        Numbers of phrases, row by row; they count tree by tree, children before their parents.
    back : numpy.ndarray
        Rows of phrases, number by number.
    """

    words: Any
    heights: list[Height]
    order: Any
    back: Any


class Sentences(NamedTuple):
    """Sentences of about one length.

    Parameters
    ----------
    words : numpy.ndarray
        (N, T), ids.
    lengths : numpy.ndarray
        (N,) float32.
    """

    words: Any
    lengths: Any


class Jagged(NamedTuple):
    """The words of N sentences in one array.

    Parameters
    ----------
    words, positions : numpy.ndarray
        (number of words,), ids, and places in their sentences.
    offsets : numpy.ndarray
        (N + 1,), where sentences begin and the last ends.
    """

    words: Any
    positions: Any
    offsets: Any


class Words(NamedTuple):
    """Sentences of different lengths, padded to the longest.

    Parameters
    ----------
    words : numpy.ndarray
        (N, T), ids.
    there : numpy.ndarray
        (N, T) float32, 1 where words are.
    """

    words: Any
    there: Any


def padded(rows: Sequence[Sequence[float]], mask: np.ndarray) -> np.ndarray:
    """Return rows of different lengths as one array, with zeros where `mask` is."""
    array = np.zeros(mask.shape, np.int64)
    array[mask] = np.fromiter(chain.from_iterable(rows), np.int64, mask.sum())
    return array


def plan_graphs(samples: Sequence[Any]) -> Graphs:
    """Return graphs of samples with ``words`` and ``heads``; a word and its head are neighbours."""
    mask = _mask(samples)
    heads = padded([sample.heads for sample in samples], mask)
    edges = np.zeros((*mask.shape, mask.shape[1]), np.float32)
    edges[:, range(mask.shape[1]), range(mask.shape[1])] = 1
    sample, word = np.nonzero(mask & (heads < mask.sum(axis=1, keepdims=True)))
    head = heads[sample, word]
    edges[sample, word, head] = edges[sample, head, word] = 1
    words = padded([sample.words for sample in samples], mask)
    return Graphs(words, edges, np.flatnonzero(mask))


def plan_orders(samples: Sequence[Any], longest: Optional[int] = None) -> Orders:
    """Return sentences of samples with ``words``, ``names`` and ``order``; T is `longest` if
    given."""
    mask = _mask(samples, longest)
    words, names, order = (
        padded([getattr(sample, field) for sample in samples], mask)
        for field in ('words', 'names', 'order')
    )
    written = np.take_along_axis(names, order, axis=1)
    right = (written[:, :, None] == names[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    return Orders(
        words,
        mask.sum(axis=1),
        mask.astype(np.float32),
        np.take_along_axis(words, order, axis=1),
        right.astype(np.float32),
    )


def plan_phrases(trees: Sequence[Any]) -> Phrases:
    """Return the phrases of trees with ``token`` and ``children``; inner phrases have smaller
    numbers."""
    words: list[int] = []
    measures: list[tuple[int, int]] = []  # phrases in each, itself among them, and height
    for tree in trees:
        _measure(tree, words, measures)
    sizes, heights = np.array(measures).T
    order = np.argsort(heights, kind='stable')
    back = np.argsort(order)
    bounds = np.searchsorted(heights[order], range(1, heights.max() + 2)).tolist()
    found = []
    for begin, end in zip(bounds, bounds[1:]):
        own = order[begin:end, None]
        inside = sizes[own] - 1
        numbers = own - inside + np.arange(inside.max())
        parts = np.concatenate([own - 1 - sizes[own - 1], own - 1], axis=1)
        found.append(
            Height(
                begin,
                end,
                back[parts],
                back[np.minimum(numbers, own - 1)],
                (numbers < own).astype(np.float32),
            )
        )
    return Phrases(np.array(words), found, order, back)


def _measure(tree: Any, words: list[int], measures: list[tuple[int, int]]) -> tuple[int, int]:
    if tree.children:
        sizes, heights = zip(*[_measure(child, words, measures) for child in tree.children])
        measures.append((1 + sum(sizes), 1 + max(heights)))
    else:
        words.append(tree.token)
        measures.append((1, 0))
    return measures[-1]


def plan_sentences(samples: Sequence[Any], groups: int) -> tuple[list[Sentences], np.ndarray]:
    """Return sentences in `groups` rectangles, the shortest in the first, and the place of each."""
    order = np.argsort([len(sample) for sample in samples], kind='stable')
    found = []
    for chosen in np.array_split(order, min(groups, len(samples))):
        group = [samples[index] for index in chosen]
        mask = _mask(group)
        words = padded([sample.words[0] for sample in group], mask)
        found.append(Sentences(words, mask.sum(axis=1).astype(np.float32)))
    return found, np.argsort(order)


def plan_jagged(samples: Sequence[Any]) -> Jagged:
    """Return sentences one after another."""
    words = np.concatenate([sample.words[0] for sample in samples]).astype(np.int64)
    positions = np.concatenate([np.arange(len(sample)) for sample in samples])
    return Jagged(words, positions, np.cumsum([0, *map(len, samples)]))


def plan_words(samples: Sequence[Any]) -> Words:
    """Return sentences in one rectangle."""
    mask = _mask(samples)
    words = padded([sample.words[0] for sample in samples], mask)
    return Words(words, mask.astype(np.float32))


def _mask(samples: Sequence[Any], longest: Optional[int] = None) -> np.ndarray:
    """Return (N, T), where words are."""
    lengths = np.array([len(sample) for sample in samples])
    return np.arange(longest or lengths.max()) < lengths[:, None]


class OfGraphs:
    """A rival whose plans are graphs; its `_upload` puts arrays on the device."""

    def plan(self, samples: Sequence[Any]) -> Graphs:
        """Return padded words and matrices of neighbours."""
        return Graphs(*self._upload(plan_graphs(samples)))


class Groups(NamedTuple):
    """Sentences in rectangles, and the place of each in all of them, on the device."""

    sentences: list[Sentences]
    back: Any


class OfGroups:
    """A rival whose plans are sentences sorted by length, in several groups."""

    def plan(self, samples: Sequence[Any]) -> Groups:
        """Return the samples' words, padded in groups of similar lengths."""
        groups, back = plan_sentences(samples, GROUPS)
        (place,) = self._upload([back])
        return Groups([Sentences(*self._upload(group)) for group in groups], place)

    def batches(self, plan: Groups) -> int:
        """Return the number of groups, for each of which the encoder runs once."""
        return len(plan.sentences)


class OfWords:
    """A rival that takes several steps over padded words."""

    most: int  # steps

    def plan(self, samples: Sequence[Any]) -> Words:
        """Return the samples' words, padded to the longest sentence."""
        return Words(*self._upload(plan_words(samples)))

    def batches(self, plan: Words) -> int:
        """Return the largest number of steps."""
        return self.most
