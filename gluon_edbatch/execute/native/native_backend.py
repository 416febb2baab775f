"""Runs of batches by native operators, where there is a rule for all that a type does."""

from typing import Optional, Union

import numpy as np

from ...plan.plan import Group, Traits
from ...subgraph.node_type import NodeType
from ..execution_state import Machine
from .native_program import native_program
from .native_run import NativeRun

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
        hoisted_below=_HOISTED_BELOW,
        fused_up_to=float('inf') if native.program.packs else 0,
        shares=True,
    )


def kind(group: Group) -> Union[int, np.ndarray]:
    """See `Backend`: by type of elements, and whether autograd records; 0 with padded arguments."""
    native, padded = native_program(group.node_type), False
    if native is None:
        return 0
    kind = native.program.element_size * 2 + group.node_type.mode.recording
    for position in group.node_type.ragged:
        read = group.reads[position]
        padded |= (read.length != 0) & (True if read.parents is None else read.parents < 0)
    return np.where(padded, 0, kind) if np.any(padded) else kind


def run(machine: Machine, first: int, last: int) -> Optional[NativeRun]:
    """See `Backend`."""
    batches = NativeRun(machine, first, last)
    if machine.is_quiet and last - first == machine.plan.size and batches.forward_now():
        machine.note_over()
        return None
    is_differentiable = batches.forward()
    machine.fence = batches.table
    return batches if is_differentiable else None
