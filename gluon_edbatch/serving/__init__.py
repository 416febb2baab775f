"""Serving: evaluate the requests of many users in shared batches (see docs/serving.md)."""

from .engine import Engine
from .folder import Served
from .metrics import Histogram, Metrics
from .scope_batch import emit

__all__ = ['Engine', 'Histogram', 'Metrics', 'Served', 'emit']
