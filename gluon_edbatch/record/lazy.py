"""Lazy values: NDArrays whose contents are computed when somebody looks at them."""

import sys
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache, partial, wraps
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from ..errors import RecordError
from ..mx.arrays import as_numpy, copy_into, new_array
from ..mx.modes import modes
from ..mx.numpy_compat import attribute_text
from ..subgraph.spec import Spec
from .indexing import known_index
from .sites import current_site
from .stores import Store, copied


class LazyArray(NDArray):
    """The result of a recorded call: an ``NDArray`` for every caller.

    Calls in a scope give it (see `batching`); it is not made by users. Shape, dtype and context are
    known at once, and as in eager Gluon. Operators applied to it inside the scope are recorded;
    whatever needs its contents (``h.asnumpy()``, ``float(h)``, ``print(h)``) evaluates it, along
    with all that is recorded so far; `forward` evaluates what some values need and no more.

    What is wrong with a call is told where that can be known: shapes, dtypes and contexts by a
    `RecordError` when it is recorded, what fails as it runs by a `BatchError` when contents are
    asked for. Contents of a scope that an exception left are a `StaleValueError`. Functions of
    NumPy (``np.tanh(h)``) are a `RecordError`, as they would give no gradient.

    Writing to it (``x += y``, ``x[0] = y``, ``out=x``) makes this object another value, so that
    all who hold it see that; calls that were recorded before have read what it was. It is a
    `RecordError` while another array shares its memory, as a slice does in eager Gluon.
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
        return int(np.prod(self.shape))

    @property
    def dtype(self):
        """NumPy scalar type."""
        return self._store.spec.dtype

    @property
    def context(self) -> mx.Context:
        """Device."""
        return self._store.spec.ctx

    ctx = context

    @property
    def stype(self) -> str:
        """Storage type; recorded values are dense."""
        return 'default'

    @property
    def writable(self) -> bool:
        """Whether it can be written to."""
        return True

    # --- the contents ----------------------------------------------------------------------------

    def evaluated(self) -> NDArray:
        """The value as an ordinary NDArray, computed with all that is recorded so far.

        Autograd knows it, if the value was recorded so. Raises what `asnumpy` raises.
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

    def made(self) -> Optional[np.ndarray]:
        """What it held when it was made in the scope, as by ``mx.nd.zeros`` (see `created`)."""
        if self._id >= 0:
            return None
        given = self._store.given.get(self._id)
        return given if isinstance(given, np.ndarray) else None

    def constant(self) -> Optional[np.ndarray]:
        """What it holds if it was made so, and nobody had its array since."""
        return self.made()

    def asnumpy(self) -> np.ndarray:
        """As ``NDArray.asnumpy``: a copy as a NumPy array of its shape and dtype, evaluated with
        all that is recorded so far.

        Raises
        ------
        BatchError
            If a batch fails as it runs.
        StaleValueError
            If an exception left the scope before the value was computed.
        """
        known = self.constant()
        return super().asnumpy() if known is None else known.copy()

    def __array__(self, dtype=None) -> np.ndarray:
        return np.asarray(self.asnumpy(), dtype)

    def __array_ufunc__(self, function, method, *inputs, **kwargs):
        """``array + value``; other functions of NumPy are not recorded."""
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
        differentiated afterwards as if each had a graph of its own."""
        array = self.evaluated()
        try:
            array.backward(out_grad, True, train_mode)
        except MXNetError as error:
            raise self._not_differentiable(error) from None

    def _is_taped(self) -> bool:
        """Whether it was computed in a call that was recorded under ``autograd.record()``."""
        locations = self._store.locations
        return self._id >= 0 and locations.known(self._id) and bool(locations.taped[self._id])

    def _not_differentiable(self, error: MXNetError) -> Exception:
        """The same error, in the user's terms if it is that of a value without a gradient."""
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
        """Record an operator; None if it is to run: this value's scope is not recording any more,
        or the value is one that was made there."""
        recording = self._store.recording
        if recording is None or not recording.active():
            return None
        if self._id < 0 and self.made() is not None:
            return None
        return recording.operation(function, (self,), options)

    def reshape(self, *shape, **kwargs) -> NDArray:
        """As ``NDArray.reshape``."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        reverse = False
        if kwargs:
            wanted, reverse = kwargs.get('shape', wanted), bool(kwargs.get('reverse', False))
        result = self._recorded(_reshaping(tuple(wanted), reverse))
        if result is None:
            return self.settled().reshape(*shape, **kwargs)
        return self._sharing_memory(result)

    def astype(self, dtype, copy=True) -> NDArray:
        """As ``NDArray.astype``."""
        if np.dtype(dtype) == np.dtype(self.dtype):
            if not copy:
                return self
            if self.__class__ is LazyArray and self._id >= 0 and self._is_copied_by_name():
                return LazyArray(self._store, self._id)
        result = self._recorded(mx.nd.Cast, dtype=_name_of_dtype(dtype))
        return self.evaluated().astype(dtype, copy=copy) if result is None else result

    def _is_copied_by_name(self) -> bool:
        """Whether another name of the value does for a copy: whoever writes to a value gives it
        another one. Under ``autograd.pause()`` no gradient may go through the copy."""
        recording = self._store.recording
        return (
            recording is not None
            and recording.active()
            and (recording.mode.recording or not recording.knows_autograd())
        )

    def detach(self) -> NDArray:
        """As ``NDArray.detach``: the same numbers, through which no gradient goes."""
        result = self._recorded(mx.nd.BlockGrad)
        return self.settled().detach() if result is None else self._sharing_memory(result)

    def copy(self) -> NDArray:
        """As ``NDArray.copy``."""
        result = self._recorded(mx.nd.identity)
        return self.evaluated().copy() if result is None else result

    @property
    def T(self) -> NDArray:
        """As ``NDArray.T``."""
        return self.transpose() if self.ndim > 1 else self

    def copyto(self, other):
        """As ``NDArray.copyto``."""
        if not isinstance(other, NDArray) or other is self:
            return super().copyto(other)
        return copy_into(self, out=other)

    def as_in_context(self, context) -> NDArray:
        """As ``NDArray.as_in_context``: the value itself where it is there already. Otherwise it is
        evaluated, with all that is recorded so far, and copied at once."""
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
            value = recording.operation(_at_position, (self, index.position), {'axis': index.axis})
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
        """Note that in eager Gluon `view`, which it gives back, shares the memory of this value."""
        memory = getattr(self, '_memory', None)
        if memory is None:
            memory = self._memory = object()
        view._memory = memory
        return view

    def prepare_writing(self, operands: Sequence[Any] = ()) -> None:
        """Called by the package before something is written to this array: checks that it may be.

        Parameters
        ----------
        operands : sequence, default ()
            What the new contents are computed of; `y` in ``x += y``.

        Raises
        ------
        RecordError
            If somebody else would see it in eager Gluon, and cannot here: a view shares the memory
            (``x[0:1]``, ``x.reshape(...)``, ``x.detach()``), the computed array was given out, or
            it is an argument of a recorded call.
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
        """Be another value of the same store from now on."""
        self._id = value._id
        if hasattr(self, '_array'):
            del self._array

    def settled(self) -> NDArray:
        """Evaluate it, and be an array with memory of its own from now on, which everybody may
        view, write to and mark; recorded calls take it as it is then, as they take any array."""
        if _is_held_elsewhere(self, '_array'):
            return self._array
        made = self.constant() is not None
        self._array = self._compute() if made else copied(self.evaluated())
        self.__class__ = self._settled_class()
        return self._array

    def _settled_class(self) -> type:
        return SettledArray

    def attach_grad(self, grad_req='write', stype=None) -> None:
        """As ``NDArray.attach_grad``."""
        self._check_not_given_out()
        self.settled().attach_grad(grad_req, stype)

    def _sync_copyfrom(self, source_array) -> None:
        copy_into(
            mx.nd.array(source_array, ctx=self.ctx, dtype=self.dtype).reshape(self.shape), out=self
        )

    def as_np_ndarray(self):
        """As ``NDArray.as_np_ndarray``."""
        return self.settled().as_np_ndarray()

    def to_dlpack_for_write(self):
        """As ``NDArray.to_dlpack_for_write``.

        Raises
        ------
        RecordError
            If others would have to see what is written, and cannot (see `prepare_writing`).
        """
        self.prepare_writing()
        return self.settled().to_dlpack_for_write()

    def __reduce__(self):
        return self.evaluated().__reduce__()

    def __repr__(self) -> str:
        return self._shown(repr)

    def _shown(self, show: Callable[[NDArray], str]) -> str:
        """What `show` makes of its array; if that is not computed yet, it is not computed now."""
        store = self._store
        if (
            store.recording is None
            or self.constant() is not None
            or (self._id >= 0 and store.locations.known(self._id))
        ):
            return show(self.evaluated())
        shape = 'x'.join(map(str, self.shape))
        return f'<{type(self).__name__} {shape} @{self.context}, not computed>'


def _at_position(value: NDArray, position: int, axis: int) -> NDArray:
    return mx.nd.slice_axis(value, axis=axis, begin=position, end=position + 1)


@lru_cache(maxsize=4096, typed=True)
def _reshaping(shape: tuple[int, ...], reverse: bool) -> Callable[..., Any]:
    return partial(mx.nd.Reshape, shape=shape, reverse=reverse)


@cache
def _name_of_dtype(dtype: Any) -> str:
    return np.dtype(dtype).name


def operand_dtype(value: NDArray) -> Any:
    """That of NumPy arrays beside a value: as ``mx.nd.array`` makes of them, but exact."""
    return value.dtype if np.issubdtype(value.dtype, np.floating) else np.float32


def operand(value: NDArray, other: Any) -> Any:
    """What an operator of MXNet takes in the place of a NumPy array beside a value."""
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
    """An operator of Python, recorded without asking MXNet anew what it means each time."""
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
    """A method that calls an operator, recorded without asking MXNet anew which."""
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
    """A method of arrays that writes to them; in a scope the operator that it calls is recorded
    (see `hooks`)."""
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
    """The same error, in the user's terms if it is that of writing under autograd."""
    if 'Assigning to NDArrays that are already in a computational graph' not in str(error):
        return error
    return RecordError(
        f'{current_site()} writes to a value that autograd has recorded, which eager Gluon refuses '
        f'under autograd.record(), too; make a new value instead (h = h * 2 for h *= 2)'
    )


def _is_computed(operand: Any) -> bool:
    return isinstance(operand, LazyArray) and operand.made() is None


def _is_held_elsewhere(value: LazyArray, slot: str) -> bool:
    """Whether somebody else refers to what is in a slot."""
    held = getattr(value, slot, None)
    return held is not None and sys.getrefcount(held) > 3  # the slot, `held`, and the argument


class _Settled:
    """A lazy value that was evaluated, with memory of its own: an array like any other, also to
    recorded calls."""

    __slots__ = ()

    _array: NDArray
    _check_no_views: Callable[[], None]

    def __del__(self):
        pass  # the base class's would free a handle

    def constant(self) -> None:
        """It may have been written to."""

    def _recorded(self, function: Callable[..., Any], **options: Any) -> None:
        """Its methods run at once."""

    def __getitem__(self, key):
        return self._array[key]

    def prepare_writing(self, operands: Sequence[Any] = ()) -> None:
        """See the base class."""
        self._check_no_views()

    def become(self, value: LazyArray) -> None:
        """See the base class; an operator that ran has settled what it read."""
        copy_into(value, out=self._array)

    def _check_not_given_out(self) -> None:
        """It is one array with whatever was given out."""

    def settled(self) -> NDArray:
        """Its array."""
        return self._array


class SettledArray(_Settled, LazyArray):
    """Such a value."""

    __slots__ = ()


class LazyNumpyArray(LazyArray, mx.np.ndarray):
    """The same in MXNet's NumPy mode: an ``mx.np.ndarray`` for every caller, with its methods."""

    __slots__ = ()

    __array_ufunc__ = mx.np.ndarray.__dict__['__array_ufunc__']

    @property
    def dtype(self):
        """A ``numpy.dtype``, as arrays of this mode have: MXNet compares it with Python's types."""
        return np.dtype(self._store.spec.dtype)

    def _compute(self) -> NDArray:
        return as_numpy(super()._compute(), self.shape)

    def _settled_class(self) -> type:
        return SettledNumpyArray

    def __str__(self) -> str:
        return self._shown(str)

    def as_np_ndarray(self):
        """As ``mx.np.ndarray.as_np_ndarray``."""
        return self

    def reshape(self, *shape, **kwargs) -> NDArray:
        """As ``mx.np.ndarray.reshape``."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        result = None if kwargs else self._recorded(_reshaped, shape=tuple(wanted))
        if result is None:
            return mx.np.ndarray.reshape(self, *shape, **kwargs)
        return result

    def astype(self, dtype, order='K', casting='unsafe', subok=True, copy=True):  # type: ignore[override]
        """As ``mx.np.ndarray.astype``."""
        if not copy and np.dtype(dtype) == np.dtype(self.dtype):
            return self
        result = None
        if order in ('K', 'C', None) and casting == 'unsafe' and subok:
            result = self._recorded(_operator('Cast'), dtype=_name_of_dtype(dtype))
        if result is None:
            return self.evaluated().astype(dtype, order, casting, subok, copy)
        return result

    def detach(self) -> NDArray:
        """As ``mx.np.ndarray.detach``."""
        result = self._recorded(_operator('BlockGrad'))
        return self.settled().detach() if result is None else self._sharing_memory(result)

    def copy(self, order='C') -> NDArray:
        """As ``mx.np.ndarray.copy``."""
        result = self._recorded(_operator('_copy')) if order == 'C' else None
        return self.evaluated().copy(order) if result is None else result

    def copyto(self, other):
        """As ``mx.np.ndarray.copyto``."""
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
            value = recording.operation(_row_of, (self, index.position), {'axis': index.axis})
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


def _row_of(value: LazyArray, position: int, axis: int) -> Any:
    return _operator('slice_axis')(value, axis=axis, begin=position, end=position + 1)


@cache
def _operator(name: str) -> Callable[..., Any]:
    """An operator that ``mx.np`` has no function for, of values that are being recorded."""

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
    """Such a value in NumPy mode."""

    __slots__ = ()


class OfNone(list[int]):
    """What is computed of no values, along the axis that they would have: of one of zeros."""


class RaggedArray(LazyArray):
    """Any number of values of one spec, stacked along axis 1 (see `gluon_edbatch.ragged`).

    Attributes
    ----------
    lengths : NDArray
        (rows,), how many values there are.
    """

    __slots__ = ('_ids',)

    def __init__(self, store: Store, ids: list[int]):
        self._store = store
        self._id = 0  # none of its own
        self._ids = ids

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, number of values, ...); at least one along axis 1, of zeros if there is none."""
        shape = self._store.shape
        return (shape[0], max(1, len(self._ids))) + shape[1:]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._store.shape) + 1

    @property
    def lengths(self) -> NDArray:
        """(rows,) float32, how many values there are, for operators such as SequenceMask."""
        recording, rows = self._store.recording, self._store.shape[0]
        records = recording is not None and recording.active()
        if records and rows == 1:
            return recording.length(self)
        length = 0.0 if self._ids.__class__ is OfNone else float(len(self._ids))
        if not records:
            return new_array([length] * rows, self.ctx, np.float32)
        return recording.handed_out(recording.values([np.full((rows,), length, np.float32)])[0])

    def values(self) -> list[LazyArray]:
        """Those that are stacked."""
        return [LazyArray(self._store, value) for value in self._ids]

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
        """See `LazyArray.asnumpy`."""
        if self._ids and getattr(self, '_array', None) is None:
            LazyArray(self._store, self._ids[0]).evaluated()  # with all that waits
            rows = self._store.neighbours(self._ids)
            if rows is not None:
                shape = self.shape
                by_value = rows.asnumpy().reshape((shape[1], shape[0]) + shape[2:])
                return np.ascontiguousarray(by_value.swapaxes(0, 1))
        return super().asnumpy()

    def _compute(self) -> NDArray:
        values, shape = self.values(), self.shape
        arrays = [value.evaluated() for value in values[:1]]  # with all that waits
        taped = any([value._is_taped() for value in values])
        with modes(recording=taped or autograd.is_recording()):
            rows = self._store.gathered(self._ids) if values else None
            if rows is None:
                arrays += [value.evaluated() for value in values[1:]]
                return stack_ragged(arrays, self._store.spec)
            if shape[0] == 1:
                return rows.reshape(shape)
            return rows.reshape((shape[1], shape[0]) + shape[2:]).swapaxes(0, 1)

    def prepare_writing(self, operands: Sequence[Any] = ()) -> None:
        """See the base class."""
        self.settled()

    def settled(self) -> NDArray:
        """See the base class; recorded calls read the values that it is made of."""
        recording = self._store.recording
        if recording is not None and recording.active():
            raise RecordError(
                f'{current_site()} writes to or marks a ragged value in the scope that recorded '
                f'it; make a new value (r = r * 2), or do it to the values that it is made of'
            )
        return self.evaluated()

    def __repr__(self) -> str:
        return f'<RaggedArray {"x".join(map(str, self.shape))} @{self.context}>'


VALUES = (LazyArray, LazyNumpyArray)  # classes of single values, by mode


class _KnowsLengths:
    """What `ragged` gives outside a scope: an array that knows its lengths."""

    __slots__ = ()

    _length: int
    shape: tuple[int, ...]
    ctx: mx.Context

    @property
    def lengths(self) -> NDArray:
        """(rows,) float32, how many values there are."""
        return new_array([float(self._length)] * self.shape[0], self.ctx, np.float32)


class EagerRagged(_KnowsLengths, NDArray):
    """Such an NDArray."""

    __slots__ = ('_length',)


class EagerNumpyRagged(_KnowsLengths, mx.np.ndarray):
    """Such an array of ``mx.np``."""

    __slots__ = ('_length',)


def nested_refused() -> str:
    """What to write in the place of ragged values of ragged values."""
    return (
        f'ragged() takes values of one shape, and ragged ones have none: make one value of each '
        f'first, as in ragged(attend(each([ragged(words) for words in sentences])))\n'
        f'  called at {current_site()}'
    )


def one_kind_needed(specs: Iterable[Spec]) -> str:
    """What is wrong with ragged values of these specs."""
    kinds = ', '.join(sorted(map(str, specs)))
    return (
        f'ragged() needs values of one shape, dtype and context, got {kinds}\n'
        f'  called at {current_site()}'
    )


def stack_ragged(values: Sequence[NDArray], spec: Spec) -> NDArray:
    """(rows, k, ...) from k arrays of one shape; one of zeros if there is none."""
    if not values:
        return mx.nd.zeros((spec.rows, 1) + spec.row_shape, ctx=spec.ctx, dtype=spec.dtype)
    return mx.nd.stack(*values, axis=1)
