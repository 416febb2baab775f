"""A function's control flow: simple statements in blocks, and the edges between these."""

import linecache
from collections import Counter
from collections.abc import Sequence
from types import CodeType
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

T = TypeVar('T')


class Statement(NamedTuple):
    """A statement that computes with existing values: it reads names, and writes some."""

    code: CodeType
    reads: frozenset[str]
    writes: frozenset[str]
    line: int


class Invoke(NamedTuple):
    """A call of existing values, ``target = function(*arguments, **keywords)``."""

    target: str
    function: str
    arguments: tuple[tuple[bool, str], ...]  # whether it has a star
    keywords: tuple[tuple[Optional[str], str], ...]  # None: two stars
    to: 'CodeBlock'
    line: int


class Jump(NamedTuple):
    """End of a block: continue in another block."""

    to: 'CodeBlock'
    line: int


class Branch(NamedTuple):
    """Continue in one of two blocks, by a condition."""

    condition: str
    then: 'CodeBlock'
    other: 'CodeBlock'
    line: int


class Return(NamedTuple):
    """End of a block: return a name's value from the function."""

    name: str
    line: int


End = Union[Invoke, Jump, Branch, Return]


class CodeBlock:
    """Statements without a branch, and how they end. Earlier blocks have smaller numbers. `live`
    are names that this block or later ones read before writing; `joins` tells whether several
    blocks lead here."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.end: Any = None
        self.number = -1
        self.live: frozenset[str] = frozenset()
        self.joins = False

    @property
    def next(self) -> list['CodeBlock']:
        """The blocks that this one leads to."""
        if isinstance(self.end, Branch):
            return [self.end.then, self.end.other]
        return [] if isinstance(self.end, Return) else [self.end.to]

    @property
    def reads_at_end(self) -> frozenset[str]:
        """Names that the block's end reads."""
        end = self.end
        if isinstance(end, Invoke):
            names = [name for _, name in end.arguments + end.keywords]
            return frozenset([end.function, *names])
        if isinstance(end, Branch):
            return frozenset([end.condition])
        return frozenset([end.name] if isinstance(end, Return) else [])


class Flow(NamedTuple):
    """A function as blocks; the first is its entry. For ``for`` loops, `places` maps the name that
    counts to the name of what is looped over."""

    function: Any  # a FunctionType, which mypy would bind
    file: str
    blocks: list[CodeBlock]
    places: dict[str, str]

    @property
    def returns(self) -> int:
        """Number of places from which the function returns."""
        return sum([isinstance(block.end, Return) for block in self.blocks])


def site(file: str, line: int) -> str:
    """Return a line of a file with its text."""
    return f'{file}:{line}: {linecache.getline(file, line).strip()}'.rstrip(': ')


def connected(entry: CodeBlock) -> list[CodeBlock]:
    """Return the blocks that can be reached, without empty ones, numbered and analysed."""
    order = in_order(entry, lambda block: block.next)
    before = Counter([to for block in order for to in block.next])
    for number, block in enumerate(order):
        block.number, block.joins = number, before[block] > 1
    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            live = _live_before(block)
            changed = changed or live != block.live
            block.live = live
    return order


def in_order(first: T, following: Callable[[T], Sequence[T]]) -> list[T]:
    """Return all reachable nodes in reverse postorder: loops come before what follows them."""
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
