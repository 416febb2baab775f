"""Functions on values, lazy or not: the same model code works inside a scope and outside."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.short_repr import brief

from ..mx.arrays import alias, keep_on_tape, new_array
from ..mx.host import upload
from ..mx.modes import modes
from ..record import hooks, lazy
from ..record.calls import records_ragged
from ..record.each import Each, each_of
from ..record.hooks import current_recording
from ..record.inputs import ARRAYS, SCALAR_DTYPE, is_array
from ..record.lazy import (
    VALUES,
    EagerNumpyRagged,
    EagerRagged,
    LazyArray,
    RaggedArray,
    is_eagerly_empty,
    nested_refused,
    one_kind_needed,
    without_elements,
)
from ..record.recording import Recording
from ..record.sites import current_site
from ..record.stores import Store
from ..subgraph.spec import spec_of
from ..subgraph.structure import flatten, unflatten
from .scope import batching


def forward(values: Any) -> Any:
    """Evaluate lazy values together; calls that they do not need are not run.

    Parameters
    ----------
    values : LazyArray, or nested lists, tuples and dicts of them
        Values to evaluate. Anything else in the structure is returned unchanged.

    Returns
    -------
    The same structure with ordinary NDArrays.
    """
    leaves: list[NDArray] = []
    template = flatten(values, object, leaves)  # as what is no array need not be hashable
    compute(leaves)
    _settle_together(leaves)
    return unflatten(template, iter([_to_write_to(leaf) for leaf in leaves]))


def _settle_together(leaves: Sequence[NDArray]) -> None:
    """Give values of open scopes memory to write to: those of one arena share one copy, as a copy
    of each takes 20 microseconds. What is on a tape is left to `_to_write_to`."""
    by_arena: dict[tuple[Any, Any], dict[int, LazyArray]] = {}
    for leaf in leaves:
        if leaf.__class__ in VALUES and leaf._id >= 0 and not hasattr(leaf, '_array'):
            store = leaf._store
            if store.recording is not None and not store.recording.closed and not store.packed:
                by_arena.setdefault((store.recording, store.spec.arena), {})[id(leaf)] = leaf
    for (recording, _), values in by_arena.items():
        numbers = [value._id for value in values.values()]
        if recording.locations.taped[numbers].any():
            continue
        store, end = next(iter(values.values()))._store, 0
        rows = store.gathered(numbers)
        if rows is not None:
            for value in values.values():
                begin, end = end, end + value._store.spec.rows
                value.settle_in(rows._slice(begin, end))


def _to_write_to(value: NDArray) -> NDArray:
    """Return the array of a value, which the user may write to; waiting calls do not read it."""
    if not isinstance(value, LazyArray):
        return value
    if 0 in value.shape:
        return value.evaluated()
    recording = value._store.recording
    if (
        recording is None
        or isinstance(value, RaggedArray)
        or (recording.closed and not recording.will_read(value._id))
    ):
        return value.evaluated()
    return value.settled()


def compute(leaves: Sequence[NDArray]) -> None:
    """Evaluate the lazy values among `leaves`, with one evaluation for each scope concerned."""
    store = store_of_all(leaves)
    if store is not None:
        if store.recording is not None:
            _compute_values(store.recording, [leaf._id for leaf in leaves])
        return
    by_recording: dict[Recording, list[int]] = {}
    for leaf in leaves:
        if not isinstance(leaf, LazyArray) or 0 in leaf.shape:
            continue
        recording = leaf._store.recording
        if recording is not None:
            values = leaf._ids if isinstance(leaf, RaggedArray) else (leaf._id,)
            by_recording.setdefault(recording, []).extend(values)
    for recording, values in by_recording.items():
        _compute_values(recording, values)


def _compute_values(recording: Recording, values: Sequence[int]) -> None:
    wanted = recording.locations.unknown(np.array(values, np.int64))
    if len(wanted):
        recording.flush(wanted)


def store_of_all(values: Sequence[Any]) -> Optional[Store]:
    """Return the store that all values belong to; None if they have several, or one is not lazy."""
    if not all([value.__class__ in VALUES for value in values]):
        return None
    stores = {value._store for value in values}
    return stores.pop() if len(stores) == 1 else None


def _recording_of(values: Sequence[NDArray]) -> Optional[Recording]:
    """Return the open recording if any of the values is lazy in it, else None."""
    recording = current_recording()
    if recording is not None and any(
        isinstance(value, LazyArray) and value._store.recording is recording for value in values
    ):
        return recording
    return None


def _checked(values: Iterable[NDArray], name: str, alike: bool = True) -> list[NDArray]:
    """Return the values as a list; raise unless all are arrays, and of one shape if `alike`."""
    values = list(values)
    if not values:
        raise RecordError(f'{name}() of no values')
    for value in values:
        if not isinstance(value, NDArray):
            raise TypeError(f'{name}() takes NDArrays, not {type(value).__name__}')
        if alike and value.shape != values[0].shape:
            raise RecordError(
                f'{name}() needs values of one shape, got {values[0].shape} and '
                f'{value.shape}\n  called at {current_site()}'
            )
    return values


def _gathered(values: Sequence[NDArray]) -> Optional[NDArray]:
    """Return the rows of computed lazy values of one arena, concatenated by one gather; None of
    other values, and of packed sentences, whose rows are their positions."""
    if any(value.__class__ not in VALUES or value._store.packed for value in values):
        return None
    compute(values)
    first = values[0]._store
    if any(
        value._store.locations is not first.locations or value._store.spec.arena != first.spec.arena
        for value in values
    ):
        return None
    return first.gathered([value._id for value in values])


def stack(values: Sequence[NDArray], axis: int = 0) -> NDArray:
    """Stack any number of values along a new axis.

    Inside the scope of lazy values the call is recorded. Elsewhere the values are evaluated, and
    the result is an ordinary NDArray. Autograd follows it if the values were recorded under
    autograd.

    Parameters
    ----------
    values : sequence of NDArray
        k values of one shape (r, ...).
    axis : int, default 0
        The new axis of the result.

    Returns
    -------
    NDArray
        (k, r, ...) for axis 0.

    Raises
    ------
    RecordError
        If there are no values, or their shapes differ.
    TypeError
        If a value is not an NDArray.
    """
    values = _checked(values, 'stack')
    shape = values[0].shape
    recording = _recording_of(values)
    if recording is not None:
        if axis == 0:
            return recording.concat(values).reshape((-1,) + shape)  # one type, whatever the number
        return _stacked(values, axis)
    rows = _gathered(values) if axis == 0 else None
    if rows is None:
        compute(values)
        return _kept(_stacked(values, axis))
    with _connected(values[0]):
        return _of_mode(values, rows.reshape((len(values),) + shape))


def _kept(array: NDArray) -> NDArray:
    return keep_on_tape(array) if mx.autograd.is_recording() else array


def _stacked(values: Sequence[NDArray], axis: int) -> NDArray:
    if _are_numpy(values):
        return mx.np.stack(values, axis=axis)
    return mx.nd.stack(*values, axis=axis)


def _are_numpy(values: Sequence[NDArray]) -> bool:
    return isinstance(values[0], mx.np.ndarray)


def _of_mode(values: Sequence[NDArray], result: NDArray) -> NDArray:
    """Return the result as an ``mx.np`` array if the values are ``mx.np`` arrays, else as it is."""
    return alias(result, mx.np.ndarray) if _are_numpy(values) else result


def concat(values: Sequence[NDArray], dim: int = 0) -> NDArray:
    """Concatenate any number of values along axis `dim`, 0 by default.

    Inside the scope of lazy values the call is recorded. Along axis 0 it needs no computation:
    later calls read the rows where they are.

    Parameters
    ----------
    values : sequence of NDArray
        Values that differ in the length of axis `dim` only.
    dim : int, default 0
        The axis along which they are joined.

    Returns
    -------
    NDArray
        Shape of the values, with the sum of their lengths along axis `dim`.

    Raises
    ------
    RecordError
        If there are no values, or if lengths of other axes or dtypes differ inside the scope.
        Outside, MXNet raises its own error.
    TypeError
        If a value is not an NDArray.
    """
    values = list(values)
    recording = current_recording()
    if recording is not None and dim == 0:
        result = recording.concat_plain(values)
        if result is not None:
            return result
    values = _checked(values, 'concat', alike=False)
    recording = _recording_of(values)
    if recording is not None:
        return recording.concat(values) if dim == 0 else _concatenated(values, dim)
    rows = _gathered(values) if dim == 0 else None
    if rows is not None:
        return _of_mode(values, rows)
    compute(values)
    return _kept(_concatenated(values, dim))


def _concatenated(values: Sequence[NDArray], dim: int) -> NDArray:
    if _are_numpy(values):
        return mx.np.concatenate(values, axis=dim)
    return mx.nd.concat(*values, dim=dim)


def add_n(values: Sequence[NDArray]) -> NDArray:
    """Return the sum of any number of values of one shape; a scope records it as one call.

    Parameters
    ----------
    values : sequence of NDArray
        k values of one shape (r, ...).

    Returns
    -------
    NDArray
        (r, ...)

    Raises
    ------
    RecordError
        If there are no values, or their shapes differ.
    TypeError
        If a value is not an NDArray.
    """
    values = _checked(values, 'add_n')
    shape = values[0].shape
    if not shape:
        return stack(values).sum()
    recording = _recording_of(values)
    if recording is not None and any(isinstance(value, RaggedArray) for value in values):
        return recording.operator('add_n', (('num_args', str(len(values))),), values)
    if recording is not None:
        return recording.operator('sum', (('axis', '1'),), [ragged(values)])
    rows = _gathered(values)
    if rows is None:
        compute(values)
        total = mx.nd.add_n(*[value.as_nd_ndarray() for value in values])
        return _of_mode(values, _kept(total))
    with _connected(values[0]):
        return _of_mode(values, rows.reshape((len(values),) + shape).sum(axis=0))


@records_ragged
def ragged(
    values: Sequence[Any],
    shape: Optional[tuple[int, ...]] = None,
    dtype: Any = 'float32',
    ctx: Optional[mx.Context] = None,
) -> NDArray:
    """Stack any number of values (zero included) along axis 1, as one argument of a block.

    Calls with different numbers of values can run in one batch. The block sees (N, K, ...), and is
    written for K values without padding. Native operators need no padding. Elsewhere padding is
    masked before softmax, sum, mean, max and others along that axis. Operators and blocks that keep
    axis 1 return ragged values again: ``result[:, i]`` is the i-th of them, and `concat` along axis
    1 joins several. A block for which padding is not proved harmless is batched only with calls of
    equally many values. ``scope.explain()`` says where.

    An empty ragged value has no rows: its sum and maximum are 0, and `argmax` of it is an error.
    ``result.lengths`` is (r,) float32, the number of values in each row.

    Parameters
    ----------
    values : sequence of NDArray, numpy.ndarray or number
        k values of one shape (r, ...), dtype and context. They are not ragged themselves. A number
        becomes (1,) float32. NumPy's float64 becomes float32, other dtypes stay.
    shape : tuple of int, optional
        Shape of one value, (r, ...). It is used, and needed, only if there are no values.
    dtype : str or type, default 'float32'
        Dtype of the result if there are no values.
    ctx : mxnet.Context, optional
        Device of the result if there are no values. Outside a scope, numbers and NumPy arrays go
        there, too. The default is the scope's context; outside a scope, the current one.

    Returns
    -------
    NDArray
        (r, k, ...)

    Raises
    ------
    RecordError
        If shapes, dtypes or contexts differ, a value is ragged or not an array, or there are no
        values and no shape.

    Examples
    --------
    >>> with edb.batching():
    ...     vectors = edb.ragged(net.encode(sentence), shape=(1, 4))   # (1, words, 4)
    ...     vector, weights = attend_words(vectors)   # (1, 4), (1, words, 1)
    """
    values = [_as_value(value, ctx) for value in values]
    if values:
        kinds = {spec_of(value.shape, value.dtype, value.ctx) for value in values}
        if len(kinds) > 1:
            raise RecordError(one_kind_needed(kinds))
        compute(values)
        return _eager_ragged(mx.nd.stack(*[each.as_nd_ndarray() for each in values], axis=1))
    if not shape:
        raise RecordError(
            f'ragged() of no values needs their shape: ragged(values, shape=(1, '
            f'hidden_size))\n  called at {current_site()}'
        )
    spec = spec_of(tuple(shape), dtype, ctx or mx.current_context())
    return without_elements((spec.rows, 0) + spec.row_shape, spec)


def _eager_ragged(array: NDArray) -> NDArray:
    result = alias(array, EagerNumpyRagged if mx.util.is_np_array() else EagerRagged)
    result._length = array.shape[1]
    return result


class _Guard:
    """While it lives, calls outside of scopes that read its array, which has no elements, run in
    scopes of their own: most operators of MXNet do not take such an array.

    `made` records in the present scope what the array is, if it is not ragged along axis 1.
    """

    def __init__(self, made: Optional[Callable[[], Any]]) -> None:
        self._made = made
        hooks.install(self, pauses=False)

    def __del__(self) -> None:
        hooks.remove(self)

    @staticmethod
    def call(function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Run a call in a scope of its own; return its results as arrays."""
        with batching():
            template, leaves = _call(function, args)
        results = list(forward(leaves))
        for place, leaf in enumerate(leaves):
            if is_eagerly_empty(results[place]) and not isinstance(leaf, RaggedArray):
                results[place]._alone = _Guard(partial(_result, function, args, place))
            elif isinstance(leaf, RaggedArray) and leaf._ids:
                results[place] = _eager_ragged(results[place])
        return unflatten(template, iter(results))


def _call(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Any]]:
    leaves: list[Any] = []
    return flatten(function(*map(_recorded, args)), object, leaves), leaves


def _result(function: Callable[..., Any], args: Sequence[Any], place: int) -> Any:
    return _call(function, args)[1][place]


def _recorded(arg: Any) -> Any:
    """Return an argument for a call in the present scope."""
    if arg.__class__ in (list, tuple):
        return arg.__class__(map(_recorded, arg))
    if not isinstance(arg, (EagerRagged, EagerNumpyRagged)):
        return arg
    if not is_eagerly_empty(arg):
        return current_recording().ragged([arg[:, place] for place in range(arg.shape[1])])
    made = arg._alone._made
    return current_recording().values([arg])[0] if made is None else made()


lazy.guard = _Guard


def each(values: Sequence[Any]) -> Each:
    """Group several values of one sample, such as a document's sentences, to call blocks on each.

    A HybridBlock called with a group runs once for each of its values. All calls get the same other
    arguments. Another group among the arguments has the same length, and each call gets one of its
    values. Each result of the block is a group again. Python's operators, methods
    (``values.softmax(axis=1)``) and ``gluon_edbatch.nd`` work in the same way. A group is a tuple:
    `ragged`, `stack`, `concat` and `add_n` make one value of it, `forward` evaluates it.

    Outside scopes, only blocks of models with `AutoBatchMixin` accept a group. Functions of
    ``mx.nd`` never do.

    Parameters
    ----------
    values : sequence
        One or more arguments of a block: single values, ragged values, numbers, arrays.

    Returns
    -------
    Each
        A tuple of the values that supports operators and methods.

    Raises
    ------
    RecordError
        If there are no values, or if a value is a group itself: groups cannot be nested.

    Examples
    --------
    >>> with edb.batching():
    ...     sentences = edb.each([edb.ragged(words) for words in document])
    ...     vectors, weights = attend_words(sentences)   # weights are ragged, for each sentence
    ...     vector, _ = attend_sentences(edb.ragged(vectors))
    """
    return each_of(list(values))


def _as_value(value: Any, ctx: Optional[mx.Context]) -> NDArray:
    """Convert one argument of `ragged` to an NDArray, with the rules of a scope."""
    if isinstance(value, RaggedArray) or hasattr(value, '_length'):
        raise RecordError(nested_refused())
    if isinstance(value, NDArray):
        return value
    if not is_array(value):
        raise RecordError(
            f'ragged() takes arrays, not {brief(value)}\n  called at {current_site()}'
        )
    return as_array(value, SCALAR_DTYPE, ctx)


def as_array(value: Any, dtype: Any, ctx: Optional[mx.Context]) -> NDArray:
    """Convert a number or NumPy array to an NDArray with the rules of `Recording.values`."""
    if isinstance(value, (NDArray, mx.sym.Symbol)):  # Symbols: MXNet traces a hybridized block
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        kept = np.float32 if value.dtype == np.float64 else value.dtype
        return _uploaded(value, ctx, kept)
    return _uploaded([value], ctx, dtype)


def _uploaded(values: Any, ctx: Optional[mx.Context], dtype: Any) -> NDArray:
    """Make an array of numbers, five times as fast as MXNet does."""
    numbers = np.asarray(values, dtype)
    if mx.util.is_np_array() or not numbers.size or not Recording.has_dtype(numbers):
        return new_array(values, ctx, dtype)
    return upload(numbers, ctx or mx.current_context())


def as_arrays(args: Sequence[Any], ctx: Optional[mx.Context]) -> Sequence[Any]:
    """Return a block's arguments with numbers and NumPy arrays converted to NDArrays."""
    leaves: list[Any] = []
    template = flatten(list(args), (*ARRAYS, mx.sym.Symbol), leaves)
    dtypes = {
        leaf.dtype
        for leaf in leaves
        if isinstance(leaf, NDArray) and np.issubdtype(leaf.dtype, np.floating)
    }
    dtype = dtypes.pop() if len(dtypes) == 1 else np.float32
    ctx = next((leaf.ctx for leaf in leaves if isinstance(leaf, NDArray)), ctx)
    return unflatten(template, iter([as_array(leaf, dtype, ctx) for leaf in leaves]))


def _connected(value: LazyArray) -> modes:
    """Record autograd's tape while a value that was recorded there is reshaped."""
    return modes(recording=bool(value._store.locations.taped[value._id]))
