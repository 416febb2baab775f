"""Make the embedded sample: sentences about films, with the sentiment of every phrase.

    python example/tree_sst/make_sample.py            # writes example/tree_sst/sample

A grammar draws binary trees and computes a value from -2 to 2 for every phrase. An intensifier
strengthens an adjective, "not" reverses and weakens it, "but" lets the second clause win. The same
seed gives the same files, byte for byte, with every version of Python.
"""

import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import NamedTuple, Optional

from example.common.samples import Writer, different, run_maker, write_files

__all__ = ['SPLITS', 'Phrase', 'make_trees', 'write_sample']

SPLITS = {'train': 400, 'dev': 100, 'test': 100}

NOUNS = 'film movie story plot cast acting script music ending comedy thriller director'.split()
ADJECTIVES = {
    2: 'brilliant superb wonderful stunning'.split(),
    1: 'good charming funny clever warm'.split(),
    0: 'long recent quiet french'.split(),
    -1: 'bad dull silly weak slow'.split(),
    -2: 'awful terrible dreadful unwatchable'.split(),
}
VERBS = {
    2: ['adored'],
    1: ['liked', 'enjoyed'],
    0: ['saw', 'discussed'],
    -1: ['disliked', 'regretted'],
    -2: ['hated'],
}
PEOPLE = 'we they critics everybody viewers'.split()
INTENSIFIERS = 'very really truly'.split()
DIMINISHERS = 'somewhat rather slightly'.split()


class Phrase(NamedTuple):
    """A value from -2 to 2, and either a word or two phrases."""

    value: int
    word: Optional[str] = None
    children: tuple['Phrase', ...] = ()

    def __str__(self) -> str:
        inside = self.word or ' '.join(map(str, self.children))
        return f'({self.value + 2} {inside})'


def sign(value: int) -> int:
    """Return the sign of a value: -1, 0 or 1."""
    return (value > 0) - (value < 0)


def negated(value: int) -> int:
    """Return the value of a negated phrase: "not superb" is worse than neutral, but not awful."""
    return -sign(value)


def stronger(value: int) -> int:
    """Return the value of an intensified phrase, such as "very good"."""
    return 2 * sign(value)


def weaker(value: int) -> int:
    """Return the value of a weakened phrase, such as "rather awful"."""
    return sign(value)


def joined(left: int, right: int) -> int:
    """Return the value of two phrases side by side: what they share, or the stronger one's."""
    if left * right < 0:
        return sign(left + right)
    return max(left, right, key=abs)


def both(left: Phrase, right: Phrase, value: Optional[int] = None) -> Phrase:
    """Return a phrase of two phrases; by default its value is that of the two side by side."""
    return Phrase(joined(left.value, right.value) if value is None else value, None, (left, right))


class Grammar(Writer):
    """Draw sentences from the grammar."""

    def word(self, items: Sequence[str], value: int = 0) -> Phrase:
        return Phrase(value, self.pick(items))

    def sentence(self) -> Phrase:
        """Return one clause, or two with "and" or "but" between."""
        clause = self.clause()
        while self.chance(0.35):
            clause = self.longer(clause)
        return both(clause, Phrase(0, '.'))

    def longer(self, clause: Phrase) -> Phrase:
        second = self.clause()
        if self.chance(0.5):
            return both(both(clause, Phrase(0, 'and')), second)
        # Before "but" stands what does not count.
        return both(both(both(clause, Phrase(0, ',')), Phrase(0, 'but')), second, second.value)

    def clause(self) -> Phrase:
        if self.chance(0.35):
            value = self.pick(sorted(VERBS))
            verb = self.word(VERBS[value], value)
            if self.chance(0.25):
                verb = both(both(Phrase(0, 'never'), Phrase(0, 'really')), verb, negated(value))
            return both(self.word(PEOPLE), both(verb, self.noun_phrase()))
        copula = self.word(['is', 'was'])
        return both(self.noun_phrase(), both(copula, self.adjective_phrase()))

    def noun_phrase(self) -> Phrase:
        noun = self.word(NOUNS)
        if self.chance(0.25):
            noun = both(self.adjective(), noun)
        noun = both(self.word(['the', 'this']), noun)
        if self.chance(0.2):
            of = both(Phrase(0, 'of'), both(Phrase(0, 'the'), self.word(NOUNS)))
            noun = both(noun, of)
        return noun

    def adjective(self) -> Phrase:
        value = self.pick(sorted(ADJECTIVES))
        return self.word(ADJECTIVES[value], value)

    def adjective_phrase(self) -> Phrase:
        phrase = self.adjective()
        if self.chance(0.25):
            phrase = both(self.word(INTENSIFIERS), phrase, stronger(phrase.value))
        elif self.chance(0.2):
            phrase = both(self.word(DIMINISHERS), phrase, weaker(phrase.value))
        if self.chance(0.3):
            phrase = both(self.word(['not', 'hardly']), phrase, negated(phrase.value))
        if self.chance(0.15):
            phrase = both(both(phrase, Phrase(0, 'and')), self.adjective())
        return phrase


def make_trees(count: int, seed: str) -> list[str]:
    """Return the lines of a file, no two alike."""
    return list(map(str, different(count, Grammar(seed).sentence)))


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write ``train.txt``, ``dev.txt`` and ``test.txt``."""
    write_files(
        directory,
        {
            f'{split}.txt': ''.join(f'{line}\n' for line in make_trees(count, f'{split}-{seed}'))
            for split, count in (splits or SPLITS).items()
        },
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_maker(
        write_sample,
        Path(__file__).with_name('sample'),
        'Make a sample in the form of the Stanford Sentiment Treebank.',
        arguments,
    )


if __name__ == '__main__':
    sys.exit(main())
