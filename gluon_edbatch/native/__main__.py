"""``python -m gluon_edbatch.native``: print the path of the library for this processor; compile it
now, not at first use, if none came with the package."""

import sys

from ..execute.native.library import BuildError, build

try:
    print(build())
except BuildError as error:
    sys.exit(f'gluon_edbatch: no native operators: {error}')
