"""Step 2: make one graph of the user's functions, with only what depends on values left.

This is online partial evaluation (Jones, Gomard, Sestoft 1993), with states as program points. A
state (`abstract_state`) is run as Python would run it: loops over known values are unrolled, known
conditions are decided, and calls are followed. Where a value decides, the block that is being made
ends, and both paths are states to go on from. A block also ends where paths meet, so that they go
on as one.

Paths may meet with different numbers in one variable, such as a counter. To keep them apart would
unroll a loop that a value ends for ever. So such a number counts as a value there (it is
*widened*), unless something needs to know it, such as an index. A finding about a number holds for
the first path, too, so all paths are followed again (`_AllWays`). A block that begins as before is
not run again (`block_runner.BlockRunner`).
"""

from typing import Any, NamedTuple

import mxnet as mx
from mxnet import gluon

from gluon_edbatch_core.branching.program_graph import Choose, End, Finish, Goto, Spec
from gluon_edbatch_core.branching.pytree import exact
from gluon_edbatch_core.errors import ProgramError

from ..subgraph.structure import flatten
from ..subgraph.trace import describe
from .abstract_state import Path, State, StateParts
from .abstract_values import Dynamic, KnownNumber, SampleNumber, SampleTensor
from .block_ir import IRBlock
from .block_runner import BlockRunner, Ran, Standing

MOST_BLOCKS = 10_000
MOST_VALUES = 500_000  # in all states: a list that grows for ever has them sooner
MOST_ROUNDS = 10  # in which a list may grow before numbers that could bound it have to be known
_TOO_MANY = (
    f'more than {MOST_BLOCKS} blocks, or {MOST_VALUES} values in their states: something that is '
    f'no number differs each time that a loop begins again, such as a list that grows, and only '
    f'values end the loop. Give it a bound that is known: for _ in range(bound)'
)


def specialise(
    net: gluon.Block, arguments: tuple, specs: list[Spec], training: bool, ctx: mx.Context
) -> list[IRBlock]:
    """Return all blocks of a network's call, the entry first. `arguments` is the template of the
    arguments (see `subgraph.structure`), and `specs` describe their arrays. Raise ProgramError for
    code that cannot be compiled."""
    runner = BlockRunner(net, training, ctx)
    entry = runner.entry(arguments, specs)
    decided = _Decided({}, set(), set())
    while True:
        try:
            blocks = _AllWays(runner, decided).blocks(entry)
        except KnownNumber as known:
            decided.known.update(known.origins)
        except _Again:
            pass
        else:
            blocks[0] = blocks[0]._replace(name=describe(net))
            return blocks


class _Again(Exception):
    """More is known of numbers or tensors, so all paths have to be followed again."""


Where = tuple[tuple[int, int], ...]  # the function and the block of each activation
Variable = tuple[tuple[int, ...], Path]  # the functions down to its own, and where it is there


class _Decided(NamedTuple):
    """Facts about numbers and tensors, by their paths in states. Numbers at paths `widened` count
    as values. Variables in `known` must stay known numbers in every call of their functions.
    `shared` are tensors that share memory on at least one of the paths that meet."""

    widened: dict[Where, set[Path]]
    known: set[Variable]
    shared: set[tuple[Where, Path]]


class _Met(NamedTuple):
    """A state where paths meet: its block's number, and the numbers that Python knows there."""

    number: int
    numbers: dict[Path, Any]


class _From(NamedTuple):
    """What leads to a state: a block, -1 for none, and the number that decides there, if any."""

    block: int
    by: Any


class _LedTo(NamedTuple):
    """A state from which a block will be made. `grown` counts how often more values than before
    came here in a loop; `first` is the first edge to the state."""

    at: Standing
    where: Where
    grown: int
    first: _From


class _AllWays:
    """Follow all paths from the entry, breadth first, until something new is known."""

    def __init__(self, runner: BlockRunner, decided: _Decided):
        self._runner, self._decided = runner, decided
        self._met: dict[tuple, list[_Met]] = {}
        self._number_of: dict[tuple, int] = {}
        self._reached: list[_LedTo] = []
        self._values = 0

    def blocks(self, entry: State) -> list[IRBlock]:
        """Return the blocks of all states that can be reached."""
        self._to(entry, _From(-1, None))
        ends: list[tuple[Ran, End]] = []
        while len(ends) < len(self._reached):
            if len(ends) >= MOST_BLOCKS or self._values > MOST_VALUES:
                raise ProgramError(f'{ends[-1][0].builder.line}\n  {_TOO_MANY}', placed=True)
            number = len(ends)
            ran = self._runner.ran(self._reached[number].at)
            ends.append((ran, self._end(number, ran)))
        return [ran.builder.finished(end) for ran, end in ends]

    def _end(self, number: int, ran: Ran) -> End:
        """Return how a block ends: with results, a jump, or a choice of two."""
        place_of = ran.builder.place_of
        if not ran.ways:
            leaves: list[Any] = []
            template = flatten(ran.result, Dynamic, leaves)
            return Finish(template, tuple(map(place_of, leaves)))
        gotos = []
        for way in ran.ways:
            to, values = self._to(way, _From(number, ran.result))
            gotos.append(Goto(to, tuple(map(place_of, values))))
        if len(gotos) == 1:
            return gotos[0]
        condition: Any = place_of(ran.result)
        return Choose(condition, gotos[0], gotos[1], ran.builder.line)

    # --- states ----------------------------------------------------------------------------------

    def _to(self, state: State, first: _From) -> tuple[int, list[Any]]:
        """Return the block of the program that goes on from a state, and its inputs."""
        where = tuple([(id(each.flow), each.block.number) for each in state])
        parts = StateParts(state, self._runner.foreign)
        widened = self._widening(parts, where, first)
        taken = parts.taken(widened)
        number = self._number_of.get(taken.key)
        shared = [
            isinstance(value, SampleTensor)
            and (value.shared or (where, path) in self._decided.shared)
            for value, path in zip(taken.values, taken.paths)
        ]
        if number is not None:
            self._share(where, taken.paths, shared, self._reached[number].at.shared)
            return number, taken.values
        variables = [_variable(where, path) for path in taken.paths]
        origins = tuple(map(_origins, taken.values, variables))
        number = self._number_of[taken.key] = len(self._reached)
        self._values += taken.size
        grown = self._grown(where, taken.size, first)
        at = Standing(state, taken, widened, origins, tuple(shared))
        self._reached.append(_LedTo(at, where, grown, first))
        return number, taken.values

    def _grown(self, where: Where, size: int, first: _From) -> int:
        """Return how often a loop began again with more values than before. After too many, a
        number that decides inside the loop may bound it, so it must be known."""
        deciding: set[Variable] = set()
        while first.block >= 0:
            if first.by is not None:
                deciding |= first.by.origins
            before = self._reached[first.block]
            if before.where == where:
                break
            first = before.first
        else:
            return 0
        grown = before.grown + (size > before.at.taken.size)
        if grown >= MOST_ROUNDS and deciding - self._decided.known:
            raise KnownNumber(frozenset(deciding))
        return grown

    def _share(
        self, where: Where, paths: list[Path], now: list[bool], before: tuple[bool, ...]
    ) -> None:
        """Mark a tensor that all samples share on one path as shared on all paths."""
        more = {(where, path) for path, own, other in zip(paths, now, before) if own and not other}
        if more:
            self._decided.shared.update(more)
            raise _Again

    def _widening(self, parts: StateParts, where: Where, first: _From) -> frozenset[Path]:
        """Return the numbers that count as values in this state, as meeting paths differ in
        them."""
        widened = self._decided.widened.setdefault(where, set())
        numbers = {
            path: value
            for path, value in parts.numbers.items()
            if _variable(where, path) not in self._decided.known
        }
        skeleton = parts.taken(numbers.keys()).key
        for met in self._met.setdefault(skeleton, []):
            differing = {
                path
                for path in {*numbers, *met.numbers} - widened
                if exact(numbers.get(path)) != exact(met.numbers.get(path))
            }
            if differing and self._is_decided_between(met.number, first):
                widened.update(differing)
                raise _Again
            if not differing:
                break
        else:
            self._met[skeleton].append(_Met(len(self._reached), numbers))
        return frozenset(widened.intersection(numbers))

    def _is_decided_between(self, before: int, first: _From) -> bool:
        """Return whether a value decided on the path from block `before` on. A loop that only known
        numbers end is unrolled."""
        branched = first.by is not None
        while first.block > before:
            first = self._reached[first.block].first
            branched = branched or first.by is not None
        return branched or first.block != before


def _origins(value: Any, variable: Variable) -> frozenset[Variable]:
    """Return the variables whose numbers came to count as a value that a block takes."""
    if isinstance(value, SampleTensor):
        return frozenset()
    return value.origins if isinstance(value, SampleNumber) else frozenset([variable])


def _variable(where: Where, path: Path) -> Variable:
    """Return the variable at a path, for all blocks of its function alike."""
    return tuple([flow for flow, _ in where[: path[0] + 1]]), path
