"""Make functions that wait where they read a value, of functions that read in place.

A function that calls ``asnumpy()`` or ``asscalar()`` becomes a generator, which yields what it
reads. So does one that read the truth of a value in the export, as by ``if value``. And so do
functions that call these: methods are found by their names. Then samples can take turns. Properties
and functions that are handed on, as to ``map``, read in place, and so do lambdas.
"""

import ast
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Any

import numpy as np

_READS = {'asnumpy': '', 'asscalar': '__scalar'}
_LATER = ast.Lambda, ast.GeneratorExp  # run when others say so


def finished(result: Any, codes: frozenset) -> Generator[Any, Any, Any]:
    """Yield what a function reads that was made a generator, and return what it returns."""
    if isinstance(result, GeneratorType) and result.gi_code in codes:
        result = yield from result
    return result


def read_truth(value: Any) -> Any:
    """Yield a value, and return its only number. Return other objects as they are."""
    if not hasattr(value, 'asnumpy'):
        return value
    array = np.asarray((yield value))
    if array.size != 1:
        raise ValueError('a value of several numbers is neither true nor false')
    return array.item()


def scalar_of(array: np.ndarray) -> Any:
    """Return what MXNet's ``asscalar`` makes of an array: only of one axis a number."""
    if array.size != 1:
        raise ValueError('The current array is not a scalar')
    return array[0] if array.ndim == 1 else array


def which_wait(content: Mapping[str, Any], bodies: Sequence[list[ast.stmt]]) -> set[int]:
    """Return the functions of a bundle that are to be generators, by their numbers."""
    methods: dict[str, set[int]] = {}
    handed_on: set[int] = set()
    for data in content['classes']:
        for name, number in data['methods'].items():
            methods.setdefault(name, set()).add(number)
            if name.startswith('__'):
                handed_on.add(number)
        handed_on.update(data['properties'].values())
    calls = [_CallsInText(body, data, methods) for body, data in zip(bodies, content['functions'])]
    for each in calls:
        handed_on |= each.handed_on
    net = content['parts'][0]['class'] if content['parts'] else None
    forwards = {
        data['methods']['forward']
        for place, data in enumerate(content['classes'])
        if 'forward' in data['methods'] and place != net
    }
    if any([each.may_call_net for each in calls]):
        forwards = methods.get('forward', set())
    met = [bool(data['reads']) for data in content['functions']]
    waiting = {number for number, each in enumerate(calls) if each.reads or met[number]} - handed_on
    while True:
        more = {
            number
            for number, each in enumerate(calls)
            if each.called & waiting or (each.calls_objects and forwards & waiting)
        } - handed_on
        if more <= waiting:
            return waiting
        waiting |= more


class _CallsInText:
    """What a function calls, as far as its text tells."""

    def __init__(
        self,
        body: list[ast.stmt],
        data: Mapping[str, Any],
        methods: Mapping[str, set[int]],
    ):
        self.reads = self.calls_objects = self.may_call_net = False
        self.called: set[int] = set()
        self.handed_on: set[int] = set()
        self._names, self._args, self._methods = data['globals'], data['args'], methods
        for each in body:
            self._look(each, False)

    def _look(self, node: ast.AST, later: bool) -> None:
        later = later or isinstance(node, _LATER)
        if isinstance(node, ast.Call):
            called = self._functions_of(node.func)
            (self.handed_on if later else self.called).update(called)
            if isinstance(node.func, ast.Attribute):
                self.reads |= node.func.attr in _READS and not later
                self.calls_objects |= not later
                self._look(node.func.value, later)
            elif not isinstance(node.func, ast.Name):
                self.calls_objects |= not later
                self._look(node.func, later)
            else:
                self.calls_objects |= node.func.id not in self._names and not later
                self.may_call_net |= node.func.id in self._args
            for child in (*node.args, *node.keywords):
                self._look(child, later)
            return
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            self.may_call_net |= node.value.id in self._args  # by another name
        if isinstance(node, (ast.Name, ast.Attribute)):
            self.handed_on |= self._functions_of(node)
        for child in ast.iter_child_nodes(node):
            self._look(child, later)

    def _functions_of(self, node: Any) -> set[int]:
        if isinstance(node, ast.Attribute):
            return self._methods.get(node.attr, set())
        kind, what = self._names.get(node.id, ('', 0)) if isinstance(node, ast.Name) else ('', 0)
        return {what} if kind == 'function' else set()


class Waits(ast.NodeTransformer):
    """Let a function yield what it reads, and what it calls that may read."""

    def __init__(self, calls_that_return: frozenset[str], lines: Sequence[int]):
        self._safe = calls_that_return  # names of functions that are no generators
        self._lines = set(lines)  # where the truth of values is read
        self._inner: list[ast.stmt] = []

    def of(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of the generator."""
        made = [self.visit(each) for each in body]
        never = ast.If(ast.Constant(False), [ast.Expr(ast.Yield(ast.Constant(None)))], [])
        return [never, *self._inner, *made]

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Leave it as it is."""
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """Leave it as it is."""
        return node

    def _truth(self, node: Any) -> Any:
        """Return an expression that waits for the truth of a value, on such a line."""
        if isinstance(node, ast.BoolOp):
            node.values = list(map(self._truth, node.values))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._truth(node.operand)
        elif self._lines & {getattr(each, 'lineno', 0) for each in ast.walk(node)}:
            read = ast.Call(ast.Name('__truth', ast.Load()), [node], [])
            return ast.copy_location(ast.YieldFrom(read), node)
        return node

    def _visit_test(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.test = self._truth(node.test)
        return node

    visit_If = visit_While = visit_IfExp = visit_Assert = _visit_test

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Wait for a value, or for what a function returns."""
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _READS and not node.args:
            read: ast.expr = ast.Yield(function.value)
            name = _READS[function.attr]
            if name:
                read = ast.Call(ast.Name(name, ast.Load()), [read], [])
            return ast.copy_location(read, node)
        if isinstance(function, ast.Name) and function.id in self._safe:
            return node
        made = ast.Call(ast.Name('__finished', ast.Load()), [node], [])
        return ast.copy_location(ast.YieldFrom(made), node)

    def _comprehension(self, node: Any) -> ast.AST:
        first, *rest = node.generators
        first.iter = self.visit(first.iter)  # outside of the comprehension's own variables
        outer, self._inner = self._inner, []
        over, first.iter = first.iter, ast.Constant(None)
        self.generic_visit(node)
        first.iter = over
        within, self._inner = self._inner, outer
        for each in node.generators:
            each.ifs = list(map(self._truth, each.ifs))
        inside = [getattr(node, 'elt', None), getattr(node, 'key', None),
                  getattr(node, 'value', None), first.target, *first.ifs, *rest]  # fmt: skip
        waits = [each for each in inside if each is not None and any(_waits_in(each))]
        if not waits:
            return node
        only = isinstance(node, ast.ListComp) and waits == [node.elt]
        if only and isinstance(node.elt, ast.Yield) and not any(_waits_in(node.elt.value or node)):
            node.elt = node.elt.value  # all at once
            return ast.copy_location(ast.Yield(node), node)
        name = f'__part{len(self._inner)}'
        self._inner.append(_as_function(node, name, within))
        made = ast.Call(ast.Name(name, ast.Load()), [first.iter], [])
        return ast.copy_location(ast.YieldFrom(made), node)

    visit_ListComp = visit_SetComp = visit_DictComp = _comprehension


def _waits_in(node: ast.AST) -> Iterator[bool]:
    for each in ast.walk(node):
        if isinstance(each, (ast.Yield, ast.YieldFrom)):
            yield True


def _as_function(node: Any, name: str, within: list[ast.stmt]) -> ast.stmt:
    """Return a comprehension as a generator that returns what it would be. Those `within` it are
    functions of it."""
    found = ast.Name('__found', ast.Load())
    if isinstance(node, ast.DictComp):
        empty: ast.expr = ast.Dict([], [])
        item = ast.Subscript(found, node.key, ast.Store())
        added: ast.stmt = ast.Assign([item], node.value)
    else:
        is_list = isinstance(node, ast.ListComp)
        empty = ast.List([], ast.Load())
        add = ast.Attribute(found, 'append', ast.Load())
        added = ast.Expr(ast.Call(add, [node.elt], []))
        if not is_list:
            made = ast.Call(ast.Name('__set', ast.Load()), [found], [])
    for place, each in reversed(list(enumerate(node.generators))):
        for test in reversed(each.ifs):
            added = ast.If(test, [added], [])
        over = ast.Name('__over', ast.Load()) if place == 0 else each.iter
        added = ast.For(each.target, over, [added], [])
    result = made if isinstance(node, ast.SetComp) else found
    begin = ast.Assign([ast.Name('__found', ast.Store())], empty)
    body = [*within, begin, added, ast.Return(result)]
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg('__over')], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    function: Any = ast.FunctionDef(name, arguments, body, [])
    function.type_params = []
    return ast.copy_location(function, node)
