"""Find the libraries of MXNet's CUDA builds in NVIDIA's pip packages, unknown to the loader."""

import ctypes
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
DRIVER = 'libcuda.so.1'


def load_libraries() -> None:
    """Load the installed CUDA libraries, so that MXNet finds them without ``LD_LIBRARY_PATH``."""
    packages = find_spec('nvidia')
    folders = (packages and packages.submodule_search_locations) or ()
    for name in LIBRARIES:
        for folder in folders:
            for path in Path(folder).glob(f'*/lib/{name}'):
                ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def what_is_missing(error: OSError) -> str:
    """Return what to install if MXNet cannot be loaded because CUDA is missing; else empty."""
    if DRIVER in str(error):
        return (
            'it is a CUDA build, and there is no NVIDIA driver; on a machine without a GPU '
            "uninstall it and `pip install '.[cpu]'`"
        )
    if any(name in str(error) for name in LIBRARIES):
        return "it is a CUDA build, whose libraries come with `pip install '.[cu117]'` (or cu112)"
    return ''
