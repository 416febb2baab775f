"""Compiled programs written as bundles, and read again."""

import json
from collections import namedtuple

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch_core.branching.program_graph import (
    FillTensor,
    Finish,
    Network,
    ProgramBlock,
    ProgramGraph,
    RunNetwork,
    TensorSpec,
)
from gluon_edbatch_core.branching.program_host import Host
from gluon_edbatch_core.branching.program_interpreter import ControlFlowProgram
from gluon_edbatch_core.branching.pytree import LEAF, deserialised, flatten, serialised
from gluon_edbatch_core.branching.serialisation import deserialised_blocks, serialised_block

Pair = namedtuple('Pair', 'first second')


class Walks(gluon.Block):
    """Goes on while it may; what it gives has all kinds of values."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(4, activation='tanh', in_units=4)
            self.embed = nn.Embedding(5, 4)

    def forward(self, x):
        steps = 0
        while x.sum().asscalar() < 1 and steps < 4:
            x = self.dense(x) + self.embed(mx.nd.array([steps]))
            steps += 1
        ones = mx.nd.ones((1, 4))
        return Pair([x, steps], {'scale': float(x.max().asscalar()) / 3, 'ones': x * ones}), None


def made():
    mx.random.seed(2)
    net = Walks()
    net.initialize(mx.init.Normal(1))
    random = np.random.RandomState(1)
    return net, [mx.nd.array(random.uniform(-1, 1, (1, 4))) for _ in range(12)]


def assert_same(found, expected):
    if isinstance(expected, mx.nd.NDArray):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        assert getattr(found, '_fields', ()) == getattr(expected, '_fields', ())
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other)
    else:
        assert (
            found == pytest.approx(expected) if isinstance(expected, float) else found == expected
        )


def test_a_program_that_is_read_again_gives_the_same(tmp_path):
    net, samples = made()
    program = edb.compile_program(net, samples[0])
    folder = edb.export(program, tmp_path / 'bundle')
    read = edb.load_program(folder)
    assert_same(read(samples), [net(sample) for sample in samples])
    assert str(read) == str(program)
    assert read.report().samples == 12


def test_the_deprecated_name_writes_the_same_program(tmp_path):
    net, samples = made()
    program = edb.compile_program(net, samples[0])
    edb.export(program, folder=tmp_path / 'new', cpp=True)
    with pytest.warns(DeprecationWarning, match=r'edb\.export\(program, folder') as caught:
        assert program.export(tmp_path / 'old', False, True) == tmp_path / 'old'
    assert caught[0].filename == __file__
    new, old = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ('new', 'old')
    )
    assert new == old and 'program.cc' in new


def test_parameters_are_those_of_when_it_was_written(tmp_path):
    net, samples = made()
    program = edb.compile_program(net, samples[0])
    folder, before = edb.export(program, tmp_path / 'bundle'), net(samples[0])
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data() * 2)
    assert_same(edb.load_program(folder)(samples[:1]), [before])
    assert_same(program(samples[:1]), [net(samples[0])])


def test_networks_in_the_format_of_onnx(tmp_path):
    onnx = pytest.importorskip('onnx')
    net, samples = made()
    folder = edb.export(edb.compile_program(net, samples[0]), tmp_path / 'bundle', onnx=True)
    files = sorted(folder.glob('*.onnx'))
    content = json.loads((folder / 'manifest.json').read_text())['content']
    assert len(files) == len(content['onnx']) > 0
    for path in files:
        model = onnx.load(path)
        onnx.checker.check_model(model)
        names = {each.name for each in model.graph.input}
        assert all(name.startswith('edb_input') for name in names)


def refer_to_nothing(content):
    content['blocks'][0]['end'] = {'goto': {'block': 99, 'values': []}}


def give_too_little(content):
    for block in content['blocks']:
        for way in ('then', 'else'):
            if way in block['end']:
                block['end'][way]['values'] = []


def compute_what_is_not_known(content):
    for block in content['blocks']:
        for step in block['steps']:
            if step['do'] == 'calculate':
                step['op'] = '__import__'


def read_what_is_not_there(content):
    for block in content['blocks']:
        for step in block['steps']:
            if step['do'] == 'read':
                step['input'] = 77


@pytest.mark.parametrize(
    'damage', [refer_to_nothing, give_too_little, compute_what_is_not_known, read_what_is_not_there]
)
def test_what_does_not_fit_together_is_an_error(damage):
    net, samples = made()
    graph = edb.compile_program(net, samples[0])._of_mode(False).graph
    content = {'blocks': [json.loads(json.dumps(serialised_block(each))) for each in graph.blocks]}
    sizes = graph.networks, len(graph.parameters), len(graph.constants)
    read = deserialised_blocks(content['blocks'], *sizes)
    assert list(map(serialised_block, read)) == content['blocks']
    damage(content)
    with pytest.raises(edb.BundleError, match='describes no program'):
        deserialised_blocks(content['blocks'], *sizes)


@pytest.mark.parametrize('file', ['network0-symbol.json', 'parameter0.npy', 'manifest.json'])
def test_damaged_files(tmp_path, file):
    net, samples = made()
    folder = edb.export(edb.compile_program(net, samples[0]), tmp_path / 'bundle')
    data = (folder / file).read_bytes()
    for damaged in (data[:-3], data[:-2] + bytes([data[-2] ^ 1]) + data[-1:], None):
        if damaged is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(damaged)
        with pytest.raises(edb.BundleError) as error:
            edb.load_program(folder)
        assert file in str(error.value)


@pytest.mark.parametrize(
    'value',
    [[], (1, 2.5), {'a': [None, True]}, {1: 'x', (2, 3): [float('inf')]}, Pair([1], -0.0), 'word'],
)
def test_structures_as_data(value):
    template = flatten(value, mx.nd.NDArray, [])
    again = deserialised(json.loads(json.dumps(serialised(template))))
    if isinstance(value, Pair):
        assert again[0]._fields == Pair._fields and again[1:] == template[1:]
    else:
        assert again == template
    assert deserialised(serialised(LEAF)) == LEAF


def test_structures_that_are_no_data():
    template = flatten([object], mx.nd.NDArray, [])
    with pytest.raises(edb.BundleError, match='only numbers, texts'):
        serialised(template)


class Doubling(Host):
    """Networks are one that doubles its input, of one sample at a time."""

    def _call(self, run, inputs, alone):
        assert alone and len(inputs[0]) == 2
        return [inputs[0] * 2]


def test_a_host_of_arrays_of_numpy():
    """Samples of a network that takes one at a time, and rows of samples that part."""
    spec = TensorSpec((2, 3), 'float32')
    finish = Finish(LEAF, (1,))
    blocks = [
        ProgramBlock((spec,), [RunNetwork(0, (), (0,), (1,)), FillTensor(2, 0)], finish, 'line')
    ]
    graph = ProgramGraph(
        blocks, [Network(None, (spec,), (spec,), False, 1)], [], [np.ones(1)], (tuple, LEAF)
    )
    host = Doubling(graph)
    samples = [np.full((2, 3), each, np.float32) for each in range(4)]
    for count in (1, 4):
        for found, sample in zip(ControlFlowProgram(graph, host, 9)(samples[:count]), samples):
            np.testing.assert_array_equal(found, sample * 2)
    rows = host.take(np.concatenate(samples), np.array([3, 1]), 2)
    assert rows[:, 0].tolist() == [3, 3, 1, 1]
