"""Step 1: a Python function as simple statements, in blocks that branches connect.

What Python evaluates inside one expression, such as calls, ``and``, ``or`` and ``a if b else c``,
becomes a statement of its own, so that each statement either computes with values that are there,
or calls one function. Statements run as Python's own code (``exec``), on values that know how to be
computed with (`values`); calls, conditions and loops are taken by `specialise`.
"""

import ast
import copy
import inspect
import textwrap
from collections.abc import Sequence
from functools import cache
from types import FunctionType
from typing import Any

from ..errors import ProgramError
from .expressions import INSTEAD, ITEM, ITEMS, MORE, OWN, ExpressionRewriter, call, load
from .flow import Branch, CodeBlock, Flow, Return, connected


@cache
def flow_of(function: FunctionType) -> Flow:
    """The control flow of a function of the user's. Raises ProgramError if its source is not there,
    or has something that programs do not have."""
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


_ATTRIBUTE = 'an attribute written, which would change the model: return the value instead'


class _FunctionRewriter(ExpressionRewriter):
    """Makes blocks of one function's tree."""

    def __init__(self, file: str):
        super().__init__(file)
        self._entry = self._block
        self.places: dict[str, str] = {}
        self._loops: list[tuple[CodeBlock, CodeBlock]] = []  # where to continue, where to break to

    def run(self, definition: ast.FunctionDef) -> list[CodeBlock]:
        """All blocks that can be reached."""
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
        """Let a target have what a simple expression gives."""
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

    # --- expressions that write names -------------------------------------------------------------

    def _value_namedexpr(self, node: ast.NamedExpr) -> ast.expr:
        value = self._keep(self._value(node.value))
        self._store(node.target, value)
        return value

    def _comprehension(self, node: Any) -> ast.expr:
        """As loops that add to a list, set or dict."""
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


class _Renamed(ast.NodeTransformer):
    def __init__(self, names):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _loaded(target: Any) -> ast.expr:
    """What stands where something is to be written."""
    if isinstance(target, ast.Name):
        return load(target.id)
    return ast.Subscript(target.value, target.slice, ast.Load())
