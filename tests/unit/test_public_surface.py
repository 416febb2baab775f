"""What users may rely on: names, and that nothing else is promised by accident."""

import inspect
import types

import pytest

import gluon_edbatch as edb
from gluon_edbatch import data, distributed, estimator, rnn, schedule, serving, testing, visualize
from gluon_edbatch.report import counters as report
from tests.support.processes import ROOT, run_python

PUBLIC = {
    edb: [
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
    ],
    rnn: ['ChildSumTreeLSTMCell', 'MVRNNCell', 'NaryTreeLSTMCell', 'TreeGRUCell'],
    schedule: [
        'AgendaScheduler',
        'BaseEncoding',
        'BeamScheduler',
        'CachedScheduler',
        'DepthScheduler',
        'FSMScheduler',
        'Frontier',
        'MaxEncoding',
        'PathEncoding',
        'Policy',
        'QLearningConfig',
        'Run',
        'Schedule',
        'Scheduler',
        'SortEncoding',
        'StateEncoding',
        'SufficientConditionScheduler',
        'UnbatchedScheduler',
        'fewest_batches',
        'get_encoding',
        'get_scheduler',
        'learn_policy',
        'lower_bound',
    ],
    data: ['BalancedSampler', 'as_list', 'idle_share', 'recorded_calls'],
    estimator: ['BatchProcessor', 'TensorBoardHandler'],
    distributed: ['Trainer', 'Workers', 'connect'],
    serving: ['Engine', 'Histogram', 'Metrics', 'Served', 'emit'],
    visualize: ['explanation', 'program', 'schedule'],
    testing: ['assert_matches_eager', 'check_schedule', 'check_scheduler'],
}


@pytest.mark.parametrize('module', PUBLIC, ids=lambda module: module.__name__)
def test_names(module):
    assert sorted(module.__all__) == PUBLIC[module]
    for name in module.__all__:
        assert hasattr(module, name)


def test_modules_that_pages_name_need_no_import_of_their_own():
    code = 'import gluon_edbatch as edb; print(*[hasattr(edb, name) for name in edb.__all__])'
    assert set(run_python('-c', code, PYTHONPATH=str(ROOT)).stdout.split()) == {'True'}


def test_nothing_else_is_visible_but_submodules():
    visible = {
        name
        for name, value in vars(edb).items()
        if not name.startswith('_') and not isinstance(value, types.ModuleType)
    }
    assert visible - set(edb.__all__) <= {'require_mxnet'}


@pytest.mark.parametrize('module', PUBLIC, ids=lambda module: module.__name__)
def test_everything_public_is_documented(module):
    for name in module.__all__:
        value = getattr(module, name)
        assert inspect.getdoc(value), f'{module.__name__}.{name} has no docstring'


def test_signatures():
    assert list(inspect.signature(edb.batching).parameters) == [
        'scheduler',
        'ctx',
        'compile_options',
        'timing',
    ]
    assert list(inspect.signature(edb.forward).parameters) == ['values']
    assert list(inspect.signature(edb.stack).parameters) == ['values', 'axis']
    assert list(inspect.signature(edb.concat).parameters) == ['values', 'dim']
    assert list(inspect.signature(edb.add_n).parameters) == ['values']
    assert list(inspect.signature(edb.ragged).parameters) == ['values', 'shape', 'dtype', 'ctx']
    assert list(inspect.signature(edb.export).parameters) == [
        'net',
        'samples',
        'folder',
        'unpack',
        'scheduler',
        'onnx',
        'cpp',
    ]
    assert list(inspect.signature(edb.run_concurrently).parameters) == ['samples', 'fn']
    assert list(inspect.signature(edb.AutoBatchMixin.batch).parameters) == [
        'self',
        'samples',
        'scheduler',
        'unpack',
        'keys',
        'reuse',
    ]


def test_errors():
    for error, base in [
        (edb.RecordError, ValueError),
        (edb.BatchError, RuntimeError),
        (edb.DistributedError, RuntimeError),
        (edb.RowDependenceError, ValueError),
        (edb.SampleError, RuntimeError),
        (edb.StaleValueError, RuntimeError),
    ]:
        assert issubclass(error, edb.EdbError) and issubclass(error, base)


def test_report_fields():
    assert {
        'scheduler',
        'evaluations',
        'nodes',
        'batches',
        'lower_bound',
        'types',
        'gathered_rows',
        'sliced_rows',
        'record_ms',
        'learn_ms',
        'unseen_states',
        'schedule_ms',
        'execute_ms',
        'forced',
    } <= set(report.Report._fields)
    assert {'name', 'calls', 'batches'} <= set(report.TypeReport._fields)


def test_version():
    assert edb.__version__.count('.') == 2
