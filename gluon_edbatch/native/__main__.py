"""``python -m gluon_edbatch.native``: compile the native operators now rather than at first use."""
import sys

from .library import BuildError, build

try:
    print(build())
except BuildError as error:
    sys.exit(f'gluon_edbatch: no native operators: {error}')
