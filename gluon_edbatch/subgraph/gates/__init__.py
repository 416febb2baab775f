"""Orders in which groups are contiguous: PQ-trees, and aligned operands on top of them."""

from .alignment import Batch, Layout, Read, align
from .pq_tree import Kind, PQTree, Subtree

__all__ = ['Batch', 'Kind', 'Layout', 'PQTree', 'Read', 'Subtree', 'align']
