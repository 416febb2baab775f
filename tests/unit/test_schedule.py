"""Schedulers, the frontier they work on, and the lower bound."""

from collections import defaultdict
from fractions import Fraction
from itertools import combinations
from random import Random
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gluon_edbatch.testing.scheduling import check_schedule, check_scheduler
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule import (
    AgendaScheduler,
    BeamScheduler,
    DepthScheduler,
    Frontier,
    FSMScheduler,
    Run,
    Schedule,
    SufficientConditionScheduler,
    UnbatchedScheduler,
    bound,
    get_scheduler,
    lower_bound,
    optimum,
)
from gluon_edbatch_core.schedule.optimum import Fewest, fewest_batches
from tests.support.cases import in_one_test
from tests.support.strategies import graphs

NAMES = ['agenda', 'agenda-remaining', 'depth', 'unbatched']  # test_fsm.py has the others
EMBED, CELL, HEAD = range(3)


def in_lists(graph):
    return [graph.inputs[a:b].tolist() for a, b in zip(graph.offsets[:-1], graph.offsets[1:])]


def batches(name, graph):
    return [batch.tolist() for batch in check_scheduler(get_scheduler(name), graph)]


# Two samples, a tree of three words (0 to 6) and one of a single word.
TREES = Graph.from_lists(
    [EMBED, CELL, EMBED, CELL, EMBED, CELL, HEAD, EMBED, CELL, HEAD],
    [[], [0], [], [2], [], [4, 1, 1, 3, 3], [5], [], [7], [8]],
)
# Type 0 lies mostly above type 1, but what remains of it lies below: 0 - 3, and 1 - 4 - 5.
TURN = Graph.from_lists([0, 0, 0, 0, 1, 0], [[], [], [], [0], [1], [4]])
# Nodes of type 1 must run alone: 0 - 3, and 1 - 2.
ALONE = Graph.from_lists([1, 0, 1, 0], [[], [], [1], [0]], alone=[1])
# Alone from the start, and alone freed later but recorded earlier: 0 - 1, 2, 3.
QUEUE = Graph.from_lists([0, 1, 1, 1], [[], [0], [], []], alone=[1])


@in_one_test(
    'name, graph, expected',
    [
        ('depth', TREES, [[0, 2, 4, 7], [1, 3, 8], [5], [9], [6]]),
        ('agenda', TREES, [[0, 2, 4, 7], [1, 3, 8], [5], [6, 9]]),
        ('agenda-remaining', TREES, [[0, 2, 4, 7], [1, 3, 8], [5], [6, 9]]),
        ('unbatched', TREES, [[node] for node in range(10)]),
        ('depth', TURN, [[0, 1, 2], [3], [4], [5]]),
        ('agenda', TURN, [[0, 1, 2], [3], [4], [5]]),
        ('agenda-remaining', TURN, [[0, 1, 2], [4], [3, 5]]),
        ('depth', ALONE, [[1], [0], [3], [2]]),
        ('agenda', ALONE, [[0], [1, 3], [2]]),
        ('agenda-remaining', ALONE, [[0], [1, 3], [2]]),
        ('depth', QUEUE, [[0], [2], [3], [1]]),
        ('agenda', QUEUE, [[2], [3], [0], [1]]),
    ],
)
def test_schedules_by_hand(name, graph, expected):
    assert batches(name, graph) == expected


@in_one_test(
    'graph, expected',
    [
        (TREES, 1 + 2 + 1),
        (TURN, 2 + 1),
        (ALONE, 2 + 1),
        (QUEUE, 3 + 1),
        (Graph.from_lists([], []), 0),
        (Graph.from_lists([2], [[]]), 1),
        (Graph.from_lists([0, 0, 0], [[], [], []]), 1),
        # Different paths are richest in different types, so the bound of 4 is above any path.
        (Graph.from_lists([0, 0, 1, 1], [[], [0], [], [2]]), 4),
    ],
)
def test_lower_bound_by_hand(graph, expected):
    assert lower_bound(graph) == expected


def test_get_scheduler():
    for name, kind in [
        ('agenda', AgendaScheduler),
        ('agenda-remaining', AgendaScheduler),
        ('beam', BeamScheduler),
        ('depth', DepthScheduler),
        ('fsm', FSMScheduler),
        ('sufficient', SufficientConditionScheduler),
        ('unbatched', UnbatchedScheduler),
    ]:
        scheduler = get_scheduler(name)
        assert isinstance(scheduler, kind) and scheduler.name == name
        assert get_scheduler(scheduler) is scheduler
        assert repr(scheduler).startswith(kind.__name__)
    assert get_scheduler('fsm') is get_scheduler('fsm')
    assert get_scheduler('agenda-remaining').remaining and not get_scheduler('agenda').remaining
    names = "there is no scheduler 'best'; there are 'agenda', 'agenda-remaining', 'beam', 'd"
    with pytest.raises(ValueError, match=names):
        get_scheduler('best')
    unnamed = SimpleNamespace(schedule=DepthScheduler().schedule)
    for wrong in (None, 3, object(), DepthScheduler, unnamed):
        with pytest.raises(TypeError, match='is not a scheduler: it must be a name or an object'):
            get_scheduler(wrong)


@pytest.mark.parametrize('name', NAMES)
@settings(max_examples=250, deadline=None)
@given(graph=graphs())
def test_schedulers_keep_the_rules(name, graph):
    check_scheduler(get_scheduler(name), graph)


# Frontier against its definition


class PlainFrontier:
    """The ready nodes, found anew whenever asked."""

    def __init__(self, graph):
        self.graph, self.rows, self.done = graph, in_lists(graph), set()

    def ready(self):
        by_type = defaultdict(list)
        for node, row in enumerate(self.rows):
            if node not in self.done and self.done.issuperset(row):
                by_type[int(self.graph.types[node])].append(node)
        return dict(by_type)

    def take(self, kind):
        nodes = self.ready()[kind]
        nodes = nodes[:1] if self.graph.alone[kind] else nodes
        self.done.update(nodes)
        return nodes


@settings(max_examples=400, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 1000))
def test_frontier_is_as_defined(graph, seed):
    random, plain, known = Random(seed), PlainFrontier(graph), set()
    frontier = Frontier(graph)
    while True:
        expected = plain.ready()
        assert frontier.counts == {kind: len(nodes) for kind, nodes in expected.items()}
        assert sorted(frontier.fresh) == sorted(set(expected) - known)
        for kind, nodes in expected.items():
            assert graph.alone[kind] or frontier.ready(kind).tolist() == nodes
        if not expected:
            break
        kind = random.choice(sorted(expected))
        known = set(expected) - {kind}
        frontier = random.choice([frontier, frontier.copy()])
        nodes = frontier.take(kind)
        assert nodes.dtype == np.intp and nodes.tolist() == plain.take(kind)
    assert len(plain.done) == len(graph)


def test_frontier_by_hand():
    frontier = Frontier(TREES)
    assert repr(frontier) == 'Frontier({0: 4})' and frontier.fresh == [EMBED]
    with pytest.raises(KeyError):
        frontier.take(CELL)
    assert frontier.take(EMBED).tolist() == [0, 2, 4, 7] and frontier.counts == {CELL: 3}
    assert frontier.take(CELL).tolist() == [1, 3, 8]
    assert frontier.counts == {CELL: 1, HEAD: 1} and sorted(frontier.fresh) == [CELL, HEAD]
    assert frontier.take(HEAD).tolist() == [9] and frontier.fresh == []
    assert frontier.take(CELL).tolist() == [5] and frontier.take(HEAD).tolist() == [6]
    assert frontier.counts == {}


def test_two_frontiers_of_a_graph_do_not_disturb_each_other():
    first, second = Frontier(TREES), Frontier(TREES)
    first.take(EMBED)[:] = 0  # the caller's to change
    first.take(CELL)
    assert second.counts == {EMBED: 4} and second.take(EMBED).tolist() == [0, 2, 4, 7]
    assert second.counts == {CELL: 3}


# Agenda against its definition


def agenda_by_definition(graph, remaining):
    depth = []
    for row in in_lists(graph):
        depth.append(1 + max((depth[producer] for producer in row), default=-1))
    frontier, found = PlainFrontier(graph), []

    def rank(kind):
        depths = [
            depth[node]
            for node in np.flatnonzero(graph.types == kind)
            if not (remaining and node in frontier.done)
        ]
        return not graph.alone[kind], Fraction(sum(depths), len(depths)), kind

    while frontier.ready():
        found.append(frontier.take(min(frontier.ready(), key=rank)))
    return found


@pytest.mark.parametrize('remaining', [False, True])
@settings(max_examples=300, deadline=None)
@given(graph=graphs())
def test_agenda_is_as_defined(remaining, graph):
    schedule = AgendaScheduler(remaining).schedule(graph)
    assert [batch.tolist() for batch in schedule] == agenda_by_definition(graph, remaining)


@settings(max_examples=300, deadline=None)
@given(graph=graphs())
def test_depth_is_as_defined(graph):
    groups = defaultdict(list)
    for node in range(len(graph)):
        kind = int(graph.types[node])
        groups[graph.depth[node], kind, node if graph.alone[kind] else 0].append(node)
    assert batches('depth', graph) == [groups[key] for key in sorted(groups)]


# The bound against its definition, and against the best that there is


def bound_by_definition(graph):
    rows, most = in_lists(graph), [0] * graph.num_types

    def walk(node, counts):
        counts = list(counts)
        counts[graph.types[node]] += 1
        most[:] = map(max, most, counts)
        for producer in set(rows[node]):
            walk(producer, counts)

    for node in range(len(graph)):
        walk(node, [0] * graph.num_types)
    return sum(
        int((graph.types == kind).sum()) if graph.alone[kind] else most[kind]
        for kind in range(graph.num_types)
    )


def optimum_by_definition(graph):
    """Search through all sets of nodes that can have run, with any batch from any of them."""
    rows, everything = in_lists(graph), frozenset(range(len(graph)))
    reached, steps = {frozenset()}, 0
    while everything not in reached:
        following = set()
        for done in reached:
            plain = PlainFrontier(graph)
            plain.rows, plain.done = rows, done
            for kind, nodes in plain.ready().items():
                largest = 1 if graph.alone[kind] else len(nodes)
                for size in range(1, largest + 1):
                    following.update(done.union(some) for some in combinations(nodes, size))
        reached, steps = following, steps + 1
    return steps


@pytest.mark.parametrize('chunk', [1, 1 << 24])
@settings(max_examples=400, deadline=None)
@given(graph=graphs(max_nodes=14))
def test_lower_bound_is_as_defined(chunk, graph):
    with mock.patch.object(bound, '_CHUNK', chunk):  # one type at a time, or all
        assert lower_bound(graph) == bound_by_definition(graph)


@settings(max_examples=300, deadline=None)
@given(graph=graphs(max_nodes=9, max_types=3))
def test_bound_is_at_most_the_optimum_and_schedules_at_least(graph):
    optimum = optimum_by_definition(graph)
    assert lower_bound(graph) <= optimum
    assert fewest_batches(graph) == (optimum, True)
    for name in NAMES:
        assert len(get_scheduler(name).schedule(graph)) >= optimum


def optimum_of_whole_batches(graph):
    """Search through all that can have run if each batch has all ready nodes of its type."""
    reached, steps = {b'': Run(graph)}, 0
    while all(run.frontier.num_ready for run in reached.values()):
        following = {}
        for run in reached.values():
            for kind in run.frontier.kinds():
                other = run.copy()
                other.advance(kind)
                following[np.sort(other.schedule().order).tobytes()] = other
        reached, steps = following, steps + 1
    return steps


@settings(max_examples=60, deadline=None)
@given(graph=graphs(max_nodes=32, max_types=3), effort=st.sampled_from([0, 300, 1_000, 3_000]))
def test_fewest_batches_is_a_bound_with_any_effort(graph, effort):
    found, optimum = fewest_batches(graph, effort), optimum_of_whole_batches(graph)
    assert lower_bound(graph) <= found.batches <= optimum
    assert found.batches == optimum or not found.proved
    assert fewest_batches(graph) == (optimum, True)


def test_fewest_batches_by_hand():
    # 0 - 1 and 1 - 0: one of the types must run twice.
    crossed = Graph.from_lists([0, 1, 1, 0], [[], [0], [], [2]])
    assert lower_bound(crossed) == 2 and fewest_batches(crossed) == Fewest(3, True)
    assert fewest_batches(crossed, effort=0) == Fewest(2, False)
    assert fewest_batches(Graph.from_lists([], [])) == Fewest(0, True)
    # Paths of 30 nodes, whose types are drawn: the shortest common supersequence of each two.
    random, types, inputs = Random(3), [], []
    for _ in range(2):
        for place in range(30):
            inputs.append([len(types) - 1] if place else [])
            types.append(random.randrange(2))
    graph = Graph.from_lists(types, inputs)
    common = np.zeros((31, 31), int)
    for one, other in np.ndindex(30, 30):
        common[one + 1, other + 1] = max(
            common[one, other + 1],
            common[one + 1, other],
            common[one, other] + (types[one] == types[30 + other]),
        )
    assert fewest_batches(graph) == (60 - common[30, 30], True)


# Sizes


def chain(length, num_types):
    nodes = np.arange(length)
    return Graph(
        (nodes % num_types).astype(np.int32),
        np.maximum(np.arange(-1, length), 0),
        nodes[:-1].astype(np.int32),
        num_types,
        np.zeros(num_types, bool),
    ).validate()


def test_chain_of_10000_levels():
    graph = chain(10_000, 3)
    assert lower_bound(graph) == graph.depth.max() + 1 == 10_000
    for name in NAMES:
        assert len(check_scheduler(get_scheduler(name), graph)) == 10_000


def test_fewest_batches_of_long_chains():
    assert fewest_batches(chain(40_000, 3), effort=1_000).batches == 40_000
    graph = Graph.from_lists(
        [0] * 20 + [1] * 19 + [1] * 20 + [0] * 19,
        [[node - 1] if node % 39 else [] for node in range(78)],
    )
    assert fewest_batches(graph, effort=15_000) == Fewest(59, True)
    with mock.patch.object(optimum, '_CELLS', 1_000):  # too few for a table of both chains
        assert not fewest_batches(graph, effort=15_000).proved


def test_a_million_nodes():
    # Layers of 50,000 and a bit; the nodes of the first read nothing, the others read two nodes.
    n, width, num_types = 1_000_000, 50_021, 10
    nodes = np.arange(width, n)
    inputs = np.stack([nodes - width, nodes - 1 - nodes % width], axis=1)
    graph = Graph(
        types=np.random.RandomState(0).randint(0, num_types, n).astype(np.int32),
        offsets=np.concatenate([np.zeros(width, int), np.arange(n - width + 1) * 2]),
        inputs=inputs.ravel().astype(np.int32),
        num_types=num_types,
        alone=np.zeros(num_types, bool),
    ).validate()
    for name in NAMES:
        check_schedule(get_scheduler(name).schedule(graph), graph)


def test_wide_fans():
    # 5,000 sources, one node that reads them all, 5,000 that read it, one that reads those twice.
    n = 5_000
    inputs = [[]] * n + [list(range(n))] + [[n]] * n + [list(range(n + 1, 2 * n + 1)) * 2]
    graph = Graph.from_lists([0] * n + [1] + [0] * n + [1], inputs)
    for name in ('agenda', 'agenda-remaining', 'depth'):
        assert [len(batch) for batch in batches(name, graph)] == [n, 1, n, 1]


def test_thousands_of_types():
    n = 3_000
    graph = Graph.from_lists(
        list(range(n)) * 2, [[]] * n + [[node] for node in range(n)], alone=range(0, n, 2)
    )
    assert lower_bound(graph) == 2 * n
    for name in NAMES:
        assert len(check_scheduler(get_scheduler(name), graph)) == 2 * n


# The kit itself


class Fixed:
    """Gives the schedules that it was given, in turn."""

    name = 'fixed'

    def __init__(self, *schedules):
        self.schedules = [
            Schedule.from_batches([np.array(batch, int) for batch in schedule])
            for schedule in schedules
        ]

    def schedule(self, graph):
        return self.schedules.pop(0) if len(self.schedules) > 1 else self.schedules[0]


@in_one_test(
    'schedule, message',
    [
        ([[0], [1, 3], []], 'batches without nodes'),
        ([[0], [1, 3]], 'order does not hold each of the 4 nodes once'),
        ([[0], [1, 3], [2], [2]], 'order does not hold each of the 4 nodes once'),
        ([[3], [0], [1], [2]], 'node 3 runs in batch 0 and reads node 0, which runs in batch 1'),
        ([[0, 3], [1], [2]], 'node 3 runs in batch 0 and reads node 0, which runs in batch 0'),
        ([[0, 1], [2], [3]], 'a batch holds nodes of two types'),
        ([[0], [3, 1], [2]], 'nodes do not ascend in a batch'),
        ([[1], [0, 2], [3]], 'a batch holds two nodes of a type whose nodes must run alone'),
    ],
)
def test_check_scheduler_finds(schedule, message):
    check_scheduler(Fixed([[0], [1, 3], [2]]), ALONE)
    with pytest.raises(AssertionError, match=message):
        check_scheduler(Fixed(schedule), ALONE)


def test_check_scheduler_finds_other_faults():
    good, other = [[0], [1, 3], [2]], [[1], [0], [3], [2]]
    for schedules in ((good, other), (good, good, other)):
        with pytest.raises(AssertionError, match='gave two schedules for one graph'):
            check_scheduler(Fixed(*schedules), ALONE)
    with mock.patch('gluon_edbatch.testing.scheduling.lower_bound', lambda graph: 4):
        with pytest.raises(AssertionError, match='3 batches, below the lower bound of 4'):
            check_scheduler(Fixed(good), ALONE)
    with pytest.raises(AssertionError, match='order is int64, not int32'):
        check_schedule(Schedule(np.arange(4), np.arange(5)), ALONE)
    with pytest.raises(AssertionError, match='bounds are int32, not int64'):
        check_schedule(Schedule(np.arange(4, dtype=np.int32), np.arange(5, dtype=np.int32)), ALONE)
    with pytest.raises(AssertionError, match='bounds do not go from 0 to the 4 nodes in order'):
        check_schedule(Schedule(np.arange(4, dtype=np.int32), np.arange(4)), ALONE)

    class Meddling(UnbatchedScheduler):
        def schedule(self, graph):
            graph.types[:] = 0
            return super().schedule(graph)

    with pytest.raises(AssertionError, match='changed types of the graph'):
        check_scheduler(Meddling(), Graph.from_lists([1, 0], [[], [0]]))


def test_schedule_iterates_over_batches():
    schedule = Schedule.from_batches([np.array([2, 3]), np.array([0])])
    assert len(schedule) == 2 and repr(schedule) == 'Schedule(3 nodes in 2 batches)'
    assert [batch.tolist() for batch in schedule] == [[2, 3], [0]]
    assert schedule.order.dtype == np.int32 and schedule.bounds.tolist() == [0, 2, 3]
    assert len(Schedule.from_batches([])) == 0 and list(Schedule.from_batches([])) == []
