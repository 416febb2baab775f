"""What an evaluation did: the figures for reports."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, Optional

import numpy as np

from gluon_edbatch_core.graph.collect import Calls, Edges, FormTable, Sums, to_graph
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.plan.plan import Group, Plan
from gluon_edbatch_core.plan.plan_cache import PlanCache
from gluon_edbatch_core.schedule import Schedule

from ..record.sites import Site
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
    is_eager: bool = False  # the calls ran eagerly

    @property
    def are_large(self) -> bool:
        """Whether the calls ran eagerly because they are large; others have their own gradient."""
        return self.is_eager and not self.plan.groups[0].node_type.eager


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


def eager_counts(
    work: Work, early: bool, collect_s: float, execute_s: float, clock: Optional[Clock]
) -> EvaluationCounts:
    """Return the counts of calls that ran eagerly, each as a batch; the plan has groups only."""
    calls, edges, _, kinds, types, asked_by, _, sums = work
    graph = replace(to_graph(kinds, edges, types), alone=np.ones(len(types), bool))
    numbers = np.arange(len(calls) + 1)
    groups = []
    for index, node_type in enumerate(types):
        nodes = np.flatnonzero(kinds == index)
        bounds = numbers[: len(nodes) + 1]
        groups.append(Group(node_type, nodes, np.ones_like(nodes), nodes, bounds, (), ()))
    return EvaluationCounts(
        calls.ids,
        asked_by,
        early,
        graph,
        Schedule(np.arange(len(calls), dtype=np.int32), numbers),
        Plan([], groups, numbers[:0], numbers[:0], 0, 0),
        collect_s,
        0.0,
        execute_s,
        clock,
        sums=sums,
        is_eager=True,
    )


def calls_written(count: EvaluationCounts) -> np.ndarray:
    """Return how many of the user's calls each node of an evaluation's graph stands for."""
    written: np.ndarray = np.ones(len(count.calls), np.int64)
    if count.sums is not None:
        roots, sizes = np.unique(count.sums.roots, return_counts=True)
        written[np.searchsorted(count.calls, roots)] = sizes
    return written


def passes_of(count: EvaluationCounts) -> dict[int, tuple[str, ...]]:
    """Return, for each type by serial, the compile options that changed what was compiled for it or
    how this evaluation ran."""
    if count.is_eager:
        serials = [group.node_type.serial for group in count.plan.groups]
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
