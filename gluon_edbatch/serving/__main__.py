"""Serves a folder by MLServer: python -m gluon_edbatch.serving FOLDER; see --help."""

import sys

from .command import main

if __name__ == '__main__':
    sys.exit(main())
