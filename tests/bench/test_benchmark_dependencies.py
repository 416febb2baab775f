"""Graph networks and the pointer network among the workloads of python -m benchmarks, and their
rivals that pad."""

import numpy as np
import pytest

from benchmarks.graphs import GraphSource
from benchmarks.rivals.padding import plan_graphs, plan_orders
from benchmarks.systems import build_system
from benchmarks.workloads import load_workload
from example.graph_attention.data import Graph
from example.pointer.data import Shuffled
from example.transition_parser import make_sample
from tests.support.padded_rivals import (
    RIVALS,
    assert_rival_equals,
    assert_trains_like_the_model,
    settings,
)

NAMES = ['graph-messages', 'graph-attention', 'pointer']


def graphs():
    """A word alone, and padding before and behind the longest."""
    heads = [1, 3, 1], [1], [1, 4, 1, 4, 7, 4, 2], [2, 0]
    return [
        Graph([row + k for k in range(len(of))], of, [k % 3 for k in range(len(of))])
        for row, of in enumerate(heads)
    ]


def orders():
    """Two words alike in one sentence; unknown words (0) that are not."""
    return [
        Shuffled([1, 0, 3, 1], [0, 1, 2, 0], [2, 0, 1, 3]),
        Shuffled([0, 0], [0, 1], [1, 0]),
        Shuffled([1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5], [5, 4, 3, 0, 1, 2]),
    ]


def hard(name):
    """Samples that are hard for who pads."""
    return orders() if name == 'pointer' else graphs()


@pytest.mark.parametrize('name', NAMES)
def test_products_are_those_of_the_eager_model(name, products):
    workload = load_workload(settings(name))
    net, _ = workload.build()
    samples = [*hard(name), *workload.samples[:3]]
    for sample in samples:
        workload.predict(net, sample)
    assert workload.products(samples) == dict(products)


def test_levels():
    assert load_workload(settings('graph-attention')).levels(graphs()) == 2
    assert load_workload(settings('pointer')).levels(orders()) == 6 + 6


@pytest.mark.parametrize('folder', ['ud_ewt', 'ud_ewt/lite'])
@pytest.mark.parametrize('name', NAMES)
def test_real_data_are_found_by_their_folders(name, folder, tmp_path):
    make_sample.write_sample(tmp_path / folder, {'train': 40, 'dev': 20, 'test': 20})
    found = load_workload(settings(name, data=str(tmp_path))).samples
    assert 0 < len(found) <= 40 and (len(found) == 40) == (name != 'pointer')


@pytest.mark.parametrize('mode', ['train', 'infer'])
@pytest.mark.parametrize('name', NAMES)
def test_graphs_that_schedulers_are_compared_on(name, mode):
    source = GraphSource(name, None, mode, 4)
    assert len(source.graph(source.samples[:2]))


def test_sentences_are_written_together():
    chosen = settings('pointer', mode='infer')
    built = build_system(load_workload(chosen), chosen)
    predicted = built.predict(orders())
    assert [len(order) for order in predicted] == [4, 2, 6]
    assert built.scope.report().evaluations <= 1 + 6


# --- rivals --------------------------------------------------------------------------------


@pytest.mark.parametrize('optimizer', ['sgd', 'adam'])
@pytest.mark.parametrize('system', RIVALS)
@pytest.mark.parametrize('name', NAMES)
def test_rival_equals_the_model_one_sentence_at_a_time(name, system, optimizer):
    assert_rival_equals(name, system, hard(name), optimizer=optimizer)


@pytest.mark.parametrize('system', RIVALS)
@pytest.mark.parametrize('name', NAMES)
def test_rival_trains_like_the_model(name, system):
    assert_trains_like_the_model(name, system)


def test_padded_graphs():
    plan = plan_graphs([Graph([7, 8, 9], [1, 3, 1], [0] * 3), Graph([5], [1], [0])])
    assert plan.words.tolist() == [[7, 8, 9], [5, 0, 0]]
    assert plan.edges[0].tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert plan.edges[1].tolist() == np.eye(3).tolist()
    assert plan.places.tolist() == [0, 1, 2, 3]


def test_padded_orders():
    plan = plan_orders([Shuffled([7, 8, 7], [0, 1, 0], [1, 2, 0]), Shuffled([5], [0], [0])], 4)
    assert plan.read.tolist() == [[7, 8, 7, 0], [5, 0, 0, 0]]
    assert plan.lengths.tolist() == [3, 1]
    assert plan.positions.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert plan.written[0, :3].tolist() == [8, 7, 7] and plan.written[1, 0] == 5
    assert plan.right[0].tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0], [0] * 4]
    assert plan.right[1].tolist() == [[1, 0, 0, 0], *[[0] * 4] * 3]
