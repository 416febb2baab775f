"""What came of many cases, for people and as data."""

import json
from collections import Counter
from typing import Any

from .case import Outcome, reason

_WIDTH, _COLUMNS = 36, 3


def counted(outcomes: list[Outcome]) -> 'Counter[str]':
    """How often each construct is in all programs."""
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(outcome.constructs)
    return total


def facts(outcomes: list[Outcome]) -> dict[str, Any]:
    """Sums over the programs that were compiled, and the largest of some."""
    compiled = [each.facts for each in outcomes if 'blocks' in each.facts]
    found: dict[str, Any] = {
        name: sum([each.get(name, 0) for each in compiled])
        for name in ('blocks', 'networks', 'branches', 'gradients', 'loaded')
    }
    found['compiled'] = len(compiled)
    found['with branches'] = sum([each['branches'] > 0 for each in compiled])
    found['with samples that part'] = sum([each.get('parted', 0) > 0 for each in compiled])
    found['most blocks'] = max([each['blocks'] for each in compiled], default=0)
    found['deepest'] = max([each.facts.get('depth', 0) for each in outcomes], default=0)
    seconds = [each['seconds'] for each in compiled]
    found['seconds of compiling'] = round(sum(seconds), 1)
    found['longest'] = round(max(seconds, default=0), 1)
    return found


def table(outcomes: list[Outcome]) -> str:
    """Constructs, the most frequent first; what programs were like; what came of them."""
    cells = [
        f'{count:>7} {name}'[:_WIDTH].ljust(_WIDTH)
        for name, count in counted(outcomes).most_common()
    ]
    rows = -(-len(cells) // _COLUMNS)
    lines = [' '.join(cells[row::rows]).rstrip() for row in range(rows)]
    lines.append('')
    lines += [f'{name}: {value}' for name, value in facts(outcomes).items()]
    lines.append('')
    how = Counter([each.how for each in outcomes])
    lines += [f'{count:>7} {name}' for name, count in how.most_common()]
    return '\n'.join(lines)


def as_json(outcomes: list[Outcome], file: str) -> None:
    """Write all of it."""
    with open(file, 'w', encoding='utf-8') as opened:
        json.dump(
            {
                'programs': len(outcomes),
                'outcomes': Counter([each.how for each in outcomes]),
                'refusals': Counter([reason(e.why) for e in outcomes if e.how == 'refused']),
                'constructs': dict(counted(outcomes).most_common()),
                'facts': facts(outcomes),
            },
            opened,
            indent=1,
        )
