"""PQ-trees: all orders of a universe in which given sets are consecutive.

The children of a *P-node* may stand in any order, those of a *Q-node* in the given one or its
reverse. The orders that a tree stands for are its *frontiers*. Reducing a tree by a set leaves
the frontiers in which the set is consecutive, and costs time linear in the set's pertinent
subtree: the smallest part of the tree that has all its elements (Booth and Lueker, 1976 [1]_).

References
----------
.. [1] Booth and Lueker (1976). Testing for the consecutive ones property, interval graphs, and
   graph planarity using PQ-tree algorithms. Journal of Computer and System Sciences 13, 335-379.
"""

from collections import deque
from enum import Enum
from typing import (
    Any,
    Collection,
    Deque,
    Dict,
    Hashable,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
    Union,
)


class NodeKind(Enum):
    """Kinds of nodes."""

    LEAF = 'leaf'
    P = 'P'
    Q = 'Q'


class Template(Enum):
    """What a pertinent node may look like, by the paper's names (figures 4 to 11 there).

    A node is *full* if all its leaves are in the set, *partial* if some are.
    """

    L1 = 'a leaf of the set'
    P1 = 'a P-node, all children full'
    P2 = 'the root, a P-node without partial children'
    P3 = 'another P-node without partial children'
    P4 = 'the root, a P-node with one partial child'
    P5 = 'another P-node with one partial child'
    P6 = 'the root, a P-node with two partial children'
    Q1 = 'a Q-node, all children full'
    Q2 = 'a Q-node whose full children are at one end, at most one partial child beside them'
    Q3 = 'the root, a Q-node with full children in a row, at most one partial child at each end'


_FULL = frozenset({Template.L1, Template.P1, Template.Q1})


class _TreeNode:
    """A node of the tree.

    Children of Q-nodes know their neighbours, in no particular order, and only the endmost two
    are certain to know their parent: else merging a Q-node into another would not take constant
    time. For the others `parent` is what it was when last needed.

    Attributes
    ----------
    children : dict
        Of a P-node: its children as keys.
    ends : list of _TreeNode
        Of a Q-node: its endmost children. Of a partial one: the empty end, then the full one.
    siblings : list of _TreeNode
        Of a child of a Q-node: its one or two neighbours.
    """

    __slots__ = ('kind', 'element', 'parent', 'siblings', 'children', 'ends')

    def __init__(self, kind: NodeKind, element: Hashable = None):
        self.kind = kind
        self.element = element
        self.parent: Union[_TreeNode, Any] = None  # None of the root
        self.siblings: List[_TreeNode] = []
        self.children: Dict[_TreeNode, None] = {}
        self.ends: List[_TreeNode] = []


class _Pertinent:
    """What one reduction knows of a pertinent node.

    Attributes
    ----------
    blocked : bool or None
        Whether its parent is still unknown; None before it was looked at.
    waiting : int
        Pertinent children that have no label yet.
    leaves : int
        Elements of the set among its leaves.
    full, partial : list of _TreeNode
        Its pertinent children by label.
    run : list of _TreeNode
        Of a Q-node: its pertinent children in order, full ones last unless it is the root.
    """

    __slots__ = ('blocked', 'waiting', 'leaves', 'full', 'partial', 'run')

    def __init__(self, leaves: int = 0):
        self.blocked: Optional[bool] = None
        self.waiting = 0
        self.leaves = leaves
        self.full: List[_TreeNode] = []
        self.partial: List[_TreeNode] = []
        self.run: List[_TreeNode] = []


_Step = Tuple[Template, _TreeNode, _Pertinent]


class PQTree:
    """All orders of a universe, restricted by `reduce`.

    Parameters
    ----------
    universe : iterable of hashable
        The elements, each once.

    Examples
    --------
    >>> tree = PQTree('abcd')
    >>> tree.reduce('bd') and tree.reduce('ad')
    True
    >>> tree.reduce('cd')
    False
    >>> print(tree)
    { c [ b d a ] }
    """

    def __init__(self, universe: Iterable[Hashable]):
        self._leaves = {element: _TreeNode(NodeKind.LEAF, element) for element in universe}
        self._root = _p_node(self._leaves.values())

    def reduce(self, elements: Iterable[Hashable]) -> bool:
        """Keep the frontiers in which `elements` are consecutive.

        Parameters
        ----------
        elements : iterable of hashable
            Some of the universe.

        Returns
        -------
        bool
            False if there is no such frontier; the tree is unchanged then.

        Raises
        ------
        ValueError
            If an element is not in the universe.
        """
        steps = self._match(elements)
        if steps is None:
            return False
        moved: Dict[_TreeNode, _TreeNode] = {}
        for template, node, found in steps:
            if template not in _FULL:
                partial = [moved.get(child, child) for child in found.partial]
                moved[node] = _APPLY[template](self, node, found, partial)
        return True

    def consecutive(self, elements: Iterable[Hashable]) -> bool:
        """Whether `elements` are consecutive in every frontier."""
        steps = self._match(elements)
        return steps is not None and (not steps or _is_consecutive(*steps[-1]))

    def frontier(self) -> List[Any]:
        """One of the orders; without a reduction or reversal in between it is the same."""
        return self.subtree().elements()

    def subtree(self, elements: Optional[Iterable[Hashable]] = None) -> 'Subtree':
        """The part of the tree that has just these leaves; by default all.

        Raises
        ------
        ValueError
            If the elements are none, or not consecutive in every frontier.
        """
        if elements is None:
            return Subtree(self._root)
        steps = self._match(elements)
        if not steps or not _is_consecutive(*steps[-1]):
            raise ValueError(
                'a subtree needs one or more elements that are consecutive in every '
                'frontier; reduce the tree by them first'
            )
        template, node, found = steps[-1]
        return Subtree(node) if template in _FULL else Subtree(*_owner(found.run))

    def __str__(self) -> str:
        return str(self.subtree())

    # --- which templates match -------------------------------------------------------------------

    def _match(self, elements: Iterable[Hashable]) -> Optional[List[_Step]]:
        """The template of each pertinent node, children first, the pertinent root last.

        Nothing in the tree is changed, so that failure needs no undoing.
        """
        try:
            leaves = [self._leaves[element] for element in dict.fromkeys(elements)]
        except KeyError as error:
            raise ValueError(f'{error} is not in the universe of the tree') from None
        pertinent = self._bubble(leaves)
        if pertinent is None:
            return None
        steps: List[_Step] = []
        queue = deque(leaves)
        while queue:
            node = queue.popleft()
            found = pertinent[node]
            is_root = found.leaves == len(leaves)
            template = _template(node, found, is_root)
            if template is None:
                return None
            steps.append((template, node, found))
            if is_root:
                break
            above = pertinent[node.parent]
            (above.full if template in _FULL else above.partial).append(node)
            above.leaves += found.leaves
            above.waiting -= 1
            if not above.waiting:
                queue.append(node.parent)
        return steps

    def _bubble(self, leaves: List[_TreeNode]) -> Optional[Dict[_TreeNode, _Pertinent]]:
        """Find the pertinent nodes, and let each know its parent (BUBBLE in the paper).

        A child inside a Q-node is blocked until a neighbour knows the parent. If one block
        remains at the end, its nodes are children of the pertinent root, and a pseudo-node, which
        is not linked into the tree, stands for it.

        Returns
        -------
        dict or None
            None if the set cannot be made consecutive, as far as is seen without the templates.
        """
        pertinent = {leaf: _Pertinent(1) for leaf in leaves}
        queue = deque(leaves)
        blocks, blocked, at_top = 0, [], 0
        while len(queue) + blocks + at_top > 1:
            if not queue:
                return None
            node = queue.popleft()
            found = pertinent[node]
            known = [sibling for sibling in node.siblings if sibling in pertinent]
            waiting = [sibling for sibling in known if pertinent[sibling].blocked]
            unblocked = [s for s in known if pertinent[s].blocked is False]
            if unblocked:
                node.parent = unblocked[0].parent
            found.blocked = not unblocked and len(node.siblings) == 2
            if found.blocked:
                blocks += 1 - len(waiting)
                blocked.append(node)
                continue
            freed = _unblock(node, waiting, pertinent)
            blocks -= len(waiting)
            if node.parent is None:
                at_top = 1
                continue
            if node.parent not in pertinent:
                pertinent[node.parent] = _Pertinent()
                queue.append(node.parent)
            pertinent[node.parent].waiting += 1 + freed
        if blocks:
            pseudo = _TreeNode(NodeKind.Q)
            block = [node for node in blocked if pertinent[node].blocked]
            for node in block:
                node.parent = pseudo
            pertinent[pseudo] = _Pertinent()
            pertinent[pseudo].waiting = len(block)
        return pertinent

    # --- the templates, applied: each returns the node that now stands in the place of `node` ----

    def _p2(self, node: _TreeNode, found: _Pertinent, _partial: List[_TreeNode]) -> _TreeNode:
        """The full children become one child."""
        full = _take(node, found.full)
        if full is not None:
            _adopt(node, full)
        return node

    def _p3(self, node: _TreeNode, found: _Pertinent, _partial: List[_TreeNode]) -> _TreeNode:
        """A Q-node of two: the empty children, and the full ones."""
        partial = _TreeNode(NodeKind.Q)
        full = _take(node, found.full)
        self._replace(node, partial)
        _extend(partial, _rest(node), full)
        return partial

    def _p4(self, node: _TreeNode, found: _Pertinent, partial: List[_TreeNode]) -> _TreeNode:
        """The full children go to the full end of the partial one."""
        _extend(partial[0], None, _take(node, found.full))
        return self._without_only_child(node)

    def _p5(self, node: _TreeNode, found: _Pertinent, partial: List[_TreeNode]) -> _TreeNode:
        """The partial child takes the place of the node, which goes to its empty end."""
        full = _take(node, found.full)
        del node.children[partial[0]]
        self._replace(node, partial[0])
        _extend(partial[0], _rest(node), full)
        return partial[0]

    def _p6(self, node: _TreeNode, found: _Pertinent, partial: List[_TreeNode]) -> _TreeNode:
        """The partial children become one, their full ends and the full children inside."""
        first, second = partial
        _extend(first, None, _take(node, found.full))
        del node.children[second]
        _link(first.ends[1], second.ends[1])
        first.ends[1] = second.ends[0]
        first.ends[1].parent = first
        return self._without_only_child(node)

    def _q2(self, node: _TreeNode, found: _Pertinent, partial: List[_TreeNode]) -> _TreeNode:
        """The partial child is merged into the node, whose full end becomes the second."""
        full_end = found.run[-1]
        if partial:
            full_side = found.run[1] if len(found.run) > 1 else None
            full_end = full_end if full_side is not None else partial[0].ends[1]
            _merge(node, partial[0], full_side)
        if node.ends[0] is full_end:
            node.ends.reverse()
        return node

    def _q3(self, node: _TreeNode, found: _Pertinent, partial: List[_TreeNode]) -> _TreeNode:
        """The partial children are merged into the node."""
        place = dict(zip(found.partial, partial))
        run = [place.get(child, child) for child in found.run]
        second_side = run[-2]
        if run[0] in partial:
            if len(run) == 2:  # what is beside the second one, once the first is merged
                second_side = run[0].ends[1]
            _merge(node, run[0], run[1])
        if run[-1] in partial:
            _merge(node, run[-1], second_side)
        return node

    def _replace(self, old: _TreeNode, new: _TreeNode) -> None:
        """Put `new` where `old` is."""
        new.parent, new.siblings = old.parent, old.siblings
        old.siblings = []
        for sibling in new.siblings:
            sibling.siblings[sibling.siblings.index(old)] = new
        parent = new.parent
        if len(new.siblings) == 2:
            return  # inside a Q-node: nothing else refers to it
        if parent is None:
            self._root = new
        elif parent.kind is NodeKind.P:
            del parent.children[old]
            parent.children[new] = None
        else:
            parent.ends[parent.ends.index(old)] = new

    def _without_only_child(self, node: _TreeNode) -> _TreeNode:
        """A P-node, or in its place its child if there is only one."""
        if len(node.children) > 1:
            return node
        child = _rest(node)
        self._replace(node, child)
        return child


_APPLY = {
    Template.P2: PQTree._p2,
    Template.P3: PQTree._p3,
    Template.P4: PQTree._p4,
    Template.P5: PQTree._p5,
    Template.P6: PQTree._p6,
    Template.Q2: PQTree._q2,
    Template.Q3: PQTree._q3,
}


# --- matching ------------------------------------------------------------------------------------


def _unblock(
    node: _TreeNode, waiting: List[_TreeNode], pertinent: Dict[_TreeNode, _Pertinent]
) -> int:
    """Tell the parent of `node` to the blocked siblings in a row beside it; their number."""
    freed = 0
    for sibling in waiting:
        before = node
        while sibling is not None and sibling in pertinent and pertinent[sibling].blocked:
            pertinent[sibling].blocked = False
            sibling.parent = node.parent
            freed += 1
            before, sibling = sibling, _beyond(sibling, before)
    return freed


def _template(node: _TreeNode, found: _Pertinent, is_root: bool) -> Optional[Template]:
    """The template that a node matches."""
    if node.kind is NodeKind.LEAF:
        return Template.L1
    if node.kind is NodeKind.Q:
        return _template_q(node, found, is_root)
    if len(found.full) == len(node.children):
        return Template.P1
    matching = (Template.P2, Template.P4, Template.P6) if is_root else (Template.P3, Template.P5)
    return matching[len(found.partial)] if len(found.partial) < len(matching) else None


def _template_q(node: _TreeNode, found: _Pertinent, is_root: bool) -> Optional[Template]:
    run, partial = _run(found), set(found.partial)
    if run is None or not partial.isdisjoint(run[1:-1]):
        return None
    if not partial and node.ends and set(node.ends) <= {run[0], run[-1]}:
        return Template.Q1
    found.run = run
    if is_root:
        return Template.Q3
    if run[-1] not in node.ends or not partial.isdisjoint(run[1:]):
        run.reverse()
    return Template.Q2 if run[-1] in node.ends and partial.isdisjoint(run[1:]) else None


def _run(found: _Pertinent) -> Optional[List[_TreeNode]]:
    """The pertinent children of a Q-node in order, or None if they are not in a row."""
    pertinent = set(found.full + found.partial)
    start = (found.full or found.partial)[0]
    run: Deque[_TreeNode] = deque([start])
    for sibling, extend in zip(start.siblings, (run.append, run.appendleft)):
        before = start
        while sibling is not None and sibling in pertinent:
            extend(sibling)
            before, sibling = sibling, _beyond(sibling, before)
    return list(run) if len(run) == len(pertinent) else None


def _is_consecutive(template: Template, _node: _TreeNode, found: _Pertinent) -> bool:
    """Whether all leaves of the set, and no others, are below the root's full children."""
    return template in _FULL or (template is Template.Q3 and not found.partial)


def _owner(run: List[_TreeNode]) -> Tuple[_TreeNode, List[_TreeNode]]:
    """The Q-node of a row of children, and the row in the direction of the Q-node."""
    end = run[0]
    before = run[1]
    while len(end.siblings) == 2:
        before, end = end, _beyond(end, before)
    return end.parent, run if end is end.parent.ends[0] else run[::-1]


# --- links ---------------------------------------------------------------------------------------


def _beyond(node: _TreeNode, before: Optional[_TreeNode]) -> Union[_TreeNode, Any]:
    """The sibling on the other side than `before`; None at an end."""
    return next((sibling for sibling in node.siblings if sibling is not before), None)


def _link(one: _TreeNode, other: _TreeNode) -> None:
    one.siblings.append(other)
    other.siblings.append(one)


def _p_node(children: Iterable[_TreeNode]) -> _TreeNode:
    node = _TreeNode(NodeKind.P)
    for child in children:
        _adopt(node, child)
    return node


def _adopt(parent: _TreeNode, child: _TreeNode) -> None:
    """Make `child` a child of a P-node."""
    parent.children[child] = None
    child.parent = parent


def _take(node: _TreeNode, children: List[_TreeNode]) -> Optional[_TreeNode]:
    """Take children out of a P-node: none, the only one, or a P-node of them."""
    for child in children:
        del node.children[child]
    return _p_node(children) if len(children) > 1 else children[0] if children else None


def _rest(node: _TreeNode) -> Union[_TreeNode, Any]:
    """What is left of a P-node: None, its only child, or itself."""
    return node if len(node.children) > 1 else next(iter(node.children), None)


def _extend(node: _TreeNode, empty: Optional[_TreeNode], full: Optional[_TreeNode]) -> None:
    """Put children at the empty and at the full end of a partial Q-node."""
    for side, child in enumerate((empty, full)):
        if child is not None:
            child.parent = node
            if len(node.ends) == 2:
                _link(node.ends[side], child)
                node.ends[side] = child
            else:
                node.ends.append(child)
                if len(node.ends) == 2:
                    _link(*node.ends)


def _merge(node: _TreeNode, partial: _TreeNode, full_side: Optional[_TreeNode]) -> None:
    """Put the children of a partial Q-node in its place in another.

    Parameters
    ----------
    node : _TreeNode
        The other.
    partial : _TreeNode
        Its child.
    full_side : _TreeNode or None
        The neighbour towards which the full end belongs; None if that is the end of `node`.
    """
    empty_side = next((s for s in partial.siblings if s is not full_side), None)
    for end, neighbour in zip(partial.ends, (empty_side, full_side)):
        if neighbour is None:
            node.ends[node.ends.index(partial)] = end
            end.parent = node
        else:
            neighbour.siblings[neighbour.siblings.index(partial)] = end
            end.siblings.append(neighbour)


class Subtree:
    """A view of a node, or of neighbouring children of a Q-node; valid until the next reduction.

    Attributes
    ----------
    node : object
        The same for views of the same node and of children of the same Q-node.
    kind : NodeKind
    """

    def __init__(self, node: _TreeNode, run: Optional[List[_TreeNode]] = None):
        self.node = node
        self.kind = node.kind
        self._run = run

    @property
    def children(self) -> List['Subtree']:
        """In the order in which they are in the frontier."""
        return [Subtree(child) for child in self._children()]

    def _children(self) -> Collection[_TreeNode]:
        return self._run if self._run is not None else _children(self.node)

    def elements(self) -> List[Any]:
        """Leaves in the order of the frontier."""
        return [view.node.element for view in self.walk() if view.kind is NodeKind.LEAF]

    def walk(self) -> Iterator['Subtree']:
        """The tree itself and all below it, parents first, in the order of the frontier."""
        stack = [self]
        while stack:
            view = stack.pop()
            yield view
            stack += reversed(view.children)

    def reverse(self) -> None:
        """Turn round the order of the children of the whole node."""
        self.node.ends.reverse()
        self.node.children = dict.fromkeys(reversed(list(self.node.children)))

    def __str__(self) -> str:
        """P-nodes in braces, Q-nodes in brackets."""
        words: List[str] = []
        stack: List[Union[Subtree, str]] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                words.append(item)
            elif item.kind is NodeKind.LEAF:
                words.append(str(item.node.element))
            else:
                opening, closing = '{}' if item.kind is NodeKind.P else '[]'
                stack += [closing, *reversed(item.children), opening]
        return ' '.join(words)


def _children(node: _TreeNode) -> Collection[_TreeNode]:
    if node.kind is not NodeKind.Q:
        return node.children
    children = [node.ends[0]]
    before: Optional[_TreeNode] = None
    while children[-1] is not node.ends[1]:
        last = children[-1]
        children.append(_beyond(last, before))
        before = last
    return children
