"""Find named entities in sequences of tags, and compare predicted with true ones."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ['Span', 'SpanScore', 'TAG_FORM', 'is_tag', 'score_spans', 'spans']

TAG_FORM = 'O, B-TYPE or I-TYPE'


class Span(NamedTuple):
    """An entity: its type, its first position and the one after its last."""

    kind: str
    begin: int
    end: int


class SpanScore(NamedTuple):
    """Figures of a tagger. A span counts as found if type, begin and end are all right."""

    accuracy: float  # of single tags
    precision: float
    recall: float
    f1: float

    def __str__(self) -> str:
        return (
            f'accuracy {self.accuracy:.4f}  F1 {self.f1:.4f} '
            f'(precision {self.precision:.4f}, recall {self.recall:.4f})'
        )


def is_tag(tag: str) -> bool:
    """Return whether a text is a tag: ``O``, ``B-TYPE`` or ``I-TYPE``."""
    return tag == 'O' or (tag[:2] in ('B-', 'I-') and len(tag) > 2)


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the entities in a sequence of tags, by the rules of CoNLL's ``conlleval``.

    A span begins with ``B-``, or with ``I-`` where no span of its type goes on. So both IOB1
    (``B-`` only between neighbours of one type) and IOB2 (``B-`` always) are read.
    """
    found: list[Span] = []
    kind, begin = 'O', 0
    for position, tag in enumerate([*tags, 'O']):
        prefix, _, now = tag.partition('-')
        if prefix == 'I' and now == kind:
            continue
        if kind != 'O':
            found.append(Span(kind, begin, position))
        kind, begin = now or 'O', position
    return found


def score_spans(true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> SpanScore:
    """Return accuracy of tags, and precision, recall and F1 of spans, over all sentences.

    A figure without a denominator (nothing predicted, nothing to be found) is 0.
    """
    right = tokens = both = 0
    counts = [0, 0]
    for true_tags, predicted_tags in zip(true, predicted):
        if len(true_tags) != len(predicted_tags):
            raise ValueError(f'{len(predicted_tags)} tags for {len(true_tags)} tokens')
        right += sum(map(str.__eq__, true_tags, predicted_tags))
        tokens += len(true_tags)
        sets: tuple[set[Span], set[Span]] = set(spans(true_tags)), set(spans(predicted_tags))
        counts = [count + len(one) for count, one in zip(counts, sets)]
        both += len(sets[0] & sets[1])
    recall, precision = (both / count if count else 0.0 for count in counts)
    f1 = 2 * both / sum(counts) if both else 0.0
    return SpanScore(right / tokens if tokens else 0.0, precision, recall, f1)
