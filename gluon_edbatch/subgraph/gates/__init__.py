"""Orders in which groups are contiguous: PQ-trees, and aligned operands on top of them."""

from .alignment import Alignment, NodeBatch, OperandRead, align
from .pq_tree import NodeKind, PQTree, Subtree

__all__ = ['NodeBatch', 'NodeKind', 'Alignment', 'PQTree', 'OperandRead', 'Subtree', 'align']
