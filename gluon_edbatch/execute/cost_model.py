"""Which calls run eagerly: decided by shapes and by how many calls there are, never by a clock, so
that a program runs in the same way each time.

A batch copies arguments together. They and the results that users see are in new memory, and under
autograd so are their gradients. For large calls this takes longer than to call an operator once for
each of them. Costs are in bytes: as many as are copied in the time that something takes.
``python -m benchmarks few`` measures both ways.
"""

from ..subgraph.node_type import NodeType
from .executable import executable

WHY = 'to copy their arrays into batches would take longer'
_CALL = 128 << 10  # what Python and MXNet do for a call
_OPERATOR = 16 << 10  # and for each of its operators


def is_faster_eagerly(node_type: NodeType, calls: int, rows: int) -> bool:
    """Whether so many calls of a type, with so many rows together, take less time eagerly; the type
    is one that may run so."""
    known = executable(node_type)
    copied = rows * known.row_bytes
    if copied <= calls * _CALL:  # most often
        return False
    operators = sum(not node.is_variable for node in node_type.graph.subgraph.nodes)
    return copied > (
        calls * (_CALL + _OPERATOR * operators)
        + (calls - 1) * known.parameter_bytes  # which a batch reads once
    )
