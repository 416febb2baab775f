"""Search for the most probable way to write a word, with a beam."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .data import COPY, END, VOWELS, Step, Word, letter_id

__all__ = ['MOST_VOWELS', 'Hypothesis', 'Search', 'expand', 'prune']

MOST_VOWELS = 4  # in a row


class Search(NamedTuple):
    """Limits of a beam search (see `prune`)."""

    word: Word
    width: int
    margin: float = math.inf


class Hypothesis(NamedTuple):
    """A beginning of a word that beam search has written, with its score.

    Attributes
    ----------
    score : float
        Its log-probability.
    text : str
    position : int
        Number of consonants written so far.
    vowels : int
        Number of vowels since the last consonant.
    states
        States of the decoder, before it reads the last letter.
    complete : bool
    """

    score: float
    text: str
    position: int
    vowels: int
    states: Any
    complete: bool = False

    def step(self) -> Step:
        """The decoder's input."""
        return Step(letter_id(self.text[-1]) if self.text else END, self.position)


def expand(
    hypothesis: Hypothesis, consonants: str, log_probs: np.ndarray, states: Any
) -> list[Hypothesis]:
    """Return the hypotheses that may follow one.

    Parameters
    ----------
    log_probs : numpy.ndarray
        (number of actions,)
    states
        States of the decoder afterwards.
    """
    score, text, position, vowels, *_ = hypothesis
    copied = consonants[position : position + 1]
    found = [
        Hypothesis(
            score + float(log_probs[COPY]),
            text + copied,
            position + 1,
            0,
            states,
            complete=not copied,
        )
    ]
    if vowels < MOST_VOWELS:
        found += [
            Hypothesis(score + float(log_prob), text + vowel, position, vowels + 1, states)
            for vowel, log_prob in zip(VOWELS, log_probs[COPY + 1 :])
        ]
    return found


def prune(hypotheses: Sequence[Hypothesis], width: int, margin: float) -> list[Hypothesis]:
    """Return the hypotheses to follow, best first: at most `width`, with log-probabilities at most
    `margin` below the best (Freitag and Al-Onaizan 2017). Those that cannot become better than a
    complete one are dropped, as probabilities only fall."""
    kept: list[Hypothesis] = []
    for hypothesis in sorted(hypotheses, key=lambda one: -one.score)[:width]:
        if kept and hypothesis.score < kept[0].score - margin:
            break
        kept.append(hypothesis)
        if hypothesis.complete:
            break
    return kept
