"""Parameters of an evaluation: their values as they were recorded, and gradients of its own."""

from typing import Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

from ..mx.arrays import empty
from ..record.recording import Recording
from ..subgraph.node_type import NodeType
from ..subgraph.split import has_sparse_gradient
from .cached.program import Program, Source
from .sparse_tables import check_request


class Weights:
    """What programs get for parameters, and for packs of several of them.

    Parameters
    ----------
    recording : Recording
    taped : bool
        Whether autograd records any of the batches.

    Attributes
    ----------
    arrays : list of NDArray
        The users' own, of those that are trained.
    gradients : list of NDArray
        The private gradient of each.
    """

    def __init__(self, recording: Recording, taped: bool):
        self._recording, self._taped = recording, taped
        self.arrays: List[NDArray] = []
        self.gradients: List[NDArray] = []
        self._values: Dict[Tuple[int, bool, bool, bool], NDArray] = {}
        self._packs: Dict[tuple, NDArray] = {}
        self._gradient_of: Dict[int, NDArray] = {}
        self._accumulated: List[NDArray] = []  # gradients that are added to: zero at first
        self._shares: List[Tuple[NDArray, NDArray]] = []  # a gradient, and what is to be added

    def of(self, node_type: NodeType, program: Program, source: Source) -> NDArray:
        """What a program of a type gets for a parameter or a pack."""
        if source.kind == 'pack':
            return self.pack(node_type, program.packs[source.position])
        return self.parameter(node_type, source.position)

    def parameter(self, node_type: NodeType, position: int) -> NDArray:
        """A parameter's values as recorded.

        Under autograd it is a variable with a gradient of its own, because the engine would not
        know of writes to the user's from inside a backward pass. And it is a copy if backward
        reads it: by then the user may have queued an update of the original, which waits for
        this very backward pass.
        """
        watched = self._recording.model.parameters[
            id(node_type.parameters[position]), node_type.ctx
        ]
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
                if has_sparse_gradient(node_type.parameters[position]):
                    check_request(node_type.parameters[position])
                gradient = self._gradient_of[id(value)] = self._parameter_gradient(own, value)
                autograd.mark_variables([value], [gradient], 'add')
            elif frozen and np.issubdtype(value.dtype, np.floating):
                autograd.mark_variables([value], [empty(value.shape, value.dtype, value.ctx)])
        return value

    def gradient_of(self, value: NDArray) -> NDArray:
        """The private gradient of what `parameter` or `pack` returned for a trained one."""
        return self._gradient_of[id(value)]

    def _parameter_gradient(self, own: NDArray, value: NDArray) -> NDArray:
        gradient = self._known_gradient(own)
        if gradient is None:
            gradient = self._zeroed(value)
            self.arrays.append(own)
            self.gradients.append(gradient)
        return gradient

    def _known_gradient(self, own: NDArray) -> Optional[NDArray]:
        for known, gradient in zip(self.arrays, self.gradients):
            if known is own:
                return gradient
        return None

    def _zeroed(self, like: NDArray) -> NDArray:
        """A gradient that is zero when the backward pass begins."""
        gradient = empty(like.shape, like.dtype, like.ctx)
        self._accumulated.append(gradient)
        return gradient

    def pack(self, node_type: NodeType, positions: Tuple[int, ...]) -> NDArray:
        """Several parameters as recorded, one after the other in one array.

        Made anew in each evaluation, it can never be stale. The parameters' gradients are slices
        of its gradient.
        """
        parameters = [node_type.parameters[position] for position in positions]
        watched = [
            self._recording.model.parameters[id(parameter), node_type.ctx]
            for parameter in parameters
        ]
        marked = self._taped and any(
            parameter.grad_req != 'null' for parameter in node_type.parameters
        )
        key = (marked, *(id(each.array) for each in watched))
        pack = self._packs.get(key)
        if pack is None:
            values = [each.values() for each in watched]
            pack = self._packs[key] = mx.nd.concat(*values, dim=0)
            if marked:
                gradient = self._gradient_of[id(pack)] = self._zeroed(pack)
                autograd.mark_variables([pack], [gradient], 'add')
                ends = np.cumsum([value.shape[0] for value in values]).tolist()
                for parameter, each, begin, end in zip(parameters, watched, [0] + ends, ends):
                    if parameter.grad_req != 'null':
                        self._share(each.array, gradient._slice(begin, end))
        return pack

    def _share(self, own: NDArray, part: NDArray) -> None:
        """Let rows of a pack's gradient be a parameter's gradient, or a part of it."""
        gradient = self._known_gradient(own)
        if gradient is not None:
            self._shares.append((gradient, part))
        else:
            self.arrays.append(own)
            self.gradients.append(part)

    def finish(self) -> None:
        """No more are asked for (see `Machine.finish`)."""
        del self._recording

    # --- in a backward pass ----------------------------------------------------------------------

    def begin(self) -> None:
        """Set the gradients to zero."""
        for gradient in self._accumulated:
            gradient[:] = 0

    def collected(self) -> List[NDArray]:
        """The gradients, once all batches have added theirs."""
        for gradient, part in self._shares:
            gradient += part
        return self.gradients
