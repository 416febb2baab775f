"""Hoisting in a plan: the part of a type that needs only what is there before its first batch.

It runs once for all nodes of the type, just before that batch, and writes its results in the order
of the batches, so that each reads a slice.
"""
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence

import numpy as np

from .native.run import native_program
from .plan import ArenaPlan, Batch, Plan, Read, Write
from .static.hoisting import Split, split
from .static.node_type import Kind, NodeType

_MANY_ROWS = 128  # a batch, on average


class _Hoisted(NamedTuple):
    """What becomes of one type: a batch in front, and the arenas of its results."""

    split: Split
    batch: Batch


def hoist(plan: Plan) -> Plan:
    """The same plan with every type split that runs in several batches and can be."""
    batches_of: Dict[NodeType, List[int]] = {}
    for number, batch in enumerate(plan.batches):
        batches_of.setdefault(batch.node_type, []).append(number)
    hoisted, indices = {}, [plan.indices]
    for node_type, numbers in batches_of.items():
        if len(numbers) > 1 and not node_type.alone and node_type.options.hoisting \
                and _pays(node_type, [plan.batches[number].rows for number in numbers]):
            found = _hoist_type(plan, node_type, numbers, indices)
            if found is not None:
                node_type.changed_by.add('hoisting')
                hoisted[numbers[0]] = found
    if not hoisted:
        return plan
    return plan._replace(batches=_batches(plan, hoisted), indices=np.concatenate(indices))


def _pays(node_type: NodeType, rows: List[int]) -> bool:
    """Native products are as fast for a hundred rows as for thousands, and what is hoisted has to
    be written and read again (5 % of a training step of Tree-LSTMs on SICK)."""
    return native_program(node_type) is None or sum(rows) < _MANY_ROWS * len(rows)


def _hoist_type(plan: Plan, node_type: NodeType, numbers: Sequence[int],
                indices: List[np.ndarray]) -> Optional[_Hoisted]:
    positions = _known_before(plan, node_type, numbers)
    batches = [plan.batches[number] for number in numbers]
    native = native_program(node_type)  # in which slices are free
    fused = bool(native.program.packs) if native is not None else node_type.fused(
        sum(batch.rows for batch in batches) // len(batches))
    parts = split(node_type, positions, fused) if positions else None
    if parts is None:
        return None
    reads = tuple(_read_all(plan, [batch.reads[position] for batch in batches], indices)
                  for position in parts.positions)
    rows = sum(batch.rows for batch in batches)
    writes = []
    for spec in parts.early.outputs:
        arena = ArenaPlan(spec.arena, private=True)
        arena.allocate(rows)
        plan.arenas.append(arena)
        writes.append(Write(len(plan.arenas) - 1, 0, rows))
    nodes = np.concatenate([batch.nodes for batch in batches])
    return _Hoisted(parts, Batch(parts.early, nodes, rows, reads, tuple(writes), hoisted=True))


def _known_before(plan: Plan, node_type: NodeType, numbers: Sequence[int]) -> FrozenSet[int]:
    """The arguments of which every batch reads only what earlier batches wrote.

    Rows are given out in the order in which they are written, inputs first.
    """
    end: Dict[int, int] = {}  # of what each arena holds before the type's first batch
    for batch in plan.batches[numbers[0]:]:
        for write in batch.writes:
            end.setdefault(write.arena, write.begin)
    known = []
    for position, argument in enumerate(node_type.arguments):
        reads = [plan.batches[number].reads[position] for number in numbers]
        if argument.kind is Kind.ROWS and all(
                _last_row(plan, read) < end.get(read.arena, np.inf) for read in reads):
            known.append(position)
    return frozenset(known)


def _last_row(plan: Plan, read: Read) -> int:
    return int(plan.indices[read.begin:read.end].max()) if read.gather else read.end - 1


def _read_all(plan: Plan, reads: Sequence[Read], indices: List[np.ndarray]) -> Read:
    """One read of what these read one after the other."""
    if all(not read.gather for read in reads) and all(
            before.end == after.begin for before, after in zip(reads, reads[1:])):
        return reads[0]._replace(end=reads[-1].end)
    rows = np.concatenate([plan.indices[read.begin:read.end] if read.gather
                           else np.arange(read.begin, read.end, dtype=plan.indices.dtype)
                           for read in reads])
    begin = sum(map(len, indices))
    indices.append(rows)
    return Read(reads[0].arena, True, begin, begin + len(rows))


def _batches(plan: Plan, hoisted: Dict[int, _Hoisted]) -> List[Batch]:
    batches: List[Batch] = []
    late: Dict[NodeType, _Hoisted] = {}
    done: Dict[NodeType, int] = {}  # rows of the hoisted results that batches have read
    for number, batch in enumerate(plan.batches):
        if number in hoisted:
            late[batch.node_type] = hoisted[number]
            batches.append(hoisted[number].batch)
        found = late.get(batch.node_type)
        if found is not None:
            begin = done.get(batch.node_type, 0)
            end = done[batch.node_type] = begin + batch.rows
            batch = batch._replace(node_type=found.split.late, reads=batch.reads + tuple(
                Read(write.arena, False, begin, end) for write in found.batch.writes))
        batches.append(batch)
    return batches
