"""Functions and classes of a user's model, made of the data of a bundle. Needs NumPy only.

The global names of a function are in a table of the bundle. Each refers to another function, to a
class, to a constant, or to a function of Python, ``math`` or NumPy that `SAFE` names. So a bundle
can compute, and can reach neither files nor the interpreter (see `function_trees`). Loops count
their steps.
"""

import ast
import builtins
import math
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from ..errors import BundleError
from ..short_repr import brief
from .function_trees import REFUSED, node_of
from .suspending import Waits, finished, read_truth, scalar_of, which_wait

# Attributes of this package's objects that lead to what reads and writes files. Objects of the
# user's classes may have them.
_INNER = frozenset('first form forms load log policies policy program save scheduler types'.split())
USERS = 'exported'  # the module that classes of the user have
_PYTHON = (
    'abs all any bool chr dict divmod enumerate filter float frozenset getattr hasattr int '
    'isinstance iter len list map max min next ord pow range reversed round set slice sorted str '
    'sum tuple zip AssertionError IndexError KeyError NotImplementedError RuntimeError '
    'StopIteration TypeError ValueError'
)
_NUMPY = (
    'abs all any arange argmax argmin argsort array asarray clip concatenate cumsum dot empty '
    'equal exp expand_dims eye float32 float64 full inf int32 int64 isfinite log matmul max '
    'maximum mean min minimum newaxis ones pi prod reshape sort sqrt stack sum tanh tile transpose '
    'tril triu unique vstack hstack where zeros bool_'
)
_MATH = 'ceil cos e exp floor inf isfinite isnan log log2 pi pow sin sqrt tanh'
SAFE: dict[str, dict[str, Any]] = {
    'python': {name: getattr(builtins, name) for name in _PYTHON.split()},
    'numpy': {name: getattr(np, name) for name in _NUMPY.split()},
    'math': {name: getattr(math, name) for name in _MATH.split()},
}
MOST_STEPS = 10_000_000  # of loops, for one list of samples
METHODS = frozenset(
    '__init__ __len__ __iter__ __getitem__ __contains__ __bool__ __eq__ __hash__ __call__ '
    '__lt__ __add__'.split()
)


def _attribute(owner: Any, name: Any, *default: Any) -> Any:
    if not isinstance(name, str) or name.startswith('__') or name in REFUSED:
        raise AttributeError(f'{brief(name)} is no attribute in an exported model')
    is_inner = type(owner).__module__.startswith('gluon_edbatch')
    if name in _INNER and is_inner and not isinstance(owner, Namespace):
        raise AttributeError(f'{name} is no attribute of a {type(owner).__name__} here')
    return getattr(owner, name, *default)


def _import(name: str, *args: Any) -> Any:
    """Import a part of NumPy, as its functions do when they first need it. The code of a bundle
    cannot name this function."""
    if name.partition('.')[0] != 'numpy':
        raise ImportError(f'an exported model imports nothing, as {name}')
    return __import__(name, *args)


def _has_attribute(owner: Any, name: Any) -> bool:
    missing = object()
    return _attribute(owner, name, missing) is not missing


# What stands for functions that could reach more than a bundle may.
_IN_PLACE = {'getattr': _attribute, 'hasattr': _has_attribute}


class Namespace:
    """A module's names that a function may use."""

    def __init__(self, name: str, names: Mapping[str, Any]):
        self._name = name
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f'an exported model has no {self._name}.{name}')


class Steps:
    """Count the steps of loops. A program that does not end raises an error."""

    def __init__(self, most: int = MOST_STEPS):
        self.most, self.left = most, most

    def again(self) -> None:
        """Begin to count anew."""
        self.left = self.most

    def __call__(self) -> None:
        """Count one step; raise an error after the last."""
        self.left -= 1
        if self.left < 0:
            raise RuntimeError(
                f'the model runs more than {self.most} steps of loops for these samples: '
                f'load(..., most_steps=...) allows more'
            )


class _WatchedCode(ast.NodeTransformer):
    """Let each turn of a loop count as a step, and look at attributes that may lead elsewhere."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Let such an attribute be looked at when the code runs."""
        self.generic_visit(node)
        if node.attr not in _INNER or not isinstance(node.ctx, ast.Load):
            return node
        made = ast.Call(
            ast.Name('__attribute', ast.Load()), [node.value, ast.Constant(node.attr)], []
        )
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def _visit_loop(self, node: Any) -> Any:
        self.generic_visit(node)
        step = ast.Expr(ast.Call(ast.Name('__step', ast.Load()), [], []))
        node.body.insert(0, ast.fix_missing_locations(ast.copy_location(step, node)))
        return node

    visit_For = visit_While = _visit_loop


class Reference(NamedTuple):
    """What a name refers to: its kind, and which one of that kind."""

    kind: str
    what: Any


class MadeCode:
    """The functions and classes of a bundle, made from its data.

    Parameters
    ----------
    content : dict
        ``functions`` and ``classes``.
    resolve : callable
        Returns what a reference to anything but a function, a class or a safe name refers to.
    steps : callable
        Is called for each step of a loop.
    waits : bool
        Whether functions that read values become generators (see `suspending`).
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        resolve: Callable[[Reference], Any],
        steps: Any,
        waits: bool = False,
    ):
        self._resolve, self._steps = resolve, steps
        self._generators: set[Any] = set()
        self._containers: dict[int, Any] = {}
        self._container_data = _items(content, 'containers')
        self.classes = _classes_of(_items(content, 'classes'))
        data = _items(content, 'functions')
        bodies = [[_WatchedCode().visit(node_of(one)) for one in each['body']] for each in data]
        waiting = which_wait(content, bodies) if waits else set[int]()
        self.functions: list[FunctionType] = []
        for number, each in enumerate(data):
            safe = frozenset([name for name, one in each['globals'].items()
                              if one[0] not in ('function', 'part')
                              or (one[0] == 'function' and one[1] not in waiting)])  # fmt: skip
            body = (
                Waits(safe, each['reads']).of(bodies[number])
                if number in waiting
                else bodies[number]
            )
            self.functions.append(self._function(each, body))
            if number in waiting:
                self._generators.add(self.functions[-1].__code__)
        self.generators = frozenset(self._generators)
        for function, each in zip(self.functions, data):
            function.__globals__.update(
                {name: self.value(one) for name, one in each['globals'].items()},
                __finished=self._finished, __set=set, __scalar=scalar_of,
                __truth=read_truth,
            )  # fmt: skip
            function.__defaults__ = tuple([self.value(one) for one in each['defaults']])
        for cls, each in zip(self.classes, content['classes']):
            self._fill(cls, each)

    def _finished(self, result: Any) -> Any:
        return finished(result, self.generators)

    def _fill(self, cls: Any, data: Mapping[str, Any]) -> None:
        """Give a class its methods and attributes."""
        for name, number in data['methods'].items():
            setattr(cls, _method_name(name), self.functions[number])
        for name, number in data['properties'].items():
            setattr(cls, _method_name(name), property(self.functions[number]))
        if data['is_data']:
            cls.__init__.__defaults__ = tuple([self.value(each) for each in data['defaults']])
        if data['is_tuple']:
            cls.__new__.__defaults__ = tuple([self.value(each) for each in data['defaults']])
        for name, each in data['attributes'].items():
            setattr(cls, _method_name(name), self.value(each))

    def value(self, data: Any) -> Any:
        """Return what a reference in the manifest refers to."""
        kind, what = data
        if kind == 'function':
            return self.functions[what]
        if kind == 'class':
            return self.classes[what]
        if kind == 'constant':
            if isinstance(what, (dict, list)):
                raise BundleError(f'{brief(what)} in the manifest is no constant')
            return what
        if kind == 'tuple':
            return tuple([self.value(each) for each in what])
        if kind == 'container':
            return self._container(what)
        if kind == 'module':
            names = SAFE[what] if what in SAFE else self._resolve(Reference(kind, what))
            return Namespace(what, names)
        if kind in SAFE:
            found = SAFE[kind][what]
            return _IN_PLACE.get(what, found) if kind == 'python' else found
        return self._resolve(Reference(kind, what))

    def _container(self, number: int) -> Any:
        """Return a list or dict, the same for all who refer to it."""
        if number not in self._containers:
            kind, items = self._container_data[number]
            made: Any = self._containers.setdefault(number, [] if kind == 'list' else {})
            if kind == 'list':
                made.extend(map(self.value, items))
            else:
                made.update({self.value(key): self.value(each) for key, each in items})
        return self._containers[number]

    def _function(self, data: Mapping[str, Any], body: list[Any]) -> FunctionType:
        name, args = data['name'], data['args']
        for each in (name, *args):
            if not (isinstance(each, str) and each.isidentifier()):
                raise BundleError(f'{brief(each)} in the manifest is no name')
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(each) for each in args], kwonlyargs=[], kw_defaults=[],
            defaults=[],
        )  # fmt: skip
        node: Any = ast.FunctionDef(name, arguments, body, [], lineno=1, col_offset=0)
        node.type_params = []
        module = ast.fix_missing_locations(ast.Module([node], []))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('ignore', SyntaxWarning)
                code = compile(module, f'<{data["file"]}>', 'exec', 0, True)
        except (TypeError, ValueError, SyntaxError, RecursionError) as error:
            raise BundleError(f'the function {name} of the bundle is none: {error}') from None
        names: dict[str, Any] = {'__builtins__': {'__import__': _import}, '__step': self._steps}
        names['__attribute'] = _attribute
        exec(code, names)  # defines the function, and nothing else
        return names[name]


class Thing:
    """A sample, or a part of one, whose class is the user's. It has no text, as the methods that
    make it are not exported."""

    def __format__(self, form: str) -> str:
        raise BundleError(f'{type(self).__name__} has no text in an exported model')

    def __str__(self) -> str:
        return self.__format__('')


def _classes_of(data: list[Any]) -> list[type]:
    made: dict[int, type] = {}

    def make(number: int, below: tuple[int, ...] = ()) -> type:
        if number in below or not 0 <= number < len(data):
            raise BundleError('the classes of the manifest are bases of each other')
        if number not in made:
            bases = [make(each, (*below, number)) for each in data[number].get('bases', ())]
            made[number] = _class_of(data[number], (*bases, Thing))
        return made[number]

    return [make(number) for number in range(len(data))]


def _class_of(data: Mapping[str, Any], bases: tuple[type, ...]) -> type:
    name, fields = data['name'], data['fields']
    if not all([isinstance(each, str) and each.isidentifier() for each in (name, *fields)]):
        raise BundleError(f'{brief([name, *fields])} in the manifest are no names')
    if data['is_data']:
        made = make_dataclass(name, fields, bases=bases)
        made.__module__ = USERS
        return made
    if data['is_tuple']:
        return namedtuple(name, fields, module=USERS)
    return type(name, bases, {'__module__': USERS})


def _method_name(name: str) -> str:
    if not name.isidentifier() or (name.startswith('__') and name not in METHODS):
        raise BundleError(f'{name!r} in the manifest is no name of a method')
    return name


def _items(content: Mapping[str, Any], name: str) -> list[Any]:
    found = content.get(name)
    if not isinstance(found, list):
        raise BundleError(f'"{name}" of the manifest must be a list')
    return found
