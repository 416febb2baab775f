"""Random programs under random schedulers against plain NumPy and eager Gluon."""

from typing import NamedTuple
from unittest import mock

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd

import gluon_edbatch as edb
from gluon_edbatch.execute import evaluate
from tests.support.programs import (
    BLOCKS,
    DENSE,
    EMBED,
    OPS,
    RAGGED,
    RandomScheduler,
    as_ndarrays,
    inputs_of,
    programs,
    run,
    schedulers,
    weight,
)


def assert_close(found, expected, what):
    """Assert that arrays agree to 1e-10 of the largest magnitude."""
    scale = max(np.abs(expected).max(initial=0), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * scale, err_msg=what)


@settings(max_examples=150)
@given(st.lists(programs(), max_size=5), schedulers, st.integers(0, 3))
def test_random_programs_give_what_numpy_gives(minibatch, scheduler, skip):
    check_values(minibatch, scheduler, skip)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(programs(), max_size=5), schedulers, st.integers(0, 3))
def test_more_random_programs_give_what_numpy_gives(minibatch, scheduler, skip):
    check_values(minibatch, scheduler, skip)


def check_values(minibatch, scheduler, skip):
    with edb.batching(scheduler) as scope:
        results = [run(program, True, as_ndarrays(program)) for program in minibatch]
    wanted = [values[skip:] for values in results]  # some values nobody asks for
    found = edb.forward(wanted)
    for program, values in zip(minibatch, found):
        expected = run(program, False, inputs_of(program))[skip:]
        assert len(values) == len(expected)
        for value, right in zip(values, expected):
            assert_close(value.asnumpy(), right, str(program))
    report = scope.report()
    assert report.lower_bound <= report.batches <= report.nodes
    assert str(report) and str(scope.explain())


@settings(max_examples=250)
@given(st.lists(programs(reads=True), max_size=5), schedulers, st.integers(1, 9), st.integers(0, 3))
def test_large_scopes_run_part_by_part(minibatch, scheduler, most, skip):
    """With a low limit, every scope is large and runs in parts, which read earlier parts'
    results."""
    with mock.patch.object(evaluate, '_MOST_CALLS', most):
        with edb.batching(scheduler) as scope:
            results = [run(program, True, as_ndarrays(program)) for program in minibatch]
        found = edb.forward([values[skip:] for values in results])
        kept = [values[:skip] for values in results]  # asked for when all else was computed
        first = edb.forward(kept)
    for program, early, late in zip(minibatch, first, found):
        for value, right in zip([*early, *late], run(program, False, inputs_of(program))):
            assert_close(value.asnumpy(), right, str(program))
    assert scope.report().nodes == len(scope._recording.node_forms)


@settings(max_examples=250)
@given(st.lists(programs(reads=True), max_size=4), schedulers)
def test_reading_in_the_middle_changes_nothing_and_recomputes_nothing(minibatch, scheduler):
    with edb.batching(scheduler) as scope:
        results = [run(program, True, as_ndarrays(program)) for program in minibatch]
    recorded = len(scope._recording.node_forms)
    found = edb.forward(results)
    for program, values in zip(minibatch, found):
        for value, right in zip(values, run(program, False, inputs_of(program))):
            assert_close(value.asnumpy(), right, str(program))
    assert scope.report().nodes == recorded


def gradients_of(total, given) -> dict[str, np.ndarray]:
    """Gradients of all parameters and given arrays."""
    named = {
        parameter.name: parameter.grad()
        for block in BLOCKS
        for parameter in block.collect_params().values()
    }
    named.update((str(i), array.grad) for i, array in enumerate(given))
    for array in named.values():
        array[:] = 0
    total.backward()
    return {name: array.asnumpy().copy() for name, array in named.items()}


def weighted(values) -> mx.nd.NDArray:
    """A sum over values in which each counts differently."""
    return mx.nd.add_n(*[(value * (0.5 + i % 7)).sum() for i, value in enumerate(values)])


@settings(max_examples=100)
@given(st.lists(programs(reads=True), min_size=1, max_size=4), schedulers, st.integers(0, 1))
def test_random_programs_have_the_gradients_of_eager_gluon(minibatch, scheduler, skip):
    check_gradients(minibatch, scheduler, skip)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(programs(reads=True), min_size=1, max_size=4), schedulers, st.integers(0, 1))
def test_more_random_programs_have_the_gradients_of_eager_gluon(minibatch, scheduler, skip):
    check_gradients(minibatch, scheduler, skip)


def check_gradients(minibatch, scheduler, skip):
    given_arrays = [as_ndarrays(program) for program in minibatch]
    flat = [array for arrays in given_arrays for array in arrays]

    def results():
        return [run(program, True, arrays) for program, arrays in zip(minibatch, given_arrays)]

    with autograd.record():
        with edb.batching(scheduler):
            lazy = results()
        total = weighted([v for values in edb.forward(lazy) for v in values[skip:]])
    found = gradients_of(total, flat)
    with autograd.record():
        total = weighted([v for values in results() for v in values[skip:]])
    expected = gradients_of(total, flat)
    for name, right in expected.items():
        assert_close(found[name], right, f'gradient of {name} in {minibatch}')


class Node(NamedTuple):
    """A node of a random tree; `twin` repeats its state further up (then it is a DAG)."""

    token: int
    children: tuple['Node', ...]
    twin: bool


NODES = st.recursive(
    st.builds(Node, st.integers(0, 4), st.just(()), st.booleans()),
    lambda nodes: st.builds(
        Node, st.integers(0, 4), st.lists(nodes, max_size=4).map(tuple), st.booleans()
    ),
    max_leaves=8,
)


def tree_states(node: Node, lazy: bool):
    """State of a node; a `twin` gives its state twice to its parent."""
    states = []
    for child in node.children:
        state = tree_states(child, lazy)
        states += [state] * (1 + child.twin)
    if lazy:
        word = EMBED(node.token)
        return OPS[RAGGED].lazy(DENSE(word), states)[0]
    word = weight(EMBED.weight)[[node.token]]
    return OPS[RAGGED].plain(OPS['dense'].plain(word)[0], states)[0]


@settings(max_examples=300)
@given(st.lists(NODES, max_size=5), schedulers)
def test_random_trees(minibatch, scheduler):
    with edb.batching(scheduler) as scope:
        values = [tree_states(node, True) for node in minibatch]
    for value, node in zip(edb.forward(values), minibatch):
        assert_close(value.asnumpy(), tree_states(node, False), str(node))
    assert len(scope.report().types) <= 3


@settings(max_examples=100)
@given(st.lists(NODES, min_size=1, max_size=4), st.integers(0, 999))
def test_any_schedule_gives_the_same_gradients(minibatch, seed):
    found = []
    for scheduler in ('unbatched', 'agenda', RandomScheduler(seed)):
        with autograd.record():
            with edb.batching(scheduler):
                values = [tree_states(node, True) for node in minibatch]
            total = weighted(edb.forward(values))
        found.append(gradients_of(total, []))
    for other in found[1:]:
        for name, right in found[0].items():
            assert_close(other[name], right, name)


def test_no_program_at_all():
    with edb.batching(RandomScheduler(0)) as scope:
        pass
    assert edb.forward([]) == [] and scope.report().nodes == 0
