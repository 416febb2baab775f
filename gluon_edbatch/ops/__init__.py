"""What the package knows of MXNet's operators: one entry for each (`table`), read by all stages.

``row_rules`` and ``whole`` have the rules for batching an operator, ``padding_rules`` those for
padded ragged values, ``native`` those for native programs, whose vocabulary is in ``instructions``.
"""

from . import table  # noqa: F401  (makes the entries)
from .registry import OPS, Arithmetic, Op, op_of

__all__ = ['OPS', 'Arithmetic', 'Op', 'op_of']
