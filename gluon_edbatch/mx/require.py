"""Check that a usable MXNet is installed, before anything else is imported."""

import sys
from importlib import import_module

from . import cuda as _cuda
from . import numpy_compat

_INSTALL = (
    "install one with `pip install '.[cpu]'` (CPU), or one of the extras cu112 or "
    'cu117 for the CUDA builds'
)
_OLDEST, _TOO_NEW = (1, 7), (2, 0)


def require_mxnet():
    """Import MXNet, prepared for this NumPy; a CUDA build finds NVIDIA's packages of libraries.

    Raises
    ------
    ImportError
        If MXNet is missing, cannot be imported, or has an unsupported version; the message says
        what to install.
    """
    numpy_compat.put_back()
    try:
        with numpy_compat.distutils_for_versions():
            mxnet = _import_mxnet()
    except ModuleNotFoundError as error:
        if error.name != 'mxnet':
            raise
        raise ImportError(
            f'gluon_edbatch needs Apache MXNet 1.9.1, which is not installed: {_INSTALL}'
        ) from error
    except AttributeError as error:  # NumPy may remove more names than are known here
        raise ImportError(
            f'MXNet cannot be imported with this NumPy ({error}): {_INSTALL}'
        ) from error
    except OSError as error:
        missing = _cuda.what_is_missing(error)
        if not missing:
            raise
        raise ImportError(f'MXNet cannot be loaded ({error}): {missing}') from error
    version = tuple(int(part) for part in mxnet.__version__.split('.')[:2])
    if not _OLDEST <= version < _TOO_NEW:
        age = 'old' if version < _OLDEST else 'new'
        raise ImportError(
            f'gluon_edbatch needs MXNet 1.9.1 (1.7 to 1.9 may work); '
            f'{mxnet.__version__} is too {age}: {_INSTALL}'
        )
    numpy_compat.prepare_mxnet()
    return mxnet


def _import_mxnet():
    try:
        return import_module('mxnet')
    except OSError as error:
        if not _cuda.what_is_missing(error):
            raise
    for name in [name for name in sys.modules if name.partition('.')[0] == 'mxnet']:
        del sys.modules[name]  # what the first attempt left
    _cuda.load_libraries()
    return import_module('mxnet')
