"""The signature cache: types of calls, remembered from scope to scope.

A block's types are kept while its fingerprint stays the same, those used last. Operators have no
block. The cache also has what is known of calls of different lengths (see `families`), and call
signatures. A scope makes a signature from the block; later scopes find it by the kinds of
arguments.
"""

import threading
import weakref
from typing import Any, NamedTuple, Optional

from mxnet import gluon

from gluon_edbatch_core.errors import EdbError

from ..subgraph.fingerprint import Fingerprint
from .calls import Prefix
from .shared import SharedTypes


class Remembered(NamedTuple):
    """A call signature as later recordings find it."""

    form: Any  # a `Form` of no recording
    summary: Any  # with the rows of its outputs, see `CallLog.form_summaries`
    output_rows: Any
    results: list[tuple]  # of each: `Store.kind`, and spec and shape for users
    by_length: Optional[tuple]  # see `CallLog`


tracing = threading.RLock()  # the name scope of a block serves one thread at a time
operator_types: dict[tuple, Any] = {}
shared_types = SharedTypes()  # of operators on arrays that calls share
# Of each block its fingerprints, the one used last first, each with types.
_block_types: 'weakref.WeakKeyDictionary[gluon.Block, list]' = weakref.WeakKeyDictionary()
_MOST_FINGERPRINTS = 32  # a block may read something else in each scope, as a temperature
_MOST_TYPES = 4096  # of operators: a number that is an attribute may be another in each scope
_operator_kinds: dict[tuple, dict[tuple, Remembered]] = {}
_operator_roots: dict[tuple, Prefix] = {}
_changes_of_padding = 0


class Refusal(NamedTuple):
    """An error that making a type raised, kept in the type's place: another try would fail, too."""

    error: type[EdbError]
    message: str


class Maker(NamedTuple):
    """A block or an operator, for which types of calls are made."""

    name: str  # for users
    types: dict[tuple, Any]  # where its types are remembered
    head: tuple  # tells them apart but for arguments, mode and options
    made_with: tuple  # see `NodeType`


def operator_maker(
    op: str, attrs: tuple = (), shared: tuple = (), types: dict[tuple, Any] = operator_types
) -> Maker:
    """Return the maker of an operator's types; users may have no name for the operator."""
    head = op, attrs, shared
    return Maker(op, types, head, head)


def types_of(block: gluon.Block, mark: Fingerprint) -> dict[tuple, Any]:
    """Return the types of a block's calls, valid as long as it has this fingerprint."""
    with tracing:
        marks = _block_types.setdefault(block, [])
        found: tuple = mark, {}
        for each in marks:
            if each[0] is mark or each[0] == mark:  # to hash a fingerprint takes long
                found = each
                break
        if not marks or found is not marks[0]:
            marks[:] = [found, *[each for each in marks if each is not found]][:_MOST_FINGERPRINTS]
        return found[1]


def keep(types: dict[tuple, Any], key: tuple, node_type: Any) -> None:
    """Remember a type as the one used last; if there are too many, drop the older half."""
    if next(reversed(types), None) == key and types[key] is node_type:
        return
    types.pop(key, None)
    types[key] = node_type
    if len(types) > _MOST_TYPES:
        for old in list(types)[: -_MOST_TYPES // 2]:
            del types[old]


def decide_padding_anew() -> None:
    """Forget which call signatures are not padded, as calls of other lengths were seen."""
    global _changes_of_padding
    _changes_of_padding += 1


def block_root(block: gluon.Block, mark: Fingerprint, mode: tuple) -> Prefix:
    """Return the search tree for a block's calls in a mode; valid while it has this fingerprint."""
    with tracing:
        return types_of(block, mark).setdefault(('calls', *mode, _changes_of_padding), Prefix())


def operator_root(place: tuple, *mode: Any) -> Prefix:
    """Return the search tree for an operator's calls with its keyword arguments in a mode."""
    with tracing:
        if len(_operator_roots) > _MOST_TYPES // 4:
            _operator_roots.clear()
        return _operator_roots.setdefault((place, *mode, _changes_of_padding), Prefix())


def operator_kinds(place: tuple, *mode: Any) -> dict[tuple, Remembered]:
    """Return the signatures of calls of an operator that no user calls, by its name, in a mode."""
    with tracing:
        if len(_operator_kinds) > _MOST_TYPES // 2:
            _operator_kinds.clear()
        return _operator_kinds.setdefault((place, *mode, _changes_of_padding), {})


def remember(kinds: dict[Any, Any], key: Any, kind: Any) -> None:
    """Remember a call signature by the kinds of its arguments, or by the length of sequences."""
    with tracing:
        if len(kinds) >= _MOST_TYPES:
            kinds.clear()
        kinds[key] = kind
