"""Files that older commits wrote, named in the files: what users saved is read for ever."""

import json
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from example.common import checkpoint as checkpoints
from gluon_edbatch.subgraph import trace
from gluon_edbatch.subgraph.node_type import NodeType
from gluon_edbatch_core.graph import Graph
from tests.support.models import VOCAB, binary_trees, started
from tests.support.processes import ROOT

FIXTURES = ROOT / 'tests' / 'fixtures'


class Mean(gluon.HybridBlock):
    """Mean of any number of values."""

    def hybrid_forward(self, F, values):
        """(1, k, 4) -> (1, 4)"""
        return F.mean(values, axis=1)


class SavedModel(edb.AutoBatchMixin, gluon.Block):
    """Trees with two kinds of inner nodes, an operator and a ragged argument."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.leaf = gluon.nn.Embedding(VOCAB, 4)
            self.one = gluon.nn.Dense(4, in_units=4)
            self.two = gluon.nn.Dense(4, in_units=4)
            self.mean = Mean()

    def forward(self, tree):
        """(1, 4)"""
        if not tree.children:
            return self.leaf(tree.token)
        mean = self.mean(edb.ragged([self(child) for child in tree.children]))
        return (self.two if tree.token % 2 else self.one)(mean).tanh()


def recorded_graph():
    """The graph of a minibatch of a new SavedModel."""
    net = started(SavedModel())
    with edb.batching() as scope:
        kept = [net(tree) for tree in binary_trees(8, seed=1, most=9)]
        graph = scope.graph()
    assert kept
    return graph


def test_a_policy_chooses_as_it_did():
    saved = json.loads((FIXTURES / 'schedule_5c27bf8.json').read_text())
    graph = Graph.from_lists(
        saved['types'], saved['inputs'], num_types=4, type_names=['a', 'b', 'c', 'd']
    )
    policy = edb.Policy.load(FIXTURES / 'policy_5c27bf8.json')
    schedule = edb.FSMScheduler(policy).schedule(graph)
    assert schedule.order.tolist() == saved['order']
    assert schedule.bounds.tolist() == saved['bounds']


@pytest.mark.parametrize('encoding', ['E_base', 'E_sort', 'E_path'])
def test_a_full_table_chooses_as_it_did(encoding):
    """The table decides in most states, and its choices are not those of the policy's rule."""
    saved = json.loads((FIXTURES / 'schedules_5eb786e.json').read_text())
    graph = Graph.from_lists(
        saved['types'], saved['inputs'], num_types=4, type_names=saved['type_names']
    )
    policy = edb.Policy.load(FIXTURES / f'policy_{encoding}_5eb786e.json')
    schedule, expected = edb.FSMScheduler(policy).schedule(graph), saved[encoding]
    assert policy.table and policy.encoding.name == encoding
    assert schedule.order.tolist() == expected['order']
    assert schedule.bounds.tolist() == expected['bounds']
    assert schedule.unseen_states == expected['unseen_states']
    by_rule = edb.FSMScheduler(replace(policy, table={})).schedule(graph)
    assert by_rule.order.tolist() != expected['order']


def check_saved_model(graph):
    saved = json.loads((FIXTURES / 'schedule_ab4bf64.json').read_text())
    policy = edb.Policy.load(FIXTURES / 'policy_E_base_ab4bf64.json')
    schedule = edb.FSMScheduler(policy).schedule(graph)
    assert schedule.order.tolist() == saved['order'] and schedule.bounds.tolist() == saved['bounds']
    by_rule = edb.FSMScheduler(replace(policy, table={})).schedule(graph)
    assert len(by_rule) < len(schedule)  # so that a lost policy is noticed


def test_a_models_policy_chooses_as_it_did():
    check_saved_model(recorded_graph())


def test_types_may_print_otherwise(monkeypatch):
    monkeypatch.setattr(NodeType, '__repr__', lambda kind: f'<{kind.name}>')
    monkeypatch.setattr(trace, 'describe', lambda block: f'the {type(block).__name__}')
    check_saved_model(recorded_graph())


class First(gluon.HybridBlock):
    """Every second of some values, which does not allow to pad, and another value."""

    def hybrid_forward(self, F, values, x):
        """(1, k, 4), (1, 4) -> (1, 4)"""
        every = F.slice(values, begin=(None, None), end=(None, None), step=(1, 2))
        return x + F.sum(every, axis=1)


class Window(gluon.HybridBlock):
    """A convolution and its products, along two axes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv = gluon.nn.Conv1D(4, 3, padding=1, in_channels=4)

    def hybrid_forward(self, F, x):
        """(1, 4, k) -> (1, 4), (1, k, k)"""
        found = self.conv(x)
        return F.max(found, axis=2), F.batch_dot(found, found, transpose_a=True)


def test_names_of_types_in_policies():
    first, window = started(First(prefix='m3_first_')), started(Window(prefix='m3_window_'))
    x = mx.nd.ones((1, 4))
    with edb.batching() as scope:
        kept = [first(edb.ragged([x] * count), x) for count in (1, 2)]
        kept += [window(mx.nd.ones((1, 4, length)))[0] for length in (4, 5)]
        kept += [edb.concat([kept[0], kept[1], kept[2]])]
        names = scope.graph().type_names
    names = [name for name in names if not name.startswith('cut')]
    assert sorted(names) == [
        'First(m_first)[kx4, 4 k=1]',
        'First(m_first)[kx4, 4 k=2]',
        'Window(m_window)[4x4]',
        'Window(m_window)[kx4]',
        'concat[4]',
    ]


def test_a_policy_of_version_2_is_saved_as_version_3(tmp_path):
    path = tmp_path / 'policy.json'
    edb.Policy.load(FIXTURES / 'policy_E_path_5eb786e.json').save(path)
    before = json.loads((FIXTURES / 'policy_E_path_5eb786e.json').read_text())
    after = json.loads(path.read_text())
    for gone in ('beam_width', 'min_visits'):
        del before['config'][gone]
    assert after == {**before, 'version': 3, 'parameters': {}}


def test_a_checkpoint_is_what_was_trained():
    loaded = checkpoints.load(FIXTURES / 'checkpoint_5c27bf8.ckpt')
    assert (loaded.task, loaded.options, loaded.state, loaded.best_epoch) == (
        'fixture',
        {'seed': 1},
        {'best': 0.5},
        1,
    )
    weight, bias = loaded.parameters['weight'], loaded.parameters['bias']
    np.testing.assert_allclose(weight[0], [-0.01632297, 0.02686752, -0.04531607], rtol=1e-6)
    np.testing.assert_allclose(bias, [-0.001000006, -0.001000006], rtol=1e-6)
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    checkpoints.set_parameters(net, loaded.parameters)
    np.testing.assert_array_equal(net.weight.data().asnumpy(), weight)
    trainer = gluon.Trainer(net.collect_params(), 'adam')
    checkpoints.restore_trainer(trainer, loaded.trainer)
