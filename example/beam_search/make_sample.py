"""Make the embedded sample: words of a made-up language.

    python example/beam_search/make_sample.py          # writes example/beam_search/sample

Some words have no vowel but "a"; all others begin with "e" and go on with any of "e", "i" and "o".
An "e" is thus the most probable first vowel, but "a" begins the most probable word: a search with
one hypothesis goes wrong where a beam does not. The same seed gives the same files, byte for byte,
with every version of Python.
"""

import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Optional

from example.common.samples import Writer, different, run_maker, write_files

__all__ = ['SPLITS', 'make_words', 'write_sample']

SPLITS = {'train': 800, 'dev': 150}

CONSONANTS = 'bdfgklmnprst'
WITH_A = 0.4  # share of the words whose vowels are all "a"
WORDS_ON_A_LINE = 10


class Language(Writer):
    """Draw words of a made-up language."""

    def word(self) -> str:
        later = 'a' if self.chance(WITH_A) else 'eio'
        vowel, word = later[0], self.pick(CONSONANTS)
        for _ in range(self.pick([2, 3])):
            word += vowel + self.pick(CONSONANTS)
            vowel = self.pick(later)
        return word


def make_words(count: int, seed: str) -> list[str]:
    """Return distinct random words of a made-up language."""
    return different(count, Language(seed).word)


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write the splits into a directory."""
    write_files(
        directory,
        {
            f'{split}.txt': _lines(make_words(count, f'{seed} {split}'))
            for split, count in (splits or SPLITS).items()
        },
    )


def _lines(words: Sequence[str]) -> str:
    return ''.join(
        ' '.join(words[start : start + WORDS_ON_A_LINE]) + '\n'
        for start in range(0, len(words), WORDS_ON_A_LINE)
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_maker(
        write_sample, Path(__file__).with_name('sample'), 'Make a sample of words.', arguments
    )


if __name__ == '__main__':
    sys.exit(main())
