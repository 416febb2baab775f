"""Let MXNet 1.9.1, which was written for NumPy 1.23, run with later versions of NumPy.

`put_back` gives NumPy the names that MXNet reads and later versions lack. It never replaces a name
that exists. `prepare_mxnet` then changes how MXNet prints parameters. MXNet hands each parameter to
its library as text, and NumPy 2 writes ``(np.int64(2), 3)`` where NumPy 1 wrote ``(2, 3)``.

The text is changed where MXNet makes it: its modules that call ``str`` on a parameter get
`attribute_text` under that name. All functions of ``mx.nd``, ``mx.np`` and ``mx.sym`` use these
calls, and so do the shapes of blocks' parameters. ``numpy.set_printoptions(legacy='1.25')`` would
be one line, but it changes what users' programs print, and other code may reset it. Converting in
each operator's wrapper would miss calls of the library that have no wrapper.

MXNet also compares versions with distutils, which Python 3.12 removed. An installed setuptools
still provides it. `distutils_for_versions` stands in for it while MXNet is imported.
"""

import re
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

_VERSION = np.lib.NumpyVersion(np.__version__)
_HAS_PLAIN_NUMBERS = _VERSION < '2.0.0b1'  # when tuples are printed
# Modules that print parameters or shapes for MXNet's library.
_PRINTING = ('_ctypes.ndarray', '_ctypes.symbol', 'io.io', 'kvstore.base')


def put_back() -> None:
    """Define the names that MXNet reads from NumPy and that this version of NumPy lacks."""
    for name, value in _removed().items():
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # some versions warn before they lack a name
            if not hasattr(np, name):
                setattr(np, name, value)


@contextmanager
def distutils_for_versions() -> Iterator[None]:
    """Provide ``distutils.version`` inside the ``with``, if Python has none."""
    if find_spec('distutils') is not None:
        yield
        return
    package, module = types.ModuleType('distutils'), types.ModuleType('distutils.version')
    vars(module).update(LooseVersion=_numbers_of, StrictVersion=_numbers_of)
    sys.modules.update({'distutils': package, 'distutils.version': module})
    try:
        yield
    finally:  # setuptools warns if another is imported before its own
        del sys.modules['distutils'], sys.modules['distutils.version']


def _numbers_of(version: str) -> list[int]:
    return [int(number) for number in re.findall(r'\d+', version)]


def prepare_mxnet() -> None:
    """Make MXNet print NumPy's numbers in tuples and lists as NumPy 1 did.

    With NumPy 1.25 and later, also make `asscalar` accept one element with several axes, which
    NumPy no longer converts to a number.
    """
    if _VERSION >= '1.25.0':
        import_module('mxnet.ndarray').NDArray.asscalar = _asscalar
    if not _HAS_PLAIN_NUMBERS:
        for name in _PRINTING:
            vars(import_module(f'mxnet.{name}'))['str'] = attribute_text
        vars(import_module('mxnet.symbol.symbol'))['str'] = _Text


def attribute_text(value: Any) -> str:
    """Return the text that MXNet's library reads for the value of an operator's parameter."""
    text = str(value)
    if 'np.' not in text or not isinstance(value, (tuple, list)):
        return text
    items = [
        attribute_text(item) if isinstance(item, (np.number, np.bool_, tuple, list)) else repr(item)
        for item in value
    ]
    if isinstance(value, list):
        return f'[{", ".join(items)}]'
    return f'({items[0]},)' if len(items) == 1 else f'({", ".join(items)})'


def _asscalar(self) -> Any:
    """Return the only element of an NDArray as a NumPy scalar; raise ValueError for others."""
    if self.size != 1:
        raise ValueError('The current array is not a scalar')
    return self.asnumpy().reshape(-1)[0]


class _IsStr(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, str)


class _Text(str, metaclass=_IsStr):
    """Replace ``str`` by `attribute_text` in a module that also checks ``isinstance(x, str)``."""

    def __new__(cls, value: Any = ''):
        return attribute_text(value)


def _removed() -> dict[str, Any]:
    """Return attributes of older NumPy versions that MXNet reads, by name."""
    later: Any = np  # its type stubs know only the latest version
    return {
        **{kind.__name__: kind for kind in (bool, int, float, complex, object, str)},
        **dict.fromkeys(('NaN', 'NAN'), np.nan),
        **dict.fromkeys(('Inf', 'PINF'), np.inf),
        **dict(NINF=-np.inf, PZERO=0.0, NZERO=-0.0),
        **dict(alltrue=np.all, sometrue=np.any, round_=np.round),
        **dict(product=np.prod, cumproduct=np.cumprod, row_stack=np.vstack),
        'trapz': getattr(later, 'trapezoid', None),
        'in1d': lambda ar1, *args, **options: np.isin(np.ravel(ar1), *args, **options),
        'msort': partial(np.sort, axis=0),
        **{name: _financial(name) for name in ('mirr', 'npv', 'pmt', 'ppmt', 'pv', 'rate')},
        'compat': types.SimpleNamespace(basestring=str),
    }


def _financial(name):
    def gone(*args, **kwargs):
        raise RuntimeError(f'numpy.{name} is gone since NumPy 1.20: numpy-financial has it')

    gone.__name__ = name
    return gone
