"""Find operators whose gradient does not depend on the gradient of their result.

In eager MXNet, such a loss head takes part in a backward pass if the loss depends on it. Its
input's gradient belongs to its own call: some heads divide it by their number of rows. In a batch,
MXNet passes one gradient for all rows, in which a zero row looks like a row without a part in the
loss. So under autograd these calls, and calls that read their results, run eagerly (see
`execute.eager`).
"""

from ..ops import op_of
from .ir import Subgraph, operators_of


def own_gradients(graph: Subgraph) -> list[str]:
    """Return names of such operators in a subgraph, in bodies of its loops and conditions, too."""
    return sorted(op for op in operators_of(graph) if op_of(op).own_gradient)
