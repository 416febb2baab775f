"""What an evaluation did: the figures that reports are made of."""

from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from ..graph.graph import Graph
from ..plan.plan import Plan
from ..record.sites import Site
from ..schedule import Schedule
from ..subgraph.node_type import NodeType
from .clock import Clock
from .executable import executable


class EvaluationCounts(NamedTuple):
    """What one evaluation did, and how long it took (seconds, until all was handed to MXNet).

    Attributes
    ----------
    calls : numpy.ndarray
        (n,) int64, the number in the recording of each node of the graph.
    asked_by : Site
        The user's line that needed a value.
    early : bool
        Whether the scope was still recording.
    arranged : list of NodeType
        Those whose calls were put into another order.
    clock : Clock or None
        How long each batch of the plan took, if somebody asked.
    """

    calls: np.ndarray
    asked_by: Site
    early: bool
    graph: Graph
    schedule: Schedule
    plan: Plan
    collect_s: float
    schedule_s: float
    execute_s: float
    arranged: List[NodeType]
    clock: Optional[Clock] = None


def passes_of(count: EvaluationCounts) -> Dict[int, Tuple[str, ...]]:
    """For each type of an evaluation, by serial, the compile options that made a difference: to
    what is compiled, and in this evaluation."""
    changed: Dict[int, Set[str]] = {}
    for group in count.plan.groups:
        mine = changed.setdefault(group.node_type.serial, set())
        mine |= executable(group.node_type).changed_by
        if group.hoisted and not group.node_type.tables:
            mine.add('hoisting')
    for node_type in count.arranged:
        changed[node_type.serial].add('row_layout')
    return {
        group.node_type.serial: options_among(group.node_type, changed[group.node_type.serial])
        for group in count.plan.groups
    }


def options_among(node_type: NodeType, *names: Iterable[str]) -> Tuple[str, ...]:
    """Those compile options of a type that are in one of several collections of names."""
    found = set().union(*names)
    return tuple([name for name in node_type.options.names() if name in found])
