"""PQ-trees against all orders of small universes."""

import inspect
import itertools
import math
import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluon_edbatch.subgraph.pq_tree import NodeKind, NotConsecutive, PQTree
from tests.support.cases import in_one_test


def frontiers(view):
    """All orders that a subtree stands for."""
    if view.kind is NodeKind.LEAF:
        return {tuple(view.leaves)}
    parts = [frontiers(child) for child in view.children]
    arrangements = (
        itertools.permutations(parts) if view.kind is NodeKind.P else (parts, parts[::-1])
    )
    return {sum(choice, ()) for arranged in arrangements for choice in itertools.product(*arranged)}


def count(view):
    """The number of orders that a subtree stands for, if none is counted twice."""
    factor = {
        NodeKind.LEAF: lambda children: 1,
        NodeKind.P: lambda children: math.factorial(children),
        NodeKind.Q: lambda children: 2,
    }[view.kind](len(view.children))
    return factor * math.prod(map(count, view.children))


def is_proper(view):
    """Whether no node could be left out or be of the other kind."""
    least = {NodeKind.LEAF: 0, NodeKind.P: 2, NodeKind.Q: 3}
    return len(view.frontier()) == 1 or all(
        len(part.children) >= least[part.kind] for part in view.walk()
    )


class AllOrders:
    """What a PQ-tree stands for, as a list of orders."""

    def __init__(self, size):
        self.orders = np.array(list(itertools.permutations(range(size))))

    def with_consecutive(self, elements):
        """Return the orders in which a set is consecutive."""
        places = np.argsort(self.orders, axis=1)[:, elements]
        return self.orders[np.ptp(places, axis=1) == len(elements) - 1]


def tree_of(universe, sets):
    tree = PQTree.of(universe)
    for elements in sets:
        tree = tree.reduce(elements)
    return tree


def check_sequence(size, sets):
    """Reduce by one set after the other, and compare with all orders."""
    tree, expected = PQTree.of(range(size)), AllOrders(size)
    for elements in sets:
        left = expected.with_consecutive(elements)
        before, text = tree, str(tree)
        if len(left):
            tree = tree.reduce(elements)
            assert (tree is before) == (len(left) == len(expected.orders))
            assert tree.reduce(elements) is tree
            expected.orders = left
        else:
            with pytest.raises(NotConsecutive):
                tree.reduce(elements)
        assert str(before) == text
        assert is_proper(tree)
        assert count(tree) == len(expected.orders), (text, elements, str(tree))
    assert frontiers(tree) == set(map(tuple, expected.orders)), (sets, str(tree))


@in_one_test('size', range(1, 8))
def test_stands_for_the_orders_in_which_the_sets_are_consecutive(size):
    draw = random.Random(size)
    for _ in range(2000 // size):
        check_sequence(
            size,
            [draw.sample(range(size), draw.randint(1, size)) for _ in range(draw.randint(1, 8))],
        )


@given(
    st.integers(1, 6).flatmap(
        lambda size: st.tuples(
            st.just(size),
            st.lists(st.lists(st.integers(0, size - 1), min_size=1, unique=True), max_size=8),
        )
    )
)
def test_any_sequence_of_sets(case):
    check_sequence(*case)


# Sets to reduce by before, the set whose reduction uses the template, and the result.
TEMPLATES = {
    'L1': ((), 'a', '{ a b c d e f }'),
    'P1': (('ab',), 'ab', '{ c d e f { a b } }'),
    'P2': ((), 'ab', '{ c d e f { a b } }'),
    'P3': (('abc',), 'ad', '{ e f [ { b c } a d ] }'),
    'P4': (('abc',), 'adf', '{ e [ { b c } a { d f } ] }'),
    'P5': (('ab', 'abcd'), 'ace', '{ f [ d b a c e ] }'),
    'P6': (('ab', 'cd'), 'ace', '{ f [ b a e c d ] }'),
    'Q1': (('ab', 'bc'), 'abc', '{ d e f [ a b c ] }'),
    'Q2': (('ab', 'bc'), 'cd', '{ e f [ a b c d ] }'),
    'Q3': (('abc', 'cde', 'ab'), 'bcd', '{ f [ a b c d e ] }'),
}


@in_one_test('name', TEMPLATES)
def test_templates(name):
    before, elements, result = TEMPLATES[name]
    tree = tree_of('abcdef', before).reduce(elements)
    assert frontiers(tree) == frontiers(parse(result))


class parse:
    """Parse a subtree from its text."""

    def __init__(self, text):
        words = text.split() if isinstance(text, str) else text
        word = words.pop(0)
        self.kind = {'{': NodeKind.P, '[': NodeKind.Q}.get(word, NodeKind.LEAF)
        self.leaves = {word}
        self.children = []
        while self.kind is not NodeKind.LEAF and words[0] not in '}]':
            self.children.append(parse(words))
        if self.kind is not NodeKind.LEAF:
            words.pop(0)


@in_one_test('seed', range(40))
def test_intervals_of_a_hidden_order_never_fail(seed):
    draw = random.Random(seed)
    for size in (10, 10, 10, 60):
        hidden = draw.sample(range(size), size)
        tree = PQTree.of(range(size))
        for _ in range(2 * size):
            begin, end = sorted(draw.sample(range(size + 1), 2))
            tree = tree.reduce(draw.sample(hidden[begin:end], end - begin))
        for begin in range(size - 1):
            tree = tree.reduce(hidden[begin : begin + 2])
        assert tree.frontier() in (hidden, hidden[::-1])


def test_deep_trees_need_no_deep_recursion():
    tree = tree_of(range(300), [range(first, 300) for first in range(299)])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        assert sorted(tree.frontier()) == list(range(300))
        assert sum(node.kind is NodeKind.P for node in tree.walk()) == 299
        frontier = tree.reduce(range(0, 300, 299)).frontier()
        assert abs(frontier.index(0) - frontier.index(299)) == 1
    finally:
        sys.setrecursionlimit(limit)


# --- queries and errors --------------------------------------------------------------------------


def test_universe_of_any_hashables_is_kept_in_order():
    assert PQTree.of([('x', 1), 'y', 3]).frontier() == [('x', 1), 'y', 3]
    assert PQTree.of(['only']).frontier() == ['only']
    assert PQTree.of([]).frontier() == []


def test_an_element_named_twice_counts_once():
    tree = PQTree.of('abc').reduce('aab')
    assert tree.reduce('ab') is tree and tree.reduce('bc') is not tree


def test_no_elements_are_consecutive():
    tree = PQTree.of('abc')
    assert tree.reduce('') is tree


def test_errors_say_what_is_wrong():
    with pytest.raises(NotConsecutive, match="no order has 'a', 'c' consecutive"):
        tree_of('abc', ('ab', 'bc', 'ac'))
