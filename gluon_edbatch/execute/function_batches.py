"""Run batches of an `autograd.Function`'s calls: `forward` and `backward` once for all rows.

Each batch has a new Function, so that `backward` sees what its own `forward` kept. The first batch
of several calls is compared with its first and last call, run alone, forward and backward. If they
differ, such calls run one by one from then on, which is right, and slower.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import EdbError
from gluon_edbatch_core.plan.plan import Batch

from ..mx.arrays import concatenated, values_read
from ..mx.modes import modes
from ..subgraph.function_signature import FunctionCall, run_eagerly
from ..subgraph.node_type import NodeType
from .execution_state import ExecutionState
from .gradients import Gradients
from .verify import is_close

_SCALES = 1, 100  # of the gradients that `backward` is compared for: some clip large ones
_MIXED = 'its result for a row depends on other rows, or on noise'


class _FunctionRun(NamedTuple):
    """A Function that ran on some rows of a batch."""

    function: autograd.Function
    inputs: list[NDArray]
    results: list[NDArray]

    def backward(self, heads: Sequence[NDArray]) -> list[NDArray]:
        """Return the gradients of the inputs."""
        found = self.function.backward(*heads)
        found = [found] if isinstance(found, NDArray) else list(found)
        if len(found) != len(self.inputs):
            raise TypeError(
                f'backward returned {len(found)} gradients for {len(self.inputs)} arrays'
            )
        return [_gradient(each, array) for each, array in zip(found, self.inputs)]


def _gradient(found: Any, array: NDArray) -> NDArray:
    """Return a gradient as MXNet would have written it to an array like that of the argument."""
    if not isinstance(found, NDArray):
        raise TypeError(f'backward must return NDArrays, not {type(found)}')
    if found.shape == array.shape and found.dtype == array.dtype:
        return found
    written = mx.nd.empty(array.shape, array.ctx, array.dtype)
    written[:] = found
    return written


class FunctionTape(NamedTuple):
    """Differentiate a batch of an `autograd.Function`'s calls."""

    batch: Batch
    parts: list[_FunctionRun]  # one for the whole batch, or one a call
    inputs: list[NDArray]  # what was read of arenas, on a tape of autograd's own
    heads: list[Optional[NDArray]]  # slices of gradient arenas, for results that can have gradients
    line: str  # the user's line that recorded the first call

    def backward(self, gradients: Gradients) -> None:
        """Add to the gradients of the arguments that the batch read."""
        gradients.zero_arenas()
        node_type = self.batch.node_type
        try:
            with modes(False, node_type.mode.training), node_type.ctx:
                columns = list(zip(*self._gradients()))
        except Exception as error:
            raise RuntimeError(
                f'{node_type.name}.backward failed: {type(error).__name__}: {error}\n'
                f'  called at {self.line}'
            ) from error
        wanted = [
            (array, column[0] if len(column) == 1 else concatenated(column))
            for array, argument, column in zip(self.inputs, node_type.arguments, columns)
            if argument.differentiable
        ]
        autograd.backward(*map(list, zip(*wanted)), retain_graph=True)

    def _gradients(self) -> list[list[NDArray]]:
        begins = [0] * len(self.heads)
        found = []
        for part in self.parts:
            heads = []
            for position, (result, head) in enumerate(zip(part.results, self.heads)):
                end = begins[position] + len(result)
                heads.append(
                    mx.nd.zeros_like(result)
                    if head is None
                    else head._slice(begins[position], end).copy()
                )
                begins[position] = end
            found.append(part.backward(heads))
        return found


def run(state: ExecutionState, batch: Batch) -> Optional[FunctionTape]:
    """Run one batch of a Function's calls; return its tape, or None without a gradient."""
    node_type, call = batch.node_type, batch.node_type.graph.function
    call.signature.check()
    taped = [_taped(state, batch, position) for position in range(len(batch.reads))]
    inputs = [array.detach() for array in taped]
    with modes(False, node_type.mode.training), node_type.ctx:
        parts = _parts(batch, call, inputs, state.rows_of_calls(batch))
    for output, write in enumerate(batch.writes):
        rows = state.arenas[write.arena]._slice(write.begin, write.end)
        found = [part.results[output] for part in parts]
        (found[0] if len(found) == 1 else concatenated(found)).copyto(rows)
    heads = [
        None
        if state.gradients[write.arena] is None
        else state.gradients[write.arena]._slice(write.begin, write.end)
        for write in batch.writes
    ]
    if all(head is None for head in heads) or not _has_leaf(node_type):
        return None
    return FunctionTape(batch, parts, taped, heads, state.line_of(batch))


def _has_leaf(node_type: NodeType) -> bool:
    return node_type.mode.recording and any(each.differentiable for each in node_type.arguments)


def _taped(state: ExecutionState, batch: Batch, position: int) -> NDArray:
    """Return the rows that a batch reads as a separate array, on a small tape of autograd's."""
    read, node_type = batch.reads[position], batch.node_type
    leaf = node_type.mode.recording and node_type.arguments[position].differentiable
    with modes(leaf):
        if read.gather:
            arena = state.arena(read.arena, position, leaf)
            return mx.nd.take(arena, state.index(read, node_type))
        return mx.nd.identity(state.rows(batch, position, leaf))  # `copy` adds no gradients


def _parts(
    batch: Batch, call: FunctionCall, inputs: list[NDArray], rows: Sequence[int]
) -> list[_FunctionRun]:
    """Run a batch as one call if that is right, else call by call."""
    bounds = np.cumsum([0, *rows]).tolist()
    if len(rows) == 1:
        return [_run(batch.node_type, call, inputs, batch.rows, alone=True)]
    why = call.apart
    if not why:
        try:
            whole = _run(batch.node_type, call, inputs, batch.rows)
            why = '' if call.proved else _difference(batch, call, whole, bounds)
        except EdbError:
            raise
        except Exception as error:
            why = f'it does not run for several at once ({type(error).__name__}: {error})'
    if not why:
        return [whole]
    parts = [
        _run(batch.node_type, call, _cut(batch.node_type, inputs, begin, end), end - begin, True)
        for begin, end in zip(bounds, bounds[1:])
    ]
    call.apart = why
    return parts


def _cut(node_type: NodeType, inputs: Sequence[NDArray], begin: int, end: int) -> list[NDArray]:
    return [array if node_type.alone else array._slice(begin, end).copy() for array in inputs]


def _run(
    node_type: NodeType, call: FunctionCall, inputs: list[NDArray], rows: int, alone: bool = False
) -> _FunctionRun:
    """Run rows of calls; if a call `alone` has unexpected shapes, stop recording its class."""
    function = call.signature.new()
    function._used = True
    arrays = iter(inputs)
    found = function.forward(*[next(arrays) if each is None else each for each in call.inputs])
    found = [found] if isinstance(found, NDArray) else list(found)
    wanted = [(spec.shape, spec.dtype) for spec in node_type.output_specs(rows)]
    if [(array.shape, array.dtype) for array in found] != wanted:
        shapes = [array.shape for array in found]
        if alone:
            cls = type(call.signature.new())
            run_eagerly(cls, 'shapes of its results depend on more than those of its arguments')
        raise ValueError(
            f'forward returned shapes {shapes}, and earlier calls like it led to expect '
            f'{[shape for shape, _ in wanted]}; from now on calls of its class run eagerly'
        )
    return _FunctionRun(function, inputs, found)


# --- is a row alone the same? --------------------------------------------------------------------


def _difference(
    batch: Batch, call: FunctionCall, whole: _FunctionRun, bounds: Sequence[int]
) -> str:
    """Return how a batch differs from its first and last call run alone; empty if it does not."""
    ends = [(bounds[0], bounds[1]), (bounds[-2], bounds[-1])]
    node_type = batch.node_type
    cuts = [_cut(node_type, whole.inputs, *end) for end in ends]
    for (begin, end), inputs in zip(ends, cuts):
        alone = _run(node_type, call, inputs, end - begin)
        if not _same_rows(whole.results, alone.results, begin, node_type.factors):
            return _MIXED
        if _has_leaf(node_type):
            for scale in _SCALES:
                heads = [_drawn(result, scale) for result in whole.results]
                own = [
                    head._slice(begin * factor, end * factor).copy()
                    for head, factor in zip(heads, node_type.factors)
                ]
                with values_read() as read:
                    together = whole._replace(function=_kept(whole.function)).backward(heads)
                    apart = alone._replace(function=_kept(alone.function)).backward(own)
                if read:
                    return 'its backward reads values of arrays'
                if not _same_rows(together, apart, begin, [1] * len(together)):
                    return f'{_MIXED}: so does its gradient'
    call.proved = any(
        first.shape != last.shape or not np.array_equal(first.asnumpy(), last.asnumpy())
        for first, last in zip(*cuts)
    )
    return ''


def _same_rows(
    together: Sequence[NDArray], alone: Sequence[NDArray], begin: int, factors: Sequence[int]
) -> bool:
    return all(
        [
            is_close(
                one._slice(begin * factor, begin * factor + len(other)).asnumpy(), other.asnumpy()
            )
            for one, other, factor in zip(together, alone, factors)
        ]
    )


def _drawn(like: NDArray, scale: float) -> NDArray:
    values = np.random.RandomState(0).standard_normal(like.shape) * scale
    return mx.nd.array(values, ctx=like.ctx, dtype=like.dtype)


def _kept(function: autograd.Function) -> autograd.Function:
    """Return a copy of a Function after forward, as `backward` may change its containers."""
    kept = copy.copy(function)
    for name, value in vars(function).items():
        if isinstance(value, (list, dict, set)):
            setattr(kept, name, copy.copy(value))
    return kept
