"""What an evaluation did: the figures for reports."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Optional, Union

import numpy as np

from ..graph.collect import Calls, Edges, FormTable, Sums, to_graph
from ..graph.graph import Graph
from ..plan.plan import Group, Plan
from ..plan.plan_cache import PlanCache
from ..record.sites import Site
from ..schedule import Schedule
from ..subgraph.node_type import NodeType
from .clock import Clock
from .executable import executable


class EvaluationCounts(NamedTuple):
    """What one evaluation did, and how long it took (seconds, until MXNet had all work)."""

    calls: np.ndarray  # (n,) int64, the number in the recording of each node of the graph
    asked_by: Site  # the user's line that needed a value
    early: bool  # while the scope was still recording
    graph: Graph
    schedule: Schedule
    plan: Plan
    collect_s: float
    schedule_s: float
    execute_s: float
    clock: Optional[Clock] = None  # how long each batch of the plan took, if somebody asked
    is_cached: bool = False  # the plan was there already, as one of `plans`
    plans: Optional[PlanCache] = None
    sums: Optional[Sums] = None  # the additions that ran as sums, if some did
    are_large: bool = False  # whether the calls ran eagerly as they are large


class Work(NamedTuple):
    """The calls of an evaluation, the edges between them, their types (and each call's index into
    the types), and the line that asked for the evaluation."""

    calls: Calls
    edges: Edges
    table: FormTable
    kinds: np.ndarray
    types: list[NodeType]
    asked_by: Site
    started: float
    sums: Optional[Sums] = None


@dataclass(frozen=True, eq=False)
class EagerCounts:
    """`EvaluationCounts` for calls that ran eagerly. Graph and schedule are made on demand."""

    work: Work
    early: bool
    collect_s: float
    execute_s: float
    schedule_s: float = 0.0
    clock: Optional[Clock] = None
    is_cached: bool = False
    plans: Optional[PlanCache] = None

    @property
    def are_large(self) -> bool:
        """Whether the calls ran eagerly because they are large; others have their own gradient."""
        return not self.work.types[0].eager

    @property
    def calls(self) -> np.ndarray:
        """(n,) int64, the number in the recording of each node of the graph."""
        return self.work.calls.ids

    @property
    def asked_by(self) -> Site:
        """The user's line that needed a value."""
        return self.work.asked_by

    @property
    def sums(self) -> Optional[Sums]:
        """The additions that ran as sums; None if there are none."""
        return self.work.sums

    @cached_property
    def graph(self) -> Graph:
        """The graph of the calls, whose types run alone."""
        graph = to_graph(self.work.kinds, self.work.edges, self.work.types)
        return replace(graph, alone=np.ones(graph.num_types, bool))

    @cached_property
    def schedule(self) -> Schedule:
        """A schedule of one batch for each call."""
        count = len(self.calls)
        return Schedule(np.arange(count, dtype=np.int32), np.arange(count + 1))

    @cached_property
    def plan(self) -> Plan:
        """A plan with groups only, for reports."""
        none: np.ndarray = np.zeros(0, np.int64)
        groups = [self._group(index) for index in range(len(self.work.types))]
        return Plan([], groups, none, none, 0, 0)

    def _group(self, index: int) -> Group:
        nodes = np.flatnonzero(self.graph.types == index)
        ones, bounds = np.ones_like(nodes), np.arange(len(nodes) + 1)
        return Group(self.work.types[index], nodes, ones, nodes, bounds, (), ())


Counts = Union[EvaluationCounts, EagerCounts]


def calls_written(count: Counts) -> np.ndarray:
    """Return how many of the user's calls each node of an evaluation's graph stands for."""
    written: np.ndarray = np.ones(len(count.calls), np.int64)
    if count.sums is not None:
        roots, sizes = np.unique(count.sums.roots, return_counts=True)
        written[np.searchsorted(count.calls, roots)] = sizes
    return written


def passes_of(count: Counts) -> dict[int, tuple[str, ...]]:
    """Return, for each type by serial, the compile options that changed what was compiled for it or
    how this evaluation ran."""
    if isinstance(count, EagerCounts):
        serials = [kind.serial for kind in count.work.types]
        return dict.fromkeys(serials, ('at_once',) if count.are_large else ())
    changed: dict[int, set[str]] = {}
    for group in count.plan.groups:
        mine = changed.setdefault(group.node_type.serial, set())
        mine |= executable(group.node_type).changed_by
        if group.hoisted and not group.node_type.tables:
            mine.add('hoisting')
    return {
        group.node_type.serial: options_among(group.node_type, changed[group.node_type.serial])
        for group in count.plan.groups
    }


def options_among(node_type: NodeType, *names: Iterable[str]) -> tuple[str, ...]:
    """Return the compile options of a type that are in one of several collections of names."""
    found = set().union(*names)
    return tuple([name for name in node_type.options.names() if name in found])
