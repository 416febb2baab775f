"""What is known of MXNet's operators: one entry for each (`table`), from which all stages read.

``row_rules`` and ``whole`` say how an operator is batched, ``padding_rules`` what it makes of
ragged values that are padded, ``native`` what it becomes in a native program, whose vocabulary is
in ``instructions``.
"""

from . import table  # noqa: F401  (makes the entries)
from .registry import OPS, Arithmetic, Op, op_of

__all__ = ['OPS', 'Arithmetic', 'Op', 'op_of']
