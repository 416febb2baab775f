"""What a scope has recorded: append-only lists, two or three appends per call."""

import threading
import weakref
from collections import OrderedDict
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.base import NotImplementedForSymbol
from mxnet.ndarray import NDArray

from ..brief import brief
from ..errors import EdbError, RecordError, StaleValueError
from ..mx.arrays import detached
from ..mx.guard import PLAIN_OR_GUARDED, GuardedArray, GuardedNumpyArray, Watched
from ..mx.modes import numpy_shapes
from ..mx.parameters import arrays_of, contexts
from ..mx.reading import node_offset
from ..ops.attrs import Attrs
from ..ops.numbers import Numbered
from ..ops.registry import op_of
from ..subgraph.fingerprint import (
    Fingerprint,
    changed,
    containers,
    contents,
    exact,
    fingerprint,
    state_of,
)
from ..subgraph.node_type import Kind, Mode, NodeType, make_type
from ..subgraph.options import CompileOptions
from ..subgraph.padded import padded_graph
from ..subgraph.spec import ArenaKey, Spec, device_of, spec_of
from ..subgraph.structure import flatten, objects_in
from ..subgraph.trace import describe, trace_block, trace_numbered, trace_operator
from .calls import ANY, Callee, End, Form, Nothing, Number, Ragged
from .hooks import suspended
from .inputs import ARRAYS, NUMBERS, SCALAR_DTYPE, GivenArray, Inputs, is_array
from .lazy import VALUES, LazyArray, RaggedArray, SettledArray, SettledNumpyArray
from .padded import Family, Padded, PaddedCall, padded_call
from .refused import current_model_call, refused_call
from .shared import SharedTypes, Sharing
from .sites import Site, current_site, site_of, site_of_error, user_codes
from .stores import Arena, EagerArena, Locations, Store
from .varying import Varying

_tracing = threading.RLock()  # the name scope of a block serves one thread at a time
# block -> {fingerprint: {key: NodeType}}, those used last; operators have no block
_block_types: 'weakref.WeakKeyDictionary[gluon.Block, OrderedDict]' = weakref.WeakKeyDictionary()
_GIVEN = np.ndarray, NDArray, mx.np.ndarray
_WATCHABLE = GuardedArray, GuardedNumpyArray, SettledArray, SettledNumpyArray
# Of calls that may be found to differ in lengths only, as long as none was seen that does.
_first_shapes: 'weakref.WeakKeyDictionary[gluon.Block, Dict[tuple, tuple]]' = (
    weakref.WeakKeyDictionary()
)
_MOST_FINGERPRINTS = 32  # a block may read something else in each scope, as a temperature
_MOST_TYPES = 4096  # of operators: a number that is an attribute may be another in each scope
# Beside the types of calls, what is known of calls of different lengths (see padded.py); those
# used last are at the end.
_operator_types: Dict[tuple, Any] = {}
_shared_types = SharedTypes()


class Recording(Inputs):
    """Calls of one scope and their values: what is done once for each kind of call, or once.

    Attributes
    ----------
    forms : list of Form
    form_summaries, output_rows : list
        The same as later stages see them (see `graph.collect.FormTable`): five numbers a form, and
        rows of each output.
    arrays : list of (Spec, GivenArray or numpy.ndarray)
        Arrays given by the user.
    parameters : dict
        (id of a parameter, context) -> its array when a call that uses it was first recorded.
    options : CompileOptions
        What the types of its calls are compiled with.
    ran : list of numpy.ndarray
        Numbers of the calls that ran, evaluation by evaluation.
    results : dict
        Evaluation -> what it computed, by `ArenaKey`; empty once nothing is left to run.
    """

    def __init__(self, evaluator: Any, ctx: Optional[mx.Context], options: CompileOptions):
        super().__init__(ctx)
        self.evaluator = evaluator
        self.options = options
        self.forms: List[Form] = []
        self.form_summaries: List[Tuple[int, ...]] = []
        self.output_rows: List[int] = []
        self.locations = Locations()
        self.ran: List[np.ndarray] = []
        self.results: Dict[int, Dict[ArenaKey, Union[Arena, EagerArena]]] = {}
        self._read_later: Tuple[int, FrozenSet[int]] = (-1, frozenset())  # see `will_read`
        self.parameters: Dict[Tuple[int, mx.Context], Watched] = {}
        self.replaced: Optional[str] = None
        self.changed_block: Optional[str] = None
        self._known_parameters: Set[Tuple[gluon.Parameter, mx.Context]] = set()
        self.error: Optional[str] = None
        self._stores: Dict[Any, Store] = {}  # while recording; values keep theirs alive later
        self._all_stores: List[weakref.ref[Store]] = []
        # for each mode the forms of calls by key, and blocks with theirs
        self._modes: Dict[Mode, Tuple[Dict[tuple, Any], Dict[gluon.Block, Callee]]] = {}
        self._fingerprints: Dict[gluon.Block, Any] = {}
        self.sharing = Sharing()
        self._varying: Dict[tuple, Varying] = {}
        self.pads = False  # whether calls are recorded as padded ones
        self.padded: Dict[int, Padded] = {}  # values, by number, as padded calls take them
        self._mutables: Dict[gluon.Block, Optional[tuple]] = {}
        self._by_length: Dict[int, tuple] = {}  # what makes the forms of types that are not neutral
        # of calls that other recordings recorded (see pieces.py): forms of their kinds, and types
        self.adopted: Dict[Any, np.ndarray] = {}
        self.trusted: Set[NodeType] = set()
        self.disturbances = 0  # how often a block's attributes were set
        with suspended():
            self._node_at = node_offset()
        self.update_mode()

    # --- calls that are not as plain as those in calls.py ----------------------------------------

    def call_unknown(self, callee, args):
        """A call of a kind that was not met yet, or that the search in calls.py does not know."""
        if callee.block is None:
            return self._operation_unknown(callee, args)
        try:
            return self._block_unknown(callee, args)
        except Exception as error:
            message = refused_call(callee.block, args, error, current_model_call())
            if message is None:
                raise
            raise RecordError(f'{message}\n  called at {current_site()}') from error

    def _block_unknown(self, callee, args):
        block, childless = callee.block, False
        self._find_ctx(block, args)
        if callee.children and len(args) == 2:
            x, children = args
            args = (x, *block.ragged_children(x, children))
            childless = not children
        kinds: List[Any] = []
        leaves: List[Any] = []
        if not self._describe(args, kinds, leaves):
            return self._call_nested(block, args)
        if childless:
            kinds[-2 * callee.children :] = (Ragged, Nothing) * callee.children
        prefix = callee.first
        for kind in kinds:
            prefix = prefix.make(kind)
        values = [self.number(leaf) if leaf.__class__ in (int, float) else leaf for leaf in leaves]
        like = self._like_but_for_rows(callee, kinds, leaves)
        padded = self._padded_call(callee, args, values) if like is None or self.padded else None
        if padded is not None:
            self.pads = True
            return padded.record(self, values)
        if prefix.form is None or prefix.form.changed():
            if like is None:
                prefix.form = self._resolve_described(callee, args, kinds, leaves)
            else:
                rows = _rows_of(leaves).pop()
                prefix.form = self.new_form(like.node_type, rows, block, like.mutable)
        return self.append_call(prefix.form, values)

    def _operation_unknown(self, callee, args):
        """Run the function that MXNet has for an operator, and see what it records. If that is
        one call of these arguments, whose results it returns, such calls need it no more."""
        calls, values, base = len(self.node_forms), len(self.node_args), self.next_value
        every = list(args)
        for position, array in callee.shared:
            every.insert(position, array)
        result = callee.function(*every, **callee.options)
        if len(self.node_forms) == calls + 1:
            form = self.forms[self.node_forms[calls]]
            if (
                form.lengths == ANY
                and not form.node_type.padded
                and _same(result, form.results(base))
            ):
                prefix = self._prefix_of(callee, args, self.node_args.since(values).tolist())
                if prefix is not None:
                    prefix.form = form
        return result

    def _prefix_of(self, callee, args, read: Sequence[int]):
        """Where the search is to find a call of an operator that reads these values, made if
        needed; None if they are other than `args`, with the numbers among them or without."""
        as_values = len(read) == len(args)
        prefix, left = callee.first, iter(read)
        for arg in args:
            if arg.__class__ is self.value_type:
                if next(left, None) != arg._id:
                    return None
                prefix = prefix.make(arg._store)
            elif not as_values:
                prefix = prefix.make_constant(arg)
            elif self._is_number(next(left), arg):
                prefix = prefix.make_number()
            else:
                return None
        return prefix if next(left, None) is None else None

    def _is_number(self, value: int, number: float) -> bool:
        """Whether a value is a recorded number, and this one."""
        if value >= 0 or value % 2 == 0:
            return False
        return exact(self.scalars[(-value - 1) // 2]) == exact(float(number))

    def _describe(self, args: Sequence[Any], kinds: List[Any], leaves: List[Any]) -> bool:
        """Append what the search in calls.py goes by, and the values and numbers among `args`.

        Returns
        -------
        bool
            Whether the search knows such arguments.
        """
        for arg in args:
            cls = arg.__class__
            if (
                self._ctx is not None
                and (cls in _WATCHABLE or (cls in _GIVEN and arg.ndim))
                and not any(isinstance(other, NUMBERS) for other in args)
            ):
                arg = self._array(arg)
                cls = self.value_type
            if cls is self.value_type and arg._store.recording is self:
                kinds.append(arg._store)
                leaves.append(arg)
            elif cls in (int, float):
                kinds.append(Number)
                leaves.append(arg)
            elif arg is None:
                kinds.append(None)
            elif cls in (list, tuple):
                inner: List[Any] = []
                if not self._describe(arg, inner, leaves) or Number in inner or Ragged in inner:
                    return False
                kinds += [cls, *inner, End]
            elif cls is RaggedArray and arg._store.recording is self:
                kinds += [Ragged, arg._store]
                leaves.append(arg)
            else:
                return False
        return True

    def _like_but_for_rows(self, callee, kinds, leaves) -> Optional[Form]:
        """The form of an earlier call that differs in rows only, as calls on whole sentences do."""
        alike = len(_rows_of(leaves)) == 1
        like = callee.of_any_rows.get(_but_for_rows(kinds)) if alike else None
        return None if like is None or like.changed() else like

    def _resolve_described(self, callee, args, kinds, leaves) -> Form:
        """The form of such a call, of which there was none like it."""
        self._find_ctx(callee.block)
        number = self.value_type(self.store(spec_of((1,), SCALAR_DTYPE, self.ctx)), -1)
        form = self._resolve_block(
            callee.block,
            tuple(flatten(arg, ARRAYS, []) for arg in args),
            [leaf if isinstance(leaf, LazyArray) else number for leaf in leaves],
        )
        if (
            len(_rows_of(leaves)) == 1
            and Number not in kinds
            and form.lengths == ANY
            and not (form.node_type.alone or form.node_type.whole)
        ):
            callee.of_any_rows[_but_for_rows(kinds)] = form
        return form

    def _padded_call(self, callee, args, leaves) -> Optional[PaddedCall]:
        """How to record such a call on padded arrays; None if it is not to be."""
        if (
            not self.options.buckets
            or self.mode.numpy  # padding knows nothing of its shapes yet
            or any(leaf.__class__ is RaggedArray for leaf in leaves)
        ):
            return None
        specs = [leaf._store.spec for leaf in leaves]
        if any(spec.eager for spec in specs):
            return None
        template = tuple([flatten(arg, ARRAYS, []) for arg in args])
        key = template, *[(len(spec.shape), spec.dtype, spec.ctx) for spec in specs]
        calls = callee.families.setdefault(key, {})
        shapes = tuple([spec.shape for spec in specs])
        call = calls.get(shapes)
        if call is None or call.form.changed():
            call = calls[shapes] = self._new_padded_call(callee.block, key, leaves)
        if call is None or not (call.pays or (self.pads and call.is_free(self, leaves))):
            return None
        return call

    def _new_padded_call(self, block, key, leaves) -> Optional[PaddedCall]:
        template, specs = key[0], [leaf._store.spec for leaf in leaves]
        shapes = tuple([spec.shape for spec in specs])
        with _tracing:
            first = _first_shapes.setdefault(block, {}).setdefault(key, shapes)
        if first == shapes:
            return None
        _first_shapes[block][key] = ()  # calls were seen that differ
        mutable = self._mutable_of(block)
        family = _types_of(block, self.mark_of(block)).setdefault(
            ('family', self.mode, *key), Family(first or shapes)
        )
        padded = family.padded_for(
            shapes, lambda: self._trace(block, template, leaves), self.mode.training
        )
        if padded is None:
            return None
        axes, mark = tuple(padded.axes.items()), self.mark_of(block)

        def of_block(specs: List[Spec]) -> Form:
            place = block, key, axes, *specs
            form = self.forms_by_key.get(place)
            if form is None or form.mutable is not mutable:
                form = self.forms_by_key[place] = self._form(
                    describe(block),
                    _types_of(block, mark),
                    (template, mark),
                    _rows(specs),
                    lambda: padded.graph,
                    padded=axes,
                )
                form.block, form.mutable = block, mutable
            return form

        return padded_call(padded, specs, self._operator_form, of_block)

    def _mutable_of(self, block) -> Optional[tuple]:
        """What its forms are to compare at each call (see `Form`)."""
        if block in self._mutables:
            mutable = self._mutables[block]
            if mutable is None or mutable[1] == contents(mutable[0]):
                return mutable
            self._fingerprints.pop(block, None)
        found = containers(block)
        self._mutables[block] = (found, contents(found)) if found else None
        return self._mutables[block]

    def _call_nested(self, block, args):
        """A call with containers, arrays or constants among its arguments."""
        leaves: List[Any] = []
        try:
            template = tuple(flatten(arg, ARRAYS, leaves) for arg in args)
        except TypeError as error:
            raise RecordError(
                f'{describe(block)} at {current_site()}: {brief(args)} has what is '
                f'neither an array nor a constant that can be compared ({error})'
            ) from None
        self._find_ctx(block)
        leaves = self.values(leaves)
        objects = [value for argument in template for value in objects_in(argument)]
        state = state_of(block, objects) if objects else ()
        key = (block, template, state, *map(_key, leaves))
        form = self.forms_by_key.get(key)
        if form is None or form.changed():
            form = self.forms_by_key[key] = self._resolve_block(block, template, leaves, state)
        return self.append_call(form, leaves)

    def operator(self, op: str, attrs: Tuple[Tuple[str, str], ...], args: Sequence[Any]) -> Any:
        """Record one operator of MXNet's registry.

        Parameters
        ----------
        op : str
            Its name in the registry.
        attrs : tuple of (str, str)
        args : sequence of arrays or numbers
        """
        shared = self.sharing.positions(op, args)
        arrays = [args[position] for position in shared]
        if arrays and self._ctx is None:
            self._ctx = arrays[0].ctx
        leaves = self.values(
            [arg for position, arg in enumerate(args) if position not in shared] if shared else args
        )
        if self.pads and not shared:
            padded = self._padded_operator(op, attrs, leaves)
            if padded is not None:
                return padded.record(self, leaves)
        key = (op, attrs, shared, *map(id, arrays), *map(_key, leaves))
        try:
            form = self.forms_by_key.get(key)
            if form is None:
                leaves, form = self._with_number(op, attrs, leaves) or (leaves, None)
            if form is None:
                form = self.forms_by_key[key] = self._resolve_operator(
                    op, attrs, leaves, shared, arrays
                )
            self.shared.update([(id(array), array) for array in arrays])
            return self.append_call(form, leaves)
        except RecordError:
            if not any(leaf.__class__ is RaggedArray for leaf in leaves):
                raise
        # Not for any number of values, but maybe for this one: as if they were stacked.
        return self.operator(
            op, attrs, [self._stacked(arg) if arg.__class__ is RaggedArray else arg for arg in args]
        )

    def _with_number(self, op, attrs, leaves) -> Optional[Tuple[List[NDArray], Form]]:
        """Arguments and form of a call whose number, an attribute, is an argument, as it varies;
        None if it does not, or if calls would not share a batch then."""
        rule = op_of(op).number
        if rule is None or len(leaves) != 1 or leaves[0].__class__ is RaggedArray:
            return None
        spec = leaves[0]._store.spec
        numbered = rule(Attrs(attrs), spec.shape, spec.dtype)
        if numbered is None or spec.ctx != self.ctx:
            return None
        key = op, numbered.rest, leaves[0]._store
        if not self._varying.setdefault(key, Varying(op, numbered.rest, spec)).varies(
            attrs, leaves[0]._id
        ):
            return None
        leaves = [leaves[0], self._numbers_of_rows(numbered, spec.rows)]
        form = self.forms_by_key.get(key)
        if form is None:
            form = self.forms_by_key[key] = self._resolve_numbered(op, numbered, leaves)
        return None if form.node_type.alone else (leaves, form)

    def _numbers_of_rows(self, numbered: Numbered, rows: int) -> LazyArray:
        """A number as a value, one for each row if need be."""
        rows = rows if numbered.each_row else 1
        if rows == 1 and numbered.dtype == SCALAR_DTYPE:
            return self.number(numbered.number)
        column = np.full((rows,), numbered.number, numbered.dtype)
        return self.known_array(spec_of(column.shape, numbered.dtype, self.ctx), column)

    def _padded_operator(self, op, attrs, leaves) -> Optional[PaddedCall]:
        """How to record an operator on what padded calls returned; None if it is not to be."""
        if any(leaf.__class__ is RaggedArray for leaf in leaves):
            return None
        known = [(i, self.padded.get(leaf._id)) for i, leaf in enumerate(leaves)]
        axes = tuple([(i, value.axes) for i, value in known if value is not None])
        if not axes or any(len(of_value) > 1 for _, of_value in axes):
            return None
        specs = [leaf._store.spec for leaf in leaves]
        key = ('padded', op, attrs, axes, *specs)
        if key not in self.forms_by_key:
            self.forms_by_key[key] = self._new_padded_operator(
                op, attrs, {position: axis for position, (axis,) in axes}, specs
            )
        return self.forms_by_key[key]

    def _new_padded_operator(self, op, attrs, axes, specs) -> Optional[PaddedCall]:
        shapes, pairs = [spec.shape for spec in specs], tuple(axes.items())
        alike = [
            (shape[: axes[i]] + shape[axes[i] + 1 :] if i in axes else shape, spec.dtype)
            for i, (shape, spec) in enumerate(zip(shapes, specs))
        ]
        key = ('padded', self.mode, op, attrs, pairs, *alike)
        padded = _operator_types.get(key)
        if padded is None:
            padded = padded_graph(
                trace_operator(op, attrs, len(specs)), shapes, axes, self.mode.training
            )
            with _tracing:
                _keep(_operator_types, key, padded)
        if not padded.takes(shapes):
            return None

        def of_call(specs: List[Spec]) -> Form:
            return self._form(
                op,
                _operator_types,
                (op, attrs, ()),
                _rows(specs),
                lambda: padded.graph,
                padded=pairs,
            )

        return padded_call(padded, specs, self._operator_form, of_call)

    def _stacked(self, ragged: RaggedArray) -> LazyArray:
        """A ragged argument as a value of its own, for operators that must know its length."""
        store, values = ragged._store, ragged.values()
        if not values:
            return self._array(
                np.zeros((store.shape[0], 1) + store.shape[1:], store.spec.dtype), fresh=True
            )
        return self.operator('stack', (('axis', '1'), ('num_args', str(len(values)))), values)

    def concat(self, args: Sequence[Any]) -> LazyArray:
        """Record that the rows of some values, one after the other, are a value."""
        args = list(args)
        store = self.common_store(args)
        if store is not None:
            return self.concat_call(
                self._concat_form(store.spec, store.spec.rows * len(args)), args
            )
        leaves = self._of_one_kind(self.values(args))
        arenas = {leaf._store.spec.arena for leaf in leaves}
        if len(arenas) != 1 or any(leaf.__class__ is RaggedArray for leaf in leaves):
            shapes = ', '.join(sorted(str(leaf._store.spec) for leaf in leaves))
            raise RecordError(
                f'values of different kinds cannot be put together along axis 0: '
                f'{shapes}\n  called at {current_site()}'
            )
        return self.concat_call(
            self._concat_form(leaves[0]._store.spec, sum(leaf._store.spec.rows for leaf in leaves)),
            leaves,
        )

    def _concat_form(self, spec: Spec, rows: int) -> Form:
        key = 'concat', spec.arena, rows
        form = self.forms_by_key.get(key)
        if form is None:
            like = self.forms_by_key.get(key[:2])
            if like is None:
                like = self.forms_by_key[key[:2]] = self._form(
                    'concat',
                    _operator_types,
                    ('concat rows', (), ()),
                    [(spec, Kind.FLAT)],
                    lambda: trace_operator('_copy', (), 1)._replace(name='concat'),
                )
            form = self.forms_by_key[key] = self.new_form(like.node_type, rows)
        return form

    def ragged(
        self,
        values: Sequence[Any],
        shape: Optional[Tuple[int, ...]] = None,
        dtype: Any = 'float32',
        ctx: Optional[mx.Context] = None,
    ) -> RaggedArray:
        """Any number of values as one argument (see `gluon_edbatch.ragged`)."""
        if not values:
            if shape is None:
                raise RecordError(
                    f'ragged() of no values needs their shape: ragged(values, '
                    f'shape=(1, hidden_size))\n  called at {current_site()}'
                )
            return RaggedArray(self.store(spec_of(shape, dtype, ctx or self.ctx)), [])
        store: Any = values[0]._store if values[0].__class__ is self.value_type else None
        ids = []
        for value in values:
            if value.__class__ is not self.value_type or value._store is not store:
                return self._ragged_of_any(values)
            ids.append(value._id)
        if store is not None and not store.shape:
            raise RecordError(
                f'ragged() takes values with rows, and got one with no axes: give '
                f'value.reshape(1)\n  called at {current_site()}'
            )
        return RaggedArray(store, ids) if store.recording is self else self._ragged_of_any(values)

    def _ragged_of_any(self, values) -> RaggedArray:
        for value in values:
            if not is_array(value):
                raise RecordError(
                    f'ragged() takes arrays, not {brief(value)}\n  called at {current_site()}'
                )
        values = self._of_one_kind(self.values(values))
        stores = {value._store for value in values}
        if len(stores) > 1:
            kinds = ', '.join(sorted(str(store.spec) for store in stores))
            raise RecordError(
                f'ragged() needs values of one shape, dtype and context, got '
                f'{kinds}\n  called at {current_site()}'
            )
        return RaggedArray(stores.pop(), [self.handed_out(value)._id for value in values])

    def _of_one_kind(self, values: Sequence[NDArray]) -> Sequence[NDArray]:
        """The values, all on the user's own tape (see `own_tape`) if one of them is."""
        if not any(value._store.spec.eager for value in values):
            return values
        return [value if value._store.spec.eager else self._eager_copy(value) for value in values]

    def _eager_copy(self, value: LazyArray) -> LazyArray:
        spec = value._store.spec
        key = 'eager copy', spec
        form = self.forms_by_key.get(key)
        if form is None:
            form = self.forms_by_key[key] = self._form(
                'copy',
                _operator_types,
                ('eager copy', (), ()),
                [(spec, Kind.ROWS)],
                lambda: trace_operator('_copy', (), 1)._replace(name='copy'),
                eager=True,
            )
        return self.append_call(form, [value])

    def append_call(self, form: Form, leaves: Sequence[NDArray]) -> Any:
        """One more call of this form, for these values; gives its results."""
        if form.lengths != ANY:
            form = self._form_for_lengths(form, leaves)
        for leaf in leaves:
            if leaf.__class__ is not RaggedArray:
                self.node_args.append(leaf._id)
        for leaf in leaves:
            if leaf.__class__ is RaggedArray:
                self.node_lengths.append(len(leaf._ids))
                for value in leaf._ids:
                    self.node_args.append(value)
        return self.finish_call(form)

    def is_weight(self, arg: Any) -> bool:
        """Whether operators share this argument."""
        return arg.__class__ in PLAIN_OR_GUARDED and self.sharing.is_weight(arg)

    def touched(self) -> None:
        """An array that calls read may change: look at all of them again for later calls."""
        for known in self._modes.values():
            for forms in known:
                forms.clear()
        self.adopted.clear()
        self.trusted.clear()

    def store(self, spec: Spec, scalar: bool = False) -> Store:
        """See the base class."""
        key = (spec,) if scalar else spec
        store = self._stores.get(key)
        if store is None:
            store = self._stores[key] = Store(self, spec, () if scalar else spec.shape)
            self._all_stores.append(weakref.ref(store))
        return store

    def update_mode(self) -> None:
        """Look at autograd's state again; calls recorded in different states differ in type."""
        self.mode = Mode(
            autograd.is_recording(), autograd.is_training(), self.value_type is not LazyArray
        )
        self.taped = self.mode.recording
        self.forms_by_key, self.callees = self._modes.setdefault(self.mode, ({}, {}))

    def forget_blocks(self) -> None:
        """Some block's attributes changed: look at all of them again."""
        self.disturbances += 1
        self.touched()
        self._fingerprints.clear()
        self._mutables.clear()

    # --- from a call to its type -----------------------------------------------------------------

    def _resolve_block(self, block, template, leaves, state: Fingerprint = ()) -> Form:
        try:
            mark = self._fingerprints[block] = fingerprint(block)
            form = self._form(
                describe(block),
                _types_of(block, mark),
                (template, mark + state),
                list(map(_spec_and_kind, leaves)),
                lambda: self._trace(block, template, leaves),
                scalars=_scalars(leaves),
            )
            found = containers(block)
            form.block = block
            form.mutable = (found, contents(found)) if found else None
            return form
        except EdbError as error:
            raise type(error)(f'{error}\n  called at {current_site()}') from error.__cause__

    def _trace(self, block, template, leaves):
        try:
            with suspended():
                graph = trace_block(block, template, len(leaves))
            self._fingerprints[block] = fingerprint(block)  # a first run may set it up
            return graph
        except EdbError:
            raise
        except NotImplementedForSymbol as error:
            raise RecordError(
                f'{describe(block)} looks at the contents of an array (if, while, bool(), '
                f'asnumpy(), …) at {site_of_error(error)}, and cannot be traced as a static '
                'subgraph: choose by F.where(condition, one, other), or put the if into the '
                f'forward() of a gluon.Block, which runs for each sample ({error})'
            ) from error
        except Exception as error:
            specs = ', '.join(str(leaf._store.spec) for leaf in leaves)
            raise RecordError(
                f'{describe(block)} cannot be traced as a static subgraph with '
                f'({specs}): {type(error).__name__}: {error}'
            ) from error

    def _find_ctx(self, block, args: Sequence[Any] = ()) -> None:
        """Before numbers of a first call get a context: that of the block's parameters, or else of
        an array."""
        if self._ctx is None:
            found = next(contexts(block), ())
            if len(found) == 1:
                self._ctx = found[0]
            elif not found:
                arrays = (device_of(arg) for arg in args if isinstance(arg, NDArray))
                self._ctx = next(arrays, None)

    def _resolve_operator(self, op, attrs, leaves, shared, arrays) -> Form:
        weights, types = _shared_types.of(op, shared, arrays) if shared else ((), _operator_types)
        if shared:
            attrs = tuple([(key, value) for key, value in attrs if key != 'sparse_grad'])
        try:
            return self._form(
                op,
                types,
                (op, attrs, shared),
                list(map(_spec_and_kind, leaves)),
                lambda: trace_operator(op, attrs, len(leaves), dict(zip(shared, weights))),
                scalars=_scalars(leaves),
            )
        except EdbError as error:
            raise type(error)(f'{error}\n  called at {current_site()}') from error.__cause__

    def _resolve_numbered(self, op: str, numbered: Numbered, leaves) -> Form:
        try:
            return self._form(
                op,
                _operator_types,
                (op, numbered.rest + ((numbered.name, 'data'),), ()),
                list(map(_spec_and_kind, leaves)),
                lambda: trace_numbered(op, numbered)._replace(
                    scalars=(not leaves[0]._store.shape,)
                ),
                scalars=_scalars(leaves),
            )
        except EdbError as error:
            raise type(error)(f'{error}\n  called at {current_site()}') from error.__cause__

    def _operator_form(self, name, attrs, spec: Spec, trace) -> Form:
        """Of an operator that is none of MXNet's."""
        key = name, attrs, spec
        form = self.forms_by_key.get(key)
        if form is None:
            form = self.forms_by_key[key] = self._form(
                name, _operator_types, key[:2] + ((),), _rows([spec]), trace
            )
        return form

    def _form(
        self, name, types, head, specs, trace, scalars: Tuple[int, ...] = (), **facts
    ) -> Form:
        contexts = {spec.ctx for spec, _ in specs}
        if len(contexts) > 1:
            raise RecordError(
                f'{name} got arguments on different contexts: '
                f'{", ".join(sorted(map(str, contexts)))}'
            )
        rows = {spec.rows for spec, _ in specs}
        aligned = head + (
            self.mode,
            self.options,
            tuple((spec.arena, kind) for spec, kind in specs),
            scalars,
            *facts.items(),
        )
        exact = aligned + (tuple(spec.rows for spec, _ in specs),)
        with _tracing:  # two threads get the same type
            node_type = types.get(exact) or (types.get(aligned) if len(rows) == 1 else None)
            if node_type is None or not node_type.fits():
                node_type = make_type(
                    trace(),
                    self.mode,
                    specs,
                    contexts.pop(),
                    self.options,
                    head,
                    scalars=scalars,
                    **facts,
                )
            only = node_type.alone or node_type.whole or any(node_type.graph.scalars)
            _keep(types, exact if only else aligned, node_type)
        for parameter in node_type.parameters:
            self._watch(name, parameter, node_type.ctx)
        form = self.new_form(node_type, 1 if node_type.whole else specs[0][0].rows)
        if form.lengths != ANY:
            self._by_length[form.index] = types, head, specs
        return form

    def _watch(self, name, parameter, ctx) -> None:
        """Keep a parameter's values at hand; those of the calls of one scope must be the same."""
        key, array = (id(parameter), ctx), parameter.data(ctx)
        watched = self.parameters.get(key)
        if watched is None or not self.any_left():
            self.parameters[key] = Watched(array, self.touched)
            self._known_parameters.add((parameter, ctx))
        elif watched.array is not array or watched.copy is not None:
            before, now = watched.values(), detached(array)
            if (
                before.dtype != now.dtype
                or before.ctx != now.ctx
                or not np.array_equal(before.asnumpy(), now.asnumpy())
            ):
                raise RecordError(
                    f'parameter {parameter.name} of {name} was changed between two recorded calls '
                    f'that use it; evaluate the earlier ones (gluon_edbatch.forward) first'
                )
            if watched.array is array:
                watched.watch_again()

    def known_form_for_lengths(self, form: Form, args: Sequence[Any]) -> Optional[Form]:
        """`form` if padding changes nothing in this call, else the one for calls with its lengths;
        None if there was none such yet or `args` are not values and numbers alone."""
        for arg in args:
            if not isinstance(arg, (LazyArray, int, float)):
                return None
        node_type = form.node_type
        if node_type.neutral:
            for one, other in node_type.linked:
                if len(args[one]._ids) != len(args[other]._ids):
                    break
            else:
                return form
        return self.forms_by_key.get((form.index, _lengths_of(args)))

    def _form_for_lengths(self, form: Form, args: Sequence[Any]) -> Form:
        """The same, made if needed."""
        exact = self.known_form_for_lengths(form, args)
        if exact is None:
            lengths = _lengths_of(args)
            types, head, specs = self._by_length[form.index]
            key = head + (self.mode, self.options, tuple(specs), lengths)
            node_type = types.get(key)
            if node_type is None:
                try:
                    node_type = make_type(
                        form.node_type.graph,
                        self.mode,
                        specs,
                        form.node_type.ctx,
                        self.options,
                        head,
                        lengths,
                    )
                except EdbError as error:
                    raise type(error)(f'{error}\n  called at {current_site()}') from None
                node_type = types.setdefault(key, node_type)
            exact = self.forms_by_key[form.index, lengths] = self.new_form(
                node_type, form.rows, form.block, form.mutable
            )
        return exact

    def mark_of(self, block: Optional[gluon.Block]) -> Any:
        """The fingerprint of a block, which it must have until its calls are evaluated."""
        mark = None if block is None else self._fingerprints.get(block)
        if mark is None and block is not None:
            mark = self._fingerprints[block] = fingerprint(block)
        return mark

    def trust(self, node_type: NodeType, block: Optional[gluon.Block]) -> None:
        """Calls of this type, recorded elsewhere, will be appended."""
        if block is not None:
            self._find_ctx(block)
            for parameter in node_type.parameters:
                self._watch(describe(block), parameter, node_type.ctx)
        self.trusted.add(node_type)

    def new_form(
        self,
        node_type: NodeType,
        rows: int,
        block: Optional[gluon.Block] = None,
        mutable: Optional[tuple] = None,
    ) -> Form:
        """A form of calls of this type with so many rows."""
        specs = node_type.output_specs(rows)
        scalars = node_type.graph.scalars or (False,) * len(specs)
        stores = [self.store(*output) for output in zip(specs, scalars)]
        form = Form(len(self.forms), node_type, rows, stores)
        form.block, form.mutable = block, mutable
        self.forms.append(form)
        self.form_summaries.append(
            (
                node_type.serial,
                rows,
                form.outputs,
                sum([argument.kind is not Kind.ROWS for argument in node_type.arguments]),
                node_type.mode.recording,
            )
        )
        self.output_rows += [store.spec.rows for store in stores]
        return form

    # --- for later stages ------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise if a parameter got another array while the scope was recording."""
        for parameter, ctx in self._known_parameters:
            watched = self.parameters[id(parameter), ctx]
            if not any(array is watched.array for array in arrays_of(parameter)):
                self.replaced = parameter.name
                break

    def _check_fingerprints(self) -> None:
        """Note if what blocks read was changed while the scope was recording. Once it is left, what
        is recorded depends on blocks no more."""
        for block, mark in self._fingerprints.items():
            now = fingerprint(block)
            if now != mark:
                self.changed_block = f'{", ".join(changed(mark, now))} of {describe(block)}'
                break

    def check_blocks(self) -> None:
        """Raise if blocks or parameters are not what they were when calls were recorded."""
        if not self.closed:
            self._check_parameters()
            self._check_fingerprints()
        if self.replaced is not None:
            raise RecordError(
                f'parameter {self.replaced} got a new array (by initialize, cast, reset_ctx, '
                f'grad_req, …) while a scope was recording calls that use it; evaluate them '
                f'(gluon_edbatch.forward) or leave the scope first'
            )
        if self.changed_block is not None:
            raise RecordError(
                f'{self.changed_block} was changed while a scope was recording calls that read it; '
                f'change it before the scope or after it'
            )

    def site_of_use(self, value: int) -> Site:
        """The user's line of the first call that reads this value."""
        first = np.flatnonzero(self.node_args.since(0) == value)[0]
        return self.site(int(np.searchsorted(self.node_ends.since(0), first, side='right')))

    def site(self, node: int) -> Site:
        """The user's line that recorded this call."""
        return site_of(user_codes[self.node_codes[node]], self.node_instructions[node])

    def _release(self) -> None:
        for watched in self.parameters.values():
            watched.release()
        for _, given in self.arrays:
            if isinstance(given, GivenArray) and isinstance(given.values, Watched):
                given.values.release()

    def close(self, error: Optional[BaseException] = None) -> None:
        """End recording; after an exception, the values cannot be used any more."""
        self._check_parameters()
        if error is None:
            self._check_fingerprints()
        self.closed = True
        for form in self.forms:
            form.release()
        for kept in (
            self._large,
            self._small,
            self._read,
            self.constants,
            self._kinds,
            self._modes,
            self.forms_by_key,
            self.callees,
            self.adopted,
            self.trusted,
            self._stores,
            self._varying,
            self._mutables,
            self.padded,
            self.shared,
        ):
            kept.clear()
        self.sharing = Sharing()
        self._numbers = None
        if error is not None:
            self.error = f'{type(error).__name__} in the scope that {current_site()} left'
            self._release()
        else:
            self.finish_if_done()

    def flush(self, wanted: Optional[np.ndarray] = None) -> None:
        """Compute the values `wanted`, or all."""
        self.check_alive()
        if not self.closed and threading.get_ident() != self.thread:
            raise RecordError(
                f'{current_site()} needs a value of a batching scope that another '
                f'thread is still recording; wait until it has left the scope'
            )
        with numpy_shapes(self.mode.numpy):
            self.evaluator.run(self, wanted)

    def stores(self) -> List[Store]:
        """The stores that values refer to."""
        stores = [reference() for reference in self._all_stores]
        return [store for store in stores if store is not None]

    def any_left(self) -> bool:
        """Whether calls wait."""
        return sum(map(len, self.ran)) < len(self.node_forms)

    def finish_if_done(self) -> None:
        """If nothing is left to run, keep nothing but the results that values refer to, and let
        these live without the recording."""
        if not self.any_left():
            self.results.clear()
            self._release()
            for store in self.stores():
                store.recording = None

    def knows_autograd(self) -> bool:
        """Whether some of what it records may be on a tape; asked while it is recording."""
        return any(mode.recording for mode in self._modes)

    def will_read(self, value: int) -> bool:
        """Whether calls that are recorded, but did not run yet, read this value."""
        if not self.closed:
            return False
        if self._read_later[0] != len(self.ran):
            self._read_later = len(self.ran), self._read_by_those_left()
        return value in self._read_later[1]

    def _read_by_those_left(self) -> FrozenSet[int]:
        left = np.ones(len(self.node_forms), bool)
        for calls in self.ran:
            left[calls] = False
        counts = np.diff(self.node_ends.since(0), prepend=0)
        return frozenset(self.node_args.since(0)[np.repeat(left, counts)].tolist())

    def check_alive(self) -> None:
        """Raise if an exception ended this recording."""
        if self.error is not None:
            raise StaleValueError(
                f'this value was recorded in a gluon_edbatch.batching() scope '
                f'that an exception left ({self.error}), so it was never '
                f'computed; record it again'
            )


def _types_of(block: gluon.Block, mark: Fingerprint) -> Dict[tuple, Any]:
    """The types of a block's calls as long as it has this fingerprint."""
    with _tracing:
        marks = _block_types.setdefault(block, OrderedDict())
        types = marks.setdefault(mark, {})
        marks.move_to_end(mark)
        if len(marks) > _MOST_FINGERPRINTS:
            marks.popitem(last=False)
        return types


def _keep(types: Dict[tuple, Any], key: tuple, node_type: Any) -> None:
    """Know a type as the one used last; if there are too many, the older half goes."""
    types.pop(key, None)
    types[key] = node_type
    if len(types) > _MOST_TYPES:
        for old in list(types)[: -_MOST_TYPES // 2]:
            del types[old]


def _same(result: Any, other: Any) -> bool:
    """Whether two results of operators are the same values in the same structure."""
    if result.__class__ is not other.__class__:
        return False
    if result.__class__ in (list, tuple):
        return len(result) == len(other) and all(map(_same, result, other))
    return result.__class__ in VALUES and result._id == other._id


def _lengths_of(args: Sequence[Any]) -> Tuple[int, ...]:
    return tuple([len(arg._ids) for arg in args if arg.__class__ is RaggedArray])


def _rows_of(leaves: Sequence[Any]) -> Set[int]:
    return {leaf._store.spec.rows for leaf in leaves if isinstance(leaf, LazyArray)}


def _but_for_rows(kinds: Sequence[Any]) -> tuple:
    """What calls have in common that differ in rows only."""
    return tuple(
        [kind.spec.arena if kind.__class__ is Store and kind.shape else kind for kind in kinds]
    )


def _key(leaf: LazyArray) -> object:
    return leaf._store.ragged if leaf.__class__ is RaggedArray else leaf._store


def _scalars(leaves: Sequence[LazyArray]) -> Tuple[int, ...]:
    """Which of them have no axes for users."""
    return tuple([position for position, leaf in enumerate(leaves) if not leaf._store.shape])


def _rows(specs: Sequence[Spec]) -> List[Tuple[Spec, Kind]]:
    return [(spec, Kind.ROWS) for spec in specs]


def _spec_and_kind(leaf: LazyArray) -> Tuple[Spec, Kind]:
    return leaf._store.spec, Kind.RAGGED if leaf.__class__ is RaggedArray else Kind.ROWS
