"""Step 1: rewrite a Python function as simple statements, in blocks that branches connect.

Calls, ``and``, ``or`` and ``a if b else c`` inside an expression become separate statements. So
each statement either computes with existing values, or calls one function. Statements run as Python
code (``exec``) on abstract values (`abstract_values`); `specialise` handles calls, conditions and
loops.
"""

import ast
import copy
import inspect
import textwrap
from collections.abc import Sequence
from functools import cache
from types import FunctionType
from typing import Any, NoReturn

from gluon_edbatch_core.errors import ProgramError

from .flow import Branch, CodeBlock, End, Flow, Invoke, Jump, Return, Statement, connected, site

# Functions that rewritten code calls; no name in Python has a point in it.
NOT, IN, ITEMS, MORE, ITEM, OWN = '.not', '.in', '.items', '.more', '.item', '.own'
AT, CALL_AT = '.at', '.call_at'

INSTEAD = {
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


def load(name: str) -> ast.Name:
    """Return a name that is read."""
    return ast.Name(name, ast.Load())


def call(function: str, *arguments: ast.expr) -> ast.Call:
    """Return a call of a function that rewritten code calls, or of Python's."""
    return ast.Call(load(function), list(arguments), [])


def _is_taken_apart(node: ast.AST) -> bool:
    """Return whether a part of an expression becomes a separate statement."""
    return any(
        isinstance(each, _TAKEN_APART)
        or (isinstance(each, ast.Compare) and len(each.ops) > 1)
        or _may_choose(each)
        for each in ast.walk(node)
    )


def _may_choose(node: ast.AST) -> bool:
    """Return whether an element is read at a place that may be a number of the sample."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and not isinstance(node.slice, (ast.Slice, ast.Tuple))
        and any(isinstance(each, ast.Name) for each in ast.walk(node.slice))
    )


_ATTRIBUTE = 'an attribute written, which would change the model: return the value instead'


@cache
def flow_of(function: FunctionType) -> Flow:
    """Return the control flow of the user's function. Raise ProgramError if its source is missing,
    or has something that programs do not support."""
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
    rewriter = _FunctionRewriter(file)
    return Flow(function, file, rewriter.run(definition), rewriter.places)


class _FunctionRewriter:
    """Make blocks of one function's syntax tree."""

    def __init__(self, file: str):
        self._file = file
        self._line = 0
        self._names = 0
        self._entry = self._block = CodeBlock()
        self.places: dict[str, str] = {}
        self._loops: list[tuple[CodeBlock, CodeBlock]] = []  # where to continue, where to break to

    def run(self, definition: ast.FunctionDef) -> list[CodeBlock]:
        """Return all blocks that can be reached."""
        self._body(definition.body)
        self._end(Return(self._keep(ast.Constant(None)).id, self._line))
        return connected(self._entry)

    # --- statements ------------------------------------------------------------------------------

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._line = statement.lineno
            handler = getattr(self, f'_{type(statement).__name__.lower()}', None)
            if handler is None:
                kind = type(statement)
                self._refuse(INSTEAD.get(kind, kind.__name__.lower()))
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
        """Assign the value of a simple expression to a target."""
        if isinstance(target, ast.Attribute):
            self._refuse(_ATTRIBUTE)
        elif isinstance(target, ast.Subscript):
            value = self._keep(value)
            target = self._place(target)
        elif isinstance(target, (ast.Tuple, ast.List)):
            names = [self._name() for _ in target.elts]
            inner = [part.value if isinstance(part, ast.Starred) else part for part in target.elts]
            stores: list[ast.expr] = [
                ast.Starred(ast.Name(name, ast.Store()), ast.Store())
                if isinstance(part, ast.Starred)
                else ast.Name(name, ast.Store())
                for part, name in zip(target.elts, names)
            ]
            self._do(ast.Assign([ast.Tuple(stores, ast.Store())], value))
            for part, name in zip(inner, names):
                self._store(part, load(name))
            return
        self._do(ast.Assign([target], value))

    def _place(self, target: ast.Subscript) -> ast.Subscript:
        holder, key = self._values([target.value, target.slice])
        return ast.Subscript(call(OWN, holder), key, ast.Store())

    def _augassign(self, statement: ast.AugAssign) -> None:
        target: Any = statement.target
        if isinstance(target, ast.Attribute):
            self._refuse(_ATTRIBUTE)
        if isinstance(target, ast.Subscript):
            target = self._place(target)
        before: Any = None
        if any(isinstance(each, (ast.Call, ast.NamedExpr)) for each in ast.walk(statement.value)):
            before = self._keep(_loaded(target))  # Python reads it first, and they may write it
        value = self._value(statement.value)
        changed = ast.Name(before.id, ast.Store()) if before else target
        if isinstance(changed, ast.Name):
            self._do(ast.Expr(call(OWN, load(changed.id))))
        self._do(ast.AugAssign(changed, statement.op, value))
        if before:
            self._do(ast.Assign([target], before))

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
        items = self._keep(call(ITEMS, self._value(statement.iter)))
        place = self._keep(ast.Constant(0))
        self.places[place.id] = items.id
        head, body, other, again = CodeBlock(), CodeBlock(), CodeBlock(), CodeBlock()
        self._jump(head)
        self._start(head)
        more = self._keep(call(MORE, items, place))
        self._end(Branch(more.id, body, other, self._line))
        line = self._line
        self._start(body)
        self._store(statement.target, call(ITEM, items, place))
        body = self._block
        self._loop(statement, body, again, other)
        after, self._line = self._block, line
        self._start(again)
        self._set(place.id, ast.BinOp(place, ast.Add(), ast.Constant(1)))
        self._jump(head)
        self._start(after)

    def _loop(self, statement: Any, body: CodeBlock, again: CodeBlock, other: CodeBlock) -> None:
        """Add the inside of a loop, and what follows it."""
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

    # --- expressions that write names -------------------------------------------------------------

    def _value_namedexpr(self, node: ast.NamedExpr) -> ast.expr:
        value = self._keep(self._value(node.value))
        self._store(node.target, value)
        return value

    def _comprehension(self, node: Any) -> ast.expr:
        """Rewrite a comprehension as loops that add to a list, set or dict."""
        empty = {ast.SetComp: ast.Call(load('set'), [], []), ast.DictComp: ast.Dict([], [])}
        made = self._keep(self._value(empty.get(type(node), ast.List([], ast.Load()))))
        own = {
            each.id: f'{self._name()}{each.id}'
            for generator in node.generators
            for each in ast.walk(generator.target)
            if isinstance(each, ast.Name)
        }
        node = _Renamed(own).visit(copy.deepcopy(node))
        body: list[ast.stmt] = [self._added(made, node)]
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

    # --- blocks ----------------------------------------------------------------------------------

    def _end(self, end: End) -> None:
        """End this block, unless it has ended already and the end cannot be reached."""
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
        """Add a statement that needs no rewriting."""
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
        code = compile(ast.Module([statement], []), self._file, 'exec')
        self._block.statements.append(
            Statement(code, frozenset(reads), frozenset(writes), self._line)
        )

    def _set(self, name: str, value: ast.expr) -> None:
        self._do(ast.Assign([ast.Name(name, ast.Store())], value))

    def _keep(self, value: ast.expr) -> ast.Name:
        """Return a new name for the present value of a simple expression."""
        if isinstance(value, ast.Name) and value.id[0] == '.':
            return value
        name = self._name()
        self._set(name, value)
        return load(name)

    # --- conditions ------------------------------------------------------------------------------

    def _condition(self, test: ast.expr, then: CodeBlock, other: CodeBlock) -> None:
        """Branch to one of two blocks by a condition."""
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

    def _values(self, nodes: Sequence[ast.expr]) -> list[ast.expr]:
        """Return simple expressions, evaluated in this order where the order could matter."""
        made: list[ast.expr] = []
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
        """Return a simple expression for an expression; other parts become statements before."""
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
        """Return an expression in which ``not`` and ``in`` are functions."""
        for each in ast.walk(node):
            if type(each) in INSTEAD:
                self._refuse(INSTEAD[type(each)])
        return _AsFunctions().visit(copy.deepcopy(node))

    def _with_parts(self, node: ast.expr) -> ast.expr:
        """Split an expression into simple parts."""
        whole = copy.deepcopy(node)
        inside = [each for each in ast.iter_child_nodes(whole) if isinstance(each, ast.expr)]
        made: Any = _WithParts(self._values(inside)).generic_visit(whole)
        return _as_function(made)

    def _value_call(self, node: ast.Call) -> ast.expr:
        function = self._function(node)
        if _may_choose(function):
            chosen = [function.value, function.slice]
            return self._value(ast.Call(load(CALL_AT), [*chosen, *node.args], node.keywords))
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
        return load(target)

    def _value_subscript(self, node: ast.Subscript) -> ast.expr:
        if _may_choose(node):
            return self._value(call(AT, node.value, node.slice))
        return self._with_parts(node)

    def _function(self, node: ast.Call) -> Any:
        """Return the called function; ``super()`` gets its class and instance."""
        if isinstance(node.func, ast.Name) and node.func.id == 'super' and not node.args:
            node.args = [load('__class__'), load('self')]
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
        return load(name)

    def _value_ifexp(self, node: ast.IfExp) -> ast.expr:
        name, line = self._name(), self._line
        then, other = [
            ast.Assign([ast.Name(name, ast.Store())], value, lineno=line)
            for value in (node.body, node.orelse)
        ]
        self._if(ast.If(node.test, [then], [other]))
        return load(name)

    def _value_compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1:
            return self._with_parts(node)
        links: list[ast.expr] = []
        left = node.left
        for op, right in zip(node.ops, node.comparators):
            name = self._name()
            links.append(
                ast.Compare(left, [op], [ast.NamedExpr(ast.Name(name, ast.Store()), right)])
            )
            left = load(name)
        return self._value_boolop(ast.BoolOp(ast.And(), links))


def _as_function(node: ast.expr) -> ast.expr:
    """Return ``not`` and ``in``, which Python converts to a bool, as calls."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return call(NOT, node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        found = call(IN, node.left, node.comparators[0])
        if isinstance(node.ops[0], ast.In):
            return found
        if isinstance(node.ops[0], ast.NotIn):
            return call(NOT, found)
    return node


class _AsFunctions(ast.NodeTransformer):
    def visit(self, node: Any) -> Any:
        self.generic_visit(node)
        return _as_function(node)


class _WithParts(ast.NodeTransformer):
    def __init__(self, parts):
        self._parts = iter(parts)

    def visit(self, node: Any) -> Any:
        return next(self._parts) if isinstance(node, ast.expr) else node


class _Renamed(ast.NodeTransformer):
    def __init__(self, names):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _loaded(target: Any) -> ast.expr:
    """Return the expression that reads the target of an assignment."""
    made = copy.copy(target)
    made.ctx = ast.Load()
    return made
