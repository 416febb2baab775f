"""Orders in which groups are contiguous: PQ-trees, and aligned operands on top of them."""

from .alignment import Alignment, NodeBatch, align
from .pq_tree import NodeKind, NotConsecutive, PQTree

__all__ = ['Alignment', 'NodeBatch', 'NodeKind', 'NotConsecutive', 'PQTree', 'align']
