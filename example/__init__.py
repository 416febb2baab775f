"""Programs that train models; ``python -m example`` lists them."""

import gluon_edbatch  # noqa: F401  before MXNet, which it prepares
