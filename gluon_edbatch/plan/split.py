"""Types in two, in a plan: a batch of the early part in front, whose results the others read.

Results lie in the order of the batches, so that each reads a slice.
"""

from typing import List, Sequence, Tuple

import numpy as np

from ..graph.collect import expand
from ..subgraph.split import Split, hoisted, looked_up
from .plan import ArenaPlan, Group, Plan, Reads, Traits, Writes


def hoist(plan: Plan, traits: Sequence[Traits]) -> Plan:
    """The same plan, in which the part of a type that needs only what is there before its first
    batch runs once for all of them, where that pays. `traits` are those of its groups."""
    groups, early, indices = [], [], [plan.indices]
    for group, own in zip(plan.groups, traits):
        parts = None
        if group.size > 1 and group.known and own.hoisted_below:
            mean = int(group.rows.sum()) / group.size
            if mean < own.hoisted_below:
                parts = hoisted(group.node_type, group.known, int(mean) <= own.fused_up_to)
        if parts:
            first, group = _apart(plan, group, parts, indices, at_once=True)
            early.append(first)
        groups.append(group)
    return _with_early(plan, groups, early, indices)


def look_ups_apart(plan: Plan) -> Plan:
    """The same plan, in which rows of tables with row_sparse gradients are looked up by batches of
    their own: one for each type, before its first batch, where all ids are known then; else one
    before each batch."""
    groups, early, indices = [], [], [plan.indices]
    for group in plan.groups:
        parts = looked_up(group.node_type)
        if parts is not None and parts.late is None:  # what is looked up are its results
            reads = tuple(group.reads[position] for position in parts.positions)
            group = group._replace(node_type=parts.early, reads=reads)
        elif parts is not None:
            at_once = group.size > 1 and not group.node_type.alone
            at_once = at_once and group.known.issuperset(parts.positions)
            first, group = _apart(plan, group, parts, indices, at_once)
            early.append(first)
        groups.append(group)
    return _with_early(plan, groups, early, indices)


def _apart(
    plan: Plan, group: Group, parts: Split, indices: List[np.ndarray], at_once: bool
) -> Tuple[Group, Group]:
    """The early part of a group, in one batch or in as many; and its batches without it. What is
    found gets arenas of its own, the last of the plan."""
    writes, found = [], []
    for spec in parts.found:
        rows = np.full(group.size, spec.rows) if parts.early.alone else group.rows
        ends = np.cumsum(rows)
        arena = ArenaPlan(spec.arena, private=True)
        arena.allocate(int(ends[-1]))
        plan.arenas.append(arena)
        place = len(plan.arenas) - 1
        found.append(Reads(place, np.zeros(group.size, bool), ends - rows, ends))
        begin, end = (np.array([0]), ends[-1:]) if at_once else (ends - rows, ends)
        writes.append(Writes(place, begin, end))
    reads = [group.reads[position] for position in parts.positions]
    first = group._replace(
        node_type=parts.early, reads=tuple(reads), writes=tuple(writes), hoisted=True
    )
    if at_once:
        first = first._replace(
            numbers=group.numbers[:1],
            rows=group.rows.sum(keepdims=True),
            bounds=group.bounds[[0, -1]],
            reads=tuple(_read_all(plan, read, indices) for read in reads),
        )
    assert parts.late is not None  # else there is nothing to tell apart
    late = group._replace(node_type=parts.late, reads=group.reads + tuple(found))
    if at_once:
        late = late._replace(known=late.known.union(range(len(group.reads), len(late.reads))))
    return first, late


def _read_all(plan: Plan, read: Reads, indices: List[np.ndarray]) -> Reads:
    """One read of what these read one after the other."""
    if not read.gather.any() and (read.end[:-1] == read.begin[1:]).all():
        return Reads(read.arena, np.zeros(1, bool), read.begin[:1], read.end[-1:])
    sizes = read.end - read.begin
    rows = expand(read.begin, sizes)
    gathered = np.repeat(read.gather, sizes)
    rows[gathered] = plan.indices[rows[gathered]]
    begin = sum(map(len, indices))
    indices.append(rows.astype(plan.indices.dtype))
    return Reads(read.arena, np.ones(1, bool), np.array([begin]), np.array([begin + len(rows)]))


def _with_early(
    plan: Plan, groups: Sequence[Group], early: Sequence[Group], indices: Sequence[np.ndarray]
) -> Plan:
    """The plan with batches in front: each runs just before the batch of its number."""
    if not early:
        return plan._replace(groups=list(groups))
    firsts = np.sort(np.concatenate([group.numbers for group in early]))

    def later(group: Group, before: np.ndarray) -> Group:
        return group._replace(numbers=group.numbers + before)

    return plan._replace(
        indices=np.concatenate(indices),
        groups=[later(group, np.searchsorted(firsts, group.numbers, 'right')) for group in groups]
        + [later(group, np.searchsorted(firsts, group.numbers)) for group in early],
    )
