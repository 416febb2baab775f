"""Functions of a user's model as syntax trees in JSON, and read again from it.

A function may have the nodes of `_FIELDS` and no others: no imports, no handlers of exceptions, no
generators. Names that begin with two underscores, and those in `REFUSED`, are no attributes.
"""

import ast
import math
from typing import Any

from ..errors import BundleError
from ..short_repr import brief

_NODES = (
    'Assign AugAssign For While If Return Break Continue Pass Expr Assert Raise Delete Constant '
    'Name Attribute Subscript Slice Call keyword Starred BinOp UnaryOp BoolOp Compare IfExp List '
    'Tuple Dict Set ListComp SetComp DictComp GeneratorExp comprehension Lambda arguments arg '
    'JoinedStr FormattedValue NamedExpr Add Sub Mult Div FloorDiv Mod Pow MatMult BitAnd BitOr '
    'BitXor LShift RShift UAdd USub Not Invert And Or Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn'
)
_LEFT_OUT = 'ctx', 'kind', 'type_comment', 'annotation'
_FIELDS = {
    name: tuple([each for each in getattr(ast, name)._fields if each not in _LEFT_OUT])
    for name in _NODES.split()
}
_STORED = {
    'Assign': 'targets', 'AugAssign': 'target', 'For': 'target', 'comprehension': 'target',
    'NamedExpr': 'target',
}  # fmt: skip
# What Python's grammar calls nodes that users write by a word.
_WORDS = {
    'FunctionDef': 'a function inside of a function', 'ClassDef': 'a class inside of a function',
    'Import': 'import', 'ImportFrom': 'import', 'With': 'with', 'Try': 'try', 'TryStar': 'except*',
    'Match': 'match', 'YieldFrom': 'yield from', 'Nonlocal': 'nonlocal', 'Await': 'await',
    'AsyncFor': 'async', 'AsyncWith': 'async', 'AsyncFunctionDef': 'async',
}  # fmt: skip
REFUSED = frozenset(
    'format format_map mro tofile dump dumps ctypes base gi_frame gi_code gi_yieldfrom cr_frame '
    'cr_code ag_frame ag_code f_back f_builtins f_code f_globals f_locals f_trace tb_frame tb_next '
    'co_code co_consts func_globals func_code'.split()
)


class NotData(Exception):
    """A node that a bundle cannot hold."""

    def __init__(self, node: Any, why: str):
        super().__init__(why)
        self.line, self.why = getattr(node, 'lineno', 0), why


def data_of(node: Any) -> Any:
    """Return a syntax tree as JSON. Raise NotData if a bundle cannot hold it."""
    if isinstance(node, list):
        return [data_of(each) for each in node]
    if isinstance(node, ast.AnnAssign):
        if node.value is None:
            return {'is': 'Pass'}
        node = ast.copy_location(ast.Assign([node.target], node.value), node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return {'is': 'Pass'}  # a text that documents
    if not isinstance(node, ast.AST):
        if node is not None and type(node) not in (bool, int, float, str):
            raise NotData(None, f'a constant of the type {type(node).__name__}')
        return node
    name = type(node).__name__
    if name == 'Index':  # before Python 3.9
        return data_of(node.value)  # type: ignore[attr-defined]
    if name not in _FIELDS:
        raise NotData(node, f'{_WORDS.get(name, name.lower())} is not taken')
    if hasattr(node, 'generators') and any(
        isinstance(each, ast.NamedExpr) for each in ast.walk(node)
    ):
        raise NotData(node, 'a comprehension with := is not taken')
    if isinstance(node, ast.Constant) and node.value in (math.inf, -math.inf):
        raise NotData(node, 'a number that is not finite')
    _check_names(node)
    found = {'is': name}
    for field in _FIELDS[name]:
        value = getattr(node, field, None)
        try:
            found[field] = data_of(value)
        except NotData as error:
            error.line = error.line or getattr(node, 'lineno', 0)
            raise
    if hasattr(node, 'lineno'):
        found['line'] = node.lineno
    return found


def _check_names(node: Any) -> None:
    attribute = node.attr if isinstance(node, ast.Attribute) else ''
    if attribute.startswith('__') or attribute in REFUSED:
        raise NotData(node, f'the attribute {attribute}')
    if isinstance(node, ast.Name) and node.id.startswith('__'):
        raise NotData(node, f'the name {node.id}')


def node_of(data: Any, depth: int = 0) -> Any:
    """Return data as a syntax tree, or raise BundleError."""
    if depth > 200:
        raise BundleError('a function of the bundle is nested too deeply')
    if isinstance(data, list):
        return [node_of(each, depth + 1) for each in data]
    if not isinstance(data, dict):
        return data
    name = data.get('is')
    if name not in _FIELDS:
        raise BundleError(f'{brief(name)} in the manifest is no node of a function')
    fields = {each: node_of(data.get(each), depth + 1) for each in _FIELDS[name]}
    node = getattr(ast, name)(**fields)
    if 'ctx' in node._fields:
        node.ctx = ast.Load()
    line = data.get('line', 1)
    if type(line) is not int or not 0 < line < 1 << 20:
        raise BundleError(f'{brief(line)} in the manifest is no line')
    node.lineno = node.end_lineno = line
    node.col_offset = node.end_col_offset = 0
    try:
        _check_names(node)
    except (NotData, AttributeError) as error:
        raise BundleError(f'a function of the bundle may not have {error}') from None
    if name in _STORED:
        _assign_to(fields[_STORED[name]])
    if name == 'Delete':
        for each in fields['targets']:
            each.ctx = ast.Del()
    return node


def _assign_to(target: Any) -> None:
    """Let nodes be targets of an assignment."""
    if isinstance(target, list):
        for each in target:
            _assign_to(each)
    elif 'ctx' in getattr(target, '_fields', ()):
        target.ctx = ast.Store()
        _assign_to(getattr(target, 'elts', getattr(target, 'value', None))
                   if isinstance(target, (ast.Tuple, ast.List, ast.Starred)) else None)  # fmt: skip
