"""The interfaces of mxnet-jit-batch and torchfold: note calls first, and run them when applied.

Data passes these modules in order: ``handles`` (a call, its arguments, and handles of its results),
``targets`` (what is called for an op), and ``joined`` (joins results). ``fold`` notes calls and
replays them in a `batching` scope; ``unfold`` runs them eagerly, for debugging. ``unroll`` has
recurrent cells.
"""

from .fold import Fold
from .unfold import Unfold
from .unroll import fold_unroll

__all__ = ['Fold', 'Unfold', 'fold_unroll']
