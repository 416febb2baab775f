"""Serving: evaluate the requests of many users in shared batches (see docs/serving.md)."""

from gluon_edbatch_core.serving.folder import Served
from gluon_edbatch_core.serving.metrics import Histogram, Metrics

from .engine import Engine
from .scope_batch import emit

__all__ = ['Engine', 'Histogram', 'Metrics', 'Served', 'emit']
