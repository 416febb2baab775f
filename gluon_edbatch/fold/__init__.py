"""The interfaces of mxnet-jit-batch and torchfold: calls are noted first and run when applied.

In the order in which data passes them: ``handles`` (a call, what stands for its results, and its
arguments), ``targets`` (what is called in the place of an op), ``joined`` (results put together),
``fold`` (notes calls and replays them in a `batching` scope), ``unfold`` (the same at once, for
debugging), ``unroll`` (recurrent cells).
"""

from .fold import Fold
from .unfold import Unfold
from .unroll import fold_unroll

__all__ = ['Fold', 'Unfold', 'fold_unroll']
