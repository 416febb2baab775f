"""Cells that leave MXNet: the same functions on the cells of a bundle, in one process."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import gluon_edbatch as edb
import gluon_edbatch_runtime
from example.lattice import encode as encode_lattice
from example.tagger import encode as encode_tagger
from example.tree_sst import encode as encode_tree
from gluon_edbatch_core.bundle.manifest import NAME, _digest
from tests.runtime import exported
from tests.support.cases import in_one_test

RECORDS = edb.CompileOptions(at_once=False)


@pytest.fixture(params=['native', 'NumPy'])
def runtime(request, monkeypatch):
    if request.param == 'NumPy':
        monkeypatch.setattr('gluon_edbatch_runtime.evaluation.executor', lambda: None)
    return gluon_edbatch_runtime


@pytest.fixture
def without_mxnet(runtime, monkeypatch):
    """The functions of the examples as they are where there is no MXNet."""
    for module in (exported, encode_lattice, encode_tagger, encode_tree):
        monkeypatch.setattr(module, 'edb', runtime)


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp('exported')
    cases = dict(exported.CASES)
    try:
        exported.CASES.update({name: case._replace(batch=12) for name, case in cases.items()})
        exported.write(folder, None, 2)
        yield folder
    finally:
        exported.CASES.update(cases)


def export(net, record, folder, times=1):
    for _ in range(times):
        with edb.batching(compile_options=RECORDS) as scope:
            values = record()
        edb.forward(values)
    edb.export(net, scope, folder / 'bundle')
    return values


class Net(gluon.Block):
    """A model with one cell."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell
        self.initialize(mx.init.Normal(0.5))


class Written(gluon.HybridBlock):
    """A cell of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.dense = gluon.nn.Dense(4, flatten=False, in_units=4)
        self.score = gluon.nn.Dense(1, flatten=False, in_units=4)
        self.norm = gluon.nn.LayerNorm(in_channels=4)

    def hybrid_forward(self, F, *args):
        return self.function(self, F, *args)


def rows(count, width=4, seed=0):
    return list(np.random.RandomState(seed).normal(size=(count, 1, width)).astype(np.float32))


def test_examples_come_to_the_same_numbers_in_as_many_batches(
    written, without_mxnet, capsys, monkeypatch
):
    monkeypatch.setattr(
        exported, 'schedules', lambda: json.loads((written / 'schedules.json').read_text())
    )
    assert exported.check(written) == 0, capsys.readouterr().out


def test_weights_are_those_of_the_export(runtime, tmp_path):
    net = Net(gluon.nn.Dense(3, in_units=4))
    (x,) = rows(1)
    (before,) = export(net, lambda: [net.cell(x)], tmp_path)
    net.cell.weight.set_data(mx.nd.zeros((3, 4)))
    cells = runtime.load_cells(tmp_path / 'bundle')
    np.testing.assert_allclose(cells.cell(x), before.asnumpy(), atol=1e-6)


def test_a_bundle_keeps_the_policy(runtime, tmp_path):
    net, values = Net(gluon.nn.Dense(4, in_units=4)), rows(3)

    def record():
        return [net.cell(net.cell(value)) for value in values]

    with edb.batching(compile_options=RECORDS) as scope:
        kept = record()
        graph = scope.graph()
    policy = replace(edb.learn_policy([graph]), parameters={'weights': [1, 2.5], 'more': {'a': 3}})
    with edb.batching(edb.FSMScheduler(policy), compile_options=RECORDS) as scope:
        kept = record()
        edb.forward(kept)
    edb.export(net, scope, tmp_path / 'bundle')
    for version in (3, 2):
        ((_, kind),) = runtime.load_cells(tmp_path / 'bundle').cell.types
        loaded = kind.scheduler.policy
        assert loaded.types == policy.types == (kind.stable_name,)
        loaded.save(tmp_path / 'policy.json')
        wanted = policy.parameters if version == 3 else {}
        assert edb.Policy.load(tmp_path / 'policy.json').content() == {
            **policy.content(),
            'parameters': wanted,
        }

        def to_version_2(content):
            content['policy']['version'] = 2
            del content['policy']['parameters']

        if version == 3:
            damage(tmp_path, to_version_2)


CELLS = {
    'elementwise': lambda self, F, x: F.tanh(x) * F.sigmoid(-x) + x / 2 - 3 * F.relu(x) + (1 - x),
    'powers': lambda self, F, x: F.sqrt(F.abs(x)) + F.square(x) + F.exp(x) + F.log(x * x + 1),
    'softmax': lambda self, F, x: F.softmax(x) + F.log_softmax(x, axis=1),
    'reductions': lambda self, F, x: (
        F.broadcast_add(x, F.sum(x, axis=1, keepdims=True))
        - F.broadcast_mul(x, F.expand_dims(F.mean(x, axis=1), axis=1))
    ),
    'slices': lambda self, F, x: F.concat(
        F.slice_axis(x, axis=1, begin=2, end=4), *F.split(x, num_outputs=2), dim=1
    ),
    'cuts of one product': lambda self, F, x: (
        F.sigmoid(F.slice_axis(self.dense(x), axis=1, begin=0, end=2))
        + F.tanh(F.slice_axis(self.dense(x), axis=1, begin=2, end=4))
    ),
    'shapes': lambda self, F, x: F.batch_dot(
        F.reshape(x, shape=(-1, 2, 2)), F.transpose(F.reshape(x, shape=(-1, 2, 2)), axes=(0, 2, 1))
    ),
    'comparisons': lambda self, F, x: F.where(x > 0.1, x, x * 2) + (x < 1) + F.clip(x, -1, 1),
    'leaky': lambda self, F, x: (
        F.LeakyReLU(x, slope=0.1) + F.LeakyReLU(x, act_type='elu', slope=1.0)
    ),
    'activations': lambda self, F, x: (
        F.Activation(x, act_type='softrelu') + F.Activation(self.dense(x), act_type='softsign')
    ),
    'results': lambda self, F, x: [self.dense(x), (x * 2, self.dense(x) + 1)],
    'the argument itself': lambda self, F, x: (x, F.identity(x) + 1),
    'layer norm': lambda self, F, x: self.norm(x * 3),
    'dropout': lambda self, F, x: F.Dropout(self.dense(x), p=0.5) + x,
    'several added up': lambda self, F, x: F.add_n(x, self.dense(x), x * 2),
    'a part of each axis': lambda self, F, x: F.squeeze(
        F.slice(F.expand_dims(x, axis=2), begin=(None, 1, 0), end=(None, 4, 1)), axis=2
    ),
    'the other axes': lambda self, F, x: F.broadcast_add(
        F.sum(F.reshape(x, shape=(-1, 2, 2)), axis=0, exclude=True).expand_dims(1), x
    ),
    'matrices side by side': lambda self, F, x: F.concat(
        F.reshape(x, shape=(-1, 2, 2)), F.reshape(self.dense(x), shape=(-1, 2, 2)), dim=2
    ),
    'a mask': lambda self, F, x: F.SequenceMask(
        F.reshape(x, shape=(-1, 2, 2)),
        F.sum(F.slice_axis(x > 0, axis=1, begin=0, end=2), axis=1),
        use_sequence_length=True,
        value=-1.0,
        axis=1,
    ),
}


def test_rows_too_wide_for_native_programs(runtime, tmp_path):
    """NumPy runs them."""
    net = Net(Written(lambda self, F, x: F.tanh(F.relu(x) + x) * F.sigmoid(x)))
    given = rows(2, 300_000)
    expected = export(net, lambda: [net.cell(x) for x in given], tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching():
        values = [runtime.nd.relu(cells.cell(x)) + cells.cell(x) for x in given]
        wide = runtime.nd.concat(values[0], values[1], dim=1) + 1
    assert wide.asnumpy().shape == (1, 600_000)
    compare(runtime.forward(values), [mx.nd.relu(one) + one for one in edb.forward(expected)])


@in_one_test('name', CELLS)
def test_cells(name, runtime, tmp_path):
    net, given = Net(Written(CELLS[name])), rows(5)
    expected = export(net, lambda: [net.cell(x) for x in given], tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching() as scope:
        values = [cells.cell(x) for x in given]
    compare(runtime.forward(values), edb.forward(expected))
    assert scope.batches == 1


def compare(found, expected):
    if isinstance(expected, (list, tuple)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected):
            compare(one, other)
    else:
        np.testing.assert_allclose(found, expected.asnumpy(), rtol=1e-5, atol=1e-6)


OF_RAGGED = {
    'sum': lambda self, F, x, r: self.dense(F.sum(r, axis=1)) + x,
    'mean': lambda self, F, x, r: F.mean(r * 2, axis=1) + x,
    'max': lambda self, F, x, r: F.max(self.dense(r), axis=1) * x,
    'gates': lambda self, F, x, r: F.sum(
        F.sigmoid(F.broadcast_add(F.expand_dims(x, axis=1), self.dense(r))) * r, axis=1
    ),
    'attention': lambda self, F, x, r: F.sum(
        F.softmax(F.broadcast_mul(r, F.expand_dims(x, axis=1)), axis=1) * r, axis=1
    ),
    'attention by products': lambda self, F, x, r: F.batch_dot(
        F.softmax(F.batch_dot(self.dense(r), F.expand_dims(x, axis=2)), axis=1), r, transpose_a=True
    ).reshape((0, -1)),
    'products with a matrix': lambda self, F, x, r: F.max(
        F.batch_dot(r, F.reshape(F.concat(x, x * 2, dim=1), (-1, 2, 4)), transpose_b=True), axis=1
    ),
    'a narrow one first': lambda self, F, x, r: F.sum(
        F.broadcast_mul(F.softmax(self.score(r), axis=1), self.dense(r)), axis=1
    ),
    'a narrow one and a row': lambda self, F, x, r: F.sum(
        F.broadcast_mul(F.sigmoid(self.score(r)), F.expand_dims(x, axis=1)), axis=1
    ),
}


@pytest.mark.parametrize('name', OF_RAGGED)
def test_cells_of_any_number_of_values(name, runtime, tmp_path):
    net, given = Net(Written(OF_RAGGED[name])), rows(24)
    lengths = [0, 3, 1, 1, 0, 5, 2]

    def calls(cell, ragged):
        return [
            cell(given[i], ragged(given[i : i + length], shape=(1, 4)))
            for i, length in enumerate(lengths)
        ]

    expected = export(net, lambda: calls(net.cell, edb.ragged), tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching() as scope:
        values = calls(cells.cell, runtime.ragged)
    compare(runtime.forward(values), edb.forward(expected))
    assert scope.batches == 1
    eager = calls(cells.cell, runtime.ragged)  # outside of scopes
    assert all(type(value) is np.ndarray for value in eager)
    compare(eager, edb.forward(expected))


TREE_CELLS = {
    'child-sum lstm': edb.rnn.ChildSumTreeLSTMCell,
    'n-ary lstm': edb.rnn.NaryTreeLSTMCell,
    'child-sum gru': edb.rnn.TreeGRUCell,
}


@pytest.mark.parametrize('name', TREE_CELLS)
def test_tree_cells(name, runtime, tmp_path):
    """With arrays as inputs, and as states of children that are there already."""
    net, given = Net(TREE_CELLS[name](4, input_size=4)), rows(8)
    pairs = name.endswith('lstm')
    known = (given[6], given[7]) if pairs else given[6]

    def calls(cell):
        leaves = [cell(x, []) for x in given[:3]]
        inner = cell(given[3], leaves[:2])
        return [*leaves, inner, cell(given[4], [leaves[2], inner]), cell(given[5], [known, known])]

    expected = export(net, lambda: calls(net.cell), tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching():
        values = calls(cells.cell)
    compare(runtime.forward(values), edb.forward(expected))


@pytest.mark.parametrize('kind', (gluon.rnn.LSTMCell, gluon.rnn.GRUCell, gluon.rnn.RNNCell))
def test_cells_of_gluon(kind, runtime, tmp_path):
    net, given = Net(kind(4, input_size=4)), rows(5)

    def calls(cell):
        states, found = (
            [np.zeros((1, 4), np.float32)] * (2 if kind is gluon.rnn.LSTMCell else 1),
            [],
        )
        for x in given:
            output, states = cell(x, states)
            found.append(output)
        return found

    expected = export(net, lambda: calls(net.cell), tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching():
        values = calls(cells.cell)
    compare(runtime.forward(values), edb.forward(expected))


def word_net(width=4):
    class Words(gluon.Block):
        def __init__(self):
            super().__init__()
            self.embed = gluon.nn.Embedding(9, width)
            self.cell = gluon.rnn.LSTMCell(4, input_size=width)
            self.scores = gluon.nn.Dense(2, in_units=4)

    net = Words()
    net.initialize(mx.init.Normal(0.5))
    return net


def sentence(model, words, concat):
    states, found = [np.zeros((1, 4), np.float32)] * 2, []
    for word in words:
        h, states = model.cell(model.embed(word), states)
        found.append(h)
    return model.scores(concat(found))


SENTENCES = [1, 2, 3], [4, 5], [2, 2, 2, 2, 0], [8]


@pytest.fixture
def words(runtime, tmp_path):
    """A net, its cells, and what it makes of sentences."""
    net = word_net()
    values = export(net, lambda: [sentence(net, each, edb.concat) for each in SENTENCES], tmp_path)
    return net, runtime.load_cells(tmp_path / 'bundle'), [value.asnumpy() for value in values]


def test_values_of_several_rows(runtime, words):
    _, cells, expected = words
    for _ in range(2):  # the second time products are known
        with runtime.batching() as scope:
            values = [sentence(cells, each, runtime.concat) for each in SENTENCES]
        for found, wanted in zip(runtime.forward(values), expected):
            np.testing.assert_allclose(found, wanted, atol=1e-6)
        assert scope.batches == 1 + 5 + 1 + 1


def test_values_may_be_read_in_the_scope(runtime, words):
    _, cells, expected = words
    with runtime.batching() as scope:
        values = [sentence(cells, SENTENCES[0], runtime.concat)]
        np.testing.assert_allclose(values[0].asnumpy(), expected[0], atol=1e-6)
        values += [sentence(cells, each, runtime.concat) for each in SENTENCES[1:]]
        h, _ = cells.cell(cells.embed(1), [np.zeros((1, 4), np.float32)] * 2)
        np.testing.assert_allclose(cells.scores(h), expected[0][:1], atol=1e-6)
    for value, wanted in zip(values, expected):
        np.testing.assert_allclose(value, wanted, atol=1e-6)
    assert len(scope.schedules()) == 2


def test_only_what_is_wanted_is_computed(runtime, words):
    _, cells, expected = words
    with runtime.batching() as scope:
        values = [sentence(cells, each, runtime.concat) for each in SENTENCES]
    np.testing.assert_allclose(runtime.stack(values[:1])[0], expected[0], atol=1e-6)
    assert scope.batches == 1 + 3 + 1 + 1
    np.testing.assert_allclose(values[2], expected[2], atol=1e-6)


def test_values_of_other_scopes_and_outside_of_scopes(runtime, words):
    _, cells, _ = words
    zeros = [np.zeros((1, 4), np.float32)] * 2
    alone, states = cells.cell(cells.embed(3), zeros)  # outside of scopes: arrays
    assert isinstance(alone, np.ndarray)
    with runtime.batching():
        h, state = cells.cell(cells.embed(3), zeros)
    with runtime.batching():
        again, _ = cells.cell(cells.embed(3), state)
    np.testing.assert_allclose(h, alone, atol=1e-6)
    np.testing.assert_allclose(again, cells.cell(cells.embed(3), states)[0], atol=1e-6)


def test_operators_on_values(runtime, tmp_path):
    net, given = Net(gluon.nn.Dense(4, in_units=4)), rows(6)

    def calls(model, nd):
        found = []
        for one, other in zip(given, given[1:]):
            x, y = model.cell(one), model.cell(other)
            found.append(nd.concat(nd.tanh(x * y + x), nd.relu(x - y), nd.sigmoid(x / y), dim=1))
        return found

    expected = export(net, lambda: calls(net, edb.nd), tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching() as scope:
        values = calls(cells, runtime.nd)
        with pytest.raises(runtime.RecordError, match='cannot be computed'):
            values[0] + cells.cell(given[0])
    compare(runtime.forward(values), edb.forward(expected))
    assert scope.batches == 9
    np.testing.assert_allclose(values[0] + values[1], np.add(*map(np.asarray, values[:2])))


def test_what_was_read_is_the_users(runtime, words):
    _, cells, expected = words
    with runtime.batching():
        _, states = cells.cell(cells.embed(1), [np.zeros((1, 4), np.float32)] * 2)
        states[0].asnumpy()[:] = 7
        _, states = cells.cell(cells.embed(2), states)
        h, _ = cells.cell(cells.embed(3), states)
        np.testing.assert_allclose(cells.scores(h), expected[0][2:], atol=1e-6)


def test_a_scope_goes_on_after_a_failure(runtime, words):
    _, cells, expected = words
    with runtime.batching():
        bad = cells.embed(99)
        with pytest.raises(runtime.BatchError, match='no row of a table'):
            bad.asnumpy()
        value = sentence(cells, SENTENCES[0], runtime.concat)
        (found,) = runtime.forward([value])
        np.testing.assert_allclose(found, expected[0], atol=1e-6)


def test_whole_numbers_that_are_not_exact(runtime, words):
    _, cells, _ = words
    with runtime.batching():
        value = cells.embed(2**24 + 1)
    with pytest.raises(runtime.RecordError, match='16777217 is not exact'):
        value.asnumpy()


def test_additions_in_a_row_are_one_sum(runtime, words):
    """Partial sums are computed when somebody reads them, or adds to them."""
    _, cells, _ = words
    rows = [cells.embed(word) for word in (1, 2, 3, 2, 5)]
    with runtime.batching() as scope:
        first, *others = [cells.embed(word) for word in (1, 2, 3, 2, 5)]
        totals = [first]
        for other in others:
            totals.append(totals[-1] + other)
        last = totals[-1].asnumpy()
        assert scope.batches == 2
        more = (totals[2] + totals[4]).asnumpy()
        np.testing.assert_allclose(totals[1].asnumpy(), rows[0] + rows[1], rtol=1e-6)
    np.testing.assert_allclose(last, sum(rows), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(more, sum(rows) + sum(rows[:3]), rtol=1e-5, atol=1e-6)


def test_two_bundles_in_one_scope(runtime, words, tmp_path):
    _, cells, expected = words
    others = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching() as scope:
        values = [
            sentence(model, each, runtime.concat) for model in (cells, others) for each in SENTENCES
        ]
    for found, wanted in zip(runtime.forward(values), expected * 2):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert scope.batches == 2 * (1 + 5 + 1) + 1


def test_threads_share_cells(runtime, words):
    _, cells, expected = words

    def run(_):
        with runtime.batching():
            values = [sentence(cells, each, runtime.concat) for each in SENTENCES]
        return runtime.forward(values)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(40)):
            for one, wanted in zip(found, expected):
                np.testing.assert_allclose(one, wanted, atol=1e-6)


def test_an_exception_makes_values_void(runtime, words):
    _, cells, _ = words
    with pytest.raises(KeyError), runtime.batching():
        value = cells.embed(1)
        raise KeyError
    with pytest.raises(runtime.StaleValueError, match='an exception left the scope'):
        value.asnumpy()


@pytest.mark.parametrize('word', (9, -1))
def test_words_that_are_not_there(word, runtime, words):
    _, cells, _ = words
    with runtime.batching():
        value = sentence(cells, [word], runtime.concat)
    with pytest.raises(runtime.BatchError, match=f'Embedding.*{word} is no row of a table of 9'):
        value.asnumpy()


def test_calls_that_were_not_exported(runtime, words):
    _, cells, _ = words
    with runtime.batching():
        with pytest.raises(runtime.RecordError, match='scores was not exported for calls with'):
            cells.scores(np.zeros((1, 5), np.float32))
        with pytest.raises(runtime.RecordError, match='takes values, numbers and arrays'):
            cells.embed('word')
        with pytest.raises(runtime.RecordError, match='different rows'):
            cells.cell(np.zeros((2, 4), np.float32), [np.zeros((1, 4), np.float32)] * 2)
    with pytest.raises(AttributeError, match="no cell 'ebmed'; it has cell, embed"):
        cells.ebmed(1)


def test_ragged_values_of_another_scope(runtime, tmp_path):
    net, given = Net(Written(OF_RAGGED['mean'])), rows(4)
    (expected,) = export(net, lambda: [net.cell(given[0], edb.ragged(given))], tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    outside = runtime.ragged(given)
    with runtime.batching():
        value = cells.cell(given[0], outside)
        inside = runtime.ragged(given)
    for found in (value, cells.cell(given[0], inside)):
        np.testing.assert_allclose(found, expected.asnumpy(), atol=1e-6)


def test_a_table_of_one_row(runtime, tmp_path):
    class Both(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.one, self.many = gluon.nn.Embedding(1, 4), gluon.nn.Embedding(5, 4)

        def hybrid_forward(self, F, x, y):
            return self.one(x) + self.many(y)

    net = Net(Both())
    (expected,) = export(net, lambda: [net.cell(0, 3)], tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    np.testing.assert_allclose(cells.cell(0, 3), expected.asnumpy(), atol=1e-6)


def test_ragged_arguments_of_different_lengths(runtime, tmp_path):
    cell = Written(lambda self, F, r, s: F.sum(r * s, axis=1))
    net, given = Net(cell), rows(4)
    export(net, lambda: [net.cell(edb.ragged(given), edb.ragged(given))], tmp_path)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching():
        value = cells.cell(runtime.ragged(given), runtime.ragged(given[:2]))
    with pytest.raises(runtime.RecordError, match='different lengths in one call'):
        value.asnumpy()


# --- names ----------------------------------------------------------------------------------------


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_deprecated_name_writes_the_same_cells(tmp_path):
    net, (x,) = Net(gluon.nn.Dense(4, in_units=4)), rows(1)
    with edb.batching(compile_options=RECORDS) as scope:
        edb.forward([net.cell(x)])
    folder = edb.export(net, scope, tmp_path / 'new')
    with pytest.warns(DeprecationWarning, match=r'edb\.export\(net, scope, folder\)') as caught:
        older = edb.export_cells(net, scope=scope, folder=str(tmp_path / 'old'))
    assert caught[0].filename == __file__ and older == tmp_path / 'old'
    assert contents(folder) == contents(older) and len(contents(folder)) > 2


def test_arguments_that_do_not_belong_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net, x = Net(gluon.nn.Dense(4, in_units=4)), mx.nd.ones((1, 4))
    with edb.batching(compile_options=RECORDS) as scope:
        edb.forward([net.cell(x)])
    program = edb.compile_program(net.cell, x)
    model, cells, compiled = 'net, samples, folder', 'net, scope, folder', 'program, folder, onnx'
    for given, options, call in [
        ((net, 'there'), {}, model),
        ((net,), dict(folder='there'), model),
        ((net, [x], scope), {}, model),
        ((net, [x], 'there'), dict(onnx=True), model),
        ((net, scope), {}, cells),
        ((net, scope, 'there', True), {}, cells),
        ((net, scope, 'there'), dict(cpp=True), cells),
        ((program,), {}, compiled),
        ((program, scope), {}, compiled),
        ((program, [x], 'there'), {}, compiled),
        ((program, 'there'), dict(scheduler='depth'), compiled),
    ]:
        with pytest.raises(edb.BundleError, match=rf'together: call edb\.export\({call}'):
            edb.export(*given, **options)
    with pytest.raises(edb.BundleError, match='takes a Block or a Program, not <built-in function'):
        edb.export(len, [x], 'there')
    assert not list(tmp_path.iterdir())


# --- what cannot be exported ----------------------------------------------------------------------


def refused(net, record, folder, match):
    with edb.batching(compile_options=RECORDS) as scope:
        edb.forward(record())
    with pytest.raises(edb.BundleError, match=match):
        edb.export(net, scope, folder / 'bundle')
    assert not list(folder.iterdir())


def test_what_cannot_be_exported(tmp_path):
    net, (x,) = Net(gluon.nn.Dense(4, in_units=4)), rows(1)
    with autograd.record():
        refused(net, lambda: [net.cell(x)], tmp_path, r'Dense.*under autograd\.record')
    called = 'test_exported.py:.* is an operator outside of cells, which is not there.*no gamma'
    refused(net, lambda: [mx.nd.gamma(net.cell(x))], tmp_path, called)
    refused(Net(gluon.nn.Dense(1)), lambda: [net.cell(x)], tmp_path, 'not in the model')
    net = Net(Written(lambda self, F, x: F.gamma(x)))
    refused(net, lambda: [net.cell(x)], tmp_path, 'outside of MXNet there is no gamma')


WHOLE = {
    'rows': lambda self, F, x, r: F.broadcast_add(x, F.sum(x, axis=0, keepdims=True)),
    'attention': lambda self, F, x, r: F.batch_dot(
        F.softmax(F.batch_dot(F.expand_dims(x, axis=1), r, transpose_b=True)), r
    ),
    'a part': lambda self, F, x, r: F.sum(F.slice_axis(r, axis=1, begin=0, end=1), axis=1),
    'a result for each': lambda self, F, x, r: F.softmax(r, axis=1),
}


@in_one_test('name', WHOLE)
def test_cells_of_whole_values_run_call_by_call(name, runtime, tmp_path):
    net, given = Net(Written(WHOLE[name])), rows(5)
    record = lambda: [net.cell(given[0], edb.ragged(given[:count])) for count in (2, 3)]  # noqa: E731
    with edb.batching(compile_options=RECORDS) as scope:
        expected = edb.forward(record())
    edb.export(net, scope, tmp_path / 'bundle')
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching():
        found = [cells.cell(given[0], runtime.ragged(given[:count])) for count in (2, 3, 5)]
    found.append(cells.cell(given[0], runtime.ragged(given[:3])))
    for mine, other in zip(found, expected):
        if not isinstance(other, mx.nd.NDArray):
            other = edb.concat(list(other)).expand_dims(0)
        np.testing.assert_allclose(mine, other.asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(found[1], found[3])


def test_scopes_without_calls(tmp_path):
    with edb.batching(compile_options=RECORDS) as scope:
        pass
    with pytest.raises(edb.BundleError, match='has recorded nothing'):
        edb.export(gluon.nn.Dense(1), scope, tmp_path / 'bundle')


def test_numpy_that_comes_to_something_else_is_refused(tmp_path, monkeypatch):
    from gluon_edbatch_core.bundle import numpy_operators

    monkeypatch.setitem(numpy_operators.ACTIVATIONS, 'tanh', lambda x: x + 0.1)
    net, (x,) = Net(gluon.nn.Dense(4, activation='tanh', in_units=4)), rows(1)
    refused(net, lambda: [net.cell(x)], tmp_path, 'NumPy comes to other numbers than MXNet')


# --- bundles whose contents make no sense ---------------------------------------------------------


def damage(folder, change):
    path = folder / 'bundle' / NAME
    manifest = json.loads(path.read_text(encoding='utf-8'))
    change(manifest['content'])
    manifest['digest'] = _digest(manifest)
    path.write_text(json.dumps(manifest), encoding='utf-8')


DAMAGES = {
    'no types': lambda content: content.pop('types'),
    'types of another class': lambda content: content.update(types={}),
    'no cell of that name': lambda content: content['types'][0].update(cells=['other']),
    'a shape': lambda content: content['types'][0]['outputs'][0].update(row_shape=['a']),
    'a dtype': lambda content: content['types'][0]['arguments'][0].update(dtype='float17'),
    'an operator': lambda content: content['types'][0]['nodes'][-1].update(op='system'),
    'an input': lambda content: content['types'][0]['nodes'][-1].update(inputs=[[99, 0]]),
    'a weight': lambda content: content['types'][0]['weights'].update(x=99),
    'a result': lambda content: content['types'][0].update(heads=[[99, 0]]),
    'no results': lambda content: content['types'][0].update(heads=[], outputs=[]),
    'results that are not there': lambda content: content['types'][0].update(results=1),
    'fewer outputs than results': lambda content: content['types'][0].update(outputs=[]),
    'a kind of argument': lambda content: content['types'][0]['arguments'][0].update(kind='x'),
    'a policy': lambda content: content.update(policy={'format': 'another'}),
}


@in_one_test('name', DAMAGES)
def test_contents_that_make_no_sense(name, runtime, tmp_path):
    net, (x,) = Net(gluon.nn.Dense(3, in_units=4)), rows(1)
    export(net, lambda: [net.cell(x)], tmp_path)
    damage(tmp_path, DAMAGES[name])
    with pytest.raises(runtime.BundleError, match='manifest'):
        runtime.load_cells(tmp_path / 'bundle')


def test_parts_that_make_no_sense(runtime, tmp_path):
    net, (x,) = Net(Written(lambda self, F, x, y: self.dense(x) + y)), rows(1)
    export(net, lambda: [net.cell(x, x)], tmp_path)
    runtime.load_cells(tmp_path / 'bundle')
    for positions in ([], [0, 0], [2]):

        def change(content, positions=positions):
            content['types'][0]['native']['splits'][0]['positions'] = positions

        damage(tmp_path, change)
        with pytest.raises(runtime.BundleError, match='manifest'):
            runtime.load_cells(tmp_path / 'bundle')


@pytest.mark.parametrize('factor, calls', [(2**62, 1), (2**31, 1), (2**30, 2), (2**50, 2**14)])
def test_more_rows_than_plans_can_have(factor, calls, runtime, tmp_path):
    """Numbers of rows would wrap around, and programs write elsewhere."""
    net, (x,) = Net(Written(lambda self, F, x: self.dense(x))), rows(1)
    export(net, lambda: [net.cell(x)], tmp_path)

    def change(content):
        content['types'][0]['outputs'][0]['factor'] = factor
        del content['types'][0]['native']

    damage(tmp_path, change)
    cells = runtime.load_cells(tmp_path / 'bundle')
    with runtime.batching(), pytest.raises(runtime.RecordError, match='rows .* too'):
        runtime.forward([cells.cell(x) for _ in range(calls)])


def test_weights_joined_too_often(runtime, tmp_path, monkeypatch):
    monkeypatch.setattr('gluon_edbatch_runtime.cells._MOST_JOINED', (64, 0))
    net, (x,) = Net(gluon.nn.Dense(3, in_units=4)), rows(1)
    export(net, lambda: [net.cell(x)], tmp_path)
    runtime.load_cells(tmp_path / 'bundle')

    def change(content):
        content['types'][0]['native']['parameters'][0][0] *= 100

    damage(tmp_path, change)
    with pytest.raises(runtime.BundleError, match='join too many weights'):
        runtime.load_cells(tmp_path / 'bundle')


def test_truncated_weights(runtime, tmp_path):
    net, (x,) = Net(gluon.nn.Dense(3, in_units=4)), rows(1)
    export(net, lambda: [net.cell(x)], tmp_path)
    path = tmp_path / 'bundle' / 'weight0.npy'
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(runtime.BundleError, match=r'weight0\.npy is truncated'):
        runtime.load_cells(tmp_path / 'bundle')
