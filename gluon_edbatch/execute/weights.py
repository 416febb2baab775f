"""Parameters of an evaluation: their values as recorded, and gradients of their own."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from ..mx.arrays import empty
from ..mx.mutation_guard import MutationGuard
from ..record.recording import Recording
from ..subgraph.node_type import NodeType
from ..subgraph.split import has_sparse_gradient
from .cached.compiled_graph import CompiledGraph, Source
from .gradients import Gradients
from .sparse_tables import check_request


class Weights:
    """Parameters as recorded, and the arrays that MXNet's own operators read for parameters and for
    packs of parameters. A `NativeRun` packs parameters itself."""

    def __init__(self, recording: Recording, taped: bool):
        self._recording, self._taped = recording, taped  # taped: autograd records some batch
        self.arrays: list[NDArray] = []  # the users' own, of those that are trained
        self._places: dict[int, int] = {}
        self._values: dict[tuple[int, bool, bool, bool], NDArray] = {}
        self._packs: dict[tuple, NDArray] = {}
        self._accumulated: list[NDArray] = []  # gradients that batches add to: zero at first
        self._shares: list[tuple[int, NDArray]] = []  # of which of `arrays`, all or a part of them

    def of(self, node_type: NodeType, program: CompiledGraph, source: Source) -> NDArray:
        """Return the array of a parameter or pack for a program of a type."""
        if source.kind == 'pack':
            return self.pack(node_type, program.packs[source.position])
        return self.parameter(node_type, source.position)

    def watched(self, node_type: NodeType, position: int) -> MutationGuard:
        """Return the guard of a type's parameter, which has its recorded values."""
        parameter = node_type.parameters[position]
        return self._recording.model.of(parameter, node_type.ctx)

    def trained(self, parameter: gluon.Parameter, own: NDArray) -> int:
        """Return the index of a parameter's own array among `arrays`; add it at first use."""
        if has_sparse_gradient(parameter):
            check_request(parameter)
        place = self._places.setdefault(id(own), len(self.arrays))
        if place == len(self.arrays):
            self.arrays.append(own)
        return place

    def parameter(self, node_type: NodeType, position: int) -> NDArray:
        """Return a parameter's values as recorded.

        Under autograd the result is a variable with its own gradient, as the engine would not know
        of writes to the user's gradient from inside a backward pass. The result is a copy if
        backward reads it. By then the user may have queued an update of the original, which waits
        for this backward pass.
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
                place = self.trained(node_type.parameters[position], own)
                self._shares.append((place, self._accumulating(value)))
            elif frozen and np.issubdtype(value.dtype, np.floating):
                autograd.mark_variables([value], [empty(value.shape, value.dtype, value.ctx)])
        return value

    def _accumulating(self, value: NDArray) -> NDArray:
        """Make an array a variable; return its gradient, zeroed before each backward pass."""
        gradient = empty(value.shape, value.dtype, value.ctx)
        self._accumulated.append(gradient)
        autograd.mark_variables([value], [gradient], 'add')
        return gradient

    def pack(self, node_type: NodeType, positions: tuple[int, ...]) -> NDArray:
        """Return several parameters as recorded, concatenated in each evaluation. The parameters'
        gradients are slices of the pack's gradient."""
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
                members = [node_type.parameters[position] for position in positions]
                self._shares += [
                    (self.trained(parameter, each.array), gradient._slice(begin, end))
                    for parameter, each, begin, end in zip(members, watched, [0] + ends, ends)
                    if parameter.grad_req != 'null'
                ]
        return pack

    def finish(self) -> None:
        """Drop the recording; no batch needs further parameters (see `ExecutionState.finish`)."""
        del self._recording

    # --- in a backward pass ----------------------------------------------------------------------

    def begin(self) -> None:
        """Set the gradients that batches add to, to zero."""
        for gradient in self._accumulated:
            mx.nd.zeros_like(gradient, out=gradient)

    def deliver(self, gradients: Gradients) -> None:
        """Pass the parameters' gradients on, once all batches have added theirs."""
        for place, gradient in self._shares:
            gradients.deliver(place, gradient)
