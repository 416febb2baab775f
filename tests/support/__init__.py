"""What several test files use. No test file imports another; they import from here."""

import gluon_edbatch  # noqa: F401  before MXNet, for later versions of NumPy
