"""Step 1: a Python function as simple statements, in blocks that branches connect.

What Python evaluates inside one expression, such as calls, ``and``, ``or`` and ``a if b else c``,
becomes a statement of its own, so that each statement either computes with values that are there,
or calls one function. Statements run as Python's own code (``exec``), on values that know how to be
computed with (`values`); calls, conditions and loops are taken by `specialise`.
"""

import ast
import copy
import inspect
import linecache
import textwrap
from functools import lru_cache
from types import CodeType, FunctionType
from typing import (
    Any,
    Dict,
    FrozenSet,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from ..errors import ProgramError
from .subscripts import unwrapped, wrapped

# Functions that rewritten code calls; no name in Python has a point in it.
NOT, IN, ITEMS, MORE, ITEM, OWN = '.not', '.in', '.items', '.more', '.item', '.own'


class Statement(NamedTuple):
    """A statement on values that are there: it reads names, and writes some."""

    code: CodeType
    reads: FrozenSet[str]
    writes: FrozenSet[str]
    line: int


class Invoke(NamedTuple):
    """``target = function(*arguments, **keywords)``, of values that are there."""

    target: str
    function: str
    arguments: Tuple[Tuple[bool, str], ...]  # whether it has a star
    keywords: Tuple[Tuple[Optional[str], str], ...]  # None: two stars
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
    """Statements without a branch, and how they end.

    Attributes
    ----------
    number : int
        Among the function's, in an order in which what comes first has the smaller one.
    live : frozenset of str
        Names that this block or later ones read before they write them.
    joins : bool
        Whether several blocks lead here.
    """

    def __init__(self) -> None:
        self.statements: List[Statement] = []
        self.end: Any = None
        self.number = -1
        self.live: FrozenSet[str] = frozenset()
        self.joins = False

    @property
    def next(self) -> List['CodeBlock']:
        """Where it leads."""
        if isinstance(self.end, Branch):
            return [self.end.then, self.end.other]
        return [] if isinstance(self.end, Return) else [self.end.to]

    @property
    def reads_at_end(self) -> FrozenSet[str]:
        """Names that the end needs."""
        end = self.end
        if isinstance(end, Invoke):
            names = [name for _, name in end.arguments + end.keywords]
            return frozenset([end.function, *names])
        if isinstance(end, Branch):
            return frozenset([end.condition])
        return frozenset([end.name] if isinstance(end, Return) else [])


class Flow(NamedTuple):
    """A function as blocks; the first is its entry.

    Attributes
    ----------
    function : FunctionType
    file : str
    blocks : list of CodeBlock
    places : dict of str to str
        For ``for`` loops: the name that counts, and the one that holds what the loop is over.
    """

    function: Any  # a FunctionType, which mypy would bind
    file: str
    blocks: List[CodeBlock]
    places: Dict[str, str]

    @property
    def returns(self) -> int:
        """From how many places."""
        return sum([isinstance(block.end, Return) for block in self.blocks])

    def site(self, line: int) -> str:
        """A line for people."""
        return site(self.file, line)


def site(file: str, line: int) -> str:
    """A line of a file with what is written there."""
    return f'{file}:{line}: {linecache.getline(file, line).strip()}'.rstrip(': ')


@lru_cache(maxsize=None)
def flow_of(function: FunctionType) -> Flow:
    """The control flow of a function of the user's.

    Raises
    ------
    ProgramError
        If its source is not there, or has something that programs do not have.
    """
    file, first = function.__code__.co_filename, function.__code__.co_firstlineno
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function.__code__)))
    except (OSError, TypeError, SyntaxError) as error:
        raise ProgramError(
            f'{file}:{first}: the source of {function.__qualname__} is not at hand ({error}); '
            f'a program is made of functions that are written in files',
            placed=True,
        ) from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise ProgramError(
            f'{file}:{first}: {function.__qualname__} is not a plain function; write it with def',
            placed=True,
        )
    ast.increment_lineno(definition, first - 1)
    definition = unwrapped(definition)
    rewriter = _FunctionRewriter(file)
    return Flow(function, file, rewriter.run(definition), rewriter.places)


_ATTRIBUTE = 'an attribute written, which would change the model: return the value instead'
_INSTEAD = {
    ast.With: 'a with statement: put it around the call of the program',
    ast.Try: 'try: test values with if',
    ast.Raise: 'raise: return something that says so',
    ast.Global: 'global: return the value',
    ast.Nonlocal: 'nonlocal: return the value',
    ast.FunctionDef: 'a function inside a function: make it a method',
    ast.AsyncFunctionDef: 'a function inside a function: make it a method',
    ast.ClassDef: 'a class inside a function: put it at the top of the file',
    ast.Import: 'an import: put it at the top of the file',
    ast.ImportFrom: 'an import: put it at the top of the file',
    ast.Delete: 'del: leave the name alone',
    ast.Assert: 'assert: check what comes in before the program is called',
    ast.Lambda: 'lambda: make it a method',
    ast.Yield: 'yield: append to a list and return it',
    ast.YieldFrom: 'yield: append to a list and return it',
    ast.Await: 'await',
}
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_TAKEN_APART = (ast.Call, ast.BoolOp, ast.IfExp, ast.NamedExpr, *_COMPREHENSIONS)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(function: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(_load(function), list(arguments), [])


def _is_taken_apart(node: ast.AST) -> bool:
    """Whether something in it becomes a statement of its own."""
    return any(
        isinstance(each, _TAKEN_APART) or (isinstance(each, ast.Compare) and len(each.ops) > 1)
        for each in ast.walk(node)
    )


class _FunctionRewriter:
    """Makes blocks of one function's tree."""

    def __init__(self, file: str):
        self._file = file
        self._line = 0
        self._names = 0
        self.places: Dict[str, str] = {}
        self._entry = self._block = CodeBlock()
        self._loops: List[Tuple[CodeBlock, CodeBlock]] = []  # where to continue, where to break to

    def run(self, definition: ast.FunctionDef) -> List[CodeBlock]:
        """All blocks that can be reached."""
        self._body(definition.body)
        self._end(Return(self._keep(ast.Constant(None)).id, self._line))
        return _connected(self._entry)

    # --- blocks ----------------------------------------------------------------------------------

    def _end(self, end: End) -> None:
        """End this block, unless it has ended: what follows is not reached then."""
        if self._block.end is None:
            self._block.end = end

    def _jump(self, to: CodeBlock) -> None:
        self._end(Jump(to, self._line))

    def _start(self, block: CodeBlock) -> None:
        self._block = block

    def _refuse(self, what: str) -> NoReturn:
        raise ProgramError(
            f'{site(self._file, self._line)}\n  a program cannot have {what}', placed=True
        )

    def _name(self) -> str:
        self._names += 1
        return f'.{self._names}'

    def _do(self, statement: ast.stmt) -> None:
        """Add a statement of which nothing has to be taken apart."""
        if self._block.end is not None:
            return
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        reads = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        writes = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            reads.add(statement.target.id)
        for node in ast.walk(statement):
            if isinstance(node, (ast.expr, ast.stmt)):
                node.lineno = node.end_lineno = self._line
                node.col_offset = node.end_col_offset = 0
        code = compile(wrapped(ast.Module([statement], [])), self._file, 'exec')
        self._block.statements.append(
            Statement(code, frozenset(reads), frozenset(writes), self._line)
        )

    def _set(self, name: str, value: ast.expr) -> None:
        self._do(ast.Assign([ast.Name(name, ast.Store())], value))

    def _keep(self, value: ast.expr) -> ast.Name:
        """A name of its own for what a simple expression gives now."""
        if isinstance(value, ast.Name) and value.id[0] == '.':
            return value
        name = self._name()
        self._set(name, value)
        return _load(name)

    # --- statements ------------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._line = statement.lineno
            handler = getattr(self, f'_{type(statement).__name__.lower()}', None)
            if handler is None:
                kind = type(statement)
                self._refuse(_INSTEAD.get(kind, kind.__name__.lower()))
            handler(statement)

    def _pass(self, _: ast.Pass) -> None:
        pass

    def _expr(self, statement: ast.Expr) -> None:
        if not isinstance(statement.value, ast.Constant):  # a docstring
            self._keep(self._value(statement.value))

    def _return(self, statement: ast.Return) -> None:
        value = self._keep(self._value(statement.value or ast.Constant(None)))
        self._end(Return(value.id, self._line))

    def _assign(self, statement: ast.Assign) -> None:
        value = self._value(statement.value)
        if len(statement.targets) > 1:
            value = self._keep(value)
        for target in statement.targets:
            self._store(target, value)

    def _annassign(self, statement: ast.AnnAssign) -> None:
        if statement.value is not None:
            self._store(statement.target, self._value(statement.value))

    def _store(self, target: ast.expr, value: ast.expr) -> None:
        """Let a target have what a simple expression gives."""
        if isinstance(target, ast.Attribute):
            self._refuse(_ATTRIBUTE)
        elif isinstance(target, ast.Subscript):
            value = self._keep(value)
            target = self._place(target)
        elif isinstance(target, (ast.Tuple, ast.List)):
            names = [self._name() for _ in target.elts]
            inner = [part.value if isinstance(part, ast.Starred) else part for part in target.elts]
            stores: List[ast.expr] = [
                ast.Starred(ast.Name(name, ast.Store()), ast.Store())
                if isinstance(part, ast.Starred)
                else ast.Name(name, ast.Store())
                for part, name in zip(target.elts, names)
            ]
            self._do(ast.Assign([ast.Tuple(stores, ast.Store())], value))
            for part, name in zip(inner, names):
                self._store(part, _load(name))
            return
        self._do(ast.Assign([target], value))

    def _place(self, target: ast.Subscript) -> ast.Subscript:
        holder, key = self._values([target.value, target.slice])
        return ast.Subscript(_call(OWN, holder), key, ast.Store())

    def _augassign(self, statement: ast.AugAssign) -> None:
        target: Any = statement.target
        if isinstance(target, ast.Attribute):
            self._refuse(_ATTRIBUTE)
        if isinstance(target, ast.Subscript):
            target = self._place(target)
        value = self._value(statement.value)
        if isinstance(target, ast.Name):
            self._do(ast.Expr(_call(OWN, _load(target.id))))
        self._do(ast.AugAssign(target, statement.op, value))

    def _if(self, statement: ast.If) -> None:
        then, other, after = CodeBlock(), CodeBlock(), CodeBlock()
        self._condition(statement.test, then, other)
        for block, body in ((then, statement.body), (other, statement.orelse)):
            self._start(block)
            self._body(body)
            self._jump(after)
        self._start(after)

    def _while(self, statement: ast.While) -> None:
        head, body, other = CodeBlock(), CodeBlock(), CodeBlock()
        self._jump(head)
        self._start(head)
        self._condition(statement.test, body, other)
        self._loop(statement, body, head, other)

    def _for(self, statement: ast.For) -> None:
        items = self._keep(_call(ITEMS, self._value(statement.iter)))
        place = self._keep(ast.Constant(0))
        self.places[place.id] = items.id
        head, body, other, again = CodeBlock(), CodeBlock(), CodeBlock(), CodeBlock()
        self._jump(head)
        self._start(head)
        more = self._keep(_call(MORE, items, place))
        self._end(Branch(more.id, body, other, self._line))
        line = self._line
        self._start(body)
        self._store(statement.target, _call(ITEM, items, place))
        body = self._block
        self._loop(statement, body, again, other)
        after, self._line = self._block, line
        self._start(again)
        self._set(place.id, ast.BinOp(place, ast.Add(), ast.Constant(1)))
        self._jump(head)
        self._start(after)

    def _loop(self, statement: Any, body: CodeBlock, again: CodeBlock, other: CodeBlock) -> None:
        """The inside of a loop, and what follows it."""
        after = CodeBlock()
        self._loops.append((again, after))
        self._start(body)
        self._body(statement.body)
        self._jump(again)
        self._loops.pop()
        self._start(other)
        self._body(statement.orelse)
        self._jump(after)
        self._start(after)

    def _break(self, _: ast.Break) -> None:
        self._jump(self._loops[-1][1])

    def _continue(self, _: ast.Continue) -> None:
        self._jump(self._loops[-1][0])

    # --- conditions ------------------------------------------------------------------------------

    def _condition(self, test: ast.expr, then: CodeBlock, other: CodeBlock) -> None:
        """Go on in one of two blocks."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._condition(test.operand, other, then)
        elif isinstance(test, ast.BoolOp):
            *first, last = test.values
            for each in first:
                rest = CodeBlock()
                both = isinstance(test.op, ast.And)
                self._condition(each, rest if both else then, other if both else rest)
                self._start(rest)
            self._condition(last, then, other)
        else:
            value = self._keep(self._value(test))
            self._end(Branch(value.id, then, other, self._line))

    # --- expressions -----------------------------------------------------------------------------

    def _values(self, nodes: Sequence[ast.expr]) -> List[ast.expr]:
        """Simple expressions, evaluated in this order where that could matter."""
        made: List[ast.expr] = []
        for place, node in enumerate(nodes):
            value = self._value(node)
            if not isinstance(value, ast.Constant) and any(
                map(_is_taken_apart, nodes[place + 1 :])
            ):
                value = self._kept(value)
            made.append(value)
        return made

    def _kept(self, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Starred):
            return ast.Starred(self._keep(value.value), ast.Load())
        if isinstance(value, ast.Slice):
            return value
        return self._keep(value)

    def _value(self, node: ast.expr) -> ast.expr:
        """A simple expression for one; what has to come before becomes statements."""
        if not _is_taken_apart(node):
            return self._plain(node)
        name = type(node).__name__.lower()
        handler = getattr(self, f'_value_{name}', None)
        if handler is not None:
            return handler(node)
        if isinstance(node, _COMPREHENSIONS):
            return self._comprehension(node)
        return self._with_parts(node)

    def _plain(self, node: ast.expr) -> ast.expr:
        """It without ``not`` and ``in``, which are functions here."""
        for each in ast.walk(node):
            if type(each) in _INSTEAD:
                self._refuse(_INSTEAD[type(each)])
        return _AsFunctions().visit(copy.deepcopy(node))

    def _with_parts(self, node: ast.expr) -> ast.expr:
        """The same expression of simple parts."""
        made = copy.copy(node)
        fields = [
            (field, value)
            for field, value in ast.iter_fields(node)
            if isinstance(value, ast.expr)
            or (isinstance(value, list) and value and isinstance(value[0], (ast.expr, type(None))))
        ]
        flat = [
            each for _, value in fields for each in (value if isinstance(value, list) else [value])
        ]
        parts = iter(self._values([each for each in flat if each is not None]))
        for field, value in fields:
            if isinstance(value, list):
                setattr(made, field, [each if each is None else next(parts) for each in value])
            else:
                setattr(made, field, next(parts))
        return _as_function(made)

    def _value_call(self, node: ast.Call) -> ast.expr:
        if any(isinstance(node.func, ast.Name) and node.func.id == own for own in (ITEMS, MORE)):
            return node
        function = self._function(node)
        values = [*node.args, *[each.value for each in node.keywords]]
        if isinstance(function, ast.Attribute):
            # The method is looked up when its arguments are there: what they call may end the
            # block, and a method that was kept would be one of an object of that block.
            owner, *made = self._values([function.value, *values])
            made = [ast.Attribute(owner, function.attr, ast.Load()), *made]
        else:
            made = self._values([function, *values])
        names = [
            self._keep(each.value if isinstance(each, ast.Starred) else each).id for each in made
        ]
        target, to = self._name(), CodeBlock()
        arguments = tuple(
            [(isinstance(each, ast.Starred), name) for each, name in zip(node.args, names[1:])]
        )
        keywords = tuple(
            [(each.arg, name) for each, name in zip(node.keywords, names[1 + len(node.args) :])]
        )
        self._end(Invoke(target, names[0], arguments, keywords, to, self._line))
        self._start(to)
        return _load(target)

    def _function(self, node: ast.Call) -> ast.expr:
        """What is called; ``super()`` needs to be told whose it is."""
        if isinstance(node.func, ast.Name) and node.func.id == 'super' and not node.args:
            node.args = [_load('__class__'), _load('self')]
        return node.func

    def _value_boolop(self, node: ast.BoolOp) -> ast.expr:
        name, after = self._name(), CodeBlock()
        for each in node.values[:-1]:
            self._set(name, self._value(each))
            rest = CodeBlock()
            ways = (rest, after) if isinstance(node.op, ast.And) else (after, rest)
            self._end(Branch(name, *ways, self._line))
            self._start(rest)
        self._set(name, self._value(node.values[-1]))
        self._jump(after)
        self._start(after)
        return _load(name)

    def _value_ifexp(self, node: ast.IfExp) -> ast.expr:
        name, after = self._name(), CodeBlock()
        then, other = CodeBlock(), CodeBlock()
        self._condition(node.test, then, other)
        for block, value in ((then, node.body), (other, node.orelse)):
            self._start(block)
            self._set(name, self._value(value))
            self._jump(after)
        self._start(after)
        return _load(name)

    def _value_namedexpr(self, node: ast.NamedExpr) -> ast.expr:
        value = self._keep(self._value(node.value))
        self._store(node.target, value)
        return value

    def _value_compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1:
            return self._with_parts(node)
        name, after = self._name(), CodeBlock()
        left: ast.expr = self._keep(self._value(node.left))
        for place, (op, right) in enumerate(zip(node.ops, node.comparators)):
            right = self._keep(self._value(right))
            self._set(name, ast.Compare(left, [op], [right]))
            if place < len(node.ops) - 1:
                rest = CodeBlock()
                self._end(Branch(name, rest, after, self._line))
                self._start(rest)
            left = right
        self._jump(after)
        self._start(after)
        return _load(name)

    def _comprehension(self, node: Any) -> ast.expr:
        """As loops that add to a list, set or dict."""
        empty = {ast.SetComp: ast.Call(_load('set'), [], []), ast.DictComp: ast.Dict([], [])}
        made = self._keep(self._value(empty.get(type(node), ast.List([], ast.Load()))))
        own = {
            each.id: f'{self._name()}{each.id}'
            for generator in node.generators
            for each in ast.walk(generator.target)
            if isinstance(each, ast.Name)
        }
        node = _Renamed(own).visit(copy.deepcopy(node))
        body: List[ast.stmt] = [self._added(made, node)]
        for generator in reversed(node.generators):
            for test in reversed(generator.ifs):
                body = [ast.If(test, body, [], lineno=self._line)]
            body = [ast.For(generator.target, generator.iter, body, [], lineno=self._line)]
        self._body(body)
        return made

    def _added(self, made: ast.Name, node: Any) -> ast.stmt:
        if isinstance(node, ast.DictComp):
            place = ast.Subscript(made, node.key, ast.Store())
            return ast.Assign([place], node.value, lineno=self._line)
        method = 'add' if isinstance(node, ast.SetComp) else 'append'
        call = ast.Call(ast.Attribute(made, method, ast.Load()), [node.elt], [])
        return ast.Expr(call, lineno=self._line)


def _as_function(node: ast.expr) -> ast.expr:
    """``not`` and ``in``, of which Python makes a bool at once, as calls."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _call(NOT, node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        found = _call(IN, node.left, node.comparators[0])
        if isinstance(node.ops[0], ast.In):
            return found
        if isinstance(node.ops[0], ast.NotIn):
            return _call(NOT, found)
    return node


class _AsFunctions(ast.NodeTransformer):
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _as_function(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return _as_function(node)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


# --- all blocks ----------------------------------------------------------------------------------


def _connected(entry: CodeBlock) -> List[CodeBlock]:
    """The blocks that can be reached, empty ones left out, numbered and looked through."""
    order: List[CodeBlock] = []
    _visit(entry, order, set())
    order.reverse()
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


def _visit(block: CodeBlock, order: List[CodeBlock], seen: set) -> None:
    """Append blocks, what they lead to first."""
    # Where a loop ends is visited before its inside, and so comes after it in the end.
    waiting = [(block, reversed(block.next))]
    seen.add(id(block))
    while waiting:
        block, following = waiting[-1]
        to = next(following, None)
        if to is None:
            order.append(block)
            waiting.pop()
        elif id(to) not in seen:
            seen.add(id(to))
            waiting.append((to, reversed(to.next)))


def _live_before(block: CodeBlock) -> FrozenSet[str]:
    live = live_after(block) | block.reads_at_end
    for statement in reversed(block.statements):
        live = (live - statement.writes) | statement.reads
    return live


def live_after(block: CodeBlock) -> FrozenSet[str]:
    """Names that are read where a block leads."""
    live = frozenset().union(*[to.live for to in block.next])
    return live - {block.end.target} if isinstance(block.end, Invoke) else live
