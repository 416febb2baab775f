"""The recording of a scope: append-only lists, two or three appends per call."""

import sys
import threading
from collections.abc import Sequence
from operator import is_
from typing import Any, Optional, Union
from weakref import WeakMethod

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import ControlFlowError, RecordError, StaleValueError
from gluon_edbatch_core.recorded_columns import Ints, Locations
from gluon_edbatch_core.short_repr import brief

from ..mx.modes import numpy_shapes
from ..mx.mutation_guard import release_all
from ..mx.ndarray_memory import node_offset
from ..ops import op_of
from ..subgraph.empty import WithoutValues
from ..subgraph.fingerprint import exact, state_of
from ..subgraph.node_type import NodeType
from ..subgraph.options import CompileOptions
from ..subgraph.spec import ArenaKey, spec_of
from ..subgraph.structure import flatten, objects_in, unflatten
from ..subgraph.trace import describe
from . import control_flow
from .calls import ANY, Form, Nothing, Number, Prefix, Ragged, constant_key
from .each import for_each, holds_each
from .element_calls import element_calls, rearranged, stacked, store_of_stacked, taken
from .expressions import (
    EXPRESSIONS,
    FUSED,
    ExpressionArray,
    fused,
    fused_again,
    fused_kind,
    rows_that_differ,
)
from .families import form_of_pairs, packed_block_call, packed_operator_call
from .forms import Forms, key_of
from .function_calls import function_called
from .hooks import suspended
from .inputs import ARRAYS, SCALAR_DTYPE
from .lazy import HAND_ON, VALUES, EmptyArray, RaggedArray
from .operator_dispatch import operator_called
from .packed import (
    but_for_lengths,
    known_packed,
    packed_before,
    packed_beside,
    packed_value,
    unpacked,
)
from .refused import current_model_call, refused_call
from .remembered import remember
from .scalar_promotion import Varying, with_number, words_of_sentence
from .several import concat, concat_form, form_of_any_number, ragged_unknown
from .shared import Sharing
from .sites import current_site
from .stores import Arena, EagerArena, Store

_MOST_EXPRESSIONS = 4096


class Recording(Forms):
    """The calls of one scope and their values; methods for what is done once, or once a
    signature."""

    operator_called = operator_called
    function_called = function_called
    fused_again = fused_again
    # what a value is in another form
    packed_value = packed_value
    stacked = stacked
    concat = concat
    concat_form = concat_form
    ragged_unknown = ragged_unknown
    taken = taken

    def __init__(self, evaluator: Any, ctx: Optional[mx.Context], options: CompileOptions):
        super().__init__(ctx, options)
        self.when_touched = WeakMethod(self.touched)
        self.evaluator = evaluator
        self.locations = Locations()
        self.ran: list[np.ndarray] = []  # numbers of the calls of each evaluation
        self.left_out = 0  # calls that compute partial sums, which nobody has asked for
        self._sums: dict[int, int] = {}  # forms of sums, by those of additions
        # By evaluation; empty once nothing is left to run.
        self.results: dict[int, dict[ArenaKey, Union[Arena, EagerArena]]] = {}
        self._read_later: tuple[int, frozenset[int]] = (-1, frozenset())  # see `will_read`
        self.error: Optional[str] = None
        self.is_over = False  # whether no call is left that reads parameters
        self.stacked_values: dict[tuple, tuple[Store, int]] = {}  # see `elements.stacked`
        self.varying: dict[tuple, Varying] = {}
        self.joined: Optional[tuple] = None  # the last call of an operator that was fused
        # The last call of an operator that was recorded on its arguments as they are: its form, and
        # by id, which keeps nothing, these arguments and the result.
        self._plain: Optional[tuple] = None
        self.expressions: list[ExpressionArray] = []  # those that were not recorded yet
        # of calls that other recordings recorded (see replay.py): forms of their kinds, and types
        self.adopted: dict[Any, Ints] = {}
        self.trusted: set[NodeType] = set()
        self.disturbances = 0  # how often a block's attributes were set
        with suspended():
            self._node_at = node_offset()

    # --- calls that are not as plain as those in calls.py ----------------------------------------

    def call_unknown(self, callee, args):
        """Record a call whose form the search in calls.py does not find; return its results."""
        if callee.block is None:
            return self._operation_unknown(callee, args)
        if holds_each(args):
            return for_each(callee.block, args)
        for arg in args:
            if arg.__class__ in EXPRESSIONS:
                arg.recorded()  # and is a value from now on
        try:
            return self._static_or_not(callee, args)
        except Exception as error:
            message = refused_call(callee.block, args, error, current_model_call())
            if message is None:
                raise
            raise RecordError(f'{message}\n  called at {current_site()}') from error

    def _static_or_not(self, callee, args):
        """Record a block's call as one call, or operator by operator if it has control flow."""
        if callee.block not in control_flow.found:
            try:
                return self._block_unknown(callee, args)
            except ControlFlowError:
                pass  # as of now the block is among those
        return control_flow.call_operators(self, callee.block, args)

    def _block_unknown(self, callee, args):
        block, childless = callee.block, False
        if self._ctx is None:
            self.find_ctx(block, args)
        if callee.children and len(args) == 2:
            x, children = args
            args = (x, *block.ragged_children(x, children))
            childless = not children
        described = self.describe(callee, args)
        if described is None:
            return self._call_nested(block, args)
        kinds, leaves = described
        if childless:
            kinds[-2 * callee.children :] = (Ragged, Nothing) * callee.children
        values = [self.number(leaf) if leaf.__class__ in (int, float) else leaf for leaf in leaves]
        if callee.changed():
            callee.first = self.root_of(callee)
        key = but_for_lengths(kinds)
        packed = packed_before(self, callee, key)
        if packed is not None:
            found = packed.record(self, values, callee)
            if found is not None:
                packed.find_again(self, callee, kinds, values)
                return found
        template = tuple([flatten(arg, ARRAYS, []) for arg in args])
        packed = packed_block_call(self, callee, template, values)
        found = None if packed is None else packed.record(self, values, callee)
        if packed is not None and found is not None:
            callee.first = self.root_of(callee, packed.node_type.made_with[1])
            remember(callee.first.packed, key, packed)
            return found
        if any([value._store.packed for value in values]):
            return self._block_unknown(callee, tuple(unpacked(self, args)))
        form = self.forms_at.get(callee.first.after_all(kinds))
        if form is None or form.changed():
            form = self.form_of_block(block, template, values)
            self._without_values(form, values)  # or raise before others find it
            callee.first = self.root_of(callee, form.node_type.made_with[1])
            self.put_form(callee.first.after_all(kinds), form)
            if packed is None:  # however often it comes
                self.remember(callee, kinds, form)
        if form.lengths != ANY:
            found = self._call_of_sentences(callee, args, form, values)
            if found is not None:
                return found
        return self.append_call(form, values)

    def _call_of_sentences(self, callee, args, form: Form, values) -> Any:
        """Record a block's call, for whose lengths there is no other type, on ragged arguments as
        packed sentences; None if that is not possible."""
        stores = [
            store_of_stacked(self, each) if isinstance(each, RaggedArray) else each._store
            for each in values
        ]
        if (
            form.node_type.neutral
            or None in stores
            or self.known_form_for_lengths(form, values) is not None
            or self._by_elements(form, values, False)
        ):
            return None
        template = tuple([flatten(arg, ARRAYS, []) for arg in args])
        shown = [self.value_type(store, 0) for store in stores]
        call = packed_block_call(self, callee, template, shown)
        if call is None:
            return None
        return call.record(self, [stacked(self, each) for each in values], callee)

    def fused_operation(self, callee, args) -> Any:
        """Call MXNet's function of an operator on arguments that are not all values. If it fuses an
        operator with them, and returns the result, later calls skip the function."""
        self.joined = self._plain = None
        result = callee.function(*args, **callee.options)
        self._learn_to_fuse(callee, args, result)
        self._learn_plain(callee, args, result)
        return result

    def _learn_plain(self, callee, args, result) -> None:
        """Let the search find an operator's calls on ragged arguments of these kinds, if this one
        was recorded as a form on these arguments."""
        if self._plain is None or callee.first is None:
            return
        form, *places = self._plain
        if places == [*map(id, args), id(result)]:
            described = self.describe(callee, args)
            if described is not None and not _none_among(args):
                self.put_form(callee.first.after_all(described[0]), form)

    def _learn_to_fuse(self, callee, args, result) -> None:
        if self.joined is not None and self.joined[-1] is result and not callee.shared:
            op, attrs, of, _ = self.joined
            apart = len({*map(id, args)}) == len(args)  # else their order is unknown
            if apart and len(of) == len(args) and all(map(is_, of, args)):
                if len(FUSED) >= _MOST_EXPRESSIONS:
                    FUSED.clear()
                FUSED[(callee.place, *map(fused_kind, args))] = callee.joined = op, attrs
        self.joined = None  # which would keep the values

    def fused_before(self, place, args) -> Optional[tuple[str, tuple]]:
        """Return how an operator was fused in an earlier scope, on arguments like these."""
        return FUSED.get((place, *map(fused_kind, args)))

    def _operation_unknown(self, callee, args):
        """Run MXNet's function of an operator and see what it records. If that is one call of these
        arguments whose results it returns, later calls skip the function."""
        self.joined = None
        packed = known_packed(self, callee, args)
        if packed is not None:
            found = packed.record(self, args, callee)
            if found is not None:
                packed.find_again(self, callee, [arg._store.token for arg in args], args)
                return found
        calls, values, base = len(self.node_forms), len(self.node_args), self.next_value
        every = list(args)
        for position, array in callee.shared:
            every.insert(position, array)
        result = callee.function(*every, **callee.options)
        self._learn_to_fuse(callee, every, result)
        if len(self.node_forms) == calls + 1:
            form = self.forms[self.node_forms[calls]]
            if form.lengths == ANY and _same(result, form.results(base)):
                read = self.node_args.since(values).tolist()
                self._learn_signature(callee, args, read, form)
        return result

    def _learn_signature(self, callee, args, read: Sequence[int], form: Form) -> None:
        """Let later calls of an operator be recorded as this one, which reads these values."""
        if form.length and callee.function in HAND_ON and read == [args[0]._id]:
            packed = self.forms_by_key.get(('packed', *form.node_type.made_with, args[0]._store))
            if packed is not None:
                kinds = [arg._store.token for arg in args]
                remember(callee.first.packed, but_for_lengths(kinds), packed)
                packed.find_again(self, callee, kinds, args)
                return  # a node for this length would hide that for any length
        prefix = self._prefix_of(callee, args, read)
        if prefix is not None:
            self.put_form(prefix, form)
            if self._is_to_be_remembered(callee, args, form):
                self.remember(callee, [arg._store.token for arg in args], form)

    def _is_to_be_remembered(self, callee, args, form: Form) -> bool:
        """Return whether the kinds of its arguments alone decide about an operator's form. Varying
        numbers, shared arrays and packing depend on more."""
        return (
            not callee.shared
            and op_of(form.node_type.made_with[0]).number is None
            and all([arg.__class__ is self.value_type and not arg._store.packed for arg in args])
        )

    def _prefix_of(self, callee, args, read: Sequence[int]):
        """Return the search node for an operator's call that reads these values; make it if needed.
        None if the values are not `args`, with or without the numbers among them."""
        as_values = len(read) == len(args)
        prefix, left = callee.first, iter(read)
        for arg in args:
            if arg.__class__ is self.value_type:
                if next(left, None) != arg._id:
                    return None
                prefix = prefix.make(arg._store.token)
                continue
            constants = self.constants_at.setdefault(prefix, {})
            if not as_values:
                prefix = constants.setdefault(constant_key(arg), Prefix())
            elif self._is_number(next(left), arg):
                prefix = prefix.make(Number)
            else:
                return None
        return prefix if next(left, None) is None else None

    def _is_number(self, value: int, number: float) -> bool:
        """Return whether a value is a recorded number and equals `number`."""
        if value >= 0 or value % 2 == 0:
            return False
        return exact(self.scalars[(-value - 1) // 2]) == exact(float(number))

    def _call_nested(self, block, args):
        """Record a block's call with containers, arrays or constants among its arguments."""
        leaves: list[Any] = []
        try:
            template = tuple(flatten(arg, ARRAYS, leaves) for arg in args)
        except TypeError as error:
            raise RecordError(
                f'{describe(block)} at {current_site()}: {brief(args)} has what is '
                f'neither an array nor a constant that can be compared ({error})'
            ) from None
        self.find_ctx(block)
        leaves = unpacked(self, self.values(leaves))
        objects = [value for argument in template for value in objects_in(argument)]
        state = state_of(block, objects) if objects else ()
        key = (block, template, state, *map(key_of, leaves))
        form = self.forms_by_key.get(key)
        if form is None or form.changed():
            form = self.forms_by_key[key] = self.form_of_block(block, template, leaves, state)
        return self.append_call(form, leaves)

    def operator(
        self, op: str, attrs: tuple[tuple[str, str], ...], args: Sequence[Any], fuses: bool = True
    ) -> Any:
        """Record a call of an operator, by its name in MXNet's registry, on arrays and numbers. It
        may become part of an expression if it `fuses`."""
        if any([arg.__class__ in EXPRESSIONS for arg in args]):
            found = fused(self, op, attrs, args)
            if found is not None:
                return found
        shared = self.sharing.positions(op, args)
        arrays = [args[position] for position in shared]
        if arrays and self._ctx is None:
            self._ctx = arrays[0].ctx
        leaves = self.values(
            [arg for position, arg in enumerate(args) if position not in shared] if shared else args
        )
        if any(leaf._store.packed for leaf in leaves):
            leaves = [stacked(self, leaf) for leaf in leaves]
            words = None if shared else words_of_sentence(self, op, attrs, leaves)
            if words is not None:
                return words
            of_pairs = None if shared else form_of_pairs(self, op, attrs, leaves)
            if of_pairs is not None:
                return self.append_call(of_pairs, leaves)
            for given in (packed_beside(self, leaves), leaves):
                packed = packed_operator_call(self, op, attrs, given, shared, arrays)
                if packed is not None:
                    leaves = given
                    break
            joins = fuses and not shared
            found = None
            if packed is not None and not (joins and packed.of_pairs):
                found = packed.record(self, leaves)
            if found is None and joins:
                found = fused(self, op, attrs, leaves)
            if found is None and packed is not None and packed.of_pairs:
                found = packed.record(self, leaves)
            if found is not None:
                return found
            leaves = unpacked(self, leaves)
        moved = None if shared else rearranged(self, op, attrs, leaves)
        if moved is not None:
            return moved
        key = (op, attrs, shared, *map(id, arrays), *map(key_of, leaves))
        try:
            form = self.forms_by_key.get(key)
            if form is None:
                leaves, form = with_number(self, op, attrs, leaves) or (leaves, None)
            if form is None:
                form = self.forms_by_key[key] = self.form_of_operator(
                    op, attrs, leaves, shared, arrays
                )
            self.shared.update([(id(array), array) for array in arrays])
            if fuses and form.node_type.whole and not (shared or form.node_type.joins_rows):
                matrices = rows_that_differ(op, attrs, leaves)
                found = fused(self, op, attrs, leaves, matrices) if matrices else None
                if found is not None:
                    return found
            if form.lengths == ANY or form.node_type.neutral or op == 'Reshape' or shared:
                found = self.append_call(form, leaves)
            else:
                found = self._by_elements(form, leaves)
            if found is not None:
                if not (form.node_type.whole or op == 'Reshape'):
                    self._plain = form, *map(id, leaves), id(found)
                return found
        except RecordError:
            if not any(isinstance(leaf, RaggedArray) for leaf in leaves):
                raise
            form = None
        found = fused(self, op, attrs, args) if fuses else None
        if found is not None:
            return found
        if form is not None and _none_among(leaves):
            return self.append_call(form, leaves)
        # Not for any number of values, but maybe for this one: as if they were stacked.
        return self.operator(op, attrs, [stacked(self, arg) for arg in args])

    def append_call(self, form: Form, leaves: Sequence[NDArray]) -> Any:
        """Record one call of this form on these values; return its results."""
        emptied = self._without_values(form, leaves)
        if form.lengths != ANY:
            found = self._by_elements(form, leaves)
            if found is not None:
                return found
            if emptied is not None and all(emptied.axes):
                specs = [store.spec for store in form.stores]
                results = [EmptyArray(self, *each) for each in zip(specs, emptied.axes)]
                return unflatten(form.template, iter([results[leaf] for leaf in form.leaves]))
            base = self.next_value
            return self.append_by_length(form, leaves).results(base)
        self.append_arguments(leaves)
        return self.finish_call(form)

    def _without_values(self, form: Form, leaves: Sequence[NDArray]) -> Optional[WithoutValues]:
        """Return what a call gives if a ragged argument has no values, or None if all have some.
        Raise if that is unknown."""
        empty = _none_among(leaves)
        if not empty or form.node_type.lengths is not None:
            return None
        try:
            return form.node_type.without_values(empty)
        except RecordError as error:
            raise RecordError(f'{error}\n  called at {current_site()}') from None

    def _by_elements(self, form: Form, leaves: Sequence[NDArray], record: bool = True) -> Any:
        """Return the results of a call recorded for each ragged value, or whether it can be; None
        if that differs."""
        if form.elements is None:
            calls = element_calls(self, form, *self.by_length[form.index])
            form.elements = False if calls is None else calls
        if form.elements and form.elements.fit(leaves):
            return form.elements.record(self, form, leaves) if record else True
        return None

    def append_by_length(self, form: Form, leaves: Sequence[NDArray]) -> Form:
        """Record a call that padding may change; return the form of calls with its lengths."""
        form = self.form_for_lengths(form, leaves)
        self.append_arguments(leaves)
        self.finish_call(form)
        return form

    def touched(self) -> None:
        """Forget the arguments seen so far, as an array that calls read may change."""
        for known in self._modes.values():
            for forms in known:
                forms.clear()
        self.forget_signatures()
        self.adopted.clear()
        self.trusted.clear()
        self.watched.clear()

    def forget_blocks(self) -> None:
        """Forget what is known of blocks, as an attribute of one was set."""
        self.disturbances += 1
        self.touched()
        self.model.forget_blocks()

    def trust(self, node_type: NodeType, block: Optional[gluon.Block]) -> None:
        """Accept calls of this type from other recordings; watch the block's parameters."""
        if block is not None:
            self.find_ctx(block)
            self.model.watch(self, describe(block), node_type)
        self.trusted.add(node_type)

    # --- for later stages ------------------------------------------------------------------------

    def check_blocks(self) -> None:
        """Raise if blocks or parameters have changed since calls were recorded."""
        if not self.closed:
            self.model.look_at_parameters()
            self.model.look_at_blocks()
        self.model.check()

    def _release(self) -> None:
        self.model.release()
        release_all(self.guards)

    def keep_expression(self, value: ExpressionArray) -> None:
        """Remember a value, which is recorded as the scope ends if somebody still refers to it."""
        kept = self.expressions
        kept.append(value)
        if len(kept) % _MOST_EXPRESSIONS == 0:  # of many, most are gone
            self.expressions = [each for each in kept if _is_held(each, 4)]

    def _record_held(self) -> None:
        expressions = self.expressions
        while expressions:
            value = expressions.pop()
            if _is_held(value, 3) and 0 not in value.shape:
                value.recorded()

    def close(self, error: Optional[BaseException] = None) -> None:
        """End recording; after an exception, the values cannot be used any more."""
        self.joined = None
        if error is None:
            self._record_held()
        self.expressions.clear()
        self.model.look_at_parameters()
        if error is None:  # what is recorded depends on blocks no more
            self.model.look_at_blocks()
        self.model.forget_blocks()
        self.closed = True
        for form in self.forms:
            form.release()
        for kept in (
            self._large,
            self._small,
            self._met,
            self._read,
            self.constants,
            self._modes,
            self.forms_by_key,
            self.callees,
            self.adopted,
            self.trusted,
            self.watched,
            self.stores_by_kind,
            self.varying,
            self.packed,
            self.stacked_values,
            self.shared,
            self._met_now,
            self.forms_at,
            self.sentences_at,
            self.constants_at,
        ):
            kept.clear()
        self.sharing = Sharing()
        self._numbers = None
        if error is not None:
            self.error = f'{type(error).__name__} in the scope that {current_site()} left'
            self._release()
        else:
            self.finish_if_done()

    def flush(self, wanted: Optional[np.ndarray] = None, asked: Optional[int] = None) -> None:
        """Compute the values `wanted`, or all. Partial sums that nobody reads are left out, except
        a value that was `asked` for."""
        self.check_alive()
        if not self.closed and threading.get_ident() != self.thread:
            raise RecordError(
                f'{current_site()} needs a value of a batching scope that another '
                f'thread is still recording; wait until it has left the scope'
            )
        with numpy_shapes(self.mode.numpy):
            self.evaluator.run(self, wanted, asked)

    def runs(self, node_type: NodeType) -> bool:
        """Return whether a backend runs calls of a type."""
        with suspended():
            return self.evaluator.runs(node_type)

    def any_left(self) -> bool:
        """Return whether recorded calls wait to be run."""
        return sum(map(len, self.ran)) + self.left_out < len(self.node_forms)

    def form_of_sum(self, index: int) -> int:
        """Return the form that adds, or joins, any number of values as form `index` does."""
        known = self._sums.get(index)
        if known is None:
            form = self.forms[index]
            with self.in_mode(form.node_type.mode):
                self.forms_by_key = {}
                made = form_of_any_number(self, form)
            if self.closed:
                made.release()
                self.stores_by_kind.clear()
            known = self._sums[index] = made.index
        return known

    @property
    def number_arena(self) -> ArenaKey:
        """The key of the arena where the user's numbers live."""
        return spec_of((1,), SCALAR_DTYPE, self.ctx).arena

    def rows_lying(self, evaluation: int, key: ArenaKey) -> int:
        """Return how many rows of a kind an evaluation has in one piece of memory; -1 if they lie
        apart."""
        found = self.results[evaluation][key]
        return len(found.raw) if isinstance(found, Arena) else -1

    def forget(self, evaluations: Sequence[int]) -> None:
        """Drop the results of these evaluations, and packed forms of lost values."""
        stores = self.stores() if evaluations else []
        for number in evaluations:
            self.results.pop(number, None)
            for store in stores:
                store.arenas.pop(number, None)
        self.packed = {
            value: known
            for value, known in self.packed.items()
            if self._is_to_come_or_there(known._id)
        }

    def _is_to_come_or_there(self, value: int) -> bool:
        evaluation = self.locations.evaluation
        number = evaluation.item(value) if 0 <= value < len(evaluation) else -1
        return value >= 0 and (number < 0 or number in self.results)

    def finish_if_done(self) -> None:
        """Once no call waits, keep only the results that values refer to; these live without the
        recording. Kinds with partial sums that were left out stay."""
        if self.any_left():
            return
        self.is_over = True
        kinds = self.evaluator.kinds_left_out(self)
        self.results = {
            number: {key: found for key, found in arenas.items() if key in kinds}
            for number, arenas in self.results.items()
            if kinds
        }
        if kinds:
            self.model.release()
        else:
            self._release()
        for store in self.stores():
            if store.spec.arena not in kinds:
                store.recording = None

    def knows_autograd(self) -> bool:
        """Return whether some recorded calls may be on a tape; asked while the scope records."""
        return any(mode.recording for mode in self._modes)

    def will_read(self, value: int) -> bool:
        """Return whether calls that are recorded, but did not run yet, read this value."""
        if not self.closed:
            return False
        if self._read_later[0] != len(self.ran):
            self._read_later = len(self.ran), self._read_by_those_left()
        return value in self._read_later[1]

    def _read_by_those_left(self) -> frozenset[int]:
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


def _is_held(value: Any, own: int) -> bool:
    """Return whether there are other references than `own` to an expression that is none yet."""
    return value.__class__ in EXPRESSIONS and sys.getrefcount(value) > own


def _same(result: Any, other: Any) -> bool:
    """Return whether two results of operators are the same values in the same structure."""
    if result.__class__ is not other.__class__:
        return False
    if result.__class__ in (list, tuple):
        return len(result) == len(other) and all(map(_same, result, other))
    return result.__class__ in VALUES and result._id == other._id


def _none_among(leaves: Sequence[Any]) -> frozenset[int]:
    """Return the positions of ragged arguments that have no values."""
    return frozenset(
        [
            position
            for position, leaf in enumerate(leaves)
            if isinstance(leaf, RaggedArray) and not leaf._ids
        ]
    )
