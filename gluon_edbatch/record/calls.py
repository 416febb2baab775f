"""The work that is done for every recorded call, and nothing else: it bounds the speed of small
models.

Cython compiles this module where a compiler is present (the types are in ``calls.pxd``). Elsewhere
it runs as Python; `gluon_edbatch.COMPILED` tells which. Compiled functions have no frames of their
own.
"""

import weakref
from array import array as Column
from collections.abc import Sequence
from functools import partial, wraps
from itertools import count
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.recorded_columns import Ints

from ..mx import ndarray_memory
from ..mx.blocks import RECURRENT_LAYERS, is_recorded
from ..mx.invoke import invoke
from ..mx.methods import unhooked
from ..mx.mutation_guard import GuardedArray, GuardedNumpyArray
from ..mx.ndarray_memory import IN_C
from ..subgraph.fingerprint import contents, exact
from ..subgraph.structure import unflatten
from . import interpreter, lazy
from .each import for_each, holds_each
from .lazy import VALUES
from .scopes import Entered, current_recording, local
from .sites import kind_of, through_library
from .stores import Store

# Which lengths of ragged arguments a call may have to be of its form.
ANY = 0  # there are none, or padding them changes nothing
EQUAL = 1  # the same, if there are two
CHECKED = 2  # what padding may change
_ANY, _EQUAL = ANY, EQUAL  # as C knows them

_ONE, _PAIR, _NESTED, _OTHER = 0, 1, 2, 3
_EXACT = 2**24  # below it whole numbers are exact in single precision
_LARGE = 1 << 16  # elements
SMALL = 1 << 10  # elements of arrays of which equal ones are one value
NUMBERS = int, float, np.generic
_MOST_KINDS = 1 << 12  # of one argument
_MET = 64  # NumPy arrays that are known by who they are
REMEMBERED = 1 << 12  # bytes of contents; to compare more costs more than to keep them twice
_REMEMBERED = REMEMBERED  # as C knows it
_serials = count(1)
_INDEX = 24  # bits of `Prefix.place` for the index of a form
_LAST = (1 << _INDEX) - 1
_PLAIN = frozenset((int, float, bool, str, type(None)))
BLOCK_CALL = gluon.Block.__call__
_call = unhooked(BLOCK_CALL)
_LENGTHS: Any = lazy.RaggedArray.__dict__['lengths']
ndarray, numpy_ndarray, SettledArray = np.ndarray, mx.np.ndarray, lazy.SettledArray
_GIVEN = frozenset(
    (
        ndarray,
        NDArray,
        numpy_ndarray,
        GuardedArray,
        GuardedNumpyArray,
        SettledArray,
        lazy.SettledNumpyArray,
    )
)

interpreter.prepare_frames(kind_of, through_library)
interpreter.prepare_values(VALUES[0], VALUES[1], lazy.RAGGED[0], lazy.RAGGED[1])
interpreter.prepare_calls(gluon.Block)
ndarray_memory.prepare(IN_C)


class Number:
    """Mark a Python number among the kinds of a call's arguments."""


class Ragged:
    """Mark a ragged argument that has values: their kind follows."""


class Nothing:
    """Mark a ragged argument without values: the kind that they would have follows. In a list of
    children, stands for that kind."""


class End:
    """Mark the end of a list or tuple of arguments."""


class CallColumns:
    """Calls that any recording can append, in columns of int64 like those of `CallLog`.

    `kinds` stand for forms of a recording. Computed values and numbers (`scalars`) count from the
    first ones of these calls. The user's arrays are -2, -4, …. The calls return `values` values.
    """

    def __init__(
        self,
        kinds: np.ndarray,
        ends: np.ndarray,
        args: np.ndarray,
        codes: np.ndarray,
        instructions: np.ndarray,
        lengths: np.ndarray,
        scalars: list[float],
        values: int,
    ):
        self.kinds, self.ends, self.args = kinds.data, ends.data, args.data
        self.codes, self.instructions = codes.data, instructions.data
        self.lengths, self.scalars, self.values = lengths.data, scalars, values


class Prefix:
    """A node of the search tree for a call signature, after arguments of certain kinds.

    Recordings share a tree, which lasts as long as what is called is unchanged (see `remembered`).
    """

    def __init__(self, key=None):
        self.key = key  # the last of these kinds
        # Of the call with these arguments and no others: where its form is in the recording that
        # used it last, as that one's serial number and the form's index, in one number, as threads
        # share it; and what makes it in another one, if the kinds alone decide.
        self.place = 0
        self.signature: Any = None
        self.kinds: Optional[list[Any]] = None  # of all arguments, if this is not in the tree
        self.packed: dict[tuple, Any] = {}  # of a root: see `packed_before`
        self._last = None
        self._others: dict[Any, Prefix] = {}

    def after(self, key):
        """Return the node after an argument of the kind `key`, or None if there is none yet."""
        prefix = self._last
        if prefix is not None and prefix.key is key:
            return prefix
        if self.kinds is not None:
            self.kinds.append(key)
            return self
        prefix = self._others.get(key)
        if prefix is not None:
            self._last = prefix
        return prefix

    def make(self, key) -> 'Prefix':
        """Return the search tree's node after an argument of the kind `key`; make it if needed."""
        if len(self._others) >= _MOST_KINDS:
            self._others.clear()
        return self._others.setdefault(key, Prefix(key))

    def after_all(self, keys) -> 'Prefix':
        """Return the search tree's node after arguments of these kinds; make it if needed."""
        prefix = self
        for key in keys:
            prefix = prefix.make(key)
        return prefix


class Callee:
    """A callable entry: a block, or an operator with its keyword arguments, in one mode."""

    def __init__(
        self, block: Optional[gluon.Block], function=None, options=None, shared=(), place=()
    ):
        self.block = block  # None for an operator
        self.place = place  # tells an operator with its keyword arguments from others
        self.mutable: Any = None
        # What MXNet calls an operator, and its attributes, once a call of it was fused.
        self.joined: Optional[tuple[str, tuple]] = None
        # An operator, its keyword arguments, and what its calls share, with its positions: arrays,
        # and tuples of constants.
        self.function, self.options, self.shared = function, options, shared
        self.recorded = block is None or is_recorded(block)  # other blocks run
        # How many ragged arguments are made of a last argument that is a list of children.
        self.children = getattr(block, 'values_of_child', 0) if self.recorded else 0
        self.has_states = type(block) in RECURRENT_LAYERS  # that it makes if it is given none
        self.hooks = getattr(block, '_forward_hooks', None)
        self.pre_hooks = getattr(block, '_forward_pre_hooks', None)
        self.first: Any = None  # where the search for the form of a call begins

    def changed(self) -> bool:
        """Return whether containers among the block's attributes have changed."""
        return self.mutable is not None and self.mutable[1] != contents(self.mutable[0])


class Form:
    """A call signature within one recording: a node type, and the stores of its results."""

    def __init__(
        self,
        index: int,
        node_type: Any,
        rows: int,
        stores: list[Any],
        length: int,
        block: Any,
        mutable: Any,
    ):
        self.index = index  # what is appended to `CallLog.node_forms`
        self.node_type = node_type
        self.rows = rows  # of the arguments
        self.outputs = len(stores)
        self.length = length  # of packed sentences, else 0
        self.numpy = node_type.mode.numpy
        self.lengths = _lengths(node_type)  # `ANY`, `EQUAL` or `CHECKED`
        # What is called, None for operators; and the containers among its attributes, if it has
        # some, with what they held, which is compared at each call.
        self.block, self.mutable = block, mutable
        # How such calls are recorded for each value of ragged arguments: see `element_calls`;
        # False if they are not, None before that was asked.
        self.elements: Any = None
        self.template = node_type.graph.results
        self.leaves = node_type.graph.leaves
        self.nested = node_type.nested  # results, with numbers of outputs in their places
        self.shape = _NESTED if _is_nested(self.nested) else _OTHER
        if self.nested == 0:
            self.shape = _ONE
        elif self.nested == (0, 1) and type(self.nested) is tuple:
            self.shape = _PAIR
        self._set_stores(stores)

    def _set_stores(self, stores):
        self.stores, self.first, self.second = stores, None, None
        if self.shape == _ONE:
            self.first = stores[0]
        elif self.shape == _PAIR:
            self.first, self.second = stores

    def again(self, index: int, stores: list[Any], block: Any, mutable: Any) -> 'Form':
        """Return a copy of this call signature for another recording, which numbers it `index`."""
        form = Form.__new__(Form)
        form.index, form.block, form.mutable, form.elements = index, block, mutable, None
        form.node_type, form.rows, form.outputs = self.node_type, self.rows, self.outputs
        form.length, form.lengths, form.numpy = self.length, self.lengths, self.numpy
        form.template, form.leaves, form.nested = self.template, self.leaves, self.nested
        form.shape = self.shape
        form._set_stores(stores)
        return form

    def results(self, base):
        """Return a call's results, lazy values in their structure; the first is value `base`."""
        if self.shape == _ONE:
            return interpreter.new_value(self.numpy, self.first, base)
        if self.shape == _PAIR:
            return interpreter.new_pair(self.numpy, self.first, self.second, base)
        if self.shape == _NESTED:
            return interpreter.new_nested(self.numpy, self.nested, self.stores, base)
        return unflatten(
            self.template,
            iter(
                [
                    interpreter.new_value(self.numpy, self.stores[leaf], base + leaf)
                    for leaf in self.leaves
                ]
            ),
        )

    def changed(self) -> bool:
        """Return whether containers among the block's attributes have changed."""
        return self.mutable is not None and self.mutable[1] != contents(self.mutable[0])

    def release(self) -> None:
        """Drop what only results of further calls need, as there will be none."""
        self.first = self.second = None
        self.stores = []


def _is_nested(template) -> bool:
    """Return whether a template has only lists, tuples and numbers."""
    if type(template) in (list, tuple):
        return all([_is_nested(item) for item in template])
    return type(template) is int


def _lengths(node_type) -> int:
    if node_type.lengths is not None or (node_type.neutral and not node_type.linked):
        return ANY
    return EQUAL if node_type.neutral else CHECKED


class CallLog(Entered):
    """The calls of one scope, in the order in which they were made: arrays that only grow.

    A value is an int: outputs of calls count up from 0, call by call; inputs are negative."""

    def __init__(self, value_type: Any):
        Entered.__init__(self)
        self.value_type = value_type
        self.numpy = value_type is VALUES[True]
        self.ragged_type = lazy.RAGGED[self.numpy]
        self.node_forms = Ints()
        # Call i reads the values node_args[node_ends[i - 1]:node_ends[i]], ragged ones last.
        self.node_ends = Ints()
        self.node_args = Ints()
        self.node_lengths = Ints()  # of ragged arguments, in the order of the calls
        self.node_codes = Ints()  # with the instructions, the user's place in the code: see `sites`
        self.node_instructions = Ints()
        self._room = 0  # calls for which there is room in all of their columns
        self.next_value = 0
        self.scalars: list[float] = []  # Python numbers that were given as arguments
        # Of the call under way: sentences whose form has no length, and arrays by id, with the
        # values that they became.
        self._sentences: list[Any] = []
        self._met_now: dict[int, tuple] = {}
        self.serial = next(_serials)  # another one once what was recorded may have changed
        # By nodes of search trees: forms; how calls are recorded on sentences of any length; and
        # nodes after numbers that are attributes, by type and value.
        self.forms_at: dict[Prefix, Form] = {}
        self.sentences_at: dict[Prefix, Any] = {}
        self.constants_at: dict[Prefix, dict[tuple, Prefix]] = {}
        # Values (1, L, ...), by number, as L rows; and the other way round (see packed.py).
        self.packed: dict[int, Any] = {}
        self._given = False  # whether the call under way was given arrays
        # In autograd's present mode: by block, or by operator and keyword arguments; and the forms
        # of other calls, by what makes them.
        self.callees: dict[gluon.Block, Callee] = {}
        self.forms_by_key: dict[tuple, Any] = {}
        self.forms: list[Form] = []
        # What `graph.collect.FormTable` reads: six numbers a form, and rows of each output.
        self.form_summaries, self.output_rows = Column('q'), Column('q')
        # By index of a form, what makes those for other lengths, where lengths count.
        self.by_length: dict[int, tuple] = {}
        self.watched: set[Any] = set()  # remembered types whose parameters are watched
        self.stores_by_kind: dict[Any, Store] = {}  # while recording; values keep theirs later
        self.all_stores: list[Any] = []  # weak references
        self.shared: dict[int, NDArray] = {}  # by id, arrays that operators were found to share
        self.taped = False
        self.copied_below = _LARGE  # NDArrays with fewer elements are copied, others watched
        self._node_at = -1  # see `ndarray_memory.node_offset`
        self._met: dict[int, tuple] = {}  # NumPy arrays by id, copies of them, values that they are
        self._read: dict[tuple, Any] = {}  # small arrays as values, by what they hold
        self.constants: dict[tuple, tuple] = {}  # store and value of each; see `constant_hooks`
        self._numbers: Optional[Store] = None  # of numbers, once it is known where these go

    def active(self):
        """Return whether this thread records into this recording now."""
        return current_recording() is self

    def call_block(self, block, args):
        """Record a call of a block and return its results."""
        callee = interpreter.get(self.callees, block)
        if callee is not None and callee.block is not block:  # another one, which is equal
            callee = self.callees.get(block)
        if callee is None:
            callee = self._new_callee(block)
        if interpreter.any_in(callee.hooks) or interpreter.any_in(callee.pre_hooks):
            if not callee.recorded:
                return _call(block, *args)
            return _call_with_user_hooks(self, callee, args)
        return self.call(callee, args) if callee.recorded else block.forward(*args)

    def _new_callee(self, block):
        callee = self.callees[block] = Callee(block)
        interpreter.direct_type(block, BLOCK_CALL, _called)
        return callee

    def call(self, callee, args):
        """Record a call and return its results as lazy values."""
        if callee.has_states and len(args) == 2 and self.are_own_states(callee.block, *args):
            args = args[:1]  # the layer's graph makes them, too
        if self._met_now:
            self._met_now.clear()
        if callee.first is None:
            callee.first = self.root_of(callee)
        results = self._call_of_known_kind(callee, args)
        if results is None and callee.joined is not None:
            results = self.fused_again(callee.joined, args)
        return self.call_unknown(callee, args) if results is None else results

    def _call_of_known_kind(self, callee, args):
        """Record a call whose form the search finds, and return its results; None otherwise."""
        args_before, scalars_before = self.node_args.size, len(self.scalars)
        lengths_before = self.node_lengths.size
        prefix = self._follow_arguments(callee.first, callee, args)
        form = None
        if prefix is not None:
            place = prefix.place
            if place >> _INDEX == self.serial:
                form = self.forms[place & _LAST]
            else:
                form = self._form_at(prefix, callee)
        if self._sentences:
            values, self._sentences = self._sentences, []
            sentences = None if prefix is None else self.sentences_at.get(prefix)
            if sentences is not None:
                form = self._form_of_sentences(sentences, callee, values, args_before)
        if (
            form is not None
            and form.lengths != _ANY
            and not self._lengths_fit(form, lengths_before)
        ):
            calls = form.elements
            if calls and self._are_values(args) and calls.fit(args) and not form.changed():
                self.node_args.size = args_before
                self.node_lengths.size = lengths_before
                return calls.record(self, form, args)
            form = None if calls else self.known_form_for_lengths(form, args)
        if form is not None and not form.changed():
            return self._finish_call(form)
        self._take_back(args_before, lengths_before, scalars_before)
        return None

    def _take_back(self, arguments, lengths, scalars):
        """Remove what was appended of a call's arguments."""
        self.node_args.size = arguments
        self.node_lengths.size = lengths
        del self.scalars[scalars:]

    def _form_of_sentences(self, call, callee, values, before):
        """Return the form of a call on these sentences, whose packed values replace them among the
        arguments that were appended. None if they have several lengths, or take a call to pack."""
        positions, axes, length = call.positions, call.axes, 0
        for place in range(len(positions)):
            value = values[place]
            shape, axis = value._store.shape, axes[place]
            own = shape[axis]
            if shape[0 if axis else 1] != 1 or (place and own != length):
                return None
            length = own
            if axis and not value._store.packed:
                if axis > 1:
                    return None
                known = self.packed.get(value._id)
                value = self.packed_value(value, 1, True) if known is None else known
                if not value._store.packed:
                    return None
            position = positions[place]
            self.node_args.items[before + position] = value._id
        if length < call.shortest:
            return None
        form = self.forms_by_key.get((call, length))
        if form is None and not callee.changed():
            form = call.form(self, dict.fromkeys(positions, length), callee)
        return form

    def _form_at(self, prefix, callee):
        """Return the form that this recording has at a node of the search tree, or makes of the
        signature there; None if there is none."""
        form = self.forms_at.get(prefix)
        if form is None and prefix.signature is not None:
            form = self.form_again(prefix.signature, callee.block, callee.mutable)
        if form is not None:
            self.put_form(prefix, form)
        return form

    def forget_signatures(self) -> None:
        """Forget which calls have which forms."""
        self.serial = next(_serials)
        self.forms_at.clear()
        self.sentences_at.clear()
        self.constants_at.clear()

    def put_form(self, prefix, form) -> None:
        """Let calls with the arguments of a node of the search tree have this form."""
        self.forms_at[prefix] = form
        prefix.place = self.serial << _INDEX | form.index

    def describe(self, callee, args) -> Optional[tuple[list[Any], list[Any]]]:
        """Return the kinds of a call's arguments, as the search takes them, and the values and
        numbers among the arguments. None for arguments that the search does not know."""
        arguments, lengths, scalars = self.node_args.size, self.node_lengths.size, len(self.scalars)
        prefix = Prefix()
        kinds: list[Any] = []
        prefix.kinds = kinds
        known = self._follow_arguments(prefix, callee, args)
        self._take_back(arguments, lengths, scalars)
        if known is None:
            return None
        leaves: list[Any] = []
        self._append_leaves(args, leaves)
        return kinds, leaves

    def _append_leaves(self, args, leaves):
        """Append the values and numbers among arguments that the search knows."""
        for arg in args:
            kind = type(arg)
            if kind is list or kind is tuple:
                self._append_leaves(arg, leaves)
            elif kind in _GIVEN:
                leaves.append(self._value_of(arg))
            elif arg is not None:
                leaves.append(arg)

    def operation(self, function, args, options):
        """Record a call of an operator, ``function(*args, **options)``. The function itself runs
        once for each new call signature."""
        key, shared, every, computed, fuses = [function], (), args, False, False
        for arg in args:
            if type(arg) is self.value_type:
                value = arg
                computed = computed or value._id >= 0
        if not computed and self.runs_now(args):
            return function(*every, **options)
        for arg in args:
            kind = type(arg)
            if kind is not self.value_type and kind is not float and kind is not int:
                args = self._with_values(args)
                shared = self._shared_among(args)
                if shared is None:
                    fuses = True
                    break
                for position, other in shared:
                    key.append(position)
                    if type(other) is tuple:
                        key.append(other if _tells_itself(other) else exact(other))
                    else:
                        key.append(id(other))
                args = tuple([arg for arg in args if self._is_given(arg)])
                break
        for name, option in options.items():
            if not _is_plain(option):
                return function(*every, **options)
            key.append(name)
            key.append(type(option))  # 1 is not True, nor 1.0
            key.append(option if _tells_itself(option) else exact(option))
        place = tuple(key)
        callee = self.callees.get(place)
        if callee is None:
            callee = self.callees[place] = Callee(None, function, options, shared or (), place)
            callee.joined = self.fused_before(place, every)
        if not fuses:
            return self.call(callee, args)
        if self._are_values(every):  # some of them ragged
            if callee.first is None:
                callee.first = self.root_of(callee)
            result = self._call_of_known_kind(callee, every)
            if result is not None:
                return result
        result = None if callee.joined is None else self.fused_again(callee.joined, args)
        return self.fused_operation(callee, every) if result is None else result

    def _with_values(self, args):
        """Return the arguments with NumPy arrays converted to lazy values."""
        result = []
        for arg in args:
            value = self.given(arg) if type(arg) is ndarray else arg
            result.append(arg if value is None else value)
        return tuple(result)

    def _shared_among(self, args):
        """Return (position, argument) of known shared weights and of tuples of constants, such as
        shapes. None if another argument is neither a value nor a number."""
        shared = []
        for position in range(len(args)):
            arg = args[position]
            if not self._is_given(arg):
                if id(arg) not in self.shared and not (type(arg) is tuple and _is_plain(arg)):
                    return None
                shared.append((position, arg))
        return tuple(shared)

    def _is_given(self, arg):
        """Return whether an operator's argument is a lazy value or a number."""
        kind = type(arg)
        return kind is self.value_type or kind is float or kind is int

    def _are_values(self, args):
        """Return whether all arguments are lazy values, ragged or not."""
        for arg in args:
            if type(arg) is not self.value_type and type(arg) is not self.ragged_type:
                return False
        return True

    def _lengths_fit(self, form, before):
        """Return whether a form allows the lengths that were appended since position `before`."""
        lengths = self.node_lengths
        return (
            form.lengths == _EQUAL
            and lengths.size == before + 2
            and lengths.items[before] == lengths.items[before + 1]
        )

    def _follow_arguments(self, prefix, callee, args):
        """Append the values of a call's arguments, and return the search node after them; None if
        there is none."""
        if callee.children and len(args) == 2 and type(args[1]) is list:
            return self._follow_children(prefix, callee, args)
        return self._follow(prefix, args, len(args), False)

    def _follow(self, prefix, args, count, nested):
        """Append the values of the first `count` arguments, and return the search node after them;
        None if there is none. Lists and tuples among them (`nested`) hold values only."""
        ragged = False
        scalars_before = len(self.scalars)
        if not nested:
            self._given = False
        for position in range(count):
            arg = args[position]
            kind = type(arg)
            if kind is self.value_type:
                prefix = self._follow_value(prefix, arg)
            elif (kind is int or kind is float) and not nested:
                prefix = self._follow_number(prefix, arg)
            elif kind is list or kind is tuple:
                prefix = prefix.after(kind)
                if prefix is not None:
                    prefix = self._follow(prefix, arg, len(arg), True)
                if prefix is not None:
                    prefix = prefix.after(End)
            elif arg is None:
                prefix = prefix.after(None)
            elif kind is ndarray or kind is NDArray or kind in _GIVEN:
                prefix = self._follow_given(prefix, arg)
            elif kind is self.ragged_type and not nested:
                ragged = True
                several = arg
                store = several._store
                prefix = prefix.after(Ragged if several._ids else Nothing)
                if store.recording is not self:
                    return None
                if prefix is not None:
                    prefix = prefix.after(store.token)
            else:
                return None
            if prefix is None:
                return None
        if self._given and len(self.scalars) != scalars_before:
            return None  # numbers take the dtype of arrays
        if ragged:
            self._append_ragged(args)
        return prefix

    def _follow_number(self, prefix, number):
        """Append a Python number unless it is an attribute, and return the search node after it."""
        constants = self.constants_at.get(prefix) if self.constants_at else None
        if constants is not None:
            known = constants.get(constant_key(number))
            if known is not None:
                return known
            if type(number) is int and not -_EXACT < number < _EXACT:
                return None  # whether it may be rounded is not known here
            number = float(number)
        self.scalars.append(number)
        self.node_args.append(1 - 2 * len(self.scalars))
        return prefix.after(Number)

    def _follow_given(self, prefix, array):
        """Append an array of the user as a value, and return the search node after it."""
        value = self._value_of(array)
        if value is None:
            return None
        self._given = True
        return self._follow_value(prefix, value)

    def _value_of(self, array):
        """Return an array of the user as a value; None if that depends on the rest of the call. In
        one call a large array is copied once."""
        given = array
        if type(array) is SettledArray:
            array = array._array
        if type(array) is ndarray:
            value = self._given_again(array)
        else:
            kind = type(array)
            value = self.read(array) if kind is NDArray or kind is numpy_ndarray else None
        if value is None:
            known = self._met_now.get(id(given))
            if known is not None:
                return known[1]
            value = self.given(array)
            if value is not None:
                self._met_now[id(given)] = given, value
        return value

    def _follow_value(self, prefix, value):
        """Append a value, and return the search node after it, or after sentences of any length."""
        self.node_args.append(value._id)
        store = value._store
        if store.recording is not self:
            return None
        after = prefix.after(store.token)
        if after is None and store.token.any_length is not None:
            after = prefix.after(store.token.any_length)
            if after is not None:
                self._sentences.append(value)
        return after

    def _given_again(self, array):
        """Return the earlier value of a NumPy array if its contents are unchanged; else None."""
        known = self._met.get(id(array))
        if known is None:
            return self._meet(array)
        return known[2] if ndarray_memory.holds(array, known[1]) else None

    def _meet(self, array):
        """Make a value of a NumPy array and remember it, to find it again. None for a large one,
        and once too many arrays were met."""
        if len(self._met) >= _MET or array.size > SMALL:
            return None
        value = self.given(array)
        if value is not None:
            self._met[id(array)] = array, array.copy(), value
        return value

    def read(self, array, data=False):
        """Return a value with the present contents of a small NDArray in host memory; None for any
        other. If `data`, None for an array with a gradient, too. Arrays that autograd cannot tell
        apart and that hold the same are one value."""
        found = ndarray_memory.read(array, self.copied_below, self._node_at)
        if found is None or (data and found[2]):
            return None
        key = found if self.taped else (found[0], found[1], b'')
        value = self._read.get(key) if len(found[1]) <= _REMEMBERED else None
        return self.append_read(array, key) if value is None else value

    def exact_numbers(self, first, last):
        """Return recorded numbers `first` to `last` as float32; None if that may be inexact."""
        result = np.empty(last - first, np.float32)
        numbers: Any = result.data
        scalars, most = self.scalars, _EXACT
        for place in range(first, last):
            given = scalars[place]
            if type(given) is float:
                number = given
            elif type(given) is int:
                try:
                    whole = given
                except OverflowError:  # in C: Python's own int may be of any length
                    return None
                number = whole
            else:
                return None
            if not -most < number < most:
                return None
            numbers[place - first] = number
        return result

    def constant(self, key):
        """Return a new lazy value of the constant known by this key; None if there is none."""
        known = self.constants.get(key)
        return None if known is None else interpreter.new_value(False, known[0], known[1])

    def length(self, several):
        """Return the number of values of a one-row ragged argument, as a new lazy value."""
        ids, store = several._ids, self._numbers
        length: Any = float(len(ids))
        if store is None:
            first = self.number(length)
            first._store.given[first._id] = length
            return first
        self.scalars.append(length)
        number = 1 - 2 * len(self.scalars)
        store.given[number] = length
        return interpreter.new_value(self.numpy, store, number)

    def append_arguments(self, args: Sequence[Any]) -> None:
        """Append the values of a call's arguments, which are lazy values, ragged or not."""
        for arg in args:
            if type(arg) is not self.ragged_type:
                value = arg
                self.node_args.append(value._id)
        self._append_ragged(args)

    def _append_ragged(self, args):
        """Append the values of ragged arguments, which follow those of all others."""
        for arg in args:
            if type(arg) is self.ragged_type:
                several = arg
                self.node_lengths.append(len(several._ids))
                for number in several._ids:
                    self.node_args.append(number)

    def _follow_children(self, prefix, callee, args):
        """Append the values of a list of children as ragged arguments, one for each value of a
        child. Return the search node after them."""
        children = args[1]
        prefix = self._follow(prefix, args, 1, False)
        for position in range(callee.children):
            store: Any = Nothing
            self.node_lengths.append(len(children))
            for child in children:
                if callee.children > 1:
                    if type(child) is not tuple or len(child) <= position:
                        return None
                    child = child[position]
                if type(child) is not self.value_type:
                    return None
                value = child
                if store is not value._store:
                    if store is not Nothing:
                        return None
                    store = value._store
                self.node_args.append(value._id)
            if prefix is not None:
                prefix = prefix.after(Ragged)
            if store is not Nothing:
                if store.recording is not self:
                    return None
                store = store.token
            if prefix is not None:
                prefix = prefix.after(store)
        return prefix

    def move_calls(self, begin: int, code: int, instruction: int) -> None:
        """Say of the calls from `begin` on that another place in the code made them."""
        for node in range(begin, self.node_forms.size):
            self.node_codes.items[node] = code
            self.node_instructions.items[node] = instruction

    def append_calls(self, form, columns: Sequence[list[int]]) -> int:
        """Append calls of a form, which read values from columns; return the first result."""
        frame = interpreter.user_frame()
        code, instruction = interpreter.code_of(frame), interpreter.instruction_of(frame)
        base = self.next_value
        for place in range(len(columns[0])):
            for column in columns:
                self.node_args.append(column[place])
            self.node_codes.append(code)
            self.node_instructions.append(instruction)
            self.node_forms.append(form.index)
            self.node_ends.append(self.node_args.size)
            self.next_value += form.outputs
        return base

    def append_columns(self, columns: CallColumns, forms: Ints, arrays: Ints) -> int:
        """Append all calls of `columns` and return -1. If this recording lacks one of their call
        signatures, append none and return its number in `columns`.

        `forms` has the index of each signature in this recording, or -1. `arrays` has the value of
        each of the calls' arrays in this recording.
        """
        kinds, args = columns.kinds, columns.args
        for place in range(len(kinds)):
            if forms.items[kinds[place]] < 0:
                return kinds[place]
        node, arg, numbers = self.node_ends.size, self.node_args.size, len(self.scalars)
        self.node_forms.copy_from(kinds)
        self.node_ends.copy_from(columns.ends)
        for place in range(len(kinds)):
            self.node_forms.items[node + place] = forms.items[kinds[place]]
            self.node_ends.items[node + place] += arg
        self.node_args.copy_from(args)
        for place in range(len(args)):
            value = args[place]
            if value >= 0:
                self.node_args.items[arg + place] = value + self.next_value
            elif value & 1:
                self.node_args.items[arg + place] = value - 2 * numbers
            else:
                self.node_args.items[arg + place] = arrays.items[-1 - (value >> 1)]
        self.node_codes.copy_from(columns.codes)
        self.node_instructions.copy_from(columns.instructions)
        self.node_lengths.copy_from(columns.lengths)
        if columns.scalars:
            self.scalars.extend(columns.scalars)
        self.next_value += columns.values
        return -1

    def finish_call(self, form):
        """Complete a call of this form whose arguments are appended; return its results."""
        return self._finish_call(form)

    def _finish_call(self, form):
        frame, node = interpreter.user_frame(), self.node_forms.size
        code = interpreter.code_of(frame)
        if node >= self._room:
            self._make_room()
        self.node_codes.items[node] = code
        self.node_instructions.items[node] = interpreter.instruction_of(frame)
        self.node_forms.items[node] = form.index
        self.node_ends.items[node] = self.node_args.size
        self.node_codes.size = self.node_instructions.size = node + 1
        self.node_forms.size = self.node_ends.size = node + 1
        base = self.next_value
        self.next_value = base + form.outputs
        return form.results(base)

    def _make_room(self):
        """Make room in all columns for at least one more call."""
        columns = self.node_codes, self.node_instructions, self.node_forms, self.node_ends
        for column in columns:
            if column.size == column.room:
                column.make_room(1)
        self._room = min([column.room for column in columns])

    def common_store(self, values: Sequence[Any]) -> Optional[Any]:
        """Return the store of this recording that has all these values; None if there is none."""
        store = None
        for item in values:
            if type(item) is not self.value_type:
                return None
            value = item
            if store is not value._store:
                if store is not None or value._store.recording is not self:
                    return None
                store = value._store
        return store

    def ragged(self, values, shape=None, dtype='float32', ctx=None):
        """Return one ragged argument made of any number of values (see `gluon_edbatch.ragged`)."""
        items = values if type(values) is list or type(values) is tuple else list(values)
        store: Any = None
        ids: list[Any] = [None] * len(items)
        for place in range(len(items)):  # in one loop: nodes of trees call this more than any other
            item = items[place]
            if type(item) is not self.value_type:
                return self.ragged_unknown(list(items), shape, dtype, ctx)
            value = item
            if store is not value._store:
                if store is not None:
                    return self.ragged_unknown(list(items), shape, dtype, ctx)
                store = value._store
            ids[place] = value._id
        if store is None or store.recording is not self or not store.shape or store.packed:
            return self.ragged_unknown(list(items), shape, dtype, ctx)
        return interpreter.new_ragged(self.numpy, store, ids)

    def concat_plain(self, values: Sequence[Any]) -> Any:
        """Return the concatenation of lazy values of one store as a value; None for others."""
        store = self.common_store(values)
        if store is None or store.packed:
            return None
        place = store, len(values)
        form = self.forms_by_key.get(place)
        if form is None:
            rows = store.spec.rows * len(values)
            known = self.known_by_name.get('concat')  # with the keys of `concat_form`
            kind = None if known is None else known.get(('concat', store.spec.arena, rows))
            form = None if kind is None else self.form_again(kind)
            if form is None:
                form = self.concat_form(store.spec, rows)
            self.forms_by_key[place] = form
        return self.concat_call(form, values)

    def form_again(self, kind, block=None, mutable=None):
        """Return the form of a signature that an earlier recording met; None if it is outdated."""
        known, summary_of, output_rows, results, by_length = kind
        if known.node_type not in self.watched and not self.watch_type(known.node_type):
            return None
        stores = []
        for stored, spec, shown in results:
            store = self.stores_by_kind.get(stored)
            stores.append(self.store(spec, shown) if store is None else store)
        form = known.again(len(self.forms), stores, block, mutable)
        self.forms.append(form)
        self.form_summaries.extend(summary_of)
        self.output_rows.extend(output_rows)
        if by_length is not None:
            self.by_length[form.index] = by_length
        return form

    def add_form(self, node_type, rows, stores, length=0, block=None, mutable=None):
        """Add a form to this recording and return it; parameters are as for `Form`."""
        form = Form(len(self.forms), node_type, rows, stores, length, block, mutable)
        self.forms.append(form)
        self.form_summaries.extend(summary(form))
        self.output_rows.extend(rows_of_outputs(form))
        return form

    def store(self, spec, shown=None):
        """Return the store of values with this spec; `shown` tells what users see, if that
        differs."""
        kind = spec
        if shown is not None:
            kind = (spec, shown) if shown[2] else (spec, len(shown[0]), shown[1])
        store = self.stores_by_kind.get(kind)
        if store is None:
            store = Store(self, spec, shown, kind)
            self.stores_by_kind[kind] = store
            self.all_stores.append(weakref.ref(store))
        return store

    def value_of(self, spec, shown, number: int) -> Any:
        """Return value `number` as a lazy value of a store (see `store`)."""
        return interpreter.new_value(self.numpy, self.store(spec, shown), number)

    def concat_call(self, form, values: Sequence[Any]) -> Any:
        """Record a call of this form on values that have a common store; return its results."""
        for item in values:
            value = item
            self.node_args.append(value._id)
        self.node_lengths.append(len(values))
        return self._finish_call(form)


def summary(form: Form) -> Column:
    """Return the numbers of a form that `graph.collect.FormTable` reads."""
    kind = form.node_type
    mode = kind.mode.recording
    return Column('q', [kind.serial, form.rows, form.outputs, kind.of_many, mode, kind.addition])


def rows_of_outputs(form: Form) -> Column:
    """Return the rows of each output of a form, for `CallLog.output_rows`."""
    return Column('q', [store.spec.rows for store in form.stores])


def _is_plain(option) -> bool:
    """Return whether an option can be compared: a constant, or a tuple of constants."""
    if type(option) is tuple:
        for item in option:
            if type(item) not in _PLAIN:
                return False
        return True
    return type(option) in _PLAIN


def constant_key(number) -> tuple:
    """Return a key for a number that tells 1 from 1.0."""
    return type(number), number if _tells_itself(number) else exact(number)


def _tells_itself(option) -> bool:
    """Return whether no other constant of its type equals this one: 0.0 equals -0.0."""
    if type(option) is tuple:
        for item in option:
            if type(item) is not int and item is not None:
                return False
        return True
    return type(option) is not float or (option != 0 and option == option)


# --- values along an axis -------------------------------------------------------------------------


def records_ragged(eager: Callable[..., NDArray]) -> Callable[..., NDArray]:
    """Return `gluon_edbatch.ragged`, which records in scopes and calls `eager` outside."""

    @wraps(eager)
    def ragged(values, shape=None, dtype='float32', ctx=None):
        recording = current_recording()
        if recording is None:
            return eager(values, shape, dtype, ctx)
        return recording.ragged(values, shape, dtype, ctx)

    return ragged


def lengths_of(several):
    """Return `RaggedArray.lengths`, recorded if the value has one row and its scope records."""
    recording = several._store.recording
    if recording is not None and recording.active() and several._store.shape[0] == 1:
        return recording.length(several)
    return _LENGTHS.fget(several)


lazy.RaggedArray.lengths = property(  # type: ignore[method-assign,assignment]
    lengths_of, doc=_LENGTHS.__doc__
)

# --- hooks ---------------------------------------------------------------------------------------


def hook_calls(hooked: bool) -> None:
    """Switch the shortcut for calls of blocks, whose code is replaced, on or off."""
    interpreter.redirect(BLOCK_CALL, hooked_call if hooked else None)
    if not hooked:
        interpreter.no_direct_types()


def hooked_call(self, *args):
    """Call or record a block: scopes replace ``Block.__call__`` with this function."""
    return _called(self, args)


def _called(block, args):
    scope = current_recording()
    if scope is None:
        if local.eager is not None and isinstance(block, gluon.HybridBlock):
            if holds_each(args) and is_recorded(block):
                return for_each(block, args)
            args = tuple(local.eager(args))
        alone = lazy.runs_alone(args)
        if alone is not None and is_recorded(block):
            return alone(block, args)
        return _call(block, *args)
    return scope.call_block(block, args)


def _call_with_user_hooks(log, callee, args):
    if holds_each(args):
        return for_each(callee.block, args)
    for hook in callee.pre_hooks.values():
        hook(callee.block, args)
    out = log.call(callee, args)
    for hook in callee.hooks.values():
        hook(callee.block, args, out)
    return out


def hooked_invoke(handle, ndargs, keys, vals, out, is_np_op, output_is_list):
    """Run or record an operator; scopes replace the function behind all of ``mx.nd`` with this."""
    scope = current_recording()
    if scope is None:
        alone = lazy.runs_alone(ndargs)
        if alone is not None and out is None:
            return alone(partial(_invoke, handle, keys, vals, is_np_op, output_is_list), ndargs)
        return invoke(handle, ndargs, keys, vals, out, is_np_op, output_is_list)
    return scope.operator_called(handle, ndargs, keys, vals, out, is_np_op, output_is_list)


def _invoke(handle, keys, vals, is_np_op, output_is_list, *ndargs):
    return hooked_invoke(handle, ndargs, keys, vals, None, is_np_op, output_is_list)
