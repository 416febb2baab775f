"""Run cells and programs that ``gluon_edbatch`` exported, in batches, without MXNet.

Cells need NumPy only; ONNX Runtime runs the networks of programs.
"""

from gluon_edbatch_core import compiled

compiled.load(f'{__name__}.calls')

from gluon_edbatch_core.bundle.cell_program import NotInNumPy
from gluon_edbatch_core.errors import (
    BatchError,
    BundleError,
    EdbError,
    PolicyError,
    ProgramError,
    RecordError,
    StaleValueError,
    StepsError,
)
from gluon_edbatch_core.schedule import FSMScheduler, Policy, Scheduler
from gluon_edbatch_core.version import __version__

from . import nd
from .calls import Ragged, Value
from .cells import load_cells
from .models import Model, load
from .programs import load_program
from .scope import batching, concat, forward, ragged, stack

COMPILED = compiled.all_compiled()

__all__ = [
    'COMPILED',
    'BatchError',
    'BundleError',
    'EdbError',
    'FSMScheduler',
    'Model',
    'NotInNumPy',
    'Policy',
    'PolicyError',
    'ProgramError',
    'Ragged',
    'RecordError',
    'Scheduler',
    'StaleValueError',
    'StepsError',
    'Value',
    '__version__',
    'batching',
    'concat',
    'forward',
    'load',
    'load_cells',
    'load_program',
    'nd',
    'ragged',
    'stack',
]
