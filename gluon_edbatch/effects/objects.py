"""What expressions of a program may refer to, as the analysis of effects tells objects apart."""

import ast
from typing import Any, NamedTuple, Optional

from .resolved import Known

SAMPLE = 'the sample'
ARRAY = 'array'  # an element that may be of an array
Objects = frozenset[Any]
NOTHING: Objects = frozenset()


class NotFree(Exception):
    """The program may have an effect that other samples see."""


class Made(NamedTuple):
    """Objects that runs make at one place: of a class of the user, or a library's."""

    place: int
    cls: Optional[type]


class Method(NamedTuple):
    """A method of an object."""

    owner: Any
    name: str


class Bound(NamedTuple):
    """A function of the user with its first argument."""

    function: Known
    owner: Any


class Super(NamedTuple):
    """What ``super()`` returns: an object, and the class behind which its methods are looked up."""

    owner: Any
    behind: type


class Closure:
    """A function, lambda or generator that a run makes, or a known function: what its variables
    may refer to."""

    def __init__(self, node: Any, file: str, known: Optional[Known], outer: Optional['Closure']):
        self.node, self.file, self.known, self.outer = node, file, known, outer
        arguments = node.args
        self.names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        self.only = [each.arg for each in arguments.kwonlyargs]
        self.rest = [each.arg for each in (arguments.vararg, arguments.kwarg) if each]
        self.variables = {*self.names, *self.only, *self.rest}
        self.shared: set[str] = set()  # declared as global or nonlocal
        self.yields = False
        body = node.body if isinstance(node.body, list) else [node.body]
        for statement in body:
            self._find(statement)
        self.body = body
        self.variables -= self.shared

    def _find(self, node: ast.AST) -> None:
        """Find the variables of the function, without those of inner functions."""
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            self.variables.add(node.id)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self.shared.update(node.names)
        elif isinstance(node, ast.alias):
            self.variables.add(node.asname or node.name.partition('.')[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.variables.add(node.name)
        elif isinstance(node, (ast.Yield, ast.YieldFrom)):
            self.yields = True
        if isinstance(node, ast.FunctionDef):
            self.variables.add(node.name)
        elif not isinstance(node, ast.Lambda):
            for child in ast.iter_child_nodes(node):
                self._find(child)
