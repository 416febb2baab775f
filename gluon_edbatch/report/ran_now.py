"""What reports and explanations say of calls that ran while they were made."""

import linecache
from collections import Counter
from typing import List, Sequence

from ..execute.immediate import CallNow
from ..record.sites import site_at
from ..subgraph.trace import describe
from .counters import Report, TypeReport
from .explain import Bar, Cause, Explanation, Reason, SiteReport
from .explain.advice import advice_for
from .explain.explanation import counted


def with_calls_now(report: Report, calls: Sequence[CallNow], measured: str) -> Report:
    """A report of a scope with these calls besides; each counts as a batch.

    Parameters
    ----------
    report : Report
        Of what was recorded.
    calls : sequence of CallNow
    measured : str
        Of scopes of its kind.
    """
    count = len(calls)
    types = [
        TypeReport(name, times, times, measured, passes=('at_once',), alike=name)
        for name, times in Counter([describe(block) for block, _ in calls]).items()
    ]
    return report._replace(
        nodes=report.nodes + count,
        batches=report.batches + count,
        lower_bound=report.lower_bound + count,
        types=(*types, *report.types),
    )


def explained_with_calls_now(
    explanation: Explanation, calls: Sequence[CallNow], measured: str
) -> Explanation:
    """The same of an explanation."""
    count = len(calls)
    return explanation._replace(
        calls=explanation.calls + count,
        batches=explanation.batches + count,
        lower_bound=explanation.lower_bound + count,
        places=(*_places(calls, measured, explanation.batches), *explanation.places),
    )


def _places(calls: Sequence[CallNow], measured: str, batches: int) -> List[SiteReport]:
    called = [(site_at(*where), type(block).__name__, describe(block)) for block, where in calls]
    places = []
    for site, operation in dict.fromkeys([key[:2] for key in called]):
        mine = [number for number, key in enumerate(called) if key[:2] == (site, operation)]
        bars = [Bar(batches + number, 0, 0, called[number][2], 1, 1) for number in mine]
        text = f'{counted("call", len(mine))} ran at once, as in eager Gluon: {measured}'
        reason = Reason(Cause.AT_ONCE, text, advice_for(Cause.AT_ONCE), (len(mine),))
        places.append(
            SiteReport(
                site,
                linecache.getline(site.filename, site.line).strip(),
                operation,
                len(mine),
                0,
                tuple(bars),
                len(mine),
                1,
                (reason,),
            )
        )
    return places
