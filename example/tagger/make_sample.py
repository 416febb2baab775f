"""Make the embedded sample: tagged English sentences, from a small grammar.

    python example/tagger/make_sample.py               # writes example/tagger/sample

Names of people, places, organisations and peoples are mostly made up of syllables, with endings
that tell what they name (-son, -ville, -ish). So a model that reads the characters of rare words
knows more. Tags are in IOB1, as in WikiNER. The same seed gives the same files, byte for byte, with
every version of Python.
"""

import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import NamedTuple, Optional

from example.common.samples import Writer, run_maker, write_files

__all__ = ['SPLITS', 'Phrase', 'make_sentences', 'tagged', 'write_sample']

SPLITS = {'train': 200, 'dev': 50}

SYLLABLES = 'bar ber can cor dal den el fen gar hal jor kel lam mor nar or pel ros sel tam'.split()
FIRST_NAMES = 'Anna Boris Clara David Emma Felix Greta Hugo Ida Jonas'.split()
PEOPLE = 'son sen ez ova'.split()
PLACES = 'ville burg land ia'.split()
NATIONS = 'ish ese ian'.split()
BODIES = ('University', 'Institute', 'Museum', 'Railway', 'Bank')
ROLES = 'painter king writer engineer composer general'.split()
VERBS = 'visited left described founded praised bought'.split()
WORKS = 'opera novel language alphabet revolution'.split()
YEARS = tuple(str(year) for year in range(1700, 2000, 7))


class Phrase(NamedTuple):
    """Words that belong together, and what they name; '' for nothing."""

    text: str
    kind: str = ''


class Grammar(Writer):
    """Draw sentences from the grammar."""

    def sentence(self) -> list[Phrase]:
        sentence = [Phrase(f'In {self.pick(YEARS)} ,')] if self.chance(0.3) else []
        sentence += self.subject()
        sentence.append(Phrase(self.pick(VERBS)))
        if self.chance(0.15):  # neighbours of one kind, which IOB1 tells apart by "B-"
            sentence += [self.place(), self.place()]
        else:
            sentence += self.thing()
        if self.chance(0.15):
            sentence += [Phrase('and'), Phrase(self.pick(VERBS)), *self.thing()]
        return sentence + [Phrase('.')]

    def subject(self) -> list[Phrase]:
        if self.chance(0.6):
            return [self.person()]
        return [Phrase('the'), self.nation(), Phrase(self.pick(ROLES)), self.person()]

    def thing(self) -> list[Phrase]:
        if self.chance(0.3):
            return [Phrase('the'), self.body()]
        if self.chance(0.3):
            return [Phrase('the'), self.nation(), Phrase(self.pick(WORKS))]
        return [self.place() if self.chance(0.6) else self.person()]

    def person(self) -> Phrase:
        name = self.name(PEOPLE)
        return Phrase(f'{self.pick(FIRST_NAMES)} {name}' if self.chance(0.6) else name, 'PER')

    def place(self) -> Phrase:
        return Phrase(self.name(PLACES), 'LOC')

    def nation(self) -> Phrase:
        return Phrase(self.name(NATIONS), 'MISC')

    def body(self) -> Phrase:
        body, place = self.pick(BODIES), self.name(PLACES)
        return Phrase(f'{body} of {place}' if self.chance(0.5) else f'{place} {body}', 'ORG')

    def name(self, endings: Sequence[str]) -> str:
        stem = self.pick(SYLLABLES) + (self.pick(SYLLABLES) if self.chance(0.5) else '')
        return stem.capitalize() + self.pick(endings)


def tagged(sentence: Sequence[Phrase]) -> str:
    """Return a sentence in WikiNER's form."""
    tokens, before = [], ''
    for text, kind in sentence:
        for position, word in enumerate(text.split(' ')):
            begins = position == 0 and kind == before
            tokens.append(f'{word}|{"B" if begins else "I"}-{kind}' if kind else f'{word}|O')
        before = kind
    return ' '.join(tokens)


def make_sentences(count: int, seed: str) -> list[str]:
    """Return random tagged sentences, the lines of a file."""
    grammar = Grammar(seed)
    return [tagged(grammar.sentence()) for _ in range(count)]


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write the splits into a directory."""
    write_files(
        directory,
        {
            f'{split}.txt': ''.join(
                f'{line}\n' for line in make_sentences(count, f'{seed} {split}')
            )
            for split, count in (splits or SPLITS).items()
        },
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_maker(
        write_sample,
        Path(__file__).with_name('sample'),
        'Make a sample in the form of WikiNER.',
        arguments,
    )


if __name__ == '__main__':
    sys.exit(main())
