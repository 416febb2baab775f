"""Follow calls, attributes and elements from object to object, and raise where one has effects."""

import ast
import operator
from collections.abc import Sequence
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Optional

import numpy as np
from mxnet import gluon

from ..mx.blocks import hooks_of
from ..record.sites import Site
from ..report.explain.explanation import site_text
from . import pure
from .classes import fields_of, filled_fields, has_shared_defaults, is_callable, special_methods
from .objects import ARRAY, NOTHING, SAMPLE, Bound, Closure, Made, Method, NotFree, Objects, Super
from .resolved import (
    ARRAYS,
    DICTS,
    LISTS,
    MISSING,
    SLOTS,
    Known,
    Resolved,
    in_class,
    is_users,
    is_users_class,
)
from .source import node_of

LIBRARY = FunctionType, BuiltinFunctionType, MethodType, type, np.ufunc, operator.itemgetter
FUNCTIONS = (
    FunctionType, staticmethod, classmethod, MethodDescriptorType, WrapperDescriptorType,
    BuiltinFunctionType,
)  # fmt: skip


class Followed:
    """What variables and fields of a program may refer to, and what its calls may do."""

    _statement: Any  # follows a statement: `Effects` has it, and
    _value: Any  # what returns the objects that an expression may refer to

    def __init__(self, program: Any, classes: Sequence[type], training: bool):
        self._resolved, self._training = Resolved(program), training
        self._classes = classes
        self._refers: dict[tuple, Objects] = {}  # variables and fields
        self._closures: dict[Any, Closure] = {}
        self._reached: dict[Closure, None] = {}
        self._grew, self._written, self._read = True, set[str](), dict[str, str]()
        self._at: tuple[str, Any] = '', None
        self._called: dict[Any, tuple[str, Any]] = {}  # by a library: functions, and where

    # --- what refers to what ---------------------------------------------------------------------

    def _join(self, place: tuple, objects: Objects) -> None:
        known = self._refers.get(place, NOTHING)
        if not objects <= known:
            self._refers[place] = known | objects
            self._grew = True

    def _of(self, *place: Any) -> Objects:
        return self._refers.get(place, NOTHING)

    def _no(self, what: str) -> NotFree:
        file, node = self._at
        line = site_text(Site(file, getattr(node, 'lineno', 0)))
        return NotFree(f'{line} {what}')

    def _text(self) -> str:
        text = ast.unparse(self._at[1]).partition('\n')[0]
        return text if len(text) < 50 else text[:47] + '…'

    def _one(self, known: Any) -> Objects:
        return NOTHING if known is None or known is MISSING else frozenset((known,))

    # --- functions -------------------------------------------------------------------------------

    def _closure_of(self, known: Known) -> Closure:
        code = known.object.__code__
        if known.step not in self._closures:
            node = node_of(code)
            if node is None:
                raise self._no(
                    f'calls {known.object.__qualname__}, whose source was not found or has changed'
                )
            self._closures[known.step] = Closure(node, code.co_filename, known, None)
        return self._closures[known.step]

    def _go_over(self, closure: Closure) -> None:
        for statement in closure.body:
            self._at = closure.file, statement
            if isinstance(statement, ast.expr):  # of a lambda
                self._join((closure, 'return'), self._value(statement, closure))
            else:
                self._statement(statement, closure)

    def _enter(self, closure: Closure, args: Sequence[Objects], named: dict) -> Objects:
        """Note a call of a function, and return what it may return, as far as that is known."""
        if closure not in self._reached:
            self._reached[closure] = None
            self._grew = True
        rest = frozenset((Made(id(closure.node), tuple),)) if closure.rest else NOTHING
        for name in closure.rest:
            self._join((closure, name), rest)
        everything = named.get('*', NOTHING)
        for place, objects in enumerate(args):
            if place < len(closure.names):
                self._join((closure, closure.names[place]), objects)
            self._store(rest, '[]', objects)
        for name in (*closure.names, *closure.only):
            self._join((closure, name), named.get(name, NOTHING) | everything)
        for objects in named.values():
            self._store(rest, '[]', objects)
        self._defaults(closure)
        if closure.yields:
            made = Made(id(closure.node), None)
            self._join((made, '[]'), self._of(closure, 'yield'))
            self._join((made, 'return'), self._of(closure, 'return'))
            return frozenset((made,))
        return self._of(closure, 'return')

    def _defaults(self, closure: Closure) -> None:
        if closure.known is None:
            return  # joined where the function was made
        function = closure.known.object
        defaults = function.__defaults__ or ()
        for place, name in enumerate(closure.names[len(closure.names) - len(defaults) :]):
            self._join((closure, name), self._one(self._get(closure.known, 'default', place)))
        for name in function.__kwdefaults__ or ():
            self._join((closure, name), self._one(self._get(closure.known, 'default', name)))

    def _get(self, known: Known, kind: str, key: Any) -> Any:
        return self._resolved.get(known, kind, key)

    # --- calls -----------------------------------------------------------------------------------

    def _call(self, functions: Objects, args: Sequence[Objects], named: dict) -> Objects:
        found: Objects = NOTHING
        for each in functions:
            found |= self._call_one(each, args, named)
        return found

    def _call_one(self, function: Any, args: Sequence[Objects], named: dict) -> Objects:
        if isinstance(function, Closure):
            return self._enter(function, args, named)
        if isinstance(function, Method):
            return self._call_method(function.owner, function.name, args, named)
        if isinstance(function, Bound):
            return self._call_one(function.function, [frozenset((function.owner,)), *args], named)
        if isinstance(function, Made):
            if is_callable(function):
                return self._call_method(function, '__call__', args, named)
            every = NOTHING.union(*args, *named.values())
            return self._made_of(every | {function}) if function.cls is None else NOTHING
        if isinstance(function, Known):
            return self._call_known(function, args, named)
        for cls in self._classes:
            if in_class(cls, '__call__') is not MISSING:
                raise self._no(f'calls an object of the sample: {self._text()}')
        return NOTHING

    def _call_known(self, known: Known, args: Sequence[Objects], named: dict) -> Objects:
        value = known.object
        if isinstance(value, FunctionType) and getattr(value, '__edb_pure__', False):
            every = NOTHING.union(*args, *named.values())
            return every | self._new(None, every)
        is_compiled = type(value).__name__ == 'cython_function_or_method'
        if (is_compiled or isinstance(value, LIBRARY)) and pure.is_pure(value, self._training):
            return self._call_library(value, args, named)
        if is_users(value):
            return self._enter(self._closure_of(known), args, named)
        if isinstance(value, MethodType):
            owner = self._one(self._get(known, 'part', '__self__'))
            function = self._one(self._get(known, 'part', '__func__'))
            return self._call(function, [owner, *args], named)
        if isinstance(value, type):
            return self._construct(known, args, named)
        if isinstance(value, gluon.Block):
            return self._call_block(known, args, named)
        if not callable(value):
            return NOTHING  # an error, or another object is called here
        if is_users_class(type(value)):
            return self._call_method(known, '__call__', args, named)
        name = getattr(value, '__qualname__', type(value).__qualname__)
        raise self._no(f'calls {name}, which is not known to be pure')

    def _call_library(self, function: Any, args: Sequence[Objects], named: dict) -> Objects:
        """Return what a pure function of a library may return. It may call functions among its
        arguments, and methods by which objects of the user act as numbers or containers."""
        every = NOTHING.union(*args, *named.values())
        name = getattr(function, '__name__', '')
        if name in pure.WRITE_FIRST and args:
            self._store(args[0], '[]', every)
        for objects in args[pure.place_of_out(function) :]:
            self._store(objects, ARRAY, NOTHING)
        self._store(named.get('out', NOTHING), ARRAY, NOTHING)
        if name in pure.CALLING:  # gives nobody the function that it calls
            first = args[: name not in ('map', 'filter', 'reduce', 'starmap')]
            every = NOTHING.union(*first, *args[1:])
            called = (args[0] if args and not first else NOTHING) | named.get('key', NOTHING)
            elements = self._elements(every) | every
            every |= NOTHING.union(*[self._call_back(each, elements) for each in called])
        return self._made_of(every, pure.made_by(function))

    def _made_of(self, objects: Objects, what: str = pure.ANYTHING) -> Objects:
        """Return what a library may make of objects (see `pure.made_by`)."""
        elements = self._elements(objects)
        for each in objects if what == pure.ANYTHING else ():
            if isinstance(each, (Closure, Method, Bound)) or is_callable(each):
                elements |= self._call_back(each, elements | objects)
        special = self._touch(objects | elements, objects | elements)
        if what == pure.NUMBER:
            return NOTHING
        made = Made(id(self._at[1]), None if what == pure.ANYTHING else list)
        self._join((made, '[]'), frozenset((made,)) | special)
        if what != pure.NEW:
            self._join((made, '[]'), elements | (objects if what == pure.ANYTHING else NOTHING))
        return self._of(made, '[]') if what == pure.ANYTHING else special | {made}

    def _new(self, cls: Optional[type], elements: Objects) -> Objects:
        """Return a container of a library that runs make here, with these elements."""
        made = Made(id(self._at[1]), cls)
        self._join((made, '[]'), elements)
        return frozenset((made,))

    def _call_back(self, function: Any, args: Objects) -> Objects:
        """Return what a function returns that a library calls, with any of these arguments. Each
        pass follows it once, behind the program's own code."""
        if function not in self._called:
            self._called[function], self._grew = self._at, True
        self._join(('given', function), args)
        return self._of('called', function)

    def _follow_called(self) -> None:
        for function, at in list(self._called.items()):
            self._at, args = at, [self._of('given', function)] * 3
            self._join(('called', function), self._call_one(function, args, {}))

    def _touch(self, objects: Objects, others: Objects) -> Objects:
        """Return what special methods of objects of the user may return, which an operator or a
        library calls with any of `others`."""
        found: Objects = NOTHING
        for each in objects:
            for cls in self._classes_of(each):
                for name in special_methods(cls):
                    found |= self._call_found(each, cls, name, [others] * 3, {}) or NOTHING
        return found

    def _classes_of(self, each: Any) -> Sequence[type]:
        """Return the classes with the user's code that an object may have."""
        if each is SAMPLE:
            return self._classes
        cls = each.cls if isinstance(each, Made) else None
        if isinstance(each, Known) and not isinstance(
            each.object, (type, FunctionType, ModuleType)
        ):
            cls = type(each.object)
        return [cls] if cls is not None and is_users_class(cls) else []

    def _construct(self, known: Known, args: Sequence[Objects], named: dict) -> Objects:
        cls, fields = known.object, fields_of(known.object)
        plain = all([base in pure.BASES or pure.is_plain_class(base) for base in cls.__mro__])
        odd = fields is None and is_users(cls.__new__)
        odd = odd or in_class(cls, '__del__') is not MISSING or has_shared_defaults(cls)
        if not plain or odd:
            raise self._no(f'makes a {cls.__qualname__}, whose effects are not known')
        made = Made(id(self._at[1]), cls)
        objects = frozenset((made,))
        for name, value in (*zip(fields or (), args), *named.items()):
            self._join((made, name), value)
        for name in fields or ():
            self._join((made, name), named.get('*', NOTHING))
        self._join((made, '[]'), NOTHING.union(*args, *named.values()))
        for name in filled_fields(cls):
            self._join((made, name), frozenset((Made(hash((made.place, name)), None),)))
        for name in ('__init__', '__post_init__'):
            function = self._get(known, 'within', name)
            if isinstance(function, Known) and is_users(function.object) and fields is None:
                self._call_one(function, [objects, *args], named)
            elif name == '__post_init__' and isinstance(function, Known):
                self._call_one(function, [objects], {})
        return objects

    def _call_block(self, known: Known, args: Sequence[Objects], named: dict) -> Objects:
        block = known.object
        if self._resolved.all_of(known, 'hooks') or hooks_of(block):
            raise self._no(f'calls {block.name}, which has a hook')
        for name in ('__call__', 'forward'):
            function = self._get(known, 'class', name)
            if isinstance(function, Known) and is_users(function.object):
                return self._call_one(function, [frozenset((known,)), *args], named)
        why = pure.why_not_recorded(block, self._training)
        if why:
            raise self._no(f'calls a block: {why}')
        every = NOTHING.union(*args, *named.values())
        recorded = isinstance(block, gluon.HybridBlock)
        for child in self._resolved.all_of(known, 'children'):
            if recorded:
                self._check_recorded(child)
            else:
                every |= self._call_one(child, [every] * max(len(args), 1), {})
        return self._made_of(every)

    def _check_recorded(self, known: Known) -> None:
        """Raise if calls of a block inside one that is recorded may have an effect."""
        why = pure.why_not_recorded(known.object, self._training)
        if why or self._resolved.all_of(known, 'hooks'):
            raise self._no(f'calls a block: {why or known.object.name + " has a hook"}')
        for child in self._resolved.all_of(known, 'children'):
            self._check_recorded(child)

    def _call_method(self, owner: Any, name: str, args: Sequence[Objects], named: dict) -> Objects:
        results = [
            self._call_found(owner, cls, name, args, named) for cls in self._classes_of(owner)
        ]
        found = [each for each in results if each is not None]
        if found and (owner is not SAMPLE or name not in pure.READING | pure.WRITING):
            return NOTHING.union(*found)
        return NOTHING.union(*found, self._call_of_library(owner, name, args, named))

    def _call_found(
        self, owner: Any, cls: type, name: str, args: Sequence[Objects], named: dict
    ) -> Optional[Objects]:
        """Call a method that a class of the user has; return None if it has none of this name."""
        step = owner if isinstance(owner, Known) else self._class(cls)
        function = self._get(step, 'class' if isinstance(owner, Known) else 'within', name)
        if not isinstance(function, Known):
            return None
        first = [frozenset((owner,))]
        if isinstance(function.object, (staticmethod, classmethod)):
            first = (
                [] if isinstance(function.object, staticmethod) else [self._one(self._class(cls))]
            )
            function = self._get(function, 'part', '__func__')
        if not is_users(function.object):
            return None
        return self._call_one(function, [*first, *args], named)

    def _class(self, cls: type) -> Known:
        """Return a class as a known object, although the way to it is not known: it is the same
        in later calls, but for its attributes."""
        return self._resolved.given(cls)

    def _call_of_library(
        self, owner: Any, name: str, args: Sequence[Objects], named: dict
    ) -> Objects:
        every, own = NOTHING.union(*args, *named.values()), frozenset((owner,))
        if name in pure.OF_GLUON and isinstance(owner, Known):
            return own if isinstance(owner.object, gluon.Parameter) else self._made_of(every)
        if name in pure.WRITING:
            place = ARRAY if name in pure.OF_ARRAYS else '[]'
            self._store(own, place, every | self._elements(every))
        elif name not in pure.READING:
            raise self._no(f'calls {name}, a method that is not known to be pure')
        self._store(named.get('out', NOTHING), ARRAY, NOTHING)
        if name in pure.COPYING:
            return self._made_of(every, pure.NEW)
        result = self._made_of(every | self._elements(own))
        shares = not isinstance(owner, Known) or isinstance(owner.object, ARRAYS)
        return result | own if shares else result

    # --- attributes and elements -----------------------------------------------------------------

    def _elements(self, objects: Objects) -> Objects:
        found = special = self._touch(objects, NOTHING)
        for each in (*objects, *special):
            if each is SAMPLE:
                found |= {SAMPLE} | self._of(SAMPLE, '[]')
            elif isinstance(each, Made):
                found |= self._of(each, '[]')
            elif isinstance(each, Known):
                found |= self._elements_of_known(each)
        return found

    def _elements_of_known(self, known: Known) -> Objects:
        value = known.object
        if isinstance(value, ARRAYS):
            self._note_read(ARRAY, self._text())
            return frozenset((known,))
        if isinstance(value, dict) and hasattr(type(value), '__missing__'):
            raise self._no(f'reads a {type(value).__qualname__}, which may add an element')
        if isinstance(value, (*LISTS, *DICTS)):
            self._note_read('[]', f'elements of what others share: {self._text()}')
            return frozenset(self._resolved.all_of(known, 'elements'))
        if isinstance(value, gluon.Block) and hasattr(type(value), '__getitem__'):
            return frozenset(self._resolved.all_of(known, 'children'))
        if callable(value) or isinstance(value, ModuleType) or self._classes_of(known):
            return NOTHING
        raise self._no(f'uses a {type(value).__qualname__}, which others share')

    def _note_read(self, name: str, what: str) -> None:
        self._read.setdefault(name, str(self._no(f'reads {what}')))

    def _attribute(self, objects: Objects, name: str) -> Objects:
        found: Objects = NOTHING
        if name.startswith('__'):
            raise self._no(f'reads {name}')
        for each in objects:
            if isinstance(each, Known):
                found |= self._attribute_of_known(each, name)
            elif isinstance(each, Super):
                found |= self._attribute_of_super(each, name)
            elif each is SAMPLE or isinstance(each, Made):
                found |= self._attribute_of_run(each, name)
            else:
                raise self._no(f'reads {name} of a function')
        return found

    def _attribute_of_run(self, each: Any, name: str) -> Objects:
        """Return an attribute of the sample, or of what runs make."""
        classes = self._classes_of(each)
        found = self._of(each, name)
        if each is SAMPLE:
            found |= {SAMPLE} | self._of(SAMPLE, '[]')
        for cls in classes:
            found |= self._attribute_of_class(each, cls, name)
        if (each is SAMPLE or not classes) and name in pure.OF_LIBRARIES and name not in pure.DATA:
            found |= {Method(each, name)}
        elif not classes and each is not SAMPLE:
            found |= {each} | self._of(each, '[]')
        return found

    def _attribute_of_class(self, each: Any, cls: type, name: str) -> Objects:
        own = in_class(cls, '__getattr__') is not MISSING or is_users(cls.__getattribute__)
        if own and not issubclass(cls, gluon.Block):
            raise self._no(f'reads {name} by code of a {cls.__qualname__}')
        value = self._get(self._class(cls), 'within', name)
        if not isinstance(value, Known):
            return NOTHING
        if isinstance(value.object, property):
            return self._call_one(self._get(value, 'part', 'fget'), [frozenset((each,))], {})
        if isinstance(value.object, FUNCTIONS):
            return frozenset((Method(each, name),))
        if not isinstance(value.object, type) and hasattr(type(value.object), '__get__'):
            if isinstance(value.object, SLOTS):
                return NOTHING
            raise self._no(f'reads {name}, a {type(value.object).__name__}')
        return frozenset((value,))

    def _attribute_of_known(self, known: Known, name: str) -> Objects:
        value = known.object
        if isinstance(value, (ModuleType, type)):
            return self._one(self._get(known, 'within', name))
        if isinstance(value, ARRAYS) or type(value) in (*LISTS, *DICTS):
            if name in pure.DATA:
                return frozenset((known,)) if name in ('T', 'real', 'imag') else NOTHING
            return frozenset((Method(known, name),)) if name in pure.OF_LIBRARIES else NOTHING
        self._note_read(name, self._text())
        own = self._get(known, 'attribute', name)
        if own is not MISSING:
            return self._one(own)
        if in_class(type(value), name) is MISSING:
            raise self._no(f'reads {name} of a {type(value).__qualname__}, which has none')
        return self._attribute_of_class(known, type(value), name)

    def _attribute_of_super(self, found: Super, name: str) -> Objects:
        cls = type(found.owner.object) if isinstance(found.owner, Known) else found.owner.cls
        mro = cls.__mro__
        for base in mro[mro.index(found.behind) + 1 :]:
            if name in vars(base):
                function = self._get(self._class(base), 'within', name)
                if isinstance(function, Known) and is_users(function.object):
                    return frozenset((Bound(function, found.owner),))
        raise self._no(f'calls {name} of a base class that is not known')

    def _store(self, objects: Objects, name: str, value: Objects) -> None:
        """Note that a field of some objects is written, or an element, ``[]``, which may be that of
        an `ARRAY`."""
        field = '[]' if name == ARRAY else name
        for each in objects:
            if each is SAMPLE:
                self._written.update((name, field))
                self._join((SAMPLE, '[]'), value)
            elif isinstance(each, Made):
                self._join((each, field), value)
            else:
                raise self._no(f'writes {self._text()}, which others share')
            for cls in self._classes_of(each):
                if is_users(cls.__setattr__) or isinstance(in_class(cls, name), property):
                    raise self._no(f'writes {name} by code of a {cls.__qualname__}')
                if field == '[]':
                    self._touch(frozenset((each,)), value)
