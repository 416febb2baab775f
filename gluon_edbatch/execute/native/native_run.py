"""Consecutive batches as one call of a native operator, forward and backward."""

from typing import Any, Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ...mx.host import upload
from ...mx.pool import Memory
from ...ops.instructions import RowProgram
from ...plan.plan import Group
from ...subgraph.node_type import NodeType
from ..gradients import Gradients
from .program import NativeProgram, native_program
from .words import batch_words, header, keep, weight, weights_size


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
        self._differentiable = False
        self._arenas: Dict[int, int] = {}  # of the machine -> of the run
        self._weights: List[NDArray] = []
        self._words: List[List[int]] = []  # of each (see `words.weight`)
        self._inputs: List[Optional[int]] = []  # of the tape, which of them each weight is
        self._places: Dict[tuple, int] = {}  # of weights and packs, by what they are
        table = upload(self._encode(machine, parts, first, last), self._ctx)
        arenas = [machine.arenas[arena] for arena in self._arenas]
        self._forward = [
            *[table, machine.index_array(self._ctx)],
            *[*self._weights, *arenas, self._workspace.array],
            *([machine.clock.laps(first, last)] if machine.clock else []),
        ]
        self._backward = [*self._forward[:2], *arenas, self._workspace.array]

    def forward(self) -> bool:
        """Run the batches: their results appear in the arenas.

        Returns
        -------
        bool
            Whether there is something to differentiate.
        """
        written = 2 + len(self._weights)
        mx.nd.op.edb_run_forward(*self._forward, inputs=len(self._forward), written=written)
        del self._forward, self._weights
        return self.training and self._differentiable

    def backward(self, gradients: Gradients) -> None:
        """Add to the gradients of what the batches read."""
        nothing = mx.nd.empty((1,), self._ctx, self._dtype)
        wanted = [gradients.of_arena(arena) for arena in self._arenas]
        wanted += [gradients.of_input(place) for place in self._inputs]
        inputs = [*self._backward, *[nothing if to is None else to for to, _ in wanted]]
        mx.nd.op.edb_run_backward(
            *inputs,
            inputs=len(inputs),
            written=len(self._backward),
            modes=''.join([mode for _, mode in wanted]),
        )

    # --- the table -------------------------------------------------------------------------------

    def _encode(
        self, machine, parts: List[Tuple[Group, int, int]], first: int, last: int
    ) -> np.ndarray:
        private = [arena.private for arena in machine.plan.arenas]
        natives = [_program(group.node_type) for group, _, _ in parts]
        element_size = natives[0].program.element_size
        self._dtype = {4: np.float32, 8: np.float64}[element_size]
        programs: List[Any] = []
        workspace = 1
        for (group, begin, end), native in zip(parts, natives):
            for place in group.reads + group.writes:
                self._arenas.setdefault(place.arena, len(self._arenas))
            layout = native.layouts[self.training]
            parameters = self._parameters_of(machine, group.node_type, native.program)
            batches, rows, values = batch_words(group, begin, end, self._arenas, private)
            programs += [layout.words, parameters, *batches]
            workspace += layout.workspace(rows, values)
        workspace += weights_size(self._words)
        self._workspace = Memory((workspace,), self._dtype, self._ctx)
        counts = len(self._arenas), len(self._weights), len(parts)
        start = header(element_size, self.training, *counts, first, last)
        return np.concatenate([start, *self._words, *programs]).astype(np.int64, copy=False)

    def _parameters_of(self, machine, node_type: NodeType, program: RowProgram) -> List[int]:
        """Words for the parameters of a program: of each its weight, whether it is trained, and
        the first element that is used."""
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
        words = [len(program.parameters)]
        for index, begin in program.parameters:
            words += [*places[index], begin]
        return words

    def _weight(self, machine, node_type: NodeType, members: Tuple[int, ...]) -> Tuple[int, bool]:
        """A parameter or a pack: its place in the run, and whether it is trained."""
        trained = [
            self.training and node_type.parameters[position].grad_req != 'null'
            for position in members
        ]
        watched = [machine.weights.watched(node_type, position) for position in members]
        key = tuple([id(each.array) for each in watched])
        place = self._places.setdefault(key, len(self._weights))
        if place == len(self._weights):
            self._weights += [each.values() for each in watched]
            sizes = [values.size for values in self._weights[place:]]
            self._words += [weight(size, 0) for size in sizes]
            self._words[place] = weight(sizes[0], len(members))
            self._inputs += [
                machine.weights.trained(node_type, position) if wanted else None
                for position, wanted in zip(members, trained)
            ]
        read = self.training and any([node_type.read_backward[position] for position in members])
        if read or len(members) > 1:
            keep(self._words[place : place + len(members)])
        return place, any(trained)


def _program(node_type: NodeType) -> NativeProgram:
    program = native_program(node_type)
    assert program is not None  # else the backend would not run it
    return program
