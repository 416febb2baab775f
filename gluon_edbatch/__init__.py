"""Automatic batching of dynamic neural networks for Apache MXNet Gluon."""

from gluon_edbatch_core import compiled
from gluon_edbatch_core import schedule as schedule

from .mx.require import require_mxnet

require_mxnet()
compiled.load(f'{__name__}.mx.arrays')

from gluon_edbatch_core.errors import (
    BatchError,
    BundleError,
    DeadlineError,
    DistributedError,
    EdbError,
    EngineClosedError,
    FolderError,
    PolicyError,
    ProgramError,
    QueueFullError,
    RecordError,
    RowDependenceError,
    SampleError,
    StaleValueError,
    StepsError,
)
from gluon_edbatch_core.native.threads import get_num_threads, set_num_threads
from gluon_edbatch_core.schedule import (
    AgendaScheduler,
    BeamScheduler,
    CachedScheduler,
    DepthScheduler,
    FSMScheduler,
    Policy,
    QLearningConfig,
    Scheduler,
    StateEncoding,
    SufficientConditionScheduler,
    UnbatchedScheduler,
    learn_policy,
    lower_bound,
)
from gluon_edbatch_core.version import __version__ as __version__

from . import data, distributed, estimator, rnn, serving, testing
from .api import nd
from .api.concurrent import run_concurrently, value
from .api.export_model import export, export_cells
from .api.functional import add_n, concat, each, forward, ragged, stack
from .api.mixin import AutoBatchMixin
from .api.reuse import Reuse
from .api.scope import batching
from .effects import pure
from .execute.native.library import available as native_available
from .fold import Fold, Unfold, fold_unroll
from .program.network_program import Program, compile_program
from .program.program_bundle import load_program
from .record.lazy import LazyArray
from .report import visualize
from .report.about import About, about
from .report.counters import Report
from .report.explain import Cause, Explanation
from .subgraph.options import CompileOptions, compile_options

COMPILED = compiled.all_compiled()
compiled.say_what_is_slower()

__all__ = [
    'About',
    'AgendaScheduler',
    'AutoBatchMixin',
    'BatchError',
    'BeamScheduler',
    'BundleError',
    'COMPILED',
    'CachedScheduler',
    'Cause',
    'CompileOptions',
    'DeadlineError',
    'DepthScheduler',
    'DistributedError',
    'EdbError',
    'EngineClosedError',
    'Explanation',
    'FSMScheduler',
    'Fold',
    'FolderError',
    'LazyArray',
    'Policy',
    'PolicyError',
    'Program',
    'ProgramError',
    'QLearningConfig',
    'QueueFullError',
    'RecordError',
    'Report',
    'Reuse',
    'RowDependenceError',
    'SampleError',
    'Scheduler',
    'StaleValueError',
    'StateEncoding',
    'StepsError',
    'SufficientConditionScheduler',
    'UnbatchedScheduler',
    'Unfold',
    'about',
    'add_n',
    'batching',
    'compile_options',
    'compile_program',
    'concat',
    'data',
    'distributed',
    'each',
    'estimator',
    'export',
    'export_cells',
    'fold_unroll',
    'forward',
    'get_num_threads',
    'learn_policy',
    'load_program',
    'lower_bound',
    'native_available',
    'nd',
    'pure',
    'ragged',
    'rnn',
    'run_concurrently',
    'serving',
    'set_num_threads',
    'stack',
    'testing',
    'value',
    'visualize',
]
