"""Find the source of functions, as syntax trees."""

import ast
import linecache
from functools import lru_cache
from types import CodeType
from typing import Any


@lru_cache(maxsize=64)
def _functions_of(filename: str, lines: tuple[str, ...]) -> dict[int, list[Any]]:
    """Return the functions and lambdas of a file by their first line."""
    found: dict[int, list[Any]] = {}
    for node in ast.walk(ast.parse(''.join(lines))):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            first = min(
                [node.lineno, *[each.lineno for each in getattr(node, 'decorator_list', ())]]
            )
            found.setdefault(first, []).append(node)
    return found


def node_of(code: CodeType) -> Any:
    """Return the source of a function as a syntax tree; None if it is not at hand, or differs."""
    linecache.checkcache(code.co_filename)
    lines = tuple(linecache.getlines(code.co_filename))
    try:
        nodes = _functions_of(code.co_filename, lines).get(code.co_firstlineno, [])
    except (SyntaxError, ValueError):
        return None
    found = [node for node in nodes if _is_of(node, code)]
    return found[0] if len(found) == 1 else None


def _is_of(node: Any, code: CodeType) -> bool:
    """Return whether the source of a function has the names that its code has."""
    args = node.args
    names = [each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    mentioned = {getattr(each, 'id', getattr(each, 'attr', None)) for each in ast.walk(node)}
    for each in ast.walk(node):
        if isinstance(each, ast.alias):
            mentioned.update((each.name, *each.name.split('.'), each.asname))
        elif isinstance(each, ast.ImportFrom):
            mentioned.add(each.module)
    named = getattr(node, 'name', '<lambda>') == code.co_name
    taken = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    return named and names == taken and mentioned.issuperset(code.co_names)
