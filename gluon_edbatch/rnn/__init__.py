"""Recurrent cells over trees, as ordinary HybridBlocks."""
from .tree_gru import TreeGRUCell
from .tree_lstm import ChildSumTreeLSTMCell, NaryTreeLSTMCell

__all__ = ['ChildSumTreeLSTMCell', 'NaryTreeLSTMCell', 'TreeGRUCell']
