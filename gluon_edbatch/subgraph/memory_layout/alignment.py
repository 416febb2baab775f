"""Order buffers so that batches read and write slices instead of gathering.

A batch runs one operator for several nodes, and each node has a result and operands that live in
buffers. The batch can write its results as one slice if they are contiguous. It can read its k-th
operands as one slice if these are contiguous *and* in the same order as the results. This is the
memory layout of ED-Batch (Chen et al., 2023 [1]_); it differs in these points:

- operands that cannot be slices together with more valuable ones are dropped one by one, rather
  than whole batches;
- slices are found in the final order itself, not in the tree.

References
----------
.. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
   learned finite state machines. https://arxiv.org/abs/2302.03851
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional

from .pq_tree import NodeKind, NotConsecutive, PQTree


class NodeBatch(NamedTuple):
    """A batch: one operator for several nodes, with their results and operands."""

    # the buffer of each node's result, one or more; no other batch has the same
    results: Sequence[Any]
    # for each position of the operator, the operand of each node; not all need be buffers
    operands: Sequence[Sequence[Any]]
    # What it is worth, for each position, that the operands are a slice: for instance the bytes
    # that need not be gathered. By default all are worth the same.
    values: Optional[Sequence[float]] = None


class Alignment(NamedTuple):
    """An order of buffers in memory, and what it makes contiguous."""

    order: list[Any]  # all buffers as they lie in memory
    # for each batch, its nodes in the order in which their results lie in memory
    members: list[list[int]]
    # for each batch and position, whether the operands are contiguous in the members' order
    slices: list[list[bool]]


class _Link(NamedTuple):
    """Two lists of buffers that should be contiguous, and in the same order."""

    results: Sequence[Any]
    operands: Sequence[Any]


def align(buffers: Iterable[Any], batches: Sequence[NodeBatch]) -> Alignment:
    """Find an order in which the results of each batch, and the operands, are slices.

    If not all can be slices, the less valuable operands are dropped.

    Parameters
    ----------
    buffers : iterable of hashable
        The buffers to order.
    batches : sequence of NodeBatch

    Returns
    -------
    Alignment

    Raises
    ------
    NotConsecutive
        If the batches overlap so that their results cannot all be contiguous.
    """
    buffers = list(dict.fromkeys(buffers))
    links = _links(batches, set(buffers))
    lists = [batch.results for batch in batches]
    order: list[Any] = []
    for part in _components(buffers, lists + [[*link.results, *link.operands] for link in links]):
        order += _best_order(
            [buffer for buffer in buffers if buffer in part],
            [results for results in lists if results[0] in part],
            [link for link in links if link.results[0] in part],
        )
    place = {buffer: index for index, buffer in enumerate(order)}
    members, slices = [], []
    for batch in batches:
        nodes = sorted(range(len(batch.results)), key=lambda node: place[batch.results[node]])
        members.append(nodes)
        places = [[place.get(operands[node], -1) for node in nodes] for operands in batch.operands]
        slices.append(
            [mine[0] >= 0 and mine == [*range(mine[0], mine[0] + len(mine))] for mine in places]
        )
    return Alignment(order, members, slices)


def _links(batches: Sequence[NodeBatch], buffers: set[Any]) -> list[_Link]:
    """Return the operands that might be slices, the most valuable first."""
    links = []
    for batch in batches:
        for operands, value in zip(batch.operands, batch.values or [1.0] * len(batch.operands)):
            if len(set(operands)) == len(operands) and buffers.issuperset(operands):
                links.append((value, _Link(batch.results, operands)))
    return [link for _, link in sorted(links, key=lambda pair: -pair[0])]


def _components(buffers: Sequence[Any], lists: Iterable[Iterable[Any]]) -> Iterable[set[Any]]:
    """Return the smallest sets of buffers of which each list has all its buffers in one."""
    parts = {buffer: {buffer} for buffer in buffers}
    for group in lists:
        joined = set().union(*[parts[buffer] for buffer in group])
        parts.update(dict.fromkeys(joined, joined))
    return {id(part): part for part in parts.values()}.values()


# --- the order -----------------------------------------------------------------------------------


def _best_order(buffers: list[Any], results: list[Sequence[Any]], links: list[_Link]) -> list[Any]:
    """Return an order of buffers that satisfies as many links as can be, the first ones first."""
    kept: list[_Link] = []
    order = _order(buffers, results, kept)
    while links:
        satisfied, unsatisfied, tried = 0, len(links) + 1, len(links)
        while unsatisfied - satisfied > 1:  # bisect for the first that does not fit
            try:
                order = _order(buffers, results, kept + links[:tried])
                satisfied = tried
            except NotConsecutive:
                unsatisfied = tried
            tried = (satisfied + unsatisfied) // 2
        kept, links = kept + links[:satisfied], links[satisfied + 1 :]
    return order


def _order(buffers: list[Any], results: list[Sequence[Any]], links: list[_Link]) -> list[Any]:
    """Return an order of the buffers that satisfies all links, or raise NotConsecutive.

    First everything is made consecutive (steps A and B of the paper's algorithm). Then what the
    tree says of one list of a link is imposed on the other (C). P-nodes get any order, which is
    the same in all lists (E): if they lead through links back to themselves with their children
    in another order, no order is possible. What remains are directions (D, F).
    """
    tree = PQTree.of(buffers)
    for elements in results + [link.operands for link in links]:
        tree = tree.reduce(elements)
    while True:
        tree = _alike(tree, links)
        nodes = (node for link in links for node in tree.subtree(link.results).walk())
        free = [node for node in nodes if node.kind is NodeKind.P and len(node.children) > 2]
        if not free:
            return tree.frontier(_turned(tree, links))
        for one, other in _neighbours(free[0].children):
            tree = tree.reduce(one.leaves | other.leaves)


def _alike(tree: PQTree, links: list[_Link]) -> PQTree:
    """Make the subtrees of the two lists of each link alike."""
    before = None
    while tree is not before:
        before = tree
        for link in links:
            ours, theirs = (_consecutive_sets(tree, elements) for elements in link)
            for elements, missing in zip(link, (theirs - ours, ours - theirs)):
                for positions in missing:
                    tree = tree.reduce([elements[position] for position in positions])
    return tree


def _consecutive_sets(tree: PQTree, elements: Sequence[Any]) -> set[frozenset[int]]:
    """Return sets of positions in a list that generate all its sets that are consecutive."""
    position = {element: index for index, element in enumerate(elements)}
    sets = []
    for node in tree.subtree(elements).walk():
        if node.kind is NodeKind.P:
            sets.append(node.leaves)
        elif node.kind is NodeKind.Q:
            sets += [one.leaves | other.leaves for one, other in _neighbours(node.children)]
    return {frozenset(position[element] for element in leaves) for leaves in sets}


def _neighbours(items: Sequence) -> Iterable[tuple]:
    return zip(items, items[1:])


# --- directions ----------------------------------------------------------------------------------


def _turned(tree: PQTree, links: list[_Link]) -> set[frozenset[Any]]:
    """Return the nodes to turn round so that the lists of each link are in the same order.

    Each node of one list's subtree has its like in the other's, in the same direction or the
    other one. So nodes are in disjoint sets, and each node knows whether it must be turned if
    the representative of its set is not.
    """
    above: dict[frozenset[Any], tuple[frozenset[Any], bool]] = {}

    def find(node: frozenset[Any]) -> tuple[frozenset[Any], bool]:
        turned = False
        while node in above:
            node, more = above[node]
            turned ^= more
        return node, turned

    for link in links:
        ours, theirs = (_first_children(tree, elements) for elements in link)
        for positions, (node, first) in ours.items():
            other_node, other_first = theirs[positions]
            (root, turned), (other_root, other_turned) = find(node), find(other_node)
            differ = turned ^ other_turned ^ (first != other_first)
            if root != other_root:
                above[root] = other_root, differ
            elif differ:
                raise NotConsecutive('nodes would have to be turned and not turned')
    return {node for node in above if find(node)[1]}


def _first_children(
    tree: PQTree, elements: Sequence[Any]
) -> dict[frozenset[int], tuple[frozenset[Any], frozenset[int]]]:
    """Return inner nodes, and the positions below their first children, by positions below."""
    position = {element: index for index, element in enumerate(elements)}

    def positions(node: PQTree) -> frozenset[int]:
        return frozenset(position[element] for element in node.leaves)

    return {
        positions(node): (node.whole, positions(node.children[0]))
        for node in tree.subtree(elements).walk()
        if node.children
    }
