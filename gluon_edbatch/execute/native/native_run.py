"""Consecutive batches as one call of a native operator, forward and backward."""

from typing import Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ...mx.host import upload
from ...mx.pool import Memory
from ...ops.instructions import RowProgram
from ...plan.plan import Group
from ...subgraph.node_type import NodeType
from .program import NativeProgram, native_program
from .words import batch_words, header, place_kept, program_words


class NativeRun:
    """Batches that one call of an operator runs.

    Parameters
    ----------
    machine : Machine
    first, last : int
        The batches of its plan from `first` to before `last`, of one kind.
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
        self._laps = [machine.clock.laps(first, last)] if machine.clock else []
        # Not the machine itself: it refers to its runs, and its memory is to go with the last user.
        self._gradients = [machine.gradients[arena] for arena in self._arenas] + self._gradients

    def forward(self) -> bool:
        """Run the batches: their results appear in the arenas.

        Returns
        -------
        bool
            Whether there is something to differentiate.
        """
        inputs = self._inputs + self._laps
        _call(mx.nd.op.edb_run_forward, inputs, 2 + len(self._parameters))
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
        self, machine, parts: List[Tuple[Group, int, int]], first: int, last: int
    ) -> np.ndarray:
        private = [arena.private for arena in machine.plan.arenas]
        order = np.empty(last - first, np.int64)  # program of each batch
        pieces, workspace, gradients = [], 0, 0
        natives = [_program(group.node_type) for group, _, _ in parts]
        element_size = natives[0].program.element_size
        self._dtype = {4: np.float32, 8: np.float64}[element_size]
        self._differentiable = False
        for index, ((group, begin, end), native) in enumerate(zip(parts, natives)):
            order[group.numbers[begin:end] - first] = index
            for place in group.reads + group.writes:
                self._arenas.setdefault(place.arena, len(self._arenas))
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


def _program(node_type: NodeType) -> NativeProgram:
    program = native_program(node_type)
    assert program is not None  # else the backend would not run it
    return program
