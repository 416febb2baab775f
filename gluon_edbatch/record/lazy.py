"""Lazy values: NDArrays whose contents are computed when somebody reads them."""

import sys
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache, partial, wraps
from math import prod
from operator import getitem
from typing import Any, Callable, NoReturn, Optional

import mxnet as mx
import numpy as np
from greenlet import getcurrent
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError, StaleValueError

from ..mx.arrays import alias, as_numpy, copy_into, new_array
from ..mx.modes import modes
from ..mx.numpy_compat import attribute_text
from ..subgraph.spec import Spec, spec_of
from .indexing import known_index
from .sites import current_site
from .stores import Store, copied


class LazyArray(NDArray):
    """The result of a recorded call: an ``NDArray`` for every caller.

    Calls in a scope return lazy values (see `batching`); users do not make them. Shape, dtype and
    context are known immediately, as in eager Gluon. Operators on lazy values are recorded inside
    the scope. Reading contents (``h.asnumpy()``, ``float(h)``, ``print(h)``) evaluates all that is
    recorded so far. `forward` evaluates only what some values need.

    A call with wrong shapes, dtypes or contexts raises a `RecordError` when it is recorded. A call
    that fails as it runs raises a `BatchError` when contents are read. If an exception left the
    scope, reading raises a `StaleValueError`. Functions of NumPy (``np.tanh(h)``) raise a
    `RecordError`, as they would have no gradient.

    Writing (``x += y``, ``x[0] = y``, ``out=x``) makes this object another value: all references to
    it see the new contents, and calls that were recorded before use the old ones. Writing raises a
    `RecordError` while another array, such as a slice, shares its memory in eager Gluon.
    """

    # _memory stands for the memory that, in eager Gluon, it shares with all values that have the
    # same; it is not set if there are none.
    __slots__ = ('_store', '_id', '_array', '_memory')

    _array: NDArray
    _memory: object

    def __init__(self, store: Store, value: int):
        self._store = store
        self._id = value

    # --- known without running -------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Tuple of array dimensions."""
        return self._store.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._store.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def dtype(self):
        """NumPy scalar type."""
        return self._store.spec.dtype

    @property
    def context(self) -> mx.Context:
        """Device of the value."""
        return self._store.spec.ctx

    ctx = context

    @property
    def stype(self) -> str:
        """Storage type: always 'default', as recorded values are dense."""
        return 'default'

    @property
    def writable(self) -> bool:
        """Whether the array can be written to: always True."""
        return True

    # --- the contents ----------------------------------------------------------------------------

    def evaluated(self) -> NDArray:
        """Return the value as an ordinary NDArray, computed with all that is recorded so far.

        Autograd follows it if the value was recorded under autograd. Raises what `asnumpy` raises.
        """
        array = getattr(self, '_array', None)
        if array is not None:
            return array
        if self._id < 0 and self.constant() is not None:
            return self.settled()  # somebody may write to it
        self._array = self._compute()
        return self._array

    def _compute(self) -> NDArray:
        return self._store.read(self._id)

    def recorded(self) -> 'LazyArray':
        """Return this object as a recorded value: itself, but for expressions."""
        return self

    def made(self) -> Optional[np.ndarray]:
        """Return what an array made in the scope, as by ``mx.nd.zeros``, held then; else None."""
        if self._id >= 0:
            return None
        given = self._store.given.get(self._id)
        return given if isinstance(given, np.ndarray) else None

    def constant(self) -> Optional[np.ndarray]:
        """Return what an array made in the scope holds if nothing can have written to it, or
        None."""
        return self.made()

    def asnumpy(self) -> np.ndarray:
        """Return a copy as a NumPy array of the same shape and dtype; evaluate all that is recorded
        so far. A sample of `net.batch` or `run_concurrently` may be suspended here, until the
        others wait, too (see `api.suspended`).

        Raises
        ------
        BatchError
            If a batch fails as it runs.
        StaleValueError
            If an exception left the scope before the value was computed.
        """
        if self._id < 0:
            known = self.constant()
            return super().asnumpy() if known is None else known.copy()
        contents = getattr(getcurrent(), 'contents', None)
        answer = None if contents is None else contents(self)
        return super().asnumpy() if answer is None else answer

    def is_known(self) -> bool:
        """Return whether contents can be read without an evaluation."""
        return self._id < 0 or self._store.locations.known(self._id)

    def __array__(self, dtype=None) -> np.ndarray:
        return np.asarray(self.asnumpy(), dtype)

    def __array_ufunc__(self, function, method, *inputs, **kwargs):
        """Record Python's operators, as in ``array + value``; raise for NumPy's other functions."""
        name = _REFLECTED.get(function)
        if name is not None and method == '__call__' and not kwargs and inputs[1] is self:
            other = inputs[0]
            return getattr(self, name)(other)
        raise RecordError(
            f'{current_site()}: numpy.{function.__name__} of a recorded value would compute it at '
            f'once, without a gradient; use an operator of Python or MXNet (mx.nd.tanh(h)), or '
            f'h.asnumpy() if its numbers are meant'
        )

    @property
    def handle(self):
        """MXNet's handle of the computed value."""
        return self.evaluated().handle

    def backward(self, out_grad=None, retain_graph=False, train_mode=True) -> None:
        """Compute gradients, as ``NDArray.backward``. Other values of the scope can be
        differentiated afterwards, as if each had its own graph."""
        array = self.evaluated()
        try:
            array.backward(out_grad, True, train_mode)
        except MXNetError as error:
            raise self._not_differentiable(error) from None

    def _is_taped(self) -> bool:
        """Return whether the value was computed by a call recorded under ``autograd.record()``."""
        locations = self._store.locations
        return self._id >= 0 and locations.known(self._id) and bool(locations.taped[self._id])

    def _not_differentiable(self, error: MXNetError) -> Exception:
        """Return MXNet's error, or a clearer one if a value without a gradient is
        differentiated."""
        if 'is not in a computational graph' not in str(error):
            return error
        if self._id >= 0 and not self._is_taped():
            return RecordError(
                f'{current_site()} differentiates a value that was not recorded '
                f'under autograd.record(); put "with autograd.record():" around '
                f'"with batching():", or around the calls in it'
            )
        return RecordError(
            f'{current_site()} differentiates a value that depends on nothing with '
            f'a gradient: no trained parameter, and no array with attach_grad()'
        )

    # --- recorded, where the base class would look at the handle ---------------------------------

    def _recorded(self, function: Callable[..., Any], **options: Any) -> Any:
        """Record an operator and return its result. None if it has to run: the scope of this value
        is not recording any more, or the value was made there."""
        recording = self._store.recording
        if recording is None or not recording.active():
            return None
        if self._id < 0 and self.made() is not None:
            return None
        return recording.operation(function, (self,), options)

    def reshape(self, *shape, **kwargs) -> NDArray:
        """Return the value in another shape, as ``NDArray.reshape``."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        reverse = False
        if kwargs:
            wanted, reverse = kwargs.get('shape', wanted), bool(kwargs.get('reverse', False))
        result = self._recorded(_reshaping(tuple(wanted), reverse))
        if result is None:
            return self.settled().reshape(*shape, **kwargs)
        return self._sharing_memory(result)

    def astype(self, dtype, copy=True) -> NDArray:
        """Return the value in another dtype, as ``NDArray.astype``."""
        if np.dtype(dtype) == np.dtype(self.dtype):
            if not copy:
                return self
            if self.__class__ is LazyArray and self._id >= 0 and self._is_copied_by_name():
                return LazyArray(self._store, self._id)
        result = self._recorded(mx.nd.Cast, dtype=_name_of_dtype(dtype))
        return self.evaluated().astype(dtype, copy=copy) if result is None else result

    def _is_copied_by_name(self) -> bool:
        """Return whether a second `LazyArray` of the same value is a copy, as writing replaces the
        value. Under ``autograd.pause()`` it is not: no gradient may go through a copy."""
        recording = self._store.recording
        return (
            recording is not None
            and recording.active()
            and (recording.mode.recording or not recording.knows_autograd())
        )

    def detach(self) -> NDArray:
        """Return the same numbers without a gradient, as ``NDArray.detach``."""
        result = self._recorded(_operator('BlockGrad'))
        return self.settled().detach() if result is None else self._sharing_memory(result)

    def copy(self) -> NDArray:
        """Return a copy, as ``NDArray.copy``."""
        result = self._recorded(mx.nd.identity)
        return self.evaluated().copy() if result is None else result

    @property
    def T(self) -> NDArray:
        """The transposed value, as ``NDArray.T``."""
        return self.transpose() if self.ndim > 1 else self

    def copyto(self, other):
        """Copy the value to an array or device, as ``NDArray.copyto``."""
        if not isinstance(other, NDArray) or other is self:
            return super().copyto(other)
        return copy_into(self, out=other)

    def as_in_context(self, context) -> NDArray:
        """Return the value on a device, as ``NDArray.as_in_context``: itself if it is there
        already, else an evaluated copy."""
        return self if context == self.context else self.evaluated().as_in_context(context)

    def __getitem__(self, key):
        if self._id < 0 and self.made() is not None:
            return self.settled()[key]
        index = known_index(key, self._store.shape) if self.__class__ is LazyArray else None
        recording = self._store.recording
        if index is None or 0 in index.shape or recording is None or not recording.active():
            return super().__getitem__(key)
        value, shape = self, index.shape or (1,)
        rows = self._store.spec.dtype is not np.bool_  # of truth values `slice` is all there is
        if index.position is not None and rows:
            value = recording.operation(
                _rows_of, (self, index.position), {'axis': index.axis, 'width': index.width}
            )
        elif index.take is not None:
            value = recording.operation(index.take, (self,), {})
        if value is not self and index.contiguous:
            self._sharing_memory(value)
        return value if value._store.shape == shape else value.reshape(shape)

    def _slice(self, start, stop):
        length = self.shape[0]
        begin, end, _ = slice(start, stop).indices(length)
        if begin == 0 and end == length:
            return self
        result = None
        if begin < end:
            result = self._recorded(mx.nd.slice_axis, axis=0, begin=begin, end=end)
        if result is None:
            return self.settled()._slice(start, stop)
        return self._sharing_memory(result)

    def _at(self, idx):
        if idx < 0:
            idx += self.shape[0]
        if not 0 <= idx < self.shape[0]:
            raise IndexError(f'index {idx} is out of bounds for axis 0 with size {self.shape[0]}')
        if self.ndim == 1:
            return self._slice(idx, idx + 1)
        row = self._slice(idx, idx + 1)
        return row.reshape(self.shape[1:])

    # --- written to, and marked ------------------------------------------------------------------

    def _sharing_memory(self, view: 'LazyArray') -> 'LazyArray':
        """Note that `view` shares the memory of this value in eager Gluon, and return `view`."""
        memory = getattr(self, '_memory', None)
        if memory is None:
            memory = self._memory = object()
        view._memory = memory
        return view

    def prepare_writing(self, operands: Sequence[Any] = ()) -> None:
        """Check that this array may be written to; called by the package before each write.

        Parameters
        ----------
        operands : sequence, default ()
            What the new contents are computed from; `y` in ``x += y``.

        Raises
        ------
        RecordError
            If another array would change with it in eager Gluon, but not here: a view shares the
            memory (``x[0:1]``, ``x.reshape(...)``, ``x.detach()``), or the computed array was given
            out. Also if this array is an argument of a recorded call.
        """
        self._check_no_views()
        if self.constant() is not None:
            if not any([_is_computed(operand) for operand in operands]):
                self.settled()
        elif self._id < 0:
            raise RecordError(
                f'{current_site()}: an argument of a recorded call cannot be written to, as others '
                f'may read it; make a new value instead (x = x * 2), or write to x.copy()'
            )
        self._check_not_given_out()
        recording = self._store.recording
        if recording is None or not recording.active() or recording.knows_autograd():
            self.settled()

    def _check_no_views(self) -> None:
        if _is_held_elsewhere(self, '_memory'):
            raise RecordError(
                f'{current_site()} writes to a recorded value of which there is a view (a slice, '
                f'reshape() or detach()), or which is one: eager Gluon changes both, a scope '
                f'cannot. Make a new value (h = h * 2), write to a copy (v = h[0:1].copy()), or '
                f'to the whole (h[0:1] = h[0:1] * 2)'
            )

    def _check_not_given_out(self) -> None:
        if _is_held_elsewhere(self, '_array'):
            raise RecordError(
                f'{current_site()} writes to or marks a recorded value whose array was given out, '
                f'as by gluon_edbatch.forward(): in eager Gluon the two are one array, here they '
                f'are not. Use that array from then on, or make a new value (h = h * 2)'
            )

    def become(self, value: 'LazyArray') -> None:
        """Replace this object's value by another value of the same store."""
        self._id = value._id
        if hasattr(self, '_array'):
            del self._array

    def settled(self) -> NDArray:
        """Evaluate this value and turn it into an array with its own memory, which may be viewed,
        written to and marked. Recorded calls read its present contents, as with any array."""
        if _is_held_elsewhere(self, '_array'):
            return self._array
        made = self.constant() is not None
        self._array = self._compute() if made else copied(self.evaluated())
        self.__class__ = self._settled_class()
        return self._array

    def settle_in(self, rows: NDArray) -> None:
        """Turn this value into an array as `settled` does; `rows` are its contents, in memory that
        nobody else has."""
        self._array = self._of_mode(rows)
        self.__class__ = self._settled_class()

    def _of_mode(self, rows: NDArray) -> NDArray:
        return rows if rows.shape == self.shape else rows.reshape(self.shape)

    def _settled_class(self) -> type:
        return SettledArray

    def attach_grad(self, grad_req='write', stype=None) -> None:
        """Mark the array for a gradient, as ``NDArray.attach_grad``."""
        self._check_not_given_out()
        self.settled().attach_grad(grad_req, stype)

    def _sync_copyfrom(self, source_array) -> None:
        copy_into(
            mx.nd.array(source_array, ctx=self.ctx, dtype=self.dtype).reshape(self.shape), out=self
        )

    def as_np_ndarray(self):
        """Return an ``mx.np.ndarray`` with the same memory, as ``NDArray.as_np_ndarray``."""
        return self.settled().as_np_ndarray()

    def to_dlpack_for_write(self):
        """Return a DLPack capsule that may be written to, as ``NDArray.to_dlpack_for_write``.

        Raises
        ------
        RecordError
            If another array would have to change with this one, and cannot (see `prepare_writing`).
        """
        self.prepare_writing()
        return self.settled().to_dlpack_for_write()

    def __reduce__(self):
        return self.evaluated().__reduce__()

    def __repr__(self) -> str:
        return self._shown(repr)

    def _shown(self, show: Callable[[NDArray], str]) -> str:
        """Return the text that `show` makes of the array, or that it is not computed."""
        shape = 'x'.join(map(str, self.shape))
        waiting = f'<{type(self).__name__} {shape} @{self.context}, not computed>'
        try:
            store = self._store
        except StaleValueError:  # of an expression, which is not recorded yet
            return waiting
        if (
            store.recording is None
            or self.constant() is not None
            or (self._id >= 0 and store.locations.known(self._id))
        ):
            return show(self.evaluated())
        return waiting


@lru_cache(maxsize=4096, typed=True)
def _reshaping(shape: tuple[int, ...], reverse: bool) -> Callable[..., Any]:
    return partial(mx.nd.Reshape, shape=shape, reverse=reverse)


@cache
def _name_of_dtype(dtype: Any) -> str:
    return np.dtype(dtype).name


def operand_dtype(value: NDArray) -> Any:
    """Return the dtype for a NumPy array beside a value in an operator: the value's own if it is a
    floating type, else float32."""
    return value.dtype if np.issubdtype(value.dtype, np.floating) else np.float32


def operand(value: NDArray, other: Any) -> Any:
    """Return a NumPy array beside a value as an operand for MXNet; anything else as it is."""
    if not isinstance(other, np.ndarray):
        return other
    return new_array(other, value.context, operand_dtype(value)) if other.ndim else other.item()


# What NumPy calls for ``array + value`` -> the method of the value.
_REFLECTED = {
    np.add: '__radd__',
    np.subtract: '__rsub__',
    np.multiply: '__rmul__',
    np.true_divide: '__rtruediv__',
    np.power: '__rpow__',
    np.remainder: '__rmod__',
    np.equal: '__eq__',
    np.not_equal: '__ne__',
    np.greater: '__lt__',
    np.greater_equal: '__le__',
    np.less: '__gt__',
    np.less_equal: '__ge__',
}


def _arithmetic(name: str, cls: type) -> Callable[[LazyArray, Any], NDArray]:
    """Return a recorded form of a Python operator that looks up MXNet's operator once."""
    eager = getattr(cls, name)

    @wraps(eager)
    def method(self, other):
        recording = self._store.recording
        if recording is not None and recording.active():
            if other.__class__ in (int, float):
                return recording.operation(eager, (self, other), {})
            if isinstance(other, NDArray):
                value = recording.read(other, True) if other.__class__ is NDArray else None
                operands = self, other if value is None else value
                return recording.operation(eager, operands, {})
            if isinstance(other, np.ndarray) and other.ndim:
                return recording.operation(eager, (self, recording.operand(self, other)), {})
        return eager(self, operand(self, other))

    return method


HAND_ON: set[Callable[..., Any]] = set()  # methods that look at no shape


def _method(name: str, cls: type) -> Callable[..., Any]:
    """Return a recorded form of a method that looks up MXNet's operator once."""
    eager = getattr(cls, name)

    def with_argument(self, argument, **options):
        return eager(self, argument, **options)

    HAND_ON.update((eager, with_argument))

    @wraps(eager)
    def method(self, *args, **options):
        recording = self._store.recording
        if recording is None or not recording.active() or 'inplace' in options:
            return eager(self, *args, **options)
        if not args:
            return recording.operation(eager, (self,), options)
        if len(args) > 1 or isinstance(args[0], NDArray):
            return eager(self, *args, **options)
        return recording.operation(with_argument, (self,), {'argument': args[0], **options})

    return method


METHODS = (
    '__neg__ expand_dims squeeze flatten broadcast_axes repeat pad swapaxes split slice_axis '
    'one_hot pick sort topk argsort argmax argmin clip abs sign tile transpose flip sum nansum '
    'prod nanprod mean max min norm round rint fix floor ceil trunc sin cos tan arcsin arccos '
    'arctan degrees radians sinh cosh tanh arcsinh arccosh arctanh exp expm1 log log10 log2 log1p '
    'sqrt rsqrt cbrt rcbrt square reciprocal relu sigmoid softmax log_softmax softmin'
).split()
ARITHMETIC = (
    'add radd sub rsub mul rmul truediv rtruediv pow rpow mod rmod eq ne gt ge lt le'.split()
)
for _name in METHODS:
    setattr(LazyArray, _name, _method(_name, NDArray))
for _name in ARITHMETIC:
    setattr(LazyArray, f'__{_name}__', _arithmetic(f'__{_name}__', NDArray))


def _writing(name: str, cls: type) -> Callable[..., Any]:
    """Return a method that writes to an array; a scope records the operator that it calls."""
    eager = getattr(cls, name)

    @wraps(eager)
    def method(self, *args):
        self.prepare_writing(args)
        recorded = self.__class__ in VALUES
        target = self if recorded else self.settled()
        # MXNet assigns arrays of the target's own class only.
        operands = [
            arg.evaluated()
            if isinstance(arg, LazyArray) and not (recorded and arg.__class__ in VALUES)
            else arg
            for arg in args
        ]
        if name != '__setitem__':
            operands[0] = operand(self, operands[0])
        try:
            result = eager(target, *operands)
        except MXNetError as error:
            raise writing_refused(error) from None
        return self if result is target else result

    return method


_WRITING = 'iadd isub imul idiv itruediv imod setitem'.split()
for _name in _WRITING:
    setattr(LazyArray, f'__{_name}__', _writing(f'__{_name}__', NDArray))


def writing_refused(error: MXNetError) -> Exception:
    """Return MXNet's error, or one in the user's terms if a write under autograd was refused."""
    if 'Assigning to NDArrays that are already in a computational graph' not in str(error):
        return error
    return RecordError(
        f'{current_site()} writes to a value that autograd has recorded, which eager Gluon refuses '
        f'under autograd.record(), too; make a new value instead (h = h * 2 for h *= 2)'
    )


def _is_computed(operand: Any) -> bool:
    return isinstance(operand, LazyArray) and operand.made() is None


def _is_held_elsewhere(value: LazyArray, slot: str) -> bool:
    """Return whether there are other references to the object in a slot of a value."""
    held = getattr(value, slot, None)
    return held is not None and sys.getrefcount(held) > 3  # the slot, `held`, and the argument


class _Settled:
    """An evaluated lazy value with its own memory; recorded calls read it as any array."""

    __slots__ = ()

    _array: NDArray
    _check_no_views: Callable[[], None]

    def __del__(self):
        pass  # the base class's would free a handle

    def constant(self) -> None:
        """Return None: the array may have been written to."""

    def _recorded(self, function: Callable[..., Any], **options: Any) -> None:
        """Return None: methods of this array run eagerly."""

    def __getitem__(self, key):
        return self._array[key]

    def prepare_writing(self, operands: Sequence[Any] = ()) -> None:
        """Raise a RecordError if another array shares this one's memory."""
        self._check_no_views()

    def become(self, value: LazyArray) -> None:
        """Copy another value into the memory of this array."""
        copy_into(value, out=self._array)

    def _check_not_given_out(self) -> None:
        """Do nothing: arrays that were given out share this one's memory."""

    def settled(self) -> NDArray:
        """Return the ordinary NDArray with this array's memory."""
        return self._array


class SettledArray(_Settled, LazyArray):
    """A lazy NDArray that was evaluated and has its own memory."""

    __slots__ = ()


class LazyNumpyArray(LazyArray, mx.np.ndarray):
    """A lazy value in MXNet's NumPy mode: an ``mx.np.ndarray`` for every caller."""

    __slots__ = ()

    __array_ufunc__ = mx.np.ndarray.__dict__['__array_ufunc__']

    @property
    def dtype(self):
        """A ``numpy.dtype``, as in MXNet's NumPy mode, which compares it with Python's types."""
        return np.dtype(self._store.spec.dtype)

    def _compute(self) -> NDArray:
        return self._of_mode(super()._compute())

    def _of_mode(self, rows: NDArray) -> NDArray:
        return as_numpy(rows, self.shape)

    def _settled_class(self) -> type:
        return SettledNumpyArray

    def __str__(self) -> str:
        return self._shown(str)

    def as_np_ndarray(self):
        """Return the array itself, as ``mx.np.ndarray.as_np_ndarray``."""
        return self

    def reshape(self, *shape, **kwargs) -> NDArray:
        """Return the value in another shape, as ``mx.np.ndarray.reshape``."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        result = None if kwargs else self._recorded(_reshaped, shape=tuple(wanted))
        if result is None:
            return mx.np.ndarray.reshape(self, *shape, **kwargs)
        return result

    def astype(self, dtype, order='K', casting='unsafe', subok=True, copy=True):  # type: ignore[override]
        """Return the value in another dtype, as ``mx.np.ndarray.astype``."""
        if not copy and np.dtype(dtype) == np.dtype(self.dtype):
            return self
        result = None
        if order in ('K', 'C', None) and casting == 'unsafe' and subok:
            result = self._recorded(_operator('Cast'), dtype=_name_of_dtype(dtype))
        if result is None:
            return self.evaluated().astype(dtype, order, casting, subok, copy)
        return result

    def copy(self, order='C') -> NDArray:
        """Return a copy, as ``mx.np.ndarray.copy``."""
        result = self._recorded(_operator('_copy')) if order == 'C' else None
        return self.evaluated().copy(order) if result is None else result

    def copyto(self, other):
        """Copy the value to an array or device, as ``mx.np.ndarray.copyto``."""
        return mx.np.ndarray.copyto(self, other)

    def __getitem__(self, key):
        recording = self._store.recording
        if recording is None or not recording.active():
            return self.settled()[key]
        index = known_index(key, self.shape)
        if index is None:
            return mx.np.ndarray.__getitem__(self, key)
        if 0 in index.shape:
            return self.evaluated()[key]
        value: Any = self
        rows = self._store.spec.dtype is not np.bool_  # of truth values `slice` is all there is
        if index.position is not None and rows:
            value = recording.operation(
                _rows_of, (self, index.position), {'axis': index.axis, 'width': index.width}
            )
        elif index.take is not None:
            value = recording.operation(_operator('slice'), (self,), index.take.keywords)
        if value.shape != index.shape:
            value = value.reshape(index.shape)
        return self._sharing_memory(value) if index.contiguous and value is not self else value

    def _slice(self, start, stop):
        return self.settled()._slice(start, stop)

    def _at(self, idx):
        return self.settled()._at(idx)


def _reshaped(value: NDArray, shape: tuple[int, ...]) -> NDArray:
    return mx.np.ndarray.reshape(value, shape)


def _rows_of(value: LazyArray, position: int, axis: int, width: int) -> Any:
    return _operator('slice_axis')(value, axis=axis, begin=position, end=position + width)


@cache
def _operator(name: str) -> Callable[..., Any]:
    """Return a function that records an operator by name, for which ``mx.np`` has none."""

    def function(value: LazyArray, **attrs: Any) -> Any:
        named = tuple([(key, attribute_text(attr)) for key, attr in attrs.items()])
        return value._store.recording.operator(name, named, (value,))

    return function


for _name in METHODS:
    setattr(LazyNumpyArray, _name, _method(_name, mx.np.ndarray))
for _name in ARITHMETIC + ['matmul', 'rmatmul']:
    setattr(LazyNumpyArray, f'__{_name}__', _arithmetic(f'__{_name}__', mx.np.ndarray))
for _name in _WRITING:
    setattr(LazyNumpyArray, f'__{_name}__', _writing(f'__{_name}__', mx.np.ndarray))


class SettledNumpyArray(_Settled, LazyNumpyArray):
    """A lazy ``mx.np.ndarray`` that was evaluated and has its own memory."""

    __slots__ = ()


class EmptyArray(LazyArray):
    """A result that has no elements, as a ragged argument has no values, and that is not ragged
    along axis 1 itself."""

    __slots__ = ()

    def __init__(self, recording: Any, spec: Spec, axes: Iterable[int]):
        shape = tuple([0 if axis in axes else length for axis, length in enumerate(spec.shape)])
        super().__init__(recording.store(spec_of(shape, spec.dtype, spec.ctx)), -1)

    def __del__(self):
        pass  # the base class's would free a handle

    def made(self) -> None:
        """Return None: no array that was made in the scope."""

    def recorded(self) -> LazyArray:
        """Raise a RecordError: no call can read it."""
        refuse_none(self.shape)

    def settled(self) -> NDArray:
        """Return the array without elements."""
        return self.evaluated()

    def _recorded(self, function: Callable[..., Any], **options: Any) -> Any:
        return self.recorded()

    def _compute(self) -> NDArray:
        return without_elements(self.shape, self._store.spec, partial(refuse_none, self.shape))


def refuse_none(shape: tuple[int, ...]) -> NoReturn:
    """Raise the error for a call that reads an array without elements."""
    raise RecordError(
        f'an array of shape {shape} has no elements, as a ragged argument has no values; '
        f'compute it and what reads it in one block\n  called at {current_site()}'
    )


class RaggedArray(LazyArray):
    """Any number of values of one spec, stacked along axis 1 (see `gluon_edbatch.ragged`).

    Attributes
    ----------
    lengths : NDArray
        (rows,) float32, number of values in each row.
    """

    __slots__ = ('_ids',)

    def __init__(self, store: Store, ids: list[int]):
        self._store = store
        self._id = 0  # none of its own
        self._ids = ids

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, number of values, ...)."""
        shape = self._store.shape
        return (shape[0], len(self._ids)) + shape[1:]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._store.shape) + 1

    @property
    def lengths(self) -> NDArray:
        """(rows,) float32, number of values in each row, for operators such as SequenceMask."""
        recording, rows = self._store.recording, self._store.shape[0]
        records = recording is not None and recording.active()
        if records and rows == 1:
            return recording.length(self)
        length = float(len(self._ids))
        if not records:
            return new_array([length] * rows, self.ctx, np.float32)
        return recording.handed_out(recording.values([np.full((rows,), length, np.float32)])[0])

    def is_known(self) -> bool:
        """Return whether contents can be read without an evaluation."""
        known = self._store.locations.known
        return all([each < 0 or known(each) for each in self._ids])

    def values(self) -> list[LazyArray]:
        """Return the values that are stacked along axis 1, as a list."""
        return self._values_as(LazyArray)

    def _values_as(self, kind: type) -> list[Any]:
        return [kind(self._store, value) for value in self._ids]

    def __getitem__(self, key):
        recording = self._store.recording
        if recording is None or not recording.active():
            return self.evaluated()[key]
        if not isinstance(key, tuple):
            return super().__getitem__(key)
        taken = None
        if all(type(each) in (int, slice) for each in key) and key[0] == slice(None):
            taken = recording.taken(self, *key[1:])
        return recording.stacked(self)[key] if taken is None else taken

    def asnumpy(self) -> np.ndarray:
        """Return a copy as a NumPy array (see `LazyArray.asnumpy`)."""
        contents = getattr(getcurrent(), 'contents', None)
        answer = None if contents is None else contents(self)
        if answer is not None:
            return answer
        if self._ids and getattr(self, '_array', None) is None:
            first = self._ids[0]
            if first < 0 or not self._store.locations.known(first):
                LazyArray(self._store, first).evaluated()  # with all that waits
            rows = self._store.neighbours(self._ids)
            if rows is not None:
                shape = self.shape
                by_value = rows.asnumpy().reshape((shape[1], shape[0]) + shape[2:])
                return np.ascontiguousarray(by_value.swapaxes(0, 1))
        return super().asnumpy()

    def _compute(self) -> NDArray:
        values, shape = self._values_as(LazyArray), self.shape
        if not values:
            return without_elements(shape, self._store.spec)
        arrays = [value.evaluated() for value in values[:1]]  # with all that waits
        taped = any([value._is_taped() for value in values])
        with modes(recording=taped or autograd.is_recording()):
            rows = self._store.gathered(self._ids)
            if rows is None:
                arrays += [value.evaluated() for value in values[1:]]
                return mx.nd.stack(*arrays, axis=1)
            if shape[0] == 1:
                return rows.reshape(shape)
            return rows.reshape((shape[1], shape[0]) + shape[2:]).swapaxes(0, 1)

    def prepare_writing(self, operands: Sequence[Any] = ()) -> None:
        """Evaluate the array before a write; raise a RecordError while its scope is recording."""
        self.settled()

    def settled(self) -> NDArray:
        """Evaluate the array, which then has its own memory. Raise a RecordError while its scope is
        recording: recorded calls read the values that it is made of."""
        recording = self._store.recording
        if recording is not None and recording.active():
            raise RecordError(
                f'{current_site()} writes to or marks a ragged value in the scope that recorded '
                f'it; make a new value (r = r * 2), or do it to the values that it is made of'
            )
        return self.evaluated()

    def __repr__(self) -> str:
        return f'<RaggedArray {"x".join(map(str, self.shape))} @{self.context}>'


class RaggedNumpyArray(RaggedArray, LazyNumpyArray):
    """A ragged value in NumPy mode: an ``mx.np.ndarray`` for every caller."""

    __slots__ = ()

    def values(self) -> list[LazyArray]:
        """Return the values that are stacked along axis 1, as a list."""
        return self._values_as(LazyNumpyArray)

    def _compute(self) -> NDArray:
        return as_numpy(RaggedArray._compute(self), self.shape)


VALUES = (LazyArray, LazyNumpyArray)  # classes of single values, by mode
RAGGED = (RaggedArray, RaggedNumpyArray)  # and of ragged ones


def ragged_of(store: Store, ids: list[int]) -> RaggedArray:
    """Return a ragged value of a recording's mode, made of the values with these numbers."""
    return RAGGED[store.recording.mode.numpy](store, ids)


class _KnowsLengths:
    """Add `lengths` to a ragged array that was made outside a scope."""

    __slots__ = ()

    _length: int
    # Of one without values: what runs a call that reads it, and keeps hooks that see such calls.
    _alone: Any
    shape: tuple[int, ...]
    ctx: mx.Context

    @property
    def lengths(self) -> NDArray:
        """(rows,) float32, number of values in each row."""
        return new_array([float(self._length)] * self.shape[0], self.ctx, np.float32)

    def __getitem__(self, key):
        if is_eagerly_empty(self):  # MXNet would read beyond it
            return self._alone.call(getitem, (self, key))
        return super().__getitem__(key)  # type: ignore[misc]  # of NDArray

    def reshape(self, *shape, **options):
        """Return the array in another shape, as ``NDArray.reshape``."""
        if is_eagerly_empty(self):
            return self._alone.call(lambda own: own.reshape(*shape, **options), (self,))
        return super().reshape(*shape, **options)  # type: ignore[misc]  # of NDArray

    def astype(self, *dtype, **options):
        """Return the array in another dtype, as ``NDArray.astype``."""
        if is_eagerly_empty(self):
            return self._alone.call(lambda own: own.astype(*dtype, **options), (self,))
        return super().astype(*dtype, **options)  # type: ignore[misc]  # of NDArray

    def copy(self, *order):
        """Return a copy of the array, as ``NDArray.copy``."""
        if is_eagerly_empty(self):
            return self._alone.call(lambda own: own.copy(*order), (self,))
        return super().copy(*order)  # type: ignore[misc]  # of NDArray

    def detach(self):
        """Return the array without a gradient, as ``NDArray.detach``."""
        if is_eagerly_empty(self):
            return self
        return super().detach()  # type: ignore[misc]  # of NDArray


class EagerRagged(_KnowsLengths, NDArray):
    """A ragged NDArray that was made outside a scope, with its lengths."""

    __slots__ = ('_length', '_alone')


class EagerNumpyRagged(_KnowsLengths, mx.np.ndarray):
    """A ragged ``mx.np.ndarray`` that was made outside a scope, with its lengths."""

    __slots__ = ('_length', '_alone')


def is_eagerly_empty(arg: Any) -> bool:
    """Return whether an argument is a ragged array without values that was made outside a scope."""
    return isinstance(arg, _KnowsLengths) and hasattr(arg, '_alone')


def runs_alone(args: Iterable[Any]) -> Optional[Callable[..., Any]]:
    """Return what runs a call outside of scopes, as a ragged argument has no values; else None."""
    for arg in args:
        if is_eagerly_empty(arg):
            return arg._alone.call
        found = runs_alone(arg) if arg.__class__ in (list, tuple) else None
        if found is not None:
            return found
    return None


def nested_refused() -> str:
    """Return the message that ragged values cannot be nested, and what to write instead."""
    return (
        f'ragged() takes values of one shape, and ragged ones have none: make one value of each '
        f'first, as in ragged(attend(each([ragged(words) for words in sentences])))\n'
        f'  called at {current_site()}'
    )


def one_kind_needed(specs: Iterable[Spec]) -> str:
    """Return the message that values of these specs cannot form one ragged value."""
    kinds = ', '.join(sorted(map(str, specs)))
    return (
        f'ragged() needs values of one shape, dtype and context, got {kinds}\n'
        f'  called at {current_site()}'
    )


# Returns what an array without elements keeps (see `_KnowsLengths`), given what records it;
# `api.functional` sets it.
guard: Any = None


def without_elements(
    shape: tuple[int, ...], spec: Spec, made: Optional[Callable[[], Any]] = None
) -> NDArray:
    """Return an array of this shape, which has a 0. `made` records in the present scope what it is
    if that is no ragged value. Few operators of MXNet take it, so that calls that read it outside
    of scopes run in scopes of their own."""
    with mx.util.np_shape(True):
        array = mx.nd.zeros(shape, ctx=spec.ctx, dtype=spec.dtype)
    result = alias(array, EagerNumpyRagged if mx.util.is_np_array() else EagerRagged)
    result._length, result._alone = 0, guard(made)
    return result
