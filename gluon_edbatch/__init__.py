"""Automatic batching of dynamic neural networks for Apache MXNet Gluon."""
from ._require import require_mxnet

from . import compiled

require_mxnet()
compiled.load('gluon_edbatch.edges')

# pylint: disable=wrong-import-position
from . import nd, rnn, visualize
from .concurrent import run_concurrently, value
from .errors import (BatchError, EdbError, PolicyError, RecordError, RowDependenceError,
                     SampleError, StaleValueError)
from .explain import Cause, Explanation
from .fold import Fold, Unfold, fold_unroll
from .functional import add_n, concat, forward, ragged, stack
from .mixin import AutoBatchMixin
from .native.library import available as native_available
from .record.lazy import LazyArray
from .report import Report
from .reuse import Reuse
from .schedule import (AgendaScheduler, BeamScheduler, CachedScheduler, DepthScheduler,
                       FSMScheduler, Policy, QLearningConfig, Scheduler, StateEncoding,
                       SufficientConditionScheduler, UnbatchedScheduler, learn_policy,
                       lower_bound)
from .scope import batching
from .static.options import CompileOptions, compile_options

__version__ = '0.1.0'

COMPILED = compiled.all_compiled()
compiled.say_what_is_slower()

__all__ = [
    'AgendaScheduler', 'AutoBatchMixin', 'BatchError', 'BeamScheduler', 'COMPILED',
    'CachedScheduler', 'Cause', 'CompileOptions', 'DepthScheduler', 'EdbError', 'Explanation',
    'FSMScheduler', 'Fold', 'LazyArray', 'Policy', 'PolicyError', 'QLearningConfig',
    'RecordError', 'Report', 'Reuse', 'RowDependenceError', 'SampleError', 'Scheduler',
    'StaleValueError', 'StateEncoding', 'SufficientConditionScheduler', 'UnbatchedScheduler',
    'Unfold', 'add_n', 'batching', 'compile_options', 'concat', 'fold_unroll', 'forward',
    'learn_policy', 'lower_bound', 'native_available', 'nd', 'ragged', 'rnn',
    'run_concurrently', 'stack', 'value', 'visualize',
]
