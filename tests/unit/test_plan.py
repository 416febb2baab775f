"""The memory plan: what is a slice and what a gather, and that nothing overlaps."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from support.models import TreeLSTM, ndarrays, random_trees, started
from support.plans import assert_sound, plan_of


@settings(max_examples=60)
@given(
    st.integers(0, 999),
    st.integers(1, 12),
    st.sampled_from(['depth', 'agenda', 'agenda-remaining', 'unbatched']),
)
def test_plans_of_trees_are_sound(seed, count, scheduler):
    trees = random_trees(count, seed=seed)
    assert_sound(plan_of(lambda: [TREES(tree) for tree in trees], scheduler))


TREES = started(TreeLSTM())


def test_a_chain_of_whole_batches_reads_slices_only():
    net = started(nn.Dense(4, in_units=4))

    def record():
        values = ndarrays(5, (1, 4))
        for _ in range(4):
            values = [net(value) for value in values]
        return values

    plan = plan_of(record)
    assert_sound(plan)
    assert len(plan.batches) == 4 and plan.gathered_rows == 0 and plan.sliced_rows == 20


def test_reversed_order_gathers():
    net = started(nn.Dense(4, in_units=4))
    plan = plan_of(lambda: [net(value) for value in [net(x) for x in ndarrays(5, (1, 4))][::-1]])
    assert_sound(plan)
    assert plan.gathered_rows == 5 and plan.sliced_rows == 5


class FirstHalves(gluon.HybridBlock):
    """A sum over children that needs padding: slices are not rewritten by segments."""

    def hybrid_forward(self, F, children):
        return F.sum(F.slice_axis(children, axis=2, begin=0, end=2), axis=1)


def test_ragged_padding_reads_the_row_of_zeros():
    net, values = FirstHalves(), ndarrays(6, (1, 4))
    with edb.compile_options(native=False):  # native operators never need padding
        plan = plan_of(
            lambda: [
                net(edb.ragged(values[:count] if count < 6 else values[::-1]))
                for count in range(1, 7)
            ]
        )
    (read,) = (read for batch in plan.batches for read in batch.reads)
    assert read.length == 6 and read.gather and read.parents is None
    rows = plan.indices[read.begin : read.end].reshape(-1, 6)
    zero = plan.arenas[read.arena].zero
    np.testing.assert_array_equal((rows != zero).sum(axis=1), np.arange(1, 7))
    assert (np.diff(rows == zero, axis=1) >= 0).all()  # at the end of each line


def test_children_of_trees_are_read_without_padding():
    plan = plan_of(lambda: [TREES(tree) for tree in random_trees(6)])
    long = [
        (batch, read) for batch in plan.batches for read in batch.reads if read.parents is not None
    ]
    assert long and any(read.gather for _, read in long)
    for batch, read in long:
        assert read.length is None
        parents = plan.indices[read.parents : read.parents + read.end - read.begin]
        assert (np.diff(parents) >= 0).all() and parents[0] >= 0 and parents[-1] < batch.rows


def test_values_of_several_rows_stay_together():
    net = started(nn.Dense(4, in_units=4))
    plan = plan_of(
        lambda: [net(x) for x in ndarrays(2, (3, 4)) + ndarrays(1, (1, 4)) + ndarrays(1, (2, 4))]
    )
    (batch,) = plan.batches
    assert batch.rows == 9 and batch.writes[0].end - batch.writes[0].begin == 9
