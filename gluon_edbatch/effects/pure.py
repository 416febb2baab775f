"""What of Python, NumPy, MXNet and this package is known to touch nothing that samples share."""

import abc
import builtins
import inspect
import math
import operator
import sys
from collections import Counter, deque
from types import BuiltinFunctionType, FunctionType, GeneratorType
from typing import Any, Callable, Generic, TypeVar

import mxnet as mx
import numpy as np
from mxnet import gluon

from ..ops import op_of
from ..ops.attrs import Attrs
from ..record import control_flow
from .resolved import is_users, is_written_by_user

F = TypeVar('F', bound=Callable[..., Any])

_BUILTINS = (
    'abs all any bool bytes complex dict divmod enumerate filter float frozenset int '
    'isinstance issubclass iter len list map max min next object ord chr pow range repr reversed '
    'round set slice sorted str sum tuple zip callable'
)
_NUMPY = (
    'abs all allclose amax amin any append arange argmax argmin argpartition argsort argwhere '
    'around array array_equal asarray ascontiguousarray average bincount broadcast_to ceil clip '
    'column_stack concatenate copy cumprod cumsum diff dot empty empty_like eye flatnonzero flip '
    'full full_like hstack inner isclose isin linspace matmul max mean median min nonzero ones '
    'ones_like outer pad partition prod ravel repeat reshape round searchsorted sort split '
    'squeeze stack std sum swapaxes take tile transpose triu tril unique unravel_index var vstack '
    'where zeros zeros_like'
)
_OF_MODULES = {
    'itertools': 'chain count cycle islice product combinations permutations repeat starmap '
    'takewhile dropwhile accumulate groupby zip_longest',
    'functools': 'reduce',
    'collections': 'deque Counter OrderedDict defaultdict',
    '_collections': 'deque OrderedDict defaultdict',
    'heapq': 'heappush heappop heapify heapreplace heappushpop nlargest nsmallest merge',
    '_heapq': 'heappush heappop heapify heapreplace heappushpop',
    'bisect': 'bisect bisect_left bisect_right insort insort_left insort_right',
    '_bisect': 'bisect bisect_left bisect_right insort insort_left insort_right',
}
WRITE_FIRST = frozenset(  # functions that write to their first argument
    'heappush heappop heapify heapreplace heappushpop insort insort_left insort_right'.split()
)
READING = frozenset(  # methods of containers, text and arrays
    'get items keys values index count copy union intersection difference issubset issuperset '
    'isdisjoint symmetric_difference most_common elements total '
    'join split rsplit strip lstrip rstrip lower upper title startswith endswith replace format '
    'find rfind isdigit isalpha isalnum isupper islower zfill encode decode splitlines partition '
    'rpartition capitalize ljust rjust center casefold '
    'asnumpy asscalar item tolist astype reshape reshape_like as_in_context as_nd_ndarray '
    'as_np_ndarray detach wait_to_read take dot ravel flatten squeeze all any std var cumsum '
    'nonzero diagonal slice slice_like slice_axis expand_dims split split_v2 swapaxes transpose '
    'broadcast_to broadcast_like broadcast_axes repeat tile pad flip one_hot pick topk argsort '
    'argmax argmin argmax_channel clip abs sign sum nansum prod nanprod mean max min norm round '
    'rint fix floor ceil trunc sin cos tan arcsin arccos arctan degrees radians sinh cosh tanh '
    'arcsinh arccosh arctanh exp expm1 log log10 log2 log1p sqrt rsqrt cbrt rcbrt square '
    'reciprocal relu sigmoid softmax log_softmax softmin zeros_like ones_like diag depth_to_space '
    'is_integer bit_length as_integer_ratio conjugate searchsorted '
    '_asdict __len__ __contains__'.split()
)
WRITING = frozenset(
    'append extend add update pop popleft appendleft extendleft remove insert sort reverse clear '
    'setdefault discard popitem rotate subtract move_to_end intersection_update '
    'difference_update fill itemset resize put partition'.split()
)
CALLING = frozenset('map filter sorted min max reduce starmap nlargest nsmallest'.split())
OF_LIBRARIES = READING | WRITING  # names that objects of a library have, which runs make
for _cls in (
    mx.nd.NDArray, mx.np.ndarray, np.ndarray, list, dict, set, str, bytes, tuple, int, float,
    deque, Counter, GeneratorType,
):  # fmt: skip
    OF_LIBRARIES |= frozenset(dir(_cls))
COPYING = frozenset('asnumpy asscalar item tolist copy astype argmax argmin'.split())
OF_ARRAYS = frozenset('fill itemset resize put partition sort'.split())
OF_GLUON = frozenset('data list_data begin_state state_info values lengths'.split())
DATA = frozenset(  # attributes of containers and arrays
    'shape dtype size ndim T context ctx stype real imag start stop step args lengths'.split()
)
_CONSTANTS = 'gluon_edbatch.record.constant_hooks'  # has what scopes put in the place of these:
_MAKE_ARRAYS = frozenset('_hooked_array _hooked_zeros hooked'.split())
_FUNCTIONS_OF_EDB = frozenset('concat stack add_n ragged forward each'.split())
NUMBER, NEW, CONTAINER, ANYTHING = 'number', 'new', 'container', 'anything'
_NUMBERS = frozenset(
    'len int float bool str ord chr isinstance issubclass any all range repr callable bytes '
    'complex'.split()
)
_CONTAINERS = frozenset('list tuple set frozenset zip enumerate reversed sorted'.split())
_VIEWS = frozenset(  # functions of NumPy that may return a view, or a container
    'asarray ascontiguousarray broadcast_to flip ravel reshape split squeeze swapaxes '
    'transpose'.split()
)
_EXCEPTIONS = frozenset([each for each in vars(builtins).values() if isinstance(each, type)])
_BY_NAME = frozenset(  # of MXNet: noise, effects, and what calls functions
    'normal uniform exponential poisson negative_binomial generalized_negative_binomial randn '
    'randint rand choice shuffle bernoulli Custom foreach while_loop cond save load waitall '
    'mark_variables from_numpy from_dlpack'.split()
)
_PARTS = 'random', 'sample', 'multinomial', 'update', 'seed', 'set_'
_IN_TRAINING = 'Dropout', 'dropout', 'Zoneout', 'zoneout', 'RNN', 'LeakyReLU', 'BatchNorm'
BASES = (object, tuple, list, dict, set, abc.ABC, Generic)  # of classes that runs make objects of
_pure = {getattr(builtins, name) for name in _BUILTINS.split()} | {operator.itemgetter}
_pure.update([getattr(np, name) for name in _NUMPY.split()])
_pure.update([each for each in vars(math).values() if isinstance(each, BuiltinFunctionType)])
_pure.update(
    [
        getattr(operator, name)
        for name in operator.__all__
        if not name.startswith(('set', 'del', 'i', 'method', 'attr', 'call'))
        or name in ('index', 'inv', 'invert', 'is_', 'is_not', 'indexOf')
    ]
)


def pure(function: F) -> F:
    """Mark a function as pure: its calls read and write nothing that another sample can see.

    Where a model reads values, samples then may be suspended although the package does not know
    what this function does. Reads inside of it evaluate in place.

    Parameters
    ----------
    function : callable
        A Python function.

    Returns
    -------
    callable
        The same function.

    Examples
    --------
    >>> @edb.pure
    ... def legal_moves(state):
    ...     return library_of_others.moves(state)
    """
    function.__edb_pure__ = True  # type: ignore[attr-defined]
    return function


def is_noisy(name: str, training: bool) -> bool:
    """Return whether a function of MXNet with this name may draw noise or have effects."""
    return (
        name in _BY_NAME
        or any([part in name for part in _PARTS])
        or (training and any([part in name for part in _IN_TRAINING]))
        or op_of(name).draws(Attrs(), training)
    )


def is_pure(function: Any, training: bool) -> bool:
    """Return whether calls of a library's function, or of its class, have no effect that others
    see. Some write to their first argument (`WRITE_FIRST`)."""
    if isinstance(function, np.ufunc):
        return True
    try:
        if function in _pure:
            return True
    except TypeError:  # not hashable
        return False
    name, module = getattr(function, '__name__', ''), getattr(function, '__module__', '') or ''
    if isinstance(function, type) and issubclass(function, BaseException):
        return not is_users(function.__init__) and not is_users(function.__new__)
    if name in _OF_MODULES.get(module, '').split():
        return True
    if module == _CONSTANTS and name in _MAKE_ARRAYS:
        return True
    if module.startswith(('mxnet.ndarray', 'mxnet.numpy', 'gluon_edbatch.api.nd')) or (
        module == 'ndarray' and isinstance(function, FunctionType)
    ):
        return not (is_noisy(name, training) or name == 'Dropout' or 'random' in module)
    return module == 'gluon_edbatch.api.functional' and name in _FUNCTIONS_OF_EDB


def place_of_out(function: Any) -> int:
    """Return how many arguments come before one that a function writes its result to."""
    if isinstance(function, np.ufunc):
        return function.nin
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return sys.maxsize
    return names.index('out') if 'out' in names else sys.maxsize


def made_by(function: Any) -> str:
    """Return what a pure function of a library gives: a `NUMBER` or text; a `NEW` array; a new
    `CONTAINER` of its arguments' elements; or `ANYTHING`, also one of its arguments."""
    module, name = getattr(function, '__module__', '') or '', getattr(function, '__name__', '')
    if module == 'math' or (module == 'builtins' and name in _NUMBERS):
        return NUMBER
    if isinstance(function, np.ufunc) or module.startswith(
        ('mxnet.', 'ndarray', 'gluon_edbatch.api.nd', _CONSTANTS)
    ):
        return NEW
    if module == 'builtins' and name in _CONTAINERS:
        return CONTAINER
    return NEW if module == 'numpy' and name not in _VIEWS else ANYTHING


def is_plain_class(cls: type) -> bool:
    """Return whether a class is the user's, and made as usual, or an exception of Python."""
    if type(cls) not in (type, abc.ABCMeta) or issubclass(cls, gluon.Block):
        return False
    return is_written_by_user(cls) or (issubclass(cls, BaseException) and cls in _EXCEPTIONS)


def why_not_recorded(block: gluon.Block, training: bool) -> str:
    """Say what speaks against calls of a block that are recorded, at any time; empty if nothing."""
    name, cls = block.name, type(block)
    if isinstance(block, mx.gluon.HybridBlock) and block in control_flow.found:
        return f'{name} has control flow of MXNet'
    if training and (
        any([part in cls.__name__ for part in ('Dropout', 'Zoneout', 'BatchNorm')])
        or getattr(block, '_dropout', False)
    ):
        return f'{name} draws noise'
    for base in cls.__mro__:
        for function in vars(base).values():
            if is_users(function) and function.__name__ != '__init__':
                code = function.__code__
                odd = [each for each in code.co_names if is_noisy(each, training)]
                odd += ['Dropout'] * ('Dropout' in code.co_names and 'always' in code.co_consts)
                if odd:
                    return f'{name} calls {odd[0]}'
    return ''
