"""Split types in a plan: one batch of the early part runs ahead, and later batches read its
results.

Early results lie in the order of the batches, so each batch reads a slice. Where rows repeat, each
distinct row is computed once and read by index.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import is_
from typing import Any, Callable, Literal, Optional

import numpy as np

from .call_type import Split
from .plan import ArenaPlan, Capabilities, Group, Plan, Read, Write
from .row_deduplication import Distinct, Numbers, RowDeduplication
from .rows import rows_read

Hoisted = Callable[[Any, frozenset[int], bool], Optional[Split]]


def hoist(
    plan: Plan, capabilities: Sequence[Capabilities], numbers: Numbers, hoisted: Hoisted
) -> Plan:
    """Return a plan in which the part of a type that needs known values only runs once for all its
    batches, where that pays. `numbers` returns a range of the user's numbers. `hoisted` splits a
    type off what depends on known arguments only, with one product for all gates if asked for."""
    groups, early, indices = [], [], [plan.indices]
    deduplication = RowDeduplication(plan, capabilities, numbers)
    for group, own in zip(plan.groups, capabilities):
        parts = _parts(group, own, hoisted)
        distinct = _distinct(group, parts, deduplication) if parts and own.shares else None
        if parts and distinct:
            first, group = _apart(plan, group, parts, indices, True, distinct)
            early.append(first)
        elif parts and _mean(group) < own.hoisted_below:
            first, group = _apart(plan, group, parts, indices, True)
            early.append(first)
        groups.append(group)
    return _with_early(plan, groups, early, indices)


def _parts(group: Group, own: Capabilities, hoisted: Hoisted) -> Optional[Split]:
    """Split a type that has several batches and a part that can run ahead of them; else None."""
    if group.size == 1 or not group.known or not own.hoisted_below:
        return None
    return hoisted(group.node_type, group.known, int(_mean(group)) <= own.fused_up_to)


def _mean(group: Group) -> float:
    """Return the mean number of rows of a batch."""
    return int(group.rows.sum()) / group.size


def _distinct(group: Group, parts: Split, deduplication: RowDeduplication) -> Optional[Distinct]:
    """Return the distinct rows that the early part reads if they are few; else None. The part must
    not draw random numbers, or have several arguments."""
    if len(parts.positions) > 1 or parts.early.random or group.rows.sum() != len(group.nodes):
        return None
    return deduplication.among(group.reads[parts.positions[0]])


def look_ups_apart(plan: Plan, looked_up: Callable[[Any], Optional[Split]]) -> Plan:
    """Return a plan in which separate batches look up rows of tables with row_sparse gradients. A
    type has one such batch, before its first batch, if all ids are known then, else one before each
    batch. `looked_up` splits a type off the ids of such look-ups."""
    groups, early, indices = [], [], [plan.indices]
    for group in plan.groups:
        parts = looked_up(group.node_type)
        if parts is not None and parts.late is None:  # what is looked up are its results
            reads = tuple(group.reads[position] for position in parts.positions)
            group = group._replace(node_type=parts.early, reads=reads)
        elif parts is not None:
            in_one_batch = group.size > 1 and not group.node_type.alone
            in_one_batch = in_one_batch and group.known.issuperset(parts.positions)
            first, group = _apart(plan, group, parts, indices, in_one_batch)
            early.append(first)
        groups.append(group)
    return _with_early(plan, groups, early, indices)


def _apart(
    plan: Plan,
    group: Group,
    parts: Split,
    indices: list[np.ndarray],
    in_one_batch: bool,
    distinct: Optional[Distinct] = None,
) -> tuple[Group, Group]:
    """Return the early part of a group, in one batch or in as many as the group, and the group
    without it. Results of the early part get their own arenas, the last of the plan. If `distinct`
    is given, one batch computes these rows only, and the group reads its results by index."""
    at = 0 if distinct is None else _add_indices(distinct.which, indices)
    by_index: np.ndarray = np.full(group.size, distinct is not None)
    writes, found = [], []
    for spec in parts.found:
        rows = np.full(group.size, spec.rows) if parts.early.alone else group.rows
        ends = rows.cumsum()
        total = ends[-1:] if distinct is None else np.array([len(distinct.first)])
        arena = ArenaPlan(spec.arena, private=distinct is None, shared=distinct is not None)
        place = _new_arena(plan, arena, int(total[0]))
        found.append(Read(place, by_index, at + ends - rows, at + ends))
        begin, end = (np.array([0]), total) if in_one_batch else (ends - rows, ends)
        writes.append(Write(place, begin, end))
    first = group._replace(
        node_type=parts.early,
        reads=tuple([group.reads[position] for position in parts.positions]),
        writes=tuple(writes),
        hoisted=True,
    )
    if in_one_batch:
        nodes = group.nodes if distinct is None else group.nodes[distinct.first]
        first = first._replace(
            numbers=group.numbers[:1],
            rows=group.rows.sum(keepdims=True) if distinct is None else total,
            nodes=nodes,
            bounds=np.array([0, len(nodes)]),
            reads=tuple([_read_all(plan, read, indices, distinct) for read in first.reads]),
        )
    assert parts.late is not None  # else there is nothing to tell apart
    reads = group.reads + tuple(found)
    known = group.known.union(range(len(group.reads), len(reads))) if in_one_batch else group.known
    return first, group._replace(node_type=parts.late, reads=reads, known=known)


def _new_arena(plan: Plan, arena: ArenaPlan, rows: int) -> int:
    arena.allocate(rows)
    plan.arenas.append(arena)
    return len(plan.arenas) - 1


def _read_all(
    plan: Plan, read: Read, indices: list[np.ndarray], distinct: Optional[Distinct]
) -> Read:
    """Return one read that covers what several batches read one after the other, or the distinct
    rows among it."""
    is_slice = not read.gather.any() and (read.end[:-1] == read.begin[1:]).all()
    if is_slice and distinct is None:
        return Read(read.arena, np.zeros(1, bool), read.begin[:1], read.end[-1:])
    rows = rows_read(plan.indices, read)
    if distinct is not None:
        rows = rows[distinct.first]
    begin = _add_indices(rows, indices)
    return Read(read.arena, np.ones(1, bool), np.array([begin]), np.array([begin + len(rows)]))


def _add_indices(rows: np.ndarray, indices: list[np.ndarray]) -> int:
    """Append rows to the plan's indices; return the position of the first."""
    begin = sum(map(len, indices))
    indices.append(rows.astype(indices[0].dtype))
    return begin


def _with_early(
    plan: Plan, groups: Sequence[Group], early: Sequence[Group], indices: Sequence[np.ndarray]
) -> Plan:
    """Return the plan with early batches, each just before the batch of its number."""
    if not early:
        same = all(map(is_, groups, plan.groups))
        return plan if same else replace(plan, groups=list(groups))
    firsts = np.concatenate([group.numbers for group in early])
    firsts.sort()

    def later(group: Group, side: Literal['left', 'right']) -> Group:
        return group._replace(numbers=group.numbers + firsts.searchsorted(group.numbers, side))

    return replace(
        plan,
        indices=np.concatenate(indices),
        groups=[
            *[later(group, 'right') for group in groups],
            *[later(group, 'left') for group in early],
        ],
    )
