"""Step 2: the user's functions become one graph, in which only what depends on values is left.

A state (`states`) is run as Python would run it: loops over what is known are unrolled, conditions
that are known are decided, functions and blocks that are called are gone into. Where a value
decides, the block that is being made ends, and both ways are states to go on from; so it does where
ways meet, so that they go on as one. This is what is known as online partial evaluation
(Jones, Gomard, Sestoft 1993), with states in the place of its program points.

A number that is known, and another one each time that a loop begins again which values end, would
have the loop unrolled for ever: it counts as a value there (it is *widened*).
"""

from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from mxnet import gluon

from ..subgraph.structure import flatten, unflatten
from .build import Builder, Shared
from .calls import FUNCTIONS, Counted, Framed, called, entered
from .errors import ProgramError
from .graph import Choose, End, Finish, Goto, ProgramBlock, ProgramGraph
from .rewrite import Branch, Invoke, Jump, Return, live_after
from .states import Frame, State, known_numbers, rebuilt, spec_of, take_apart
from .values import Dynamic, Number, Tensor

MOST_BLOCKS = 10_000


class _Again(Exception):
    """More numbers have to be widened: all is made anew."""


class _Pending(NamedTuple):
    """A state that a block is to be made of."""

    state: State
    widened: FrozenSet[Tuple]
    parent: int  # the block that leads here first, -1 for the first
    branched: bool  # whether a value decided to come here


class Specialiser:
    """Makes the graph of one call.

    Parameters
    ----------
    net : mxnet.gluon.Block
    arguments : tuple
        Template of its arguments (see `subgraph.structure`),
    specs : list of TensorSpec
        and their arrays.
    training : bool
    """

    def __init__(self, net: gluon.Block, arguments: Any, specs: List[Any], training: bool):
        self._net, self._arguments, self._specs = net, arguments, specs
        self._training = training
        # By loop and what is around it, which numbers are widened there.
        self._widened: Dict[Tuple, FrozenSet[Tuple]] = {}

    def graph(self) -> ProgramGraph:
        """The whole program."""
        while True:
            try:
                return self._graph()
            except _Again:
                pass

    def _graph(self) -> ProgramGraph:
        self._shared = Shared(self._training)
        self._number_of: Dict[Tuple, int] = {}
        self._pending: List[_Pending] = []
        given = Builder(self._shared, self._specs, '').taken()
        for tensor in given:
            tensor.shared = True  # with the user
        arguments = unflatten(self._arguments, iter(given))
        self._to((entered(Framed(_called, (self._net, *arguments), {}), ''),), -1, False)
        blocks: List[ProgramBlock] = []
        while len(blocks) < len(self._pending):
            if len(blocks) >= MOST_BLOCKS:
                raise ProgramError(
                    f'more than {MOST_BLOCKS} blocks: something that is no number grows each time '
                    f'a loop begins again, such as a list, and only values end the loop; give it a '
                    f'bound that is known: for _ in range(bound)'
                )
            blocks.append(self._block(len(blocks)))
        shared = self._shared
        return ProgramGraph(
            blocks, shared.networks, shared.parameters, shared.constants, self._arguments
        )

    # --- states ----------------------------------------------------------------------------------

    def _to(self, state: State, parent: int, branched: bool) -> Tuple[int, List[Any]]:
        """The block that a state goes on in, and what it takes."""
        state = tuple([_pruned(frame, innermost=frame is state[-1]) for frame in state])
        widened = self._widening(state, parent, branched)
        taken = take_apart(state, widened)
        number = self._number_of.get(taken.key)
        if number is None:
            number = self._number_of[taken.key] = len(self._pending)
            self._pending.append(_Pending(state, widened, parent, branched))
        return number, taken.values

    def _widening(self, state: State, parent: int, branched: bool) -> FrozenSet[Tuple]:
        """Which numbers count as values in this state."""
        frame = state[-1]
        if not frame.block.loops or _is_known(frame):
            return frozenset()
        numbers = known_numbers(state)
        everything = frozenset(numbers)
        skeleton = take_apart(state, everything).key
        widened = self._widened.get(skeleton, frozenset())
        while parent >= 0:
            pending = self._pending[parent]
            if not _is_inside(pending.state, state):
                break
            if branched and len(pending.state) == len(state) and pending.state[-1].block is frame.block:
                before = known_numbers(pending.state)
                if take_apart(pending.state, frozenset(before)).key == skeleton:
                    changing = {path for path in numbers if before[path] != numbers[path]}
                    if changing - widened:
                        self._widened[skeleton] = widened | changing
                        raise _Again
            branched = branched or pending.branched
            parent = pending.parent
        return widened

    # --- blocks ----------------------------------------------------------------------------------

    def _block(self, number: int) -> ProgramBlock:
        """Run a state until a value decides, or until ways may meet."""
        pending = self._pending[number]
        values = take_apart(pending.state, pending.widened).values
        frame = pending.state[-1]
        line = frame.block.statements[0].line if frame.block.statements else frame.block.end.line
        builder = Builder(self._shared, [spec_of(value) for value in values], frame.flow.site(line))
        stack = list(rebuilt(pending.state, builder.taken(), pending.widened))
        while True:
            end = self._step(number, builder, stack)
            if end is not None:
                return end

    def _step(self, number: int, builder: Builder, stack: List[Frame]) -> Optional[ProgramBlock]:
        """Run one block of the innermost function; the finished block, if this ends it."""
        frame = stack[-1]
        self._run(builder, frame)
        end = frame.block.end
        builder.line = frame.flow.site(end.line)
        if isinstance(end, Branch):
            condition = self._guarded(builder, frame, lambda: _condition(frame.names[end.condition]))
            if isinstance(condition, Number):
                return self._choose(number, builder, stack, condition)
            stack[-1] = frame._replace(block=end.then if condition else end.other)
        elif isinstance(end, Jump):
            stack[-1] = frame._replace(block=end.to)
        elif isinstance(end, Invoke):
            result = self._guarded(builder, frame, lambda: called(builder, end, frame.names))
            stack[-1] = frame._replace(block=end.to)
            if isinstance(result, Framed):
                stack.append(entered(result, end.target))
                return None
            stack[-1].names[end.target] = result
        else:
            result = frame.names[end.name]
            if len(stack) == 1:
                return self._finish(builder, result)
            stack.pop()
            stack[-1].names[frame.target] = result
            if frame.flow.returns > 1:
                return self._goto(number, builder, stack)
            return None
        return self._goto(number, builder, stack) if stack[-1].block.joins else None

    def _run(self, builder: Builder, frame: Frame) -> None:
        """The statements of a block."""
        everything = frame.flow.function.__globals__
        for statement in frame.block.statements:
            builder.line = frame.flow.site(statement.line)
            self._guarded(
                builder, frame, lambda: exec(statement.code, {**everything, **FUNCTIONS}, frame.names)
            )

    def _guarded(self, builder: Builder, frame: Frame, run: Any) -> Any:
        try:
            return run()
        except ProgramError as error:
            if '\n' in str(error) or ': a program' in str(error):
                raise
            raise ProgramError(f'{builder.line}\n  {error}') from None
        except Exception as error:
            raise ProgramError(
                f'{builder.line}\n  fails while the program is made: '
                f'{type(error).__name__}: {error}'
            ) from error

    # --- ends ------------------------------------------------------------------------------------

    def _choose(self, number, builder, stack, condition: Number) -> ProgramBlock:
        end = stack[-1].block.end
        ways = []
        for block in (end.then, end.other):
            state = (*stack[:-1], stack[-1]._replace(block=block))
            to, values = self._to(state, number, True)
            ways.append(Goto(to, tuple(map(builder.place_of, values))))
        place = builder.place_of(condition)
        wanted = [place, *ways[0].values, *ways[1].values]
        return builder.finished(Choose(place, ways[0], ways[1], builder.line), wanted)  # type: ignore

    def _goto(self, number, builder, stack) -> ProgramBlock:
        to, values = self._to(tuple(stack), number, False)
        places = tuple(map(builder.place_of, values))
        return builder.finished(Goto(to, places), places)

    def _finish(self, builder: Builder, result: Any) -> ProgramBlock:
        leaves: List[Any] = []
        template = flatten(result, Dynamic, leaves)
        places = tuple(map(builder.place_of, leaves))
        return builder.finished(Finish(template, places), places)


def _called(net, *arguments):
    return net(*arguments)


def _condition(value: Any) -> Any:
    """What decides: a bool of Python's, or a number of the sample."""
    if isinstance(value, Tensor):
        value = value.asscalar()
    if isinstance(value, Number):
        return value if value.kind == 'bool' else value != 0
    return bool(value)


def _is_known(frame: Frame) -> bool:
    """Whether a ``for`` loop is over items that are known, so that it can be unrolled."""
    items = frame.block.items
    return bool(items) and not isinstance(frame.names.get(items), Counted)


def _is_inside(before: State, head: State) -> bool:
    """Whether a state is one of the loop that begins at another."""
    depth = len(head) - 1
    return (
        len(before) > depth
        and before[depth].flow is head[depth].flow
        and before[depth].block.number in head[depth].block.inside
    )


def _pruned(frame: Frame, innermost: bool) -> Frame:
    """Without variables that nothing reads any more."""
    live = frame.block.live
    return frame._replace(names={name: each for name, each in frame.names.items() if name in live})
