"""Makes the embedded sample: words of a made-up language.

    python example/beam_search/make_sample.py          # writes example/beam_search/sample

Some words have no vowel but "a"; all others begin with "e" and go on with any of "e", "i" and "o".
An "e" is thus the most probable first vowel, but "a" begins the most probable word: a search with
one hypothesis goes wrong where a beam does not. The same seed gives the same files, byte for byte,
with every version of Python.
"""
import argparse
import random
from pathlib import Path
from typing import List, Sequence

__all__ = ['SPLITS', 'make_words', 'write_sample']

SPLITS = {'train': 800, 'dev': 150}

CONSONANTS = 'bdfgklmnprst'
WITH_A = 0.4            # share of the words whose vowels are all "a"
WORDS_ON_A_LINE = 10


class Writer:
    """Draws words. Uses only `random.random`, which stays the same between versions of Python."""

    def __init__(self, seed: str):
        self._random = random.Random(seed).random

    def pick(self, items: Sequence):
        return items[int(self._random() * len(items))]

    def word(self) -> str:
        later = 'a' if self._random() < WITH_A else 'eio'
        vowel, word = later[0], self.pick(CONSONANTS)
        for _ in range(self.pick([2, 3])):
            word += vowel + self.pick(CONSONANTS)
            vowel = self.pick(later)
        return word


def make_words(count: int, seed: str) -> List[str]:
    """Different words."""
    writer, words = Writer(seed), {}
    while len(words) < count:
        words[writer.word()] = None
    return list(words)


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write the splits into a directory."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for split, count in (splits or SPLITS).items():
        words = make_words(count, f'{seed} {split}')
        with (directory / f'{split}.txt').open('w', encoding='utf-8', newline='\n') as file:
            for start in range(0, count, WORDS_ON_A_LINE):
                file.write(' '.join(words[start:start + WORDS_ON_A_LINE]) + '\n')


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description='Make a sample of words.')
    parser.add_argument('--out', default=str(Path(__file__).with_name('sample')), metavar='DIR',
                        help='where to write it (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=0)
    options = parser.parse_args()
    write_sample(options.out, seed=options.seed)


if __name__ == '__main__':
    main()
