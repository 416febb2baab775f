"""The walk over random programs: Gluon Blocks whose forward has Python control flow over values,
drawn by a seed, compiled and compared with eager (`tests/fuzz/walk_programs.py`)."""

import gluon_edbatch  # noqa: F401  before MXNet, for later versions of NumPy
