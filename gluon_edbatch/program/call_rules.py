"""Rules for calls in the user's code while a program is made."""

import builtins
import inspect
import math
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial, reduce
from types import FunctionType, MethodType
from typing import Any, Callable, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from gluon_edbatch_core.errors import ProgramError

from ..mx.symbols import registered
from ..ops.attrs import Attrs
from ..ops.registry import op_of
from ..subgraph.fingerprint import has_hooks
from .abstract_state import Activation
from .abstract_values import (
    Dynamic,
    KnownNumber,
    SampleNumber,
    SampleTensor,
    apply,
    calculated,
    kind_of,
)
from .flow import Invoke
from .statements import AT, CALL_AT, IN, ITEM, ITEMS, MORE, NOT, OWN, flow_of


class Framed(NamedTuple):
    """A call of the user's Python function, to be followed into its code."""

    function: Any  # written in Python
    arguments: tuple
    keywords: dict[str, Any]


def entered(call: Framed, target: str) -> Activation:
    """Return the activation of a function that begins, with its arguments."""
    flow = flow_of(call.function)
    bound = inspect.signature(call.function, follow_wrapped=False).bind(
        *call.arguments, **call.keywords
    )
    bound.apply_defaults()
    names = dict(bound.arguments)
    closure = call.function.__closure__ or ()
    for name, cell in zip(call.function.__code__.co_freevars, closure):
        names.setdefault(name, cell.cell_contents)
    return Activation(flow, flow.blocks[0], names, target)


class ProgramCalls:
    """Compute results of calls. `functions` are those that rewritten code calls (see
    `statements`)."""

    def __init__(self, foreign: AbstractSet[int]):
        self._foreign = foreign
        self.functions = {
            NOT: _not,
            IN: _in,
            ITEMS: _items,
            MORE: _more,
            ITEM: _item,
            OWN: self._own,
            AT: _at,
            CALL_AT: _call_at,
        }

    def _own(self, container: Any) -> Any:
        """Return a container that is written into; raise if it is not of this call."""
        if id(container) in self._foreign or type(container) is mx.nd.NDArray:
            raise ProgramError(
                'something is written into what is not of this call, such as an attribute of the '
                'model: it would be changed once, while the program is made; return the value'
            )
        return container

    def result(self, builder: Any, call: Invoke, names: dict[str, Any]) -> Any:
        """Return the result of a call, or the function to follow."""
        name = call.function
        function = names[name] if name in names else self.functions[name]
        arguments: list[Any] = []
        for starred, name in call.arguments:
            arguments += list(names[name]) if starred else [names[name]]
        keywords: dict[str, Any] = {}
        for key, name in call.keywords:
            keywords.update(names[name] if key is None else {key: names[name]})
        if function is _call_at:
            holder, key, *arguments = arguments
            chosen = _choice(holder, key)
            if chosen is not None:
                return Framed(_called_one, (*chosen, arguments, keywords), {})
            function = holder[key]
        if _is_hashable(function) and function in _SPECIAL:
            return _SPECIAL[function](builder, *arguments, **keywords)
        if isinstance(function, gluon.Block):
            return _of_block(builder, function, tuple(arguments), keywords)
        return self._of_function(builder, function, tuple(arguments), keywords)

    def _of_function(
        self, builder: Any, function: Any, arguments: tuple, keywords: dict[str, Any]
    ) -> Any:
        leaves: list[Any] = []
        _leaves_of((arguments, keywords), leaves)
        if leaves and type(getattr(function, '__self__', None)) is mx.nd.NDArray:
            function = getattr(builder.fill(function.__self__), function.__name__)
        operator = _operator_of(function)
        if operator and leaves:
            return apply(operator, *arguments, **keywords)
        owner, own = getattr(function, '__self__', None), getattr(function, '__func__', function)
        if isinstance(owner, Dynamic) or getattr(own, '__module__', '') == SampleTensor.__module__:
            return function(*arguments, **keywords)
        if isinstance(own, FunctionType) and not operator and (leaves or not _is_of_library(own)):
            first = (owner,) if isinstance(function, MethodType) else ()
            return Framed(own, (*first, *arguments), keywords)
        if isinstance(owner, (list, dict, set)) and function.__name__ in _CHANGING:
            self._own(owner)
        _check(function, bool(leaves))
        return _as_values(builder, function(*arguments, **keywords))


def _as_values(builder: Any, made: Any) -> Any:
    """Convert what a library made of known values. Arrays become the sample's, as a path may change
    one in place and another may not."""
    if type(made) is mx.nd.NDArray:
        return builder.fill(made, anew=True)
    if type(made) in (list, tuple):
        return type(made)([_as_values(builder, each) for each in made])
    return made


_CHANGING = frozenset(
    'append extend insert pop popitem remove clear sort reverse update setdefault add discard '
    'difference_update intersection_update symmetric_difference_update'.split()
)


def _check(function: Any, has_values: bool) -> None:
    """Raise if a function that is not followed must not be called while the program is made."""
    name = getattr(function, '__qualname__', repr(function))
    if has_values and not _takes_values(function):
        raise ProgramError(
            f'{name} gets values of the sample and cannot be gone into: write it with operators '
            f'of mx.nd, or with numbers read by asscalar()'
        )
    if isinstance(getattr(function, '__self__', None), gluon.Parameter):
        raise ProgramError(
            f'{name} reads a parameter, which would be what it is now for ever: give it to a '
            f'HybridBlock of its own, which takes it by name'
        )
    if not _is_pure(function):
        raise ProgramError(
            f'{name} may give something else, or do something, each time that it is called: pass '
            f'what it gives as an argument'
        )


def _builtins_of(names: str) -> frozenset[Any]:
    return frozenset([getattr(builtins, name) for name in names.split()])


_PURE = _builtins_of(
    'len range zip enumerate isinstance issubclass getattr hasattr sorted list tuple dict set '
    'frozenset str repr type any all sum slice callable hash id divmod reversed iter map filter '
    'complex super object vars dir'
)
_TAKING_VALUES = _builtins_of(
    'len zip enumerate isinstance list tuple dict getattr hasattr reversed type sum'
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
    """Return whether calling a function gives the same each time, without side effects."""
    owner = getattr(function, '__self__', None)
    if isinstance(owner, (list, dict, set, str, tuple, int, float)):
        return True
    if _is_hashable(function) and function in _PURE:
        return True
    module = getattr(function, '__module__', None) or ''
    if 'random' in module or 'time' in module or _draws(function):
        return False
    return _is_of_library(function) or isinstance(function, type) or bool(_operator_of(function))


_registered = lru_cache(maxsize=None)(registered)


def _draws(function: Any) -> bool:
    """Return whether a function is an operator that draws random numbers."""
    operator = _operator_of(function)
    own = [operator, f'_{operator}', f'_random_{operator}'] if operator else []
    return any([op_of(each).draws(Attrs(), True) for each in own if each in _registered()])


def _takes_values(function: Any) -> bool:
    """Return whether a function may get values of the sample: it only stores them, or adds them."""
    owner = getattr(function, '__self__', None)
    if isinstance(owner, (list, dict, set, tuple)):
        return getattr(function, '__name__', '') not in ('index', 'count', 'remove', 'sort')
    if isinstance(function, type) and hasattr(function, '_fields'):
        return True
    return _is_hashable(function) and function in _TAKING_VALUES


def _leaves_of(value: Any, found: list[Any]) -> None:
    if isinstance(value, Dynamic):
        found.append(value)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            _leaves_of(each, found)
    elif isinstance(value, dict):
        _leaves_of(list(value.values()), found)


def _operator_of(function: Any) -> str:
    """Return the name of an operator of ``mx.nd``; empty for other functions."""
    name = getattr(function, '__name__', '')
    module = getattr(function, '__module__', '') or ''
    if isinstance(function, FunctionType) and name and getattr(mx.nd, name, None) is function:
        return name
    if module.startswith('mxnet.ndarray') and hasattr(mx.sym, name):
        return name
    if isinstance(function, FunctionType) and getattr(mx.nd.contrib, name, None) is function:
        return f'_contrib_{name}'
    return ''


def _of_block(builder: Any, block: gluon.Block, arguments: tuple, keywords: dict[str, Any]) -> Any:
    """Call a block: a HybridBlock becomes a static network, any other block is followed."""
    if has_hooks(block):
        raise ProgramError(f'{block.name} has a forward hook, which a program would not call')
    kind = type(block)
    if not _is_gluons(kind.__call__):
        return Framed(kind.__call__, (block, *arguments), keywords)
    if isinstance(block, gluon.HybridBlock) and _is_gluons(kind.forward):
        return builder.call(block, tuple(arguments), keywords)
    forward = _sequential if kind.forward is gluon.nn.Sequential.forward else kind.forward
    return Framed(forward, (block, *arguments), keywords)


def _is_gluons(method: Any) -> bool:
    """Return whether a method is Gluon's or this package's, not the user's."""
    return method.__module__.split('.')[0] in ('mxnet', 'gluon_edbatch')


def _sequential(self, value):
    for each in self._children.values():
        value = each(value)
    return value


# --- a block that a value chooses ----------------------------------------------------------------


def _at(builder: Any, holder: Any, key: Any) -> Any:
    """Return a list's element at a place, or a function that chooses it by a sample's value."""
    chosen = _choice(holder, key)
    return holder[key] if chosen is None else Framed(_chosen_one, chosen, {})


def _call_at(holder: Any, key: Any, *arguments: Any, **keywords: Any) -> None:
    """Represent a call of a list's element at a place (see `ProgramCalls.result`)."""


def _choice(holder: Any, key: Any) -> Any:
    """Return blocks and the sample's number that chooses one of them; None if none chooses."""
    if not isinstance(key, SampleNumber):
        return None
    if getattr(type(holder), '__getitem__', None) not in _PLACES:
        return None
    blocks = tuple([holder[place] for place in range(len(holder))])
    if not blocks or not all([isinstance(each, gluon.Block) for each in blocks]):
        return None
    if key.origins:
        raise KnownNumber(key.origins)
    if key.kind != 'int':
        raise ProgramError(
            f'a block is chosen by a {key.kind} of the sample, which is no index: write int(n)'
        )
    return blocks, calculated('index', key, len(blocks))


_PLACES = [
    kind.__getitem__ for kind in (list, tuple, gluon.nn.Sequential, gluon.nn.HybridSequential)
]


def _chosen_one(blocks, at):
    for place, block in enumerate(blocks[:-1]):
        if at == place:
            return block
    return blocks[-1]


def _called_one(blocks, at, arguments, keywords):
    for place, block in enumerate(blocks[:-1]):
        if at == place:
            return block(*arguments, **keywords)
    return blocks[-1](*arguments, **keywords)


# --- functions of Python's that are taken for what they mean -------------------------------------


def _number(value: Any) -> Any:
    return value.asscalar() if isinstance(value, SampleTensor) else value


def _one_of(op: str, own: Callable) -> Callable:
    def choose(builder: Any, *values: Any, **keywords: Any) -> Any:
        items = list(values[0]) if len(values) == 1 else list(values)
        if not any(isinstance(each, Dynamic) for each in items):
            return own(*values, **keywords)
        if keywords:
            raise ProgramError(f'{op} of values with {", ".join(keywords)}: choose by if')
        chosen = _number(items[0])
        for each in items[1:]:
            chosen = calculated(op, chosen, _number(each))
        return chosen

    return choose


def _of_number(op: str, own: Callable) -> Callable:
    def compute(builder: Any, *values: Any, **keywords: Any) -> Any:
        if op == 'abs' and isinstance(values[0], SampleTensor):
            return abs(values[0])
        value = _number(values[0]) if values else None
        if not isinstance(value, SampleNumber):
            return own(*values, **keywords)
        if len(values) > 1 or keywords:
            raise ProgramError(f'{own.__name__} of a value takes nothing besides')
        return calculated(op, value)

    return compute


def _array(builder: Any, source: Any, ctx: Any = None, dtype: Any = None) -> Any:
    """Return ``mx.nd.array`` of numbers, some of which are the sample's."""
    leaves: list[Any] = []
    _leaves_of(source, leaves)
    if not leaves:
        return _as_values(builder, mx.nd.array(source, ctx=ctx, dtype=dtype))
    if isinstance(source, SampleTensor):
        return source.astype(dtype or source.dtype)
    flat, shape = _flat(source)
    rows = [
        builder.give(each, dtype or 'float32')
        if isinstance(each, SampleNumber)
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


def _isinstance(builder: Any, value: Any, classes: Any) -> bool:
    """Return ``isinstance``; for a number, the answer for all its types in eager Gluon."""
    if not isinstance(value, SampleNumber):
        return isinstance(value, classes)
    (answer, *others) = {issubclass(each, classes) for each in _TYPES[value.kind]}
    if others:
        raise ProgramError(
            'isinstance of a number of the sample, which eager Gluon has of NumPy or of Python: '
            'decide by something else'
        )
    return answer


_TYPES = {'int': (int, np.int64), 'bool': (bool, np.bool_), 'float': (float, np.float32)}


def _type(builder: Any, value: Any) -> Any:
    if isinstance(value, SampleNumber):
        raise ProgramError('type of a number of the sample: decide by something else')
    return mx.nd.NDArray if isinstance(value, SampleTensor) else type(value)


def _any_or_all(op: str, own: Callable) -> Callable:
    """Return ``any`` or ``all`` for a list that is complete, so that all items can be read."""

    def ask(builder: Any, values: Any) -> Any:
        asked = [truth(each) for each in values]
        unknown = [each for each in asked if isinstance(each, SampleNumber)]
        known = [each for each in asked if not isinstance(each, SampleNumber)]
        if not unknown or (known and own(known) is (op == 'or')):
            return own(known)
        return reduce(partial(calculated, op), unknown)

    return ask


def truth(value: Any) -> Any:
    """Return the condition of an ``if``: a Python bool, or a number of the sample."""
    value = _number(value)
    if isinstance(value, SampleNumber):
        return value if value.kind == 'bool' else value != 0
    return bool(value)


def _divmod(builder: Any, value: Any, other: Any) -> Any:
    value, other = _number(value), _number(other)
    return value // other, value % other


def _full(builder: Any, shape: Any, val: Any, **keywords: Any) -> Any:
    made = builder.fill(mx.nd.ones(shape, **keywords), anew=True)
    return made * _number(val)


_SPECIAL: dict[Any, Callable] = {
    isinstance: _isinstance,
    type: _type,
    any: _any_or_all('or', any),
    all: _any_or_all('and', all),
    divmod: _divmod,
    mx.nd.full: _full,
    math.fabs: lambda builder, value: (
        abs(float(value))
        if not isinstance(value, Dynamic)
        else abs(calculated('float', _number(value)))
    ),
    float: _of_number('float', float),
    int: _of_number('int', int),
    bool: _of_number('bool', bool),
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
    _at: _at,
    autograd.is_training: _is_training,
    autograd.is_recording: _is_training,
}


# --- functions that rewritten code calls (see `statements`) -------------------------------------


class Counted(NamedTuple):
    """A ``range`` whose bounds are numbers of the sample."""

    start: Any
    stop: Any
    step: int


def _range(builder: Any, *limits: Any) -> Any:
    if not any(isinstance(each, SampleNumber) for each in limits):
        return range(*limits)
    start, stop, step = {1: (0, *limits, 1), 2: (*limits, 1)}.get(len(limits), limits)
    if not isinstance(step, int):
        raise ProgramError('range with a step that is a value: count in a while loop')
    return Counted(start, stop, step)


_SPECIAL[range] = _range


def _not(value: Any) -> Any:
    value = _number(value)
    return calculated('not', value) if isinstance(value, SampleNumber) else not value


def _in(value: Any, holder: Any) -> Any:
    """Return whether a number is among other numbers, as ``in`` does."""
    leaves: list[Any] = []
    _leaves_of((value, holder), leaves)
    if not leaves or (not isinstance(value, Dynamic) and isinstance(holder, dict)):
        return value in holder
    if any([isinstance(each, SampleTensor) for each in leaves]) or isinstance(holder, (dict, set)):
        raise ProgramError('in of a value of the sample: only of a number in a list or tuple')
    unknown = [each == value for each in holder if isinstance(each, SampleNumber) or kind_of(each)]
    if any([each is True for each in unknown]):
        return True
    unknown = [each for each in unknown if isinstance(each, SampleNumber)]
    return reduce(partial(calculated, 'or'), unknown) if unknown else False


def _items(value: Any) -> Any:
    if isinstance(value, SampleNumber):
        raise ProgramError('a number is not something to loop over')
    # A list itself: Python goes on with what is appended to it in the loop.
    return value if isinstance(value, (Counted, list)) else list(value)


def _more(items: Any, place: Any) -> Any:
    if not isinstance(items, Counted):
        return place < len(items)
    at = items.start + place * items.step
    return at < items.stop if items.step > 0 else at > items.stop


def _item(items: Any, place: Any) -> Any:
    return items.start + place * items.step if isinstance(items, Counted) else items[place]
