"""PQ-trees: all orders of a universe in which given sets are consecutive.

The children of a *P-node* may stand in any order. The children of a *Q-node* stand in the given
order or its reverse. A *frontier* is one of the orders that a tree stands for. Reducing a tree by
a set keeps the frontiers in which the set is consecutive (Booth and Lueker, 1976 [1]_).

Trees are immutable and small here, a leaf for each gate of a cell. So a reduction sorts children
by the sets of their leaves, which takes quadratic time, instead of the paper's linear bookkeeping.

References
----------
.. [1] Booth and Lueker (1976). Testing for the consecutive ones property, interval graphs, and
   graph planarity using PQ-tree algorithms. Journal of Computer and System Sciences 13, 335-379.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

_Leaves = frozenset[Any]


class NodeKind(Enum):
    """Kinds of nodes in a PQ-tree: leaf, P-node, Q-node."""

    LEAF = 'leaf'
    P = 'P'
    Q = 'Q'


class NotConsecutive(ValueError):
    """No frontier of the tree has the elements consecutive."""


@dataclass(frozen=True, eq=False)
class PQTree:
    """A leaf, or a P-node or Q-node with trees as its children.

    Attributes
    ----------
    kind : NodeKind
    children : tuple of PQTree
        In the order of the frontier.
    leaves : frozenset
        The elements below this node.

    Examples
    --------
    >>> tree = PQTree.of('abcd').reduce('bd').reduce('ad')
    >>> print(tree)
    { c [ a d b ] }
    >>> tree.reduce('cd')
    Traceback (most recent call last):
        ...
    gluon_edbatch.subgraph.pq_tree.NotConsecutive: no order has 'c', 'd' consecutive
    """

    kind: NodeKind
    children: tuple['PQTree', ...]
    leaves: _Leaves

    @classmethod
    def of(cls, universe: Iterable[Any]) -> 'PQTree':
        """Return the tree of all orders of the elements, each of which is named once."""
        sets = [frozenset([element]) for element in universe]
        return _group([cls(NodeKind.LEAF, (), leaf) for leaf in sets])

    def reduce(self, elements: Iterable[Any]) -> 'PQTree':
        """Keep the frontiers in which some elements of the universe are consecutive.

        Returns
        -------
        PQTree
            This tree itself if the elements are consecutive in all its frontiers.

        Raises
        ------
        NotConsecutive
            If there is no such frontier.
        """
        wanted = frozenset(elements)
        *above, old = self._path(wanted)
        new = _gathered(old, wanted)
        if new is old:
            return self
        for node in reversed(above):
            children = [new if child is old else child for child in node.children]
            old, new = node, _node(node.kind, children)
        return new

    def walk(self) -> Iterator['PQTree']:
        """Yield this tree and all below it, parents first, in the order of the frontier."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.children)

    def frontier(self) -> list[Any]:
        """Return one of the orders that the tree stands for."""
        leaves = (node.leaves for node in self.walk() if node.kind is NodeKind.LEAF)
        return [element for (element,) in leaves]

    def __str__(self) -> str:
        """Return the tree as text: P-nodes in braces, Q-nodes in brackets."""
        if self.kind is NodeKind.LEAF:
            return str(*self.leaves)
        opening, closing = '{}' if self.kind is NodeKind.P else '[]'
        return ' '.join([opening, *map(str, self.children), closing])

    def _path(self, wanted: _Leaves) -> list['PQTree']:
        """Return the nodes from this one down to the lowest that has all wanted leaves."""
        path = [self]
        while True:
            inside = [child for child in path[-1].children if wanted <= child.leaves]
            if not inside:
                return path
            path.append(inside[0])


def _gathered(root: PQTree, wanted: _Leaves) -> PQTree:
    """Make wanted leaves consecutive below the lowest node that has them all.

    Returns the node itself if they are consecutive already.
    """
    children = root.children
    empty, partial, full = _by_label(children, wanted)
    if not empty and not partial:
        return root
    if root.kind is NodeKind.P:
        if len(partial) > 2:
            raise _failure(wanted)
        left, right = [[], [], *(_split(child, wanted) for child in partial)][-2:]
        row = [*left, *_grouped(full), *reversed(right)]
        return _group([*empty, row[0] if len(row) == 1 else _node(NodeKind.Q, row)])
    touched = [place for place, child in enumerate(children) if child not in empty]
    first, last = touched[0], touched[-1]
    if any(child not in full for child in children[first + 1 : last]):
        raise _failure(wanted)
    if not partial:
        return root
    left, right = (_split(children[place], wanted) for place in (first, last))
    row = [*left, *children[first + 1 : last], *reversed(right)]
    return _node(NodeKind.Q, [*children[:first], *row, *children[last + 1 :]])


def _split(node: PQTree, wanted: _Leaves) -> list[PQTree]:
    """Return the children of a Q-node in place of a node: empty ones first, full ones last.

    One child at most may be partial. Its own parts stand between the others.
    """
    empty_end: list[PQTree] = []
    full_end: list[PQTree] = []
    while not node.leaves <= wanted:
        empty, partial, full = _by_label(node.children, wanted)
        if len(partial) > 1:
            raise _failure(wanted)
        if node.kind is NodeKind.P:
            empty, full = _grouped(empty), _grouped(full)
        elif node.children == (*full, *partial, *empty):
            empty, full = empty[::-1], full[::-1]
        elif node.children != (*empty, *partial, *full):
            raise _failure(wanted)
        empty_end, full_end = empty_end + empty, full + full_end
        if not partial:
            return empty_end + full_end
        node = partial[0]
    return [*empty_end, node, *full_end]


def _by_label(nodes: Iterable[PQTree], wanted: _Leaves) -> tuple[list[PQTree], ...]:
    """Return the nodes with none, with some and with all of their leaves wanted.

    The paper calls them empty, partial and full.
    """
    labelled: tuple[list[PQTree], ...] = [], [], []
    for node in nodes:
        label = 2 if node.leaves <= wanted else 0 if node.leaves.isdisjoint(wanted) else 1
        labelled[label].append(node)
    return labelled


def _node(kind: NodeKind, children: Sequence[PQTree]) -> PQTree:
    leaves = frozenset().union(*[child.leaves for child in children])
    return PQTree(kind, tuple(children), leaves)


def _group(nodes: Sequence[PQTree]) -> PQTree:
    """Return a P-node of the nodes, or the only one of them."""
    return nodes[0] if len(nodes) == 1 else _node(NodeKind.P, nodes)


def _grouped(nodes: Sequence[PQTree]) -> list[PQTree]:
    """Return what a Q-node has as children for the nodes: their group, if there are any."""
    return [_group(nodes)] if nodes else []


def _failure(wanted: _Leaves) -> NotConsecutive:
    return NotConsecutive(f'no order has {", ".join(sorted(map(repr, wanted)))} consecutive')
