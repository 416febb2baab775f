"""Run a program that imports MXNet before gluon_edbatch.

    python -m gluon_edbatch.run script.py [ARGUMENTS]
    python -m gluon_edbatch.run -m module [ARGUMENTS]

With NumPy 1.24 and later, MXNet 1.9.1 can be imported only after gluon_edbatch. Python imports
gluon_edbatch to find this module, which is before the program begins.
"""

import runpy
import sys
from pathlib import Path


def main() -> int:
    """Run the script or module that the command line names; return the exit status."""
    arguments = sys.argv[1:]
    is_module = arguments[:1] == ['-m']
    rest = arguments[is_module:]
    if not rest or rest[0] in ('-h', '--help'):
        print(__doc__, file=sys.stderr if not rest else sys.stdout)
        return 2 if not rest else 0
    sys.argv = rest
    if is_module:
        runpy.run_module(rest[0], run_name='__main__', alter_sys=True)
    else:
        sys.path[0] = str(Path(rest[0]).resolve().parent)  # in place of the current folder
        runpy.run_path(rest[0], run_name='__main__')
    return 0


if __name__ == '__main__':
    sys.exit(main())
