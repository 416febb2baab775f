"""Make the embedded sample: sentence pairs with dependency parses and scores, from a grammar.

    python example/tree_lstm/make_sample.py            # writes example/tree_lstm/sample

A scene (who does what to what, where) is drawn, and the second sentence tells an edited scene.
Words are exchanged for synonyms, active for passive. The score is the agreement of the two scenes.
The same seed gives the same files, byte for byte, with every version of Python.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import NamedTuple, Optional

from example.common.samples import Writer, different, run_maker, write_files

__all__ = ['SPLITS', 'Scene', 'Word', 'make_pairs', 'relatedness', 'write_sample']

SPLITS = {'train': 500, 'dev': 100, 'test': 150}

# Words in one group mean the same; groups in one row are of one kind.
NOUNS = (
    ('man guy', 'woman lady', 'boy lad', 'girl', 'child kid'),
    ('dog hound', 'cat', 'horse pony', 'monkey'),
    ('guitar', 'piano', 'flute', 'drum'),
    ('apple', 'sandwich', 'carrot', 'cake'),
    ('bicycle bike', 'motorbike motorcycle', 'scooter'),
    ('car automobile', 'window', 'plate dish'),
    ('ball', 'stick', 'rope'),
)
PEOPLE, ANIMALS, INSTRUMENTS, FOOD, VEHICLES, THINGS, TOYS = range(len(NOUNS))

# Verb with its participle, and the row of its object; None takes none.
VERBS = (
    ('running/run jogging/jogged', None),
    ('sleeping/slept', None),
    ('dancing/danced', None),
    ('swimming/swum', None),
    ('jumping/jumped leaping/leapt', None),
    ('smiling/smiled', None),
    ('playing/played', INSTRUMENTS),
    ('tuning/tuned', INSTRUMENTS),
    ('eating/eaten', FOOD),
    ('slicing/sliced cutting/cut', FOOD),
    ('riding/ridden', VEHICLES),
    ('repairing/repaired fixing/fixed', VEHICLES),
    ('washing/washed cleaning/cleaned', THINGS),
    ('throwing/thrown tossing/tossed', TOYS),
    ('chasing/chased', ANIMALS),
)
ADJECTIVES = ('young', 'old elderly', 'small little', 'big large', 'happy cheerful', 'tired')
PLACES = (
    'in park',
    'on beach shore',
    'in kitchen',
    'near river stream',
    'in street road',
    'on stage',
    'in garden yard',
)

# How much a slot of a scene weighs in the score, and what one word for another is worth.
WEIGHTS = {'verb': 3.0, 'subject': 2.5, 'object': 2.0, 'place': 1.0, 'adjective': 0.7}
SAME_KIND, OMITTED = 0.4, 0.5
OPPOSITE = 0.7  # what is left of the agreement if one sentence denies the other


@dataclass(frozen=True)
class Scene:
    """The content of a sentence; words are given by group: first row, then group, by index."""

    subject: tuple[int, int]
    verb: int
    object: Optional[tuple[int, int]] = None
    adjective: Optional[int] = None
    place: Optional[int] = None
    negated: bool = False


class Word(NamedTuple):
    """A word and what depends on it, on either side."""

    text: str
    before: Sequence['Word'] = ()
    after: Sequence['Word'] = ()

    def flatten(self) -> tuple[list[str], list[int]]:
        """Return tokens, and the parent of each: counted from 1, 0 for the root."""
        tokens: list[str] = []
        heads: dict[int, int] = {}

        def place(word: 'Word') -> int:
            dependents = [place(dependent) for dependent in word.before]
            tokens.append(word.text)
            own = len(tokens)
            dependents += [place(dependent) for dependent in word.after]
            heads.update((dependent, own) for dependent in dependents)
            return own

        heads[place(self)] = 0
        return tokens, [heads[i + 1] for i in range(len(tokens))]


class Grammar(Writer):
    """Draw scenes and put them into words."""

    # Scenes ---------------------------------------------------------------------------------

    def scene(self) -> Scene:
        row = PEOPLE if self.chance(0.75) else ANIMALS
        verb = self.index(VERBS if row == PEOPLE else VERBS[:5])
        return Scene(
            subject=(row, self.index(NOUNS[row])),
            verb=verb,
            object=self.thing(verb),
            adjective=self.index(ADJECTIVES) if self.chance(0.5) else None,
            place=self.index(PLACES) if self.chance(0.5) else None,
            negated=self.chance(0.1),
        )

    def thing(self, verb: int) -> Optional[tuple[int, int]]:
        row = VERBS[verb][1]
        return None if row is None else (row, self.index(NOUNS[row]))

    def edited(self, scene: Scene) -> Scene:
        """Return the scene with up to three changes, or another one."""
        if self.chance(0.12):
            return self.scene()
        for _ in range(self.index(range(4))):
            scene = self.edit(scene)
        return scene

    def edit(self, scene: Scene) -> Scene:
        what = self.pick(('subject', 'verb', 'object', 'place', 'adjective', 'negated'))
        if what == 'subject':
            row = scene.subject[0]
            return replace(scene, subject=(row, self.index(NOUNS[row])))
        if what == 'verb':
            verb = self.index(VERBS if scene.subject[0] == PEOPLE else VERBS[:5])
            return replace(scene, verb=verb, object=self.thing(verb))
        if what == 'object':
            return replace(scene, object=self.thing(scene.verb))
        if what == 'negated':
            return replace(scene, negated=not scene.negated)
        items = PLACES if what == 'place' else ADJECTIVES
        now = getattr(scene, what)
        return replace(
            scene, **{what: self.index(items) if now is None or self.chance(0.4) else None}
        )

    def pair(self) -> tuple[Word, Word, float]:
        """Return two sentences, the second of scenes like those of the first, and their score."""
        left = [self.scene() for _ in range(2 if self.chance(0.3) else 1)]
        right = [self.edited(scene) for scene in left]
        if len(right) == 2 and self.chance(0.5):
            right = right[::-1] if self.chance(0.6) else right[:1]
        return self.sentence(left), self.sentence(right), relatedness(left, right)

    # Words ----------------------------------------------------------------------------------

    def sentence(self, scenes: Sequence[Scene]) -> Word:
        """Return one clause, or two with "and" between; the first verb heads the sentence."""
        clauses = [self.clause(scene) for scene in scenes]
        first = clauses[0]
        for clause in clauses[1:]:
            first = first._replace(after=[*first.after, Word('and'), clause])
        return first

    def clause(self, scene: Scene) -> Word:
        verb, participle = self.pick(VERBS[scene.verb][0].split()).split('/')
        place = self.place(scene.place)
        if scene.negated and self.chance(0.5):
            noun = self.noun(scene.subject, 'no', scene.adjective)
            doing = Word(verb, after=self.things(scene) + place)
            return Word('is', before=[Word('there')], after=[noun._replace(after=[doing])])
        subject = self.noun(scene.subject, self.pick(('a', 'the')), scene.adjective)
        is_not = [Word('is')] + [Word('not')] * scene.negated
        if scene.object is not None and self.chance(0.3):
            return Word(
                participle,
                before=[*self.things(scene), *is_not, Word('being')],
                after=[Word('by', after=[subject]), *place],
            )
        return Word(verb, before=[subject, *is_not], after=self.things(scene) + place)

    def noun(self, which: tuple[int, int], determiner: str, adjective: Optional[int]) -> Word:
        text = self.pick(NOUNS[which[0]][which[1]].split())
        if adjective is None:
            return Word(text, before=[Word(determiner)])
        quality = Word(self.pick(ADJECTIVES[adjective].split()))
        if determiner != 'no' and self.chance(0.2):
            clause = quality._replace(before=[Word('who'), Word('is')])
            return Word(text, before=[Word(determiner)], after=[clause])
        return Word(text, before=[Word(determiner), quality])

    def things(self, scene: Scene) -> list[Word]:
        return (
            [] if scene.object is None else [self.noun(scene.object, self.pick(('a', 'the')), None)]
        )

    def place(self, place: Optional[int]) -> list[Word]:
        if place is None:
            return []
        preposition, *nouns = PLACES[place].split()
        return [Word(preposition, after=[Word(self.pick(nouns), before=[Word('the')])])]


def relatedness(left: Sequence[Scene], right: Sequence[Scene]) -> float:
    """Return a score from 1 (nothing shared) to 5 (the same told twice), in tenths.

    Scenes are compared slot by slot. Of two in a sentence the order does not matter; one that
    the other sentence lacks counts as half agreed at most.
    """
    if len(left) > len(right):
        left, right = right, left
    if len(right) == 1:
        agreed = _agreement(left[0], right[0])
    elif len(left) == 1:
        agreed = 0.7 * max(_agreement(left[0], scene) for scene in right)
    else:
        straight = _agreement(left[0], right[0]) + _agreement(left[1], right[1])
        crossed = _agreement(left[0], right[1]) + _agreement(left[1], right[0])
        agreed = max(straight, crossed) / 2
    return round(1 + 4 * agreed, 1)


def _agreement(left: Scene, right: Scene) -> float:
    total = agreed = 0.0
    for slot, weight in WEIGHTS.items():
        one, other = getattr(left, slot), getattr(right, slot)
        if one is None and other is None:
            continue
        total += weight
        if one == other:
            agreed += weight
        elif one is None or other is None:
            agreed += weight * OMITTED * (slot != 'object')
        elif slot in ('subject', 'object'):
            agreed += weight * SAME_KIND * (one[0] == other[0])
    return agreed / total * (OPPOSITE if left.negated != right.negated else 1.0)


def make_pairs(count: int, seed: str) -> list[tuple[Word, Word, float]]:
    """Return pairs of sentences with their scores, no two alike."""
    return different(
        count,
        Grammar(seed).pair,
        key=lambda pair: tuple(' '.join(word.flatten()[0]) for word in pair[:2]),
    )


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write the sample in SICK's layout."""
    for split, count in (splits or SPLITS).items():
        lines: dict[str, list[str]] = {
            name: [] for name in ('a.toks', 'a.parents', 'b.toks', 'b.parents', 'sim.txt', 'id.txt')
        }
        for i, (left, right, score) in enumerate(make_pairs(count, f'{split}-{seed}')):
            for side, word in (('a', left), ('b', right)):
                tokens, parents = word.flatten()
                lines[f'{side}.toks'].append(_spelled(tokens))
                lines[f'{side}.parents'].append(' '.join(map(str, parents)))
            lines['sim.txt'].append(f'{score:g}')
            lines['id.txt'].append(str(i + 1))
        write_files(
            directory,
            {f'{split}/{name}': '\n'.join(content) + '\n' for name, content in lines.items()},
        )


def _spelled(tokens: Sequence[str]) -> str:
    """Return the sentence as written: a capital at its start, "an" before a vowel."""
    tokens = [
        'an' if token == 'a' and following[0] in 'aeiou' else token
        for token, following in zip(tokens, [*tokens[1:], '.'])
    ]
    return ' '.join([tokens[0].capitalize(), *tokens[1:]])


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_maker(
        write_sample,
        Path(__file__).with_name('sample'),
        'Make a sample in the form of SICK.',
        arguments,
    )


if __name__ == '__main__':
    sys.exit(main())
