"""A function's control flow: simple statements in blocks, and what connects these."""

import linecache
from collections.abc import Sequence
from types import CodeType
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

T = TypeVar('T')


class Statement(NamedTuple):
    """A statement on values that are there: it reads names, and writes some."""

    code: CodeType
    reads: frozenset[str]
    writes: frozenset[str]
    line: int


class Invoke(NamedTuple):
    """``target = function(*arguments, **keywords)``, of values that are there."""

    target: str
    function: str
    arguments: tuple[tuple[bool, str], ...]  # whether it has a star
    keywords: tuple[tuple[Optional[str], str], ...]  # None: two stars
    to: 'CodeBlock'
    line: int


class Jump(NamedTuple):
    """On to another block."""

    to: 'CodeBlock'
    line: int


class Branch(NamedTuple):
    """To one of two blocks."""

    condition: str
    then: 'CodeBlock'
    other: 'CodeBlock'
    line: int


class Return(NamedTuple):
    """Out of the function."""

    name: str
    line: int


End = Union[Invoke, Jump, Branch, Return]


class CodeBlock:
    """Statements without a branch, and how they end. Blocks are numbered so that what comes first
    has the smaller number. `live` are names that this block or later ones read before they write
    them; `joins` tells whether several blocks lead here."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.end: Any = None
        self.number = -1
        self.live: frozenset[str] = frozenset()
        self.joins = False

    @property
    def next(self) -> list['CodeBlock']:
        """Where it leads."""
        if isinstance(self.end, Branch):
            return [self.end.then, self.end.other]
        return [] if isinstance(self.end, Return) else [self.end.to]

    @property
    def reads_at_end(self) -> frozenset[str]:
        """Names that the end needs."""
        end = self.end
        if isinstance(end, Invoke):
            names = [name for _, name in end.arguments + end.keywords]
            return frozenset([end.function, *names])
        if isinstance(end, Branch):
            return frozenset([end.condition])
        return frozenset([end.name] if isinstance(end, Return) else [])


class Flow(NamedTuple):
    """A function as blocks; the first is its entry. `places` has, for ``for`` loops, the name that
    counts and the one that holds what the loop is over."""

    function: Any  # a FunctionType, which mypy would bind
    file: str
    blocks: list[CodeBlock]
    places: dict[str, str]

    @property
    def returns(self) -> int:
        """From how many places."""
        return sum([isinstance(block.end, Return) for block in self.blocks])


def site(file: str, line: int) -> str:
    """A line of a file with what is written there."""
    return f'{file}:{line}: {linecache.getline(file, line).strip()}'.rstrip(': ')


def connected(entry: CodeBlock) -> list[CodeBlock]:
    """The blocks that can be reached, empty ones left out, numbered and looked through."""
    order = in_order(entry, lambda block: block.next)
    before = {id(block): 0 for block in order}
    for number, block in enumerate(order):
        block.number = number
        for to in block.next:
            before[id(to)] += 1
    for block in order:
        block.joins = before[id(block)] > 1
    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            live = _live_before(block)
            changed = changed or live != block.live
            block.live = live
    return order


def in_order(first: T, following: Callable[[T], Sequence[T]]) -> list[T]:
    """All that can be reached, in an order in which loops come before what follows them: the
    reverse of that in which a search in depth leaves them."""
    # Where a loop ends is visited before its inside, and so comes after it in the end.
    order: list[T] = []
    waiting, seen = [(first, reversed(following(first)))], {first}
    while waiting:
        block, rest = waiting[-1]
        to = next(rest, None)
        if to is None:
            order.append(block)
            waiting.pop()
        elif to not in seen:
            seen.add(to)
            waiting.append((to, reversed(following(to))))
    return order[::-1]


def _live_before(block: CodeBlock) -> frozenset[str]:
    live = frozenset().union(*[to.live for to in block.next])
    live = live - {block.end.target} if isinstance(block.end, Invoke) else live
    live |= block.reads_at_end
    for statement in reversed(block.statements):
        live = (live - statement.writes) | statement.reads
    return live
