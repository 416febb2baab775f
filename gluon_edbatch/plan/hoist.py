"""Hoisting in a plan: the part of a type that needs only what is there before its first batch.

It runs once for all nodes of the type, just before that batch, and writes its results in the order
of the batches, so that each reads a slice.
"""

from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence

import numpy as np

from ..execute.native.run import native_program
from ..graph.collect import expand
from ..subgraph.hoisting import Split, split
from ..subgraph.node_type import Kind
from .plan import ArenaPlan, Group, Plan, Reads, Writes

_MANY_ROWS = 128  # a batch, on average


class _Hoisted(NamedTuple):
    """What becomes of one group: a batch in front, and itself with the results to read."""

    early: Group
    late: Group


def hoist(plan: Plan) -> Plan:
    """The same plan with every type split that runs in several batches and can be."""
    found: Dict[int, _Hoisted] = {}
    indices = [plan.indices]
    for index, group in enumerate(plan.groups):
        node_type = group.node_type
        if (
            group.size > 1
            and not (node_type.alone or node_type.whole)
            and node_type.options.hoisting
            and _pays(group)
        ):
            hoisted = _hoist_group(plan, group, indices)
            if hoisted is not None:
                found[index] = hoisted
    if not found:
        return plan
    groups = [
        found[index].late if index in found else group for index, group in enumerate(plan.groups)
    ]
    return plan._replace(
        groups=with_early(groups, [hoisted.early for hoisted in found.values()]),
        indices=np.concatenate(indices),
    )


def _pays(group: Group) -> bool:
    """Native products are as fast for a hundred rows as for thousands, and what is hoisted has to
    be written and read again (5 % of a training step of Tree-LSTMs on SICK)."""
    return native_program(group.node_type) is None or group.rows.mean() < _MANY_ROWS


def _hoist_group(plan: Plan, group: Group, indices: List[np.ndarray]) -> Optional[_Hoisted]:
    positions = known_before(plan, group)
    node_type, rows = group.node_type, int(group.rows.sum())
    native = native_program(node_type)  # in which slices are free
    fused = (
        bool(native.program.packs) if native is not None else node_type.fused(rows // group.size)
    )
    parts = split(node_type, positions, fused) if positions else None
    if parts is None:
        return None
    return _Hoisted(_early(plan, group, parts, rows, indices), _late(plan, group, parts))


def _early(plan: Plan, group: Group, parts: Split, rows: int, indices: List[np.ndarray]) -> Group:
    """One batch for all nodes; its results get arenas of their own, the last of the plan."""
    reads = tuple(read_all(plan, group.reads[position], indices) for position in parts.positions)
    writes = []
    for spec in parts.early.outputs:
        arena = ArenaPlan(spec.arena, private=True)
        arena.allocate(rows)
        plan.arenas.append(arena)
        writes.append(Writes(len(plan.arenas) - 1, np.array([0]), np.array([rows])))
    return Group(
        parts.early,
        group.numbers[:1],
        np.array([rows]),
        group.nodes,
        np.array([0, len(group.nodes)]),
        reads,
        tuple(writes),
        hoisted=True,
    )


def _late(plan: Plan, group: Group, parts: Split) -> Group:
    """The batches as before, which read slices of these results."""
    ends = np.cumsum(group.rows)
    first = len(plan.arenas) - len(parts.early.outputs)
    slices = np.zeros(group.size, bool)
    return group._replace(
        node_type=parts.late,
        reads=group.reads
        + tuple(
            Reads(first + position, slices, ends - group.rows, ends)
            for position in range(len(parts.early.outputs))
        ),
    )


def known_before(plan: Plan, group: Group) -> FrozenSet[int]:
    """The arguments of which every batch reads only what earlier batches wrote.

    Rows are given out in the order in which they are written, inputs first.
    """
    written: Dict[int, int] = {}  # of each arena, by the type's first batch and later ones
    for other in plan.groups:
        begin = int(np.searchsorted(other.numbers, group.numbers[0]))
        for write in other.writes if begin < other.size else ():
            written[write.arena] = min(
                int(write.begin[begin]), written.get(write.arena, plan.arenas[write.arena].rows)
            )
    return frozenset(
        position
        for position, (argument, read) in enumerate(zip(group.node_type.arguments, group.reads))
        if argument.kind is Kind.ROWS
        and _last_row(plan, read) < written.get(read.arena, plan.arenas[read.arena].rows)
    )


def _last_row(plan: Plan, read: Reads) -> int:
    last = read.end[~read.gather].max(initial=0) - 1
    gathered = _rows_gathered(plan, read)
    return int(gathered.max(initial=last))


def _rows_gathered(plan: Plan, read: Reads) -> np.ndarray:
    begin = read.begin[read.gather]
    return plan.indices[expand(begin, read.end[read.gather] - begin)]


def read_all(plan: Plan, read: Reads, indices: List[np.ndarray]) -> Reads:
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


def with_early(groups: Sequence[Group], early: Sequence[Group]) -> List[Group]:
    """All groups, renumbered: each early batch runs just before the batch of its number."""
    firsts = np.sort(np.concatenate([group.numbers for group in early]))
    moved = [
        group._replace(numbers=group.numbers + np.searchsorted(firsts, group.numbers, 'right'))
        for group in groups
    ]
    return moved + [
        group._replace(numbers=group.numbers + np.searchsorted(firsts, group.numbers))
        for group in early
    ]
