"""Checks, before anything else is imported, that a usable MXNet is there."""

import ctypes
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

# What libmxnet.so asks for by name; the others find each other.
LIBRARIES = (
    'libcudart.so.11.0',
    'libcublas.so.11',
    'libcudnn.so.8',
    'libcufft.so.10',
    'libcurand.so.10',
    'libcusolver.so.11',
    'libcusparse.so.11',
    'libnvrtc.so.11.2',
    'libnccl.so.2',
    'libnvToolsExt.so.1',
)
_DRIVER = 'libcuda.so.1'
_INSTALL = (
    "install one with `pip install '.[cpu]'` (CPU), or one of the extras cu112 or "
    'cu117 for the CUDA builds; NumPy must be older than 1.24'
)
_OLDEST, _TOO_NEW = (1, 7), (2, 0)


def require_mxnet():
    """Import MXNet; a CUDA build also where its libraries are in NVIDIA's packages.

    Raises
    ------
    ImportError
        If there is no MXNet, one that cannot be imported, or one of an unsupported version;
        the message says what to install.
    """
    try:
        mxnet = _import_mxnet()
    except ModuleNotFoundError as error:
        if error.name != 'mxnet':
            raise
        raise ImportError(
            f'gluon_edbatch needs Apache MXNet 1.9.1, which is not installed: {_INSTALL}'
        ) from error
    except AttributeError as error:  # NumPy 1.24 removed the aliases that MXNet 1.x uses
        raise ImportError(
            f'MXNet cannot be imported with this NumPy ({error}): {_INSTALL}'
        ) from error
    except OSError as error:
        missing = _what_is_missing(error)
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
    return mxnet


def _import_mxnet():
    try:
        return import_module('mxnet')
    except OSError as error:
        if not _what_is_missing(error):
            raise
    for name in [name for name in sys.modules if name.partition('.')[0] == 'mxnet']:
        del sys.modules[name]  # what the first attempt left
    _load_libraries()
    return import_module('mxnet')


def _load_libraries() -> None:
    """Load the CUDA libraries of NVIDIA's packages, which pip installs and the loader ignores."""
    packages = find_spec('nvidia')
    folders = (packages and packages.submodule_search_locations) or ()
    for name in LIBRARIES:
        for folder in folders:
            for path in Path(folder).glob(f'*/lib/{name}'):
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def _what_is_missing(error: OSError) -> str:
    """What to install if MXNet cannot be loaded for this reason; empty if that is not CUDA."""
    if _DRIVER in str(error):
        return (
            'it is a CUDA build, and there is no NVIDIA driver; on a machine without a GPU '
            "uninstall it and `pip install '.[cpu]'`"
        )
    if any(name in str(error) for name in LIBRARIES):
        return "it is a CUDA build, whose libraries come with `pip install '.[cu117]'` (or cu112)"
    return ''
