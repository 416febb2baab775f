"""Expressions as simple ones, of which nothing else has to be evaluated before: calls, ``and``,
``or`` and ``a if b else c`` become statements and branches that come before."""

import ast
import copy
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import ProgramError
from .flow import Branch, CodeBlock, End, Invoke, Jump, Statement, site

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
    """A name that is read."""
    return ast.Name(name, ast.Load())


def call(function: str, *arguments: ast.expr) -> ast.Call:
    """A call of one of the functions that rewritten code calls, or of Python's."""
    return ast.Call(load(function), list(arguments), [])


def _is_taken_apart(node: ast.AST) -> bool:
    """Whether something in it becomes a statement of its own."""
    return any(
        isinstance(each, _TAKEN_APART)
        or (isinstance(each, ast.Compare) and len(each.ops) > 1)
        or _may_choose(each)
        for each in ast.walk(node)
    )


def _may_choose(node: ast.AST) -> bool:
    """Whether an element is read at a place that may be a number of the sample."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and not isinstance(node.slice, (ast.Slice, ast.Tuple))
        and any(isinstance(each, ast.Name) for each in ast.walk(node.slice))
    )


class ExpressionRewriter:
    """Makes blocks of expressions of a file's function; what writes names is in `statements`."""

    def __init__(self, file: str):
        self._file = file
        self._line = 0
        self._names = 0
        self._block = CodeBlock()

    def _comprehension(self, node: Any) -> ast.expr:
        """A list, set or dict that loops make."""
        raise NotImplementedError

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
        code = compile(ast.Module([statement], []), self._file, 'exec')
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
        return load(name)

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

    def _values(self, nodes: Sequence[ast.expr]) -> list[ast.expr]:
        """Simple expressions, evaluated in this order where that could matter."""
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
            if type(each) in INSTEAD:
                self._refuse(INSTEAD[type(each)])
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
        """What is called; ``super()`` needs to be told whose it is."""
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
        name, after = self._name(), CodeBlock()
        then, other = CodeBlock(), CodeBlock()
        self._condition(node.test, then, other)
        for block, value in ((then, node.body), (other, node.orelse)):
            self._start(block)
            self._set(name, self._value(value))
            self._jump(after)
        self._start(after)
        return load(name)

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
        return load(name)


def _as_function(node: ast.expr) -> ast.expr:
    """``not`` and ``in``, of which Python makes a bool at once, as calls."""
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
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _as_function(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return _as_function(node)
