"""Compare calls of an `autograd.Function`, and represent them as a subgraph.

A call signature has the class, the attributes, and what the code of `forward` and `backward` reads
(see `fingerprint`), all by value. A call whose signature cannot be compared runs eagerly.
"""

import copy
import dis
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Optional
from weakref import WeakKeyDictionary

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import StaleValueError

from ..ops.attrs import Shape
from .fingerprint import Fingerprint, Same, changed, fingerprint_of_function
from .ir import Subgraph
from .spec import Spec
from .structure import flatten
from .trace import INPUT, StaticGraph

KIND = 'autograd.Function'
# Names in code that has to run once a call: they read values of arrays, or draw random numbers.
_ONCE = frozenset(
    'asscalar asnumpy item tolist bool float print random rand randn randint uniform normal'.split()
)
_STORES = 'STORE_GLOBAL', 'DELETE_GLOBAL', 'STORE_DEREF'
_CANNOT_CHANGE = (
    *(bool, int, float, complex, str, bytes, type(None), type, NDArray),
    *(FunctionType, BuiltinFunctionType, ModuleType),
)
_NOT_COMPARED = (NDArray, mx.sym.Symbol, gluon.Parameter, gluon.ParameterDict, gluon.Block)
_MOST_ELEMENTS = 1 << 16  # of an array among the attributes, which is read to be compared


class Signature:
    """What distinguishes Functions besides their arguments; it compares by value.

    Parameters
    ----------
    function : mxnet.autograd.Function
        A new Function, which was not called yet.

    Attributes
    ----------
    name : str
        Name for users.
    fault : str
        Why such calls cannot be recorded; empty if they can.
    """

    def __init__(self, function: autograd.Function):
        self._template = copy.copy(function)
        self.name = f'{KIND} {type(function).__qualname__}'
        self.fault = ''
        arrays = {key: value for key, value in vars(function).items() if isinstance(value, NDArray)}
        large = [key for key, value in arrays.items() if not _is_small(value)]
        if large:
            self.fault = f'its attribute {large[0]} is a large or lazy array'
            arrays = {}
        for key, value in arrays.items():
            setattr(self._template, key, value.copy())
        self._arrays = tuple(arrays)
        self.fingerprint = self._look()
        self.fault = self.fault or _fault(self.fingerprint)
        self.key = type(function), self.fingerprint

    def new(self) -> autograd.Function:
        """Return a new Function with the attributes of the one that was called."""
        return copy.copy(self._template)

    def changed(self) -> str:
        """Return which attributes have changed since the call, as text; empty if none."""
        return ', '.join(changed(self.fingerprint, self._look()))

    def check(self) -> None:
        """Raise if what the Function reads was changed since the call was recorded."""
        names = self.changed()
        if names:
            raise StaleValueError(
                f'{self.name} reads {names}, which was changed after the call was recorded and '
                f'before it ran: pass it to the constructor, or evaluate the call '
                f'(gluon_edbatch.forward) before the change'
            )

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Return the plain attributes as (name, text), for reports."""
        return tuple(
            [
                (name, repr(value))
                for name, value in sorted(vars(self._template).items())
                if name not in ('_used', 'saved_tensors')
            ]
        )

    def _look(self) -> Fingerprint:
        contents = tuple(
            [(f'self.{key}', _contents(getattr(self._template, key))) for key in self._arrays]
        )
        return contents + fingerprint_of_function(self._template, self._arrays)


def _is_small(array: NDArray) -> bool:
    return type(array) is NDArray and array.size <= _MOST_ELEMENTS and array.stype == 'default'


def _contents(array: NDArray) -> tuple:
    values = array.asnumpy()
    return 'array', values.shape, values.dtype.str, str(array.ctx), values.tobytes()


def _fault(found: Fingerprint) -> str:
    for path, value in found:
        for each in _objects(value):
            if isinstance(each, (*_NOT_COMPARED, np.ndarray)):
                return f'it reads {path}, whose contents are not compared'
            if each is None:
                return f'it reads {path}, which cannot be compared'
    return ''


def _objects(value: Any) -> Iterator[Any]:
    """Yield the objects that a part of a fingerprint identifies; None for one that is not kept."""
    if isinstance(value, Same):
        yield value.object
    elif isinstance(value, (tuple, frozenset)):
        for item in value:
            yield from _objects(item)


class Results:
    """The structure of a call's results, and shape and dtype of each array.

    Parameters
    ----------
    returned : NDArray or sequence of NDArray
    rows : int
        Rows of the first argument.

    Raises
    ------
    TypeError
        If `returned` is neither.
    """

    def __init__(self, returned: Any, rows: int):
        arrays = [returned] if isinstance(returned, NDArray) else list(returned)
        if not arrays or any(type(array) is not NDArray or not array.size for array in arrays):
            raise TypeError('it returns other than arrays')
        self.rows = rows
        self.template = flatten(returned, NDArray, [])
        self.specs: list[tuple[Shape, Any]] = [(array.shape, array.dtype) for array in arrays]

    def for_rows(self, rows: int) -> 'Results':
        """Return the results for another number of rows, where results have the arguments' rows."""
        found = copy.copy(self)
        found.rows = rows
        found.specs = [
            ((shape[0] * rows // self.rows,) + shape[1:], dtype) for shape, dtype in self.specs
        ]
        return found


@dataclass(eq=False)
class FunctionCall:
    """What calls of one batch signature share: the Function, and what was proved about it."""

    signature: Signature
    results: Results
    constants: tuple[Any, ...]  # all inputs of a call, with None for arrays
    apart: str  # why calls run one by one; empty if they are batched
    proved: bool = False  # whether a batch was compared with calls that run alone
    inputs: tuple[Any, ...] = ()
    types: dict[tuple, Any] = field(default_factory=dict)  # remembers the types of these calls

    def graph(self) -> StaticGraph:
        """Return a subgraph of one operator, which MXNet does not know."""
        inputs = sum([constant is None for constant in self.constants])
        count = len(self.results.specs)
        graph = Subgraph.opaque(self.signature.name, [INPUT % i for i in range(inputs)], count)
        places = tuple(range(count))
        return StaticGraph(
            self.signature.name, graph, {}, self.results.template, places, function=self
        )


# Classes of which calls are never recorded, and why.
_eager: 'WeakKeyDictionary[type, str]' = WeakKeyDictionary()
# Classes of which calls run one by one, and why.
_apart: 'WeakKeyDictionary[type, str]' = WeakKeyDictionary()
# What calls returned, by class, and by attributes but for floats and kinds of arguments.
_returned: 'WeakKeyDictionary[type, dict[tuple, list[Results]]]' = WeakKeyDictionary()
_calls: dict[tuple, FunctionCall] = {}
_MOST_KINDS = 1024


def why_eager(cls: type) -> str:
    """Return why calls of a class run eagerly; empty if they are recorded."""
    return _eager.get(cls, '')


def run_eagerly(cls: type, why: str) -> None:
    """Stop recording calls of a class, for a reason."""
    _eager[cls] = why


def run_apart(cls: type, why: str) -> None:
    """Run calls of a class one by one from now on."""
    _apart.setdefault(cls, why)


def _look_at_code(cls: type) -> None:
    """Find out whether the code of a class has to run for each call, or eagerly.

    Code that reads values may depend on other rows, and each call draws its own noise. Side effects
    must happen in the order of the user's program.
    """
    for base in cls.__mro__[: cls.__mro__.index(autograd.Function)]:
        for method in vars(base).values():
            if isinstance(method, FunctionType) and method.__name__ != '__init__':
                _look_at_method(cls, method)


def _look_at_method(cls: type, method: FunctionType) -> None:
    read = inspect.getclosurevars(method)
    for name, value in (*read.globals.items(), *read.nonlocals.items()):
        if not isinstance(value, _CANNOT_CHANGE):
            run_eagerly(cls, f'its {method.__name__} reads {name}, which it may change')
    codes = [method.__code__]
    for code in codes:  # those of lambdas and comprehensions are appended
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in sorted(_ONCE.intersection(code.co_names)):
            run_apart(cls, f'its {method.__name__} calls {name}')
        for each in dis.get_instructions(code):
            if each.opname in _STORES:
                run_eagerly(cls, f'its {method.__name__} sets {each.argval}')


def known_call(
    signature: Signature, specs: Sequence[Spec], constants: tuple, mode: tuple
) -> Optional[FunctionCall]:
    """Return what calls with such arguments share; None if their results are not known.

    Floats among the attributes are assumed not to change shapes. Two numbers of rows tell how
    shapes of results depend on them. Both assumptions are checked when the calls run.
    """
    kinds = tuple([spec.arena for spec in specs])
    rows = specs[0].rows
    same = all([spec.rows == rows for spec in specs])
    found = _returned.get(signature.key[0], {}).get(_kind(signature, specs, constants), ())
    results = next((each for each in found if each.rows == rows), None)
    if results is None and same and len(found) > 1:
        one, other = found[0].for_rows(rows), found[1].for_rows(rows)
        results = one if one.specs == other.specs else None
    if results is None:
        return None
    template = results.template, tuple([(shape[1:], dtype) for shape, dtype in results.specs])
    every = tuple([spec.rows for spec in specs])
    aligned = signature.key, kinds, () if same else every, constants, template, mode
    key: tuple = aligned
    call = _calls.get(key)
    why = _apart.get(signature.key[0], '') if call is None else call.apart
    if why:  # results may have other rows than the arguments
        key = (*aligned, every)
        call = _calls.get(key)
    if call is None:
        if len(_calls) >= _MOST_KINDS:
            _calls.clear()
        call = _calls[key] = FunctionCall(signature, results, constants, why)
    return call


def note_returned(
    signature: Signature, specs: Sequence[Spec], constants: tuple, results: Results
) -> None:
    """Remember what calls with such arguments return."""
    known = _returned.setdefault(signature.key[0], {})
    if len(known) >= _MOST_KINDS:
        known.clear()
    found = known.setdefault(_kind(signature, specs, constants), [])
    found.append(results)
    _look_at_code(signature.key[0])


def _kind(signature: Signature, specs: Sequence[Spec], constants: tuple) -> tuple:
    same = all([spec.rows == specs[0].rows for spec in specs])
    kinds = tuple([spec.arena if same else spec for spec in specs])
    read = tuple([(path, _but_floats(value)) for path, value in signature.fingerprint])
    return kinds, constants, read


def _but_floats(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and value[0] is float:
        return float
    return value
