"""Find operators whose gradient does not depend on the gradient of their result.

In eager MXNet, such a loss head takes part in a backward pass if the loss depends on it. Its
input's gradient belongs to its own call: some heads divide it by their number of rows. In a batch,
MXNet passes one gradient for all rows, in which a zero row looks like a row without a part in the
loss. So under autograd these calls, and calls that read their results, run eagerly (see
`execute.eager`).
"""

from collections.abc import Sequence

from ..ops import op_of
from .ir import Node, Subgraph


def own_gradients(graph: Subgraph) -> list[str]:
    """Return names of such operators in a subgraph, in bodies of its loops and conditions, too."""
    return sorted(_own(graph.nodes))


def _own(nodes: Sequence[Node]) -> set[str]:
    found = {node.op for node in nodes if op_of(node.op).own_gradient}
    return found.union(*[_own(body.nodes) for node in nodes for body in node.bodies])
