"""What happens at every recorded call, and nothing else: these functions bound small models.

This module is compiled by Cython where a compiler is present (the types are in ``calls.pxd``), and
runs as it stands where not; `gluon_edbatch.COMPILED` tells which. Compiled functions have no
frames of their own.
"""
import sys
import threading
from typing import Any, List, Optional, Sequence, Tuple

from mxnet import gluon
from mxnet.ndarray import NDArray

from ..static.fingerprint import contents
from .lazy import LazyArray, RaggedArray
from .sites import is_library, library_codes, user_codes
from .structure import LEAF, unflatten

# Which lengths of ragged arguments a call may have to be of its form.
ANY = 0      # there are none, or padding them changes nothing
EQUAL = 1    # the same, if there are two
CHECKED = 2  # see NodeType.conditions

_ONE, _PAIR, _NESTED = 0, 1, 2
_PAIR_TEMPLATE = (tuple, LEAF, LEAF)
_call = gluon.Block.__call__
_getframe = sys._getframe
_new = LazyArray.__new__


class _Local(threading.local):
    recording = None  # of the innermost scope
    eager = None      # converts arguments while a mixin model runs outside any scope


local = _Local()


class Number:
    """Stands for a Python number in the key of a call."""


class Form:
    """A type of node with the shapes of one kind of call, within one recording.

    Parameters
    ----------
    index : int
        What is appended to `CallLog.node_forms`.
    node_type : NodeType
    rows : int
        Rows of the arguments.
    stores : list of Store
        Of the outputs.

    Attributes
    ----------
    outputs : int
        Number of outputs.
    lengths : int
        `ANY`, `EQUAL` or `CHECKED`.
    mutable : tuple or None
        The containers among the attributes of the block and what they held, to be compared at
        each call; most blocks have none.
    """

    def __init__(self, index: int, node_type: Any, rows: int, stores: List[Any]):
        self.index = index
        self.node_type = node_type
        self.rows = rows
        self.outputs = len(stores)
        self.lengths = _lengths(node_type)
        self.mutable = None
        self.template = node_type.graph.results
        self.leaves = node_type.graph.leaves
        self.stores = stores
        self.first = self.second = None
        self.shape = _NESTED
        if self.template == LEAF and self.leaves[0] == 0:
            self.shape, self.first = _ONE, stores[0]
        elif self.template == _PAIR_TEMPLATE and self.leaves == (0, 1):
            self.shape = _PAIR
            self.first, self.second = stores

    def results(self, base):
        """The structure of lazy values that a call returns whose first output is value `base`."""
        if self.shape == _ONE:
            return new_value(self.first, base)
        if self.shape == _PAIR:
            return new_value(self.first, base), new_value(self.second, base + 1)
        return unflatten(self.template, iter(
            [new_value(self.stores[leaf], base + leaf) for leaf in self.leaves]))

    def release(self) -> None:
        """There will be no more calls: do not keep what only their results need."""
        self.stores = self.first = self.second = None


def _lengths(node_type) -> int:
    if node_type.lengths is not None or (node_type.neutral and not node_type.conditions):
        return ANY
    equal = node_type.neutral and not any(number for _, _, number in node_type.conditions)
    return EQUAL if equal else CHECKED


def new_value(store, value):
    """``LazyArray(store, value)`` without the call of ``__init__``."""
    array = _new(LazyArray)
    array._store = store
    array._id = value
    return array


def new_ragged(store, ids):
    """``RaggedArray(store, None, ids)`` in the same way."""
    array = _new(RaggedArray)
    array._store = store
    array._values = None
    array._ids = ids
    return array


def free_nothing(array):
    """A lazy value's ``__del__``: the base class would ask for a handle to free."""


LazyArray.__del__ = free_nothing


class CallLog:
    """Calls of one scope, in the order in which they were made: lists that only grow.

    A value is an int: outputs of calls count up from 0, call by call; inputs are negative.

    Attributes
    ----------
    node_forms : list of int
        Form of each call.
    node_ends, node_args : list of int
        Call ``i`` reads the values ``node_args[node_ends[i - 1]:node_ends[i]]``; those of ragged
        arguments follow the others.
    node_lengths : list of int
        Lengths of the ragged arguments of the calls that have some, in order.
    node_codes, node_instructions : list
        Where in the user's code each call was made (see `sites`).
    next_value : int
    scalars : list
        Python numbers that were given as arguments.
    static : dict of type to bool
        Whether calls of blocks of a class are recorded; other blocks run.
    """

    def __init__(self):
        self.node_forms: List[int] = []
        self.node_ends: List[int] = []
        self.node_args: List[int] = []
        self.node_lengths: List[int] = []
        self.node_codes: list = []
        self.node_instructions: List[int] = []
        self.next_value = 0
        self.scalars: List[float] = []
        self.static = {}
        self.forms_by_key = {}  # of autograd's present mode
        self._no_pairs = {}

    def call(self, block, args):
        """Record a call of `block` and return its results as lazy values."""
        key = [block]
        ids = []
        ragged = None
        for arg in args:
            kind = arg.__class__
            if kind is LazyArray:
                store = arg._store
                if store.recording is not self:
                    return self._call_nested(block, args)
                key.append(store)
                ids.append(arg._id)
            elif kind is int or kind is float:
                key.append(Number)
                self.scalars.append(arg)
                ids.append(1 - 2 * len(self.scalars))
            elif kind is RaggedArray and arg._store.recording is self:
                key.append(arg._store.ragged)
                if ragged is None:
                    ragged = []
                ragged.append(arg._ids)
            elif kind is list or kind is tuple:  # such as the states of a recurrent cell
                key.append(kind)
                key.append(len(arg))
                for item in arg:
                    if item.__class__ is not LazyArray:
                        return self._call_nested(block, args)
                    store = item._store
                    if store.recording is not self:
                        return self._call_nested(block, args)
                    key.append(store)
                    ids.append(item._id)
            elif arg is None:
                key.append(None)
            else:
                return self._call_nested(block, args)
        whole = tuple(key)
        form = self.forms_by_key.get(whole)
        if form is None or form.mutable is not None and form.mutable[1] != contents(
                form.mutable[0]):
            form = self._resolve_plain(block, args)
            self.forms_by_key[whole] = form
        if ragged is not None:
            if form.lengths != ANY and (form.lengths != EQUAL or len(ragged) != 2
                                        or len(ragged[0]) != len(ragged[1])):
                form = self._form_for_lengths(form, whole, args)
            for values in ragged:
                self.node_lengths.append(len(values))
                ids += values
        return self.append(form, ids)

    def append(self, form, ids):
        """One more call that reads the values `ids`; gives its results."""
        frame = _getframe(0)
        code = frame.f_code
        while id(code) in library_codes or id(code) not in user_codes and is_library(frame):
            if frame.f_back is None:
                break
            frame = frame.f_back
            code = frame.f_code
        self.node_codes.append(code)
        self.node_instructions.append(frame.f_lasti)
        self.node_forms.append(form.index)
        self.node_args += ids
        self.node_ends.append(len(self.node_args))
        base = self.next_value
        self.next_value = base + form.outputs
        return form.results(base)

    def ragged_pairs(self, pairs: Sequence[Tuple[Any, Any]], shape: Tuple[int, ...],
                     like: NDArray) -> Tuple[RaggedArray, RaggedArray]:
        """Two ragged arguments from the states of any number of children (see `functional`)."""
        if not pairs:
            key = shape, like._store if like.__class__ is LazyArray else (like.dtype, like.ctx)
            none = self._no_pairs.get(key)
            if none is None:
                empty = self.ragged((), shape, like.dtype, like.ctx)
                none = self._no_pairs[key] = (empty, empty)
            return none
        first, second = pairs[0]
        if first.__class__ is LazyArray and second.__class__ is LazyArray:
            store, other = first._store, second._store
            ids, others = [], []
            for first, second in pairs:
                if (first.__class__ is not LazyArray or first._store is not store
                        or second.__class__ is not LazyArray or second._store is not other):
                    break
                ids.append(first._id)
                others.append(second._id)
            else:
                if store.recording is self and other.recording is self:
                    return new_ragged(store, ids), new_ragged(other, others)
        return self.ragged([h for h, _ in pairs]), self.ragged([c for _, c in pairs])


def hooked_call(self, *args):
    """What a scope puts in the place of ``Block.__call__``."""
    recording = local.recording
    if recording is None:
        if local.eager is not None and isinstance(self, gluon.HybridBlock):
            args = local.eager(args)
        return _call(self, *args)
    kind = self.__class__
    static = recording.static.get(kind)
    if static is None:
        static = recording.static[kind] = _is_static(kind)
    if not static:
        return _call(self, *args)
    if self._forward_hooks or self._forward_pre_hooks:
        return _call_with_user_hooks(recording, self, args)
    return recording.call(self, args)


def _is_static(cls: type) -> bool:
    """A HybridBlock whose forward() is Gluon's own; any other forward() is Python to be run."""
    return issubclass(cls, gluon.HybridBlock) and cls.forward.__module__.startswith('mxnet.gluon')


def _call_with_user_hooks(recording, block, args):
    for hook in block._forward_pre_hooks.values():
        hook(block, args)
    out = recording.call(block, args)
    for hook in block._forward_hooks.values():
        hook(block, args, out)
    return out


def current_recording() -> Optional[Any]:
    """The recording of this thread's innermost scope, or None."""
    return local.recording
