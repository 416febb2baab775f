"""Which numbers among the attributes of operators are data, as they vary from call to call."""

from collections import defaultdict
from typing import Dict, Optional, Set, Tuple

from ..ops.registry import op_of
from ..subgraph.spec import ArenaKey, Spec

Text = Tuple[Tuple[str, str], ...]  # attributes
_MOST_CONSTANTS = 8
# What scopes began with, by operator, other attributes and rows: numbers that have a type each.
_constants: Dict[Tuple[str, Text, ArenaKey], Set[Text]] = defaultdict(set)


class Varying:
    """The numbers of the calls of one operator, in one scope, on values of one kind.

    The first remains an attribute, which is as fast as can be; the second shows that they vary,
    unless it is another position of the same array, as of a loop over all of them: a view each.
    So does a first one that is new after some scopes have begun with different ones.
    """

    def __init__(self, op: str, rest: Text, spec: Spec):
        self._known = _constants[op, rest, spec.arena]
        self._is_view = op_of(op).is_view
        self._constants: Set[Text] = set()
        self._array: Optional[int] = None
        self._varies = False

    def varies(self, attrs: Text, array: int) -> bool:
        """Whether the number among these attributes is to be data."""
        if attrs in self._constants:
            return False
        if self._array is None:
            self._varies = attrs not in self._known and len(self._known) >= _MOST_CONSTANTS
        elif not self._is_view or array != self._array:
            self._varies = True
        self._array = array
        if not self._varies:
            self._constants.add(attrs)
            self._known.add(attrs)
        return self._varies
