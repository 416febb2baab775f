"""What the package knows of MXNet's operators: one entry for each (`table`), read by all stages.

``axis_rules`` say what operators make of an axis along which calls lie, or which is padded,
``whole`` applies them with an axis more, and ``native`` has the rules for native programs, whose
vocabulary is in ``instructions``.
"""

from . import table  # noqa: F401  (makes the entries)
from .registry import OPS, Arithmetic, Op, op_of

__all__ = ['OPS', 'Arithmetic', 'Op', 'op_of']
