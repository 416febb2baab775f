"""Automatic batching of dynamic neural networks for Apache MXNet Gluon."""
from ._require import require_mxnet

require_mxnet()

# pylint: disable=wrong-import-position
from . import nd, rnn
from .errors import BatchError, EdbError, RecordError, RowDependenceError, StaleValueError
from .functional import add_n, concat, forward, ragged, stack
from .mixin import AutoBatchMixin
from .record import COMPILED
from .record.lazy import LazyArray
from .report import Report
from .schedule import (AgendaScheduler, DepthScheduler, Scheduler, UnbatchedScheduler,
                       lower_bound)
from .scope import batching

__version__ = '0.1.0'

__all__ = [
    'AgendaScheduler', 'AutoBatchMixin', 'BatchError', 'COMPILED', 'DepthScheduler', 'EdbError', 'LazyArray',
    'RecordError', 'Report', 'RowDependenceError', 'Scheduler', 'StaleValueError',
    'UnbatchedScheduler', 'add_n', 'batching', 'concat', 'forward', 'lower_bound', 'nd', 'ragged',
    'rnn', 'stack',
]
