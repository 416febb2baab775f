"""What the walk found, operator by operator."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from .registry import Operator
from .workers import EAGER_FAILS, Result

# An operator is what the first of these says that any of its cases was.
WAYS = ('by rule', 'whole values', 'one by one', 'refused', EAGER_FAILS)


class Line(NamedTuple):
    """A line of the table, for one operator.

    Attributes
    ----------
    name : str
    aliases : tuple of str
    way : str
        One of `WAYS`.
    why : str
        Why it is not batched, or what eager MXNet says.
    counts : dict
        Cases by way.
    differences : int
    """

    name: str
    aliases: Sequence[str]
    way: str
    why: str
    counts: dict[str, int]
    differences: int


def lines_of(operators: Sequence[Operator], results: Sequence[Result]) -> list[Line]:
    """A line for each operator, by name."""
    own: dict[str, list[Result]] = {operator.name: [] for operator in operators}
    for result in results:
        own[result.case.op].append(result)
    return [_line(operator, own[operator.name]) for operator in operators]


def _line(operator: Operator, results: list[Result]) -> Line:
    counts = Counter(result.how for result in results)
    way = next((way for way in WAYS if counts[way]), 'refused')
    why = operator.why_not
    if results and not why:
        reasons = Counter(result.why for result in results if result.how == way and result.why)
        why = reasons.most_common(1)[0][0] if reasons else ''
    elif not why:
        why = 'no case was drawn'
    return Line(
        operator.name,
        operator.aliases,
        way,
        why,
        dict(counts),
        sum(bool(result.difference) for result in results),
    )


def shown(lines: Sequence[Line]) -> str:
    """The table as text, and how many operators there are of each way."""
    width = max(len(line.name) for line in lines)
    rows = [f'{"operator":{width}}  {"way":12}  cases  eager fails  differences  why']
    rows += [
        f'{line.name:{width}}  {line.way:12}  {sum(line.counts.values()):5d}  '
        f'{line.counts.get(EAGER_FAILS, 0):11d}  {line.differences:11d}  {line.why}'
        for line in lines
    ]
    ways = Counter(line.way for line in lines)
    names = sum(len(line.aliases) for line in lines)
    rows.append(
        f'{len(lines)} operators under {names} names: '
        + ', '.join(f'{ways[way]} {way}' for way in WAYS)
    )
    return '\n'.join(rows)


def as_json(lines: Sequence[Line], results: Sequence[Result]) -> dict[str, Any]:
    """Table and failing cases, for programs."""
    return {
        'operators': [dict(line._asdict()) for line in lines],
        'cases': len(results),
        'differences': [
            {'case': result.case.name, 'call': str(result.case), 'difference': result.difference}
            for result in results
            if result.difference
        ],
    }
