"""Show on stderr what the stages make of a model, for developers: ``GLUON_EDBATCH_DEBUG=1`` to
``4``.

1 shows schedules, 2 also plans, 3 also subgraphs before and after each change, 4 also native
programs. (Users call ``scope.explain()``.)
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
    """Print something on stderr from a debug level on; below it, no text is made."""
    if level <= LEVEL:
        text = str(what).replace('\n', '\n  ')
        print(f'edb: {title}' + (f'\n  {text}' if text else ''), file=sys.stderr)


def changed(what: str, before: _Graph, after: _Graph) -> _Graph:
    """Return the subgraph `after`, and show both subgraphs at the debug level if they differ."""
    if LEVEL >= SUBGRAPHS and after is not before:
        show(SUBGRAPHS, f'{what} makes of', before)
        show(SUBGRAPHS, 'this:', after)
    return after
