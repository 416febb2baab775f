"""What runs batches: the native operators where they can, MXNet's own for all else."""

from typing import Optional, Protocol, Union

import numpy as np

from ..plan.plan import Group, Traits
from ..subgraph.node_type import NodeType
from . import function_batches as functions
from .cached import cached_backend as cached
from .executable import executable
from .execution_state import Machine, Tape
from .native import native_backend as native


class Backend(Protocol):
    """A way to run batches, which a module can be."""

    def traits(self, node_type: NodeType) -> Optional[Traits]:
        """What planning has to know of it; None if it cannot run the type."""

    def kind(self, group: Group) -> Union[int, np.ndarray]:
        """0 for batches that it cannot run, 1 for those that run one by one; neighbours of one
        greater number run together. An array (batches,) if those of a group are of several."""

    def run(self, machine: Machine, first: int, last: int) -> Optional[Tape]:
        """Run batches of one kind, those of the plan from `first` to before `last`: the results
        appear in the arenas. Returns what differentiates them, if there is anything."""


BACKENDS: tuple[Backend, ...] = (native, functions, cached)


def is_run(node_type: NodeType) -> bool:
    """Whether one can run the type."""
    return any(backend.traits(node_type) is not None for backend in BACKENDS)


def traits_of(node_type: NodeType) -> Traits:
    """Those of the first that can run the type."""
    known = executable(node_type)
    if known.traits is None:
        traits = next(filter(None, (backend.traits(node_type) for backend in BACKENDS)))
        whole = node_type.alone or node_type.whole or not node_type.options.hoisting
        known.traits = traits._replace(hoisted_below=0) if whole else traits
    return known.traits
