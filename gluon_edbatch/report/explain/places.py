"""Make explanations of the user's lines from arrays of calls."""

import linecache
from dataclasses import replace
from typing import Optional

import numpy as np

from gluon_edbatch_core.schedule import Scheduler, lower_bound
from gluon_edbatch_core.schedule.bound import least_batches

from ...execute.counts import EvaluationCounts
from ...record.recording import Recording
from ...record.sites import Site
from ...subgraph.node_type import NodeType
from ..analysed import analysed
from .advice import advice_for_scheduler
from .explanation import Bar, Explanation, Reason, SiteReport
from .given import costs_by_place, given_in_all
from .history import History, seconds_of_calls, split
from .reasons import (
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
    by_place = split(np.arange(len(history.place)), history.place)
    places = sorted(map(found.place, by_place), key=_rank)
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
    """Explain all lines of a scope, each from the numbers of its calls."""

    def __init__(self, recording: Recording, history: History, scheduler: str, seconds: np.ndarray):
        self._history, self._scheduler, self._seconds = history, scheduler, seconds
        self._evaluator, counts = recording.evaluator, recording.evaluator.counts
        self._costs = costs_by_place(recording, history.place)
        self._taken = _taken(history, counts)
        self._advice = analysed(advice_for_scheduler, counts) if self._taken else ''
        self._sizes = np.bincount(history.batch[history.batch >= 0])
        place, kind = history.place, history.type
        self._alone = np.array([node_type.alone for node_type in history.types])[kind]
        # Calls that wait may have been wanted by nobody, but those that a read came before.
        self._early = bool(counts) and counts[-1].early
        self._counted = (history.batch >= 0) | self._early
        self._in_place = history.ranks(place)
        self._in_block = history.ranks(place, history.block)
        self._batched = history.ranks(place, history.block, self._alone.astype(np.int64))
        self._in_type = history.ranks(place, kind)
        counted = self._counted.astype(np.int64)
        self._together = history.ranks(place, kind, counted)
        self._apart = history.ranks(place, kind, counted, history.evaluation)

    def place(self, calls: np.ndarray) -> SiteReport:
        """Return the explanation of one line from all of its calls."""
        history = self._history
        site, operation = history.places[history.place[calls[0]]]
        ran = calls[history.batch[calls] >= 0]
        bars = [self._bar(same) for same in split(ran, history.batch)]
        widest = int(np.bincount(self._in_place[calls]).max())
        return SiteReport(
            site,
            linecache.getline(site.filename, site.line).strip(),
            operation,
            len(ran),
            len(calls) - len(ran),
            tuple(bars),
            _largest(self._in_place[calls]),
            max([widest, *[bar.calls for bar in bars]]),
            tuple(self._reasons(calls, bars, len(calls) - len(ran))),
            float(self._seconds[calls].sum()),
        )

    def _bar(self, calls: np.ndarray) -> Bar:
        """Return the share of a line's calls in their batch."""
        history, first = self._history, calls[0]
        batch, kind = int(history.batch[first]), int(history.type[first])
        return Bar(
            batch,
            int(history.evaluation[first]),
            kind,
            repr(history.types[kind]),
            len(calls),
            int(self._sizes[batch]),
        )

    def _use(self, calls: np.ndarray) -> Use:
        """Return the use of a type by a line's calls of it."""
        history, kind = self._history, self._history.type[calls[0]]
        counted = calls[self._counted[calls]]
        apart = [_largest(self._apart[same]) for same in split(counted, history.evaluation)]
        return Use(
            history.types[kind],
            history.blocks[kind],
            len(calls),
            _largest(self._in_type[calls]),
            sum(apart) - _largest(self._together[counted]),
        )

    def _reasons(self, calls: np.ndarray, bars: list[Bar], waiting: int) -> list[Reason]:
        history, needed = self._history, _largest(self._in_place[calls])
        blocks = split(calls, history.block)
        uses_of = [[self._use(same) for same in split(own, history.type)] for own in blocks]
        uses = [use for same in uses_of for use in same]
        needs = [_largest(self._in_block[own]) for own in blocks]
        batched = [_largest(self._batched[own[~self._alone[own]]]) for own in blocks]
        counts = self._evaluator.counts
        large = [bar for bar in bars if counts[bar.evaluation].are_large]
        asked = [counts[evaluation] for evaluation in sorted({bar.evaluation for bar in bars})]
        reasons = [
            *block_reasons(uses, needed, needs),
            *merged(map(type_reasons, uses_of, batched)),
            *merged(map(alone_reasons, uses_of, needs, batched)),
            *large_reasons(large, needed),
            *evaluation_reasons(uses, asked, waiting if self._early else 0, self._evaluator),
            *scheduler_reason(uses, self._scheduler, self._taken, self._advice),
            *dependency_reason(uses, needed, len(bars)),
            *self._costs.get(int(history.place[calls[0]]), ()),
        ]
        most = len(bars) - 1  # nothing can save more
        if not bars or waiting:
            return reasons
        return [each._replace(batches=min(each.batches, most)) for each in reasons]


def _largest(ranks: np.ndarray) -> int:
    return int(ranks.max(initial=0))


def _taken(history: History, counts: list[EvaluationCounts]) -> dict[NodeType, tuple[int, int]]:
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
