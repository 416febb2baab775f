"""Recurrent cells over trees, as ordinary HybridBlocks."""

from .mv_rnn import MVRNNCell
from .tree_gru import TreeGRUCell
from .tree_lstm import ChildSumTreeLSTMCell, NaryTreeLSTMCell

__all__ = ['ChildSumTreeLSTMCell', 'MVRNNCell', 'NaryTreeLSTMCell', 'TreeGRUCell']
