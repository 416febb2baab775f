"""What happens where the user's code calls something, while a program is made."""

import inspect
import math
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Callable, Dict, List, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from ..subgraph.structure import flatten
from .errors import ProgramError
from .rewrite import ITEM, ITEMS, MORE, NOT, Invoke, flow_of
from .states import Frame
from .values import Dynamic, Number, Tensor, apply, calculated, kind_of


class Framed(NamedTuple):
    """A function of the user's, to be gone into."""

    function: FunctionType
    arguments: tuple
    keywords: Dict[str, Any]


def entered(call: Framed, target: str) -> Frame:
    """A function that begins, with its arguments."""
    flow = flow_of(call.function)
    bound = inspect.signature(call.function).bind(*call.arguments, **call.keywords)
    bound.apply_defaults()
    names = dict(bound.arguments)
    closure = call.function.__closure__ or ()
    for name, cell in zip(call.function.__code__.co_freevars, closure):
        names.setdefault(name, cell.cell_contents)
    return Frame(flow, flow.blocks[0], names, target)


def called(builder: Any, call: Invoke, names: Dict[str, Any]) -> Any:
    """What a call gives, or the function to go into."""
    function = names[call.function]
    arguments: List[Any] = []
    for starred, name in call.arguments:
        arguments += list(names[name]) if starred else [names[name]]
    keywords: Dict[str, Any] = {}
    for key, name in call.keywords:
        keywords.update(names[name] if key is None else {key: names[name]})
    if isinstance(function, type) and function is super:
        return super(*arguments)
    return _call(builder, function, tuple(arguments), keywords)


def _call(builder: Any, function: Any, arguments: tuple, keywords: Dict[str, Any]) -> Any:
    special = _SPECIAL.get(function) if _is_hashable(function) else None
    if special is not None:
        return special(builder, *arguments, **keywords)
    if isinstance(function, gluon.Block):
        return _block(builder, function, arguments, keywords)
    operator = _operator_of(function)
    leaves: List[Any] = []
    _leaves_of((arguments, keywords), leaves)
    if operator and leaves:
        return apply(operator, *arguments, **keywords)
    if isinstance(function, (FunctionType, MethodType)):
        own = getattr(function, '__func__', function)
        if isinstance(getattr(function, '__self__', None), Dynamic) or own.__module__ == _VALUES:
            return function(*arguments, **keywords)
        if isinstance(function, MethodType):
            arguments = (function.__self__, *arguments)
        if not _is_of_library(own) or leaves:
            return Framed(own, arguments, keywords)
    if leaves and not _takes_values(function):
        raise ProgramError(
            f'{getattr(function, "__qualname__", function)} gets values of the sample and is '
            f'written in C: write it with operators of mx.nd'
        )
    if not _is_pure(function):
        raise ProgramError(
            f'{getattr(function, "__qualname__", function)} is called, which may give something '
            f'else, or do something, each time: leave it out, or pass what it gives'
        )
    return function(*arguments, **keywords)


_VALUES = Tensor.__module__
_PURE = frozenset(
    [len, range, zip, enumerate, isinstance, issubclass, getattr, hasattr, sorted, list, tuple,
     dict, set, frozenset, str, repr, type, any, all, sum, slice, callable, hash, id, divmod,
     reversed, iter, map, filter, complex, super, object, vars, dir]
)
_LIBRARIES = ('numpy', 'mxnet', 'math', 'operator', 'itertools', 'functools', 'collections')


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_of_library(function: Any) -> bool:
    return (getattr(function, '__module__', None) or '').split('.')[0] in _LIBRARIES


def _is_pure(function: Any) -> bool:
    """Whether calling it gives the same each time, and does nothing else."""
    owner = getattr(function, '__self__', None)
    if isinstance(owner, (list, dict, set, str, tuple, int, float)):
        return True
    if _is_hashable(function) and function in _PURE:
        return True
    module = getattr(function, '__module__', None) or ''
    if 'random' in module or 'time' in module:
        return False
    return _is_of_library(function) or isinstance(function, type)


def _takes_values(function: Any) -> bool:
    """Whether values may be among the arguments: it only puts them somewhere, or adds them."""
    owner = getattr(function, '__self__', None)
    if isinstance(owner, (list, dict, set, tuple)):
        return getattr(function, '__name__', '') not in ('index', 'count', 'remove', 'sort')
    if isinstance(function, type) and hasattr(function, '_fields'):
        return True
    return _is_hashable(function) and function in (
        len, zip, enumerate, isinstance, list, tuple, dict, getattr, hasattr, reversed, type, sum,
    )


def _leaves_of(value: Any, found: List[Any]) -> None:
    if isinstance(value, Dynamic):
        found.append(value)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            _leaves_of(each, found)
    elif isinstance(value, dict):
        _leaves_of(list(value.values()), found)


def _operator_of(function: Any) -> str:
    """The name of an operator of ``mx.nd``, if it is one."""
    name = getattr(function, '__name__', '')
    module = getattr(function, '__module__', '') or ''
    if isinstance(function, FunctionType) and name and getattr(mx.nd, name, None) is function:
        return name
    if module.startswith('mxnet.ndarray') and hasattr(mx.sym, name):
        return name
    if isinstance(function, FunctionType) and getattr(mx.nd.contrib, name, None) is function:
        return f'_contrib_{name}'
    return ''


def _block(builder: Any, block: gluon.Block, arguments: tuple, keywords: Dict[str, Any]) -> Any:
    """A HybridBlock is a static network; any other block is gone into."""
    if block._forward_hooks or block._forward_pre_hooks:
        raise ProgramError(f'{block.name} has a hook, which a program would not call')
    kind = type(block)
    if not _is_gluons(kind.__call__):
        return Framed(kind.__call__, (block, *arguments), keywords)
    if isinstance(block, gluon.HybridBlock) and _is_gluons(kind.forward):
        return builder.call(block, tuple(arguments), keywords)
    forward = _sequential if kind.forward is gluon.nn.Sequential.forward else kind.forward
    return Framed(forward, (block, *arguments), keywords)


def _is_gluons(method: Any) -> bool:
    """Whether it is no user's own."""
    return method.__module__.split('.')[0] in ('mxnet', 'gluon_edbatch')


def _sequential(self, value):
    for each in self._children.values():
        value = each(value)
    return value


# --- functions of Python's that are taken for what they mean -------------------------------------


def _number(builder: Any, value: Any) -> Any:
    return value.asscalar() if isinstance(value, Tensor) else value


def _converted(kind: Callable) -> Callable:
    def convert(builder: Any, *values: Any) -> Any:
        value = _number(builder, values[0]) if values else None
        return calculated(kind.__name__, value) if isinstance(value, Number) else kind(*values)

    return convert


def _one_of(op: str, own: Callable) -> Callable:
    def choose(builder: Any, *values: Any, **keywords: Any) -> Any:
        items = list(values[0]) if len(values) == 1 else list(values)
        if not any(isinstance(each, Dynamic) for each in items):
            return own(*values, **keywords)
        if keywords:
            raise ProgramError(f'{op} of values with {", ".join(keywords)}: choose by if')
        chosen = _number(builder, items[0])
        for each in items[1:]:
            chosen = calculated(op, chosen, _number(builder, each))
        return chosen

    return choose


def _of_number(op: str, own: Callable) -> Callable:
    def compute(builder: Any, *values: Any, **keywords: Any) -> Any:
        if isinstance(values[0], Tensor) and op == 'abs':
            return abs(values[0])
        value = _number(builder, values[0])
        if not isinstance(value, Number):
            return own(*values, **keywords)
        if len(values) > 1 or keywords:
            raise ProgramError(f'{own.__name__} of a value takes nothing besides')
        return calculated(op, value)

    return compute


def _array(builder: Any, source: Any, ctx: Any = None, dtype: Any = None) -> Any:
    """``mx.nd.array`` of numbers, some of which are the sample's."""
    leaves: List[Any] = []
    _leaves_of(source, leaves)
    if not leaves:
        return mx.nd.array(source, ctx=ctx, dtype=dtype)
    if isinstance(source, Tensor):
        return source.astype(dtype or source.dtype)
    flat, shape = _flat(source)
    rows = [
        builder.give(each, dtype or 'float32')
        if isinstance(each, Number)
        else mx.nd.array([each], dtype=dtype or 'float32')
        for each in flat
    ]
    row = rows[0] if len(rows) == 1 else apply('concat', *rows, dim=0)
    return row.reshape(shape) if shape != (len(rows),) else row


def _flat(source: Any) -> Any:
    if not isinstance(source, (list, tuple)):
        return [source], ()
    parts = [_flat(each) for each in source]
    return [each for flat, _ in parts for each in flat], (len(parts),) + parts[0][1]


def _is_training(builder: Any) -> bool:
    return builder.shared.training


_SPECIAL: Dict[Any, Callable] = {
    float: _converted(float),
    int: _converted(int),
    bool: _converted(bool),
    max: _one_of('max', max),
    min: _one_of('min', min),
    abs: _of_number('abs', abs),
    round: _of_number('round', round),
    math.floor: _of_number('floor', math.floor),
    math.ceil: _of_number('ceil', math.ceil),
    math.sqrt: _of_number('sqrt', math.sqrt),
    math.exp: _of_number('exp', math.exp),
    math.log: _of_number('log', math.log),
    math.tanh: _of_number('tanh', math.tanh),
    mx.nd.array: _array,
    autograd.is_training: _is_training,
    autograd.is_recording: _is_training,
    print: lambda *_: _refuse_print(),
}


def _refuse_print() -> None:
    raise ProgramError('print would be called once, while the program is made: return the value')


# --- functions that rewritten code calls (see `rewrite`) -----------------------------------------


class Counted(NamedTuple):
    """``range`` of numbers of the sample."""

    start: Any
    stop: Any
    step: int


def _range(builder: Any, *limits: Any) -> Any:
    if not any(isinstance(each, Number) for each in limits):
        return range(*limits)
    start, stop, step = {1: (0, *limits, 1), 2: (*limits, 1)}.get(len(limits), limits)
    if not isinstance(step, int):
        raise ProgramError('range with a step that is a value: count in a while loop')
    return Counted(start, stop, step)


_SPECIAL[range] = _range


def _not(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.asscalar()
    return calculated('not', value) if isinstance(value, Number) else not value


def _items(value: Any) -> Any:
    if isinstance(value, Number):
        raise ProgramError('a number is not something to loop over')
    return value if isinstance(value, Counted) else list(value)


def _more(items: Any, place: Any) -> Any:
    if not isinstance(items, Counted):
        return place < len(items)
    at = items.start + place * items.step
    return at < items.stop if items.step > 0 else at > items.stop


def _item(items: Any, place: Any) -> Any:
    return items.start + place * items.step if isinstance(items, Counted) else items[place]


FUNCTIONS = {NOT: _not, ITEMS: _items, MORE: _more, ITEM: _item}
__all__ = ['FUNCTIONS', 'Framed', 'called', 'entered', 'kind_of', 'np', 'BuiltinFunctionType']
