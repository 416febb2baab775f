"""Convert what users give as arguments, numbers and arrays, to values of a recording."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, NamedTuple, Optional, Union
from weakref import WeakMethod

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError

from ..mx.arrays import alias, detached
from ..mx.modes import modes
from ..mx.mutation_guard import PLAIN_OR_GUARDED, MutationGuard
from ..ops.attrs import Shape
from ..subgraph.spec import Spec, device_of, spec_of
from .calls import NUMBERS, REMEMBERED, SMALL, CallLog
from .lazy import (
    RAGGED,
    VALUES,
    EagerNumpyRagged,
    EagerRagged,
    LazyArray,
    RaggedArray,
    operand_dtype,
    ragged_of,
)
from .shared import Sharing
from .sites import Site, current_site, site_at
from .stores import ShownAs, Store

SCALAR_DTYPE = np.float32
ARRAYS = (NDArray, np.ndarray, *NUMBERS)
_MX_DTYPES = frozenset(
    np.dtype(name)
    for name in ('float16', 'float32', 'float64', 'int8', 'uint8', 'int32', 'int64', 'bool')
)
_kinds: dict[bytes, Spec] = {}  # of NDArrays that were read
_MOST_KINDS = 1 << 12


class GivenArray(NamedTuple):
    """An NDArray that the user gave, with its contents at that time."""

    # The array on its tape at that time, for gradients: it may be marked again. None without one.
    original: Optional[NDArray]
    values: Any  # when the call was recorded: an NDArray, a `MutationGuard` or a NumPy array

    def contents(self) -> Union[NDArray, np.ndarray]:
        """Return the contents as an array that no tape knows."""
        return self.values.values() if isinstance(self.values, MutationGuard) else self.values


class Inputs(CallLog):
    """The numbers and arrays that the calls of a recording read.

    Numbers are the values -1, -3, -5, … and arrays -2, -4, -6, …."""

    mode: Any  # of autograd, see `Recording.update_mode`

    def __init__(self, ctx: Optional[mx.Context]):
        super().__init__(VALUES[mx.util.is_np_array()])
        self.arrays: list[tuple[Spec, Any]] = []  # `GivenArray` or NumPy arrays
        self._ctx = ctx
        self.sharing = Sharing()
        self._small: dict[Spec, dict[bytes, int]] = {}  # values, by what they hold
        self._large: dict[int, tuple[LazyArray, MutationGuard]] = {}
        self.guards: list[MutationGuard] = []
        self._range: tuple[tuple[int, int], np.ndarray] = ((0, 0), np.zeros(0, SCALAR_DTYPE))

    def values(self, args: Sequence[Any]) -> list[NDArray]:
        """Convert arguments to values of this recording; numbers take the dtype of the arrays."""
        result: list[Any] = []
        numbers = []
        for arg in args:
            arg = arg.recorded() if isinstance(arg, LazyArray) else arg
            kind = arg.__class__
            if (kind in VALUES or kind in RAGGED) and arg._store.recording is self:
                result.append(arg)
            elif isinstance(arg, NUMBERS) or (isinstance(arg, np.ndarray) and arg.ndim == 0):
                numbers.append(len(result))
                result.append(arg)
            else:
                result.append(self._array(arg))
        if numbers:
            floats = {
                value._store.spec.dtype
                for value in result
                if isinstance(value, LazyArray)
                and np.issubdtype(value._store.spec.dtype, np.floating)
            }
            dtype = floats.pop() if len(floats) == 1 else SCALAR_DTYPE
            for i in numbers:
                result[i] = self.number(result[i], dtype)
        return result

    def given(self, array) -> Optional[LazyArray]:
        """Return an array of the user as a value; None if that depends on the rest of the call."""
        return self._array(array) if self._ctx is not None and array.ndim else None

    def number(self, number, dtype=SCALAR_DTYPE) -> LazyArray:
        """Record a Python number as a value of shape (1,)."""
        if dtype is not SCALAR_DTYPE:
            return self._array(np.full((1,), number, dtype), fresh=True)
        self.scalars.append(number)
        store = self._numbers
        if store is None:
            store = self.store(spec_of((1,), SCALAR_DTYPE, self.ctx))
            if self._ctx is not None:
                self._numbers = store
        return self.value_type(store, 1 - 2 * len(self.scalars))

    def _array(self, array, fresh: bool = False) -> LazyArray:
        """Return an array of the user as a value. An NDArray given twice is one value, and so are
        small NumPy arrays with equal contents, such as initial zeros of sequences."""
        if isinstance(array, NDArray):
            return self._ndarray(array)
        if array.dtype == np.float64 and not fresh:
            array = array.astype(np.float32)  # as mx.nd.array does
        if not self.has_dtype(array):
            raise RecordError(
                f'an array of dtype {array.dtype} at {current_site()}: MXNet has no '
                f'such dtype; give numbers, for words those that stand for them in a '
                f'vocabulary, and lists of different lengths one by one'
            )
        spec = spec_of(array.shape, array.dtype, self.ctx)
        return self._append_array(array, spec) if fresh else self.known_array(spec, array, True)

    @staticmethod
    def has_dtype(array: np.ndarray) -> bool:
        """Return whether MXNet has the dtype of a NumPy array."""
        return array.dtype in _MX_DTYPES

    def new_constant(self, key: tuple, values: np.ndarray, ctx: mx.Context) -> LazyArray:
        """Add a constant (see `constant_hooks`) under a key, and return its value."""
        store = self.store(spec_of(values.shape, values.dtype, ctx))
        value = self._append_array(values, store.spec)
        store.given[value._id] = values
        self.constants[key] = store, value._id
        return value

    def runs_now(self, args: Sequence[Any]) -> bool:
        """Return whether an operator on these arguments runs eagerly: all are constants and arrays
        of data, whose results may be needed outside the model."""
        found = False
        for arg in args:
            if isinstance(arg, LazyArray):
                if arg.made() is None:
                    return False
                found = True
        return found and not any([self.is_weight(arg) for arg in args])

    def are_own_states(self, layer: gluon.HybridBlock, x: Any, states: Any) -> bool:
        """Return whether a recurrent layer would begin with equal states if it were given none."""
        if self.mode.numpy:  # where a graph cannot leave the rows of zeros open
            return False
        if states.__class__ not in (list, tuple):
            return False
        infos = layer.state_info(x.shape[layer._layout.find('N')])
        return len(infos) == len(states) and all(map(_are_zeros, states, infos))

    def operand(self, value: LazyArray, array: np.ndarray) -> LazyArray:
        """Return a NumPy array that is an operator's other operand as a value of this recording."""
        dtype, ctx = operand_dtype(value), value._store.spec.ctx
        array = array.astype(dtype)
        return self.known_array(spec_of(array.shape, dtype, ctx), array)

    def is_weight(self, arg: Any) -> bool:
        """Return whether an argument counts as a weight that an operator's calls share."""
        return arg.__class__ in PLAIN_OR_GUARDED and self.sharing.is_weight(arg)

    def known_array(self, spec: Spec, array: np.ndarray, may_change: bool = False) -> LazyArray:
        """Return a NumPy array as a value; small arrays with equal contents are one value."""
        if array.size > SMALL:
            return self._append_array(array.copy() if may_change else array, spec)
        known, held = self._small.setdefault(spec, {}), array.tobytes()
        if held in known:
            return self.value_type(self.store(spec), known[held])
        value = self._append_array(array.copy() if may_change else array, spec)
        known[held] = value._id
        return value

    def handed_out_rows(self, arrays: Sequence[Any]) -> Optional[tuple[Store, list[int]]]:
        """Return NumPy arrays of one shape and dtype as values for the user to keep, with their
        store; None for other arrays."""
        first = arrays[0]
        if first.__class__ is not np.ndarray or not 0 < first.size <= SMALL or not first.ndim:
            return None
        shape, dtype, count = first.shape, first.dtype, len(arrays)
        if (
            {*map(type, arrays)} != {np.ndarray}
            or [array.shape for array in arrays].count(shape) != count
            or [array.dtype for array in arrays].count(dtype) != count
        ):
            return None
        if dtype == np.float64:
            arrays, dtype = list(np.array(arrays, np.float32)), np.dtype(np.float32)
        if dtype not in _MX_DTYPES:
            return None
        spec = spec_of(shape, dtype, self.ctx)
        store, known = self.store(spec), self._small.setdefault(spec, {})
        contents = [array.tobytes() for array in arrays]
        rows = np.frombuffer(b''.join(contents), dtype).reshape(count, *shape)
        ids = []
        for held, row in zip(contents, rows):
            number = known.get(held)
            if number is None:
                self.arrays.append((spec, row))
                number = known[held] = -2 * len(self.arrays)
            ids.append(number)
        store.given.update(zip(ids, contents))
        return store, ids

    def _ndarray(self, array: NDArray) -> LazyArray:
        """Return a value with the present contents of an NDArray.

        A small array is read or copied. A large one is watched instead, and is one value. Watching
        costs less than copying, but does not notice writes through an earlier view. So an array
        that is a view itself, as in ``mx.np``, is always copied. An array in another kind of host
        memory is copied, too: see `device_of`.
        """
        eager = False
        if isinstance(array, LazyArray) and 0 not in array.shape:  # of another scope
            eager, array = array._store.spec.eager, array.evaluated()
        if not eager and array.__class__ in PLAIN_OR_GUARDED:
            value = self.read(array)
            if value is not None:
                return value
        large = self._large.get(id(array))
        if large is not None and large[1].copy is None:
            return large[0]
        if array.stype != 'default':
            raise RecordError(
                f'a {array.stype} array at {current_site()}: only dense arrays can '
                f'be arguments of a recorded call; use .tostype("default")'
            )
        if 0 in array.shape and isinstance(array, (RaggedArray, EagerRagged, EagerNumpyRagged)):
            shape = array.shape[:1] + array.shape[2:]
            return ragged_of(self.store(spec_of(shape, array.dtype, array.ctx)), [])
        given, own = array, self.mode.numpy and array.shape
        if isinstance(array, mx.np.ndarray) and not own:
            array = alias(array)
        scalar = not array.shape
        if scalar:
            array = array.reshape((1,))
        ctx = device_of(array)
        spec = spec_of(array.shape, array.dtype, ctx, eager)
        self._ctx = self._ctx or ctx
        if eager or array is not given or array.ctx != ctx or array.size < self.copied_below:
            values = detached(array).copyto(ctx)
            return self._append_array(
                GivenArray(alias(array) if self.mode.recording else values, values), spec, scalar
            )
        watched = MutationGuard(array, WeakMethod(self._keep_forms))
        self.guards.append(watched)
        value = self._append_array(GivenArray(alias(array), watched), spec)
        self._large[id(array)] = value, watched
        return value

    def append_read(self, array: NDArray, key: tuple[bytes, bytes, bytes]) -> LazyArray:
        """Return a value for an array whose kind, contents and place on a tape are already read."""
        kind, contents, place = key
        spec = _kinds.get(kind)
        if spec is None:
            if len(_kinds) >= _MOST_KINDS:
                _kinds.clear()
            spec = _kinds[kind] = spec_of(array.shape, array.dtype, array.ctx)
        self._ctx = self._ctx or spec.ctx
        values: np.ndarray = np.frombuffer(contents, spec.dtype).reshape(spec.shape)
        value = self._append_array(GivenArray(alias(array) if place else None, values), spec)
        if len(contents) <= REMEMBERED:
            self._read[key] = value
        return value

    def _keep_forms(self) -> None:
        """Do nothing when a watched array was copied before a write: `_ndarray` notices it."""

    def _append_array(self, array, spec, scalar: bool = False) -> LazyArray:
        if 0 in spec.shape:
            raise RecordError(
                f'an array of shape {spec.shape} at {current_site()}: a value needs '
                f'at least one row, and no axis may be empty'
            )
        self.arrays.append((spec, array))
        return self.value_type(
            self.store(spec, ShownAs(()) if scalar else None), -2 * len(self.arrays)
        )

    @property
    def ctx(self) -> mx.Context:
        """Context of numbers and NumPy arrays: the scope's, or that of the first array or parameter
        that was met, or MXNet's current one."""
        return self._ctx or mx.current_context()

    def numbers(self, first: int, last: int) -> np.ndarray:
        """Return recorded Python numbers `first` to `last` as a read-only array. Raise
        `RecordError` for an integer that is not exact there: 16777217 would become 16777216."""
        if self._range[0] != (first, last):  # a plan asks, and then a machine
            numbers = self.exact_numbers(first, last)
            self._range = (first, last), self._exact(first, last) if numbers is None else numbers
        return self._range[1]

    @np.errstate(over='ignore')  # an infinity, as MXNet's
    def _exact(self, first: int, last: int) -> np.ndarray:
        given = self.scalars[first:last]
        try:
            exact = np.array(given, np.float64)
            large = np.flatnonzero(np.abs(exact) > 2**24).tolist()
        except (OverflowError, ValueError):
            large = range(len(given))
        for index in large:
            number = given[index]
            if isinstance(number, (int, np.integer)) and (
                abs(int(number)) >= 2**127 or int(SCALAR_DTYPE(number)) != number
            ):
                raise RecordError(
                    f'the integer {number} is not exact in {np.dtype(SCALAR_DTYPE).name}, the '
                    f'dtype of recorded numbers; give it as an array of another dtype\n'
                    f'  called at {self.site_of_use(-1 - 2 * (first + index))}'
                )
        return exact.astype(SCALAR_DTYPE)

    def site_of_use(self, value: int) -> Site:
        """Return the user's line of the first call that reads this value."""
        first = np.flatnonzero(self.node_args.since(0) == value)[0]
        return self.site(int(np.searchsorted(self.node_ends.since(0), first, side='right')))

    def site(self, node: int) -> Site:
        """Return the user's line that recorded this call."""
        return site_at(self.node_codes[node], self.node_instructions[node])

    def held(self, value: LazyArray) -> Any:
        """Return an array that the user gave, as `arrays` has it, if its contents are a NumPy
        array; else None."""
        number = value._id
        if number >= 0 or number % 2:
            return None
        array = self.arrays[-number // 2 - 1][1]
        contents = array.values if isinstance(array, GivenArray) else array
        return array if isinstance(contents, np.ndarray) else None

    def in_shape(self, array: Any, shape: Shape, order: Sequence[int] = ()) -> Any:
        """Return an array that is `held`, transposed if there is an `order` of its axes, in another
        shape; a gradient goes back to the user's."""
        if not isinstance(array, GivenArray):
            return (array.transpose(order) if len(order) else array).reshape(shape)
        original = array.original
        if original is not None:
            with modes(recording=True):
                original = self.in_shape(original, shape, order)
        return GivenArray(original, self.in_shape(array.values, shape, order))

    def original(self, value: int) -> Callable[[], NDArray]:
        """Return a function that makes an NDArray of an array or number that the user gave."""
        if value % 2:
            return partial(mx.nd.array, [self.scalars[(-value - 1) // 2]], self.ctx)
        spec, array = self.arrays[-value // 2 - 1]
        if isinstance(array, GivenArray):
            if array.original is not None:
                return lambda: array.original
            array = array.values
        return partial(mx.nd.array, array, spec.ctx, array.dtype)

    def handed_out(self, value: LazyArray) -> LazyArray:
        """Prepare a value, which may be one that was given, for the user to keep; return it."""
        store, number = value._store, value._id
        if number < 0 and number not in store.given:
            store.given[number] = self.original(number)
        return self.value_type(store, number)  # which may become another value


def _are_zeros(state: Any, info: dict[str, Any]) -> bool:
    """Return whether a state is zeros that were made in the scope, of a layer's shape and dtype."""
    made = state.made() if isinstance(state, LazyArray) else None
    return (
        made is not None
        and (made.shape, made.dtype) == (info['shape'], np.dtype(info['dtype']))
        and not made.any()
    )


def is_array(value: Any) -> bool:
    """Return whether a value is an array or a number; a bool is neither."""
    return isinstance(value, ARRAYS) and not isinstance(value, bool)
