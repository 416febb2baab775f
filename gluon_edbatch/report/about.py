"""What a bug report needs: versions, what is compiled, number of threads."""

import platform
from typing import NamedTuple, Optional

import mxnet as mx
import numpy as np

from gluon_edbatch_core.compiled import why_not
from gluon_edbatch_core.native.threads import get_num_threads
from gluon_edbatch_core.version import __version__

from ..execute.native.library import level


class About(NamedTuple):
    """What `about` returns; as text, a line for each fact.

    Attributes
    ----------
    version, mxnet, numpy, python : str
        Versions.
    system : str
        Operating system and kind of processor.
    python_instead : str
        Why recording and scheduling run as Python, where they do; empty where they are compiled.
    native : str or None
        The level of the native operators, ``'v3'`` of x86-64, say, and whether they were compiled
        at first use. None without native operators.
    threads : int
        Number of threads that native operators may use (`set_num_threads`).
    gpus : int
        Number of GPUs that MXNet finds.
    """

    version: str
    mxnet: str
    numpy: str
    python: str
    system: str
    python_instead: str
    native: Optional[str]
    threads: int
    gpus: int

    def __str__(self) -> str:
        compiled = f'no: {self.python_instead}' if self.python_instead else 'yes'
        return '\n'.join(
            [
                f'gluon_edbatch {self.version}',
                f'MXNet {self.mxnet}, NumPy {self.numpy}, Python {self.python}',
                self.system,
                f'recording and scheduling compiled: {compiled}',
                f'native operators: {self.native or "none"}',
                f'threads: {self.threads}',
                f'GPUs: {self.gpus}',
            ]
        )


def about() -> About:
    """Return what a bug report needs: ``print(edb.about())``.

    The call loads the native operators, and compiles them if needed, as their first use would.

    Returns
    -------
    About
        A named tuple, whose text is a line for each fact.
    """
    return About(
        version=__version__,
        mxnet=mx.__version__,
        numpy=np.__version__,
        python=platform.python_version(),
        system=platform.platform(),
        python_instead=why_not(),
        native=level(),
        threads=get_num_threads(),
        gpus=mx.context.num_gpus(),
    )
