"""Operators that make a gradient of their own, whatever that of their result is.

In eager MXNet such a loss head takes part in a backward pass if the loss is reached from it, and
the gradient that it then gives to its input belongs to its own call alone: some divide it by the
number of their rows. In a batch neither would be so: MXNet hands a batch one gradient of all its
rows, where nothing tells a row that is zero from one that has no part in the loss. So under
autograd their calls, and those that read their results, run as in eager code (see `execute.eager`).
"""

from collections.abc import Sequence

from ..ops import op_of
from .ir import Node, Subgraph


def own_gradients(graph: Subgraph) -> list[str]:
    """Names of such operators in a subgraph, also in the bodies of its loops and conditions."""
    return sorted(_own(graph.nodes))


def _own(nodes: Sequence[Node]) -> set[str]:
    found = {node.op for node in nodes if op_of(node.op).own_gradient}
    return found.union(*[_own(body.nodes) for node in nodes for body in node.bodies])
