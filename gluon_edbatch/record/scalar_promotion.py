"""Scalar promotion: decide which numbers among operators' attributes vary, and so become data."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from ..ops.attrs import Attrs
from ..ops.axis_rules import is_last
from ..ops.numbers import Numbered, position, taken
from ..ops.registry import op_of
from ..subgraph.spec import ArenaKey, Spec, spec_of
from .calls import Form
from .families import packed_operator_call
from .forms import key_of
from .inputs import SCALAR_DTYPE
from .lazy import LazyArray, RaggedArray
from .packed import but_for_lengths, in_one_row, packed_value

Text = tuple[tuple[str, str], ...]  # attributes
_MOST_CONSTANTS = 8
# What scopes began with, by operator, other attributes and rows: numbers that have a type each.
_constants: dict[tuple[str, Text, ArenaKey], set[Text]] = defaultdict(set)


class Varying:
    """Track the numbers in calls of one operator, in one scope, on values of one kind.

    The first number stays an attribute, which is fastest. A second one shows that numbers vary,
    unless it is another position of the same array, as in a loop over positions: each is a view. A
    new first number also shows it, once some scopes began with different ones.
    """

    def __init__(self, op: str, rest: Text, spec: Spec):
        self._known = _constants[op, rest, spec.arena]
        self._is_view = op_of(op).is_view
        self._constants: set[Text] = set()
        self._array: Optional[int] = None
        self._varies = False

    def varies(self, attrs: Text, array: int) -> bool:
        """Return whether the number among these attributes becomes data."""
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


def with_number(
    recording: Any, op: str, attrs: Text, leaves: Sequence[LazyArray]
) -> Optional[tuple[list[LazyArray], Form]]:
    """Return the arguments and form of a call whose varying number, an attribute, becomes an
    argument. None if it does not vary, or if calls would not share a batch then."""
    rule = op_of(op).number
    if rule is None or len(leaves) != 1:
        return None
    (leaf,) = leaves
    spec = leaf._store.spec
    ragged = isinstance(leaf, RaggedArray)
    if ragged and not op_of(op).elementwise:
        return None
    numbered = rule(Attrs(attrs), leaf.shape if ragged else spec.shape, spec.dtype)
    if numbered is None or spec.ctx != recording.ctx:
        return None
    key = op, numbered.rest, key_of(leaf)
    varying = recording.varying.setdefault(key, Varying(op, numbered.rest, spec))
    if not varying.varies(attrs, leaf._id):
        return None
    leaves = [leaf, _numbers_of_rows(recording, numbered, spec.rows)]
    form = recording.forms_by_key.get(key)
    if form is None:
        form = recording.forms_by_key[key] = recording.form_of_numbered(op, numbered, leaves)
    return None if form.node_type.alone else (leaves, form)


def words_of_sentence(
    recording: Any, op: str, attrs: Text, leaves: Sequence[LazyArray]
) -> Optional[LazyArray]:
    """Return some words of a packed sentence: a narrow slice of which the beginning varies, or what
    ``take`` finds at a few positions. Several words are packed themselves. None for other calls."""
    leaf = leaves[0]
    store = leaf._store
    if store.packed != 1 or store.spec.ctx != recording.ctx:
        return None
    numbers: Any = None
    if op == 'slice_axis':
        numbered = position(Attrs(attrs), store.shape, store.spec.dtype)
        key = op, *but_for_lengths([store.token])  # of any width
        varying = recording.varying.setdefault(key, Varying(op, (), store.spec))
        if numbered is None or _is_of_all_lengths(Attrs(attrs)):
            return None
        place = ('begin', str(numbered.number)), *numbered.rest  # counted from the first word
        if not varying.varies(place, leaf._id):
            return None
        numbers = _numbers_of_rows(recording, numbered, 1)
    elif op == 'take' and leaves[1].dtype is np.float32 and len(leaves[1].shape) == 1:
        numbered = taken(Attrs(attrs), store.shape, store.spec.dtype, leaves[1].shape[0])
        numbers = in_one_row(recording, leaves[1])
    if numbers is None or numbered is None or numbered.rest[0] != ('axis', '1'):
        return None
    given = [leaf, numbers]
    call = packed_operator_call(recording, op, numbered.rest, given, numbered=numbered)
    found = None if call is None else call.record(recording, given)
    if found is None or ('width', '1') in numbered.rest:
        return found
    return packed_value(recording, found)


def _is_of_all_lengths(attrs: Attrs) -> bool:
    """Return whether a slice has one type for all lengths: the last word, or all but some."""
    begin, end = attrs.integer('begin', 0), attrs.integer('end', None)
    return is_last(attrs) or (begin >= 0 and (end is None or end < 0))


@np.errstate(over='ignore')  # an infinity, as MXNet's
def _numbers_of_rows(recording: Any, numbered: Numbered, rows: int) -> LazyArray:
    """Return a number as a value, repeated for each row if the operator needs that."""
    rows = rows if numbered.each_row else 1
    if rows == 1 and numbered.dtype == SCALAR_DTYPE:
        return recording.number(numbered.number)
    column = np.full((rows,), numbered.number, numbered.dtype)
    return recording.known_array(spec_of(column.shape, numbered.dtype, recording.ctx), column)
