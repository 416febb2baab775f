"""Fingerprint what a block's calls read besides their arguments, to notice changes.

A block is traced once for many calls, so whatever its Python code reads becomes a constant. The
search starts at the block: its attributes, children, parameters and hooks; attributes of its
classes; closures, defaults and global variables of its functions; and so on from there. Only
attributes of objects, classes and modules that the code names are tracked, which keeps the search
small.
"""

import dis
import functools
import os
import sys
import sysconfig
import types
import weakref
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

import mxnet as mx
import numpy as np
from mxnet import gluon

import gluon_edbatch_core
from gluon_edbatch_core.branching.pytree import EQUAL_IF_SAME, exact

from . import versions

Fingerprint = tuple[tuple[str, Hashable], ...]

_GLUON_STATE = frozenset(
    (
        '_children _params _reg_params _scope _forward_hooks _forward_pre_hooks _cached_graph '
        '_cached_op _cached_op_args _out_format _in_format _active _flags _callback '
        '_monitor_all _backend _backend_opts _empty_prefix _prefix _name _counter _init_counter '
        '_modified'
    ).split()
)
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_MUTABLE = (list, dict, set, np.ndarray)
_UNVERSIONED = (list, deque, set, np.ndarray, bytearray, types.MappingProxyType)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_OPAQUE = (mx.nd.NDArray, mx.sym.Symbol, gluon.Parameter, gluon.ParameterDict, mx.Context)
_NOT_CALLED = frozenset(('__init__', '__new__', '__del__', '__repr__', '__str__'))
_NO_KEY = object()
_MOST_VALUES = 10_000
_MOST_BYTES = 1 << 20  # of an array whose contents are compared
_DEEPEST = 32

_CALLED_OF_FUNCTIONS = frozenset(('forward', 'backward'))
_STATE_OF_FUNCTIONS = frozenset(('_used', 'saved_tensors'))

# What the code mentions that the calls of a block, or of a class of functions, were found to run.
_names: 'weakref.WeakKeyDictionary[Any, frozenset[str]]' = weakref.WeakKeyDictionary()


class _Names(NamedTuple):
    """The names that a function and its inner functions mention."""

    code: types.CodeType  # kept alive, as it is found by its address
    mentioned: frozenset[str]  # strings included
    of_variables: frozenset[str]  # of global variables; strings, too, if it may look them up


_code_names: dict[int, _Names] = {}  # by id of the code


class Same:
    """A hashable stand-in for an object: stand-ins of one object are equal while it lives."""

    __slots__ = ('_id', '_reference')

    def __init__(self, value: Any):
        self._id = id(value)
        try:
            self._reference: Optional[weakref.ref] = weakref.ref(value)
        except TypeError:
            self._reference = None

    def __eq__(self, other: Any) -> bool:
        if other.__class__ is not Same or self._id != other._id:
            return False
        mine, others = self._reference, other._reference
        return mine is others or (
            mine is not None and others is not None and (mine() is not None and mine() is others())
        )

    def __hash__(self) -> int:
        return self._id

    @property
    def object(self) -> Any:
        """The object, while it lives; None afterwards, or if it has no weak references."""
        return None if self._reference is None else self._reference()


class Kept:
    """The fingerprint of a block, valid until something that it was computed from changes."""

    def __init__(self, block: gluon.Block, search: Any):
        number = id(block)
        self.block = weakref.ref(block, lambda _: _kept.pop(number, None))
        self.fingerprint = tuple(search.found)
        self.containers = _containers(block)
        self.entries, self._held = search.entries, search.held


_kept: dict[int, Kept] = {}  # by id


def _kept_of(block):
    """Return the kept fingerprint of a block if the block is unchanged, else None."""
    known = _kept.get(id(block))
    if known is None or known.block() is not block or not versions.unchanged(known.entries):
        return None
    return known


def fingerprint(block: gluon.Block) -> Fingerprint:
    """Return what a block's calls read besides their arguments, as a comparable value.

    Returns
    -------
    tuple of (str, hashable)
        Each value under the name by which the user knows it. Numbers, strings and containers of
        them count by value, NumPy arrays by contents, all other objects by identity.
    """
    known = _kept_of(block)
    if known is not None:
        return known.fingerprint
    search = _searched(block, lambda search: search.block(block, 'self'))
    if search.entries is None:
        _kept.pop(id(block), None)
        return tuple(search.found)
    known = _kept[id(block)] = Kept(block, search)
    return known.fingerprint


def state_of(block: gluon.Block, constants: Sequence[Any]) -> Fingerprint:
    """Fingerprint the objects among a call's constant arguments, as far as the block reads them."""
    if block not in _names:
        fingerprint(block)

    def walk(search: _Search) -> None:
        for constant in constants:
            search.add(constant, f'the {type(constant).__name__} among the arguments')

    return tuple(_searched(block, walk).found)


def fingerprint_of_function(function: Any, but: Sequence[str] = ()) -> Fingerprint:
    """Fingerprint an `autograd.Function`: all attributes except `but`, and what its code reads."""

    def walk(search: _Search) -> None:
        search.mentioned |= _CALLED_OF_FUNCTIONS
        for name, value in vars(function).items():
            if name not in but and name not in _STATE_OF_FUNCTIONS:
                search.add(value, f'self.{name}')
        search.attributes_of_class(function, type(function), 'self')

    return tuple(_searched(type(function), walk).found)


def _searched(block: Any, walk: Callable[['_Search'], Any]) -> '_Search':
    """Search until all names that a block's code mentions are known; return the last search."""
    names = _names.get(block, frozenset())
    while True:
        search = _Search(names)
        walk(search)
        if names.issuperset(search.mentioned):
            return search
        names = _names[block] = names | search.mentioned
        _kept.pop(id(block), None)  # which looked for fewer


def changed(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return the names of values that differ between two fingerprints."""
    old, new = dict(before), dict(after)
    return [name for name in {**old, **new} if old.get(name, _names) != new.get(name, _names)]


def containers(block: gluon.Block) -> list[Any]:
    """Return the attributes of a block and its descendants that users may change in place, as they
    were when its fingerprint was last computed.

    Gluon's own blocks keep the keywords of their operators in dicts that nobody touches.
    """
    known = _kept.get(id(block))
    return _containers(block) if known is None else known.containers


def _containers(block: gluon.Block) -> list[Any]:
    found = []
    if not type(block).__module__.startswith('mxnet.'):
        for name, value in block.__dict__.items():
            if isinstance(value, _MUTABLE) and name not in _GLUON_STATE:
                found.append(value)
    for child in block._children.values():
        found += _containers(child)
    return found


def contents(found: list[Any]) -> Hashable:
    """Return the present contents of containers; other objects in them count by identity."""
    search = _Search(None)
    return tuple([search.frozen(value, '') for value in found])


class _Search:
    """Search everything that can be reached from a block.

    Parameters
    ----------
    names : frozenset of str or None
        Names that the code found so far mentions; None to search containers only.

    Attributes
    ----------
    found : list of (str, hashable)
    mentioned : set of str
        Names mentioned by code that this search found.
    entries : list or None
        Versions of what was read (see `versions`); None if something has no version.
    held : list
        Objects that must live as long as `entries`.
    """

    def __init__(self, names: Union[frozenset[str], Any]) -> None:
        self._names = names
        self.found: list[tuple[str, Hashable]] = []
        self.mentioned: set[str] = set()
        self._seen: dict[int, Any] = {}  # by id; holds them
        self._left = _MOST_VALUES
        self._depth = 0
        self.entries: Optional[list[tuple]] = []
        self.held: list[Any] = []

    def block(self, block: gluon.Block, path: str) -> None:
        """Add a block's attributes, parameters, children, code and hooks."""
        if not self._is_new(block):
            return
        cls, children, parameters = type(block), block._children, block._reg_params
        attributes = block.__dict__
        self._versioned(versions.OBJECT, block)
        for kept in (children, parameters, block._forward_hooks, block._forward_pre_hooks):
            self._versioned(versions.DICT, kept)
        for name, value in attributes.items():
            if name not in _GLUON_STATE and name not in children and name not in parameters:
                self.add(value, f'{path}.{name}')
        for name in ('forward', 'hybrid_forward'):
            self._function(getattr(cls, name, None), f'{path}.{name}')
        if not _is_library(cls.__module__):
            self.attributes_of_class(block, cls, path)
        for name, parameter in parameters.items():
            self.found.append((f'{path}.{name}', Same(parameter)))
        if (path != 'self' and has_hooks(block)) or has_operator_hook(block):
            self.found.append((f'the hooks of {path}', True))
        for name, child in children.items():
            place = f'{path}.{name}'
            self.found.append((place, Same(child)))
            self.block(child, place)

    def frozen(self, value: Any, path: str, key: Any = _NO_KEY) -> Hashable:
        """Return a hashable form of a value; append what can be reached from it to `found`.

        Parameters
        ----------
        value
        path : str
            Name that users know for the value, or for the container that has it.
        key : optional
            Key of the value in that container.
        """
        self._left -= 1
        if type(value) in EQUAL_IF_SAME:
            return type(value), value
        if isinstance(value, PLAIN):
            return exact(value)
        if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= _MOST_BYTES:
            self.entries = None
            return 'array', value.shape, value.dtype.str, value.tobytes()
        if self._left > 0 and self._depth < _DEEPEST and not isinstance(value, _OPAQUE):
            self._depth += 1
            path = path if key is _NO_KEY else f'{path}[{key!r}]'
            items = self._items(value, path)
            if items is None and self._names is not None:
                self._reached(value, path)
            self._depth -= 1
            if items is not None:
                return items
        elif not isinstance(value, _OPAQUE):
            self.entries = None
        return Same(value)

    def _items(self, value, path):
        """Return what a container holds; None for other objects."""
        if isinstance(value, dict):
            self._versioned(versions.DICT, value)
        elif isinstance(value, _UNVERSIONED):
            self.entries = None
        if isinstance(value, (list, tuple, deque)):
            return (type(value),) + tuple(
                [self.frozen(item, path, position) for position, item in enumerate(value)]
            )
        if isinstance(value, (set, frozenset)):
            return type(value), frozenset([self.frozen(item, path) for item in value])
        if isinstance(value, (dict, types.MappingProxyType)):
            return (type(value),) + tuple(
                [
                    (self.frozen(key, path), self.frozen(item, path, key))
                    for key, item in value.items()
                ]
            )
        if isinstance(value, np.ndarray) and value.dtype == object:
            return 'objects', value.shape, self._items(value.ravel().tolist(), path)
        return (bytearray, bytes(value)) if isinstance(value, bytearray) else None

    def _reached(self, value, path) -> None:
        """Fingerprint those attributes of an object that the code names."""
        if isinstance(value, gluon.Block):
            self.block(value, path)
        elif isinstance(value, _FUNCTIONS):
            self._function(value, path)
        elif not self._is_new(value):
            return
        elif isinstance(value, types.ModuleType):
            if not _is_library(value.__name__):
                self._versioned(versions.DICT, vars(value))
                self._named(vars(value), path)
        elif isinstance(value, type):
            self._versioned(versions.TYPE, value)
            self.attributes_of_class(value, value, path)
        elif not type(value).__module__.startswith('mxnet.'):
            self._versioned(versions.OBJECT, value)
            self._named(getattr(value, '__dict__', {}), path)
            self.attributes_of_class(value, type(value), path)

    def _named(self, values, path) -> None:
        """Add those of some variables whose names the code mentions."""
        for name in sorted(self._names & values.keys()):
            self.add(values[name], f'{path}.{name}')

    def attributes_of_class(self, owner: Any, cls: type, path: str) -> None:
        """Add the named attributes, slots and methods of a class and its bases."""
        taken = set(() if owner is cls else getattr(owner, '__dict__', ()))
        for base in cls.__mro__:
            if _is_library(base.__module__):
                continue
            for name, value in vars(base).items():
                if name in taken:
                    continue
                taken.add(name)
                if isinstance(value, (staticmethod, classmethod)):
                    value = value.__func__
                elif isinstance(value, property):
                    value = value.fget
                elif isinstance(value, types.MemberDescriptorType) and owner is not cls:
                    value = getattr(owner, name, None)
                    self.entries = None
                if name in self._names or (
                    isinstance(value, types.FunctionType)
                    and name.startswith('__')
                    and name not in _NOT_CALLED
                ):
                    self.add(value, f'{path}.{name}')

    def _function(self, function, path) -> None:
        """Add what a function reads: closure, defaults and global variables."""
        if isinstance(function, functools.partial):
            self.entries = None
            self.add((function.args, function.keywords), path)
            self._function(function.func, path)
        elif isinstance(function, types.MethodType):
            self.add(function.__self__, path)
            self._function(function.__func__, path)
        else:
            library = not isinstance(function, types.FunctionType) or _is_library(
                function.__module__
            )
            self.found.append((path, function if library else Same(function)))
            if not library and self._is_new(function):
                self._variables(function, path)

    def _variables(self, function, path) -> None:
        code, variables = function.__code__, function.__globals__
        names = _names_in(code)
        self.mentioned |= names.mentioned
        self._versioned(versions.FUNCTION, function)
        if function.__defaults__:
            self._hold(function.__defaults__)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            if name != '__class__':
                self.entries = None
                self.add(_cell_contents(cell), name)
        for name in sorted(names.of_variables & variables.keys()):
            self.add(variables[name], name)
        if function.__defaults__ or function.__kwdefaults__:
            self.add((function.__defaults__, function.__kwdefaults__), f'the defaults of {path}')
        self._named(function.__dict__, path)

    def add(self, value: Any, path: str) -> None:
        """Append the present form of a value to `found`."""
        self.found.append((path, self.frozen(value, path)))

    def _versioned(self, kind: int, value: Any) -> None:
        """Note the version of an object that was read."""
        if self.entries is not None:
            entry = versions.entry(kind, value)
            if entry is None:
                self.entries = None
            else:
                self.entries.append(entry)

    def _hold(self, defaults: tuple) -> None:
        """Keep defaults alive, so that no other object gets their addresses."""
        if all([isinstance(value, PLAIN) for value in defaults]):
            self.held.append(defaults)
        else:  # it might hold the block itself
            self.entries = None

    def _is_new(self, value) -> bool:
        """Return whether this search has not met an object before."""
        if id(value) in self._seen:
            return False
        self._seen[id(value)] = value
        return True


def has_hooks(block: gluon.Block) -> bool:
    """Return whether a block has forward hooks."""
    return bool(block._forward_hooks or block._forward_pre_hooks)


def has_operator_hook(block: gluon.Block) -> bool:
    """Return whether Gluon would call a hook of ``register_op_hook``, as on a hybridized block."""
    return bool(getattr(block, '_callback', None) and block._active)


def _cell_contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty yet
        return None


def _names_in(code: types.CodeType) -> _Names:
    known = _code_names.get(id(code))
    if known is None:
        mentioned, strings = set(code.co_names), set()
        variables = {
            step.argval
            for step in dis.get_instructions(code)
            if step.opname in ('LOAD_GLOBAL', 'LOAD_NAME', 'LOAD_FROM_DICT_OR_GLOBALS')
        }
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                inner = _names_in(constant)
                mentioned |= inner.mentioned
                variables |= inner.of_variables
            elif isinstance(constant, str) and constant.isidentifier():
                strings.add(constant)
        if not variables.isdisjoint(('globals', 'vars', 'eval', 'exec')):
            variables |= strings
        every = frozenset(mentioned | strings)
        known = _code_names[id(code)] = _Names(code, every, frozenset(variables))
    return known


_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (mx.__file__, np.__file__, os.path.dirname(__file__), gluon_edbatch_core.__file__)
)
_STANDARD = sysconfig.get_paths()['stdlib'] + os.sep
_INSTALLED = tuple(os.path.join(sysconfig.get_paths()[name], '') for name in ('purelib', 'platlib'))


@functools.cache
def _is_library(module: str) -> bool:
    """Return whether a module of Python, NumPy, MXNet or this package has this name."""
    if module == '__main__' or module not in sys.modules:
        return False
    path = getattr(sys.modules[module], '__file__', None)
    if path is None:
        return True
    path = os.path.abspath(path)
    return path.startswith(_LIBRARIES) or (
        path.startswith(_STANDARD) and not path.startswith(_INSTALLED)
    )
