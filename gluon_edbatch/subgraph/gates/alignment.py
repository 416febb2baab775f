"""An order of buffers in which batches read and write slices instead of gathering.

A batch runs one operator for several nodes, and each node has a result and operands that live in
buffers. The batch can write its results as one slice if they are contiguous; it can read its
k-th operands as one slice if these are contiguous *and* in the same order as the results. This
is the memory layout of ED-Batch (Chen et al., 2023 [1]_); it differs in these points:

- operands that cannot be slices together with more valuable ones are dropped one by one, rather
  than whole batches;
- what the order achieves is found by looking at it, whatever the tree said.

References
----------
.. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
   learned finite state machines. https://arxiv.org/abs/2302.03851
"""

from collections import deque
from enum import Enum
from typing import (
    Any,
    Deque,
    Dict,
    FrozenSet,
    Hashable,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from .pq_tree import NodeKind, PQTree, Subtree


class NodeBatch(NamedTuple):
    """One operator for several nodes.

    Attributes
    ----------
    results : sequence of hashable
        The buffer of each node's result.
    operands : sequence of (sequence of hashable)
        For each position of the operator, the operand of each node; not all need be buffers.
    values : sequence of float, optional
        What it is worth, for each position, that the operands are a slice: for instance the bytes
        that need not be gathered. By default all are worth the same.
    """

    results: Sequence[Hashable]
    operands: Sequence[Sequence[Hashable]]
    values: Optional[Sequence[float]] = None


class OperandRead(Enum):
    """How a batch gets its operands at one position."""

    SLICE = 'slice'  # contiguous, in the order of the results
    BROADCAST = 'broadcast'  # the same for all nodes
    GATHER = 'gather'


class Alignment(NamedTuple):
    """Buffers in memory.

    Attributes
    ----------
    order : list of hashable
        All buffers as they lie in memory.
    members : list of (list of int)
        For each batch, its nodes in the order in which their results lie in memory.
    reads : list of (list of OperandRead)
        For each batch, how it gets the operands at each position.
    """

    order: List[Hashable]
    members: List[List[int]]
    reads: List[List[OperandRead]]


class _Link(NamedTuple):
    """Two lists of buffers that are to be contiguous, and in the same order."""

    results: Sequence[int]
    operands: Sequence[int]


def align(buffers: Iterable[Hashable], batches: Sequence[NodeBatch]) -> Alignment:
    """Find an order in which the results of each batch, and the operands, are slices.

    Where not all can be, operands give way to more valuable ones.

    Parameters
    ----------
    buffers : iterable of hashable
        What has a place in memory.
    batches : sequence of NodeBatch

    Returns
    -------
    Alignment

    Raises
    ------
    ValueError
        If a batch's results are not distinct buffers, or not as many as its operands, or if the
        batches overlap so that their results cannot all be contiguous.
    """
    buffers = list(dict.fromkeys(buffers))
    number = {buffer: index for index, buffer in enumerate(buffers)}
    for batch in batches:
        _check(batch, number)
    results = [[number[buffer] for buffer in batch.results] for batch in batches]
    order = _order(len(buffers), results, [])
    if order is None:
        raise ValueError(
            'the results of the batches overlap so that they cannot all be '
            'contiguous; a buffer is the result of one batch'
        )
    kept: List[_Link] = []
    rest = _links(batches, results, number)
    while rest:
        satisfied, unsatisfied, tried = 0, len(rest) + 1, len(rest)
        while unsatisfied - satisfied > 1:  # bisect for the first that does not fit
            found = _order(len(buffers), results, kept + rest[:tried])
            if found is None:
                unsatisfied = tried
            else:
                satisfied, order = tried, found
            tried = (satisfied + unsatisfied) // 2
        kept, rest = kept + rest[:satisfied], rest[satisfied + 1 :]
    return alignment_of([buffers[index] for index in order], batches)


def alignment_of(order: Sequence[Hashable], batches: Sequence[NodeBatch]) -> Alignment:
    """What an order of the buffers means for the batches.

    Raises
    ------
    ValueError
        If the results of a batch are not contiguous.
    """
    place = {buffer: index for index, buffer in enumerate(order)}
    members, reads = [], []
    for batch in batches:
        nodes = sorted(range(len(batch.results)), key=lambda node: place[batch.results[node]])
        if not _is_slice([batch.results[node] for node in nodes], place):
            raise ValueError(f'the results {list(batch.results)} are not contiguous')
        members.append(nodes)
        reads.append(
            [_read([operands[node] for node in nodes], place) for operands in batch.operands]
        )
    return Alignment(list(order), members, reads)


def _check(batch: NodeBatch, number: Dict[Hashable, int]) -> None:
    if (
        not batch.results
        or len(set(batch.results)) < len(batch.results)
        or not all(buffer in number for buffer in batch.results)
    ):
        raise ValueError(
            f'the results of a batch must be distinct buffers, one or more; '
            f'got {list(batch.results)}'
        )
    for operands in batch.operands:
        if len(operands) != len(batch.results):
            raise ValueError(
                f'a batch of {len(batch.results)} nodes needs as many operands at '
                f'each position, not {len(operands)}'
            )
    if batch.values is not None and len(batch.values) != len(batch.operands):
        raise ValueError(
            f'a batch with operands at {len(batch.operands)} positions needs as '
            f'many values, not {len(batch.values)}'
        )


def _links(batches, results, number) -> List[_Link]:
    """The operands that might be slices, the most valuable first."""
    links = []
    for batch, mine in zip(batches, results):
        for operands, value in zip(batch.operands, batch.values or [1.0] * len(batch.operands)):
            if len(set(operands)) == len(operands) and all(buffer in number for buffer in operands):
                links.append((value, _Link(mine, [number[buffer] for buffer in operands])))
    return [link for _, link in sorted(links, key=lambda pair: -pair[0])]


def _is_slice(buffers: Sequence[Hashable], place: Dict[Hashable, int]) -> bool:
    first = place.get(buffers[0])
    return first is not None and all(
        place.get(buffer) == first + offset for offset, buffer in enumerate(buffers)
    )


def _read(operands: Sequence[Hashable], place: Dict[Hashable, int]) -> OperandRead:
    if _is_slice(operands, place):
        return OperandRead.SLICE
    return OperandRead.BROADCAST if len(set(operands)) == 1 else OperandRead.GATHER


# --- the order -----------------------------------------------------------------------------------


def _order(count: int, results: List[List[int]], links: List[_Link]) -> Optional[List[int]]:
    """An order of 0 ... count - 1 that satisfies all links, or None if there is none.

    First everything is made consecutive (steps A and B of the paper's algorithm). Then what the
    tree says of one list of a link is imposed on the other (C), until both have subtrees of the
    same form; P-nodes have any order, but the same in all lists (E); what remains are directions
    (D, F).
    """
    tree = PQTree(range(count))
    if not all(map(tree.reduce, results + [link.operands for link in links])):
        return None
    users: List[List[int]] = [[] for _ in range(count)]
    for index, link in enumerate(links):
        for element in set(link.results).union(link.operands):
            users[element].append(index)
    if not (
        _propagate(tree, links, users, range(len(links)))
        and _fix_p_nodes(tree, links, users)
        and _turn(tree, links)
    ):
        return None
    return tree.frontier()


def _propagate(
    tree: PQTree, links: List[_Link], users: List[List[int]], changed: Iterable[int]
) -> bool:
    """Make the subtrees of the two lists of each link alike; False if that is impossible."""
    queue: Deque[int] = deque(changed)
    waiting = set(queue)
    while queue:
        index = queue.popleft()
        waiting.discard(index)
        ours, theirs = links[index]
        our_sets, their_sets = _consecutive_sets(tree, ours), _consecutive_sets(tree, theirs)
        for elements, missing in ((ours, their_sets - our_sets), (theirs, our_sets - their_sets)):
            for positions in missing:
                subset = [elements[position] for position in positions]
                if not tree.reduce(subset):
                    return False
                again = {user for element in subset for user in users[element]} - waiting
                waiting |= again
                queue.extend(sorted(again))
    return True


def _consecutive_sets(tree: PQTree, elements: Sequence[int]) -> Set[FrozenSet[int]]:
    """Sets of positions in a consecutive list that generate all its sets that are consecutive."""
    position = {element: index for index, element in enumerate(elements)}
    sets = set()
    for view in tree.subtree(elements).walk():
        parts = [
            frozenset(position[element] for element in child.elements()) for child in view.children
        ]
        if view.kind is NodeKind.P:
            sets.add(frozenset().union(*parts))
        sets.update(one | other for one, other in _neighbours(parts) if view.kind is NodeKind.Q)
    return sets


def _neighbours(items: Sequence) -> Iterable[tuple]:
    return zip(items, items[1:])


def _fix_p_nodes(tree: PQTree, links: List[_Link], users: List[List[int]]) -> bool:
    """Turn P-nodes of three and more children into Q-nodes, in any order.

    A P-node of one list has its like in the other; if these, followed through all links, lead
    back to the first with its children in another order, no order of it is possible. Else one is
    as good as another.
    """
    for link in links:
        while True:
            free = next(
                (
                    view
                    for view in tree.subtree(link.results).walk()
                    if view.kind is NodeKind.P and len(view.children) > 2
                ),
                None,
            )
            if free is None:
                break
            parts = [child.elements() for child in free.children]
            for one, other in _neighbours(parts):
                tree.reduce(one + other)
            touched = {user for part in parts for element in part for user in users[element]}
            if not _propagate(tree, links, users, sorted(touched)):
                return False
    return True


# --- directions ----------------------------------------------------------------------------------


def _turn(tree: PQTree, links: List[_Link]) -> bool:
    """Turn nodes round so that the lists of each link are in the same order.

    Each node of one list's subtree has its like in the other's, in the same direction or the
    other one.
    """
    directions = _Directions()
    for link in links:
        ours, theirs = (_first_children(tree, elements) for elements in link)
        for positions, (view, first) in ours.items():
            other_view, other_first = theirs[positions]
            if not directions.relate(view, other_view, first != other_first):
                return False
    directions.apply()
    return True


def _first_children(
    tree: PQTree, elements: Sequence[int]
) -> Dict[FrozenSet[int], Tuple[Subtree, FrozenSet[int]]]:
    """Inner nodes by the positions below them, with the positions below their first children."""
    position = {element: index for index, element in enumerate(elements)}

    def positions(view: Subtree) -> FrozenSet[int]:
        return frozenset(position[element] for element in view.elements())

    return {
        positions(view): (view, positions(view.children[0]))
        for view in tree.subtree(elements).walk()
        if view.kind is not NodeKind.LEAF
    }


class _Directions:
    """Which nodes are turned round relative to which: disjoint sets with a parity."""

    def __init__(self):
        self._above: Dict[object, Tuple[Any, bool]] = {}  # node: its parent, whether turned
        self._views: Dict[object, Subtree] = {}

    def relate(self, one: Subtree, other: Subtree, turned: bool) -> bool:
        """Note that one must be turned just if the other is not (or is); False if it must not."""
        (root, parity), (other_root, other_parity) = self._find(one), self._find(other)
        if root is other_root:
            return parity ^ other_parity == turned
        self._above[root] = other_root, parity ^ other_parity ^ turned
        return True

    def _find(self, view: Subtree) -> Tuple[Any, bool]:
        node, parity = view.node, False
        self._views.setdefault(node, view)
        while node in self._above:
            node, turned = self._above[node]
            parity ^= turned
        return node, parity

    def apply(self) -> None:
        """Turn the nodes."""
        turned = [view for view in self._views.values() if self._find(view)[1]]
        for view in turned:
            view.reverse()
