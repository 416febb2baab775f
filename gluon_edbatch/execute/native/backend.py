"""Runs of batches by native operators, where there is a rule for all that a type does."""

from typing import Optional

import numpy as np

from ...plan.plan import Group, Traits
from ...subgraph.node_type import NodeType
from ..machine import Machine
from .native_run import NativeRun
from .program import native_program

# Native products are as fast for a hundred rows as for thousands, and what is hoisted has to be
# written and read again (5 % of a training step of Tree-LSTMs on SICK).
_HOISTED_BELOW = 128


def traits(node_type: NodeType) -> Optional[Traits]:
    """See `Backend`."""
    native = native_program(node_type)
    if native is None:
        return None
    return Traits(
        pads=False,
        gathers=False,  # slices are free
        hoisted_below=_HOISTED_BELOW,
        fused_up_to=float('inf') if native.program.packs else 0,
        shares=True,
    )


def kinds(group: Group) -> np.ndarray:
    """See `Backend`: by type of elements, and whether autograd records; 0 with padded arguments."""
    native = native_program(group.node_type)
    if native is None:
        return np.zeros(group.size, np.int8)
    kind = native.program.element_size * 2 + group.node_type.mode.recording
    kinds = np.full(group.size, kind, np.int8)
    for position in group.node_type.ragged:
        read = group.reads[position]
        kinds[(read.length != 0) & (True if read.parents is None else read.parents < 0)] = 0
    return kinds


def run(machine: Machine, first: int, last: int) -> Optional[NativeRun]:
    """See `Backend`."""
    batches = NativeRun(machine, first, last)
    machine.fence = batches.table
    return batches if batches.forward() else None
