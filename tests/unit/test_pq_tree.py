"""PQ-trees against all orders of small universes, and what reductions cost."""

import inspect
import itertools
import math
import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluon_edbatch.subgraph.gates import NodeKind, PQTree, pq_tree


def frontiers(view):
    """All orders that a subtree stands for."""
    if view.kind is NodeKind.LEAF:
        return {(view.node.element,)}
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
    return len(view.elements()) == 1 or all(
        len(part.children) >= least[part.kind] for part in view.walk()
    )


class AllOrders:
    """What a PQ-tree stands for, as a list of orders."""

    def __init__(self, size):
        self.orders = np.array(list(itertools.permutations(range(size))))

    def with_consecutive(self, elements):
        """The orders that stay."""
        places = np.argsort(self.orders, axis=1)[:, elements]
        return self.orders[np.ptp(places, axis=1) == len(elements) - 1]


def check_sequence(size, sets):
    """Reduce by one set after the other, and compare with all orders."""
    tree, expected = PQTree(range(size)), AllOrders(size)
    for elements in sets:
        left = expected.with_consecutive(elements)
        assert tree.consecutive(elements) == (len(left) == len(expected.orders))
        before = str(tree)
        assert tree.reduce(elements) == (len(left) > 0), (before, elements)
        if len(left):
            expected.orders = left
            assert tree.consecutive(elements)
            assert sorted(tree.subtree(elements).elements()) == sorted(elements)
        else:
            assert str(tree) == before
        assert is_proper(tree.subtree())
        assert count(tree.subtree()) == len(expected.orders), (before, elements, str(tree))
    assert frontiers(tree.subtree()) == set(map(tuple, expected.orders)), (sets, str(tree))


@pytest.mark.parametrize('size', range(1, 8))
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


@pytest.mark.parametrize('name', TEMPLATES)
def test_templates(name):
    before, elements, result = TEMPLATES[name]
    tree = PQTree('abcdef')
    assert all(map(tree.reduce, before))
    used = [template.name for template, _, _ in tree._match(elements)]
    assert name in used
    assert tree.reduce(elements)
    assert frontiers(tree.subtree()) == frontiers(parse(result))


class parse:
    """A subtree as its text says."""

    def __init__(self, text):
        words = text.split() if isinstance(text, str) else text
        word = words.pop(0)
        self.kind = {'{': NodeKind.P, '[': NodeKind.Q}.get(word, NodeKind.LEAF)
        self.node = type('Leaf', (), {'element': word})
        self.children = []
        while self.kind is not NodeKind.LEAF and words[0] not in '}]':
            self.children.append(parse(words))
        if self.kind is not NodeKind.LEAF:
            words.pop(0)


def test_every_template_name_is_covered():
    assert set(TEMPLATES) == {template.name for template in pq_tree.Template}


@pytest.mark.parametrize('seed', range(40))
def test_intervals_of_a_hidden_order_never_fail(seed):
    draw = random.Random(seed)
    for size in (10, 10, 10, 60):
        hidden = draw.sample(range(size), size)
        tree = PQTree(range(size))
        for _ in range(2 * size):
            begin, end = sorted(draw.sample(range(size + 1), 2))
            assert tree.reduce(draw.sample(hidden[begin:end], end - begin))
        for begin in range(size - 1):
            assert tree.reduce(hidden[begin : begin + 2])
        assert tree.frontier() in (hidden, hidden[::-1])


# --- cost, in lines of Python executed -----------------------------------------------------------


def lines_executed(call):
    """How many lines of the module run, each pass of a loop counted."""
    lines = 0

    def trace(frame, event, _argument):
        nonlocal lines
        if frame.f_code.co_filename != pq_tree.__file__:
            return None
        lines += event == 'line'
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(previous)
    return lines


def one_p_node(size):
    """{ 0 1 2 ... }"""
    return PQTree(range(size))


def one_q_node(size):
    """[ 0 1 2 ... ]"""
    tree = PQTree(range(size))
    for first in range(size - 1):
        assert tree.reduce([first, first + 1])
    return tree


def q_node_of_pairs(size):
    """[ { 0 1 } { 2 3 } ... ]"""
    tree = PQTree(range(size))
    for first in range(0, size - 3, 2):
        assert tree.reduce(range(first, first + 4))
    return tree


def nested(size):
    """{ 0 { 1 { 2 ... } } }"""
    tree = PQTree(range(size))
    for first in range(size - 1):
        assert tree.reduce(range(first, size))
    return tree


@pytest.mark.parametrize(
    'make, elements',
    [
        (one_p_node, [3, 4, 9]),
        (one_q_node, [20, 21, 22]),
        (one_q_node, [20, 40]),
        (one_q_node, [0, 1, 2]),
        (q_node_of_pairs, [10, 12, 13]),
        (q_node_of_pairs, [10, 12, 13, 15]),
        (q_node_of_pairs, [1, 2, 3]),
        (nested, [0]),
    ],
)
def test_cost_does_not_depend_on_the_rest_of_the_tree(make, elements):
    small, large = make(64), make(256)
    assert lines_executed(lambda: small.reduce(elements)) == lines_executed(
        lambda: large.reduce(elements)
    )


def test_cost_is_linear_in_the_size_of_the_sets():
    def cost(size):
        draw = random.Random(size)
        hidden = draw.sample(range(size), size)
        sets = [
            hidden[begin:end]
            for begin, end in (sorted(draw.sample(range(size + 1), 2)) for _ in range(20))
        ]
        tree = PQTree(range(size))
        return lines_executed(lambda: list(map(tree.reduce, sets))) / sum(map(len, sets))

    costs = [cost(size) for size in (100, 400, 1600)]
    assert max(costs) < 1.5 * min(costs), costs


def test_deep_trees_need_no_deep_recursion():
    tree, limit = nested(300), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        assert sorted(tree.frontier()) == list(range(300))
        assert str(tree).count('{') == 299
        assert tree.reduce(range(0, 300, 299))
    finally:
        sys.setrecursionlimit(limit)


# --- queries and errors --------------------------------------------------------------------------


def test_universe_of_any_hashables_is_kept_in_order():
    assert PQTree([('x', 1), 'y', 3]).frontier() == [('x', 1), 'y', 3]
    assert PQTree(['only']).frontier() == ['only']
    assert PQTree([]).frontier() == []


def test_an_element_named_twice_counts_once():
    tree = PQTree('abc')
    assert tree.reduce('aab')
    assert tree.consecutive('ab') and not tree.consecutive('bc')


def test_no_elements_are_consecutive():
    tree = PQTree('abc')
    assert tree.reduce('') and tree.consecutive('')


def test_subtree_inside_a_q_node_belongs_to_it():
    tree = PQTree('abcdefg')
    for pair in ('ab', 'bc', 'cd', 'de', 'ef'):
        tree.reduce(pair)
    inner, outer, end = tree.subtree('bcd'), tree.subtree('abcdef'), tree.subtree('ef')
    assert inner.node is outer.node is end.node
    assert inner.kind is NodeKind.Q
    for view in (inner, end):
        assert ''.join(view.elements()) in ''.join(tree.frontier())


@pytest.mark.parametrize('sets, turned', [(('ab', 'bc'), 'abc'), (('ab',), 'ab')])
def test_reverse_turns_one_node_only(sets, turned):
    tree = PQTree('abcd')
    for elements in sets:
        tree.reduce(elements)
    before, part = tree.frontier(), tree.subtree(turned).elements()
    tree.subtree(turned).reverse()
    assert tree.subtree(turned).elements() == part[::-1]
    assert [e for e in tree.frontier() if e not in turned] == [e for e in before if e not in turned]


def test_errors_say_what_is_wrong():
    tree = PQTree('abc')
    with pytest.raises(ValueError, match="'z' is not in the universe"):
        tree.reduce('az')
    with pytest.raises(ValueError, match='consecutive in every'):
        tree.subtree('ab')
    with pytest.raises(ValueError, match='one or more elements'):
        tree.subtree('')
