"""Recording: the user's code runs once per sample, and its calls become nodes."""

from gluon_edbatch_core.compiled import load

load(f'{__name__}.indexing')
load(f'{__name__}.stores')
load(f'{__name__}.scopes')
load(f'{__name__}.calls')
load(f'{__name__}.expressions')
load(f'{__name__}.sample_greenlets')
