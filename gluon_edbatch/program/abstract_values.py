"""Abstract values of a sample while a program is made: tensors and numbers.

Computing with them in Python adds steps to the block that is being made (`building`).
"""

import operator
from typing import Any, Callable, NoReturn

import mxnet as mx
import numpy as np

from gluon_edbatch_core.branching.host_arithmetic import ARITHMETIC, COMPARED
from gluon_edbatch_core.errors import ProgramError

from ..record.indexing import basic_index

_DECIDED = (
    'Python would decide by a value what to do next, in code that a program cannot follow: decide '
    'by if or while in a function of yours'
)


class Dynamic:
    """A value that differs from sample to sample."""

    __slots__ = ()
    builder: Any
    place: int

    def _refuse(self, message: str = _DECIDED) -> Any:
        raise ProgramError(message)

    def __hash__(self) -> int:
        return self._refuse(
            'a value of the sample is a key of a dict or set: use mx.nd.take or pick'
        )

    def __bool__(self) -> bool:
        return self._refuse()

    __float__ = __int__ = __bool__

    def __index__(self) -> int:
        return self._refuse(
            'a value of the sample is used as an index or a count: take it with mx.nd.take or an '
            'Embedding, or count in a while loop'
        )

    def __format__(self, spec: str) -> str:
        return self._refuse('a text is made of a value of the sample: return the value instead')

    __str__ = __repr__ = object.__repr__


class KnownNumber(Exception):
    """A number that counts as a value must be known; `origins` are the variables it comes from."""

    def __init__(self, origins: frozenset[Any]):
        super().__init__(origins)
        self.origins = origins


class SampleNumber(Dynamic):
    """A Python number, read from a tensor or computed from such numbers: value `place` of the block
    that `builder` makes. `origins` are variables of known numbers that it comes from (see
    `specialise`)."""

    __slots__ = ('builder', 'place', 'kind', 'origins')

    def __init__(self, builder: Any, place: int, kind: str, origins: frozenset[Any] = frozenset()):
        self.builder, self.place = builder, place
        self.kind, self.origins = kind, origins

    def _refuse(self, message: str = _DECIDED) -> Any:
        if self.origins:
            raise KnownNumber(self.origins)
        super()._refuse(message)

    def item(self) -> 'SampleNumber':
        """Return the number itself, as NumPy's numbers return theirs."""
        return self

    def __invert__(self) -> Any:
        if self.kind == 'int':
            return calculated('sub', calculated('neg', self), 1)
        if self.kind == 'float':
            return self._refuse('~ of a number that is no integer: write ~int(n)')
        return self._refuse(
            '~ of a truth value, of which Python and NumPy (whose numbers asscalar() gives) make '
            'other things: write not b'
        )


def kind_of(value: Any) -> str:
    """Return the kind of a number, ``'float'``, ``'int'`` or ``'bool'``, or ``''``."""
    if isinstance(value, SampleNumber):
        return value.kind
    if isinstance(value, (bool, np.bool_)):
        return 'bool'
    if isinstance(value, (int, np.integer)):
        return 'int'
    return 'float' if isinstance(value, (float, np.floating)) else ''


def calculated(op: str, *operands: Any) -> Any:
    """Return a number computed from numbers, at least one of which is a `SampleNumber`."""
    kinds = [kind_of(each) for each in operands]
    if '' in kinds:
        return NotImplemented
    if op in ARITHMETIC and set(kinds) == {'bool'}:
        raise ProgramError(
            'arithmetic of truth values alone, of which Python and NumPy (whose numbers asscalar() '
            'gives) make other things: write int(a) + int(b)'
        )
    if op == 'pow' and 'float' not in kinds and type(operands[1]) is int and operands[1] < 0:
        return calculated('pow', calculated('float', operands[0]), operands[1])
    if op in COMPARED or op == 'not':
        kind = 'bool'
    elif op in ('truediv', 'float', 'sqrt', 'exp', 'log', 'tanh'):
        kind = 'float'
    elif op in ('int', 'floor', 'ceil', 'round'):
        kind = 'int'
    elif op == 'bool' or (op in ('and', 'or', 'xor') and set(kinds) == {'bool'}):
        kind = 'bool'
    else:
        kind = 'float' if 'float' in kinds else 'int'
    builder = next(each.builder for each in operands if isinstance(each, SampleNumber))
    return builder.calculate(op, operands, kind)


def _number_operator(op: str, swapped: bool = False) -> Callable:
    def method(self: SampleNumber, *others: Any) -> Any:
        if others and isinstance(others[0], SampleTensor):
            return NotImplemented
        if others and isinstance(others[0], mx.nd.NDArray):  # one that is known: the model's
            return getattr(operator, op)(self, self.builder.fill(others[0]))
        return calculated(op, *(others + (self,) if swapped else (self,) + others))

    return method


for _op in 'add sub mul truediv floordiv mod pow and or xor'.split():
    setattr(SampleNumber, f'__{_op}__', _number_operator(_op))
    setattr(SampleNumber, f'__r{_op}__', _number_operator(_op, True))
for _op in 'lt le gt ge eq ne neg pos abs floor ceil'.split():
    setattr(SampleNumber, f'__{_op}__', _number_operator(_op))


def _shifted(op: str, swapped: bool) -> Callable:
    """Return a method that shifts by a number of bits, as a product with a power of two."""

    def shift(self: SampleNumber, other: Any) -> Any:
        number: Any
        by: Any
        number, by = (other, self) if swapped else (self, other)
        if not kind_of(other):
            return NotImplemented
        if 'float' in (self.kind, kind_of(other)):
            raise ProgramError(
                '<< or >> of a number that is no integer: write int(n) << 1, or n * 2 and n / 2'
            )
        if not isinstance(by, SampleNumber) and by < 0:
            raise ProgramError('<< or >> by a negative number, which is an error in Python')
        return calculated(op, number, 2**by)

    return shift


for _op, _times in (('lshift', 'mul'), ('rshift', 'floordiv')):
    setattr(SampleNumber, f'__{_op}__', _shifted(_times, False))
    setattr(SampleNumber, f'__r{_op}__', _shifted(_times, True))
_WITHOUT = {'is_integer': 'n % 1 == 0', 'conjugate': 'n', 'real': 'n'}


def _missing(message: str) -> property:
    return property(lambda self: self._refuse(message))


for _name in {*dir(int), *dir(float), *dir(np.float32)} - set(dir(SampleNumber)):
    if _name[0] != '_':
        _instead = _WITHOUT.get(_name, 'it with arithmetic, comparisons, math, min, max, round')
        _told = f'a number of the sample has no {_name} in a program: write {_instead}'
        setattr(SampleNumber, _name, _missing(_told))


# --- tensors -------------------------------------------------------------------------------------


class SampleTensor(Dynamic, mx.nd.NDArray):
    """A sample's NDArray while a program is made: shape and dtype are known, values are not.

    The class derives from NDArray, so that ``array + tensor`` calls the tensor's method.
    """

    __slots__ = ('builder', 'place', 'shared', 'spec')

    def __init__(self, builder: Any, place: int, spec: Any, shared: bool = False):
        self.builder, self.place, self.spec = builder, place, spec
        self.shared = shared  # with an argument, or as a view: writing into it would show there

    def __del__(self) -> None:
        """Do nothing: there is no array of MXNet's to be freed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, as of an NDArray."""
        return self.spec.shape

    @property
    def dtype(self) -> Any:
        """Dtype, as of an NDArray."""
        return np.dtype(self.spec.dtype).type

    @property
    def context(self) -> mx.Context:
        """Context of the program."""
        return self.builder.shared.ctx

    ctx = context

    @property
    def T(self) -> 'SampleTensor':
        """The transposed tensor."""
        return apply('transpose', self)

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, key: Any) -> 'SampleTensor':
        index = basic_index(key, self.shape)
        if index is None:
            raise ProgramError(
                'an array is indexed by something else than integers and slices: use '
                'mx.nd.take, pick or where'
            )
        taken = self if index.take is None else apply('slice', self, **index.take.keywords)
        shape = index.shape or (1,)
        return self._view(taken if taken.shape == shape else apply('reshape', taken, shape=shape))

    def _view(self, result: 'SampleTensor') -> 'SampleTensor':
        """Note that `result` shares this tensor's memory in eager Gluon, and return it."""
        self.shared = result.shared = True
        return result

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise ProgramError(
            'an array is written into: make a new one, by mx.nd.concat, where or arithmetic'
        )

    def reshape(self, *shape: Any, **keywords: Any) -> 'SampleTensor':
        """Return the tensor in another shape, as ``NDArray.reshape``."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        made = apply('reshape', self, shape=keywords.pop('shape', shape), **keywords)
        return self._view(made)

    def transpose(self, *axes: Any) -> 'SampleTensor':
        """Return the tensor with its axes reordered, as ``NDArray.transpose``."""
        if len(axes) == 1 and isinstance(axes[0], (tuple, list)):
            axes = tuple(axes[0])
        return apply('transpose', self, axes=axes)

    def astype(self, dtype: Any, copy: bool = True) -> 'SampleTensor':
        """Return the tensor in another dtype, as ``NDArray.astype``."""
        return apply('cast', self, dtype=np.dtype(dtype).name)

    def copy(self) -> 'SampleTensor':
        """Return a copy that shares no memory."""
        return apply('identity', self)

    def detach(self) -> 'SampleTensor':
        """Return the tensor without a gradient."""
        return self._view(apply('BlockGrad', self))

    def as_in_context(self, _: Any) -> 'SampleTensor':
        """Return the tensor itself: a program runs on one context."""
        return self

    as_in_ctx = as_in_context

    def asscalar(self) -> SampleNumber:
        """Return the only element as a number."""
        return self.builder.read(self)

    item = asscalar


def _method(name: str) -> Any:
    """Return a method that applies an operator, if NDArrays and Symbols both have it."""
    if hasattr(mx.sym.Symbol, name) and hasattr(mx.sym, name):
        return lambda self, *arguments, **keywords: apply(name, self, *arguments, **keywords)
    return _missing(f'an array of the sample has no {name} in a program')


_INHERITED = ('size', 'ndim')  # NDArray computes them from the shape
for _name in dir(mx.nd.NDArray):
    if _name not in {*vars(SampleTensor), *_INHERITED} and (_name[:1] != '_' or _name == '_slice'):
        setattr(SampleTensor, _name, _method(_name))
SampleTensor.handle = _method('handle')
_ARRAYS = {  # as NDArrays compute, of two arrays, with a number, and of a number with an array
    'add': ('broadcast_add', '_plus_scalar', '_plus_scalar'),
    'sub': ('broadcast_sub', '_minus_scalar', '_rminus_scalar'),
    'mul': ('broadcast_mul', '_mul_scalar', '_mul_scalar'),
    'truediv': ('broadcast_div', '_div_scalar', '_rdiv_scalar'),
    'mod': ('broadcast_mod', '_mod_scalar', '_rmod_scalar'),
    'pow': ('broadcast_power', '_power_scalar', '_rpower_scalar'),
    'lt': ('broadcast_lesser', '_lesser_scalar', ''),
    'le': ('broadcast_lesser_equal', '_lesser_equal_scalar', ''),
    'gt': ('broadcast_greater', '_greater_scalar', ''),
    'ge': ('broadcast_greater_equal', '_greater_equal_scalar', ''),
    'eq': ('broadcast_equal', '_equal_scalar', ''),
    'ne': ('broadcast_not_equal', '_not_equal_scalar', ''),
}


def _array_operator(op: str, swapped: bool) -> Callable:
    arrays, scalar, reverse = _ARRAYS[op]

    def method(self: SampleTensor, other: Any) -> Any:
        if isinstance(other, SampleNumber):
            other = self.builder.give(other, self.dtype)
        if isinstance(other, (SampleTensor, mx.nd.NDArray)):
            pair = (other, self) if swapped else (self, other)
            return apply(arrays, *pair)
        if kind_of(other):
            return apply(reverse if swapped else scalar, self, scalar=float(other))
        return NotImplemented

    return method


for _op, (_, _, _reverse) in _ARRAYS.items():
    setattr(SampleTensor, f'__{_op}__', _array_operator(_op, False))
    if _reverse:
        setattr(SampleTensor, f'__r{_op}__', _array_operator(_op, True))
SampleTensor.__neg__ = lambda self: apply('negative', self)
SampleTensor.__abs__ = lambda self: apply('abs', self)


def _in_place(op: str) -> Callable:
    computed = _array_operator(op, False)

    def method(self: SampleTensor, other: Any) -> Any:
        result = computed(self, other)
        if result is NotImplemented:
            return result
        if self.shared or result.shape != self.shape or result.dtype != self.dtype:
            raise ProgramError(
                f'an array is changed in place, which others see that share its memory (or it is '
                f'of another shape or dtype): write x = x {_SHOWN[op]} y'
            )
        self.builder, self.place = result.builder, result.place
        return self

    return method


_SHOWN = {'add': '+', 'sub': '-', 'mul': '*', 'truediv': '/', 'mod': '%'}
for _op in _SHOWN:
    setattr(SampleTensor, f'__i{_op}__', _in_place(_op))


def apply(op: str, *arguments: Any, **attributes: Any) -> Any:
    """Apply an MXNet operator to tensors and constant arrays; return one tensor, or a list."""
    tensor = next(
        (
            leaf
            for each in [*arguments, *attributes.values()]
            for leaf in (each if isinstance(each, (list, tuple)) else [each])
            if isinstance(leaf, SampleTensor)
        ),
        None,
    )
    assert tensor is not None  # or it would not be called
    return tensor.builder.apply(op, arguments, attributes)
