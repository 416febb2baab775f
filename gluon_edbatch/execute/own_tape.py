"""Calls that run as without a scope: one by one, by MXNet's own operators, on the user's own tape.

That is for operators that make a gradient of their own (see `subgraph.own_gradient`), and for
whatever reads their results. All else of an evaluation is batched before, so what they read of it
is there.
"""

from dataclasses import replace
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import CachedOp, NDArray

from ..errors import RecordError
from ..mx.arrays import alias, concatenated, detached
from ..mx.host import upload
from ..mx.invoke import invoke, operator_handle
from ..mx.modes import modes
from ..plan.plan import ArenaPlan, Batch, Plan, Read
from ..record.recording import Recording
from ..record.stores import EagerArena
from ..subgraph.node_type import Kind, NodeType
from ..subgraph.trace import INPUT


def eager_last(plan: Plan) -> Tuple[Plan, List[Batch]]:
    """The plan with these calls after all batches, which do not read their results; and they."""
    eager = [group.node_type.eager for group in plan.groups]
    if not any(eager):
        return plan, []
    later = np.zeros(plan.size, bool)
    for group, is_eager in zip(plan.groups, eager):
        later[group.numbers] = is_eager
    place = np.empty(plan.size, np.int64)
    place[np.argsort(later, kind='stable')] = np.arange(plan.size)
    plan = replace(
        plan, groups=[group._replace(numbers=place[group.numbers]) for group in plan.groups]
    )
    return plan, plan.batches_between(int((~later).sum()), plan.size)


class _Gathered(NamedTuple):
    """The rows of an arena that these calls read: a slice of an arena would get a gradient of the
    arena's size for each call."""

    numbers: np.ndarray  # ascending
    rows: NDArray


class EagerCalls:
    """Those of one evaluation.

    Parameters
    ----------
    recording : Recording
    plan : Plan
    arenas : list of (Arena or EagerArena)
        Those of the plan, with all that was batched.
    batches : list of Batch
        One call each, in the order in which they run.
    """

    def __init__(
        self,
        recording: Recording,
        plan: Plan,
        arenas: Sequence[Any],
        batches: Sequence[Batch],
    ):
        self._recording, self._plan = recording, plan
        self._arenas, self._batches = arenas, batches
        self._gathered: Dict[Tuple[int, bool], _Gathered] = {}

    def run(self, batch: Batch) -> None:
        """Run one call: its results are rows of their arenas."""
        node_type = batch.node_type
        with modes(node_type.mode.recording, node_type.mode.training):
            variables = {
                name: self._parameter(node_type, position)
                for position, name in enumerate(node_type.graph.parameters)
            }
            variables.update(
                {
                    INPUT % position: self._argument(batch, position)
                    for position in range(len(node_type.arguments))
                }
            )
            with node_type.ctx:
                results = run_graph(node_type, variables)
        for result, write in zip(results, batch.writes):
            self._arenas[write.arena].rows[write.begin] = result

    def _parameter(self, node_type: NodeType, position: int) -> NDArray:
        parameter = node_type.parameters[position]
        watched = self._recording.model.of(parameter, node_type.ctx)
        if watched.copy is not None and not np.array_equal(
            watched.copy.asnumpy(), detached(watched.array).asnumpy()
        ):
            raise RecordError(
                f'parameter {parameter.name} was changed between a recorded call of '
                f'{node_type.name} and its evaluation, which needs its gradient on the tape of '
                f'autograd ({node_type.reason}); evaluate it (gluon_edbatch.forward) first'
            )
        return alias(watched.array)

    # --- arguments -------------------------------------------------------------------------------

    def _argument(self, batch: Batch, position: int) -> NDArray:
        read, argument = batch.reads[position], batch.node_type.arguments[position]
        arena, numbers = self._arenas[read.arena], self._numbers(read)
        ragged = argument.kind is Kind.RAGGED
        if ragged and not read.length:
            row_shape, dtype, ctx, _ = argument.arena
            return mx.nd.zeros((batch.rows, 1) + row_shape, ctx=ctx, dtype=dtype)
        if isinstance(arena, EagerArena):
            first = numbers.reshape(batch.rows, -1)[0] if ragged else numbers
            values = list(_values(arena, first.tolist(), ragged))
            if ragged:
                return mx.nd.stack(*values, axis=1)
            return values[0] if len(values) == 1 else concatenated(values)
        rows = self._rows(read.arena, numbers, batch.node_type.mode.recording)
        return (
            rows.reshape((batch.rows, read.length) + argument.arena.row_shape) if ragged else rows
        )

    def _numbers(self, read: Read) -> np.ndarray:
        """The rows of its arena."""
        if read.gather:
            return self._plan.indices[read.begin : read.end]
        return np.arange(read.begin, read.end)

    def _rows(self, index: int, numbers: np.ndarray, taped: bool) -> NDArray:
        gathered = self._gathered.get((index, taped))
        if gathered is None:
            gathered = self._gathered[index, taped] = self._gather(index, taped)
        places = np.searchsorted(gathered.numbers, numbers)
        if (np.diff(places) == 1).all():
            return gathered.rows._slice(int(places[0]), int(places[-1]) + 1)
        return mx.nd.take(gathered.rows, upload(places.astype(np.int32), gathered.rows.ctx))

    def _gather(self, index: int, taped: bool) -> _Gathered:
        numbers = np.unique(
            np.concatenate(
                [
                    self._numbers(read)
                    for batch in self._batches
                    for read in batch.reads
                    if read.arena == index
                ]
            )
        )
        arena = self._arenas[index]
        source = arena.taped if taped else None
        rows = upload(numbers.astype(np.int32), arena.raw.ctx)
        return _Gathered(numbers, mx.nd.take(arena.handed() if source is None else source, rows))


def given_rows(plan: ArenaPlan, recording: Recording) -> EagerArena:
    """What of such an arena is there before its evaluation: results of earlier ones, and values of
    other scopes."""
    arena = EagerArena()
    for begin, which in plan.arrays:
        arena.rows[begin] = recording.arrays[which][1].original
    for imported in plan.imports:
        source: Any = recording.results[imported.evaluation][plan.key]
        begin, place = imported.begin, 0
        while place < len(imported.rows):
            value = source.rows[int(imported.rows[place])]
            arena.rows[begin + place] = value if imported.taped else value.detach()
            place += len(value)
    return arena


def _values(arena: EagerArena, numbers: List[int], firsts: bool) -> Iterator[NDArray]:
    """The values that begin at these rows; or that have these rows, one after the other."""
    place = 0
    while place < len(numbers):
        value = arena.rows[numbers[place]]
        place += 1 if firsts else len(value)
        yield value


# --- a graph, operator by operator ---------------------------------------------------------------


def run_graph(node_type: NodeType, variables: Dict[str, NDArray]) -> List[NDArray]:
    """The results of a type's subgraph, computed as the user's code would have done."""
    graph = node_type.graph.subgraph
    if any(node.bodies for node in graph.nodes):
        results = CachedOp(graph.symbol)(*[variables[name] for name in graph.variables])
        return [results] if isinstance(results, NDArray) else results
    values: List[List[NDArray]] = []
    for node in graph.nodes:
        if node.is_variable:
            values.append([variables[node.name]])
            continue
        attrs = {key: value for key, value in node.attrs.items() if not key.startswith('__')}
        inputs = [values[entry.node][entry.output] for entry in node.inputs]
        values.append(
            invoke(
                operator_handle(node.op),
                inputs,
                list(attrs),
                list(attrs.values()),
                None,
                False,
                True,
            )
        )
    return [values[index][output] for index, output in graph.heads]
