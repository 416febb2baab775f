"""Files of commits 5c27bf8 and 5eb786e: what users saved is read as long as there are users."""

import json
from dataclasses import replace

import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from example.common import checkpoint as checkpoints
from gluon_edbatch.graph import Graph
from tests.support.processes import ROOT

FIXTURES = ROOT / 'tests' / 'fixtures'


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
