"""Find out, from a program's source, whether samples can see that others run between their lines.

They cannot if the program writes only to what its own run made, and to objects of its own sample,
and calls nothing that may have other effects. The analysis follows which objects each expression
may refer to: objects that existed before (`Known`), the sample, and objects that a run makes
(`Made`, `Closure`). Numbers and text are no objects here. It goes over the code that can be reached
until it finds no new object. Whatever it does not understand speaks against suspending samples.
"""

import ast
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any, Optional

from .classes import is_replaced
from .followed import Followed
from .objects import ARRAY, NOTHING, SAMPLE, Closure, NotFree, Objects, Super
from .pure import CONTAINER, NEW
from .resolved import Known

_MOST_PASSES = 40


class Effects(Followed):
    """Analyse a program, a function of one sample, for samples whose objects have some classes.

    Attributes
    ----------
    why : str
        The user's line and what it does, for which samples must not be suspended; empty if they
        may.
    classes : frozenset of type
        These classes.
    codes : frozenset of int
        Ids of the code of all functions that may be suspended.
    writes_samples, writes_arrays : bool
        Whether the program writes to objects of its sample; whether these may be arrays.
    """

    def __init__(
        self, program: Any, classes: frozenset[type], arguments: int = 1, training: bool = False
    ):
        super().__init__(program, list(classes), training)
        self.classes = classes
        self.why, codes = '', list[CodeType]()
        try:
            self._run(self._resolved.root(), arguments)
        except NotFree as reason:
            self.why = str(reason)
        except Exception as error:  # reads in place are always right
            name = getattr(program, '__qualname__', type(program).__name__)
            self.why = f'{name} is not understood ({type(error).__name__}: {error})'
        for closure in self._reached:
            if closure.known is not None:
                codes.append(closure.known.object.__code__)
        for code in codes:  # inner ones are appended
            codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        self._codes, self.codes = codes, frozenset(map(id, codes))  # ids, as long as codes live
        self.writes_samples, self.writes_arrays = bool(self._written), ARRAY in self._written
        self._resolved.forget()
        del self._refers, self._closures, self._reached, self._at, self._called

    def holds_for(self, program: Any) -> bool:
        """Return whether the analysis holds for another program as it does for this one."""
        return self._resolved.holds_for(program)

    def _run(self, program: Known, arguments: int) -> None:
        sample = frozenset((SAMPLE,))
        passes = 0
        while self._grew:
            self._grew, passes = False, passes + 1
            if passes > _MOST_PASSES:
                raise NotFree('the program makes too many kinds of objects')
            self._call_one(program, [sample] * arguments, {})
            for closure in list(self._reached):
                self._go_over(closure)
            self._follow_called()
        for name in self._written & self._read.keys():
            raise NotFree(f'{self._read[name]}, which may be an object of a sample')

    # --- statements ------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt, closure: Closure) -> None:
        self._at = closure.file, node
        function = getattr(self, f'_{type(node).__name__.lower()}', None)
        if function is None:
            raise self._no(f'has a statement that is not understood: {self._text()}')
        function(node, closure)

    def _body(self, body: Iterable[ast.stmt], closure: Closure) -> None:
        for statement in body:
            self._statement(statement, closure)

    def _pass(self, node: Any, closure: Closure) -> None:
        """Do nothing."""

    _break = _continue = _global = _nonlocal = _pass

    def _expr(self, node: ast.Expr, closure: Closure) -> None:
        self._value(node.value, closure)

    def _return(self, node: ast.Return, closure: Closure) -> None:
        if node.value is not None:
            self._join((closure, 'return'), self._value(node.value, closure))

    def _assign(self, node: ast.Assign, closure: Closure) -> None:
        for target in node.targets:
            self._assign_to(target, node.value, closure)

    def _assign_to(self, target: Any, node: ast.expr, closure: Closure) -> None:
        """Note an assignment of an expression: of ``a, b = x, y`` each for itself."""
        lists = ast.Tuple, ast.List
        if isinstance(target, lists) and isinstance(node, lists):
            every = (*target.elts, *node.elts)
            if len(target.elts) == len(node.elts) and not any(
                [isinstance(each, ast.Starred) for each in every]
            ):
                for one, other in zip(target.elts, node.elts):
                    self._assign_to(one, other, closure)
                return
        self._bind(target, self._value(node, closure), closure)

    def _annassign(self, node: ast.AnnAssign, closure: Closure) -> None:
        if node.value is not None:
            self._bind(node.target, self._value(node.value, closure), closure)

    def _augassign(self, node: ast.AugAssign, closure: Closure) -> None:
        target: Any = node.target
        load = _as_loaded(target)
        before, value = self._value(load, closure), self._value(node.value, closure)
        self._at = closure.file, node
        changes = frozenset([each for each in before if not is_replaced(each)])
        self._store(changes, ARRAY, self._elements(value))
        result = before | self._touch(before | value, before | value)
        self._bind(target, result | self._new(list, self._elements(value | before)), closure)

    def _delete(self, node: ast.Delete, closure: Closure) -> None:
        for target in node.targets:
            self._bind(target, NOTHING, closure)

    def _for(self, node: ast.For, closure: Closure) -> None:
        self._bind(node.target, self._elements(self._value(node.iter, closure)), closure)
        self._body((*node.body, *node.orelse), closure)

    def _if(self, node: Any, closure: Closure) -> None:
        self._value(node.test, closure, True)
        self._body((*node.body, *node.orelse), closure)

    _while = _if

    def _assert(self, node: ast.Assert, closure: Closure) -> None:
        self._value(node.test, closure, True)
        if node.msg is not None:
            self._value(node.msg, closure)

    def _raise(self, node: ast.Raise, closure: Closure) -> None:
        for each in filter(None, (node.exc, node.cause)):
            raised = self._value(each, closure)
            self._join(('raised',), raised | self._call(raised, [], {}) if raised else raised)

    def _try(self, node: ast.Try, closure: Closure) -> None:
        self._body((*node.body, *node.orelse, *node.finalbody), closure)
        for handler in node.handlers:
            if handler.name:
                self._join((closure, handler.name), self._of('raised'))
            self._body(handler.body, closure)

    def _functiondef(self, node: ast.FunctionDef, closure: Closure) -> None:
        if node.decorator_list:
            raise self._no('makes a function with a decorator')
        self._join((closure, node.name), self._function(node, closure))

    def _import(self, node: ast.Import, closure: Closure) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition('.')[0]
            if alias.name not in sys.modules:
                raise self._no(f'imports {alias.name}')
            known = self._resolved.given(sys.modules[name])
            self._join((closure, alias.asname or name), frozenset((known,)))

    def _importfrom(self, node: ast.ImportFrom, closure: Closure) -> None:
        module = None if node.level else sys.modules.get(node.module or '')
        if module is None:
            raise self._no(f'imports from {node.module}')
        for alias in node.names:
            found = self._get(self._resolved.given(module), 'within', alias.name)
            self._join((closure, alias.asname or alias.name), self._one(found))

    def _bind(self, target: Any, value: Objects, closure: Closure) -> None:
        """Note an assignment."""
        if isinstance(target, ast.Name):
            self._bind_name(target.id, value, closure)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._bind(each, self._elements(value), closure)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, self._new(list, value), closure)
        else:
            objects = self._value(target.value, closure)
            if isinstance(target, ast.Subscript):
                value |= self._value(target.slice, closure)
            self._at = closure.file, target
            name = target.attr if isinstance(target, ast.Attribute) else ARRAY
            self._store(objects, name, value)

    def _bind_name(self, name: str, value: Objects, closure: Closure) -> None:
        owner: Optional[Closure] = closure
        while owner is not None and name not in owner.variables:
            owner = owner.outer
        if owner is None:
            raise self._no(f'writes {name}, which others share')
        self._join((owner, name), value)

    # --- expressions -----------------------------------------------------------------------------

    def _value(self, node: ast.expr, closure: Closure, as_truth: bool = False) -> Objects:
        """Return the objects that an expression may refer to. `as_truth` asks for its truth."""
        function = getattr(self, f'_of_{type(node).__name__.lower()}', None)
        self._at = closure.file, node
        if function is None:
            raise self._no(f'has an expression that is not understood: {self._text()}')
        found: Objects = function(node, closure)
        self._at = closure.file, node
        if as_truth:
            self._touch(found, NOTHING)
        return found

    def _values(self, nodes: Iterable[Optional[ast.expr]], closure: Closure) -> Objects:
        at = self._at
        found = NOTHING.union(*[self._value(node, closure) for node in nodes if node is not None])
        self._at = at
        return found

    def _of_constant(self, node: ast.Constant, closure: Closure) -> Objects:
        return NOTHING

    def _of_name(self, node: ast.Name, closure: Closure) -> Objects:
        owner: Optional[Closure] = closure
        while owner is not None:
            if node.id in owner.variables:
                return self._of(owner, node.id)
            if owner.known is not None:
                return self._one(self._get(owner.known, 'variable', node.id))
            owner = owner.outer
        return NOTHING

    def _of_attribute(self, node: ast.Attribute, closure: Closure) -> Objects:
        objects = self._values((node.value,), closure)
        return self._attribute(objects, node.attr)

    def _of_subscript(self, node: ast.Subscript, closure: Closure) -> Objects:
        objects = self._values((node.value,), closure)
        index = self._values((node.slice,), closure)
        elements = self._elements(objects) | self._touch(objects | index, index)
        if isinstance(node.slice, ast.Slice):
            return self._new(list, elements) | (objects & elements)
        return elements

    def _of_slice(self, node: ast.Slice, closure: Closure) -> Objects:
        return self._values((node.lower, node.upper, node.step), closure)

    def _of_call(self, node: ast.Call, closure: Closure) -> Objects:
        if isinstance(node.func, ast.Name) and node.func.id == 'super' and not node.args:
            return self._super(closure)
        functions = self._values((node.func,), closure)
        if len(node.args) > 1 and any([_reads_attribute(each) for each in functions]):
            return self._named_attribute(node, functions, closure)
        args: list[Objects] = []
        named: dict[str, Objects] = {}
        at = self._at
        for arg in node.args:
            value = self._value(arg, closure)
            if isinstance(arg, ast.Starred):
                named['*'] = named.get('*', NOTHING) | value
            args.append(value)
        for keyword in node.keywords:
            value = self._value(keyword.value, closure)
            if keyword.arg is None:
                named['*'] = named.get('*', NOTHING) | self._elements(value)
            else:
                named[keyword.arg] = value
        self._at = at
        if '*' in named:  # the positions of arguments are not known
            named['*'] = named['*'].union(*args)
        if functions:
            return self._call(functions, args, named)
        return self._made_of(NOTHING.union(*args, *named.values()))  # a method of text

    def _named_attribute(self, node: ast.Call, functions: Objects, closure: Closure) -> Objects:
        """Return what ``getattr`` returns of an attribute whose name the source has."""
        owner, name, *default = node.args
        if len(functions) > 1 or not isinstance(name, ast.Constant):
            raise self._no(f'reads attributes whose names are not known: {self._text()}')
        objects = self._values((owner,), closure)
        return self._attribute(objects, str(name.value)) | self._values(default, closure)

    def _super(self, closure: Closure) -> Objects:
        behind = closure.known and self._get(closure.known, 'variable', '__class__')
        if not isinstance(behind, Known):
            raise self._no('calls super() in an inner function')
        owners = self._of(closure, closure.names[0])
        return frozenset([Super(owner, behind.object) for owner in owners])

    def _of_starred(self, node: ast.Starred, closure: Closure) -> Objects:
        return self._elements(self._value(node.value, closure))

    def _of_binop(self, node: ast.BinOp, closure: Closure) -> Objects:
        operands = self._values((node.left, node.right), closure)
        if not operands:
            return NOTHING
        return self._made_of(operands, CONTAINER)

    def _of_unaryop(self, node: ast.UnaryOp, closure: Closure) -> Objects:
        return self._made_of(self._values((node.operand,), closure), NEW)

    def _of_compare(self, node: ast.Compare, closure: Closure) -> Objects:
        operands = self._values((node.left, *node.comparators), closure)
        return self._touch(operands, operands)

    def _of_boolop(self, node: ast.BoolOp, closure: Closure) -> Objects:
        return NOTHING.union(*[self._value(each, closure, True) for each in node.values])

    def _of_ifexp(self, node: ast.IfExp, closure: Closure) -> Objects:
        self._value(node.test, closure, True)
        return self._values((node.body, node.orelse), closure)

    def _of_list(self, node: Any, closure: Closure) -> Objects:
        return self._new(list, self._values(node.elts, closure))

    _of_tuple = _of_list

    def _of_set(self, node: ast.Set, closure: Closure) -> Objects:
        elements = self._values(node.elts, closure)
        self._touch(elements, elements)
        return self._new(list, elements)

    def _of_dict(self, node: ast.Dict, closure: Closure) -> Objects:
        unpacked = [value for key, value in zip(node.keys, node.values) if key is None]
        elements = self._values((*node.keys, *node.values), closure)
        elements |= self._elements(self._values(unpacked, closure))
        self._touch(elements, elements)
        return self._new(list, elements)

    def _of_listcomp(self, node: Any, closure: Closure) -> Objects:
        for each in node.generators:
            elements = self._elements(self._value(each.iter, closure))
            self._bind(each.target, elements, closure)
            for condition in each.ifs:
                self._value(condition, closure, True)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        elements = self._values(parts, closure)
        self._at = closure.file, node
        self._touch(elements, elements)
        return self._new(list, elements)

    _of_setcomp = _of_dictcomp = _of_generatorexp = _of_listcomp

    def _of_joinedstr(self, node: ast.JoinedStr, closure: Closure) -> Objects:
        shown = self._values(node.values, closure)
        self._touch(shown, shown)
        return NOTHING

    def _of_formattedvalue(self, node: ast.FormattedValue, closure: Closure) -> Objects:
        return self._values((node.value, node.format_spec), closure)

    def _of_namedexpr(self, node: ast.NamedExpr, closure: Closure) -> Objects:
        value = self._value(node.value, closure)
        self._bind(node.target, value, closure)
        return value

    def _of_yield(self, node: ast.Yield, closure: Closure) -> Objects:
        self._join((closure, 'yield'), self._values((node.value,), closure))
        return NOTHING

    def _of_yieldfrom(self, node: ast.YieldFrom, closure: Closure) -> Objects:
        inner = self._value(node.value, closure)
        self._join((closure, 'yield'), self._elements(inner))
        return NOTHING.union(*[self._of(each, 'return') for each in inner])

    def _of_lambda(self, node: ast.Lambda, closure: Closure) -> Objects:
        return self._function(node, closure)

    def _function(self, node: Any, closure: Closure) -> Objects:
        """Return the function that a run makes here."""
        key = id(node), closure
        if key not in self._closures:
            self._closures[key] = Closure(node, closure.file, None, closure)
        made = self._closures[key]
        defaults = node.args.defaults
        for name, default in zip(made.names[len(made.names) - len(defaults) :], defaults):
            self._join((made, name), self._value(default, closure))
        for name, default in zip(made.only, node.args.kw_defaults):
            if default is not None:
                self._join((made, name), self._value(default, closure))
        return frozenset((made,))


def _reads_attribute(function: Any) -> bool:
    return isinstance(function, Known) and function.object in (getattr, hasattr)


def _as_loaded(target: Any) -> Any:
    """Return the target of an assignment as an expression."""
    load = ast.copy_location(type(target)(**dict(ast.iter_fields(target))), target)
    load.ctx = ast.Load()
    return load
