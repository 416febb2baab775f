"""Functions on values, lazy or not: the same model text works inside a scope and outside."""

from collections.abc import Iterable, Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..brief import brief
from ..errors import RecordError
from ..mx.arrays import alias, keep_on_tape, new_array
from ..mx.host import upload
from ..mx.modes import modes
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
    nested_refused,
    one_kind_needed,
    stack_ragged,
)
from ..record.recording import Recording
from ..record.sites import current_site
from ..record.stores import Store
from ..subgraph.spec import spec_of
from ..subgraph.structure import flatten, unflatten


def forward(values: Any) -> Any:
    """Evaluate lazy values together, and nothing that they do not need.

    Parameters
    ----------
    values : LazyArray, or nested lists, tuples and dicts of them
        Anything else in it is handed through.

    Returns
    -------
    The same structure with ordinary NDArrays.
    """
    leaves: list[NDArray] = []
    template = flatten(values, object, leaves)  # as what is no array need not be hashable
    compute(leaves)
    return unflatten(template, iter([_to_write_to(leaf) for leaf in leaves]))


def _to_write_to(value: NDArray) -> NDArray:
    """Its array, which the user may write to: not where other calls will, or may, read it."""
    if not isinstance(value, LazyArray):
        return value
    recording = value._store.recording
    if (
        recording is None
        or isinstance(value, RaggedArray)
        or (recording.closed and not recording.will_read(value._id))
    ):
        return value.evaluated()
    return value.settled()


def compute(leaves: Sequence[NDArray]) -> None:
    """Run what the lazy ones among `leaves` need, one evaluation for each scope concerned."""
    store = store_of_all(leaves)
    if store is not None:
        if store.recording is not None:
            _compute_values(store.recording, [leaf._id for leaf in leaves])
        return
    by_recording: dict[Recording, list[int]] = {}
    for leaf in leaves:
        if not isinstance(leaf, LazyArray):
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
    """That of lazy values of one kind; None if there are others among them, or none at all."""
    if not all([value.__class__ in VALUES for value in values]):
        return None
    stores = {value._store for value in values}
    return stores.pop() if len(stores) == 1 else None


def _recording_of(values: Sequence[NDArray]) -> Optional[Recording]:
    """The open scope, if any of the values is lazy there."""
    recording = current_recording()
    if recording is not None and any(
        isinstance(value, LazyArray) and value._store.recording is recording for value in values
    ):
        return recording
    return None


def _checked(values: Iterable[NDArray], name: str, alike: bool = True) -> list[NDArray]:
    """The values as a list; raises unless they are arrays, and of one shape if to be `alike`."""
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
    """The rows of computed lazy values of one arena, one after the other, by one gather."""
    if not all(value.__class__ in VALUES for value in values):
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
    """As ``mx.nd.stack``, for any number of values.

    Inside the scope of lazy values the result is recorded; elsewhere they are evaluated, and the
    result is an ordinary NDArray, connected to autograd if they were recorded so.

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
        If one is no NDArray.
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
    """What was made of values, of ``mx.np`` if these are."""
    return alias(result, mx.np.ndarray) if _are_numpy(values) else result


def concat(values: Sequence[NDArray], dim: int = 0) -> NDArray:
    """As ``mx.nd.concat``, for any number of values; `dim` is 0 by default.

    Inside the scope of lazy values the result is recorded: along axis 0 it is one value with the
    rows of all, and costs nothing but the reading.

    Parameters
    ----------
    values : sequence of NDArray
        Values that differ in the length of axis `dim` only.
    dim : int, default 0
        The axis along which they are joined.

    Returns
    -------
    NDArray
        Of their shape, as long along axis `dim` as all of them together.

    Raises
    ------
    RecordError
        If there are no values, or, in their scope, other lengths or the dtypes differ; elsewhere
        that is MXNet's error.
    TypeError
        If one is no NDArray.
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
    """The sum of any number of values of one shape; recorded inside their scope as one call.

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
        If one is no NDArray.
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
    """Any number of values (none included) stacked along axis 1, as one argument of a block.

    Calls with different numbers of values can run in one batch. The block sees (N, K, ...), and
    writes what it does with the K values of one call, without a thought of padding: native
    operators have none, and where there is some, it is masked before softmax, sum, mean, max and
    others along that axis. Operators and blocks that return something along it give ragged values
    again, computed value by value; ``result[:, i]`` is the i-th of them, and `concat` along axis 1
    puts several together. What is not proved to go so batches only with calls of equally many
    values (``scope.explain()`` says where).

    No values at all are one of zeros in whatever is computed of them, as arrays cannot be empty;
    ``result.lengths`` is (r,) float32, the number of values in each row: 0 then.

    Parameters
    ----------
    values : sequence of NDArray, numpy.ndarray or number
        k values of one shape (r, ...), dtype and context, which are not ragged themselves. A number
        is (1,) float32; NumPy's float64 becomes float32, other dtypes stay.
    shape : tuple of int, optional
        That of one value, (r, ...); needed if there may be none, and not looked at if there are.
    dtype : str or type, default 'float32'
        Of the result if there are no values.
    ctx : mxnet.Context, optional
        Where the result is if there are no values; outside of a scope also where numbers and NumPy
        arrays go. By default the scope's context, or the current one outside.

    Returns
    -------
    NDArray
        (r, k, ...); (r, 1, ...) of zeros if k is 0.

    Raises
    ------
    RecordError
        If shapes, dtypes or contexts differ, a value is ragged or no array, or there are no values
        and no shape.

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
        shape, dtype, ctx = values[0].shape, values[0].dtype, values[0].ctx
    elif not shape:
        raise RecordError(
            f'ragged() of no values needs their shape: ragged(values, shape=(1, '
            f'hidden_size))\n  called at {current_site()}'
        )
    stacked = stack_ragged(
        [value.as_nd_ndarray() for value in values],
        spec_of(tuple(shape), dtype, ctx or mx.current_context()),
    )
    result = alias(stacked, EagerNumpyRagged if mx.util.is_np_array() else EagerRagged)
    result._length = len(values)
    return result


def each(values: Sequence[Any]) -> Each:
    """Several values of one sample, of which each is computed by itself: the sentences of a
    document, each of them `ragged`.

    A call of a HybridBlock with such an argument is a call for each value: other arguments are the
    same for all, unless they are such values, too, as many, of which each call gets its own. The
    results are such values again; a block with several results gives several. So do Python's
    operators, methods (``values.softmax(axis=1)``), and ``gluon_edbatch.nd``. It is a tuple:
    `ragged`, `stack`, `concat` and `add_n` make one value of it, `forward` evaluates it.

    Outside of scopes blocks take it in models with `AutoBatchMixin` only, and functions of
    ``mx.nd`` do nowhere.

    Parameters
    ----------
    values : sequence
        One or more arguments as blocks take them: single values, ragged ones, numbers, arrays.

    Returns
    -------
    Each
        A tuple of them, which can be computed with.

    Raises
    ------
    RecordError
        If there are none, or there are such values among them: two levels there are, no third.

    Examples
    --------
    >>> with edb.batching():
    ...     sentences = edb.each([edb.ragged(words) for words in document])
    ...     vectors, weights = attend_words(sentences)   # weights are ragged, for each sentence
    ...     vector, _ = attend_sentences(edb.ragged(vectors))
    """
    return each_of(list(values))


def _as_value(value: Any, ctx: Optional[mx.Context]) -> NDArray:
    """One of `ragged`, of which NumPy arrays and numbers are as a scope takes them."""
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
    """As a recorded call would take it: see `Recording.values`."""
    if isinstance(value, (NDArray, mx.sym.Symbol)):  # Symbols: MXNet traces a hybridized block
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        kept = np.float32 if value.dtype == np.float64 else value.dtype
        return _uploaded(value, ctx, kept)
    return _uploaded([value], ctx, dtype)


def _uploaded(values: Any, ctx: Optional[mx.Context], dtype: Any) -> NDArray:
    """As MXNet makes an array of them, which takes five times as long."""
    numbers = np.asarray(values, dtype)
    if mx.util.is_np_array() or not numbers.size or not Recording.has_dtype(numbers):
        return new_array(values, ctx, dtype)
    return upload(numbers, ctx or mx.current_context())


def as_arrays(args: Sequence[Any], ctx: Optional[mx.Context]) -> Sequence[Any]:
    """Arguments of a block with everything that is not an array yet as one."""
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
