"""Make the embedded sample: English sentences with dependency trees, from a small grammar.

    python example/transition_parser/make_sample.py    # writes example/transition_parser/sample

Where a phrase belongs is told by words: "with a telescope" goes with what is seen, "with a beard"
with who has it. Some relative clauses stand at the end of the sentence ("A painter came who ..."),
which makes trees that are not projective. The files are CoNLL-U. The same seed gives the same
files, byte for byte, with every version of Python.
"""

import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Optional

from example.common.samples import Writer, run_maker, write_files

__all__ = ['SPLITS', 'Word', 'conllu', 'make_sentences', 'write_sample']

SPLITS = {'train': 400, 'dev': 80, 'test': 80}

ADJECTIVES = 'old young tall famous quiet clever'.split()
ADVERBS = 'often never quickly gladly'.split()
COMERS = 'came left slept arrived'.split()
DETERMINERS = 'the a this every'.split()
INSTRUMENTS = 'telescope camera mirror lens'.split()
PEOPLE = 'painter king writer engineer baker general'.split()
PLACES = 'garden museum village harbour tower'.split()
POSSESSIONS = 'beard hat dog secret'.split()
SEERS = 'saw watched found noticed'.split()


class Word:
    """A word of a tree, with its dependents in order.

    Attributes
    ----------
    form, tag, relation : str
    head : Word or None
        None for the root.
    left, right : list of Word
        Dependents before and behind it.
    """

    def __init__(self, form: str, tag: str):
        self.form, self.tag, self.relation = form, tag, 'root'
        self.head: Optional[Word] = None
        self.left: list[Word] = []
        self.right: list[Word] = []

    def before(self, relation: str, word: 'Word') -> 'Word':
        """Take a dependent to the left of all others."""
        self.left.insert(0, word._under(self, relation))
        return self

    def behind(self, relation: str, word: 'Word') -> 'Word':
        """Take a dependent to the right of all others."""
        self.right.append(word._under(self, relation))
        return self

    def far(self, relation: str, word: 'Word') -> 'Word':
        """Be the head of a word that stands elsewhere; return that word."""
        return word._under(self, relation)

    def _under(self, head: 'Word', relation: str) -> 'Word':
        self.head, self.relation = head, relation
        return self

    def phrase(self) -> list['Word']:
        """Return the word and all below it, in the order of reading."""
        return [
            *(word for side in self.left for word in side.phrase()),
            self,
            *(word for side in self.right for word in side.phrase()),
        ]


class Grammar(Writer):
    """Draw sentences from the grammar."""

    def sentence(self) -> list[Word]:
        """Return the words of a sentence, in the order of reading."""
        subject, clause = self.person(), []
        verb = self.event()
        verb.before('nsubj', subject)
        if self.chance(0.1):
            clause = subject.far('acl:relcl', self.relative()).phrase()
        return verb.phrase() + clause + [verb.far('punct', Word('.', 'PUNCT'))]

    def event(self) -> Word:
        """Return a verb with what follows it."""
        if self.chance(0.35):
            verb = Word(self.pick(COMERS), 'VERB')
        else:
            verb = Word(self.pick(SEERS), 'VERB').behind('obj', self.person())
            if self.chance(0.3):
                verb.behind('obl', self.prepositional('with', INSTRUMENTS))
        if self.chance(0.25):
            verb.behind('obl', self.prepositional(self.pick(['in', 'near']), PLACES))
        if self.chance(0.25):
            verb.before('advmod', Word(self.pick(ADVERBS), 'ADV'))
        return verb

    def person(self) -> Word:
        noun = self.nominal(PEOPLE)
        if self.chance(0.25):
            noun.behind('nmod', self.prepositional('with', POSSESSIONS))
        elif self.chance(0.2):
            noun.behind('nmod', self.prepositional('of', PLACES))
        if self.chance(0.12):
            noun.behind('acl:relcl', self.relative())
        return noun

    def relative(self) -> Word:
        return self.event().before('nsubj', Word('who', 'PRON'))

    def prepositional(self, preposition: str, nouns: Sequence[str]) -> Word:
        return self.nominal(nouns).before('case', Word(preposition, 'ADP'))

    def nominal(self, nouns: Sequence[str]) -> Word:
        noun = Word(self.pick(nouns), 'NOUN')
        if self.chance(0.3):
            noun.before('amod', Word(self.pick(ADJECTIVES), 'ADJ'))
        return noun.before('det', Word(self.pick(DETERMINERS), 'DET'))


def conllu(sentence: Sequence[Word]) -> str:
    """Return a sentence in CoNLL-U, followed by an empty line."""
    number = {None: 0, **{word: place for place, word in enumerate(sentence, 1)}}
    lines = [
        f'{number[word]}\t{word.form}\t_\t{word.tag}\t_\t_\t{number[word.head]}\t'
        f'{word.relation}\t_\t_\n'
        for word in sentence
    ]
    return f'# text = {" ".join(word.form for word in sentence)}\n' + ''.join(lines) + '\n'


def make_sentences(count: int, seed: str) -> list[str]:
    """Return the sentences of a file."""
    grammar = Grammar(seed)
    return [conllu(grammar.sentence()) for _ in range(count)]


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write the splits into a directory."""
    write_files(
        directory,
        {
            f'{split}.conllu': ''.join(make_sentences(count, f'{seed} {split}'))
            for split, count in (splits or SPLITS).items()
        },
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_maker(
        write_sample,
        Path(__file__).with_name('sample'),
        'Make a sample of dependency trees in CoNLL-U.',
        arguments,
    )


if __name__ == '__main__':
    sys.exit(main())
