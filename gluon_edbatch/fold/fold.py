"""`Fold`: note calls sample by sample, and run them together when their results are asked for."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any, Callable, Optional, Union

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import EdbError, RecordError
from gluon_edbatch_core.schedule import Scheduler
from gluon_edbatch_core.short_repr import brief

from ..api.functional import compute
from ..api.scope import DEFAULT_SCHEDULER, batching, check_ctx
from ..mx.parameters import context_of
from ..record.hooks import current_recording
from ..record.interpreter import code_of, instruction_of, user_frame
from ..record.lazy import LazyArray
from .handles import Handle, NotedCall, Virtual, key_of_op, note, resolve, summary
from .joined import check_exact, joined
from .targets import Targets


class Fold:
    """Note calls sample by sample and run them in batches, as the `Fold` of mxnet-jit-batch and
    torchfold.

    ``record(batch_axis, op, *args)`` notes a call of any callable, and ``fold([[...], [...]])``
    returns one array for each list of results. ``add('method', *args)`` notes a method of the block
    that ``apply(block, [[...], [...]])`` gets. The model does not run before that, so parameters
    may be uninitialised. Then every noted call is made, for its sample alone and in the order of
    noting, inside a `batching` scope, which batches it.

    Equal calls are noted once: equal in `op`, batch axis and arguments. Numbers and strings are
    compared by type and value, containers by contents, arrays and other objects by identity. **That
    includes random calls**: two equal calls of a dropout are one draw. Arrays are not copied: their
    contents, and autograd's state, count when results are asked for. Functions and methods get
    arrays as values of the scope, NDArrays that cannot be written to, so their operators are
    batched, too.

    Parameters
    ----------
    ctx : mxnet.Context, optional
        Device of numbers and arrays that the calls make. The default is that of the parameters of
        `apply`'s block, else MXNet's current context when results are asked for.
    scheduler : str or Scheduler, default 'fsm'
        Which calls run together: see `batching`.
    volatile : bool, default False
        Compute without gradients, whatever autograd's state.
    cuda : bool, default False
        Whether to compute on the first GPU (see `cuda`).

    Attributes
    ----------
    scope : batching or None
        The scope of the last computation, for its ``report()``.

    Raises
    ------
    TypeError
        If `ctx` is not a context.
    RuntimeError
        If there is no GPU for `cuda`.

    Examples
    --------
    >>> fold = edb.Fold()
    >>> h, c = fold.record(0, cell, word, states).split(2)
    >>> loss = fold.record(0, loss_fn, fold.record(0, classify, h), label)
    >>> with autograd.record():
    ...     losses, = fold([[loss]])
    """

    def __init__(
        self,
        ctx: Optional[mx.Context] = None,
        scheduler: Union[str, Scheduler] = DEFAULT_SCHEDULER,
        volatile: bool = False,
        cuda: bool = False,
    ):
        check_ctx(ctx)
        self.ctx = ctx
        self.scheduler = scheduler
        self.volatile = volatile
        self.scope: Optional[batching] = None
        self._calls: list[NotedCall] = []
        self.reset()
        if cuda:
            self.cuda()

    def cuda(self) -> 'Fold':
        """Compute on the first GPU; return the fold itself.

        Raises
        ------
        RuntimeError
            If there is no GPU.
        """
        if not mx.context.num_gpus():
            raise RuntimeError(
                'cuda: this MXNet sees no GPU; install one of its CUDA builds, or leave '
                'it out to compute on the CPU'
            )
        self.ctx = mx.gpu(0)
        return self

    # --- noting ----------------------------------------------------------------------------------

    def record(self, batch_axis: int, op: Callable, *args: Any) -> Handle:
        """Note a call of a fold, to run when results are asked for.

        Parameters
        ----------
        batch_axis : int
            The axis along which results are joined when they are asked for.
        op : callable
            A Block, a function of ``mx.nd``, a method, any function.
        *args
            Handles, arrays, constants, and nested lists, tuples and dicts of them.

        Returns
        -------
        Handle
            A handle of the results.

        Raises
        ------
        TypeError
            If `op` cannot be called.
        RecordError
            If `batch_axis` is not an int of 0 or more, or a handle is of another fold.
        """
        if not callable(op):
            raise TypeError(
                f'record() takes something to call, not {brief(op)}; a method of '
                f'the block that is applied is noted by add(name, ...)'
            )
        return self._note(batch_axis, op, key_of_op(op), args)

    def add(self, op: str, *args: Any) -> Handle:
        """Note a call of a method of the block that `apply` will be given.

        Parameters
        ----------
        op : str
            Name of the method.
        *args
            Handles, arrays, ints, and lists and tuples of them. An int is an index, up to 2**24:
            the method gets it as an array (1,) float32.

        Returns
        -------
        Handle
            A handle of the results, with batch axis 0: an argument of later calls, or an element of
            `apply`'s lists. For several results, ``handle.split(n)`` returns n handles.

        Raises
        ------
        TypeError
            If `op` is not a str.
        RecordError
            If an argument is something else, such as a float, a larger int, or a handle of another
            fold. (`apply` raises if the block has no such method.)

        Examples
        --------
        >>> fold = edb.Fold()
        >>> scores = [fold.add('forward', sample) for sample in samples]   # lists of indices
        >>> found, = fold.apply(net, [scores])   # (6, 2): one row a sample
        """
        if not isinstance(op, str):
            raise TypeError(
                f'add() takes the name of a method, not {brief(op)}; a callable is '
                f'noted by record(batch_axis, op, ...)'
            )
        _check_arguments(op, args)
        return self._note(0, op, op, args)

    def _note(self, batch_axis: int, op: Any, op_key: Hashable, args: Sequence[Any]) -> Handle:
        key: list[Hashable] = [batch_axis, op_key]
        copies, depth = note(args, key, self._owner)
        place = tuple(key)
        handle = self._known.get(place)
        if handle is None:
            if type(batch_axis) is not int or batch_axis < 0:
                raise RecordError(f'a batch axis is an int, 0 or more, not {brief(batch_axis)}')
            frame = user_frame()
            call = NotedCall(
                op,
                batch_axis,
                copies,
                len(self._calls),
                depth,
                self._owner,
                code_of(frame),
                instruction_of(frame),
            )
            self._calls.append(call)
            handle = self._known[place] = Virtual(call)
        return handle

    def reset(self) -> None:
        """Forget all noted calls; their handles cannot be used any more."""
        self._forget_values(0)
        self._calls = []
        self._known: dict[tuple, Virtual] = {}
        self._owner = object()

    # --- computing -------------------------------------------------------------------------------

    def __call__(self, nodes: Sequence[Sequence[Any]], reset: bool = True) -> list[NDArray]:
        """Compute the results of some handles.

        Parameters
        ----------
        nodes : list of list
            Lists of handles or arrays; a list of ints gives an index array.
        reset : bool, default True
            Whether to forget all noted calls, even if a call fails. Otherwise more calls can be
            noted, and calls that ran do not run again: new parameters need a `reset`.

        Returns
        -------
        list of NDArray
            For each list, its results concatenated along their batch axis.
        """
        try:
            return self._compute(nodes, None, kept=not reset)
        finally:
            if reset:
                self.reset()

    def apply(self, block: Any, nodes: Sequence[Sequence[Any]]) -> list[NDArray]:
        """Compute the results of some handles with the methods of a block.

        Noted calls are kept, and run again whenever a block is applied.

        Parameters
        ----------
        block : Block, or another object with these methods
            Object with the methods that `add` noted by name.
        nodes : list of list
            Lists of handles, as for ``fold(nodes)``.

        Returns
        -------
        list of NDArray
        """
        self._forget_values(0)
        try:
            return self._compute(nodes, block, kept=False)
        finally:
            self._forget_values(0)

    def _compute(self, nodes: Sequence[Sequence[Any]], block: Any, kept: bool) -> list[NDArray]:
        lists = [list(items) for items in nodes]
        note(lists, [], self._owner)  # are all handles of this fold?
        ctx = self.ctx or context_of(block)
        with self._placed(ctx):
            values = self._replayed(lists, block, ctx, kept)
            compute(list(chain.from_iterable(values)))
            return [joined(items, row, ctx) for items, row in zip(lists, values)]

    @contextmanager
    def _placed(self, ctx: Optional[mx.Context]) -> Iterator[None]:
        """Set the context, if one is known, and switch gradients off if asked."""
        mode = autograd.pause(train_mode=autograd.is_training()) if self.volatile else nullcontext()
        with ctx or nullcontext(), mode:
            yield

    def _replayed(
        self, lists: list[list], block: Any, ctx: Optional[mx.Context], kept: bool
    ) -> list[list]:
        """Make the calls that were not made yet; return the wanted values."""
        ran = self._ran
        try:
            with batching(self.scheduler, ctx) as self.scope:
                if not kept:  # all is over before the user can write to an array
                    current_recording().copied_below = 0
                self._replay(block)
                values = [resolve(items, self._parts) for items in lists]
                for value in chain.from_iterable(values):
                    if isinstance(value, LazyArray) and value._id < 0:
                        value.evaluated()  # an argument that an op returned as it is
            return values
        except BaseException:  # the values of a scope that an exception leaves are void
            self._forget_values(ran)
            raise

    def _replay(self, block: Any) -> None:
        calls = self._calls[self._ran :]
        recording = current_recording()
        callees = Targets(recording, block)
        ends = []
        try:
            for call in calls:
                function, convert = callees.of(call)
                call.value = function(*resolve(call.args, self._parts, convert))
                ends.append(len(recording.node_forms))
        except Exception as error:
            raise _located(error, call) from error
        self._ran += len(calls)
        _tell_sites(recording, calls, ends)

    def _forget_values(self, begin: int) -> None:
        """Forget the results of calls from number `begin` on."""
        for call in self._calls[begin:]:
            call.value = None
        self._parts: dict[tuple, Any] = (
            {key: part for key, part in self._parts.items() if key[0] < begin} if begin else {}
        )
        self._ran = begin

    def __len__(self) -> int:
        """Return how many calls are noted."""
        return len(self._calls)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        """Return the noted calls as text, by depth."""
        return summary(self._calls)

    __repr__ = __str__


def _check_arguments(op: str, args: Sequence[Any]) -> None:
    """Raise if `add` does not take an argument."""
    for arg in args:
        if type(arg) in (list, tuple):
            _check_arguments(op, arg)
        elif type(arg) is int:
            check_exact(arg)
        elif not isinstance(arg, (Handle, NDArray, np.ndarray)):
            raise RecordError(
                f'add({op!r}, ...) takes arrays, handles and ints (which are '
                f'indices), not {type(arg).__name__} {brief(arg)}; give a number '
                f'that is no index as an array'
            )


def _located(error: Exception, call: NotedCall) -> EdbError:
    """Return the error with the user's line that noted the call."""
    if isinstance(error, EdbError):
        return type(error)(f'{error}\n  in {call}, noted at {call.site}')
    return RecordError(f'{call} failed: {type(error).__name__}: {error}\n  noted at {call.site}')


def _tell_sites(recording: Any, calls: Sequence[NotedCall], ends: Sequence[int]) -> None:
    """Set the lines of calls recorded during the replay to those that noted them."""
    if not calls:
        return
    counts = np.diff(ends, prepend=0)
    codes, instructions = recording.node_codes.since(0), recording.node_instructions.since(0)
    here = np.flatnonzero(codes[: counts.sum()] == code_of(user_frame()))
    of_call = np.repeat(np.arange(len(calls)), counts)[here]
    codes[here] = np.array([call.code for call in calls], np.int64)[of_call]
    instructions[here] = np.array([call.instruction for call in calls], np.int64)[of_call]
