"""Split a plan into steps, each run by a backend: native operators if possible, else MXNet's."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from gluon_edbatch_core.plan.plan import Capabilities, Group, Plan

from ..subgraph.node_type import NodeType
from . import function_batches
from .cached import cached_backend
from .executable import executable, overhead
from .execution_state import ExecutionState
from .native import native_run
from .verify import needs_verification


def is_run(node_type: NodeType) -> bool:
    """Return whether a backend can run the type."""
    backends = native_run, cached_backend
    return any(backend.capabilities(node_type) is not None for backend in backends)


def capabilities_of(node_type: NodeType) -> Capabilities:
    """Return the capabilities of the first backend that can run the type."""
    known = executable(node_type)
    if known.capabilities is None:
        own = native_run.capabilities(node_type) or cached_backend.capabilities(node_type)
        assert own is not None  # else its calls would not be recorded
        own = own._replace(overhead=overhead(node_type, is_native=known.native is not None))
        whole = node_type.alone or node_type.whole or not node_type.options.hoisting
        known.capabilities = own._replace(hoisted_below=0) if whole else own
    return known.capabilities


class Step(NamedTuple):
    """Batches that run together: those of a plan from `first` to before `last`."""

    first: int
    last: int
    native: bool  # else it is one batch, which MXNet or a Function runs
    # Batches to verify when all have run, unless an earlier batch has proved their type. They do
    # not run apart, or gradients would be added up in another order than later.
    unproved: tuple[int, ...] = ()

    def run(self, state: ExecutionState) -> None:
        """Run the batches: the results appear in their rows of the arenas."""
        if self.native:
            tape: Any = native_run.run(state, self.first, self.last)
        else:
            (batch,) = state.plan.batches_between(self.first, self.last)
            is_python = batch.node_type.graph.function is not None
            state.fence = None
            tape = (function_batches if is_python else cached_backend).run(state, batch)
        if tape is not None:
            state.tapes.append(tape)


def steps(plan: Plan) -> Iterator[Step]:
    """Yield the steps of a plan: neighbours of one kind together, all others one by one."""
    known: list[Any] = [native_run.kind(group) for group in plan.groups]
    are_native = all([type(kind) is int and kind != 0 for kind in known])  # else one a batch
    if are_native and len({*known}) < 2 and not any(map(_is_unproved, plan.groups)):  # most often
        yield Step(0, plan.size, True)
        return
    kinds, unproved, bounds = np.zeros(plan.size, np.int8), _unproved(plan), [0]
    for group, kind in zip(plan.groups, known):
        kinds[group.numbers] = kind
    for kind, same in groupby(kinds.tolist()):
        first, last = bounds[-1], bounds[-1] + len([*same])
        bounds += [last] if kind else range(first + 1, last + 1)
    for first, last in zip(bounds, bounds[1:]):
        numbers = tuple([number for number in unproved if first <= number < last])
        yield Step(first, last, bool(kinds[first]), numbers)


def _is_unproved(group: Group) -> bool:
    return len(group.nodes) > group.size and needs_verification(group.node_type)


def _unproved(plan: Plan) -> list[int]:
    """Return the numbers of the batches to verify."""
    unproved: list[int] = []
    for group in filter(_is_unproved, plan.groups):
        # Of a verified type, batches whose calls have ragged arguments of different lengths.
        wanted = [np.full(group.size, not executable(group.node_type).verified)]
        wanted += [read.uneven for read in group.reads if read.uneven is not None]
        unproved += group.numbers[(np.diff(group.bounds) > 1) & np.any(wanted, axis=0)].tolist()
    return sorted(unproved)
