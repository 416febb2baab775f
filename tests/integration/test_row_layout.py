"""The order of calls within batches: the same calls, read as slices where that is possible."""

import numpy as np
import pytest
from hypothesis import given, settings
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.graph.graph import Graph
from gluon_edbatch.graph.row_order import arrange
from gluon_edbatch.schedule import AgendaScheduler
from gluon_edbatch.testing import assert_matches_eager
from support.models import started
from support.strategies import graphs

HIDDEN = 4


class Sequences(edb.AutoBatchMixin, gluon.Block):
    """The last state of an LSTM over each sample, a sequence of ids."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = gluon.nn.Embedding(9, HIDDEN)
            self.cell = gluon.rnn.LSTMCell(HIDDEN, input_size=HIDDEN)

    def forward(self, tokens):
        states = [np.zeros((1, HIDDEN), np.float32)] * 2
        for token in tokens:
            _, states = self.cell(self.embed(token), states)
        return states[0]


SEQUENCES = [[1, 2], [3, 4, 5, 6], [7], [8, 1, 2], [3, 4, 5, 6, 7], [1]]


@settings(max_examples=300, deadline=None)
@given(graph=graphs())
def test_batches_have_the_nodes_that_they_had(graph):
    schedule = AgendaScheduler().schedule(graph)
    order = arrange(graph, schedule.order, schedule.bounds)
    assert order.dtype == np.int32
    for begin, end in zip(schedule.bounds[:-1], schedule.bounds[1:]):
        assert sorted(order[begin:end]) == sorted(schedule.order[begin:end])


def test_chains_that_end_sooner_come_last():
    # three chains of one, three and two nodes, recorded one after the other
    graph = Graph.from_lists([0] * 6, [[], [], [1], [2], [], [4]])
    order = arrange(graph, np.array([0, 1, 4, 2, 5, 3], np.int32), np.array([0, 3, 5, 6]))
    assert order.tolist() == [1, 4, 0, 2, 5, 3]


def test_arguments_are_read_one_after_the_other():
    """Pairs of neighbours are the children of two nodes: left ones, then right ones."""
    graph = Graph.from_lists([0, 0, 0, 0, 1, 1], [[], [], [], [], [0, 1], [2, 3]])
    order = arrange(graph, np.arange(6, dtype=np.int32), np.array([0, 4, 6]))
    assert order.tolist() == [0, 2, 1, 3, 4, 5]


def gathered(**options):
    net = started(Sequences())
    options = edb.CompileOptions(native=False, hoisting=False, **options)
    with edb.batching('agenda', compile_options=options) as scope:
        values = [net(tokens) for tokens in SEQUENCES]
    edb.forward(values)
    return scope.report()


def test_sequences_of_any_lengths_are_read_as_slices():
    """All but the ids, which come sequence by sequence, and the states that many begin with."""
    before, after = gathered(row_layout=False), gathered()
    tokens = sum(map(len, SEQUENCES))
    assert after.gathered_rows == tokens + 2 * len(SEQUENCES) < before.gathered_rows
    assert any('row_layout' in kind.passes for kind in after.types)
    assert not any('row_layout' in kind.passes for kind in before.types)


@pytest.mark.parametrize('row_layout', [False, True])
def test_results_and_gradients_are_the_same(row_layout):
    net = started(Sequences())
    with edb.compile_options(native=False, row_layout=row_layout):
        assert_matches_eager(net, SEQUENCES, hybridized=[False], schedulers=['agenda', 'depth'])
