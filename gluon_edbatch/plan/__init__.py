"""From a schedule to a plan of memory: which rows each batch writes, and which it reads how."""

from ..compiled import load

load(f'{__name__}.layout')
