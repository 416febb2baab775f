"""Run a model with float64 for all floating-point numbers, whatever dtypes its code asks for.

Samples and parameters are copies in float64 (see `copies`). Operators and recordings widen other
arrays when they read them. Operators that would return float32, such as ``one_hot``, return
float64. The hooks in MXNet for that are above those of scopes, and each asks first whether this
thread has such a run."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from ..api.scope import batching
from ..mx.arrays import new_array
from ..mx.blocks import CALL_CACHED_OP
from ..mx.invoke import (
    CREATE_SYMBOL,
    INVOKE,
    attribute_default,
    create_symbol,
    invoke,
    operator_handle,
    operator_name,
)
from ..mx.methods import calling, unhooked
from ..record import constant_hooks, hooks
from ..record.calls import hooked_invoke
from ..record.lazy import LazyArray
from ..record.recording import Recording
from ..subgraph.options import CompileOptions, current_options

Known = dict[int, NDArray]  # arrays by their ids, in float64
_NARROW = frozenset(('float16', 'float32'))
_CREATORS = (
    *[hook[:3] for hook in constant_hooks.HOOKS if hook[1] in ('array', 'full')],
    (mx.np, 'array', mx.np.array),
)


class _ThreadRun(threading.local):
    """The run in float64 of this thread, if any."""

    known: Optional[Known] = None
    eager = False
    noise: Optional['Noise'] = None


_run = _ThreadRun()
_lock = threading.Lock()
_owners = 0


class Noise:
    """Multiply results of operators by random factors 1 ± `unit`.

    The gradient through such a product has the same factor, so there is noise wherever a kernel may
    round, forward and backward. Integers stay: rounding keeps them, and they may be indices.
    """

    def __init__(self, unit: float, seed: int):
        self._unit, self._generator = unit, np.random.RandomState(seed)

    def __call__(self, array: NDArray) -> NDArray:
        """Return the array with noise."""
        values = array.asnumpy()
        signs = self._generator.randint(2, size=values.shape) * 2 - 1
        factors = np.where(values == np.rint(values), 1.0, 1 + self._unit * signs)
        of_numpy = isinstance(array, mx.np.ndarray)
        factor = new_array(factors, array.ctx, np.float64)
        return invoke(
            operator_handle('_npi_multiply' if of_numpy else 'elemwise_mul'),
            [array, factor.as_np_ndarray() if of_numpy else factor],
            *([], [], None, of_numpy, False),
        )


@contextmanager
def _running(known: Optional[Known], eager: bool, noise: Optional[Noise]) -> Iterator[None]:
    """Set this thread's run in float64 inside the ``with``."""
    before = dict(_run.__dict__)
    _run.known, _run.eager, _run.noise = known, eager, noise
    try:
        yield
    finally:
        _run.__dict__.clear()
        _run.__dict__.update(before)


@contextmanager
def computing_in_float64(
    known: Known, eager: bool = False, noise: Optional[Noise] = None
) -> Iterator[None]:
    """Let this thread compute in float64 inside the ``with``: the graphs that it traces, and the
    operators that it calls outside scopes if `eager`.

    `known` maps ids of arrays to their float64 copies. `noise` is added to results of operators."""
    owner = object()
    hooks.install(owner)  # the hooks of scopes stay, below these
    _count(1)
    try:
        with _running(known, eager, noise):
            yield
    finally:
        _count(-1)
        hooks.remove(owner)


def _count(more: int) -> None:
    """Install MXNet's hooks with the first run, and remove them after the last."""
    global _owners
    with _lock:
        _owners += more
        if _owners == max(more, 0):
            for owner, name, hook, original in _HOOKS:
                setattr(owner, name, hook if more > 0 else original)


def _known_eagerly() -> Optional[Known]:
    """Return the arrays that this thread's eager run in float64 knows; None without such a run."""
    return _run.known if _run.eager and hooks.current_recording() is None else None


def widened(array: NDArray, known: Known) -> NDArray:
    """Return an array in float64, if it has floating-point numbers."""
    if id(array) in known:
        return known[id(array)]
    if array.stype != 'default' or np.dtype(array.dtype).name not in _NARROW:
        return array
    return _cast(array, 'float64')


def _cast(array: NDArray, dtype: str) -> NDArray:
    of_numpy = isinstance(array, mx.np.ndarray)
    return invoke(operator_handle('Cast'), [array], ['dtype'], [dtype], None, of_numpy, False)


def _wide_dtypes(op: str, keys: Sequence[str], vals: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Return an operator's attributes with float64 for float32, which may be the default."""
    keys, vals = list(keys), list(vals)
    if 'dtype' not in keys and attribute_default(op, 'dtype') in _NARROW:
        keys.append('dtype')
        vals.append('float32')
    return keys, [
        'float64' if key == 'dtype' and _is_narrow(value) else value
        for key, value in zip(keys, vals)
    ]


@cache
def _is_narrow(dtype: Any) -> bool:
    try:
        return np.dtype(dtype).name in _NARROW
    except TypeError:  # it is one of MXNet's own
        return False


def _invoke_in_float64(
    handle: int,
    ndargs: Sequence[NDArray],
    keys: Sequence[str],
    vals: Sequence[Any],
    out: Any,
    is_np_op: bool,
    output_is_list: bool,
) -> Any:
    """Run an operator in float64. See `mx.invoke`."""
    known = _known_eagerly()
    if known is None:
        return hooked_invoke(handle, ndargs, keys, vals, out, is_np_op, output_is_list)
    if out is not None:
        target = out if isinstance(out, NDArray) else out[0]
        dtype = np.dtype(known.get(id(target), target).dtype).name
        if dtype in _NARROW:  # an array of the user's own, which keeps its dtype
            ndargs = [_cast(a, dtype) if a.dtype == np.float64 else a for a in ndargs]
            return invoke(handle, ndargs, keys, vals, out, is_np_op, output_is_list)
        out = _each(out, lambda array: known.get(id(array), array))
    ndargs = [widened(array, known) for array in ndargs]
    if ndargs:  # what makes numbers makes those of float32, also random ones
        keys, vals = _wide_dtypes(operator_name(handle), keys, vals)
    result = invoke(handle, ndargs, keys, vals, out, is_np_op, output_is_list)
    return result if out is not None else _each(result, _as_result)


def _each(arrays: Any, function: Callable[[NDArray], NDArray]) -> Any:
    return function(arrays) if isinstance(arrays, NDArray) else [function(one) for one in arrays]


def _as_result(array: NDArray) -> NDArray:
    """Return an operator's result in float64 and with noise."""
    array, noise = widened(array, {}), _run.noise
    if noise is None or array.dtype != np.float64 or array.stype != 'default':
        return array
    with _running(None, False, None):
        return noise(array)


def _symbol_in_float64(
    handle: int, args: Any, kwargs: Any, keys: Any, vals: Any, *others: Any, **named: Any
) -> Any:
    """Make a node of a graph with float64 among its attributes."""
    if _run.known is not None:
        keys, vals = _wide_dtypes(operator_name(handle), keys, vals)
    return create_symbol(handle, args, kwargs, keys, vals, *others, **named)


def _hooked_allocator(allocate: Callable[..., Any]) -> Callable[..., Any]:
    """Return an allocator that makes float64 arrays for float32."""

    def allocated(shape: Any, ctx: Any, delay_alloc: bool, dtype: Any = mx.base.mx_real_t) -> Any:
        if _known_eagerly() is not None and _is_narrow(dtype):
            dtype = np.float64
        return allocate(shape, ctx, delay_alloc, dtype)

    return allocated


def _hooked_creator(create: Callable[..., NDArray]) -> Callable[..., NDArray]:
    """Round what a function makes of numbers to float32 first, as recordings do."""

    def made(*args: Any, **kwargs: Any) -> NDArray:
        known = _run.known
        if known is None or not _run.eager or any([isinstance(arg, NDArray) for arg in args]):
            return create(*args, **kwargs)
        with _running(None, False, None):
            array = create(*args, **kwargs)
        return _as_result(array)

    return made


def _uncached(self: gluon.HybridBlock, *args: Any) -> Any:
    """Run a block as if it were not hybridized, as the caller did not name it."""
    known = _known_eagerly()
    if known is None:
        return _call_cached_op(self, *args)
    if isinstance(self, gluon.SymbolBlock):
        return _call_cached_op(self, *[widened(arg, known) for arg in args])
    active, self._active = self._active, False
    try:
        return self.forward(*args)
    finally:
        self._active = active


def _call_function(self: autograd.Function, *inputs: NDArray) -> Any:
    """Call a function with its own gradient, which a thread of MXNet's engine computes."""
    known, noise = _run.known, _run.noise
    if known is not None:
        for name in ('forward', 'backward'):
            setattr(self, name, _running(known, True, noise)(getattr(self, name)))
    return hooks.hooked_call_function(self, *inputs)


_call_cached_op = unhooked(CALL_CACHED_OP)
_HOOKS = (
    (*INVOKE, _invoke_in_float64, hooked_invoke),
    (*CREATE_SYMBOL, _symbol_in_float64, create_symbol),
    *[
        (module, '_new_alloc_handle', _hooked_allocator(allocate), allocate)
        for module in (mx.nd.ndarray, mx.np.multiarray)
        for allocate in (module._new_alloc_handle,)
    ],
    (autograd.Function, '__call__', _call_function, hooks.hooked_call_function),
    *[(module, name, _hooked_creator(create), create) for module, name, create in _CREATORS],
    (CALL_CACHED_OP, '__code__', calling(_uncached, CALL_CACHED_OP), CALL_CACHED_OP.__code__),
)


class _Options(CompileOptions):
    """Compile options that no other recording shares types and forms with."""


class _WideRecording(Recording):
    """A recording that widens arrays from elsewhere."""

    def operator_called(  # type: ignore[no-untyped-def]  # as `operator_dispatch` has it
        self, handle, ndargs, keys, vals, out, is_np_op, output_is_list
    ):
        """Run or record an operator of ``mx.nd``."""
        if out is None:
            ndargs = [self._widened(array) for array in ndargs]
        if ndargs:
            keys, vals = _wide_dtypes(operator_name(handle), keys, vals)
        result = super().operator_called(handle, ndargs, keys, vals, out, is_np_op, output_is_list)
        return result if out is not None else _each(result, self._widened)

    def operator(
        self, op: str, attrs: tuple[tuple[str, str], ...], args: Sequence[Any], fuses: bool = True
    ) -> Any:
        """Record an operator, with float64 for float32 in its attributes."""
        keys, vals = _wide_dtypes(op, [key for key, _ in attrs], [value for _, value in attrs])
        return super().operator(op, tuple(zip(keys, vals)), args, fuses)

    def new_constant(self, key: tuple, values: np.ndarray, ctx: mx.Context) -> LazyArray:
        """Make a constant, to be known by a key."""
        return super().new_constant(key, _wide(values), ctx)

    def append_read(self, array: NDArray, key: tuple[bytes, bytes, bytes]) -> LazyArray:
        """Take a small NDArray as a value."""
        wide = self._widened(array)
        return super().append_read(array, key) if wide is array else self._ndarray(wide)

    def handed_out_rows(self, arrays: Sequence[Any]) -> None:
        """Return None: each array is widened (see `_array`)."""

    def _array(self, array: Any, fresh: bool = False) -> LazyArray:
        if isinstance(array, NDArray):
            return super()._array(self._widened(array), fresh)
        wide = _wide(array)
        return super()._array(wide, fresh or wide.dtype == np.float64)

    def _widened(self, array: NDArray) -> NDArray:
        if not isinstance(array, LazyArray):
            return widened(array, _run.known or {})
        store = array._store
        if np.dtype(store.spec.dtype).name not in _NARROW or store.recording is not self:
            return array
        return self.operator('Cast', (('dtype', 'float64'),), [array])


class recording_in_float64(batching):
    """A scope in which all values are float64, inside of `computing_in_float64`."""

    _records_in = _WideRecording

    def __init__(self, scheduler: Any):
        super().__init__(scheduler, compile_options=_Options(**asdict(current_options())))


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) if np.issubdtype(values.dtype, np.floating) else values
