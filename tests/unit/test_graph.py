"""The arrays of a recorded graph, and what is derived from them."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gluon_edbatch_core.graph.edges import Countdown
from gluon_edbatch_core.graph.graph import Graph, expand, stable_argsort
from tests.support.cases import in_one_test
from tests.support.strategies import graphs


def in_lists(graph):
    return [graph.inputs[a:b].tolist() for a, b in zip(graph.offsets[:-1], graph.offsets[1:])]


def depth_by_definition(graph):
    depth = []
    for row in in_lists(graph):
        depth.append(1 + max((depth[producer] for producer in row), default=-1))
    return depth


def test_tree_by_hand():
    #      4        0 and 1 are leaves; 3 reads 2 twice, and 4 reads 2 and 3.
    #     / \
    #    3 = 2 - 0, 1
    graph = Graph.from_lists([0, 0, 1, 1, 1], [[], [], [0, 1], [2, 2], [3, 2]])
    assert len(graph) == 5 and graph.num_types == 2
    assert repr(graph) == 'Graph(5 nodes, 6 edges, 2 types)'
    assert graph.depth.tolist() == [0, 0, 1, 2, 3]
    assert graph.readers.tolist() == [2, 2, 3, 3, 4, 4]
    assert graph.type_counts.tolist() == [2, 3]
    offsets, nodes, fan_in = graph.consumers
    assert offsets.tolist() == [0, 1, 2, 4, 5, 5]
    assert nodes.tolist() == [2, 2, 3, 4, 4]
    assert fan_in.tolist() == [0, 0, 2, 1, 2]  # 3 reads 2 once as far as order is concerned


def test_same_producer_at_the_border_of_two_readers_is_two_edges():
    graph = Graph.from_lists([0, 0, 0], [[], [0], [0]])
    assert graph.consumers.nodes.tolist() == [1, 2]


@pytest.mark.parametrize('num_types', [0, 1, 3])
def test_empty_graph(num_types):
    graph = Graph.from_lists([], [], num_types)
    assert len(graph) == 0
    assert graph.depth.tolist() == graph.height.tolist() == []
    assert graph.consumers.offsets.tolist() == [0]
    assert graph.type_counts.tolist() == [0] * num_types


def test_single_node():
    graph = Graph.from_lists([1], [[]], type_names=['a', 'b'])
    assert graph.num_types == 2 and graph.depth.tolist() == [0]


def test_derived_arrays_are_computed_once_and_graphs_compare_by_identity():
    graph, other = (Graph.from_lists([0, 0], [[], [0]]) for _ in range(2))
    assert graph.depth is graph.depth and graph.consumers is graph.consumers
    assert graph == graph and graph != other and len({graph, other}) == 2


def arrays(**changes):
    fields = dict(
        types=np.array([0, 1, 1], np.int32),
        offsets=np.array([0, 0, 1, 3], np.int64),
        inputs=np.array([0, 0, 1], np.int32),
        num_types=2,
        alone=np.zeros(2, bool),
    )
    return Graph(**{**fields, **changes})


@in_one_test(
    'changes, message',
    [
        (dict(types=np.array([0, 1, 2])), 'node 2 has type 2, but types go from 0 to 1'),
        (dict(types=np.array([0, -1, 1])), 'node 1 has type -1'),
        (
            dict(types=np.array([0.0, 1.0, 1.0])),
            'types must be integers along one axis, not float64',
        ),
        (dict(types=np.zeros((3, 1), int)), r'types must be .* of shape \(3, 1\)'),
        (dict(inputs=np.array([[0, 0, 1]])), r'inputs must be .* of shape \(1, 3\)'),
        (dict(inputs=np.array([0, 0, 2])), 'node 2 reads node 2: a node can read only nodes'),
        (dict(inputs=np.array([0, 0, 3])), 'node 2 reads node 3'),
        (dict(inputs=np.array([-1, 0, 1])), 'node 1 reads node -1'),
        (dict(inputs=np.array([0, 0])), 'offsets must rise from 0 to the 2 inputs'),
        (dict(offsets=np.array([0, 1, 3])), '3 nodes need 4 offsets, not 3'),
        (dict(offsets=np.array([1, 1, 1, 3])), 'offsets must rise .* not from 1 to 3'),
        (dict(offsets=np.array([0, 2, 1, 3])), 'offsets must rise .* a fall between'),
        (dict(alone=np.zeros(3, bool)), 'alone must be 2 bools'),
        (dict(alone=np.zeros(2)), 'alone must be 2 bools, one a type, not float64'),
        (dict(type_names=['a']), '1 names for 2 types'),
    ],
)
def test_validate_says_what_is_wrong(changes, message):
    assert arrays().validate().depth.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=message):
        arrays(**changes).validate()


def test_from_lists_refuses_lists_that_do_not_fit():
    with pytest.raises(ValueError, match='2 nodes have types, but 1 have inputs'):
        Graph.from_lists([0, 0], [[]])
    with pytest.raises(ValueError, match=r'alone=\[1\] holds types outside 0 to 0'):
        Graph.from_lists([0], [[]], alone=[1])
    with pytest.raises(ValueError, match='node 0 reads node 0'):
        Graph.from_lists([0], [[0]])


@settings(max_examples=400, deadline=None)
@given(graph=graphs())
def test_depth_height_and_consumers_are_as_defined(graph):
    assert graph.depth.tolist() == depth_by_definition(graph)
    assert graph.height.tolist() == graph.reversed.depth.tolist()[::-1]

    offsets, nodes, fan_in = graph.consumers
    edges = [
        (producer, reader)
        for reader, row in enumerate(in_lists(graph))
        for place, producer in enumerate(row)
        if not place or producer != row[place - 1]
    ]
    assert [
        (producer, reader)
        for producer in range(len(graph))
        for reader in nodes[offsets[producer] : offsets[producer + 1]]
    ] == sorted(edges)
    entries = Counter(reader for _, reader in edges)
    assert fan_in.tolist() == [entries[node] for node in range(len(graph))]


@settings(max_examples=400, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 1000))
def test_countdown_gives_each_node_when_its_last_input_has_run(graph, seed):
    random = Random(seed)
    rows, done, room = in_lists(graph), set(), np.empty(len(graph), np.int32)
    countdown = Countdown(graph)
    ready = {node for node, row in enumerate(rows) if not row}
    while ready:
        some = set(random.sample(sorted(ready), random.randint(1, len(ready))))
        nodes = np.array([-1, *sorted(some), -1], np.int32)
        released = room[: countdown.release(nodes, 1, len(some) + 1, room)].tolist()
        done |= some
        expected = {
            node for node, row in enumerate(rows) if some.intersection(row) and done.issuperset(row)
        }
        assert sorted(released) == sorted(expected)
        ready = ready - some | expected
    assert len(done) == len(graph)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=20))
def test_expand_is_ranges_in_turn(ranges):
    starts = np.array([start for start, _ in ranges], int)
    sizes = np.array([size for _, size in ranges], int)
    assert expand(starts, sizes).tolist() == [
        i for start, size in ranges for i in range(start, start + size)
    ]


@in_one_test('bound', [1, 2, 1 << 16, (1 << 16) + 1, 1 << 20, 1 << 32, 1 << 40])
@in_one_test('size', [0, 1, 1000])
def test_stable_argsort_is_argsort(bound, size):
    rng = np.random.RandomState(size)
    keys = rng.randint(0, bound, size)
    keys[: size // 2] = keys[size // 2 : size // 2 * 2]  # equal keys show whether it is stable
    keys[-1:] = bound - 1
    assert np.array_equal(stable_argsort(keys, bound), np.argsort(keys, kind='stable'))
