"""Compute gradients: the batches in reverse, through gradient arenas, as one node of autograd.

For MXNet an evaluation is one custom function. Its inputs are the parameters and arrays that the
calls read, its outputs are the arenas. It keeps a tape for each step that ran: a `NativeRun` with
its workspace, or a `BatchTape`, a small tape of autograd. `ops.instructions.read_backward` tells
which registers a workspace keeps.

An evaluation may read results of earlier ones, in loops that wait for values. Those that are not on
the tape yet belong to the same function: their batches run in reverse after its own.
"""

import atexit
import ctypes
import heapq
import itertools
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import StaleValueError

from ..mx.arrays import copy_into, keep_on_tape, rows_of
from ..mx.custom_function import record_function
from ..mx.modes import modes
from ..mx.run_ahead import AHEAD
from .execution_state import ExecutionState
from .gradients import Gradients, InputGradients, add_rows
from .sparse_tables import with_dense_gradient

_DELETING_S = 0.1
# Python has waited for what came before those, or it would do so here, for all, in each minibatch
_KEPT_OVER = AHEAD
_serials = itertools.count()
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
        self.serial = next(_serials)
        self.is_on_tape = False  # whether a function of autograd has it
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

    def connected(self, index: int, arena: NDArray) -> NDArray:
        """Put an arena on autograd's tape, and return it as an output of the tape."""
        output = arena.detach()
        with modes(recording=True):
            if self._state is None:  # who only reads values need not know that
                inputs, function = [mx.nd.zeros((1,))], None
                inputs[0].attach_grad()
            else:
                function = _TapeFunction(self)
                inputs = list(map(with_dense_gradient, function.take_inputs()))
            record_function(
                inputs,
                [output],
                lambda heads, targets, requests: self(
                    function, index, heads[0], InputGradients(targets, requests)
                ),
            )
        return keep_on_tape(output)

    def __call__(
        self, function: 'Optional[_TapeFunction]', arena: int, head: NDArray, inputs: InputGradients
    ) -> None:
        """Compute the gradients of a function's inputs from the gradient `head` of an arena.

        Passes over one evaluation share its gradient arenas. A lock keeps them apart until each has
        handed all its work to the engine.
        """
        parts = [] if function is None else function.parts
        with ExitStack() as stack:
            for part in reversed(parts):  # the earliest first, as every function does
                stack.enter_context(part.backward._lock)
            if not parts or any([part.backward._state is None for part in parts]):
                raise StaleValueError(
                    'a second backward pass through values of a batching scope, after later '
                    'scopes were evaluated: their intermediate results are freed. Differentiate '
                    'them before the next minibatch is evaluated'
                )
            self._run(parts, arena, head, inputs)
            for part in parts:
                part.backward._ran = True

    def _run(
        self,
        parts: 'Sequence[_DifferentiatedEvaluation]',
        arena: int,
        head: NDArray,
        inputs: InputGradients,
    ) -> None:
        gradients = {
            part.backward: part.backward._gradients(
                arena if part.backward is self else None, inputs, part.places
            )
            for part in parts
        }
        state: Any = self._state
        copy_into(head, out=state.gradients[arena])
        for part in parts:
            part.backward._run_part(gradients, inputs, part.imports)
        inputs.zero()

    def _gradients(
        self, written: Optional[int], inputs: InputGradients, places: Sequence[int]
    ) -> Gradients:
        state: Any = self._state
        unwritten = [
            index
            for index, plan in enumerate(state.plan.arenas)
            if state.gradients[index] is not None and index != written and not plan.private
        ]
        return Gradients(state.gradients, unwritten, inputs, places)

    def _run_part(
        self,
        gradients: 'dict[BackwardPass, Gradients]',
        inputs: InputGradients,
        imports: 'Sequence[Optional[int]]',
    ) -> None:
        """Run the batches of this evaluation in reverse; add to gradients of what it read."""
        state: Any = self._state
        own = gradients[self]
        for gradient in state.unread:
            mx.nd.zeros_like(gradient, out=gradient)
        state.weights.begin()
        for tape in reversed(state.tapes):
            tape.backward(own)
        own.zero_arenas()
        state.weights.deliver(own)
        for place, (_, index, begin, end) in enumerate(state.given, len(state.weights.arrays)):
            own.deliver(place, rows_of(state.gradients[index], begin, end))
        for imported, input_ in zip(state.imported, imports):
            backward, index = imported.source.origin
            gradient = state.gradients[imported.arena]._slice(imported.begin, imported.end)
            if input_ is None:
                add_rows(*gradients[backward].of_arena(index), imported.rows, gradient)
            else:
                count = len(imported.source.raw)
                inputs.deliver_rows(input_, imported.rows, gradient, count)


class _DifferentiatedEvaluation(NamedTuple):
    """An evaluation in a function of autograd."""

    backward: BackwardPass
    places: list[int]  # among the function's inputs, of parameters and given arrays
    imports: list[Optional[int]]  # the same of each `Imported`; None if its source is a part


class _TapeFunction:
    """A function of autograd: an evaluation with the earlier ones that it read, latest first."""

    def __init__(self, backward: BackwardPass):
        self._inputs: list[NDArray] = []
        self._own = {backward}
        self._places: dict[int, int] = {}  # by identity of arrays
        self.parts: list[_DifferentiatedEvaluation] = []
        backward.is_on_tape = True
        latest = [(-backward.serial, backward)]
        while latest:
            self._add(heapq.heappop(latest)[1], latest)

    def _add(self, backward: BackwardPass, latest: list[tuple[int, BackwardPass]]) -> None:
        state: Any = backward._state
        read = [*state.weights.arrays, *[given[0] for given in state.given]]
        part = _DifferentiatedEvaluation(backward, [self._place(array) for array in read], [])
        self.parts.append(part)
        for imported in state.imported:
            earlier = imported.source.origin[0]
            if not earlier.is_on_tape:
                earlier.is_on_tape = True
                self._own.add(earlier)
                heapq.heappush(latest, (-earlier.serial, earlier))
            inside = earlier in self._own
            part.imports.append(None if inside else self._place(imported.source.taped))

    def take_inputs(self) -> list[NDArray]:
        """Return the inputs, which the tape has from now on."""
        inputs, self._inputs = self._inputs, []
        return inputs

    def _place(self, array: NDArray) -> int:
        place = self._places.setdefault(id(array), len(self._inputs))
        if place == len(self._inputs):
            self._inputs.append(array)
        return place


def origins(state: ExecutionState) -> list[Optional[tuple[BackwardPass, int]]]:
    """Return the backward pass for each arena, and which arena it is there; None without a
    gradient."""
    has_inputs = state.weights.arrays or state.given or state.imported
    if not has_inputs or not (state.tapes or state.looked_up):
        return [None] * len(state.arenas)
    backward = BackwardPass(state)
    return [
        None if gradient is None else (backward, index)
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
