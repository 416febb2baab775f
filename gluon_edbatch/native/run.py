"""Consecutive batches as one call of a native operator, forward and backward."""
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..host import upload
from ..pool import Memory
from ..static.node_type import Kind, NodeType
from . import library
from .encoding import Layout, Rows, batch_words, header, layout, place_kept, program_words
from .instructions import RowProgram
from .lowering import lower
from .rules import Unsupported

if TYPE_CHECKING:
    from ..plan import Batch


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
            node_type.native = NativeProgram(program, (layout(program, False),
                                                       layout(program, True)))
            node_type.changed_by.add('native')
        except Unsupported as reason:
            node_type.not_native = str(reason)
    return node_type.native


def runs_natively(batch: 'Batch') -> bool:
    """Whether a batch can be a part of a run."""
    return native_program(batch.node_type) is not None and not any(
        argument.kind is Kind.RAGGED and read.length != 0 and read.parents is None
        for argument, read in zip(batch.node_type.arguments, batch.reads))


class NativeRun:
    """Batches that one call of an operator runs.

    Parameters
    ----------
    machine : Machine
    batches : sequence of Batch
        All run natively, have one element type, and agree in whether they are recorded.
    """

    def __init__(self, machine, batches: Sequence['Batch']):
        self.training = batches[0].node_type.mode.recording
        self._arenas: Dict[int, int] = {}      # of the machine -> of the run
        self._parameters: List[NDArray] = []
        self._gradients: List[Optional[NDArray]] = []
        self._read_backward: List[bool] = []
        table = upload(self._encode(machine, batches), mx.cpu())
        self._inputs = [table, machine.index_array(mx.cpu()), *self._parameters,
                        *[machine.arenas[arena] for arena in self._arenas],
                        self._workspace.array]
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
        nothing = mx.nd.empty((1,), dtype=self._dtype)
        inputs = self._inputs + [nothing if gradient is None else gradient
                                 for gradient in self._gradients]
        # An update of a parameter may be queued already, and wait for this very backward pass.
        for position, read in enumerate(self._read_backward, 2):
            if not read:
                inputs[position] = nothing
        _call(mx.nd.op.edb_run_backward, inputs, len(self._inputs))

    # --- the table -------------------------------------------------------------------------------

    def _encode(self, machine, batches: Sequence['Batch']) -> np.ndarray:
        programs: Dict[NodeType, int] = {}
        totals: List[Rows] = []
        private = [arena.private for arena in machine.plan.arenas]
        words: List[int] = []
        self._differentiable = False
        for batch in batches:
            index = programs.get(batch.node_type)
            if index is None:
                index = programs[batch.node_type] = len(programs)
                totals.append(Rows(0, 0))
            for place in batch.reads + batch.writes:
                self._arenas.setdefault(place.arena, len(self._arenas))
            values = max([read.end - read.begin for read in batch.reads
                          if read.parents is not None], default=0)
            words += batch_words(batch, index, totals[index], values, self._arenas, private)
            totals[index] = Rows(totals[index].rows + batch.rows, totals[index].values + values)
        element_size = native_program(batches[0].node_type).program.element_size
        self._dtype = {4: np.float32, 8: np.float64}[element_size]
        pieces, workspace, gradients = [], 0, 0
        for node_type, rows in zip(programs, totals):
            native = native_program(node_type)
            kept = native.layouts[self.training]
            registers, workspace, gradients = place_kept(kept, rows, workspace, gradients)
            pieces += program_words(native.program, kept, registers,
                                    self._parameters_of(machine, node_type, native.program))
        self._workspace = Memory((max(workspace, 1),), self._dtype, mx.cpu())
        first = header(element_size, self.training, len(self._arenas), len(self._parameters),
                       gradients, len(programs), len(batches))
        return np.concatenate([np.array(first, np.int64), *pieces, np.array(words, np.int64)])

    def _parameters_of(self, machine, node_type: NodeType, program: RowProgram
                       ) -> List[Tuple[int, bool, int]]:
        """Position in the run, whether it is trained, and first element, of what it uses."""
        alone = [(position,) for position in range(len(node_type.parameters))]
        packed = {position for members in program.packs for position in members}
        used = {position for position, _ in program.parameters}
        places = {index: self._weight(machine, node_type, members)
                  for index, members in enumerate(alone + program.packs)
                  if index in used or index not in packed}
        self._differentiable |= any(trained for _, trained in places.values()) or any(
            argument.differentiable for argument in node_type.arguments)
        return [places[index] + (begin,) for index, begin in program.parameters]

    def _weight(self, machine, node_type: NodeType, members: Tuple[int, ...]
                ) -> Tuple[int, bool]:
        """A parameter or a pack: its position in the run, and whether it is trained."""
        value = (machine.pack(node_type, members) if len(members) > 1
                 else machine.parameter(node_type, members[0]))
        trained = self.training and any(node_type.parameters[position].grad_req != 'null'
                                        for position in members)
        for index, known in enumerate(self._parameters):
            if known is value:
                return index, trained
        self._parameters.append(value)
        self._gradients.append(machine.gradient_of(value) if trained else None)
        self._read_backward.append(any(node_type.read_backward[position]
                                       for position in members))
        return len(self._parameters) - 1, trained


def _call(operator, inputs: List[NDArray], written: int) -> None:
    """An operator that writes its inputs from one on."""
    operator(*inputs, inputs=len(inputs), written=written, written_end=len(inputs))
