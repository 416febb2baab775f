"""Checks, before anything else is imported, that a usable MXNet is there."""
from importlib import import_module

_INSTALL = (
    "install one with `pip install 'gluon_edbatch[cpu]'` (CPU), or one of the extras cu112 or "
    "cu117 for the CUDA builds; NumPy must be older than 1.24")
_OLDEST, _TOO_NEW = (1, 7), (2, 0)


def require_mxnet():
    """Import MXNet.

    Raises
    ------
    ImportError
        If there is no MXNet, one that cannot be imported, or one of an unsupported version;
        the message says what to install.
    """
    try:
        mxnet = import_module('mxnet')
    except ModuleNotFoundError as error:
        if error.name != 'mxnet':
            raise
        raise ImportError(f'gluon_edbatch needs Apache MXNet 1.9.1, which is not installed: '
                          f'{_INSTALL}') from error
    except AttributeError as error:  # NumPy 1.24 removed the aliases that MXNet 1.x uses
        raise ImportError(f'MXNet cannot be imported with this NumPy ({error}): '
                          f'{_INSTALL}') from error
    version = tuple(int(part) for part in mxnet.__version__.split('.')[:2])
    if not _OLDEST <= version < _TOO_NEW:
        age = 'old' if version < _OLDEST else 'new'
        raise ImportError(f'gluon_edbatch needs MXNet 1.9.1 (1.7 to 1.9 may work); '
                          f'{mxnet.__version__} is too {age}: {_INSTALL}')
    return mxnet
