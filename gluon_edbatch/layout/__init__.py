"""Orders in which groups are contiguous: PQ-trees, and aligned operands on top of them; and the order
of calls within batches."""
from ..compiled import load

load(f'{__name__}.rows')

# pylint: disable=wrong-import-position
from .alignment import Batch, Layout, Read, align
from .pq_tree import Kind, PQTree, Subtree
from .rows import arrange

__all__ = ['Batch', 'Kind', 'Layout', 'PQTree', 'Read', 'Subtree', 'align', 'arrange']
