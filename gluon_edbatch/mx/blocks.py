"""What of Gluon's blocks is not public."""

from mxnet import gluon


def gives_new_arrays(block: gluon.Block) -> bool:
    """Whether what a block returns is nobody else's, as arguments and parameters are that a block
    may hand on which is not hybridized."""
    return getattr(block, '_active', False) and type(block).forward is gluon.HybridBlock.forward
