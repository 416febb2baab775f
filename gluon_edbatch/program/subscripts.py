"""What stands in brackets, as Python 3.9 has it in its trees: Python 3.8 wraps it."""

import ast
import copy
import sys
from typing import Any

WRAPS = sys.version_info < (3, 9)


def unwrapped(tree: Any) -> Any:
    """A tree in which all in brackets is an expression."""
    return _Unwrapped().visit(tree) if WRAPS else tree


def wrapped(tree: Any) -> Any:
    """The same as this Python compiles it."""
    return _Wrapped().visit(copy.deepcopy(tree)) if WRAPS else tree


class _Unwrapped(ast.NodeTransformer):
    def visit_Index(self, node: Any) -> Any:
        return self.visit(node.value)

    def visit_ExtSlice(self, node: Any) -> Any:
        return ast.Tuple([self.visit(each) for each in node.dims], ast.Load())


class _Wrapped(ast.NodeTransformer):
    def visit_Subscript(self, node: Any) -> Any:
        self.generic_visit(node)
        inside: Any = node.slice
        if isinstance(inside, ast.Tuple) and any(isinstance(e, ast.Slice) for e in inside.elts):
            parts: Any = [e if isinstance(e, ast.Slice) else _index(e) for e in inside.elts]
            node.slice = ast.ExtSlice(parts)
        elif isinstance(inside, ast.expr) and not isinstance(inside, ast.Slice):
            node.slice = _index(inside)
        return node


def _index(value: Any) -> Any:
    return ast.Index(value)
