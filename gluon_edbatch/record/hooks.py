"""Install the hooks that a scope needs in MXNet with the first scope; remove them with the last.

Two functions get other code (see `mx.methods`): ``Block.__call__`` (calls of blocks) and
``Block.__setattr__`` (blocks that change while their calls wait). If this package is compiled,
classes of called blocks also get another function in the slot of ``__call__``. Other functions are
replaced: the conversion in ``array[0] = value``, the function behind all of ``mx.nd`` (operators),
and makers of arrays with known contents (see `constant_hooks`). So are autograd's two mode setters,
and what puts arrays on its tape by handle. Each hook first asks whether *this thread or asyncio
task* is recording. MXNet runs unchanged in others, and in this one while `suspended`. Python's
cyclic garbage collector is paused, too: a recording makes many objects and no cycles, and each
full collection would walk through all of the user's samples.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import mxnet as mx
from mxnet import autograd, gluon

from gluon_edbatch_core.errors import ControlFlowError, RecordError

from ..mx.invoke import INVOKE, invoke
from ..mx.methods import calling, unhooked
from ..mx.modes import set_recording, set_training
from . import constant_hooks
from .calls import BLOCK_CALL, hook_calls, hooked_call, hooked_invoke
from .lazy import LazyArray
from .operator_dispatch import listed
from .scopes import current_recording, enter, leave, local  # noqa: F401
from .sites import current_site

_block_setattr: Any = gluon.Block.__setattr__
_setattr = unhooked(_block_setattr)
call_function = autograd.Function.__call__
_array = mx.nd.ndarray.array
_mark_variables, _grad = autograd.mark_variables, autograd.grad

_lock = threading.RLock()  # as objects may be freed, and remove hooks, at each line
# Scopes that are open, in all threads, and other owners; whether each pauses Python's collector.
_owners: dict[int, bool] = {}
_installed = False  # whether hooks may be there
_paused, _collecting = False, True  # whether the collector is paused, and ran before
_UNSET = object()


class _Tracing(threading.local):
    active = False  # whether this thread traces a block


_tracing = _Tracing()
_COUNTED = frozenset(('_counter', '_init_counter', '_modified'))  # by cells, for names and checks


def _hooked_setattr(self, name, value):
    recording = current_recording()
    if recording is not None and name not in _COUNTED:
        old = self.__dict__.get(name, _UNSET)
        if old is not value and not (
            type(old) is type(value) and isinstance(value, (int, float, str, bool)) and old == value
        ):
            recording.forget_blocks()
    _setattr(self, name, value)


def _then_told(set_mode: Callable[..., bool]) -> Callable[..., bool]:
    def hooked(*args, **kwargs):
        previous = set_mode(*args, **kwargs)
        recording = current_recording()
        if recording is not None:
            recording.update_mode()
        return previous

    return hooked


def hooked_call_function(self, *inputs):
    """Call or record an `autograd.Function`; scopes put this function in place of its
    ``__call__``."""
    recording = current_recording()
    if recording is not None and any([isinstance(each, LazyArray) for each in inputs]):
        return recording.function_called(self, inputs)
    if _tracing.active and any([isinstance(each, mx.sym.Symbol) for each in inputs]):
        raise ControlFlowError(f'{type(self).__name__} is an autograd.Function, for arrays alone')
    with suspended():
        return call_function(self, *inputs)


def _hooked_array(source_array, ctx=None, dtype=None):
    if current_recording() is None or not isinstance(source_array, LazyArray):
        return _array(source_array, ctx, dtype)
    array = source_array.evaluated()
    array = array if ctx is None else array.as_in_context(ctx)
    return array if dtype is None or array.dtype == dtype else array.astype(dtype)


def _hooked_mark_variables(variables, gradients, grad_reqs='write'):
    if current_recording() is not None:
        for array in (*listed(variables), *listed(gradients)):
            if isinstance(array, LazyArray):
                array.settled()
    _mark_variables(variables, gradients, grad_reqs)


def _hooked_grad(
    heads, variables, head_grads=None, retain_graph=None, create_graph=False, train_mode=True
):
    if (
        create_graph
        and current_recording() is not None
        and any([isinstance(array, LazyArray) for array in listed(heads)])
    ):
        raise RecordError(
            f'{current_site()}: there are no second derivatives through a batch, so that '
            f'autograd.grad(..., create_graph=True) is not possible for its values; run what needs '
            f'them outside of the scope, sample by sample'
        )
    return _grad(heads, variables, head_grads, retain_graph, create_graph, train_mode)


_HOOKS = (
    (BLOCK_CALL, '__code__', calling(hooked_call, BLOCK_CALL), BLOCK_CALL.__code__),
    (*INVOKE, hooked_invoke, invoke),
    (mx.nd.ndarray, 'array', _hooked_array, _array),
    (
        _block_setattr,
        '__code__',
        calling(_hooked_setattr, _block_setattr),
        _block_setattr.__code__,
    ),
    (autograd, 'set_recording', _then_told(set_recording), set_recording),
    (autograd, 'set_training', _then_told(set_training), set_training),
    (autograd, 'mark_variables', _hooked_mark_variables, _mark_variables),
    (autograd, 'grad', _hooked_grad, _grad),
    (autograd.Function, '__call__', hooked_call_function, call_function),
    *constant_hooks.HOOKS,
)


def install(owner: object, pauses: bool = True) -> None:
    """Install the hooks, or count one more scope that needs them. An interrupt leaves neither.
    Python's garbage collector pauses for scopes."""
    global _collecting, _installed, _paused
    try:
        with _lock:
            _owners[id(owner)] = pauses
            if pauses and not _paused:
                _collecting, _paused = gc.isenabled(), True
                gc.disable()
            if not _installed:
                _installed = True
                for owner_of, name, hook, _ in _HOOKS:
                    setattr(owner_of, name, hook)
                hook_calls(True)
    except BaseException:
        remove(owner)
        raise


def remove(owner: object) -> None:
    """Count one scope less, and restore MXNet after the last; safe to call again after an
    interrupt."""
    global _installed, _paused
    with _lock:
        _owners.pop(id(owner), None)
        if _paused and not any(_owners.values()):
            if _collecting:
                gc.enable()
            _paused = False
        if _installed and not _owners:
            hook_calls(False)
            for owner_of, name, _, original in _HOOKS:
                setattr(owner_of, name, original)
            _installed = False  # not before: an interrupt may come at each line


def collect(generation: int) -> None:
    """Run Python's garbage collector, which open scopes pause; for scopes that stay open."""
    if _paused and _collecting:
        gc.collect(generation)


class suspended:
    """Let this thread use MXNet without being recorded, inside a with statement."""

    __slots__ = ('_scope',)

    def __enter__(self) -> None:
        self._scope = current_recording()
        enter(None)

    def __exit__(self, *_) -> None:
        enter(self._scope)


@contextmanager
def tracing_block() -> Iterator[None]:
    """Let this thread run a block with Symbols, without being recorded."""
    before, _tracing.active = _tracing.active, True
    try:
        with suspended():
            yield
    finally:
        _tracing.active = before
