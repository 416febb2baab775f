"""``python -m gluon_edbatch.ops``: which operators of MXNet have no entry here.

``--header`` writes ``execute/native/src/opcodes.h``, after an operator with a formula was added.
"""

import argparse
from pathlib import Path

from ..mx.symbols import registered
from . import OPS
from .header import header

_HEADER = Path(__file__).parents[1] / 'execute/native/src/opcodes.h'


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog='python -m gluon_edbatch.ops', description=__doc__)
    parser.add_argument('--header', action='store_true', help='write the header for C++')
    if parser.parse_args().header:
        _HEADER.write_text(header(), encoding='ascii')
        return
    missing = sorted(registered() - set(OPS))
    print('\n'.join(missing))
    print(f'{len(missing)} operators without an entry, which run one by one; {len(OPS)} with one')


if __name__ == '__main__':
    main()
