"""Make explanations of the user's lines from arrays of calls."""

import linecache
from collections import defaultdict
from dataclasses import replace
from typing import Optional

import numpy as np

from ...execute.counts import Counts
from ...record.recording import Recording
from ...record.sites import Site
from ...schedule import Scheduler, lower_bound
from ...schedule.bound import least_batches
from ...subgraph.node_type import NodeType
from ..analysed import analysed
from .advice import advice_for_scheduler
from .explanation import Bar, Explanation, Reason, SiteReport
from .given import costs_by_place, given_in_all
from .history import Groups, History, distinct, seconds_of_calls
from .reasons import (
    Asked,
    Use,
    alone_reasons,
    block_reasons,
    dependency_reason,
    evaluation_reasons,
    large_reasons,
    merged,
    scheduler_reason,
    type_reasons,
)


def explain(recording: Optional[Recording], scheduler: Scheduler) -> Explanation:
    """Explain why the calls of a recording were batched as they were, without an evaluation."""
    if recording is None or not len(recording.node_forms):
        return Explanation(scheduler.name, 0, 0, 0, 0, 0, '', ())
    counts = recording.evaluator.counts
    history = History.of(recording)
    seconds = seconds_of_calls(recording)
    found = _Places(recording, history, scheduler.name, seconds)
    places = sorted(map(found.place, range(len(history.places))), key=_rank)
    first: dict[Site, tuple] = {}
    for place in places:
        first.setdefault(place.site, _rank(place))
    places.sort(key=lambda place: first[place.site])  # places on one line stay together
    calls = int((history.batch >= 0).sum())
    return Explanation(
        scheduler.name,
        len(counts),
        calls,
        len(history.batch) - calls,
        sum(len(count.schedule) for count in counts),
        sum(lower_bound(replace(count.graph)) for count in counts),
        recording.error or '',
        tuple(places),
        given_in_all(recording),
        sum([count.collect_s + count.schedule_s + count.execute_s for count in counts])
        if seconds.any()
        else 0.0,
    )


def _rank(place: SiteReport) -> tuple:
    return -place.avoidable, -place.batches, place.site, place.operation


class _Places:
    """Explain all lines of a scope, from groups of its calls."""

    def __init__(self, recording: Recording, history: History, scheduler: str, seconds: np.ndarray):
        self._history, self._scheduler = history, scheduler
        evaluator, counts = recording.evaluator, recording.evaluator.counts
        self._costs = costs_by_place(recording, history.place)
        self._seconds = np.bincount(history.place, seconds).tolist()
        self._asked = [
            Asked(
                count.asked_by,
                count.early,
                count.asked_by in evaluator.rounds,
                evaluator.reasons.get(count.asked_by, ''),
            )
            for count in counts
        ]
        self._large = [count.are_large for count in counts]
        self._taken = _taken(history, counts)
        self._advice = analysed(advice_for_scheduler, counts) if self._taken else ''
        place, kind = history.place, history.type
        self._of_place = history.groups(place)
        self._calls = np.bincount(place).tolist()
        self._waiting = np.bincount(place[history.batch < 0], minlength=len(self._calls)).tolist()
        alone = np.array([node_type.alone for node_type in history.types], np.int64)[kind]
        self._block_needs = _needs(history.groups(place, history.block))
        self._batched_needs = _needs(history.groups(place, 2 * history.block + alone))
        # Calls that wait may have been wanted by nobody, but those that a read came before.
        self._early = bool(counts) and counts[-1].early
        self._uses = _uses(history, _more_apart(history, (history.batch >= 0) | self._early))
        self._bars = _bars(history)

    def place(self, number: int) -> SiteReport:
        """Return the explanation of one line."""
        history = self._history
        site, operation = history.places[number]
        waiting, bars = self._waiting[number], self._bars[number]
        return SiteReport(
            site,
            linecache.getline(site.filename, site.line).strip(),
            operation,
            self._calls[number] - waiting,
            waiting,
            tuple(bars),
            int(self._of_place.longest[number]),
            max([int(self._of_place.widest[number])] + [bar.calls for bar in bars]),
            tuple(self._reasons(number, bars, waiting)),
            self._seconds[number],
        )

    def _reasons(self, number: int, bars: list[Bar], waiting: int) -> list[Reason]:
        by_block = self._uses[number]
        uses = [use for same in by_block.values() for use in same]
        needed, block_needs = int(self._of_place.longest[number]), self._block_needs[number]
        batched_needs = {block: self._batched_needs[number].get(2 * block, 0) for block in by_block}
        large = [bar for bar in bars if self._large[bar.evaluation]]
        asked = [self._asked[evaluation] for evaluation in sorted({bar.evaluation for bar in bars})]
        reasons = [
            *block_reasons(uses, needed, block_needs),
            *merged(
                reason
                for block, same in by_block.items()
                for reason in type_reasons(same, batched_needs[block])
            ),
            *merged(
                reason
                for block, same in by_block.items()
                for reason in alone_reasons(same, block_needs[block], batched_needs[block])
            ),
            *large_reasons(large, needed),
            *evaluation_reasons(uses, asked, waiting if self._early else 0),
            *scheduler_reason(uses, self._scheduler, self._taken, self._advice),
            *dependency_reason(uses, needed, len(bars)),
            *self._costs.get(number, ()),
        ]
        most = len(bars) - 1  # nothing can save more
        if not bars or waiting:
            return reasons
        return [each._replace(batches=min(each.batches, most)) for each in reasons]


def _needs(groups: Groups) -> dict[int, dict[int, int]]:
    """Return the longest chain for both keys of each group."""
    needs: dict[int, dict[int, int]] = defaultdict(dict)
    for (place, key), longest in zip(groups.keys.tolist(), groups.longest.tolist()):
        needs[place][key] = longest
    return needs


def _more_apart(history: History, counted: np.ndarray) -> dict[tuple[int, int], int]:
    """Return how many more batches the `counted` calls of each type need at each line than they
    would in one evaluation."""
    together = history.groups(history.place, history.type, counted.astype(np.int64))
    apart = history.groups(
        history.place, history.type, counted.astype(np.int64), history.evaluation
    )
    more: dict[tuple[int, int], int] = defaultdict(int)
    for groups, sign in ((apart, 1), (together, -1)):
        for (place, node_type, count, *_), longest in zip(
            groups.keys.tolist(), groups.longest.tolist()
        ):
            more[place, node_type] += sign * count * longest
    return more


def _uses(
    history: History, more_apart: dict[tuple[int, int], int]
) -> dict[int, dict[int, list[Use]]]:
    """Return the types of each block or operator (numbered as in `History.block`), at each line."""
    place, kind, block = history.place, history.type, history.block
    found = history.groups(place, block, kind)
    _, _, calls = distinct(place, block, kind)
    uses: dict[int, dict[int, list[Use]]] = defaultdict(lambda: defaultdict(list))
    for (number, owner, node_type), longest, count in zip(
        found.keys.tolist(), found.longest.tolist(), calls.tolist()
    ):
        uses[number][owner].append(
            Use(
                history.types[node_type],
                history.blocks[node_type],
                count,
                longest,
                more_apart[number, node_type],
            )
        )
    return uses


def _bars(history: History) -> dict[int, list[Bar]]:
    """Return the batches of each line."""
    ran = np.flatnonzero(history.batch >= 0)
    batch = history.batch[ran]
    sizes = np.bincount(batch)
    one = np.zeros(len(sizes), np.int64)
    one[batch] = ran
    bars: dict[int, list[Bar]] = defaultdict(list)
    pairs, _, calls = distinct(history.place[ran], batch)
    for (place, number), count in zip(pairs.tolist(), calls.tolist()):
        kind = int(history.type[one[number]])
        bars[place].append(
            Bar(
                number,
                int(history.evaluation[one[number]]),
                kind,
                repr(history.types[kind]),
                count,
                int(sizes[number]),
            )
        )
    return bars


def _taken(history: History, counts: list[Counts]) -> dict[NodeType, tuple[int, int]]:
    """Return batches and lower bound of the types for which they differ."""
    batches, bounds = np.zeros((2, len(history.types)), np.int64)
    for count in counts:
        graph, made = replace(count.graph), count.schedule  # which keeps what is derived from it
        bound = least_batches(graph)
        if len(made) == bound.sum():
            continue
        first = made.order[made.bounds[:-1]]
        kinds, where = np.unique(graph.types, return_index=True)
        here = history.type[count.calls[where]]
        batches[here] += np.bincount(graph.types[first], minlength=graph.num_types)[kinds]
        bounds[here] += bound[kinds]
    return {
        history.types[kind]: (int(batches[kind]), int(bounds[kind]))
        for kind in np.flatnonzero(batches > bounds).tolist()
    }
