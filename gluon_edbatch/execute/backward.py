"""Compute gradients: the batches in reverse, through gradient arenas, as one node of autograd.

For MXNet an evaluation is one custom function. Its inputs are the parameters and arrays that the
calls read, its outputs are the arenas. It keeps a tape for each step that ran: a `NativeRun` with
its workspace, or a `BatchTape`, a small tape of autograd. `ops.instructions.read_backward` tells
which registers a workspace keeps.
"""

import atexit
import ctypes
import os
import sys
import threading
import time
import traceback
import weakref
from functools import partial
from typing import Callable, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from ..errors import StaleValueError
from ..mx.arrays import keep_on_tape
from ..mx.custom_function import record_function
from ..mx.modes import modes
from ..mx.run_ahead import AHEAD
from .execution_state import ExecutionState
from .gradients import Gradients
from .sparse_tables import with_dense_gradient

_DELETING_S = 0.1
# Python has waited for what came before those, or it would do so here, for all, in each minibatch
_KEPT_OVER = AHEAD
_passes: 'weakref.WeakSet[BackwardPass]' = weakref.WeakSet()


class BackwardPass:
    """Compute the gradients of one evaluation.

    Tapes hold every intermediate result. MXNet does not tell whether a pass is the last one
    (``retain_graph``), and runs passes late. So tapes are kept for `_KEPT_OVER` more evaluations of
    the thread; the next one waits for requested gradients and frees them.
    """

    _latest = threading.local()

    def __init__(self, state: ExecutionState):
        self._state: Optional[ExecutionState] = state
        _passes.add(self)
        self._ran = False
        self._kept_over = 0  # evaluations of the thread since it was seen to have run
        self._lock = threading.Lock()
        self._latest.references.append(weakref.ref(self))  # later evaluations of the thread free it

    @classmethod
    def begin_evaluation(cls) -> None:
        """Free the tapes of this thread that were differentiated long enough ago."""
        tracked = [reference() for reference in getattr(cls._latest, 'references', ())]
        alive = [backward for backward in tracked if backward is not None]
        if any([backward._kept_over == _KEPT_OVER for backward in alive]):
            mx.nd.waitall()
        for backward in alive:
            if backward._kept_over == _KEPT_OVER:
                backward.release()
            backward._kept_over += backward._ran
        cls._latest.references = [
            weakref.ref(backward) for backward in alive if backward._state is not None
        ]

    def release(self) -> None:
        """Free the tapes that backward reads."""
        self._state = None

    def __call__(
        self, arena: int, head: NDArray, targets: list[NDArray], requests: list[int]
    ) -> None:
        """Compute the gradients of the parameters and of the given arrays, in this order, from an
        arena's gradient `head`; see `record_function` for `targets` and `requests`.

        Passes over one evaluation share its gradient arenas. A lock keeps them apart until each has
        handed all its work to the engine.
        """
        with self._lock:
            state = self._state
            if state is None:
                raise StaleValueError(
                    'a second backward pass through values of a batching scope, after later '
                    'scopes were evaluated: their intermediate results are freed. Differentiate '
                    'them before the next minibatch is evaluated'
                )
            self._run(state, arena, head, targets, requests)
            self._ran = True

    def _run(
        self,
        state: ExecutionState,
        arena: int,
        head: NDArray,
        targets: list[NDArray],
        requests: list[int],
    ) -> None:
        unwritten = [
            index
            for index, plan in enumerate(state.plan.arenas)
            if state.gradients[index] is not None and index != arena and not plan.private
        ]
        gradients = Gradients(state.gradients, unwritten, targets, requests)
        head.copyto(state.gradients[arena])
        for gradient in state.unread:
            gradient[:] = 0
        state.weights.begin()
        for tape in reversed(state.tapes):
            tape.backward(gradients)
        gradients.zero_arenas()
        state.weights.deliver(gradients)
        for place, (_, index, begin, end) in enumerate(state.given, len(state.weights.arrays)):
            gradients.deliver(place, state.gradients[index]._slice(begin, end))
        gradients.zero_inputs()


def connect(state: ExecutionState) -> list[Optional[Callable[[], NDArray]]]:
    """Return a function for each arena that puts it on autograd's tape, to be called once, and
    returns the arena as an output of the tape. None for an arena without a gradient."""
    inputs = state.weights.arrays + [given[0] for given in state.given]
    if not inputs or not (state.tapes or state.looked_up):
        return [None] * len(state.arenas)
    inputs = list(map(with_dense_gradient, inputs))
    backward = BackwardPass(state)

    def connected(index: int) -> NDArray:
        output = state.arenas[index].detach()
        with modes(recording=True):
            record_function(
                inputs,
                [output],
                lambda heads, targets, requests: backward(index, heads[0], targets, requests),
            )
        return keep_on_tape(output)

    return [
        None if gradient is None else partial(connected, index)
        for index, gradient in enumerate(state.gradients)
    ]


@atexit.register
def _finish() -> None:
    """Wait for the engine and free all tapes at exit, before Python's callbacks are gone."""
    try:
        mx.nd.waitall()
    finally:
        for backward in list(_passes):
            backward.release()


def _finish_before_fork() -> None:
    """Wait for the engine before a fork, without the interpreter's lock: MXNet waits, too, but the
    forking thread keeps that lock, and the engine may have to call Python.

    An error cannot be raised here, and would be lost afterwards, so it ends the program, as MXNet's
    own wait does. MXNet's threads may then still call Python to free objects. Nothing tells when
    they are done, so they get some time for it.
    """
    if not _passes:
        return
    try:
        mx.nd.waitall()
    except mx.base.MXNetError:
        print(
            f'Error in what MXNet had to finish before a fork:\n{traceback.format_exc()}',
            file=sys.stderr,
            flush=True,
        )
        os.abort()
    time.sleep(_DELETING_S)


os.register_at_fork(before=_finish_before_fork)  # before others take locks for the fork
_finish_before_any_fork = ctypes.CFUNCTYPE(None)(_finish_before_fork)
try:  # `subprocess` forks without telling Python (3.9 always)
    _register_at_fork = getattr(ctypes.CDLL(None), '__register_atfork')
except AttributeError:  # not the GNU C library
    pass
else:
    _register_at_fork(_finish_before_any_fork, None, None, None)
