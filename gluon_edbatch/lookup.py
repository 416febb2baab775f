"""Tables whose gradients are row_sparse: their rows are looked up on the user's own tape.

An evaluation is one function to autograd, and MXNet takes only dense gradients from such. So rows
of these tables are looked up by MXNet's `Embedding`, recorded before that function, which gets them
as inputs; their gradients go back through that operator, which knows which rows were used.
"""
from typing import Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from .hoist import _known_before, _read_all
from .plan import ArenaPlan, Batch, Plan, Read, Write
from .record.guard import Watched, alias, detached
from .record.lazy import _set_recording
from .static.look_ups import LookUps, look_ups
from .static.node_type import NodeType
from .static.program import EMPTY, SLICE
from .static.verify import run_unrecorded


# --- in a plan -----------------------------------------------------------------------------------

def look_ups_apart(plan: Plan) -> Plan:
    """The same plan, in which rows of such tables are looked up by batches of their own.

    There is one for each type, before its first batch, where all ids are known then; else one
    before each batch.
    """
    batches_of: Dict[NodeType, List[int]] = {}
    for number, batch in enumerate(plan.batches):
        batches_of.setdefault(batch.node_type, []).append(number)
    replaced: Dict[int, List[Batch]] = {}
    indices = [plan.indices]
    for node_type, numbers in batches_of.items():
        parts = look_ups(node_type)
        if parts is None:
            continue
        if parts.rest is None:
            for number in numbers:
                replaced[number] = [_of_ids(plan.batches[number], parts)]
        elif not node_type.alone and _known_before(plan, node_type, numbers).issuperset(
                parts.positions):
            replaced.update(_split(plan, parts, numbers, indices))
        else:
            for number in numbers:
                replaced.update(_split(plan, parts, [number], indices))
    if not replaced:
        return plan
    return plan._replace(indices=np.concatenate(indices), batches=[
        part for number, batch in enumerate(plan.batches)
        for part in replaced.get(number, [batch])])


def _of_ids(batch: Batch, parts: LookUps) -> Batch:
    """A batch that writes what it looks up where its type's results belong."""
    return batch._replace(node_type=parts.ids, reads=tuple(
        batch.reads[position] for position in parts.positions))


def _split(plan: Plan, parts: LookUps, numbers: List[int], indices: List[np.ndarray]
           ) -> Dict[int, List[Batch]]:
    """These batches of a type without their look-ups, which a batch in front of them does."""
    batches = [plan.batches[number] for number in numbers]
    rows = sum(batch.rows for batch in batches)
    reads = [batches[0].reads[position] if len(batches) == 1 else
             _read_all(plan, [batch.reads[position] for batch in batches], indices)
             for position in parts.positions]
    writes = []
    for spec in parts.found:
        arena = ArenaPlan(spec.arena, private=True)
        arena.allocate(spec.rows if parts.ids.alone else rows)
        plan.arenas.append(arena)
        writes.append(Write(len(plan.arenas) - 1, 0, arena.rows))
    nodes = np.concatenate([batch.nodes for batch in batches])
    result = {numbers[0]: [Batch(parts.ids, nodes, rows, tuple(reads), tuple(writes), True)]}
    begin = 0
    for number, batch in zip(numbers, batches):
        end = begin + batch.rows
        found = tuple(Read(write.arena, False, *((0, write.end) if parts.ids.alone
                                                 else (begin, end))) for write in writes)
        result.setdefault(number, []).append(
            batch._replace(node_type=parts.rest, reads=batch.reads + found))
        begin = end
    return result


# --- while it runs -------------------------------------------------------------------------------

def look_up(machine, batch: Batch) -> None:
    """Run a batch that computes ids: the rows of the tables appear in the arenas."""
    node_type = batch.node_type
    ids = run_unrecorded(
        machine, node_type, [machine.read(batch, position) for position in range(len(batch.reads))],
        tuple(EMPTY if read.length == 0 else SLICE for read in batch.reads),
        node_type.mode.training)
    for which, table, write in zip(ids, node_type.tables, batch.writes):
        check_request(table)
        rows = machine.arenas[write.arena]._slice(write.begin, write.end)
        _record(machine.recording.parameters[id(table), node_type.ctx], which, rows)
        machine.given.append((rows, write.arena, write.begin, write.end))
        machine.looked_up = True


def _record(table: Watched, ids: NDArray, rows: NDArray) -> None:
    """Write rows of a table, as it was when recorded, and put them on autograd's tape."""
    own = alias(table.array)
    sizes = dict(input_dim=own.shape[0], output_dim=own.shape[1], dtype=np.dtype(own.dtype).name)
    previous = _set_recording(True)
    try:
        mx.nd.Embedding(ids, own, out=rows, sparse_grad=True, **sizes)
    finally:
        _set_recording(previous)
    if table.copy is not None:  # written since; autograd asks for ids only
        mx.nd.Embedding(ids, table.copy, out=detached(rows), **sizes)


def check_request(parameter: gluon.Parameter) -> None:
    """Raise if the gradient of a table cannot be what the user wants.

    Raises
    ------
    ValueError
        For ``grad_req='add'``: MXNet adds to no row_sparse gradient, or replaces it.
    """
    if parameter.grad_req == 'add':
        raise ValueError(f"parameter {parameter.name} has a row_sparse gradient, to which MXNet "
                         f"cannot add; use grad_req='write', or sparse_grad=False")


def with_dense_gradient(array: NDArray) -> NDArray:
    """An input of a function of autograd; a row_sparse gradient is made of the dense one."""
    own = alias(array)
    if own.grad is None or own.grad.stype == 'default':
        return array
    previous = _set_recording(True)
    try:
        return mx.nd.identity(own)
    finally:
        _set_recording(previous)
