"""Support code for several test files, which do not import each other."""

import gluon_edbatch  # noqa: F401  before MXNet, for later versions of NumPy
