"""The work that is done for every recorded call: find its form, and append numbers.

Cython compiles this module where a compiler is present (the types are in ``calls.pxd``). Otherwise
it runs as Python.
"""

from contextvars import ContextVar
from functools import partial
from typing import Any, Optional

import numpy as np

from gluon_edbatch_core.bundle.suspending import scalar_of
from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.recorded_columns import Ints

from .arrays import Array

# Methods of values beside those of the class; `nd` fills it.
METHODS: dict[str, Any] = {}
# What NumPy's arrays and numbers do with a value on their right.
_UFUNCS = {np.add: 'add', np.subtract: 'sub', np.multiply: 'mul', np.true_divide: 'truediv'}
CURRENT: ContextVar = ContextVar('gluon_edbatch_runtime', default=None)
_current = CURRENT.get
_MOST_ROWS = 1 << 31  # of a value: plans have rows as 32-bit integers
_SMALL = 1 << 10  # elements of arrays of which equal ones are one value
ndarray = np.ndarray


class Store:
    """What values of one shape and dtype have in common; equal stores are one object."""

    def __init__(self, row_shape: tuple[int, ...], dtype: Any, rows: int):
        self.row_shape, self.dtype, self.rows = row_shape, np.dtype(dtype), rows
        self.arena = row_shape, self.dtype

    def __repr__(self) -> str:
        return f'{self.dtype.name}{(self.rows, *self.row_shape)}'


_stores: dict[tuple, Store] = {}


def store_of(row_shape: tuple[int, ...], dtype: Any, rows: int) -> Store:
    """Return the one store for this shape and dtype."""
    key = tuple(row_shape), np.dtype(dtype), rows
    store = _stores.get(key)
    if store is None:
        if rows >= _MOST_ROWS:
            raise RecordError(f'a value of {rows} rows is too large')
        store = _stores.setdefault(key, Store(*key))
    return store


NUMBER = _NUMBER = store_of((), np.float32, 1)


class Value:
    """The result of a call in a scope: an array whose shape is known, and whose numbers will be.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    log: Any
    store: Store
    number: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, rows included."""
        return (self.store.rows, *self.store.row_shape)

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the numbers."""
        return self.store.dtype

    def asnumpy(self) -> np.ndarray:
        """Return the numbers; if they are not computed, run all that the scope has recorded."""
        return self.log.read(self)

    def asscalar(self) -> Any:
        """Return the only number of a value, as MXNet does: an array if it has several axes."""
        return scalar_of(self.asnumpy())

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        array = self.asnumpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __getattr__(self, name: str) -> Any:
        method = METHODS.get(name)
        if method is None:
            raise AttributeError(f'a value has no attribute {name!r} without MXNet')
        return partial(method, self)

    def __getitem__(self, key: Any) -> Any:
        return METHODS['__getitem__'](self, key)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = _UFUNCS.get(ufunc)
        if name is None or method != '__call__' or options:
            arrays = [np.asarray(each) if isinstance(each, Value) else each for each in inputs]
            return getattr(ufunc, method)(*arrays, **options)
        first, second = inputs
        if isinstance(first, Value):
            return getattr(first, f'__{name}__')(second)
        return getattr(second, f'__r{name}__')(first)

    def __add__(self, other: Any) -> Any:
        return self.log.with_number('add', 'plus', self, other)

    def __radd__(self, other: Any) -> Any:
        return self.log.with_number('add', 'plus', self, other)

    def __iadd__(self, other: Any) -> Any:
        return self._become(self.log.with_number('add', 'plus', self, other))

    def __sub__(self, other: Any) -> Any:
        return self.log.with_number('sub', 'minus', self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.log.with_number('sub', 'rminus', self, other)

    def __isub__(self, other: Any) -> Any:
        return self._become(self.log.with_number('sub', 'minus', self, other))

    def __mul__(self, other: Any) -> Any:
        return self.log.with_number('mul', 'mul', self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.log.with_number('mul', 'mul', self, other)

    def __imul__(self, other: Any) -> Any:
        return self._become(self.log.with_number('mul', 'mul', self, other))

    def __truediv__(self, other: Any) -> Any:
        return self.log.with_number('div', 'div', self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.log.with_number('div', 'rdiv', self, other)

    def __itruediv__(self, other: Any) -> Any:
        return self._become(self.log.with_number('div', 'div', self, other))

    def __pow__(self, other: Any) -> Any:
        return self.log.with_number('power', 'power', self, other)

    def __rpow__(self, other: Any) -> Any:
        return self.log.with_number('power', 'rpower', self, other)

    def __mod__(self, other: Any) -> Any:
        return self.log.with_number('mod', 'mod', self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.log.with_number('mod', 'rmod', self, other)

    def __neg__(self) -> Any:
        return self.log.operate('negative', self)

    def __abs__(self) -> Any:
        return self.log.operate('abs', self)

    def __eq__(self, other: Any) -> Any:
        return self.log.with_number('equal', 'equal', self, other)

    def __ne__(self, other: Any) -> Any:
        return self.log.with_number('not_equal', 'not_equal', self, other)

    def __lt__(self, other: Any) -> Any:
        return self.log.with_number('lesser', 'lesser', self, other)

    def __le__(self, other: Any) -> Any:
        return self.log.with_number('lesser_equal', 'lesser_equal', self, other)

    def __gt__(self, other: Any) -> Any:
        return self.log.with_number('greater', 'greater', self, other)

    def __ge__(self, other: Any) -> Any:
        return self.log.with_number('greater_equal', 'greater_equal', self, other)

    def __hash__(self) -> int:
        return id(self) // 16

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError('a value of several numbers is neither true nor false')
        return bool(self.asnumpy().item())

    def __len__(self) -> int:
        return self.store.rows

    @property
    def context(self) -> None:
        """None, as there are no devices."""
        return None

    @property
    def ctx(self) -> None:
        """None, as there are no devices."""
        return None

    @property
    def T(self) -> Any:
        """The value with its axes turned round."""
        return METHODS['transpose'](self)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return 1 + len(self.store.row_shape)

    @property
    def size(self) -> int:
        """Number of numbers."""
        return int(np.prod(self.shape))

    def _become(self, other: Any) -> Any:
        """Hold another value of this shape from now on, for all who refer to this one."""
        if other.shape != self.shape:
            raise ValueError(
                f'a value of the shape {other.shape} cannot be written to {self.shape}'
            )
        self.store, self.number = other.store, other.number
        return self

    def __float__(self) -> float:
        return float(self.asnumpy().item())

    def __repr__(self) -> str:
        return f'<Value {"x".join(map(str, self.shape))}>'


def new_value(log, store, number):
    """Return a value of a recording, faster than by ``__init__``."""
    value = Value.__new__(Value)
    value.log = log
    value.store = store
    value.number = number
    return value


class Ragged:
    """Any number of values of one shape, as one argument of a cell. `store` is None if there are no
    values and no shape was given."""

    log: Any
    store: Optional[Store]
    numbers: list[int]

    @property
    def lengths(self) -> Any:
        """Number of values: a number for one row, else an array with one for each row."""
        rows = 1 if self.store is None else self.store.rows
        length = float(len(self.numbers))
        return length if rows == 1 else np.full(rows, length, np.float32)

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_'):
            raise AttributeError(name)
        return getattr(self.log.stacked(self), name)

    def __getitem__(self, key: Any) -> Any:
        return METHODS['__getitem__'](self.log.stacked(self), key)


def new_ragged(log, store, numbers):
    """Return ragged values of a recording."""
    ragged = Ragged.__new__(Ragged)
    ragged.log = log
    ragged.store = store
    ragged.numbers = numbers
    return ragged


def plain_ragged(log, values, place=-1):
    """Return a `Ragged` of these if all are values of the recording with one shape; else None. With
    a `place`, the values are those at this position of each item."""
    store, numbers = None, []
    for item in values:
        if place >= 0:
            item = item[place]
        if type(item) is not Value:
            return None
        value = item
        if value.log is not log or (store is not None and value.store is not store):
            return None
        store = value.store
        numbers.append(value.number)
    return new_ragged(log, store, numbers)


class Prefix:
    """A node of the search tree for the form of a call, after arguments of certain kinds, of which
    the last has a key. `form` is that of the call with exactly these arguments."""

    def __init__(self, key: Any = None):
        self.form: Optional[Form] = None
        self.stacks = False  # whether such a call takes each ragged argument as one value
        self.key = key
        self._latest: Optional[Prefix] = None
        self._others: dict[Any, Prefix] = {}

    def after(self, key):
        """Return the node after an argument of a kind; make it if needed."""
        prefix = self._latest  # once: other threads set it, too
        if prefix is not None and prefix.key is key:
            return prefix
        prefix = self._others.get(key)
        if prefix is None:
            prefix = self._others.setdefault(key, Prefix(key))
        self._latest = prefix
        return prefix


class Form:
    """A call signature: a type with arguments of `rows` rows, numbered within the process."""

    def __init__(self, index: int, type: Any, rows: int, stores: list[Store]):  # noqa: A002
        self.index, self.type, self.rows = index, type, rows
        self.stores, self.outputs = stores, len(stores)
        self.fills = type.fills
        self.nested = type.nested
        self.is_one = self.nested == 0 and not isinstance(self.nested, list)
        self.is_pair = self.nested == (0, 1) and isinstance(self.nested, tuple)
        self.first = stores[0]
        self.second = stores[1] if self.is_pair else None


# Stand in prefixes before the kind of a ragged argument's values; for it, if there are none; and
# before and behind the items of a list or tuple.
_RAGGED, _NOTHING, _BEGIN, _END = object(), object(), object(), object()


class Unknown(Exception):
    """The search tree of call signatures has no node for an argument."""


class Stacks(Unknown):
    """A call takes each ragged argument as one value."""


class CallLog:
    """The calls of one scope, in the order in which they were made: arrays that only grow.

    A value is an int: outputs of calls count up from 0, call by call; the user's numbers are -1,
    -3, …, and arrays -2, -4, … . Columns have each call's form, the end of its arguments among all,
    the arguments (ragged ones last), and the numbers of values of the ragged ones.
    """

    def __init__(self):
        self.node_forms, self.node_ends = Ints(), Ints()
        self.node_args, self.node_lengths = Ints(), Ints()
        self.next_value = 0
        self.numbers: list[float] = []
        self.arrays: list[tuple[Store, np.ndarray]] = []
        self._later: list[int] = []
        self._small: dict[bytes, tuple] = {}  # arrays, by what they hold
        self._lengths_before = 0  # of ragged arguments of earlier calls

    def follow(self, prefix, arg):
        """Return the search node after an argument."""
        kind = type(arg)
        if kind is Value:
            value = arg
            if value.log is not self:
                raise Unknown
            return prefix.after(value.store)
        if kind is int or kind is float:
            return prefix.after(_NUMBER)
        if arg is None:
            return prefix.after(None)
        if kind is Ragged:
            ragged = arg
            if ragged.log is not self:
                raise Unknown
            prefix = prefix.after(_RAGGED)
            return prefix.after(_NOTHING if ragged.store is None else ragged.store)
        if kind is list or kind is tuple:
            prefix = prefix.after(_BEGIN).after(kind)
            for item in arg:
                prefix = self.follow(prefix, item)
            return prefix.after(_END)
        if (kind is Array or kind is ndarray) and arg.ndim and arg.size <= _SMALL:
            value = self.small(arg)
            return prefix.after(value.store)
        raise Unknown

    def put(self, form, arg):
        """Append what an argument reads; values of ragged arguments follow all others."""
        kind = type(arg)
        if kind is Value:
            value = arg
            self.node_args.append(value.number)
        elif kind is int or kind is float:
            self.node_args.append(-2 * len(self.numbers) - 1)
            self.numbers.append(arg)
        elif kind is Ragged:
            ragged = arg
            numbers = ragged.numbers
            if not numbers and form.fills:  # its operator needs a value
                numbers = [self.zeros(form, self.node_lengths.size - self._lengths_before)]
            self._later.extend(numbers)
            self.node_lengths.append(len(numbers))
        elif kind is Array or kind is ndarray:
            value = self.small(arg)
            self.node_args.append(value.number)
        elif arg is not None:
            for item in arg:
                self.put(form, item)

    def small(self, given):
        """Return a small array as a value: one for all that hold the same, such as first states."""
        contents = given.tobytes()
        found = self._small.get(contents)
        if found is None or found[0] != given.shape or found[1] is not given.dtype:
            found = self._small[contents] = given.shape, given.dtype, self.array(given)
        return found[2]

    def array(self, given):
        """Return a value with a copy of an array; subclasses implement it."""
        raise NotImplementedError

    def zeros(self, form, place):
        """Return the number of a value of zeros for a ragged argument; subclasses implement it."""
        raise NotImplementedError

    def finish(self, form):
        """Return the results of a call whose arguments were appended."""
        if self._later:
            for number in self._later:
                self.node_args.append(number)
            self._later = []
        self._lengths_before = self.node_lengths.size
        self.node_forms.append(form.index)
        self.node_ends.append(self.node_args.size)
        base = self.next_value
        self.next_value = base + form.outputs
        if form.is_one:
            return new_value(self, form.first, base)
        if form.is_pair:
            return new_value(self, form.first, base), new_value(self, form.second, base + 1)
        return self.nested(form, form.nested, base)

    def nested(self, form, template, base):
        """Return lists and tuples of the results, in the structure of `template`."""
        if type(template) is int:
            return new_value(self, form.stores[template], base + template)
        values = [self.nested(form, item, base) for item in template]
        return values if type(template) is list else tuple(values)


def recorded(log, form, args):
    """Record a call of a form; return its results."""
    for arg in args:
        log.put(form, arg)
    return log.finish(form)


class Cell:
    """A cell of a bundle: call it as the original block. If `children` is not 0, its last argument
    is a list of children, each of so many values."""

    def __init__(self, name: str, children: int):
        self.name, self.children = name, children
        self.first = Prefix()

    def __call__(self, *args):
        """Record a call in a scope, or run it eagerly outside."""
        log = _current()
        if log is None:
            return self.run_eagerly(args)
        return self.record(log, args)

    def record(self, log, args):
        """Record a call of values, numbers and ragged values; return its results."""
        if self.children and len(args) == 2 and type(args[1]) is not Ragged:
            return self.call_with_children(log, args)
        return self.call(log, args)

    def call(self, log, args):
        """Record a call; return its results."""
        prefix = self.first
        try:
            for arg in args:
                prefix = log.follow(prefix, arg)
            form = prefix.form
            if form is None and not prefix.stacks:
                form = prefix.form = self.resolve(log, args)
        except Stacks:
            prefix.stacks = True
        except Unknown:
            return self.call_unknown(log, args)
        if prefix.stacks:
            return self.call(
                log, tuple([log.stacked(arg) if type(arg) is Ragged else arg for arg in args])
            )
        return recorded(log, form, args)

    def call_with_children(self, log, args):
        """Record a call whose last argument becomes ragged ones; return its results."""
        spread = [args[0]]
        for place in range(self.children):
            ragged = plain_ragged(log, args[1], place if self.children > 1 else -1)
            if ragged is None:
                return self.call_unknown(log, args)
            spread.append(ragged)
        return self.call(log, tuple(spread))

    def run_eagerly(self, args):
        """Run a call outside scopes; `BundledCell` implements it."""
        raise NotImplementedError

    def call_unknown(self, log, args):
        """Record a call with arguments that the search does not know; subclasses implement it."""
        raise NotImplementedError

    def resolve(self, log, args):
        """Return the form of a new kind of call; `BundledCell` implements it."""
        raise NotImplementedError
