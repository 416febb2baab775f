"""Compiled artefacts and verification state of types; a `NodeType` itself has facts only."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from gluon_edbatch_core.plan.plan import Capabilities
from gluon_edbatch_core.plan.plan_cache import PlanCache

from ..subgraph.node_type import NodeType

if TYPE_CHECKING:
    from .cached.compiled_graph import CompiledGraph
    from .native.native_program import NativeProgram
    from .native.native_run import Frame

_number = itertools.count()
WHY = 'to copy their arrays into batches would take longer'
_CALL = 128 << 10  # what Python and MXNet do for a call
_OPERATOR = 16 << 10  # and for each of its operators
_NATIVE = 5 << 10  # what a native run does for a batch
_IN_CACHE = 16  # times as fast as a copy: reading weights that the batch before read, too
_MICROSECOND = 10 << 10
_BACKWARD = 3  # with backward, a batch takes so many times as long


class Executable:
    """Compiled artefacts and verification state of a `NodeType`."""

    def __init__(self, node_type: NodeType):
        self.number = next(_number)  # its own: parts of a type have the serial of the whole
        # By how arguments are read, and whether products are fused (see `cached.compiled_graph`).
        self.programs: dict[tuple, CompiledGraph] = {}
        self.native: Optional[NativeProgram] = None  # once it is known,
        self.not_native: Optional[str] = None  # or why there is none
        self.plans = PlanCache()  # of evaluations in which it is the first of the types
        self.capabilities: Optional[Capabilities] = None  # once its backend is known
        # Whether batched results were compared with a run alone, or need not be. Of a type that
        # looks rows up, the rest of it is compared.
        self.verified = node_type.alone or not node_type.graph.parameters or bool(node_type.tables)
        self.verified_padding = self.verified and (  # the same for batches with padding
            not node_type.ragged or node_type.lengths is not None or bool(node_type.tables)
        )
        # The options that made a difference to what was compiled.
        self.changed_by: set[str] = {'whole_values'} if node_type.whole else set()
        self.may_run_eagerly = node_type.options.at_once and may_run_eagerly(node_type)
        read = [(each.rows, each.arena) for each in node_type.arguments]
        written = zip(node_type.factors, [spec.arena for spec in node_type.outputs])
        # Bytes of one row of all arguments and results; of ragged arguments, of one value.
        self.row_bytes = sum([_bytes((rows, *key[0]), key[1]) for rows, key in [*read, *written]])
        self.parameter_bytes = sum(  # shapes are unknown for imported symbols
            [_bytes(each.shape or (), each.dtype) for each in node_type.parameters]
        )
        self.frames: dict[tuple, Frame] = {}  # of native runs in which it is the first type


def _bytes(shape: Sequence[int], dtype: Any) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def may_run_eagerly(node_type: NodeType) -> bool:
    """Return whether calls of a type may run eagerly if that is faster. Calls may on a CPU only, as
    MXNet reuses memory of GPUs, and not if they draw random numbers or count something."""
    mode = node_type.mode
    return node_type.ctx.device_type == 'cpu' and not (
        node_type.eager
        or node_type.tables
        or node_type.graph.function is not None
        or (mode.training and (node_type.random or node_type.graph.subgraph.states))
    )


def is_faster_eagerly(node_type: NodeType, calls: int, rows: int) -> bool:
    """Return whether `calls` calls of a type, with `rows` rows together, take less time eagerly.

    Shapes and the number of calls decide, never a clock, so a program runs in the same way each
    time. A batch copies its arguments into new memory, which its results, and gradients under
    autograd, need as well. For large calls this takes longer than calling each operator. Costs are
    in bytes: as many as are copied in that time. ``python -m benchmarks few`` measures both ways.
    """
    known = executable(node_type)
    copied = rows * known.row_bytes
    if not known.may_run_eagerly or copied <= calls * _CALL:  # most often
        return False
    return copied > (
        calls * _eager_cost(node_type)
        + (calls - 1) * known.parameter_bytes  # which a batch reads once
    )


def _eager_cost(node_type: NodeType) -> int:
    operators = sum(not node.is_variable for node in node_type.graph.subgraph.nodes)
    return _CALL + _OPERATOR * operators


def overhead(node_type: NodeType, is_native: bool) -> float:
    """Return the microseconds that a batch takes besides its rows, estimated by shapes. A cached
    batch takes about as long as an eager call. Backward counts if autograd records."""
    cost = _NATIVE if is_native else _eager_cost(node_type)
    cost += executable(node_type).parameter_bytes // _IN_CACHE
    return cost / _MICROSECOND * (_BACKWARD if node_type.mode.recording else 1)


def executable(node_type: NodeType) -> Executable:
    """Return the `Executable` of a type; make it at first use."""
    found = node_type.compiled
    if found is None:
        found = node_type.__dict__.setdefault('compiled', Executable(node_type))
    return found
