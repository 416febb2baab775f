"""The memory plan: what is a slice and what a gather, and that nothing overlaps."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from tests.support.models import TreeLSTM, ndarrays, random_trees, started
from tests.support.oracle import plans_moved_by_hand
from tests.support.plans import assert_sound, plan_of
from tests.support.programs import as_ndarrays, programs, run, schedulers


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


@pytest.mark.parametrize('native', [True, False])
def test_plans_of_random_programs_move_what_calls_name(native):
    @settings(max_examples=150)
    @given(st.lists(programs(reads=True), min_size=1, max_size=4), schedulers, st.integers(0, 3))
    def check(minibatch, scheduler, skip):
        with contextlib.ExitStack() as stack:
            stack.enter_context(edb.compile_options(native=native))
            plans = stack.enter_context(plans_moved_by_hand())
            with edb.batching(scheduler):
                values = [run(program, True, as_ndarrays(program)) for program in minibatch]
            edb.forward([each[skip:] for each in values])
            found.update(kind for plan in plans for kind in kinds_of(plan))

    found = set()
    check()
    assert found >= {'slice', 'gather', 'ragged', 'imports', 'in place', 'several rows'}


def kinds_of(plan):
    """Yield how a plan's batches read and write, such as 'slice' and 'gather'."""
    for batch in plan.batches:
        for read in batch.reads:
            yield 'gather' if read.gather else 'slice'
            yield from ['ragged'] * (read.length is not None or read.parents is not None)
        yield from ['several rows'] * (batch.rows > len(batch.nodes))
    yield from ['imports' for arena in plan.arenas if arena.imports]
    yield from ['in place' for arena in plan.arenas if arena.earlier is not None]


@settings(max_examples=40)
@given(st.integers(0, 999), st.integers(1, 12), st.booleans())
def test_plans_of_trees_move_what_calls_name(seed, count, native):
    trees = random_trees(count, seed=seed)
    with edb.compile_options(native=native), plans_moved_by_hand() as plans:
        plan_of(lambda: [TREES(tree) for tree in trees])
    assert plans


class Mean(gluon.HybridBlock):
    """Children whose number counts: padding is masked."""

    def hybrid_forward(self, F, children):
        return F.mean(children, axis=1)


def test_plans_of_masked_padding_move_what_calls_name():
    net, values = Mean(), ndarrays(6, (2, 4))
    with edb.compile_options(native=False), plans_moved_by_hand() as plans:
        plan_of(lambda: [net(edb.ragged(values[:count], shape=(2, 4))) for count in (3, 0, 6, 1)])
    ((batch,),) = [plan.batches for plan in plans]
    assert batch.reads[0].lengths is not None and batch.rows == 8


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
