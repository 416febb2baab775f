"""The interfaces of mxnet-jit-batch and torchfold: calls are noted first and run when applied.

In the order in which data passes them: ``handles`` (a call, and what stands for its results),
``arguments`` (are two calls the same one? and arguments with values in the place of handles),
``operators`` (what is called in the place of an op), ``joined`` (results put together),
``fold`` (notes calls and replays them in a `batching` scope), ``unfold`` (the same at once, for
debugging), ``unroll`` (recurrent cells), ``summary`` (what was noted, as text).
"""

from .fold import Fold
from .unfold import Unfold
from .unroll import fold_unroll

__all__ = ['Fold', 'Unfold', 'fold_unroll']
