"""``python -m gluon_edbatch.distributed -n 2 -s 1 COMMAND``: start a job."""

import sys

from .launch import main

if __name__ == '__main__':
    sys.exit(main())
