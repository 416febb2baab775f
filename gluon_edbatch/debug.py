"""What the stages make of a model, on stderr, for developers: ``GLUON_EDBATCH_DEBUG=1`` to ``4``.

1 shows schedules, 2 plans, too, 3 subgraphs before and after whatever changes them, 4 native
programs. What is shown has a ``__str__`` of its own. (Users ask ``scope.explain()``.)
"""

import os
import sys
from typing import TypeVar

SCHEDULES, PLANS, SUBGRAPHS, PROGRAMS = 1, 2, 3, 4
_asked = os.environ.get('GLUON_EDBATCH_DEBUG') or '0'
if _asked not in list('01234'):
    raise ValueError(f'GLUON_EDBATCH_DEBUG is a level from 0 to 4, not {_asked!r}')
LEVEL = int(_asked)

_Graph = TypeVar('_Graph')


def show(level: int, title: str, what: object = '') -> None:
    """Show something from this level on; it is made text only then."""
    if level <= LEVEL:
        text = str(what).replace('\n', '\n  ')
        print(f'edb: {title}' + (f'\n  {text}' if text else ''), file=sys.stderr)


def changed(what: str, before: _Graph, after: _Graph) -> _Graph:
    """Give a subgraph, and show it beside what it was if something changed it."""
    if LEVEL >= SUBGRAPHS and after is not before:
        show(SUBGRAPHS, f'{what} makes of', before)
        show(SUBGRAPHS, 'this:', after)
    return after
