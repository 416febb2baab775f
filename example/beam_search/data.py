"""Words, what is left of them without vowels, and the actions that write them again.

A data directory holds ``train.txt`` and ``dev.txt``: text with spaces between words, also with tags
(``word|tag``, as in WikiNER). The samples are the different words of small English letters, three
or more; for dev, those that do not occur in the training data.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from example.common.errors import DataError
from example.common.files import read_lines

__all__ = [
    'COPY',
    'END',
    'LAYOUT',
    'NUM_ACTIONS',
    'NUM_LETTERS',
    'VOWELS',
    'Step',
    'Word',
    'letter_id',
    'load_words',
]

LAYOUT = 'train.txt and dev.txt, with text (or word|tag)'
VOWELS = 'aeiou'
END = 0  # of a word, among the ids of letters; a is 1
NUM_LETTERS = 27
COPY = 0  # the next consonant, or, if there is none, the end; vowels are 1 to 5
NUM_ACTIONS = 6

_WORD = re.compile(r'([a-z]{3,})(\|\S+)?')


class Step(NamedTuple):
    """The decoder's input: the letter that was written last, and the number of consonants so
    far."""

    letter: int
    position: int


class Word:
    """One sample: a word and the way to write it.

    Attributes
    ----------
    text : str
    consonants : str
    steps : list of Step
        The steps that write the word, its end included.
    actions : numpy.ndarray
        (len(steps),) float32, the right action of each step.
    """

    __slots__ = ('text', 'consonants', 'steps', 'actions')

    def __init__(self, text: str):
        self.text = text
        self.consonants = ''.join(letter for letter in text if letter not in VOWELS)
        actions = [VOWELS.find(letter) + 1 for letter in text] + [COPY]
        positions = np.cumsum([0] + [action == COPY for action in actions[:-1]]).tolist()
        self.steps = list(map(Step, [END, *map(letter_id, text)], positions))
        self.actions = np.array(actions, np.float32)

    def __repr__(self) -> str:
        return f'Word({self.text!r})'


def letter_id(letter: str) -> int:
    """Return the number of a letter, 1 to 26."""
    return ord(letter) - ord('a') + 1


def load_words(path) -> list[str]:
    """Return the different words of a text that can be samples, in order.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    DataError
        The file is missing or has no such word.
    """
    path = Path(path)
    found = (
        _WORD.fullmatch(token) for line in read_lines(path, LAYOUT) for token in line.split(' ')
    )
    words = list(dict.fromkeys(match.group(1) for match in found if match))
    if not words:
        raise DataError(f'{path}: has no word of three small English letters or more')
    return words
