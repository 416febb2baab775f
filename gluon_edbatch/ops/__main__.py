"""``python -m gluon_edbatch.ops``: list MXNet's operators without an entry, one a line. Below, two
lines list those of NumPy mode without an entry, and those without a native rule.

``python -m gluon_edbatch.ops NAME…`` shows the entries of operators, and where their rules are.
``--header`` writes ``gluon_edbatch_core/native/src/opcodes.h``, after an operator with a formula
was added.
"""

import argparse
import signal
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from gluon_edbatch_core.native.compiler import SOURCES

from ..mx.symbols import registered
from . import OPS, Op, op_of
from .header import header

_HEADER = SOURCES / 'opcodes.h'
_NUMPY = '_np', '_npi', '_npx'  # of MXNet's NumPy mode; many have equals


def _missing() -> Iterator[str]:
    without = sorted(registered() - set(OPS))
    numpy = [name for name in without if name.startswith(_NUMPY)]
    without = [name for name in without if name not in numpy]
    slow = [op.name for op in OPS.values() if op.batches and op.native is None]
    yield from without
    yield f'{len(without)} operators without an entry, which run one by one; {len(OPS)} with one'
    yield f'and {len(numpy)} of NumPy mode (equals: subgraph/numpy_mode.py): {" ".join(numpy)}'
    yield f'{len(slow)} that are batched, and never natively: {" ".join(sorted(slow))}'


def _shown(value: Any) -> str:
    code = getattr(value, '__code__', None)
    return (
        f'{value.__qualname__} ({code.co_filename}:{code.co_firstlineno})' if code else str(value)
    )


def _known(op: Op) -> Iterator[str]:
    yield op.name if op.name in OPS else f'{op.name} has no entry'
    for field in fields(op)[1:]:
        value = getattr(op, field.name)
        if value != field.default and value != {}:
            yield f'  {field.name}: {_shown(value)}'


def main() -> None:
    """Run the command ``python -m gluon_edbatch.ops``."""
    parser = argparse.ArgumentParser(prog='python -m gluon_edbatch.ops', description=__doc__)
    parser.add_argument('--header', action='store_true', help='write the header for C++')
    parser.add_argument('names', nargs='*', metavar='NAME')
    args = parser.parse_args()
    if args.header:
        _HEADER.write_text(header(), encoding='ascii')
    elif args.names:
        print('\n'.join([line for name in args.names for line in _known(op_of(name))]))
    else:
        print('\n'.join(_missing()))


if __name__ == '__main__':
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end with a reader such as `head`
    main()
