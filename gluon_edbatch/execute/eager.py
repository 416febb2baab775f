"""Run calls eagerly: one by one, operator by operator, on the user's own tape.

Operators that make their own gradient (see `subgraph.own_gradient`), and calls that read their
results, run after all batches of an evaluation. Large calls (see `executable`) run before the
batches, if they read only inputs, earlier results and each other.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import CachedOp, NDArray

from gluon_edbatch_core.graph.collect import Calls, Edges
from gluon_edbatch_core.plan.plan import Batch

from ..mx.arrays import alias, concatenated, detached
from ..mx.host import upload
from ..mx.invoke import invoke, operator_handle
from ..mx.modes import modes
from ..mx.mutation_guard import MutationGuard
from ..record.inputs import GivenArray
from ..record.recording import Recording
from ..record.stores import Arena, EagerArena
from ..subgraph.node_type import Kind, NodeType
from ..subgraph.spec import ArenaKey
from ..subgraph.trace import INPUT


def that_read_no_batch(
    recording: Recording, calls: Calls, edges: Edges, types: Iterable[NodeType]
) -> np.ndarray:
    """Return (n,) bool, the calls of these types that read no result of the other calls."""
    types = set(types)
    forms = [recording.forms[form] for form in calls.forms.tolist()]
    fits = np.array([form.node_type in types and not form.length for form in forms])
    while not fits.all():  # as often as calls read each other
        read_others = np.append(0, np.cumsum(~fits[edges.producers]))[edges.offsets]
        late = fits & (read_others[1:] > read_others[:-1])
        if not late.any():
            break
        fits &= ~late
    return fits


class EagerCalls:
    """Run the eager calls of one evaluation, in the order in which they were recorded."""

    def __init__(self, recording: Recording, calls: Calls):
        self._recording, self._calls = recording, calls
        self._arrays: dict[int, NDArray] = {}  # by value, those that calls read or computed
        self._together: dict[tuple[int, ArenaKey], list[int]] = defaultdict(list)
        self.arenas: dict[ArenaKey, Any] = {}  # results, each an EagerArena
        self.values: list[int] = []  # what was computed,
        self.rows: list[int] = []  # and where there
        self._next_row = 0
        self._find_arenas_read()

    def run(self, position: int) -> None:
        """Run one recorded call by MXNet, alone, and keep its results."""
        form = self._recording.forms[self._calls.forms[position]]
        node_type = form.node_type
        reads = list(self._reads(position))
        empty = frozenset([place for place, (_, _, values) in enumerate(reads) if not values])
        with modes(node_type.mode.recording, node_type.mode.training), node_type.ctx:
            variables = {
                name: self._parameter(node_type, number)
                for number, name in enumerate(node_type.graph.parameters)
            }
            for number, read in enumerate(reads):
                variables[INPUT % number] = self._argument(*read, form.rows)
            results = run_graph(node_type, variables, empty)
        first = int(self._calls.outputs[position])
        for output, result in enumerate(results):
            self._keep(first + output, node_type.outputs[output].arena, result)

    def batch(self, position: int) -> Batch:
        """Return one call as a batch, to describe it."""
        form = self._recording.forms[self._calls.forms[position]]
        return Batch(form.node_type, np.array([position]), form.rows, (), ())

    def _keep(self, value: int, key: ArenaKey, result: NDArray) -> None:
        arena = self.arenas.setdefault(key, EagerArena())
        arena.rows[self._next_row] = self._arrays[value] = result
        self.values.append(value)
        self.rows.append(self._next_row)
        self._next_row += int(self._recording.locations.rows[value])

    def _parameter(self, node_type: NodeType, position: int) -> NDArray:
        watched = self._recording.model.of(node_type.parameters[position], node_type.ctx)
        if not node_type.mode.recording:
            return watched.values()
        return _as_recorded(alias(watched.array), watched)

    # --- arguments -------------------------------------------------------------------------------

    def _reads(self, position: int) -> Iterator[tuple[ArenaKey, Kind, list[int]]]:
        """Yield the values of each argument of a call."""
        calls = self._calls
        form = self._recording.forms[calls.forms[position]]
        arguments = form.node_type.arguments
        values = iter(calls.args[calls.offsets[position] : calls.offsets[position + 1]].tolist())
        begin, end = calls.length_offsets[position : position + 2].tolist()
        lengths = iter(calls.lengths[begin:end].tolist())
        rows = [next(values) if each.kind is Kind.ROWS else 0 for each in arguments]
        for argument, value in zip(arguments, rows):
            if argument.kind is Kind.ROWS:
                yield argument.arena, argument.kind, [value]
            else:
                several = [next(values) for _ in range(next(lengths))]
                yield argument.arena, argument.kind, several

    def _argument(self, key: ArenaKey, kind: Kind, values: Sequence[int], rows: int) -> NDArray:
        arrays = [self._array(value, key) for value in values]
        if kind is Kind.ROWS:
            return arrays[0]
        if kind is Kind.FLAT:
            return concatenated(arrays)
        if arrays:
            return mx.nd.stack(*arrays, axis=1)
        return mx.nd.zeros((rows, 1) + key.row_shape, ctx=key.ctx, dtype=key.dtype)

    def _find_arenas_read(self) -> None:
        """Note which values on a tape come from one arena: see `_gather`."""
        locations = self._recording.locations
        for position in range(len(self._calls)):
            for key, _, values in self._reads(position):
                for value in values:
                    if value >= 0 and locations.known(value) and locations.taped[value]:
                        self._together[int(locations.evaluation[value]), key].append(value)

    def _array(self, value: int, key: ArenaKey) -> NDArray:
        found = self._arrays.get(value)
        if found is None:
            if value >= 0:
                self._read_computed(value, key)
            else:
                self._arrays[value] = self._given(value, key)
            found = self._arrays[value]
        return found

    def _read_computed(self, value: int, key: ArenaKey) -> None:
        """Read a value that an earlier evaluation computed."""
        locations = self._recording.locations
        evaluation = int(locations.evaluation[value])
        arena = self._recording.results[evaluation][key]
        together = sorted(set(self._together.get((evaluation, key), ())))
        if len(together) > 1 and isinstance(arena, Arena) and arena.taped is not None:
            self._gather(arena.taped, together)
            return
        row = int(locations.row[value])
        self._arrays[value] = arena.read(
            row, row + int(locations.rows[value]), bool(locations.taped[value])
        )

    def _gather(self, arena: NDArray, values: Sequence[int]) -> None:
        """Read all values of an arena by one gather: each slice would get a full-size gradient."""
        locations = self._recording.locations
        first, counts = locations.row[values], locations.rows[values]
        ends = np.cumsum(counts)
        rows = np.repeat(first - ends + counts, counts) + np.arange(ends[-1])
        with modes(recording=True):
            taken = mx.nd.take(arena, upload(rows.astype(np.int32), arena.ctx))
            for value, end, count in zip(values, ends.tolist(), counts.tolist()):
                self._arrays[value] = mx.nd.slice_axis(taken, axis=0, begin=end - count, end=end)

    def _given(self, value: int, key: ArenaKey) -> NDArray:
        if value % 2:
            number = (-value - 1) // 2
            return upload(self._recording.numbers(number, number + 1), key.ctx)
        array = self._recording.arrays[-value // 2 - 1][1]
        if isinstance(array, GivenArray):
            if array.original is not None and autograd.is_recording():
                return _as_recorded(array.original, array.values).as_in_context(key.ctx)
            array = array.contents()
        return upload(array, key.ctx) if isinstance(array, np.ndarray) else array


class _AsItWas(autograd.Function):
    """Return what an array held before it was written to, with the gradient of that array."""

    def __init__(self, values: NDArray):
        super().__init__()
        self._values = values

    def forward(self, _array: NDArray) -> NDArray:
        """Return the values before the write."""
        return self._values

    def backward(self, gradient: NDArray) -> NDArray:
        """Return the gradient unchanged."""
        return gradient


def _as_recorded(array: NDArray, values: Any) -> NDArray:
    """Return a user's array on a tape with the values (`MutationGuard`, NDArray or numpy.ndarray)
    that it had when a call was recorded."""
    if isinstance(values, MutationGuard):
        if values.copy is None:
            return array
        values = values.copy
    held = values if isinstance(values, np.ndarray) else values.asnumpy()
    if np.array_equal(detached(array).asnumpy(), held):
        return array
    return _AsItWas(upload(held, array.ctx))(array)


# --- a graph, operator by operator ---------------------------------------------------------------


def run_graph(
    node_type: NodeType, variables: dict[str, NDArray], empty: frozenset[int]
) -> list[NDArray]:
    """Return the results of a type's subgraph, computed as in eager code. Arguments at positions
    `empty` have no values, but one of zeros."""
    graph = node_type.graph.subgraph
    if empty and node_type.lengths is None:
        graph = node_type.without_values(empty).graph
    if node_type.has_loops:
        results = CachedOp(graph.symbol)(*[variables[name] for name in graph.variables])
        return [results] if isinstance(results, NDArray) else results
    values: list[list[NDArray]] = []
    for node in graph.nodes:
        if node.is_variable:
            values.append([variables[node.name]])
            continue
        attrs = {key: value for key, value in node.attrs.items() if not key.startswith('__')}
        inputs = [values[entry.node][entry.output] for entry in node.inputs]
        names, texts = list(attrs), list(attrs.values())
        values.append(invoke(operator_handle(node.op), inputs, names, texts, None, False, True))
    return [values[index][output] for index, output in graph.heads]
