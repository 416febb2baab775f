"""Lazy values: NDArrays whose contents are computed when somebody looks at them."""
from functools import wraps
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from ..pool import Memory
from .spec import Spec

# The originals: a scope replaces these two to notice changes of mode (see hooks.py).
_set_recording, _set_training = autograd.set_recording, autograd.set_training


class Arena:
    """All rows of one kind that one evaluation computed.

    Attributes
    ----------
    raw : NDArray
        The rows, unknown to autograd.
    """

    __slots__ = ('raw', '_taped', '_connect', '_memory')

    def __init__(self, raw: NDArray, connect: Optional[Callable[[], NDArray]],
                 memory: Optional[Memory]):
        self.raw = raw
        self._memory = memory
        self._taped: Optional[NDArray] = None
        self._connect = connect

    @property
    def taped(self) -> Optional[NDArray]:
        """The same memory as an output of the evaluation on autograd's tape, or None if nothing
        has a gradient. Put there at the first use: every arena on the tape costs a gradient of
        its whole size, and most of them nobody reads."""
        if self._taped is None and self._connect is not None:
            self._show()
            self._taped = self._connect()
            self._connect = None
        return self._taped

    def _show(self) -> None:
        """From now on views of the memory are about."""
        if self._memory is not None:
            self._memory.shown = True

    def read(self, begin: int, end: int, taped: bool) -> NDArray:
        """A view of some rows, connected to autograd if they were recorded so."""
        self._show()
        source = self.taped if taped else None
        if source is None:
            return self.raw._slice(begin, end)
        previous = _set_recording(True)
        try:
            return source._slice(begin, end)
        finally:
            _set_recording(previous)


class EagerArena:
    """Results of one kind that are on the user's own tape, each an array of its own.

    Attributes
    ----------
    rows : dict
        First row of a value -> what it is. There is no memory behind the numbers of rows.
    """

    __slots__ = ('rows',)

    def __init__(self):
        self.rows: Dict[int, NDArray] = {}

    def read(self, begin: int, _end: int, taped: bool) -> NDArray:
        """The value that begins at some row, connected to autograd if it was recorded so."""
        return self.rows[begin] if taped else self.rows[begin].detach()


class Locations:
    """Where the values of one recording are.

    Attributes
    ----------
    evaluation : numpy.ndarray
        int32 by value, number of the evaluation that computed it, -1 before.
    row : numpy.ndarray
        int64 by value, its first row in the arena of its kind.
    rows : numpy.ndarray
        int64 by value, how many rows it has.
    taped : numpy.ndarray
        bool by value, whether it was recorded under ``autograd.record()``.
    """

    def __init__(self):
        self.evaluation = np.full(0, -1, np.int32)
        self.row = np.zeros(0, np.int64)
        self.rows = np.zeros(0, np.int64)
        self.taped = np.zeros(0, bool)

    def grow(self, values: int) -> None:
        """Make room for this many values."""
        missing = values - len(self.evaluation)
        if missing > 0:
            missing = max(missing, len(self.evaluation) // 2)
            self.evaluation = np.concatenate([self.evaluation, np.full(missing, -1, np.int32)])
            self.row = np.concatenate([self.row, np.zeros(missing, np.int64)])
            self.rows = np.concatenate([self.rows, np.zeros(missing, np.int64)])
            self.taped = np.concatenate([self.taped, np.zeros(missing, bool)])

    def known(self, value: int) -> bool:
        """Whether the value was computed."""
        return value < len(self.evaluation) and self.evaluation[value] >= 0


class Store:
    """The values with one spec in one recording.

    Attributes
    ----------
    recording : Recording or None
        None once there is nothing left to run: values then need the results only, and keep
        neither the recording nor the arenas of other kinds alive.
    spec : Spec
    shape : tuple of int
    ragged : object
        Stands for "ragged values of this spec" in the key of a call.
    arenas : dict
        Evaluation -> `Arena` or `EagerArena`.
    locations : Locations
        Shared by all stores of a recording.
    """

    __slots__ = ('recording', 'spec', 'shape', 'ragged', 'arenas', 'locations', '__weakref__')

    def __init__(self, recording, spec: Spec):
        self.recording = recording
        self.spec = spec
        self.shape = spec.shape
        self.ragged = object()
        self.arenas: Dict[int, Arena] = {}
        self.locations: Locations = recording.locations

    def read(self, value: int) -> NDArray:
        """The computed value; if it is not there yet, run all that is recorded."""
        if value < 0:
            return self.recording.original(value)
        locations = self.locations
        if not locations.known(value):
            self.recording.flush()
        row = int(locations.row[value])
        return self.arenas[int(locations.evaluation[value])].read(
            row, row + self.spec.rows, locations.taped[value])


class LazyArray(NDArray):
    """The result of a recorded call: an ``NDArray`` for every caller.

    Shape, dtype and context are known at once. Operators applied to it inside the scope are
    recorded; whatever needs its contents evaluates it, along with all that is recorded so far.
    It cannot be written to: ``x += y`` makes a new value, ``x[...] = y`` is an error.
    """

    __slots__ = ('_store', '_id', '_array')

    def __init__(self, store: Store, value: int):  # pylint: disable=super-init-not-called
        self._store = store
        self._id = value

    # --- known without running -------------------------------------------------------------------

    @property
    def shape(self) -> Tuple[int, ...]:
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
        """Lazy values are read-only."""
        return False

    # --- the contents ----------------------------------------------------------------------------

    def evaluated(self) -> NDArray:
        """The value as an ordinary NDArray."""
        try:
            return self._array
        except AttributeError:
            pass
        self._array = self._compute()
        return self._array

    def _compute(self) -> NDArray:
        return self._store.read(self._id)

    @property
    def handle(self):
        """MXNet's handle of the computed value."""
        return self.evaluated().handle

    def backward(self, out_grad=None, retain_graph=False, train_mode=True) -> None:
        """Compute gradients, as ``NDArray.backward``. Other values of the scope can be
        differentiated afterwards as if each had a graph of its own."""
        self.evaluated().backward(out_grad, True, train_mode)

    # --- recorded, where the base class would look at the handle ---------------------------------

    def _recorded(self, op: str, *args: NDArray, **attrs: Any) -> Optional[NDArray]:
        """Record an operator, or None if this value's scope is not recording any more."""
        recording = self._store.recording
        if recording is None or not recording.active():
            return None
        return recording.operator(op, tuple((k, str(v)) for k, v in attrs.items()),
                                  (self,) + args)

    def reshape(self, *shape, **kwargs) -> NDArray:
        """As ``NDArray.reshape``."""
        wanted = kwargs.get('shape', shape[0] if len(shape) == 1 and isinstance(
            shape[0], (tuple, list)) else shape)
        result = self._recorded('Reshape', shape=tuple(wanted),
                                reverse=bool(kwargs.get('reverse', False)))
        return self.evaluated().reshape(*shape, **kwargs) if result is None else result

    def astype(self, dtype, copy=True) -> NDArray:
        """As ``NDArray.astype``."""
        if not copy and np.dtype(dtype) == np.dtype(self.dtype):
            return self
        result = self._recorded('Cast', dtype=np.dtype(dtype).name)
        return self.evaluated().astype(dtype, copy) if result is None else result

    def detach(self) -> NDArray:
        """As ``NDArray.detach``."""
        result = self._recorded('BlockGrad')
        return self.evaluated().detach() if result is None else result

    def copy(self) -> NDArray:
        """As ``NDArray.copy``."""
        result = self._recorded('_copy')
        return self.evaluated().copy() if result is None else result

    def as_in_context(self, context) -> NDArray:
        """As ``NDArray.as_in_context``."""
        return self if context == self.context else self.evaluated().as_in_context(context)

    def __getitem__(self, key):
        index = basic_index(key, self.shape)
        if index is None or 0 in index.shape:
            return super().__getitem__(key)
        recording = self._store.recording
        if recording is None or not recording.active():
            return super().__getitem__(key)
        value = self
        if any([axis != _EVERYTHING for axis in index.axes]):
            value = recording.operation(mx.nd.slice, (self,), {
                'begin': tuple([axis.start for axis in index.axes]),
                'end': tuple([axis.stop for axis in index.axes]),
                'step': tuple([axis.step for axis in index.axes])})
        return value if value.shape == index.shape else value.reshape(index.shape)

    def _slice(self, start, stop):
        length = self.shape[0]
        begin, end, _ = slice(start, stop).indices(length)
        if begin == 0 and end == length:
            return self
        result = None
        if begin < end:
            result = self._recorded('slice_axis', axis=0, begin=begin, end=end)
        return self.evaluated()._slice(start, stop) if result is None else result

    def _at(self, idx):
        if idx < 0:
            idx += self.shape[0]
        if not 0 <= idx < self.shape[0]:
            raise IndexError(f'index {idx} is out of bounds for axis 0 with size {self.shape[0]}')
        if self.ndim == 1:
            return self._slice(idx, idx + 1)
        row = self._slice(idx, idx + 1)
        return row.reshape(self.shape[1:])

    # --- read-only -------------------------------------------------------------------------------

    def __setitem__(self, key, value):
        raise TypeError('a recorded value cannot be written to, because other recorded calls may '
                        'read it; make a new value instead (y = mx.nd.where(...), x + d, …) or '
                        'write into x.copy()')

    def __iadd__(self, other):
        return self + other

    def __isub__(self, other):
        return self - other

    def __imul__(self, other):
        return self * other

    def __itruediv__(self, other):
        return self / other

    def __imod__(self, other):
        return self % other

    def __reduce__(self):
        return self.evaluated().__reduce__()

    def __repr__(self) -> str:
        store = self._store
        if store.recording is None or (self._id >= 0 and store.locations.known(self._id)):
            return repr(self.evaluated())
        return f'<LazyArray {"x".join(map(str, self.shape))} @{self.context}, not computed>'


def _arithmetic(name: str) -> Callable[[LazyArray, Any], NDArray]:
    """An operator of Python, recorded without asking MXNet anew what it means each time."""
    eager = getattr(NDArray, name)

    @wraps(eager)
    def method(self, other):
        recording = self._store.recording
        if recording is not None and recording.active():
            if isinstance(other, NDArray):
                return recording.operation(eager, (self, other), {})
            if other.__class__ in (int, float):
                return recording.operation(eager, (self,), {'other': other})
        return eager(self, other)

    return method


for _name in 'add radd sub rsub mul rmul truediv rtruediv pow rpow mod rmod eq ne gt ge lt le'.split():
    setattr(LazyArray, f'__{_name}__', _arithmetic(f'__{_name}__'))


_EVERYTHING = slice(None)


class Index(NamedTuple):
    """What to take of an array.

    Attributes
    ----------
    axes : list of slice
        Of each axis.
    shape : tuple of int
        Of the result.
    """

    axes: List[slice]
    shape: Tuple[int, ...]


def basic_index(key: Any, shape: Tuple[int, ...]) -> Optional[Index]:
    """What a key of integers, slices, None and Ellipsis means; None for any other, and for those
    that NDArrays refuse, which are to say why."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(each is not None and each is not Ellipsis and type(each) not in (int, slice)
           for each in keys) or keys.count(Ellipsis) > 1:
        return None
    named = sum([each is not None and each is not Ellipsis for each in keys])
    if named > len(shape):
        return None
    if Ellipsis not in keys:
        keys.append(Ellipsis)
    place = keys.index(Ellipsis)
    keys[place:place + 1] = [slice(None)] * (len(shape) - named)
    axes: List[slice] = []
    result: List[int] = []
    for each in keys:
        length = shape[len(axes)] if each is not None else 0
        if each is None:
            result.append(1)
        elif type(each) is int:
            if not -length <= each < length:
                return None
            axes.append(slice(each % length, each % length + 1))
        else:
            axes.append(each)
            result.append(len(range(*each.indices(length))))
    return Index(axes, tuple(result) or (1,))


class RaggedArray(LazyArray):
    """Any number of values of one spec, stacked along axis 1 (see `gluon_edbatch.ragged`).

    Attributes
    ----------
    lengths : NDArray
        (rows,), how many values there are.
    """

    __slots__ = ('_values', '_ids')

    def __init__(self, store: Store, values: Optional[Sequence[NDArray]], ids: List[int]):
        # pylint: disable=super-init-not-called
        self._store = store
        self._values = values
        self._ids = ids

    @property
    def shape(self) -> Tuple[int, ...]:
        """(rows, number of values, ...); at least one along axis 1, of zeros if there is none."""
        shape = self._store.shape
        return (shape[0], max(1, len(self._ids))) + shape[1:]

    @property
    def lengths(self) -> NDArray:
        """(rows,) float32, how many values there are, for operators such as SequenceMask."""
        recording, rows = self._store.recording, self._store.shape[0]
        length = float(len(self._ids))
        if rows == 1:
            return recording.number(length)
        return recording.values([np.full((rows,), length, np.float32)])[0]

    def _compute(self) -> NDArray:
        values = self._values
        if values is None:
            values = [LazyArray(self._store, value) for value in self._ids]
        return stack_ragged([value.evaluated() for value in values], self._store.spec)

    def __repr__(self) -> str:
        return f'<RaggedArray {"x".join(map(str, self.shape))} @{self.context}>'


class EagerRagged(NDArray):
    """What `ragged` gives outside a scope: an NDArray that knows its lengths."""

    __slots__ = ('_length',)

    @property
    def lengths(self) -> NDArray:
        """(rows,) float32, how many values there are."""
        return mx.nd.full((self.shape[0],), self._length, ctx=self.ctx)


def stack_ragged(values: Sequence[NDArray], spec: Spec) -> NDArray:
    """(rows, k, ...) from k arrays of one shape; one of zeros if there is none."""
    if not values:
        return mx.nd.zeros((spec.rows, 1) + spec.row_shape, ctx=spec.ctx, dtype=spec.dtype)
    return mx.nd.stack(*values, axis=1)
