"""Of what a number that is read was chosen: where that is as good as equal, rounding may have
decided (see `branching.program_graph.ReadNumber`)."""

from typing import Any

import numpy as np

from ..subgraph.ir import Node
from ..subgraph.trace import INPUT
from .abstract_values import SampleTensor, apply
from .draft import Applied, Made

_OF_THE_LARGEST, _OF_THE_SMALLEST = ('argmax', 'argmax_channel'), 'argmin'
_ORDERED = frozenset(
    [
        f'{prefix}{name}{suffix}'
        for name in ('lesser', 'lesser_equal', 'greater', 'greater_equal')
        for prefix, suffix in (('broadcast_', ''), ('_', ''), ('_', '_scalar'))
    ]
)
_SAME_ELEMENT = frozenset('Reshape reshape Flatten expand_dims squeeze Cast cast _copy'.split())


def rivals_of(builder: Any, made: list[Made], place: int) -> tuple[int, ...]:
    """A tensor of which the two largest elements were compared for a value of a block: the value,
    at `place`, is the place of a tensor's largest or smallest element, or 0 or 1 by a comparison,
    in Python or within a static network. Empty if it was not chosen so, or of integers."""
    for number, each in reversed(list(enumerate(made))):
        if not isinstance(each, Applied) or place not in each.outputs:
            continue
        nodes, places = each.graph.nodes, places_of_inputs(each)
        node = nodes[each.graph.heads[each.outputs.index(place)].node]
        while node.op in _SAME_ELEMENT:
            node = nodes[node.inputs[0].node]
        if node.op in _ORDERED or node.op in _OF_THE_LARGEST or node.op == _OF_THE_SMALLEST:
            found = [builder.within(number, entry) for entry in node.inputs]
            if any([one is None or not _is_rounded(one) for one in found]):
                return ()
            return (_together(node, found).place,)
        if node.name not in places:
            return ()
        place = places[node.name]
    return ()


def _is_rounded(tensor: SampleTensor) -> bool:
    return np.issubdtype(tensor.dtype, np.floating)


def _together(node: Node, found: list[SampleTensor]) -> SampleTensor:
    """What was compared, in one tensor that has the largest elements of it."""
    if node.op == _OF_THE_SMALLEST:
        return apply('negative', found[0])
    if node.op in _OF_THE_LARGEST:
        return found[0]
    sides = [apply('reshape', each, shape=(1, 1)) for each in found]
    if len(sides) < 2:  # the other one is a constant: as many of it as there are samples
        number = node.attrs.number('scalar', 0.0)
        sides.append(apply('clip', sides[0], a_min=number, a_max=number))
    return apply('concat', *sides, dim=1)


def places_of_inputs(applied: Applied) -> dict[str, int]:
    """Values of a block, by their names in a graph that is applied to them."""
    return {INPUT % position: place for position, place in enumerate(applied.inputs)}
