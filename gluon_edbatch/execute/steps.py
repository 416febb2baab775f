"""Split a plan into steps, each run by a backend: native operators if possible, else MXNet's."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Optional, Protocol, Union

import numpy as np

from ..plan.plan import Capabilities, Group, Plan
from ..subgraph.node_type import NodeType
from . import function_batches
from .cached import cached_backend
from .executable import executable
from .execution_state import ExecutionState, Tape
from .native import native_run
from .verify import needs_verification


class Backend(Protocol):
    """An interface for running batches; a module can have it."""

    def capabilities(self, node_type: NodeType) -> Optional[Capabilities]:
        """Return what planning must know of the backend; None if it cannot run the type."""

    def kind(self, group: Group) -> Union[int, np.ndarray]:
        """Return 0 for batches that the backend cannot run, 1 for those that run one by one, or a
        greater number that neighbours of one step share; (batches,) if a group's batches differ."""

    def run(self, state: ExecutionState, first: int, last: int) -> Optional[Tape]:
        """Run batches `first` to before `last` of the plan, all of one kind: the results appear in
        the arenas. Return their tape, or None without a gradient."""


BACKENDS: tuple[Backend, ...] = (native_run, function_batches, cached_backend)


def is_run(node_type: NodeType) -> bool:
    """Return whether a backend can run the type."""
    return any(backend.capabilities(node_type) is not None for backend in BACKENDS)


def capabilities_of(node_type: NodeType) -> Capabilities:
    """Return the capabilities of the first backend that can run the type."""
    known = executable(node_type)
    if known.capabilities is None:
        capabilities = next(filter(None, (backend.capabilities(node_type) for backend in BACKENDS)))
        whole = node_type.alone or node_type.whole or not node_type.options.hoisting
        known.capabilities = capabilities._replace(hoisted_below=0) if whole else capabilities
    return known.capabilities


class Step(NamedTuple):
    """Batches that run together: those of a plan from `first` to before `last`."""

    first: int
    last: int
    backend: Backend
    # Batches to verify when all have run, unless an earlier batch has proved their type. They do
    # not run apart, or gradients would be added up in another order than later.
    unproved: tuple[int, ...] = ()

    def run(self, state: ExecutionState) -> None:
        """Run the batches: the results appear in their rows of the arenas."""
        tape = self.backend.run(state, self.first, self.last)
        if tape is not None:
            state.tapes.append(tape)


def steps(plan: Plan) -> Iterator[Step]:
    """Yield the steps of a plan: neighbours of one kind together, all others one by one."""
    backend = _of_all(plan)
    if backend is not None:
        yield Step(0, plan.size, backend)
        return
    count = plan.size
    kinds, backends = _backends(plan)
    unproved = _unproved(plan)
    alone = kinds == 1
    begins = np.flatnonzero(alone[1:] | alone[:-1] | (kinds[1:] != kinds[:-1])) + 1
    begins = np.append(0, begins)
    bounds = [*begins[begins < count].tolist(), count]  # only `count` if nothing is batched
    for first, last in zip(bounds, bounds[1:]):
        numbers = tuple((first + np.flatnonzero(unproved[first:last])).tolist())
        yield Step(first, last, BACKENDS[backends[first]], numbers)


def _of_all(plan: Plan) -> Optional[Backend]:
    """Return the backend that runs all batches in one step if nothing is to be verified."""
    first, known = BACKENDS[0], 0
    for group in plan.groups:
        several = len(group.nodes) > group.size  # else there is nothing to compare
        if several and needs_verification(group.node_type):
            return None
        kind = first.kind(group)
        if not isinstance(kind, int) or kind <= 1 or known not in (0, kind):
            return None
        known = kind
    return first


def _unproved(plan: Plan) -> np.ndarray:
    unproved = np.zeros(plan.size, bool)
    for group in plan.groups:
        if needs_verification(group.node_type):
            # Of a verified type, batches whose calls have ragged arguments of different lengths.
            wanted = [np.full(group.size, not executable(group.node_type).verified)]
            wanted += [read.uneven for read in group.reads if read.uneven is not None]
            unproved[group.numbers] = (np.diff(group.bounds) > 1) & np.any(wanted, axis=0)
    return unproved


def _backends(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Return the kind of each batch, and the first backend that can run it."""
    kinds, backends = np.zeros((2, plan.size), np.int8)
    for group in plan.groups:
        left: np.ndarray = group.numbers
        places: Any = slice(None)
        for index, backend in enumerate(BACKENDS):
            kind = backend.kind(group)
            mine: Any = kind if isinstance(kind, int) else kind[places]
            kinds[left], backends[left] = mine, index
            if mine if isinstance(kind, int) else mine.all():
                break
            places = np.flatnonzero(kinds[group.numbers] == 0)
            left = group.numbers[places]
    return kinds, backends
