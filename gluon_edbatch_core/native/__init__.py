"""The native executor, optional: run many batches in one call of C++."""

from ..compiled import load

load(f'{__name__}.run_table')
