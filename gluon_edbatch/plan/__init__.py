"""From a schedule to a plan of memory: which rows each batch writes, and which it reads how."""

from ..compiled import load

for _name in ('rows', 'layout'):
    load(f'{__name__}.{_name}')
