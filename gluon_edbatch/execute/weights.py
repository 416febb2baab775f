"""Parameters of an evaluation: their values as they were recorded, and gradients of its own."""

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from ..mx.arrays import empty
from ..mx.mutation_guard import Watched
from ..record.recording import Recording
from ..subgraph.node_type import NodeType
from ..subgraph.split import has_sparse_gradient
from .cached.compiled_graph import CompiledGraph, Source
from .gradients import Gradients
from .sparse_tables import check_request


class Weights:
    """Parameters as they were recorded, and what batches that run by MXNet's own operators get for
    them and for packs of several of them (a `NativeRun` packs them itself)."""

    def __init__(self, recording: Recording, taped: bool):
        self._recording, self._taped = recording, taped  # taped: autograd records some batch
        self.arrays: list[NDArray] = []  # the users' own, of those that are trained
        self._places: dict[int, int] = {}
        self._values: dict[tuple[int, bool, bool, bool], NDArray] = {}
        self._packs: dict[tuple, NDArray] = {}
        self._accumulated: list[NDArray] = []  # gradients that batches add to: zero at first
        self._shares: list[tuple[int, NDArray]] = []  # of which of `arrays`, all or a part of them

    def of(self, node_type: NodeType, program: CompiledGraph, source: Source) -> NDArray:
        """What a program of a type gets for a parameter or a pack."""
        if source.kind == 'pack':
            return self.pack(node_type, program.packs[source.position])
        return self.parameter(node_type, source.position)

    def watched(self, node_type: NodeType, position: int) -> Watched:
        """A parameter of a type, whose values are those that were recorded."""
        parameter = node_type.parameters[position]
        return self._recording.model.of(parameter, node_type.ctx)

    def trained(self, node_type: NodeType, position: int) -> int:
        """Which of `arrays` the user's own one of a parameter is: it is one of them from now on."""
        parameter, own = node_type.parameters[position], self.watched(node_type, position).array
        if has_sparse_gradient(parameter):
            check_request(parameter)
        place = self._places.setdefault(id(own), len(self.arrays))
        if place == len(self.arrays):
            self.arrays.append(own)
        return place

    def parameter(self, node_type: NodeType, position: int) -> NDArray:
        """A parameter's values as recorded.

        Under autograd it is a variable with a gradient of its own, because the engine would not
        know of writes to the user's from inside a backward pass. And it is a copy if backward
        reads it: by then the user may have queued an update of the original, which waits for
        this very backward pass.
        """
        watched = self.watched(node_type, position)
        own = watched.array
        recorded = node_type.mode.recording
        trained = recorded and node_type.parameters[position].grad_req != 'null'
        copied = recorded and node_type.read_backward[position]
        # MXNet computes no gradient for the bias of a product whose weight needs none.
        frozen = (
            copied
            and not trained
            and any(parameter.grad_req != 'null' for parameter in node_type.parameters)
        )
        key = id(own), trained, copied, frozen
        value = self._values.get(key)
        if value is None:
            value = watched.values()
            self._values[key] = value = value.copy() if copied else value
            if trained:
                self._shares.append((self.trained(node_type, position), self._accumulating(value)))
            elif frozen and np.issubdtype(value.dtype, np.floating):
                autograd.mark_variables([value], [empty(value.shape, value.dtype, value.ctx)])
        return value

    def _accumulating(self, value: NDArray) -> NDArray:
        """The gradient of what is a variable from now on: zero when a backward pass begins."""
        gradient = empty(value.shape, value.dtype, value.ctx)
        self._accumulated.append(gradient)
        autograd.mark_variables([value], [gradient], 'add')
        return gradient

    def pack(self, node_type: NodeType, positions: tuple[int, ...]) -> NDArray:
        """Several parameters as recorded, one after the other in one array, made anew in each
        evaluation. The parameters' gradients are slices of its gradient."""
        watched = [self.watched(node_type, position) for position in positions]
        marked = self._taped and any(
            parameter.grad_req != 'null' for parameter in node_type.parameters
        )
        key = (marked, *(id(each.array) for each in watched))
        pack = self._packs.get(key)
        if pack is None:
            values = [each.values() for each in watched]
            pack = self._packs[key] = mx.nd.concat(*values, dim=0)
            if marked:
                gradient = self._accumulating(pack)
                ends = np.cumsum([value.shape[0] for value in values]).tolist()
                self._shares += [
                    (self.trained(node_type, position), gradient._slice(begin, end))
                    for position, begin, end in zip(positions, [0] + ends, ends)
                    if node_type.parameters[position].grad_req != 'null'
                ]
        return pack

    def finish(self) -> None:
        """No more are asked for (see `Machine.finish`)."""
        del self._recording

    # --- in a backward pass ----------------------------------------------------------------------

    def begin(self) -> None:
        """Set the gradients to zero."""
        for gradient in self._accumulated:
            gradient[:] = 0

    def deliver(self, gradients: Gradients) -> None:
        """Hand the gradients on, once all batches have added theirs."""
        for place, gradient in self._shares:
            gradients.deliver(place, gradient)
