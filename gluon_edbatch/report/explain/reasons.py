"""Explain what kept the calls of a line apart, and what would help.

Causes add up. A line needs as many batches as its longest chain of calls. It needs more if the
chains of each block are counted separately, then of each type, then of each evaluation. The rest is
due to the scheduler. Calls that must run alone are a batch each.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Optional

from mxnet import gluon

from ...execute.counts import EvaluationCounts
from ...execute.evaluate import Evaluator
from ...execute.executable import WHY
from ...record.families import serves_padding, why_not_padded
from ...subgraph.additions import is_addition
from ...subgraph.node_type import NodeType
from ..analysed import analysed
from .advice import (
    FOR_ADDITIONS,
    ROUNDS,
    advice_for,
    advice_for_alone,
    advice_for_argument,
    advice_for_blocks,
    advice_for_lengths,
    advice_for_weight,
)
from .differences import PARAMETERS, Difference, differences, value_text
from .explanation import Bar, Cause, Reason, counted, site_text


class Use(NamedTuple):
    """The calls of one type at one place."""

    node_type: NodeType
    block: Optional[gluon.Block]
    calls: int
    needed: int  # batches, since the calls depend on each other
    more_apart: int  # batches in addition, as the calls are of several evaluations


def block_reasons(uses: Sequence[Use], needed: int, needs: Sequence[int]) -> Iterator[Reason]:
    """Yield the reason that several blocks of one class are called, if it costs batches.

    All calls of the line need `needed` batches, and those of each block `needs`."""
    calls: Counter[gluon.Block] = Counter()
    for use in uses:
        calls[use.block] += use.calls
    more = sum(needs) - needed
    if len(needs) == 1 or not more:
        return
    first, second = (block for block, _ in calls.most_common(2))
    named = [f'{block.name} ({counted("call", count)})' for block, count in calls.most_common(3)]
    text = f'{len(calls)} blocks are called here, each in batches of its own: ' + ', '.join(
        named + ['…'] * (len(calls) > 3)
    )
    names = first.name, second.name
    yield Reason(Cause.BLOCK, text, advice_for_blocks(first, second), names, (), more)


def type_reasons(uses: Sequence[Use], needed: int) -> Iterator[Reason]:
    """Yield the reasons that one block or operator has several types, if it costs batches.

    Calls of the block that can be batched need `needed` batches."""
    uses = [use for use in uses if not use.node_type.alone]
    more = sum(use.needed for use in uses) - needed
    if len(uses) < 2 or more <= 0:
        return
    types, block = [use.node_type for use in uses], uses[0].block
    padded = any(map(serves_padding, types))
    by_cause: dict[Cause, list[Difference]] = {}
    for difference in differences(types, block, [use.calls for use in uses]):
        cause = Cause.PADDED if padded and difference.cause in _OF_PADDING else difference.cause
        by_cause.setdefault(cause, []).append(difference)
    for cause, found in by_cause.items():
        why = analysed(_why_apart, cause, types, block)
        text = _in_words(found) + (f'; not padded to one length: {why}' if why else '')
        if cause is Cause.ARGUMENT:
            advice = advice_for_argument(found[0], types[0])
        elif cause is Cause.WEIGHT:
            advice = advice_for_weight(found[0])
        elif why and cause is Cause.SHAPE:
            advice = advice_for_lengths(why, block, found[0].values)
        else:
            advice = advice_for(cause, any(node_type.whole for node_type in types))
        yield Reason(cause, text, advice, found[0].values, (), more)


_OF_PADDING = Cause.SHAPE, Cause.ARGUMENT


def _why_apart(cause: Cause, types: Sequence[NodeType], block: Optional[gluon.Block]) -> str:
    """Explain why calls that differ in their lengths are not padded to one length."""
    if cause is Cause.LENGTHS:
        return types[0].why_by_length()
    return why_not_padded(block, types) if cause is Cause.SHAPE else ''


def merged(reasons_of: Iterable[Iterable[Reason]]) -> list[Reason]:
    """Merge reasons of several blocks, one for each cause: the costliest, at the cost of all."""
    by_cause: dict[Cause, list[Reason]] = {}
    for reason in chain.from_iterable(reasons_of):
        by_cause.setdefault(reason.cause, []).append(reason)
    return [
        max(same, key=lambda reason: reason.batches)._replace(
            batches=sum(reason.batches for reason in same)
        )
        for same in by_cause.values()
    ]


def alone_reasons(uses: Sequence[Use], needed: int, batched: int) -> Iterator[Reason]:
    """Yield the reason for which calls of one block or operator must run one by one.

    All calls need `needed` batches; those that can be batched need `batched`."""
    alone = [use for use in uses if use.node_type.alone]
    calls = sum(use.calls for use in alone)
    more = calls + batched - needed
    if not alone or not more:
        return
    most = max(alone, key=lambda use: use.calls)
    text = most.node_type.reason
    cause = Cause.NO_RULE if 'no batching rule' in text else Cause.MIXED_ROWS
    if most.node_type.eager:
        cause = Cause.OWN_GRADIENT
    advice = advice_for_alone(cause, most.node_type, most.block)
    yield Reason(cause, f'{calls} calls run one by one: {text}', advice, (text,), (), more)


def large_reasons(bars: Sequence[Bar], needed: int) -> Iterator[Reason]:
    """Yield the reason for large calls, one in each of these bars, that ran eagerly."""
    if not bars:
        return
    text = f'{counted("call", len(bars))} ran eagerly, as large calls do: {WHY}'
    more = max(0, len(bars) - needed)
    advice = advice_for(Cause.AT_ONCE)
    yield Reason(Cause.AT_ONCE, text, advice, (len(bars),), (), more)


def evaluation_reasons(
    uses: Sequence[Use], asked: Sequence[EvaluationCounts], waiting: int, evaluator: Evaluator
) -> Iterator[Reason]:
    """Yield the reasons for calls that ran in several evaluations, `asked` for in this order; some
    are still `waiting`."""
    more = sum(use.more_apart for use in uses if not use.node_type.alone)
    before = asked if waiting else asked[:-1]
    if not more or not before:
        return
    times = len(asked) + bool(waiting)  # those that wait need one more at least
    early = round(more * sum(count.early for count in before) / len(before))
    for cause, verb, share in (
        (Cause.READ_EARLY, 'needed a value while the scope was recording', early),
        (Cause.ASKED_APART, 'asked for some of the values only', more - early),
    ):
        is_early = cause is Cause.READ_EARLY
        sites = Counter(count.asked_by for count in before if count.early == is_early)
        if sites:
            where = ', '.join(
                f'{site_text(site)} ({count} times)' if count > 1 else site_text(site)
                for site, count in sites.most_common(3)
            )
            text = f'{where} {verb}, so the calls ran in {times} evaluations'
            whys = dict.fromkeys(filter(None, map(evaluator.reasons.get, sites)))
            text += ''.join([f'; {why}' for why in whys])
            in_rounds = all(site in evaluator.rounds for site in sites)
            advice = ROUNDS if in_rounds and is_early else advice_for(cause)
            yield Reason(cause, text, advice, (times,), tuple(sites), share)


def scheduler_reason(
    uses: Sequence[Use], name: str, taken: dict[NodeType, tuple[int, int]], advice: str
) -> Iterator[Reason]:
    """Yield the reason if the scheduler took more batches than the lower bound.

    `taken` has the types for which it did: batches in the whole scope, and the fewest possible."""
    found = [taken[use.node_type] for use in uses if use.node_type in taken]
    if found:  # these differ in batches and bound
        batches, bound = (sum(column) for column in zip(*found))
        text = (
            f'{name!r} ran calls of these types, wherever they were made, in {batches} '
            f'batches; not fewer than {bound} are possible'
        )
        yield Reason(Cause.SCHEDULER, text, advice, (batches, bound), (), batches - bound)


def dependency_reason(uses: Sequence[Use], needed: int, batches: int) -> Iterator[Reason]:
    """Yield the reason if calls of a line depend on each other; if any ran, only these count."""
    needed = min(needed, batches) if batches else needed
    if needed < 2:
        return
    text = (
        f'up to {needed} calls each need the result of the one before, so {needed} '
        f'batches are the fewest possible'
    )
    advice = advice_for(Cause.DEPENDENCY)
    if all([is_addition(use.node_type.graph.subgraph) for use in uses]):
        text += f'; {_why_no_sum([use.node_type for use in uses])}'
        advice = FOR_ADDITIONS
    yield Reason(Cause.DEPENDENCY, text, advice, (needed, batches))


def _why_no_sum(types: Sequence[NodeType]) -> str:
    """Explain why additions that follow each other do not run as one sum."""
    if not all([node_type.options.additions for node_type in types]):
        return 'the compile option additions is off'
    if not all([node_type.addition for node_type in types]):
        return 'only additions of floating-point values of one shape are one sum'
    return 'their partial sums are read, too'


def _in_words(found: Sequence[Difference]) -> str:
    """Return the first difference with its values, and the names of the others, as text."""
    first = found[0]
    verb = 'are' if first.what == PARAMETERS else 'is'
    one, other = (value_text(first.cause, value) for value in first.values[:2])
    if other == one:
        other = 'another'
    text = f'{first.what} {verb} {one} in {counted("call", first.calls[0])}'
    if len(first.values) == 2:
        text += f' and {other} in {first.calls[1]}'
    else:
        more = len(first.values) - 2
        text += (
            f', {other} in {first.calls[1]}, and {more} other{"s" * (more > 1)} in '
            f'{sum(first.calls[2:])}'
        )
    if len(found) > 1:
        text += (
            '; likewise '
            + ', '.join(difference.what for difference in found[1:4])
            + (', …' if len(found) > 4 else '')
        )
    return text
