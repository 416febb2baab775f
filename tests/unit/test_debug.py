"""GLUON_EDBATCH_DEBUG shows what each stage makes of a model, and nothing unless asked."""

import re

import mxnet as mx
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch import debug
from tests.support.models import started
from tests.support.processes import run_python


class Cell(gluon.HybridBlock):
    """A cell of a node and its children."""

    def __init__(self):
        super().__init__()
        self.up = gluon.nn.Dense(4, in_units=3)

    def hybrid_forward(self, F, x, children):
        """(N, 4)"""
        return F.tanh(self.up(x) + F.sum(children * 2, axis=1))


def two_levels():
    """Three leaves, two nodes above, and an operator that does not run natively."""
    cell, arrays = started(Cell()), [mx.nd.full((1, 3), number) for number in range(5)]
    last = gluon.nn.HybridLambda(lambda F, x: F.arccosh(F.tanh(x) + 2))
    with edb.batching('agenda'):
        leaves = [cell(x, edb.ragged([], shape=(1, 4))) for x in arrays[:3]]
        values = [last(cell(x, edb.ragged(leaves[:count]))) for x, count in zip(arrays[3:], (2, 3))]
    edb.forward(values)


SHOWN = {  # from which level on
    'the schedule': (
        1,
        r'edb: agenda\n  Schedule\(7 nodes in 3 batches\)\n'
        r'  0: Cell\(cell\)\[3, kx4\] x 3\n  1: Cell.* x 2\n  2: HybridLambda.*\[4\] x 2\n',
    ),
    'arenas': (
        2,
        r'edb: plan\n(  arena.*\n)?  arena \d: 5 rows of float32\(3,\) on cpu\(0\), 5 given\n',
    ),
    'groups': (2, r'group HybridLambda.*\[4\]: batches \[3\]\n'),
    'what is hoisted': (2, r'arena 2\[0:5\] = Cell.* \(hoisted\) of 5 rows \(arena \d\[0:5\]\)\n'),
    'what is gathered': (2, r'of 2 rows \(.*, arena \d\[indices 0:5, parents from 5\], '),
    'subgraphs': (3, r'%\d = _mul_scalar\(%\d, scalar=2\)\n'),
    'what passes change': (
        3,
        r'edb: operators makes of\n(  %.*\n)+  return .*\nedb: this:\n(  %.*\n)+'
        r'.*arccosh\(%\d\)\n',
    ),
}
NATIVE = {
    'registers': (4, r'natively\n  r0: rows of 4, output 0, .*\n(.*\n)*  r2: values of 4, input 1'),
    'instructions': (4, r'  r4\[0:4\] = SEGMENT_SUM\(r3\[0:4\], 0\)\n'),
    'products': (4, r'  r0\[0:4\] = PRODUCT\(r1\[0:3\], p0, p1, 0, 1, 0\)\n'),
    'what has none': (4, r'edb: HybridLambda.*\[4\], not natively: it has arccosh\n'),
}


@pytest.mark.parametrize('level', range(5))
def test_levels(level, monkeypatch, capsys):
    monkeypatch.setattr(debug, 'LEVEL', level)
    two_levels()
    out, err = capsys.readouterr()
    assert not out and bool(err) == bool(level)
    for what, (least, pattern) in {**SHOWN, **(NATIVE if edb.native_available() else {})}.items():
        assert bool(re.search(pattern, err)) == (level >= least), what


def test_nothing_is_made_text_unless_shown(monkeypatch):
    class Dear:
        """Whose text nobody wants to pay for."""

        def __str__(self):
            raise AssertionError

    monkeypatch.setattr(debug, 'LEVEL', 2)
    debug.show(debug.SUBGRAPHS, 'graph', Dear())
    one = Dear()
    assert debug.changed('pass', Dear(), one) is one


def test_variable():
    program = 'from gluon_edbatch import debug; print(debug.LEVEL)'
    for value, level in [('', '0'), ('3', '3')]:
        done = run_python('-W', 'ignore', '-c', program, GLUON_EDBATCH_DEBUG=value)
        assert done.stdout == f'{level}\n', done.stderr
    done = run_python('-W', 'ignore', '-c', program, GLUON_EDBATCH_DEBUG='x')
    assert done.returncode and "GLUON_EDBATCH_DEBUG is a level from 0 to 4, not 'x'" in done.stderr
