"""Programs that train models; ``python -m example`` lists them."""

from importlib.util import find_spec

try:
    import gluon_edbatch  # noqa: F401  before MXNet, which it prepares
except ImportError:
    if not find_spec('gluon_edbatch_runtime'):  # which runs the functions in `*/encode.py`
        raise
