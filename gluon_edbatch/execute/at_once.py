"""Calls that run at once: each as eager Gluon runs it, on its arguments where they are, on the
user's own tape.

Nothing is scheduled, laid out or copied for them. Which types that is for is measured (see
`choice`); it is possible for calls that read only what is given, what was computed before, and
results of such calls.
"""

from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..graph.collect import Calls, Edges
from ..mx.arrays import alias, concatenated
from ..mx.guard import Watched
from ..mx.host import upload
from ..mx.modes import modes
from ..plan.plan import Batch
from ..record.calls import Form
from ..record.inputs import GivenArray
from ..record.recording import Recording
from ..record.stores import EagerArena
from ..subgraph.node_type import Kind, NodeType
from ..subgraph.spec import ArenaKey
from ..subgraph.split import has_sparse_gradient
from .cached.program import EMPTY, SLICE, CachedProgram, program_as_written, program_for
from .sparse_tables import check_request


def which(
    recording: Recording, calls: Calls, edges: Edges, types: Iterable[NodeType]
) -> np.ndarray:
    """(n,) bool, the calls of these types that can run at once."""
    types = {kind for kind in types if _has_its_parameters(recording, kind)}
    forms = [recording.forms[form] for form in calls.forms.tolist()]
    kinds = [form.node_type for form in forms]
    fits = np.array([form.node_type in types and not form.length for form in forms])
    changed = _changed(recording, calls)
    if changed:
        taped = np.array([kind.mode.recording for kind in kinds])
        fits &= ~(taped & _any(calls.offsets, np.isin(calls.args, changed)))
    while not fits.all():  # as often as calls read each other
        late = fits & _any(edges.offsets, ~fits[edges.producers])
        if not late.any():
            break
        fits &= ~late
    return fits


def _any(offsets: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """For each call whether one of its entries is marked."""
    before = np.append(0, np.cumsum(marked))
    return before[offsets[1:]] > before[offsets[:-1]]


def _changed(recording: Recording, calls: Calls) -> List[int]:
    """Given arrays on a tape of which it is not known that they hold what they did."""
    values = {value for value in calls.args.tolist() if value < 0 and value % 2 == 0}
    return [value for value in values if not _as_given(recording.arrays[-value // 2 - 1][1])]


def _as_given(array: Any) -> bool:
    if not isinstance(array, GivenArray) or array.original is None:
        return True
    return isinstance(array.values, Watched) and array.values.copy is None


def _has_its_parameters(recording: Recording, node_type: NodeType) -> bool:
    """Whether autograd may have the parameters themselves."""
    return not node_type.mode.recording or all(
        [
            recording.model.of(parameter, node_type.ctx).copy is None
            for parameter in node_type.parameters
        ]
    )


class _Call(NamedTuple):
    """What calls of one form, with ragged arguments that have values or have none, share."""

    program: CachedProgram
    inputs: List[Any]  # parameters, and None for arguments


class CallsAtOnce:
    """Those of one evaluation, which run in the order in which they were recorded.

    Attributes
    ----------
    arenas : dict of ArenaKey to EagerArena
        Results.
    values, rows : list of int
        What was computed, and where there.
    """

    def __init__(self, recording: Recording, calls: Calls):
        self._recording, self._calls = recording, calls
        self._results: Dict[int, NDArray] = {}
        self._shared: Dict[Tuple[int, Tuple[str, ...]], _Call] = {}
        self.arenas: Dict[ArenaKey, Any] = {}
        self.values: List[int] = []
        self.rows: List[int] = []
        self._next_row = 0

    def run(self, position: int) -> None:
        """Run one call."""
        form = self._recording.forms[self._calls.forms[position]]
        node_type = form.node_type
        with modes(node_type.mode.recording, node_type.mode.training):
            arguments = list(self._arguments(node_type, position))
            kinds = tuple([SLICE if argument is not None else EMPTY for argument in arguments])
            call = self._shared.get((form.index, kinds))
            if call is None:
                call = self._shared[form.index, kinds] = self._call(node_type, kinds)
            inputs = [
                self._argument(form, source.position, arguments) if known is None else known
                for source, known in zip(call.program.sources, call.inputs)
            ]
            results = call.program.call(*inputs)
        first = int(self._calls.outputs[position])
        for output, result in enumerate([results] if form.outputs == 1 else results):
            self._keep(first + output, node_type.outputs[output].arena, result)

    def batch(self, position: int) -> Batch:
        """One call, to be described."""
        form = self._recording.forms[self._calls.forms[position]]
        return Batch(form.node_type, np.array([position]), form.rows, (), ())

    def _keep(self, value: int, key: ArenaKey, result: NDArray) -> None:
        arena = self.arenas.get(key)
        if arena is None:
            arena = self.arenas[key] = EagerArena()
        arena.rows[self._next_row] = self._results[value] = result
        self.values.append(value)
        self.rows.append(self._next_row)
        self._next_row += int(self._recording.locations.rows[value])

    def _call(self, node_type: NodeType, kinds: Tuple[str, ...]) -> _Call:
        if node_type.mode.recording and any(map(has_sparse_gradient, node_type.parameters)):
            program = program_as_written(node_type)
        else:
            program = program_for(node_type, kinds)
        return _Call(
            program,
            [
                self._parameter(node_type, source.position) if source.kind == 'parameter' else None
                for source in program.sources
            ],
        )

    def _parameter(self, node_type: NodeType, position: int) -> NDArray:
        parameter = node_type.parameters[position]
        if node_type.mode.recording and has_sparse_gradient(parameter):
            check_request(parameter)
        watched = self._recording.model.of(parameter, node_type.ctx)
        return alias(watched.array) if node_type.mode.recording else watched.values()

    # --- arguments -------------------------------------------------------------------------------

    def _arguments(self, node_type: NodeType, position: int) -> Iterator[Any]:
        """Each as an array; None for a ragged one without values."""
        calls = self._calls
        values = iter(calls.args[calls.offsets[position] : calls.offsets[position + 1]].tolist())
        rows = [
            self._value(next(values), argument.arena) if argument.kind is Kind.ROWS else None
            for argument in node_type.arguments
        ]
        begin, end = calls.length_offsets[position : position + 2].tolist()
        lengths = iter(calls.lengths[begin:end].tolist())
        for argument, array in zip(node_type.arguments, rows):
            if argument.kind is Kind.ROWS:
                yield array
                continue
            several = [self._value(next(values), argument.arena) for _ in range(next(lengths))]
            if argument.kind is Kind.FLAT:
                yield concatenated(several)
            else:
                yield mx.nd.stack(*several, axis=1) if several else None

    def _argument(self, form: Form, position: int, arguments: List[Any]) -> NDArray:
        array = arguments[position]
        if array is not None:
            return array
        row_shape, dtype, ctx, _ = form.node_type.arguments[position].arena
        return mx.nd.zeros((form.rows, 1) + row_shape, ctx=ctx, dtype=dtype)

    def _value(self, value: int, key: ArenaKey) -> NDArray:
        known = self._results.get(value)
        if known is None:
            known = self._results[value] = (
                self._computed(value, key) if value >= 0 else self._given(value, key)
            )
        return known

    def _computed(self, value: int, key: ArenaKey) -> NDArray:
        """By an earlier evaluation."""
        locations = self._recording.locations
        arena = self._recording.results[int(locations.evaluation[value])][key]
        row = int(locations.row[value])
        return arena.read(row, row + int(locations.rows[value]), bool(locations.taped[value]))

    def _given(self, value: int, key: ArenaKey) -> NDArray:
        if value % 2:
            number = (-value - 1) // 2
            return upload(self._recording.numbers(number, number + 1), key.ctx)
        array = self._recording.arrays[-value // 2 - 1][1]
        if isinstance(array, GivenArray):
            if array.original is not None and _as_given(array):
                return array.original
            array = array.contents()
        return upload(array, key.ctx) if isinstance(array, np.ndarray) else array
