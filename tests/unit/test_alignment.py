"""Orders of gates in which operators read neighbours."""

import random

from gluon_edbatch.subgraph.ir import Attrs, Entry, Node
from gluon_edbatch.subgraph.passes import horizontal
from gluon_edbatch.subgraph.passes.horizontal import _are_neighbours, _places
from gluon_edbatch.subgraph.pq_tree import PQTree
from tests.support.cases import in_one_test


def are_slices(*lists):
    """Order groups, given as members and lists of operands, and return which lists are slices."""
    groups = [[*members] for members, *_ in lists]
    nodes = {
        member: Node('tanh', member, Attrs(), tuple(Entry(each[index]) for each in operands))
        for members, *operands in lists
        for index, member in enumerate(members)
    }
    places = _places(nodes, groups)
    assert sorted(places) == sorted(nodes)
    columns, found = {}, []
    for number, (members, *operands) in enumerate(lists):
        order = sorted(range(len(members)), key=lambda index: places[members[index]])
        columns.update({members[index]: (number, place) for place, index in enumerate(order)})
        read = [[each[index] for index in order] for each in operands]
        found.append([_are_neighbours(each, columns) for each in read])
    return found


def test_a_case_of_ed_batch():
    assert are_slices(
        ([5, 6, 7, 8, 9],),
        ([14, 18, 19],),
        ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]),
        ([10, 11, 12, 13], [5, 6, 8, 9]),
        ([15, 16, 17], [11, 12, 13], [14, 18, 19]),
    ) == [[], [], [True], [True], [True, True]]


@in_one_test('seed', range(60))
def test_a_hidden_order_is_found(seed):
    """Groups that read intervals of a hidden order, in any order of their members."""
    draw = random.Random(seed)
    size = draw.choice([4, 8, 12, 20])
    hidden, others = draw.sample(range(size), size), draw.sample(range(size, 2 * size), size)
    lists, new = [(sorted(hidden),), (sorted(others),)], 2 * size
    for _ in range(draw.randint(1, 6)):
        begin, end = sorted(draw.sample(range(size + 1), 2))
        read = draw.sample(range(begin, end), end - begin)
        operands = [[order[place] for place in read] for order in (hidden, others)]
        lists.append(([*range(new, new + end - begin)], *operands[: draw.randint(1, 2)]))
        new += end - begin
    assert all(map(all, are_slices(*lists)))


def test_of_operands_in_different_orders_the_first_are_a_slice():
    gates = 'abcdef'
    assert are_slices((gates,), ('xyz', 'abc', 'bca'), ('uvw', 'def')) == [
        [],
        [True, False],
        [True],
    ]


def test_gates_that_are_multiplied_in_pairs():
    """Gates of one product cannot be in one lane, but both operands are slices nonetheless."""
    assert are_slices(('abcd',), ('st', 'ac'), ('uv', 'bd'), ('xy', 'st', 'uv')) == [
        [],
        [True],
        [True],
        [True, True],
    ]


def test_operands_that_repeat_or_are_in_no_group_are_no_slices():
    assert are_slices(('abc',), ('xyz', 'aaa', 'uvw', 'abc')) == [[], [False, False, True]]


def test_sets_of_gates_that_cannot_all_be_neighbours():
    slices = are_slices(('abcd',), ('mn', 'ab'), ('op', 'ac'), ('qr', 'ad'))
    assert slices == [[], [True], [True], [False]]


def test_groups_without_common_gates_have_trees_of_their_own(monkeypatch):
    """The time to compile a block of many equal parts is linear in the parts."""
    sizes, of = [], PQTree.of

    def spied(universe):
        sizes.append(len(universe))
        return of(universe)

    monkeypatch.setattr(horizontal.PQTree, 'of', spied)
    parts = [[[(part, name) for name in gates] for gates in ('abc', 'def')] for part in range(50)]
    lists = [each for read, members in parts for each in ((read,), (members, read))]
    assert are_slices(*lists) == [[], [True]] * 50
    assert set(sizes) == {3} and len(sizes) == 50
