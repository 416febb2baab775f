"""Graphs, schedules, programs and bundles, which need NumPy only.

``gluon_edbatch`` and ``gluon_edbatch_runtime`` import it.
"""

from .compiled import load

load(f'{__name__}.recorded_columns')
