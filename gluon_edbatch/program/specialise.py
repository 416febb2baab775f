"""Step 2: the user's functions become one graph, in which only what depends on values is left.

A state (`states`) is run as Python would run it: loops over what is known are unrolled, conditions
that are known are decided, functions and blocks that are called are gone into. Where a value
decides, the block that is being made ends, and both ways are states to go on from; so it does where
ways meet, so that they go on as one. This is what is known as online partial evaluation
(Jones, Gomard, Sestoft 1993), with states in the place of its program points.

Ways that meet with different numbers in the same variable, such as a count of what was not skipped,
would go on apart for its sake, and a loop that values end would be unrolled for ever: such a number
counts as a value there (it is *widened*), unless something needs to know it, such as an index.
"""

import re
from types import FunctionType
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

import mxnet as mx
from mxnet import gluon

from ..branching.graph import Choose, Finish, Goto, Spec
from ..errors import ProgramError
from ..subgraph.structure import flatten, unflatten
from ..subgraph.trace import describe
from .build import Builder, Shared
from .calls import Framed, ProgramCalls, entered
from .draft import Draft
from .flow import Branch, Invoke, Jump, Statement
from .states import (
    Activation,
    Path,
    State,
    containers_within,
    known_numbers,
    rebuilt,
    spec_of,
    take_apart,
)
from .values import Dynamic, KnownNumber, SampleNumber, SampleTensor

MOST_BLOCKS = 10_000
MOST_VALUES = 500_000  # in all states: a list that grows for ever has them sooner
MOST_CALLS = 100  # in each other
_TOO_DEEP = (
    f'more than {MOST_CALLS} calls are in each other: a function that calls itself has to end by '
    f'something that is known, such as a depth that it is given; where only values end it, use '
    f'gluon_edbatch.batching'
)
MOST_ROUNDS = 40  # in which a list may grow before numbers that could bound it have to be known
_OF_NDARRAY = re.compile(r"type <class '[\w.]*SampleNumber'> not supported")
_TOO_MANY = (
    f'more than {MOST_BLOCKS} blocks, or {MOST_VALUES} values in their states: something that is '
    f'no number differs each time that a loop begins again, such as a list that grows, and only '
    f'values end the loop. Give it a bound that is known: for _ in range(bound)'
)


class Specialised(NamedTuple):
    """What is left of the user's functions.

    Attributes
    ----------
    drafts : list of Draft
        The first is the entry.
    constants : list of numpy.ndarray
    """

    drafts: List[Draft]
    constants: List[Any]


def specialise(
    net: gluon.Block, arguments: Tuple, specs: List[Spec], training: bool, ctx: mx.Context
) -> Specialised:
    """All blocks of a network's call.

    Parameters
    ----------
    net : mxnet.gluon.Block
    arguments : tuple
        Template of its arguments (see `subgraph.structure`),
    specs : list of TensorSpec
        and their arrays.
    training : bool
        Whether it is called in training mode.
    ctx : mxnet.Context

    Raises
    ------
    ProgramError
        If there is something that cannot be taken.
    """
    decided = _Decided({}, set(), set())
    while True:
        try:
            return _Specialiser(net, arguments, specs, training, ctx, decided).all()
        except KnownNumber as known:
            decided.known.update(known.origins)
        except _Again:
            pass


class _Again(Exception):
    """More numbers are widened: all is made anew."""


Where = Tuple[Tuple[int, int], ...]  # the function and the block of each activation


class _Decided(NamedTuple):
    """What was found out of numbers, by where they are.

    Attributes
    ----------
    widened : dict of Where to set of Path
        Those that count as values;
    known : set of (Where, Path)
        those that must not, as something needs to know them.
    shared : set of (Where, Path)
        Tensors that share memory with others on one of the ways that meet.
    """

    widened: Dict[Where, Set[Path]]
    known: Set[Tuple[Where, Path]]
    shared: Set[Tuple[Where, Path]]


class _Met(NamedTuple):
    """A state where ways meet: its number, and what Python knows of numbers there."""

    number: int
    numbers: Dict[Path, Any]


class _PendingState(NamedTuple):
    """A state that a block is to be made of."""

    state: State
    widened: FrozenSet[Path]
    origins: List[FrozenSet[Any]]  # of its values, if they are numbers;
    shared: List[bool]  # whether they are shared, if they are tensors
    where: Where
    size: int  # how many values it has, known ones, too
    grown: int  # how often there were more than the last time that it was here
    parent: int  # the block that leads here first, -1 for the first
    branched: bool  # whether a value decided to come here


class _Specialiser:
    def __init__(self, net: gluon.Block, arguments, specs, training: bool, ctx, decided: _Decided):
        self._net = net
        self._shared = Shared(training, ctx)
        self._decided = decided
        self._met: Dict[Tuple, List[_Met]] = {}
        self._number_of: Dict[Tuple, int] = {}
        self._values = 0
        self._pending: List[_PendingState] = []
        self._foreign: Set[int] = containers_within([net], _held)
        self._calls = ProgramCalls(self._foreign)
        self._scopes: Dict[FunctionType, Dict[str, Any]] = {}
        given: List[Any] = Builder(self._shared, specs, '').taken()
        for tensor in given:
            tensor.shared = True  # with the user
        called = Framed(_called, (net, *unflatten(arguments, iter(given))), {})
        self._to((entered(called, ''),), -1, False)

    def all(self) -> Specialised:
        """Make blocks until all are there that are led to."""
        drafts: List[Draft] = []
        while len(drafts) < len(self._pending):
            if len(drafts) >= MOST_BLOCKS or self._values > MOST_VALUES:
                raise ProgramError(_TOO_MANY)
            drafts.append(self._block(len(drafts)))
        return Specialised(drafts, self._shared.constants)

    # --- states ----------------------------------------------------------------------------------

    def _to(self, state: State, parent: int, branched: bool) -> Tuple[int, List[Any]]:
        """The block that a state goes on in, and what it takes."""
        state = tuple(map(_pruned, state))
        where = tuple([(id(each.flow), each.block.number) for each in state])
        widened = self._widening(state, where, parent, branched)
        taken = take_apart(state, self._foreign, widened)
        number = self._number_of.get(taken.key)
        shared = [
            isinstance(value, SampleTensor)
            and (value.shared or (where, path) in self._decided.shared)
            for value, path in zip(taken.values, taken.paths)
        ]
        if number is not None:
            self._share(where, taken.paths, shared, self._pending[number].shared)
        else:
            number = self._number_of[taken.key] = len(self._pending)
            self._values += taken.size
            origins = [
                value.origins if isinstance(value, SampleNumber) else frozenset([(where, path)])
                for value, path in zip(taken.values, taken.paths)
            ]
            grown = self._grown(where, taken.size, origins, parent)
            self._pending.append(
                _PendingState(
                    state, widened, origins, shared, where, taken.size, grown, parent, branched
                )
            )
        return number, taken.values

    def _grown(self, where: Where, size: int, origins: List[FrozenSet[Any]], parent: int) -> int:
        """How often a loop began again with more values than before. A number that counts as one
        might be what bounds it: it has to be known then."""
        while parent >= 0 and self._pending[parent].where != where:
            parent = self._pending[parent].parent
        if parent < 0:
            return 0
        before = self._pending[parent]
        grown = before.grown + (size > before.size)
        if grown >= MOST_ROUNDS:
            bounds = frozenset().union(*origins) - self._decided.known
            if bounds:
                raise KnownNumber(bounds)
        return grown

    def _share(self, where: Where, paths: List[Path], now: List[bool], before: List[bool]) -> None:
        """What one way shares counts as shared on all."""
        more = {(where, path) for path, own, other in zip(paths, now, before) if own and not other}
        if more:
            self._decided.shared.update(more)
            raise _Again

    def _widening(self, state: State, where: Where, parent: int, branched: bool) -> FrozenSet[Path]:
        """Which numbers count as values in this state: those in which ways differ that meet."""
        widened = self._decided.widened.setdefault(where, set())
        numbers = {
            path: value
            for path, value in known_numbers(state, self._foreign).items()
            if (where, path) not in self._decided.known
        }
        skeleton = take_apart(state, self._foreign, frozenset(numbers)).key
        for met in self._met.setdefault(skeleton, []):
            differing = {
                path
                for path in {*numbers, *met.numbers} - widened
                if _exact(numbers, path) != _exact(met.numbers, path)
            }
            if differing and self._is_decided_between(met.number, parent, branched):
                widened.update(differing)
                raise _Again
            if not differing:
                break
        else:
            self._met[skeleton].append(_Met(len(self._pending), numbers))
        return frozenset(widened.intersection(numbers))

    def _is_decided_between(self, before: int, parent: int, branched: bool) -> bool:
        """Whether a value decided, since a state, to come to another: a loop that nothing but known
        numbers end is unrolled."""
        while parent > before:
            branched = branched or self._pending[parent].branched
            parent = self._pending[parent].parent
        return branched or parent != before

    # --- blocks ----------------------------------------------------------------------------------

    def _block(self, number: int) -> Draft:
        """Run a state until a value decides, or until ways may meet."""
        state, widened, origins, shared, *_ = self._pending[number]
        values = take_apart(state, self._foreign, widened).values
        block = state[-1].block
        line = block.statements[0].line if block.statements else block.end.line
        name = state[-1].flow.site(line) if number else describe(self._net)
        builder = Builder(self._shared, list(map(spec_of, values)), name)
        fresh = builder.taken()
        for value, each, is_shared in zip(fresh, origins, shared):
            if isinstance(value, SampleNumber):
                value.origins = each
            elif isinstance(value, SampleTensor):
                value.shared = is_shared
        stack = list(rebuilt(state, fresh, self._foreign, widened))
        while True:
            end = self._step(number, builder, stack)
            if end is not None:
                return end

    def _step(self, number: int, builder: Builder, stack: List[Activation]) -> Optional[Draft]:
        """Run one block of the innermost function; the finished draft, if it ends there."""
        top = stack[-1]
        for statement in top.block.statements:
            self._run(builder, top, statement)
        end = top.block.end
        builder.line = top.flow.site(end.line)
        if isinstance(end, Branch):
            condition = _guarded(builder, lambda: _condition(top.names[end.condition]))
            if isinstance(condition, SampleNumber):
                return self._choose(number, builder, stack, condition)
            stack[-1] = top._replace(block=end.then if condition else end.other)
        elif isinstance(end, Jump):
            stack[-1] = top._replace(block=end.to)
        elif isinstance(end, Invoke):
            stack[-1] = top._replace(block=end.to)
            result = _guarded(builder, lambda: self._invoked(builder, end, stack))
            if isinstance(result, Activation):
                stack.append(result)
                return None
            top.names[end.target] = result
        elif len(stack) == 1:
            return _finish(builder, top.names[end.name])
        else:
            stack.pop()
            stack[-1].names[top.target] = top.names[end.name]
            if top.flow.returns > 1:
                return self._goto(number, builder, stack)
        return self._goto(number, builder, stack) if stack[-1].block.joins else None

    def _invoked(self, builder: Builder, call: Invoke, stack: List[Activation]) -> Any:
        """What a call gives, or the function that begins."""
        result = self._calls.result(builder, call, stack[-1].names)
        if not isinstance(result, Framed):
            return result
        if len(stack) > MOST_CALLS:
            raise ProgramError(_TOO_DEEP)
        return entered(result, call.target)

    def _run(self, builder: Builder, top: Activation, statement: Statement) -> None:
        builder.line = top.flow.site(statement.line)
        scope = self._scope(top.flow.function)
        _guarded(builder, lambda: exec(statement.code, scope, top.names))

    def _scope(self, function: FunctionType) -> Dict[str, Any]:
        """Its global variables, which are not the program's own."""
        if function not in self._scopes:
            names = function.__globals__
            held = [names.get(name) for name in function.__code__.co_names]
            held += [function.__defaults__, function.__kwdefaults__]
            self._foreign |= containers_within(held, _held)
            self._scopes[function] = {**names, **self._calls.functions}
        return self._scopes[function]

    # --- ends ------------------------------------------------------------------------------------

    def _choose(self, number, builder, stack, condition: SampleNumber) -> Draft:
        end = stack[-1].block.end
        ways = []
        for block in (end.then, end.other):
            to, values = self._to((*stack[:-1], stack[-1]._replace(block=block)), number, True)
            ways.append(Goto(to, tuple(map(builder.place_of, values))))
        place = builder.place_of(condition)
        return builder.finished(Choose(place, ways[0], ways[1], builder.line))

    def _goto(self, number, builder, stack) -> Draft:
        to, values = self._to(tuple(stack), number, False)
        return builder.finished(Goto(to, tuple(map(builder.place_of, values))))


def _finish(builder: Builder, result: Any) -> Draft:
    leaves: List[Any] = []
    template = flatten(result, Dynamic, leaves)
    return builder.finished(Finish(template, tuple(map(builder.place_of, leaves))))


def _called(net, *arguments):
    return net(*arguments)


def _guarded(builder: Builder, run: Callable[[], Any]) -> Any:
    """Let errors name the user's line."""
    try:
        return run()
    except KnownNumber:
        raise
    except ProgramError as error:
        if error.placed:
            raise
        raise ProgramError(f'{builder.line}\n  {error}', placed=True) from None
    except Exception as error:
        raise ProgramError(f'{builder.line}\n  {_told(error)}', placed=True) from error


def _told(error: Exception) -> str:
    """What the user can do about an error of Python's or MXNet's."""
    told = f'{type(error).__name__}: {error}'
    if isinstance(error, TypeError) and _OF_NDARRAY.search(told):
        return (
            'an array that the program knows, such as an attribute of the model, is on the left of '
            'an operator, and a number of the sample on the right: write n * array, or array * '
            'mx.nd.array([n])'
        )
    for name, kind in (('SampleNumber', 'a number'), ('SampleTensor', 'an array')):
        told = re.sub(rf"""(['"]|<class '[\w.]*){name}('>|['"])""", f'{kind} of the sample', told)
    return f'fails while the program is made: {told}'


def _condition(value: Any) -> Any:
    """What decides: a bool of Python's, or a number of the sample."""
    if isinstance(value, SampleTensor):
        value = value.asscalar()
    if isinstance(value, SampleNumber):
        return value if value.kind == 'bool' else value != 0
    return bool(value)


def _held(value: Any) -> List[Any]:
    """What an object has."""
    if isinstance(value, (type, FunctionType)) or not hasattr(value, '__dict__'):
        return []
    module = type(value).__module__.split('.')[0]
    is_block = isinstance(value, gluon.Block)
    return list(vars(value).values()) if is_block or module not in ('mxnet', 'builtins') else []


def _exact(numbers: Dict[Path, Any], path: Path) -> Any:
    """A number by its bits; None if it is not known."""
    return (type(numbers[path]), repr(numbers[path])) if path in numbers else None


def _pruned(activation: Activation) -> Activation:
    """Without variables that nothing reads any more."""
    live = activation.block.live
    names = {name: each for name, each in activation.names.items() if name in live}
    return activation._replace(names=names)
