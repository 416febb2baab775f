"""Serving: evaluate the requests of many users in shared batches (see docs/serving.md)."""

from .engine import Engine
from .folder import Served
from .lanes import emit
from .metrics import Histogram, Metrics

__all__ = ['Engine', 'Histogram', 'Metrics', 'Served', 'emit']
