"""Whole models that leave MXNet: their cells, functions and samples, in one process."""

import json
import shutil
from typing import NamedTuple

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
import gluon_edbatch_runtime
from example.adaptive.task import AdaptiveTask
from example.beam_search.beam import Search
from example.beam_search.task import VowelTask
from example.common.options import parse
from example.graph_attention.data import Graph
from example.graph_attention.model import GraphTagger
from example.lattice.data import Arc, Lattice
from example.lattice.model import LatticeTagger
from example.tagger.model import BiLSTMTagger
from example.transition_parser.task import ParserTask
from example.tree_lstm.model import SICKModel
from example.tree_sst.model import MVRNN, TreeLSTM, TwoCellTreeLSTM
from gluon_edbatch_core.bundle.manifest import NAME, _digest
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of
from tests.fuzz import walk_exports
from tests.runtime import exported
from tests.runtime import exported_models as models
from tests.runtime.exported_models import Net, samples_of
from tests.support import plain_examples


@pytest.fixture
def runtime():
    return gluon_edbatch_runtime


@pytest.fixture(scope='module')
def net():
    model = Net()
    model.initialize()
    return model


@pytest.fixture(scope='module')
def folder(net, tmp_path_factory):
    where = tmp_path_factory.mktemp('model') / 'bundle'
    return edb.export(net, samples_of(0, 30), where, unpack=True)


def flat(result):
    if isinstance(result, (list, tuple)):
        return [leaf for each in result for leaf in flat(each)]
    return [np.asarray(result.asnumpy() if hasattr(result, 'asnumpy') else result)]


def test_new_samples_as_objects(runtime, net, folder):
    """Samples that were not exported, as the user's objects."""
    model, samples = runtime.load(folder), samples_of(1)
    wanted = net.batch(samples, unpack=True)
    for mine, other in zip(model(samples), wanted):
        assert type(mine) is list and type(mine[1]) is tuple
        for one, two in zip(flat(mine), flat(other)):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_examples_come_to_the_same(runtime, folder):
    model = runtime.load(folder)
    assert model.check() == 30
    model._content['results'][3][0][0][0] += 0.1
    with pytest.raises(runtime.BundleError, match=r'examples\[3\] comes to another result'):
        model.check()


CASES = {
    'sick': (lambda sizes: SICKModel(*sizes), exported.make_sick),
    'sst': (lambda sizes: TwoCellTreeLSTM(*sizes), exported.make_sst),
    'sst-lstm': (lambda sizes: TreeLSTM(*sizes), exported.make_sst),
    'sst-mv': (lambda sizes: MVRNN(*sizes), exported.make_sst),
}


@pytest.mark.parametrize('name', CASES)
def test_trees_of_the_examples(name, runtime, tmp_path):
    build, make = CASES[name]
    items, sizes = make(None, 16)
    model = build(sizes)
    model.initialize()
    samples = [tuple(map(exported.tree_of, each)) if name == 'sick' else (exported.tree_of(each),)
               for each in items]  # fmt: skip
    edb.export(model, samples, tmp_path / 'bundle', unpack=True)
    assert runtime.load(tmp_path / 'bundle').check() == 16


@pytest.mark.parametrize('kind', ('lstm', 'gru'))
@pytest.mark.parametrize('both_ways', (False, True))
def test_lattices(kind, both_ways, runtime, tmp_path):
    items, (chars, words, tags, *_) = exported.make_lattice(None, 8)
    model = LatticeTagger(kind, chars, words, tags, 8, 8, both_ways)
    model.initialize()
    samples = [Lattice(line, [[Arc(*arc) for arc in arcs] for arcs in every], [0] * len(line))
               for line, every in items]  # fmt: skip
    edb.export(model, samples, tmp_path / 'bundle')
    assert runtime.load(tmp_path / 'bundle').check() == 8


class Sentence(NamedTuple):
    """A sentence of the tagger's data."""

    tokens: list


@pytest.mark.parametrize('num_chars', (0, 100))
def test_tagger(num_chars, runtime, tmp_path):
    items, (words, tags, *_) = exported.make_tagger(None, 8)
    model = BiLSTMTagger(words, tags, 8, 8, num_chars=num_chars)
    model.initialize()
    samples = [Sentence([exported.Token(max(word, 0), chars if num_chars else [])
                         for word, chars in item]) for item in items]  # fmt: skip
    edb.export(model, samples, tmp_path / 'bundle')
    assert runtime.load(tmp_path / 'bundle').check() == 8


@pytest.mark.parametrize('kind', ('sum', 'max', 'attention'))
def test_graphs(kind, runtime, tmp_path):
    model = GraphTagger(kind, 20, 3, 8, 8, 2, 2)
    model.initialize()
    rng = np.random.RandomState(5)
    samples = []
    for _ in range(6):
        count = rng.randint(2, 6)
        heads = [count if not place else int(rng.randint(place)) for place in range(count)]
        samples.append(Graph(rng.randint(0, 20, count).tolist(), heads, [0] * count))
    edb.export(model, samples, tmp_path / 'bundle')
    assert runtime.load(tmp_path / 'bundle').check() == 6


OPERATIONS = {  # of values a and b, (1, 4), and m, (1, 2, 3)
    'numbers': lambda a, b, m, nd: [a + 1, 2 - a, a * 0.5, 1 / (a + 3), a / 2, -a, 3 + a, a**2],
    'values': lambda a, b, m, nd: [a + b, a - b, a * b, a / (b + 3), nd.broadcast_maximum(a, b)],
    'arrays': lambda a, b, m, nd: [a + nd.ones((1, 4)), nd.full((1, 4), 2.0) * b],
    'functions': lambda a, b, m, nd: [
        getattr(nd, name)(a + 3) for name in ('abs', 'exp', 'log', 'sqrt', 'square', 'reciprocal')
    ],
    'methods': lambda a, b, m, nd: [a.exp(), a.abs(), a.tanh(), a.sigmoid(), a.relu(), a.square()],
    'reductions': lambda a, b, m, nd: [
        nd.sum(m, axis=1), nd.mean(m, axis=(1, 2)), nd.max(m, 2, True), m.min(axis=1),
        m.sum(axis=0, exclude=True), m.mean(axis=2, keepdims=True),
    ],
    'softmax': lambda a, b, m, nd: [nd.softmax(a), m.softmax(axis=1), nd.log_softmax(a, axis=-1)],
    'shapes': lambda a, b, m, nd: [
        nd.expand_dims(a, axis=1), a.expand_dims(2).squeeze(2), m.reshape((0, -1)), m.flatten(),
        nd.reshape(m, shape=(-1, 3)), m.reshape(0, 3, 2), nd.reshape(a, (2, 2)),
    ],
    'parts': lambda a, b, m, nd: [
        a[:, 1:3], m[:, 0], m[:, -1], m[:, :, 1:], m[:, 1, 0:2], a[:, -2:],
        nd.slice_axis(m, 2, 0, 2),
    ],
    'joined': lambda a, b, m, nd: [
        nd.concat(a, b, a), nd.concat(m, m, dim=2), nd.stack(a, b, axis=1), nd.add_n(a, b, b),
        nd.clip(a, -0.5, 0.5),
    ],
    'products': lambda a, b, m, nd: [
        nd.batch_dot(m, m, transpose_b=True), nd.batch_dot(m, m, True)
    ],
}  # fmt: skip


def recorded(scope, array):
    """Return a value of a scope."""
    return scope._recording.array(array)


@pytest.mark.parametrize('name', OPERATIONS)
def test_operators_between_cells(name, runtime, tmp_path):
    rng = np.random.RandomState(3)
    given = [[rng.normal(size=shape).astype(np.float32) for shape in ((1, 4), (1, 4), (1, 2, 3))]
             for _ in range(3)]  # fmt: skip
    compute, cell = OPERATIONS[name], gluon.nn.Dense(4, in_units=4)
    cell.initialize()
    with edb.batching():
        wanted = [compute(cell(a), cell(b), mx.nd.array(m) * 1, mx.nd) for a, b, m in given]
    with runtime.batching() as scope:
        found = []
        for a, b, m in given:
            values = [cell(mx.nd.array(each)).asnumpy() for each in (a, b)]
            made = [recorded(scope, each) for each in (*values, m)]
            found.append(compute(*made, runtime.nd))
    for mine, other in zip(runtime.forward(found), edb.forward(wanted)):
        for one, two in zip(mine, other):
            two = two.asnumpy()
            assert one.shape == two.shape
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)
    assert scope.batches <= 2 * len(found[0]) + 8


def test_values_of_any_number_of_rows_share_a_batch(runtime):
    with runtime.batching() as scope:
        values = [recorded(scope, np.ones((rows, 3), 'f')).tanh() for rows in (1, 2, 3)]
    runtime.forward(values)
    assert scope.batches == 1


def test_numbers_that_vary_share_a_batch(runtime):
    with runtime.batching() as scope:
        starts = [recorded(scope, np.full((1, 2), n, 'f')).relu() for n in range(5)]
        values = [3 - start * (0.5 * place) for place, start in enumerate(starts)]
        powers = [(start + place) ** 2 for place, start in enumerate(starts)]
    found, squares = runtime.forward((values, powers))
    for place in range(5):
        np.testing.assert_allclose(found[place], np.full((1, 2), 3 - 0.5 * place * place))
        np.testing.assert_allclose(squares[place], np.full((1, 2), 4 * place * place))
    assert scope.batches == 5


def test_rows_that_are_sorted_already(runtime):
    """Batches of rows are proved with rows in both orders."""
    with runtime.batching() as scope:
        values = [recorded(scope, np.full((1, 1), -n, 'f')) for n in range(5)]
        found = [runtime.nd.sort(value, axis=0) for value in values]
    assert [value.item() for value in runtime.forward(found)] == [0, -1, -2, -3, -4]


def test_shapes_that_vary_share_a_schedule(runtime):
    """A scheduler sees operators on whole values as one type, whatever their shapes."""
    with runtime.batching() as scope:
        values = [recorded(scope, np.ones((rows, 3), 'f')).sum(axis=0) for rows in range(1, 9)]
    assert [value[0] for value in runtime.forward(values)] == list(range(1, 9))
    assert scope.batches == 1


def test_operators_that_mix_rows(runtime):
    with runtime.batching() as scope:
        value = recorded(scope, np.arange(6, dtype='f').reshape(2, 3))
        for found, wanted in (
            (value.sum(), [15]), (value[1], [3, 4, 5]), (value[-1, 1:], [4, 5]),
            (value.max(axis=0), [3, 4, 5]), (value[::-1, 0], [3, 0]), (value[..., 2], [2, 5]),
            (value.T[1], [1, 4]), (value[[1, 0, 1]][:, 0], [3, 0, 3]),
            (value % 4, [[0, 1, 2], [3, 0, 1]]),
            (2 ** value, [[1, 2, 4], [8, 16, 32]]), (sum(row.sum() for row in value), [15]),
            (value.split(3, axis=1)[1], [[1], [4]]), (value.topk(k=1), [[2], [2]]),
        ):  # fmt: skip
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        with pytest.raises(AttributeError, match='no attribute .gamma. without MXNet'):
            value.gamma()
        with pytest.raises(runtime.RecordError, match='cannot be computed'):
            value.reshape((0, 5))
        with pytest.raises(runtime.RecordError, match='cannot be computed'):
            value + runtime.nd.ones((2, 4))
        assert type(np.float32(2) * value) is type(np.ones((2, 3), 'f') - value) is runtime.Value
        np.testing.assert_allclose(np.exp(value), np.exp(value.asnumpy()), rtol=1e-6)
        with pytest.raises(runtime.RecordError, match='nd.exp takes 1 values'):
            runtime.nd.exp(value, 2)


def test_arrays_of_the_users_code(runtime):
    """Arrays are computed where they stand, with MXNet's operators."""
    array = runtime.nd.array([[3, 1, 2]])
    assert (array > 1).dtype == np.float32 and array.sum().shape == (1,)
    assert array[0, 1].shape == (1,) and array[0, 1].asscalar() == 1
    array[0, 1] = 5
    assert array.max(axis=1).asscalar() == 5 == float(array[0, 1]) and array.context is None
    np.testing.assert_allclose(runtime.nd.maximum(4, array).reshape((-1, 1))[:, 0], [4, 5, 4])
    assert runtime.nd.arange(2, 5).asnumpy().tolist() == [2, 3, 4]
    assert isinstance(array, runtime.nd.NDArray) and not isinstance(np.ones(1), runtime.nd.NDArray)
    assert not isinstance(runtime.nd.NDArray(), np.ndarray)  # which would read any memory
    assert [each.size for each in array[0]] == [1, 1, 1]


READING = {
    'parser': (ParserTask, plain_examples.Parser),
    'beam search': (VowelTask, plain_examples.Writer),
    'adaptive': (AdaptiveTask, plain_examples.Reader),
}


@pytest.mark.parametrize('name', READING)
def test_samples_wait_where_they_read(name, runtime, tmp_path):
    """The decisions are MXNet's, in as few evaluations as `net.batch` has."""
    task_class, plain = READING[name]
    task = task_class(parse(task_class, [])[0])
    net, samples = task.build(), task.samples['train'][:10]
    if task_class is VowelTask:
        samples = [Search(word, task.options.beam, task.options.margin) for word in samples]
    net.__class__ = plain
    edb.export(net, samples, tmp_path / 'bundle')
    model = runtime.load(tmp_path / 'bundle')
    assert model.check() == 10
    assert model.evaluations <= 40  # 10 samples with 10 to 60 reads each


def test_what_a_stranger_wrote(runtime, tmp_path):
    """Truth, comparisons and ``+=`` of values, positions, dataclasses, and NumPy's reductions."""
    net = models.OfAStranger()
    net.initialize(mx.init.Normal(1))
    rng = np.random.RandomState(1)

    def part(depth):
        parts = [part(depth - 1) for _ in range(rng.randint(1, 3))] if depth else []
        return models.Part(int(rng.randint(10)), parts)

    edb.export(net, [part(2) for _ in range(20)], tmp_path / 'bundle')
    model, samples = runtime.load(tmp_path / 'bundle'), [part(2) for _ in range(20)]
    assert model.check() == model.check() == 20
    for mine, other in zip(model(samples), net.batch(samples)):
        assert are_close(json_of(mine), json_of(other))
    with runtime.batching():
        value = runtime.nd.ones((2, 3)) + runtime.nd.relu(runtime.nd.ones((2, 3)))
        assert value[1].asnumpy().tolist() == [2, 2, 2]


def test_samples_of_arrays(runtime, tmp_path):
    """NumPy's arrays and MXNet's; in JSON they are lists."""
    net = models.OfArrays()
    net.initialize()
    samples = [
        (mx.nd.array(np.ones((rows, 2)) * rows), {'scale': np.float32(rows), 'shift': 0.5})
        for rows in (1, 2, 3)
    ]
    edb.export(net, samples, tmp_path / 'bundle', unpack=True)
    model = runtime.load(tmp_path / 'bundle')
    assert model.check() == 3 and model.examples[1][0] == [[2.0, 2.0], [2.0, 2.0]]
    (mine,) = model([(np.ones((4, 2), np.float32), {'scale': 2, 'shift': 1})])
    (wanted,) = net.batch([(np.ones((4, 2), np.float32), {'scale': 2, 'shift': 1})], unpack=True)
    np.testing.assert_allclose(mine, wanted.asnumpy(), rtol=1e-5)
    with pytest.raises(runtime.RecordError, match=r'samples\[0\]\[0\] has 1 axes'):
        model([([1.0, 2.0], {'scale': 2, 'shift': 1})])


def test_a_class_is_one_of_its_bases(runtime, tmp_path):
    net = models.Kinds()
    net.initialize()
    samples = [[models.Op(2), models.Op(3)], [models.Op(1)], [models.Op(4)]]
    edb.export(net, samples, tmp_path / 'bundle')
    model = runtime.load(tmp_path / 'bundle')
    assert model.check() == 3
    assert model(model.examples)[0][1] == [True, True]


@pytest.mark.parametrize(
    'made, told',
    [(models.Summed, '__radd__'), (models.Apart, 'eq=False'), (models.Doubled, '__post_init__')],
)
def test_what_python_runs_by_itself_is_refused(made, told, tmp_path):
    net = models.Sizes()
    net.initialize()
    with pytest.raises(edb.BundleError, match=f'{made.__name__} has {told}, which Python runs'):
        edb.export(net, [made(2)], tmp_path / 'bundle')


def test_objects_have_no_text(tmp_path):
    net = models.Texts()
    net.initialize()
    with pytest.raises(edb.BundleError, match='Op has no text in an exported model'):
        edb.export(net, [models.Op(2)], tmp_path / 'bundle')


def test_begin_state(runtime, tmp_path):
    """The first model of the guide to values that are read."""
    net = models.Walks()
    net.initialize(mx.init.Normal(1))
    sentences = [[1, 2, 3], [4, 5, 6, 7], [8, 9], [0]]
    edb.export(net, sentences, tmp_path / 'bundle')
    model = runtime.load(tmp_path / 'bundle')
    assert model(sentences) == net.batch(sentences) != [[]] * 4
    assert model.evaluations <= 8


def test_truth_waits(runtime, tmp_path):
    """``if value`` and its like let samples wait for each other."""
    mx.random.seed(1)
    net, samples = models.Decides(), [x % 10 for x in range(20)]
    net.initialize(mx.init.Normal(0.7))
    edb.export(net, samples, tmp_path / 'bundle')
    model = runtime.load(tmp_path / 'bundle')
    assert model.check() == 20
    found = model(samples)
    assert len({len(seen) for _, seen, _ in found}) > 1
    assert model.evaluations <= 12  # 20 samples with 6 to 10 reads each


def test_comprehensions_that_wait(runtime, tmp_path):
    """Reads within lists, sets, dicts and nested loops, and where nothing can wait."""
    net = models.Comprehends()
    net.initialize()
    edb.export(net, [1, 2, 3, 5], tmp_path / 'bundle')
    model = runtime.load(tmp_path / 'bundle')
    assert model.check() == 4
    codes = {code.co_name for code in model._model.generators}
    assert codes == {'forward', '_score', '_again'}


def test_samples_do_not_wait_where_others_could_see_it(runtime, tmp_path):
    """What samples share is written in their order."""
    net = models.Counts()
    net.initialize()
    edb.export(net, [1, 2], tmp_path / 'bundle')
    model = runtime.load(tmp_path / 'bundle')
    before = len(model([3])[0][1])
    found = [order for _, order in model([4, 5, 6])]
    assert found[-1][before:] == [4, -4, 5, -5, 6, -6]


def test_words_that_wait_are_not_taken_for_what_is_computed(runtime, tmp_path):
    """A word that an evaluation did not need waits, and a computed value was recorded after it."""
    net = models.Unneeded()
    net.initialize(mx.init.Normal(1))
    edb.export(net, [1, 2, 3], tmp_path / 'bundle')
    assert runtime.load(tmp_path / 'bundle').check() == 3


def test_random_models():
    assert walk_exports.main(['--cases', '30', '--seed', '11']) == 0


# --- samples in JSON ------------------------------------------------------------------------------

WRONG = {
    'a text': ('token', '7', r'samples\[1\]\[0\].token must be int, not'),
    'a truth value': ('token', True, r'samples\[1\]\[0\].token must be int'),
    'a list': ('parts', 5, r'samples\[1\]\[0\].parts must be a list'),
    'a part': ('parts', [7], r'samples\[1\]\[0\].parts\[0\] must be an object'),
    'another kind': ('kind', {'k': 7}, r'samples\[1\]\[0\].kind\[.k.\] must be a tuple of 2'),
    'no number': ('kind', {'k': [float('nan'), 'x']}, r'is nan'),
}


@pytest.mark.parametrize('what', WRONG)
def test_a_field_of_another_kind(what, runtime, folder):
    model = runtime.load(folder)
    name, value, message = WRONG[what]
    samples = json.loads(json.dumps(model.examples[:3]))
    samples[1][0][name] = value
    with pytest.raises(runtime.RecordError, match=message):
        model(samples)


def test_fields_that_are_missing_or_too_many(runtime, folder):
    model = runtime.load(folder)
    samples = json.loads(json.dumps(model.examples[:2]))
    samples[0][0]['more'] = 5  # is not read
    model(samples)
    del samples[1][0]['parts']
    with pytest.raises(runtime.RecordError, match=r"\[1\]\[0\] must be an object|no field 'parts'"):
        model(samples)
    with pytest.raises(runtime.RecordError, match='must be a list of 2 arguments'):
        model([samples[0][0]])
    deep = {'token': 1, 'parts': [], 'kind': None}
    for _ in range(3000):
        deep = {**deep, 'parts': [deep]}
    with pytest.raises(runtime.RecordError, match='nested'):
        model([[deep, [1, 1]]])


# --- what cannot be exported ----------------------------------------------------------------------


REFUSED = {
    models.Handles: 'this cannot be exported: try is not taken',
    models.Nests: 'a function inside of a function is not taken',
    models.Names: 'a comprehension with := is not taken',
    models.Reaches: 'the attribute __class__',
    models.Opens: 'open cannot be exported',
    models.Operates: 'numpy.linalg is not there without MXNet',
    models.Prints: 'the module json is not there without MXNet',
    models.Skips: 'the samples never call unused, and how it is called cannot be told',
}


@pytest.mark.parametrize('kind', REFUSED)
def test_refused_with_its_line(kind, tmp_path):
    model = kind()
    model.initialize()
    with pytest.raises(edb.BundleError, match=f'(?s){REFUSED[kind]}') as caught:
        edb.export(model, [1, 2], tmp_path / 'bundle')
    if kind is not models.Skips:
        assert f'{models.__file__}:' in str(caught.value)
    assert not (tmp_path / 'bundle').exists()


def test_super_is_refused(tmp_path):
    model = models.Supers(10, 4, 4)
    model.initialize()
    tree = exported.Tree(1, 0, [])
    with pytest.raises(edb.BundleError, match='super cannot be exported'):
        edb.export(model, [tree], tmp_path / 'bundle')


# --- bundles of others ----------------------------------------------------------------------------


def altered(folder, tmp_path, change):
    """A copy with another manifest, whose digest is right."""
    copy = tmp_path / 'altered'
    shutil.copytree(folder, copy)
    manifest = json.loads((copy / NAME).read_text())
    change(manifest['content'])
    del manifest['digest']
    manifest['digest'] = _digest(manifest)
    (copy / NAME).write_text(json.dumps(manifest))
    return copy


def call_of(name, attribute):
    """``name.attribute``, as a statement in data."""
    owner = {'is': 'Name', 'id': name, 'line': 1}
    found = {'is': 'Attribute', 'value': owner, 'attr': attribute, 'line': 1}
    return {'is': 'Expr', 'value': found, 'line': 1}


HOSTILE = {
    'an import': lambda content: content['functions'][0]['body'].insert(
        0, {'is': 'Import', 'names': [{'is': 'alias', 'name': 'os'}]}
    ),
    'a class': lambda content: content['functions'][0]['body'].insert(
        0, call_of('self', '__class__')
    ),
    'a format': lambda content: content['functions'][0]['body'].insert(
        0, call_of('self', 'format')
    ),
    'a hidden name': lambda content: content['functions'][0]['body'].insert(
        0, {'is': 'Expr', 'value': {'is': 'Name', 'id': '__builtins__', 'line': 1}, 'line': 1}
    ),
    'another name': lambda content: content['functions'][0].update(name='f(): pass\nimport os #'),
    'another argument': lambda content: content['functions'][0].update(args=['self', 'x=1']),
    'a function of Python': lambda content: content['functions'][0]['globals'].update(
        x=['python', 'eval']
    ),
    'a module': lambda content: content['functions'][0]['globals'].update(x=['module', 'os']),
    'a host': lambda content: content['functions'][0]['globals'].update(x=['host', 'edb.batching']),
    'a cell': lambda content: content['parts'][0]['attributes'].update(embed=['cell', 'x']),
    'an attribute': lambda content: content['parts'][0]['attributes'].update(
        __class__=['constant', 1]
    ),
    'a method': lambda content: content['classes'][0]['methods'].update(__del__=0),
    'a number': lambda content: content['functions'][0]['globals'].update(x=['function', 10**6]),
    'a class without a name': lambda content: content['classes'][0].update(name=7),
    'no functions': lambda content: content.update(functions=None),
    'no fields': lambda content: content.update(fields=[]),
    'no net': lambda content: content.pop('net'),
    'a part': lambda content: content.update(net=['part', 99]),
    'an inner block': lambda content: content['inner'].update(embed={'__class__': ['constant', 1]}),
    'an inner cell': lambda content: content['inner'].update(x={'a': ['cell', 'embed']}),
    'no inner blocks': lambda content: content.update(inner=None),
    'lines': lambda content: [each.update(reads=[[1]]) for each in content['functions']],
    'no lines': lambda content: [each.pop('reads') for each in content['functions']],
    'programs': lambda content: content.update(programs={'a': 1}),
    'a program': lambda content: content['programs'].append({'cells': ['embed']}),
    'a value': lambda content: content.update(net=['value', 99]),
}


@pytest.mark.parametrize('what', HOSTILE)
def test_hostile_bundles_are_refused(what, runtime, folder, tmp_path):
    with pytest.raises(runtime.BundleError):
        runtime.load(altered(folder, tmp_path, HOSTILE[what]))


REACHING = {
    'a frame': 'gi_frame',
    'another frame': 'f_back',
    'code': 'co_consts',
}


@pytest.mark.parametrize('what', REACHING)
def test_frames_are_out_of_reach(what, runtime, folder, tmp_path):
    statement = call_of('self', REACHING[what])

    def change(content):
        content['functions'][0]['body'].insert(0, statement)

    with pytest.raises(runtime.BundleError, match=REACHING[what]):
        runtime.load(altered(folder, tmp_path, change))


@pytest.mark.parametrize('name', ('log', 'types', 'save', 'policy'))
def test_inner_objects_are_out_of_reach(name, runtime, folder, tmp_path):
    """An attribute that an object of the runtime has is refused when the code runs. Objects of the
    user's classes may have one of that name (`Counts` has `log` in the random models)."""
    statement = call_of('embed', name)
    statement['value']['value'] = {'is': 'Attribute', 'value': statement['value']['value'],
                                   'attr': 'embed', 'line': 1}  # fmt: skip
    statement['value']['value']['value']['id'] = 'self'

    def change(content):
        content['functions'][0]['body'].insert(0, statement)

    with pytest.raises(runtime.BundleError, match=f'{name} is no attribute of a BundledCell'):
        runtime.load(altered(folder, tmp_path, change))


def test_getattr_reaches_nothing_more(runtime):
    from gluon_edbatch_core.bundle.made_code import _IN_PLACE

    with pytest.raises(AttributeError, match='is no attribute'):
        _IN_PLACE['getattr'](3, '__class__')
    with pytest.raises(AttributeError, match='is no attribute'):
        _IN_PLACE['hasattr']('', 'format_map')
    assert _IN_PLACE['getattr'](3, 'real') == 3 and not _IN_PLACE['hasattr'](3, 'x')


def test_a_loop_without_end(runtime, tmp_path):
    model = models.Endless()
    model.initialize()
    edb.export(model, [5, 6], tmp_path / 'bundle')
    loaded = runtime.load(tmp_path / 'bundle', most_steps=1000)
    with pytest.raises(RuntimeError, match='more than 1000 steps'):
        loaded([1])
    assert len(loaded([7])) == 1
