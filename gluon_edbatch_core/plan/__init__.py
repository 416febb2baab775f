"""Plan the memory of a schedule: which rows each batch writes, and how it reads its arguments."""

from ..compiled import load

for _name in ('rows', 'layout'):
    load(f'{__name__}.{_name}')
