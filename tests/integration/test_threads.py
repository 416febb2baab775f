"""Native operators on several threads: the same bits as on one, and nobody's way is barred."""

import os
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.native import native_run
from gluon_edbatch.execute.native.native_program import NativeProgram, layout, native_program
from gluon_edbatch.testing import assert_matches_eager
from tests.support.models import ndarrays, random_trees, started
from tests.support.processes import run_python

pytestmark = pytest.mark.skipif(not edb.native_available(), reason='no native operators')
WIDTH = 96  # batches of some dozens of rows have something for several threads
TASKS = Path('/proc/self/task')


@pytest.fixture(autouse=True)
def threads():
    """The number of threads is put back."""
    before = edb.get_num_threads()
    yield
    edb.set_num_threads(before)


class Trees(edb.AutoBatchMixin, gluon.Block):
    """Rows of many batches are gathered, and have several readers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH)
        self.cell = edb.rnn.ChildSumTreeLSTMCell(WIDTH, input_size=WIDTH)
        self.head = nn.Dense(WIDTH // 2, in_units=WIDTH)

    def forward(self, tree):
        return self.head(self.state(tree)[0])

    def state(self, tree):
        return self.cell(self.embed(tree.token), [self.state(child) for child in tree.children])


class Mixed(gluon.HybridBlock):
    """What blocks add to one array: a table's rows, a norm's scale, a weight that is used twice and
    turned once."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, WIDTH)
        self.norm = nn.LayerNorm(in_channels=WIDTH)
        self.dense = nn.Dense(WIDTH, in_units=WIDTH, activation='tanh')
        self.start = self.params.get('start', shape=(1, WIDTH))
        self.matrix = self.params.get('matrix', shape=(WIDTH, WIDTH))

    def hybrid_forward(self, F, token, x, start, matrix):
        y = F.broadcast_add(self.norm(self.embed(token) + x), start)
        return F.dot(self.dense(self.dense(y)), matrix) + F.dot(x, matrix, transpose_b=True)


class Pairs(edb.AutoBatchMixin, gluon.Block):
    """Both arguments of a call are slices, which overlap: neighbours add to one row."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(WIDTH, in_units=WIDTH)
        self.pair = gluon.nn.HybridSequential()
        self.pair.add(nn.Dense(WIDTH, in_units=2 * WIDTH, activation='tanh'))

    def forward(self, words):
        rows = [self.first(word) for word in words]
        return [self.pair(mx.nd.concat(a, b, dim=1)) for a, b in zip(rows, rows[1:])]


class Neighbours(edb.AutoBatchMixin, gluon.Block):
    """Batches that do not read of each other, of which two add to the same rows."""

    def __init__(self):
        super().__init__()
        self.word = nn.Dense(WIDTH, in_units=WIDTH, activation='tanh')
        self.left = nn.Dense(WIDTH, in_units=WIDTH, activation='sigmoid')
        self.right = nn.Dense(WIDTH // 2, in_units=WIDTH)
        self.other = nn.Dense(WIDTH // 2, in_units=WIDTH, activation='relu')

    def forward(self, words):
        rows = [self.word(word) for word in words]
        return [self.left(rows[0]), self.right(rows[-1]), self.other(words[0]), self.left(rows[1])]


class Attention(edb.AutoBatchMixin, gluon.Block):
    """Ragged values: blocks of rows have values of their own."""

    def __init__(self):
        super().__init__()
        self.key = nn.Dense(WIDTH, in_units=WIDTH, flatten=False)
        self.attend = Attend()

    def forward(self, words):
        return self.attend(words[0], self.key(edb.ragged(words)))


class Attend(gluon.HybridBlock):
    def hybrid_forward(self, F, query, keys):
        query = F.expand_dims(query, 1) / WIDTH**0.5  # large scores would make rounding large
        scores = F.batch_dot(query, F.transpose(keys, axes=(0, 2, 1)))
        return F.squeeze(F.batch_dot(F.softmax(scores), keys), axis=1)


def sentences(dtype='float32'):
    generator = np.random.RandomState(3)
    return [
        ndarrays(generator.randint(2, 7), (1, WIDTH), seed, dtype, gradient=True)
        for seed in range(60)
    ]


def one_long_sentence(dtype='float32'):
    return [ndarrays(160, (1, WIDTH), 0, dtype, gradient=True)]


def mixed_samples(dtype='float32'):
    tokens = np.random.RandomState(0).randint(0, 7, (150, 1)).astype(dtype)
    rows = ndarrays(150, (1, WIDTH), dtype=dtype, gradient=True)
    return [(mx.nd.array(token, dtype=dtype), row) for token, row in zip(tokens, rows)]


def trees(dtype='float32'):
    return random_trees(120, largest=7)


class Chance(Pairs):
    """Both arguments of a call are gathered from the same rows."""

    def forward(self, words):
        rows = [self.first(word) for word in words]
        places = np.random.RandomState(0).randint(0, len(rows), (300, 2))
        return [self.pair(mx.nd.concat(rows[a], rows[b], dim=1)) for a, b in places]


MODELS = {
    'trees': (Trees, trees, False),
    'mixed': (Mixed, mixed_samples, True),
    'pairs': (Pairs, one_long_sentence, False),
    'neighbours': (Neighbours, sentences, False),
    'attention': (Attention, sentences, False),
}


def gradients(net, samples):
    arrays = [array for each in samples for array in each if isinstance(array, mx.nd.NDArray)]
    wanted = [array.grad for array in arrays if array.grad is not None]
    return wanted + [parameter.grad() for parameter in net.collect_params().values()]


def flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat(value)
        else:
            yield value


def bits(net, samples, unpack):
    """All results and gradients."""
    with autograd.record():
        with edb.batching(scheduler='depth'):
            values = list(flat([net(*each) if unpack else net(each) for each in samples]))
        results = edb.concat([value.reshape((-1, WIDTH // 2)) for value in values])
        loss = (results * mx.nd.arange(len(results)).reshape((-1, 1)).astype(results.dtype)).sum()
    loss.backward()
    return [array.asnumpy().tobytes() for array in [results, *gradients(net, samples)]]


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('name', MODELS)
def test_bits_are_the_same_on_any_number_of_threads(name, dtype):
    """No row here is gathered by several arguments of a batch, which could add in another order."""
    make, samples_of, unpack = MODELS[name]
    net, samples = started(make(), dtype=dtype), samples_of(dtype)
    edb.set_num_threads(1)
    bits(net, samples, unpack)  # the first batches of a type are compared with single calls
    expected = bits(net, samples, unpack)
    assert len(set(expected)) > len(expected) / 2
    for number in (2, 3, 5):
        edb.set_num_threads(number)
        for _ in range(3):
            assert bits(net, samples, unpack) == expected


@pytest.mark.parametrize('number', [1, 2, 3, 5])
def test_bits_are_the_same_in_every_run(number):
    """The order in which rows get what several arguments add depends on the number of threads."""
    net, samples = started(Chance()), one_long_sentence()
    edb.set_num_threads(number)
    bits(net, samples, False)
    expected = bits(net, samples, False)
    for _ in range(5):
        assert bits(net, samples, False) == expected


@pytest.mark.parametrize('number', [3])  # more than processors, and an odd number
@pytest.mark.parametrize('name', MODELS)
def test_results_and_gradients_are_those_of_eager_gluon(name, number):
    make, samples_of, unpack = MODELS[name]
    edb.set_num_threads(number)
    assert_matches_eager(started(make()), samples_of()[:40], unpack=unpack)


SET_UP = """
import os, sys, threading
import gluon_edbatch as edb, mxnet as mx, numpy as np

mx.random.seed(0)
net = mx.gluon.nn.HybridSequential()
net.add(mx.gluon.nn.Dense(128, in_units=128, activation='tanh'), mx.gluon.nn.Dense(1, in_units=128))
net.initialize()
data = np.random.RandomState(0).uniform(-1, 1, (200, 1, 128)).astype(np.float32)

def evaluate(threads=None):
    if threads:
        edb.set_num_threads(threads)
    with mx.autograd.record():
        with edb.batching():
            values = [net(row) for row in data]
        loss = edb.concat(values).sum()
    loss.backward()
    return loss

def numbers(threads=None):
    with edb.batching(compile_options=edb.CompileOptions(at_once=False)):
        values = [net(row) for row in data]
    if threads:
        edb.set_num_threads(threads)
    return edb.concat(values).asnumpy().tobytes()

def helpers():
    'Of each helper, whether it sleeps, and nanoseconds of processor time.'
    found = {}
    for task in os.listdir('/proc/self/task'):
        read = lambda name: open(f'/proc/self/task/{task}/{name}').read()
        if read('comm') == 'edb-helper\\n':
            asleep = read('stat').rpartition(')')[2].split()[0] == 'S'
            found[task] = asleep, read('schedstat').split()[0]
    return found
"""


def assert_runs(program, first='', **environment):
    done = run_python('-W', 'ignore', '-c', first + SET_UP + program, **environment)
    assert done.returncode == 0, done.stderr


needs_tasks = pytest.mark.skipif(not TASKS.exists(), reason='not Linux')


@needs_tasks
def test_helpers_start_when_they_are_wanted():
    assert_runs("""
evaluate(1).wait_to_read(); mx.nd.waitall()
assert not helpers()
for threads, known in (3, 2), (3, 2), (2, 2), (1, 2), (5, 4):
    evaluate(threads); mx.nd.waitall()
    assert len(helpers()) == known, (threads, helpers())
""")


@needs_tasks
def test_helpers_sleep_when_there_is_nothing_to_do():
    assert_runs("""
evaluate(3); mx.nd.waitall()
before, untouched = helpers(), 0
assert len(before) == 2
for _ in range(3000):  # they may be late in falling asleep
    evaluate(1); mx.nd.waitall()
    now = helpers()
    untouched = untouched + 1 if now == before else 0
    before = now
    if untouched == 30:
        break
assert untouched == 30 and all(asleep for asleep, _ in before.values())
""")


@needs_tasks
@pytest.mark.skipif(os.cpu_count() < 2, reason='they never spin then')
def test_threads_of_mxnets_operators_do_not_spin_beside_helpers():
    """OpenMP threads busy-wait a number of times while OpenMP knows of no more threads than
    processors. Their processor time shows whether they do."""
    assert_runs(
        """
weight, gradient = mx.nd.ones((2, 4096))
def spent():
    'Of all threads but this one, when they sleep.'
    before, now = None, []
    while before != now:
        threading.Event().wait(0.03)
        tasks = sorted(set(os.listdir('/proc/self/task')) - {str(os.getpid())})
        before, now = now, [open(f'/proc/self/task/{task}/schedstat').read() for task in tasks]
    return sum(int(line.split()[0]) for line in now)
def updates():
    before = spent()
    for _ in range(20):
        mx.nd.sgd_update(weight, gradient, lr=0.1, out=weight).wait_to_read()
        spent()
    return spent() - before
updates()
alone = updates()
evaluate(2); mx.nd.waitall()
updates()
beside = updates()
assert beside < alone / 4, (beside, alone)
""",
        first='import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])',
        OMP_NUM_THREADS='2',
    )


def test_a_forked_process_has_helpers_of_its_own():
    assert_runs("""
expected = numbers(3)
for _ in range(3):
    child = os.fork()
    if not child:
        same = numbers() == expected and numbers() == expected
        os._exit(0 if same and len(helpers()) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert numbers() == expected
""")


@pytest.mark.parametrize('engine', ['ThreadedEnginePerDevice', 'NaiveEngine'])
def test_four_python_threads_evaluate_at_once(engine):
    """With the second engine they run operators themselves, and one of them has the helpers."""
    assert_runs(
        """
expected, wrong = numbers(3), []
def work():
    for _ in range(20):
        if numbers() != expected:
            wrong.append(1)
workers = [threading.Thread(target=work) for _ in range(4)]
for worker in workers: worker.start()
for worker in workers: worker.join()
assert not wrong
""",
        MXNET_ENGINE_TYPE=engine,
        MXNET_CPU_WORKER_NTHREADS='4',
    )


@pytest.mark.parametrize('last', ['evaluate(3)', 'evaluate(3); mx.nd.waitall()', 'numbers(3)'])
def test_programs_end_with_helpers_alive(last):
    assert_runs(last)


@pytest.mark.parametrize('calls, error', [(200, edb.BatchError), (16_000, mx.MXNetError)])
def test_an_error_in_a_thread_is_raised_where_the_evaluation_waits(monkeypatch, calls, error):
    """And leaves threads that work. A small one does not wait."""
    net, samples = started(nn.Dense(WIDTH, in_units=WIDTH)), ndarrays(calls, (1, WIDTH))
    edb.set_num_threads(3)

    def evaluate():
        with edb.batching():
            values = [net(sample) for sample in samples]
        return edb.concat(values).asnumpy()

    expected = evaluate()

    def damaged(node_type):
        program = native_program(node_type).program
        program = program._replace(instructions=[i._replace(op=99) for i in program.instructions])
        return NativeProgram(program, (layout(program, False), layout(program, True)))

    def frame_of(weights, node_types, data):
        return native_run._FrameMaker(weights, node_types).frame(data)

    with monkeypatch.context() as patch:
        patch.setattr(native_run, '_program', damaged)
        patch.setattr(native_run, '_frame', frame_of)
        with pytest.raises(error, match='unknown instruction'):
            evaluate()
    assert (evaluate() == expected).all()


# --- how many ------------------------------------------------------------------------------------


@pytest.mark.parametrize('number', [0, -1, 1025])
def test_numbers_of_threads_that_are_none(number):
    with pytest.raises(ValueError, match='1024'):
        edb.set_num_threads(number)


@pytest.mark.parametrize('number', [2.0, '2', None, True])
def test_what_is_no_number_of_threads(number):
    with pytest.raises(TypeError, match='int'):
        edb.set_num_threads(number)


def test_the_number_of_threads_is_told():
    for number in (3, np.int64(2)):
        edb.set_num_threads(number)
        assert edb.get_num_threads() == number and type(edb.get_num_threads()) is int


@pytest.mark.parametrize(
    ('variable', 'expected'),
    [('3', 3), ('4,2', 4), (' 2 ', 2), ('9999', 1024), ('', 7), ('many', 7), ('0', 7), (None, 7)],
)
def test_the_number_of_threads_without_being_told(variable, expected, monkeypatch):
    """By default there is a thread for each processor that this process may use."""
    monkeypatch.setattr('gluon_edbatch_core.native.threads._wanted', None)
    monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(7)))
    if variable is None:
        monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    else:
        monkeypatch.setenv('OMP_NUM_THREADS', variable)
    assert edb.get_num_threads() == expected
