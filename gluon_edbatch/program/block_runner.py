"""Run a state: one block of a program, up to where a value decides or paths may meet."""

import re
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
from mxnet import gluon

from gluon_edbatch_core.branching.program_graph import Spec
from gluon_edbatch_core.errors import ProgramError

from ..subgraph.structure import unflatten
from .abstract_state import (
    Activation,
    Path,
    State,
    Taken,
    containers_within,
    pruned,
    rebuilt,
    spec_of,
)
from .abstract_values import KnownNumber, SampleNumber, SampleTensor
from .build import Builder, Shared
from .call_rules import Framed, ProgramCalls, entered, truth
from .flow import Branch, Invoke, Jump, Statement, site

MOST_CALLS = 100  # in each other
_TOO_DEEP = (
    f'more than {MOST_CALLS} calls are in each other: a function that calls itself has to end by '
    f'something that is known, such as a depth that it is given; where only values end it, use '
    f'gluon_edbatch.batching'
)
_OF_NDARRAY = re.compile(r"type <class '[\w.]*SampleNumber'> not supported")


class Standing(NamedTuple):
    """The abstract state at the beginning of a block, and its split into known and unknown parts.
    `widened` has the paths of known numbers that count as unknown. Each unknown value has its
    `origins` if it is a number, and `shared` if others may hold the same tensor."""

    state: State
    taken: Taken
    widened: frozenset[Path]
    origins: tuple[frozenset[Any], ...]
    shared: tuple[bool, ...]


class Ran(NamedTuple):
    """The outcome of running a block: one path to go on; two if `result`, a number of the sample,
    decides; or none, and `result` is what the network returns."""

    builder: Builder
    ways: tuple[State, ...]
    result: Any = None


class BlockRunner:
    """Run each block of a network once, on abstract values, to compile the network as a program.
    `foreign` has the ``id`` of the lists, dicts and sets that were there before the program ran."""

    def __init__(self, net: gluon.Block, training: bool, ctx: mx.Context):
        self._shared = Shared(training, ctx)
        self.foreign: set[int] = containers_within([net], _held)
        self._net = net
        self._calls = ProgramCalls(self.foreign)
        self._scopes: dict[FunctionType, dict[str, Any]] = {}
        # With their states, whose objects are told apart by their ids.
        self._ran: dict[tuple, tuple[Standing, Ran]] = {}

    def entry(self, arguments: tuple, specs: list[Spec]) -> State:
        """Return the state at the network's call."""
        given: list[Any] = Builder(self._shared, specs, '').taken()
        for tensor in given:
            tensor.shared = True  # with the user
        called = Framed(_called, (self._net, *unflatten(arguments, iter(given))), {})
        return pruned((entered(called, ''),))

    def ran(self, at: Standing) -> Ran:
        """Return a block's outcome; run the block at the first request."""
        key = (at.taken.key, at.origins, at.shared)
        if key not in self._ran:
            self._ran[key] = at, self._run(at)
        return self._ran[key][1]

    def _run(self, at: Standing) -> Ran:
        """Run until a value decides, or until paths may meet."""
        top = at.state[-1]
        specs = list(map(spec_of, at.taken.values))
        builder = Builder(self._shared, specs, _site(at.state, _begins(top)))
        fresh = builder.taken()
        for value, origins, is_shared in zip(fresh, at.origins, at.shared):
            if isinstance(value, SampleNumber):
                value.origins = origins
            elif isinstance(value, SampleTensor):
                value.shared = is_shared
        stack = list(rebuilt(at.state, fresh, self.foreign, at.widened))
        while True:
            ran = self._step(builder, stack)
            if ran is not None:
                return ran._replace(ways=tuple(map(pruned, ran.ways)))

    def _step(self, builder: Builder, stack: list[Activation]) -> Optional[Ran]:
        """Run one block of the innermost function; return the outcome if the run ends there."""
        top = stack[-1]
        for statement in top.block.statements:
            builder.line = _site(stack, statement.line)
            self._execute(builder, top, statement)
        end = top.block.end
        builder.line = _site(stack, end.line)
        if isinstance(end, Branch):
            condition = _guarded(builder, lambda: truth(top.names[end.condition]))
            if isinstance(condition, SampleNumber):
                ways = [(*stack[:-1], top._replace(block=to)) for to in (end.then, end.other)]
                return Ran(builder, tuple(ways), condition)
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
            return Ran(builder, (), top.names[end.name])
        else:
            stack.pop()
            stack[-1].names[top.target] = top.names[end.name]
            if top.flow.returns > 1:
                return Ran(builder, (tuple(stack),))
        return Ran(builder, (tuple(stack),)) if stack[-1].block.joins else None

    def _invoked(self, builder: Builder, call: Invoke, stack: list[Activation]) -> Any:
        """Return the result of a call, or the user's function whose code runs next."""
        result = self._calls.result(builder, call, stack[-1].names)
        if not isinstance(result, Framed):
            return result
        if len(stack) > MOST_CALLS:
            raise ProgramError(_TOO_DEEP)
        return entered(result, call.target)

    def _execute(self, builder: Builder, top: Activation, statement: Statement) -> None:
        scope = self._scope(top.flow.function)
        _guarded(builder, lambda: exec(statement.code, scope, top.names))

    def _scope(self, function: FunctionType) -> dict[str, Any]:
        """Return a function's global variables, whose contents are not the program's own."""
        if function not in self._scopes:
            names = function.__globals__
            held = [names.get(name) for name in function.__code__.co_names]
            held += [function.__defaults__, function.__kwdefaults__]
            self.foreign |= containers_within(held, _held)
            self._scopes[function] = {**names, **self._calls.functions}
        return self._scopes[function]


def _begins(activation: Activation) -> int:
    """Return the line on which a function continues, behind branches without statements."""
    block = activation.block
    while not block.statements and isinstance(block.end, Jump):
        block = block.end.to
    return block.statements[0].line if block.statements else block.end.line


def _site(stack: Sequence[Activation], line: int) -> str:
    """Return a line of the innermost function, or the user's line that called one of
    `call_rules`; nothing after the network's return."""
    for depth in reversed(range(len(stack))):
        each = stack[depth]
        if depth < len(stack) - 1:
            line = _begins(each)
        if each.flow.function.__module__ != ProgramCalls.__module__:
            break
    return '' if each.flow.function is _called else site(each.flow.file, line)


def _called(net, *arguments):
    return net(*arguments)


def _guarded(builder: Builder, run: Callable[[], Any]) -> Any:
    """Run a function, and let errors name the user's line."""
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
    """Return what the user can do about an error that Python or MXNet raised."""
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


def _held(value: Any) -> list[Any]:
    """Return the attributes of an object."""
    if isinstance(value, (type, FunctionType)) or not hasattr(value, '__dict__'):
        return []
    module = type(value).__module__.split('.')[0]
    is_block = isinstance(value, gluon.Block)
    return list(vars(value).values()) if is_block or module not in ('mxnet', 'builtins') else []
