"""Dataclasses of an explanation, and their text."""

import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby
from typing import Any, NamedTuple

from ...record.sites import Site

_WIDTH = 100
_TIMES = 8  # lines
_WELL = 12  # lines of places that nothing keeps apart


class Cause(Enum):
    """Reason why calls do not share a batch; the value is its text in an explanation."""

    BLOCK = 'another block'
    SHAPE = 'another shape'
    DTYPE = 'another dtype'
    CONTEXT = 'another context'
    WEIGHT = 'another weight'
    ARGUMENT = 'another argument that is no array'
    ATTRIBUTE = 'a block that was changed'
    LENGTHS = 'lengths of ragged arguments'
    PADDED = 'sentences that are packed or unpacked by length'
    MODE = "autograd's mode"
    NO_RULE = 'an operator without a batching rule'
    MIXED_ROWS = 'rows that are not independent'
    OWN_GRADIENT = 'an operator that makes a gradient of its own'
    AT_ONCE = 'calls that are faster one by one'
    READ_EARLY = 'a value read early'
    INPUT = 'arrays that cost more than their call'
    ASKED_APART = 'values asked for one after the other'
    SCHEDULER = 'the scheduler'
    DEPENDENCY = 'dependencies'


class Reason(NamedTuple):
    """A reason that kept calls of a line apart.

    Attributes
    ----------
    cause : Cause
    text, advice : str
        The reason as text, with its values; what would help.
    values : tuple
        In what the calls differ, the most frequent values first. For dependencies, the longest
        chain of calls and the batches they ran in. For the scheduler, its number of batches and the
        fewest possible.
    sites : tuple of Site
        The user's lines that forced evaluations, each once.
    batches : int
        Upper bound on the number of batches saved without this reason.
    """

    cause: Cause
    text: str
    advice: str
    values: tuple[Any, ...] = ()
    sites: tuple[Site, ...] = ()
    batches: int = 0


class Bar(NamedTuple):
    """The share of a line in a batch.

    Attributes
    ----------
    batch : int
        Number of the batch in the scope, from 0, in the order in which they ran.
    evaluation : int
        Number of the evaluation, from 0.
    type : int
        Number of the type, from 0.
    type_name : str
        Name in the report; several types can have one name.
    calls, size : int
        Calls of this line in the batch, and all calls of the batch.
    """

    batch: int
    evaluation: int
    type: int
    type_name: str
    calls: int
    size: int


class SiteReport(NamedTuple):
    """Calls of one operator, or of blocks of one class, on one line of the user's code.

    Attributes
    ----------
    site : Site
    source : str
        Text of the line, if it can be read.
    operation : str
        Operator, or class of the blocks.
    calls, waiting : int
        Calls that were evaluated, and calls that were not yet.
    bars : tuple of Bar
        The batches that they ran in.
    fewest : int
        Number of batches that its calls need because they depend on each other.
    largest_possible : int
        Number of calls that could be in one batch if only dependencies kept them apart. (They are
        equally deep; larger sets of independent calls may exist.)
    reasons : tuple of Reason
    seconds : float
        Evaluation time of its calls, if the scope measured it; lines that share a batch have shares
        by rows.
    """

    site: Site
    source: str
    operation: str
    calls: int
    waiting: int
    bars: tuple[Bar, ...]
    fewest: int
    largest_possible: int
    reasons: tuple[Reason, ...]
    seconds: float = 0.0

    @property
    def batches(self) -> int:
        """Number of batches with calls of this line; other lines may share them."""
        return len(self.bars)

    @property
    def largest(self) -> int:
        """Most calls of this line in one batch."""
        return max([bar.calls for bar in self.bars], default=0)

    @property
    def avoidable(self) -> int:
        """Upper bound on the batches saved if only dependencies kept calls apart."""
        return sum(_batches_by_cause([self]).values())


class Explanation(NamedTuple):
    """Why the calls of a scope were batched as they were (see `batching.explain`).

    Attributes
    ----------
    scheduler : str
    evaluations, calls, batches, lower_bound : int
        The counters of `Report`.
    waiting : int
        Number of calls that are recorded and not evaluated.
    error : str
        The exception that ended the scope, if there was one.
    places : tuple of SiteReport
        Lines with the most avoidable batches first, then those with the most batches.
    given : tuple of (str, int)
        Number of arrays given in each way, equal ones counted once; and of numbers.
    seconds : float
        Evaluation time, if the scope measured it.
    """

    scheduler: str
    evaluations: int
    calls: int
    waiting: int
    batches: int
    lower_bound: int
    error: str
    places: tuple[SiteReport, ...]
    given: tuple[tuple[str, int], ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = self.summary() + self.times()
        given: set[str] = set()
        well: list[str] = []
        for site, group in groupby(self.places, lambda place: place.site):
            places = list(group)
            if any(place.reasons for place in places) and not _is_known_chain(places, given):
                line = f'{site_text(site)}: {places[0].source}'.rstrip(': ')
                lines += ['', line if len(line) <= _WIDTH else line[: _WIDTH - 1] + '…']
                for place in places:
                    lines += _place_lines(place, given)
            else:
                well += [f'{site_text(site)}  {headline(place)}' for place in places]
        lines += [''] * bool(well) + well[:_WELL]
        if len(well) > _WELL:
            lines.append(f'and {counted("place", len(well) - _WELL)} with nothing to tell')
        return '\n'.join(lines)

    def times(self) -> list[str]:
        """Return lines by the time that their calls took, longest first; empty if not measured."""
        if not self.seconds:
            return []
        found = sorted(self.places, key=lambda place: -place.seconds)
        known = [(place.seconds, f'{site_text(place.site)}  {place.operation}') for place in found]
        others = [seconds for seconds, _ in known[_TIMES:]]
        known = known[:_TIMES]
        if others:
            known.append((sum(others), counted('other place', len(others))))
        left = self.seconds - sum([place.seconds for place in found])
        known.append((left, 'what is done once: graph, schedule, plan, arrays, weights'))
        return ['', f'evaluations took {1e3 * self.seconds:.3g} ms, of which'] + [
            f'{100 * seconds / self.seconds:4.0f} % {1e3 * seconds:9.3f} ms  {what}'
            for seconds, what in known
        ]

    def summary(self) -> list[str]:
        """Return the first lines of the text, on the whole scope: calls and batches, what was not
        evaluated, arguments, and what keeps calls apart."""
        if not self.places:
            return ['nothing was recorded in this scope: there is nothing to explain']
        lines = []
        if self.calls:
            lines.append(
                f'{counted("call", self.calls)} at {len(self.places)} places in '
                f'{counted("batch", self.batches)} '
                f'({self.scheduler}; lower bound {self.lower_bound}), '
                f'{self.calls / self.batches:.1f} calls a batch'
            )
        if self.error:
            lines.append(f'{counted("call", self.waiting)} will never be evaluated: {self.error}')
        elif self.waiting:
            lines.append(
                f'{counted("call", self.waiting)} not evaluated yet: they run when somebody looks '
                f'at a value, or by gluon_edbatch.forward'
            )
        if self.given:
            given = '; '.join([counted(what, count) for what, count in self.given])
            lines.append(f'given: {given}')
        lost = _batches_by_cause(self.places)
        if Cause.SCHEDULER in lost:  # several places can have the same types
            lost[Cause.SCHEDULER] = min(lost[Cause.SCHEDULER], self.batches - self.lower_bound)
        if lost:
            causes = ', '.join(f'{cause.value} {count}' for cause, count in lost.most_common())
            lines += _wrapped(
                f'what keeps calls apart, and how many batches it costs at most: {causes}', '', '  '
            )
        else:
            lines.append('nothing but dependencies keeps calls apart')
        return lines


def site_text(site: Site) -> str:
    """Return a line's place for readers, relative to the working directory if it is below that."""
    here = os.getcwd() + os.sep
    name = site.filename.removeprefix(here)
    return str(site._replace(filename=name))


def headline(place: SiteReport) -> str:
    """Return the figures of a line of code as one line of text."""
    if not place.bars:
        return (
            f'{place.operation}: {counted("call", place.waiting)} not evaluated yet, of which '
            f'{place.largest_possible} could be one batch'
        )
    largest = f'{place.largest}' + (
        '' if place.largest == place.largest_possible else f' ({place.largest_possible} possible)'
    )
    waiting = f'; {counted("call", place.waiting)} not evaluated yet' if place.waiting else ''
    return (
        f'{place.operation}: {counted("call", place.calls)} in '
        f'{counted("batch", place.batches)}, the largest of {largest}{waiting}'
    )


def reason_text(reason: Reason) -> str:
    """Return cause and text of a reason."""
    cost = f' (at most {counted("batch", reason.batches)})' if reason.batches else ''
    return f'{reason.cause.value}{cost}: {reason.text}'


def _place_lines(place: SiteReport, given: set[str]) -> list[str]:
    """Return the text of a line of code; advice in `given` is not repeated."""
    lines = _wrapped(headline(place), '  ', '    ')
    for reason in place.reasons:
        lines += _wrapped(reason_text(reason), '  - ', '    ')
        if reason.advice and reason.advice not in given:
            given.add(reason.advice)
            lines += _wrapped(reason.advice, '    -> ', '       ')
    return lines


def _is_known_chain(places: Sequence[SiteReport], given: set[str]) -> bool:
    """Return whether only dependencies keep calls of a line apart, and that was said already."""
    return all(
        reason.cause is Cause.DEPENDENCY and reason.advice in given
        for place in places
        for reason in place.reasons
    )


def _wrapped(text: str, first: str, other: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=other,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _batches_by_cause(places: Iterable[SiteReport]) -> 'Counter[Cause]':
    """Count batches by cause; those that several differences of types explain count for the
    first."""
    counts: Counter[Cause] = Counter()
    for place in places:
        types = False
        for reason in place.reasons:
            if reason.batches and not (types and reason.cause in TYPE_CAUSES):
                counts[reason.cause] += reason.batches
            types = types or reason.cause in TYPE_CAUSES
    return counts


TYPE_CAUSES = frozenset(
    (
        Cause.SHAPE,
        Cause.DTYPE,
        Cause.CONTEXT,
        Cause.WEIGHT,
        Cause.ARGUMENT,
        Cause.ATTRIBUTE,
        Cause.LENGTHS,
        Cause.PADDED,
        Cause.MODE,
    )
)


def counted(what: str, count: int) -> str:
    """Return a count and its noun, plural if needed; text after a comma stays as it is."""
    noun, comma, rest = what.partition(',')
    plural = 'es' if noun.endswith('ch') else 's'
    return f'{count} {noun}{plural * (count != 1)}{comma}{rest}'
