"""Counts what a program is made of, from its source."""

import ast
from collections import Counter
from collections.abc import Iterator

_SIMPLE: dict[type[ast.AST], str] = {
    ast.Break: 'break',
    ast.Continue: 'continue',
    ast.IfExp: 'conditional expression',
    ast.ListComp: 'list comprehension',
    ast.DictComp: 'dict comprehension',
    ast.SetComp: 'set comprehension',
    ast.GeneratorExp: 'generator expression',
    ast.NamedExpr: ':=',
    ast.AnnAssign: 'annotated assignment',
    ast.Starred: 'star in a call, list or target',
    ast.List: 'list',
    ast.Tuple: 'tuple',
    ast.Dict: 'dict',
    ast.Set: 'set',
}


def constructs(source: str) -> 'Counter[str]':
    """How often each is in `Net` and in the forward of `Part`."""
    found: Counter[str] = Counter()
    for module in ast.parse(source).body:
        if isinstance(module, ast.ClassDef) and module.name in ('Net', 'Part'):
            for method in module.body:
                if isinstance(method, ast.FunctionDef) and method.name != '__init__':
                    found.update(_of_method(method))
    return found


def depth(source: str) -> int:
    """How many loops and branches are in each other."""
    return max(_depth(node) for node in ast.parse(source).body)


def _depth(node: ast.AST) -> int:
    own = isinstance(node, (ast.For, ast.While, ast.If))
    inner = max(map(_depth, ast.iter_child_nodes(node)), default=0)
    if isinstance(node, ast.If) and node.orelse and isinstance(node.orelse[0], ast.If):
        return max(1 + max(map(_depth, node.body)), max(map(_depth, node.orelse)))  # elif
    return own + inner


def _of_method(method: ast.FunctionDef) -> Iterator[str]:
    last = method.body[-1]
    if method.name != 'forward':
        yield 'method'
    for node in ast.walk(method):
        if type(node) in _SIMPLE:
            yield _SIMPLE[type(node)]
        elif isinstance(node, ast.Return):
            yield 'return at the end' if node is last else 'early return'
        elif isinstance(node, ast.Call):
            yield from _of_call(node, method.name)
        elif isinstance(node, (ast.For, ast.While, ast.If)):
            yield from _of_flow(node)
        elif isinstance(node, ast.Assign):
            yield from _of_assignment(node)
        elif isinstance(node, ast.AugAssign):
            target = 'item' if isinstance(node.target, ast.Subscript) else 'name'
            yield f'{_symbol(node.op)}= of a{"n" * (target == "item")} {target}'
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp)):
            yield f'operator {_symbol(node.op)}'
        elif isinstance(node, ast.Compare):
            yield 'chained comparison' if len(node.ops) > 1 else f'operator {_symbol(node.ops[0])}'
        elif isinstance(node, ast.Subscript):
            yield 'slice' if isinstance(node.slice, ast.Slice) else 'index'


def _symbol(op: ast.AST) -> str:
    return {
        'Add': '+', 'Sub': '-', 'Mult': '*', 'Div': '/', 'FloorDiv': '//', 'Mod': '%', 'Pow': '**',
        'BitAnd': '&', 'BitOr': '|', 'BitXor': '^', 'USub': 'minus', 'UAdd': 'plus', 'Not': 'not',
        'And': 'and', 'Or': 'or', 'Lt': '<', 'LtE': '<=', 'Gt': '>', 'GtE': '>=', 'Eq': '==',
        'NotEq': '!=', 'In': 'in', 'NotIn': 'not in', 'Is': 'is', 'IsNot': 'is not',
    }[type(op).__name__]  # fmt: skip


def _of_flow(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.If):
        yield 'if'
        if node.orelse:
            inner = node.orelse[0]
            yield 'elif' if isinstance(inner, ast.If) and len(node.orelse) == 1 else 'else'
    elif isinstance(node, ast.While):
        yield 'while'
        if node.orelse:
            yield 'while with else'
    elif isinstance(node, ast.For):
        over = node.iter.func if isinstance(node.iter, ast.Call) else None
        name = over.id if isinstance(over, ast.Name) else 'a list, dict, tuple or array'
        yield f'for over {name}'
        if node.orelse:
            yield 'for with else'


def _of_assignment(node: ast.Assign) -> Iterator[str]:
    if len(node.targets) > 1:
        yield 'several targets'
    for target in node.targets:
        if isinstance(target, ast.Tuple):
            yield 'unpacking'
        elif isinstance(target, ast.Subscript):
            yield 'item assigned'


def _of_call(node: ast.Call, method: str) -> Iterator[str]:
    function = node.func
    name = ast.unparse(function) if hasattr(ast, 'unparse') else ''
    if node.keywords:
        yield 'keyword argument'
    if isinstance(function, ast.Name):
        yield f'call of {name.rstrip("0123456789")}'
    elif name == f'self.{method}':
        yield 'recursion'
    elif name.startswith(('self.step', 'self.deeper')):
        yield 'call of a method'
    elif name.startswith('self.layers['):
        yield 'call of self.layers[...]'
    elif name.startswith(('self.', 'mx.', 'math.')) and '(' not in name:
        yield f'call of {name}'
    elif isinstance(function, ast.Attribute):
        yield f'call of .{function.attr}'
