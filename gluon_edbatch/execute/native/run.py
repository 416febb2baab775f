"""Consecutive batches as one call of a native operator, forward and backward."""

from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ... import debug
from ...mx.host import upload
from ...mx.pool import Memory
from ...ops.instructions import RowProgram
from ...ops.native import Unsupported
from ...subgraph.node_type import Kind, NodeType
from . import library
from .encoding import Layout, batch_words, header, layout, place_kept, program_words
from .lowering import lower

if TYPE_CHECKING:
    from ...plan.plan import Group


class NativeProgram(NamedTuple):
    """A type's program, and its words for runs without and with a backward pass."""

    program: RowProgram
    layouts: Tuple[Layout, Layout]


def native_program(node_type: NodeType) -> Optional[NativeProgram]:
    """The program of a type; None if it cannot run natively (`NodeType.not_native` says why)."""
    if node_type.native is None and node_type.not_native is None:
        try:
            if not (node_type.options.native and library.available()):
                raise Unsupported('there are no native operators')
            program = lower(node_type)
            debug.show(debug.PROGRAMS, f'{node_type}, natively', program)
            node_type.native = NativeProgram(
                program, (layout(program, False), layout(program, True))
            )
            node_type.changed_by.add('native')
        except Unsupported as reason:
            node_type.not_native = str(reason)
            debug.show(debug.PROGRAMS, f'{node_type}, not natively: it {reason}')
    return node_type.native


def kind_of_run(group: 'Group') -> np.ndarray:
    """(batches,) int8: which batches of a group can be a part of a run, a number above 0 for each
    kind of run; batches that run together agree in it. 0 are those with padded arguments."""
    native = native_program(group.node_type)
    if native is None:
        return np.zeros(group.size, np.int8)
    kind = native.program.element_size * 2 + group.node_type.mode.recording
    padded = np.zeros(group.size, bool)
    for argument, read in zip(group.node_type.arguments, group.reads):
        if argument.kind is Kind.RAGGED:
            padded |= (read.length != 0) & (True if read.parents is None else read.parents < 0)
    return np.where(padded, 0, kind).astype(np.int8)


class NativeRun:
    """Batches that one call of an operator runs.

    Parameters
    ----------
    machine : Machine
    first, last : int
        The batches of its plan from `first` to before `last`, of one `kind_of_run`.
    """

    def __init__(self, machine, first: int, last: int):
        parts = [(group, *group.between(first, last)) for group in machine.plan.groups]
        parts = [part for part in parts if part[1] < part[2]]
        self.training = parts[0][0].node_type.mode.recording
        self._ctx = parts[0][0].node_type.ctx
        self._arenas: Dict[int, int] = {}  # of the machine -> of the run
        self._parameters: List[NDArray] = []
        self._gradients: List[Optional[NDArray]] = []
        self._read_backward: List[bool] = []
        table = upload(self._encode(machine, parts, first, last), self._ctx)
        self._inputs = [
            table,
            machine.index_array(self._ctx),
            *self._parameters,
            *[machine.arenas[arena] for arena in self._arenas],
            self._workspace.array,
        ]
        # Not the machine itself: it refers to its runs, and its memory is to go with the last user.
        self._gradients = [machine.gradients[arena] for arena in self._arenas] + self._gradients

    def forward(self) -> bool:
        """Run the batches: their results appear in the arenas.

        Returns
        -------
        bool
            Whether there is something to differentiate.
        """
        _call(mx.nd.op.edb_run_forward, self._inputs, 2 + len(self._parameters))
        return self.training and self._differentiable

    def backward(self) -> None:
        """Add to the gradients of what the batches read."""
        nothing = mx.nd.empty((1,), self._ctx, self._dtype)
        inputs = self._inputs + [
            nothing if gradient is None else gradient for gradient in self._gradients
        ]
        # An update of a parameter may be queued already, and wait for this very backward pass.
        for position, read in enumerate(self._read_backward, 2):
            if not read:
                inputs[position] = nothing
        _call(mx.nd.op.edb_run_backward, inputs, len(self._inputs))

    # --- the table -------------------------------------------------------------------------------

    def _encode(
        self, machine, parts: List[Tuple['Group', int, int]], first: int, last: int
    ) -> np.ndarray:
        private = [arena.private for arena in machine.plan.arenas]
        order = np.empty(last - first, np.int64)  # program of each batch
        pieces, workspace, gradients = [], 0, 0
        element_size = native_program(parts[0][0].node_type).program.element_size
        self._dtype = {4: np.float32, 8: np.float64}[element_size]
        self._differentiable = False
        for index, (group, begin, end) in enumerate(parts):
            order[group.numbers[begin:end] - first] = index
            for place in group.reads + group.writes:
                self._arenas.setdefault(place.arena, len(self._arenas))
            native = native_program(group.node_type)
            kept = native.layouts[self.training]
            batches, rows = batch_words(group, begin, end, self._arenas, private)
            registers, workspace, gradients = place_kept(kept, rows, workspace, gradients)
            parameters = self._parameters_of(machine, group.node_type, native.program)
            pieces += program_words(native.program, kept, registers, parameters, batches)
        self._workspace = Memory((max(workspace, 1),), self._dtype, self._ctx)
        start = header(
            element_size,
            self.training,
            len(self._arenas),
            len(self._parameters),
            gradients,
            len(parts),
            last - first,
        )
        return np.concatenate([np.array(start, np.int64), *pieces, order])

    def _parameters_of(
        self, machine, node_type: NodeType, program: RowProgram
    ) -> List[Tuple[int, bool, int]]:
        """Position in the run, whether it is trained, and first element, of what it uses."""
        alone = [(position,) for position in range(len(node_type.parameters))]
        packed = {position for members in program.packs for position in members}
        used = {position for position, _ in program.parameters}
        places = {
            index: self._weight(machine, node_type, members)
            for index, members in enumerate(alone + program.packs)
            if index in used or index not in packed
        }
        self._differentiable |= any(trained for _, trained in places.values()) or any(
            argument.differentiable for argument in node_type.arguments
        )
        return [places[index] + (begin,) for index, begin in program.parameters]

    def _weight(self, machine, node_type: NodeType, members: Tuple[int, ...]) -> Tuple[int, bool]:
        """A parameter or a pack: its position in the run, and whether it is trained."""
        value = (
            machine.weights.pack(node_type, members)
            if len(members) > 1
            else machine.weights.parameter(node_type, members[0])
        )
        trained = self.training and any(
            node_type.parameters[position].grad_req != 'null' for position in members
        )
        for index, known in enumerate(self._parameters):
            if known is value:
                return index, trained
        self._parameters.append(value)
        self._gradients.append(machine.weights.gradient_of(value) if trained else None)
        self._read_backward.append(any(node_type.read_backward[position] for position in members))
        return len(self._parameters) - 1, trained


def _call(operator, inputs: List[NDArray], written: int) -> None:
    """An operator that writes its inputs from one on."""
    operator(*inputs, inputs=len(inputs), written=written, written_end=len(inputs))
