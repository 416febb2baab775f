"""Orders of buffers in which batches read slices, against all orders of few buffers."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluon_edbatch.subgraph.memory_layout import NodeBatch, NotConsecutive, PQTree, align
from tests.support.cases import in_one_test


def is_aligned(order, batch, position):
    """Whether results and operands are contiguous and in the same order: the definition."""
    place = {buffer: index for index, buffer in enumerate(order)}
    pairs = sorted(
        (place[result], place.get(operand))
        for result, operand in zip(batch.results, batch.operands[position])
    )
    return None not in (pair[1] for pair in pairs) and all(
        after == (before[0] + 1, before[1] + 1) for before, after in zip(pairs, pairs[1:])
    )


def has_contiguous_results(order, batch):
    places = [order.index(result) for result in batch.results]
    return max(places) - min(places) == len(places) - 1


def laid_out(buffers, batches):
    """Run `align`, and check its result."""
    layout = align(buffers, batches)
    assert sorted(layout.order) == sorted(buffers)
    for batch, members, slices in zip(batches, layout.members, layout.slices):
        begin = layout.order.index(batch.results[members[0]])
        assert [batch.results[node] for node in members] == layout.order[
            begin : begin + len(members)
        ]
        assert slices == [
            is_aligned(layout.order, batch, position) for position in range(len(batch.operands))
        ]
    return layout


def batches_of(*lists):
    """Return batches from lists of results and operands."""
    return [NodeBatch(results, operands) for results, *operands in lists]


def buffers_of(batches):
    return sorted(
        {
            buffer
            for batch in batches
            for buffers in (batch.results, *batch.operands)
            for buffer in buffers
        }
    )


# --- cases known from ED-Batch -------------------------------------------------------------------

SATISFIABLE = batches_of(
    ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]),
    ([10, 11, 12, 13], [5, 6, 8, 9]),
    ([15, 16, 17], [11, 12, 13], [14, 18, 19]),
)
# Batches, and the operands (batch, position) of which one is too many. In the first case 3 lies at
# the end of 3, 4, 6 where 5 is; then 2 lies at the same end of 2, 8, 10, and 1 and 2 in the other
# order than 3 and 5.
ONE_TOO_MANY = {
    'two batches': (
        batches_of(([3, 4, 6], [7, 9, 11], [2, 8, 10]), ([1, 2], [3, 5], [4, 6])),
        [(0, 1), (1, 0)],
    ),
    'one batch': (batches_of(([0, 1, 2], [3, 5, 6], [3, 6, 7])), [(0, 0), (0, 1)]),
    'one batch, written as two': (
        batches_of(([0, 1, 2], [3, 5, 6]), ([0, 1, 2], [3, 6, 7])),
        [(0, 0), (1, 0)],
    ),
}


def test_all_operands_are_slices_where_they_can_be():
    layout = laid_out(range(20), SATISFIABLE)
    assert layout.slices == [[True], [True], [True, True]]


@in_one_test('name', ONE_TOO_MANY)
def test_the_least_valuable_operand_is_dropped(name):
    batches, exclusive = ONE_TOO_MANY[name]
    for least in exclusive:
        valued = [
            batch._replace(
                values=[
                    0.5 if (index, position) == least else 2.0 + position
                    for position in range(len(batch.operands))
                ]
            )
            for index, batch in enumerate(batches)
        ]
        slices = laid_out(buffers_of(batches), valued).slices
        assert [
            (index, position)
            for index, batch in enumerate(batches)
            for position in range(len(batch.operands))
            if not slices[index][position]
        ] == [least]


# --- all orders of few buffers -------------------------------------------------------------------


def best_by_value(buffers, batches):
    """The operands that are slices if each is, unless more valuable ones exclude it."""
    orders = [
        order
        for order in itertools.permutations(buffers)
        if all(has_contiguous_results(order, batch) for batch in batches)
    ]
    valued = sorted(
        (
            (-value, index, position)
            for index, batch in enumerate(batches)
            for position, value in enumerate(batch.values)
        )
    )
    kept = set()
    for _, index, position in valued:
        left = [order for order in orders if is_aligned(order, batches[index], position)]
        if left:
            orders = left
            kept.add((index, position))
    return kept


def check_against_all_orders(buffers, batches):
    layout = laid_out(buffers, batches)
    found = {
        (index, position)
        for index, slices in enumerate(layout.slices)
        for position, is_slice in enumerate(slices)
        if is_slice
    }
    assert found == best_by_value(buffers, batches), batches


def random_batches(draw, size):
    """Batches with disjoint results, and operands of any kind, all of different value."""
    left, batches = draw.sample(range(size), size), []
    while left and len(batches) < 3:
        rows = draw.randint(1, min(4, len(left)))
        results = [left.pop() for _ in range(rows)]
        operands = [draw.sample(range(size), rows) for _ in range(draw.randint(0, 2))]
        batches.append(NodeBatch(results, operands, [draw.random() for _ in operands]))
    return batches


@pytest.mark.parametrize('size, cases', [(2, 50), (3, 100), (4, 300), (5, 300), (6, 150), (7, 20)])
def test_as_many_slices_as_all_orders_allow(size, cases):
    draw = random.Random(size)
    for _ in range(cases):
        check_against_all_orders(range(size), random_batches(draw, size))


@given(st.permutations(range(5)), st.integers(1, 4), st.data())
def test_any_batches(places, rows, data):
    results = [list(places[:rows]), list(places[rows:])]
    batches = []
    for mine in results:
        operands = data.draw(
            st.lists(st.permutations(range(5)).map(lambda p: p[: len(mine)]), max_size=2)
        )
        values = data.draw(st.permutations(range(len(operands))))
        # Values of different batches differ, so that there is one best choice.
        batches.append(NodeBatch(mine, operands, [v + 0.1 * len(batches) for v in values]))
    check_against_all_orders(range(5), batches)


@in_one_test('seed', range(60))
def test_a_hidden_order_is_found(seed):
    """Operands at intervals of a hidden order, which the results follow, are slices all."""
    draw = random.Random(seed)
    size = draw.choice([8, 12, 20, 60])
    hidden, begin, batches = draw.sample(range(size), size), 0, []
    while begin < size:
        rows = draw.randint(1, min(size - begin, size // 3))
        nodes = draw.sample(range(rows), rows)
        starts = [draw.randint(0, size - rows) for _ in range(draw.randint(0, 3))]
        batches.append(
            NodeBatch(
                [hidden[begin + node] for node in nodes],
                [[hidden[start + node] for node in nodes] for start in starts],
            )
        )
        begin += rows + draw.randint(0, 1)
    assert all(map(all, laid_out(range(size), batches).slices))


def test_an_order_that_must_equal_its_own_rotation_is_impossible():
    """The operands of the second batch follow the first's, rotated, through the same results."""
    first, second = NodeBatch('abc', ['def'], [2]), NodeBatch('abc', ['efd'], [1])
    layout = laid_out('abcdef', [first, second])
    assert layout.slices == [[True], [False]]


# --- operands that are no slices -----------------------------------------------------------------


def test_operands_that_are_no_buffers_or_repeat_are_no_slices():
    batch = NodeBatch('abc', ['xxx', 'ddd', 'dde', 'xde', 'def'])
    assert laid_out('abcdef', [batch]).slices == [[False, False, False, False, True]]


def test_one_row_is_a_slice_wherever_it_lies():
    assert laid_out('abcd', [NodeBatch('a', ['c', 'x'])]).slices == [[True, False]]


def test_operands_may_be_the_results():
    assert laid_out('abc', [NodeBatch('abc', ['abc'])]).slices == [[True]]
    assert laid_out('abc', [NodeBatch('abc', ['bca'])]).slices == [[False]]


def test_without_batches_buffers_stay_where_they_are():
    assert align('bca', []).order == ['b', 'c', 'a']


def test_results_of_overlapping_batches_that_cannot_all_be_contiguous():
    batches = [NodeBatch('ab', []), NodeBatch('ac', []), NodeBatch('ad', [])]
    with pytest.raises(NotConsecutive, match="'a', 'd'"):
        align('abcd', batches)


def test_batches_without_common_buffers_have_trees_of_their_own(monkeypatch):
    """The time to compile a block of many equal parts is linear in the parts."""
    sizes, of = [], PQTree.of

    def spied(universe):
        sizes.append(len(universe))
        return of(universe)

    monkeypatch.setattr(PQTree, 'of', spied)
    batches = [
        NodeBatch([(part, name) for name in 'abc'], [[(part, name) for name in 'def']])
        for part in range(50)
    ]
    assert laid_out(buffers_of(batches), batches).slices == [[True]] * 50
    assert set(sizes) == {6}
