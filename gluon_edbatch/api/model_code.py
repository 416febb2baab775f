"""Collect the functions, classes and blocks that a model's code reaches, as data."""

import ast
import builtins
import dis
import inspect
from collections.abc import Sequence
from dataclasses import MISSING, is_dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.bundle.exported_model import modules_of
from gluon_edbatch_core.bundle.function_trees import NotData, data_of
from gluon_edbatch_core.bundle.made_code import METHODS, SAFE
from gluon_edbatch_core.bundle.manifest import BundleWriter
from gluon_edbatch_core.bundle.sample_schema import SchemaBuilder, merged
from gluon_edbatch_core.bundle.value_operators import METHODS as VALUE_METHODS
from gluon_edbatch_core.errors import BundleError
from gluon_edbatch_core.short_repr import brief

from ..effects import is_users
from ..effects.source import node_of
from ..mx.blocks import children_of
from ..record.sites import Site
from . import functional
from . import nd as operators
from .export import CellsContent

_MODULES = {
    'numpy': 'numpy', 'math': 'math', 'gluon_edbatch': 'edb', operators.__name__: 'edb.nd',
    'mxnet': 'mxnet', mx.nd.__name__: 'mxnet.nd',
}  # fmt: skip
HOST = modules_of(functional, mx.nd)
_CONSTANTS = bool, int, float, str, tuple, list, dict
_GLUONS = frozenset(vars(gluon.Block())) - {'forward'}
# Methods of MXNet's arrays that nothing has without MXNet.
_OF_ARRAYS = {name for name in dir(NDArray) if not any(
    [hasattr(kind, name) for kind in (np.ndarray, list, dict, str, set, tuple, int)]
)} - VALUE_METHODS  # fmt: skip
_SEQUENCES = gluon.nn.Sequential, gluon.nn.HybridSequential


class ModelCode:
    """Collect the functions, classes and blocks that a model's code reaches, as data."""

    def __init__(
        self,
        net: gluon.Block,
        names: dict[gluon.Block, list[str]],
        cells: CellsContent,
        bundle: BundleWriter,
        reads: set[Site],
    ):
        self._net, self._names, self._cells, self._bundle = net, names, cells, bundle
        self._reads = sorted(reads)  # lines that read values
        self.arrays: list[np.ndarray] = []
        self._array_entries: list[dict[str, Any]] = []
        self._numbers_of_arrays: dict[int, int] = {}  # by id
        self._containers: dict[int, int] = {}  # numbers of lists and dicts, by id
        self._container_data: list[list[Any]] = []
        self._functions: list[Any] = []
        self._numbers: dict[int, int] = {}  # of functions, by id
        self._waiting: list[tuple[int, FunctionType]] = []
        self._classes: list[type] = []
        self._class_data: list[dict[str, Any]] = []
        self._parts: list[gluon.Block] = []
        self._part_data: list[dict[str, Any]] = []
        self._inner: dict[str, dict[str, Any]] = {}  # attributes of cells, by name
        self._mentioned: set[str] = set()
        self._called: dict[str, str] = {}  # methods, and a line that calls each
        self._named: set[type] = set()  # classes of which code may make objects
        self._kept: list[Any] = []  # whose ids are keys

    def content(self, samples: Sequence[tuple]) -> dict[str, Any]:
        """Return what the manifest holds of the model's code and samples."""
        net = self._value(self._net, 'the model')
        schema = SchemaBuilder(self._thing)
        kinds: list[Any] = []
        while True:
            self._read_functions()
            before = self._size()
            self._fill_classes()
            self._fill_parts()
            self._read_functions()
            if before == self._size():
                schema = SchemaBuilder(self._thing)
                try:
                    kinds = _kinds_of(schema, samples)
                except RecursionError:
                    raise BundleError(
                        'the samples refer to themselves, as by a parent: an exported model takes '
                        'trees of objects'
                    ) from None
                if before == self._size():
                    break
        self._check_methods()
        for cls, data in zip(self._classes, self._class_data):
            data['bases'] = [self._classes.index(base) for base in cls.__mro__[1:]
                             if base in self._classes and not data['is_tuple']]  # fmt: skip
        return {
            'functions': self._functions, 'classes': self._class_data, 'parts': self._part_data,
            'net': net, 'arguments': kinds, 'arrays': self._array_entries,
            'containers': self._container_data, 'inner': self._inner,
            'fields': {str(number): each for number, each in schema.fields.items()},
        }  # fmt: skip

    def _check_methods(self) -> None:
        """Raise if the code calls a method that only MXNet's arrays have."""
        own = {name for data in self._class_data for name in data['methods']}
        for name, where in self._called.items():
            if name not in _OF_ARRAYS or name in own:
                continue
            raise BundleError(
                f'{where}: values have no method {name} without MXNet. Put it into the '
                f'hybrid_forward of a HybridBlock, or write it otherwise'
            )

    def _size(self) -> tuple[int, ...]:
        return (
            len(self._functions), len(self._classes), len(self._parts), len(self._mentioned),
            sum([len(each['methods']) + len(each['properties']) + len(each['attributes'])
                 for each in self._class_data]),
            sum([len(each['attributes']) for each in self._part_data]),
            sum([1 + len(each) for each in self._inner.values()]),
        )  # fmt: skip

    # --- functions

    def _function(self, function: FunctionType) -> list[Any]:
        key = id(function)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._functions)
            self._functions.append(None)
            self._kept.append(function)
            self._waiting.append((number, function))
        return ['function', number]

    def _read_functions(self) -> None:
        while self._waiting:
            number, function = self._waiting.pop()
            self._functions[number] = self._function_data(function)
            lines = {line for _, line in dis.findlinestarts(function.__code__)}
            for site in self._reads:
                if site.filename == function.__code__.co_filename and site.line in lines:
                    self._functions[number]['reads'].append(site.line)

    def _function_data(self, function: FunctionType) -> dict[str, Any]:
        code = function.__code__
        site = Site(code.co_filename, code.co_firstlineno)
        node = node_of(code)
        if node is None:
            raise BundleError(
                f'{site}: the source of {function.__name__} is not at hand: write it in a file, '
                f'and at most one function a line'
            )
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            raise BundleError(f'{site}: {function.__name__} takes any arguments')
        body = node.body if isinstance(node.body, list) else [
            ast.copy_location(ast.Return(node.body), node.body)
        ]  # fmt: skip
        try:
            data = data_of(body)
        except NotData as error:
            line = site._replace(line=error.line or site.line)
            raise BundleError(f'{line}: this cannot be exported: {error.why}') from None
        args = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        defaults = list(function.__defaults__ or ())
        named = function.__kwdefaults__ or {}
        defaults += [named[name] for name in args[code.co_argcount :] if name in named]
        found = {
            'name': function.__name__ if function.__name__.isidentifier() else 'function',
            'file': Path(code.co_filename).name,
            'args': args,
            'defaults': [self._value(each, str(site)) for each in defaults],
            'body': data,
            'reads': [],
            'globals': {},
        }
        local = {*args, *[each.id for part in body for each in ast.walk(part)
                          if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)],
                 *[each.arg for part in body for each in ast.walk(part)
                   if isinstance(each, ast.arg)]}  # fmt: skip
        around = dict(zip(code.co_freevars, function.__closure__ or ()))
        for part in body:
            for each in _without_annotations(part):
                where = str(site._replace(line=getattr(each, 'lineno', site.line)))
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                    self._called.setdefault(each.func.attr, where)
                if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Attribute):
                    self._mentioned.add(each.target.attr)
                if isinstance(each, ast.Attribute):
                    if isinstance(each.ctx, ast.Load):
                        self._mentioned.add(each.attr)
                    self._check_module(each, function, around, local, where)
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    self._mentioned.add(each.value)  # as of getattr(x, 'name')
                if isinstance(each, ast.Name) and each.id not in local:
                    value = _looked_up(each.id, function, around, where)
                    found['globals'][each.id] = self._value(value, where)
        return found

    def _check_module(
        self, node: ast.Attribute, function: Any, around: Any, local: set[str], where: str
    ) -> None:
        """Raise if a function uses a name of a module that is not there."""
        parts: list[str] = []
        inner: Any = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id in local:
            return
        value = _looked_up(inner.id, function, around, where)
        for part in parts:
            if not isinstance(value, ModuleType):
                return
            module = self._module(value, where)
            if f'{module}.{part}' in HOST:
                value = getattr(value, part)
                continue
            names = SAFE.get(module) or HOST[module]
            if part not in names:
                raise BundleError(
                    f'{where}: {module}.{part} is not there without MXNet. Put it into the '
                    f'hybrid_forward of a HybridBlock, or write it otherwise'
                )
            return

    @staticmethod
    def _module(module: ModuleType, where: str) -> str:
        name = _MODULES.get(module.__name__)
        if name is None:
            raise BundleError(
                f'{where}: the module {module.__name__} is not there without MXNet. If it is your '
                f'own, import names from it'
            )
        return name

    # --- values

    def _value(self, value: Any, where: str) -> list[Any]:
        """Return a reference to a value that the model's code uses."""
        if value is None or type(value) in (bool, int, str):
            return ['constant', value]
        if type(value) is float and np.isfinite(value):
            return ['constant', value]
        if isinstance(value, gluon.Block):
            return self._block(value, where)
        for kind, names in SAFE.items():
            for name, each in names.items():
                if each is value:
                    return [kind, name]
        for module, names in HOST.items():
            for name, each in names.items():
                if each is value or getattr(operators, name, names) is value:
                    return ['host', f'{module}.{name}']
        if isinstance(value, MethodType) and is_users(value.__func__):
            raise BundleError(f'{where}: the bound method {value.__name__} is kept as a value')
        if isinstance(value, FunctionType) and is_users(value):
            return self._function(value)
        if isinstance(value, ModuleType):
            return ['module', self._module(value, where)]
        if isinstance(value, type):
            self._named.add(value)
            return ['class', self._class(value, where)]
        if isinstance(value, gluon.Parameter):
            return ['parameter', self._array(value, value.data().asnumpy())]
        if isinstance(value, NDArray):
            return ['value', self._array(value, value.asnumpy())]
        if isinstance(value, (np.ndarray, np.generic, float)):
            return ['array', self._array(value, np.asarray(value))]
        if type(value) is tuple:
            return ['tuple', [self._value(each, where) for each in value]]
        if type(value) in (list, dict):
            return ['container', self._container(value, where)]
        raise BundleError(
            f'{where}: {brief(value)} cannot be exported: use numbers, text, lists, tuples, dicts, '
            f'arrays, functions and your own classes'
        )

    def _container(self, value: Any, where: str) -> int:
        """Return the number of a list or dict, of which all who refer to it see changes."""
        number = self._containers.get(id(value))
        if number is None:
            number = self._containers[id(value)] = len(self._container_data)
            self._kept.append(value)
            data: list[Any] = [type(value).__name__, []]
            self._container_data.append(data)
            if isinstance(value, list):
                data[1] += [self._value(each, where) for each in value]
            else:
                data[1] += [[self._value(one, where) for one in pair] for pair in value.items()]
        return number

    def _array(self, value: Any, array: np.ndarray) -> int:
        if array.dtype.kind not in 'biuf':
            raise BundleError(f'an array of {array.dtype} cannot be exported')
        number = self._numbers_of_arrays.get(id(value))
        if number is None:
            number = self._numbers_of_arrays[id(value)] = len(self.arrays)
            self._kept.append(value)
            self.arrays.append(array.copy())  # the model's code may write to it
            self._array_entries.append(self._bundle.add_array(f'array{number}.npy', array))
        return number

    def _block(self, block: gluon.Block, where: str) -> list[Any]:
        names = self._names.get(block)
        if names is None:
            raise BundleError(f'{where}: {brief(block)} is not a child of the model')
        for name in names:
            if name in self._cells.cells:
                self._inner.setdefault(name, {})
                return ['cell', name]
        if block in self._parts:
            return ['part', self._parts.index(block)]
        if type(block) in _SEQUENCES:
            return ['sequence', [self._value(each, where) for each in children_of(block)]]
        if isinstance(block, gluon.HybridBlock) and not is_users(type(block).forward):
            try:
                self._cells.add_uncalled(block)
            except Exception as error:
                raise BundleError(
                    f'{where}: the samples never call {names[0]}, and how it is called cannot be '
                    f'told: add a sample that does ({error})'
                ) from None
            return self._block(block, where)
        self._parts.append(block)
        self._part_data.append({'class': self._class(type(block), where), 'attributes': {}})
        return ['part', len(self._parts) - 1]

    # --- classes and blocks

    def _class(self, cls: type, where: str) -> int:
        if cls in self._classes:
            return self._classes.index(cls)
        is_tuple = issubclass(cls, tuple) and hasattr(cls, '_fields')
        is_block = issubclass(cls, gluon.Block)
        if cls.__module__.split('.')[0] in ('builtins', 'mxnet', 'numpy') or (
            not (is_tuple or is_block) and not _is_plain_class(cls)
        ):
            raise BundleError(f'{where}: the class {cls.__name__} cannot be exported')
        left_out = None if is_block else _left_out(cls)
        if left_out is not None:
            raise BundleError(
                f'{where}: the class {cls.__name__} has {left_out}, which Python runs by itself, '
                f'and an exported class has not: write a method or function with another name'
            )
        self._classes.append(cls)
        number, fields = len(self._class_data), list(getattr(cls, '_fields', ()))
        data: dict[str, Any] = {'name': cls.__name__, 'is_tuple': is_tuple, 'fields': fields}
        data.update(methods={}, properties={}, attributes={}, is_data=is_dataclass(cls))
        self._class_data.append(data)
        defaults = getattr(cls, '_field_defaults', {}).values()
        if is_dataclass(cls):
            data['fields'] = [each.name for each in dataclass_fields(cls)]
            given = [each.default for each in dataclass_fields(cls)]
            if any([each.default_factory is not MISSING for each in dataclass_fields(cls)]):
                given = []  # an object that the code makes needs all fields
            defaults = [each for each in given if each is not MISSING]
        data['defaults'] = [self._value(each, where) for each in defaults]
        return number

    def _thing(self, value: Any) -> Optional[tuple[int, Sequence[str]]]:
        """Return the class and the fields of a sample's object; None for other objects."""
        cls = type(value)
        if isinstance(value, tuple) and hasattr(cls, '_fields'):
            return self._class(cls, 'the samples'), list(cls._fields)
        if not _is_plain_class(cls):
            return None
        return self._class(cls, 'the samples'), self.fields_of(value) or []

    def fields_of(self, value: Any) -> Optional[list[str]]:
        """Return the fields of an object of the user's class that the model's code names."""
        cls = type(value)
        if isinstance(value, tuple) and hasattr(cls, '_fields'):
            return list(cls._fields)
        if not _is_plain_class(cls):
            return None
        names = dict.fromkeys(getattr(value, '__dict__', ()))
        for base in cls.__mro__:
            slots = base.__dict__.get('__slots__', ())
            names.update(dict.fromkeys([slots] if isinstance(slots, str) else slots))
        return [name for name in names if name in self._mentioned]

    def _fill_classes(self) -> None:
        """Add the methods and attributes of classes that the code names."""
        for cls, data in zip(list(self._classes), list(self._class_data)):
            own = {'forward'} if issubclass(cls, gluon.Block) else METHODS
            own = own if cls in self._named else own - {'__init__'}
            for name in sorted(self._mentioned | own):
                value = inspect.getattr_static(cls, name, None)
                if isinstance(value, (staticmethod, classmethod)):
                    raise BundleError(
                        f'{cls.__name__}.{name} is a {type(value).__name__}, which cannot be '
                        f'exported: make it a function'
                    )
                is_made = is_dataclass(cls) and name in METHODS and name not in _written_in(cls)
                if isinstance(value, FunctionType) and is_users(value) and not is_made:
                    data['methods'][name] = self._function(value)[1]
                elif isinstance(value, property) and isinstance(value.fget, FunctionType):
                    data['properties'][name] = self._function(value.fget)[1]
                elif type(value) in _CONSTANTS and not hasattr(gluon.Block, name):
                    data['attributes'][name] = self._value(value, f'{cls.__name__}.{name}')

    def _fill_parts(self) -> None:
        """Add the attributes of blocks that the code names, and those of cells that are cells."""
        for block, data in zip(list(self._parts), list(self._part_data)):
            self._fill(data['attributes'], block, gluon.Block)
        blocks = {name: block for block, several in self._names.items() for name in several}
        for name, found in list(self._inner.items()):
            self._fill(found, blocks[name], gluon.HybridBlock)

    def _fill(self, found: dict[str, Any], block: gluon.Block, kind: type) -> None:
        where = self._names[block][0]
        for name in sorted(self._mentioned - set(found) - _GLUONS):
            value = vars(block).get(name, found)
            if value is not found and (kind is gluon.Block or isinstance(value, kind)):
                found[name] = self._value(value, f'{where}.{name}')


# Special methods that exported code does not reach, or whose text no result has.
_UNSEEN = frozenset(
    '__repr__ __str__ __format__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __copy__ '
    '__deepcopy__ __sizeof__ __dir__ __del__ __init_subclass__ __class_getitem__'.split()
)


def _kinds_of(schema: SchemaBuilder, samples: Sequence[tuple]) -> list[Any]:
    kinds: list[Any] = [None] * len(samples[0])
    for number, sample in enumerate(samples):
        for place, value in enumerate(sample):
            found = schema.kind_of(value, f'samples[{number}]')
            kinds[place] = merged(kinds[place], found)
    return kinds


def _written_in(cls: type) -> set[str]:
    """Return the methods of a dataclass that are not made by the decorator."""
    return {name for base in cls.__mro__ for name, each in vars(base).items()
            if isinstance(each, FunctionType) and is_users(each)
            and node_of(each.__code__) is not None}  # fmt: skip


def _left_out(cls: type) -> Optional[str]:
    """Return what of a user's class Python runs by itself, and an exported class would be without:
    a special method, or an option of a dataclass. None if there is nothing."""
    written = _written_in(cls)
    for name in sorted(written - METHODS - _UNSEEN):
        if name.startswith('__') and name.endswith('__'):
            return name
    if is_dataclass(cls):
        options: Any = cls.__dataclass_params__  # type: ignore[attr-defined]
        if options.order or (not options.eq and '__eq__' not in written):
            return 'order=True' if options.order else 'eq=False'
        if not all([each.compare for each in dataclass_fields(cls)]):
            return 'compare=False'
    return None


def _is_plain_class(cls: type) -> bool:
    """Return whether a class is the user's, and its objects have fields and nothing else."""
    bases = [each for each in cls.__mro__ if each is not object]
    return bool(bases) and all(
        [isinstance(each.__dict__.get('__module__'), str)
         and each.__module__.split('.')[0] not in ('builtins', 'mxnet', 'numpy', 'typing', 'enum')
         and not each.__flags__ & 1 << 8 and each.__flags__ & 1 << 9 for each in bases]
    )  # fmt: skip


def _without_annotations(node: ast.AST) -> Any:
    """Yield the nodes of a statement but for annotations."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        for field, value in ast.iter_fields(each):
            if field != 'annotation':
                waiting.extend([one for one in (value if isinstance(value, list) else [value])
                                if isinstance(one, ast.AST)])  # fmt: skip


def _looked_up(name: str, function: FunctionType, around: dict[str, Any], where: str) -> Any:
    """Return the value of a name that a function does not assign."""
    if name in around:
        return around[name].cell_contents
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        value = getattr(builtins, name)
        if value not in [*SAFE['python'].values()]:
            raise BundleError(f'{where}: {name} cannot be exported')
        return value
    raise BundleError(f"{where}: name '{name}' is not defined")
