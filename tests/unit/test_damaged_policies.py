"""A policy's file, whatever happened to it, gives a policy that works or a PolicyError."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch import FSMScheduler, Policy, PolicyError, QLearningConfig, learn_policy
from gluon_edbatch.testing.scheduling import check_scheduler
from gluon_edbatch_core.schedule import Run
from gluon_edbatch_core.schedule.sufficient import SufficientCondition
from tests.support.damage import damaged, edited_json, truncated
from tests.support.models import VOCAB, binary_trees, started

ENCODINGS = ['E_base', 'E_sort', 'E_max', 'E_path']
TREES = binary_trees(8, seed=1, most=9)
KINDS = {'bytes': damaged, 'end': truncated, 'values': edited_json}


class TwoKinds(edb.AutoBatchMixin, gluon.Block):
    """Binary trees with two kinds of inner nodes, which compete."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.leaf = nn.Embedding(VOCAB, 4)
            self.inner = nn.Sequential()
            self.inner.add(nn.Dense(4, in_units=4, activation='tanh'), nn.Dense(4, in_units=4))

    def forward(self, tree):
        """(1, 4)"""
        if not tree.children:
            return self.leaf(tree.token)
        left, right = map(self.forward, tree.children)
        return self.inner[tree.token % 2](left - 2 * right)


@functools.cache
def model_and_results():
    """A model, what it gives eagerly, and the graph of a minibatch."""
    net = started(TwoKinds())
    with edb.batching() as scope:
        kept = [net(tree) for tree in TREES]
        graph = scope.graph()
    assert kept
    return net, [net(tree).asnumpy() for tree in TREES], graph


@functools.cache
def policy_of(encoding):
    """One that goes by its table: all decisions of the sufficient condition are in it."""
    _, _, graph = model_and_results()
    policy = replace(
        learn_policy([graph], encoding, QLearningConfig(effort=500)),
        small=0,
        table={},
        parameters={'weights': [0.5, [1, 2]], 'more': {'one': 1}},
    )
    run = Run(policy.number(graph))
    state, choose, table = policy.encoding.follow(run), SufficientCondition(run).choose, {}
    while run.settle():
        table[state()] = kind = choose()
        run.take(kind)
    assert len(table) > 3
    return replace(policy, table=table)


def assert_works(policy, path):
    """Assert that a policy schedules the graphs it was learned from, and can be saved again."""
    net, expected, graph = model_and_results()
    scheduler = FSMScheduler(policy)
    check_scheduler(scheduler, graph)
    with edb.batching(scheduler):
        values = [net(tree) for tree in TREES]
    for value, wanted in zip(edb.forward(values), expected):
        np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
    policy.save(path)
    assert Policy.load(path).table == policy.table


def check_damaged(path, kind, count, seed):
    generator, loaded = np.random.RandomState(seed), 0
    for number in range(count):
        if number % 50 == 0:
            policy_of(ENCODINGS[number // 50 % len(ENCODINGS)]).save(path)
            whole = path.read_bytes()
        path.write_bytes(KINDS[kind](whole, generator))
        try:
            policy = Policy.load(path)
        except PolicyError as error:
            assert str(path) in str(error) and len(str(error)) < 1000
            str(error).encode()
        else:
            loaded += 1
            assert_works(policy, path)
    return loaded


@pytest.mark.parametrize('kind', KINDS)
def test_damaged_policies_work_or_are_refused(kind, tmp_path):
    loaded = check_damaged(tmp_path / 'policy.json', kind, 150, seed=0)
    assert loaded < 140 and (loaded > 3 or kind == 'end')


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('seed', range(1, 5))
def test_many_damaged_policies_work_or_are_refused(kind, seed, tmp_path):
    check_damaged(tmp_path / 'policy.json', kind, 1000, seed)
