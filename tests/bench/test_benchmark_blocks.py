"""python -m benchmarks blocks: both sides compute the same, and rows are complete."""

import json

import numpy as np
import pytest

from benchmarks.blocks import BlockSettings, CompiledBatch, PlainBatch
from benchmarks.cells import CELLS
from benchmarks.commands import main
from benchmarks.commands.blocks import NAMES
from tests.support.tiers import sampled

FIELDS = {
    'cell',
    'gates',
    'mode',
    'rows',
    'hidden',
    'embed',
    'reads',
    'off',
    'plain_us',
    'compiled_us',
    'speedup',
    'plain_cpu_us',
    'compiled_cpu_us',
    'cpu_speedup',
    'plain_operators',
    'operators',
    'gathers',
    'native',
    'threads',
    'repeat',
    'seed',
    'cpu',
    'cpus',
    'mxnet',
    'python',
}
TINY = [
    '--hidden',
    '4',
    '--matrix-hidden',
    '3',
    '--embed',
    '5',
    '--repeat',
    '2',
    '--seconds',
    '0.001',
]


def test_names():
    assert tuple(CELLS) == NAMES


@pytest.mark.parametrize(
    'cell, fused, reads, off',
    sampled(3, NAMES, [False, True], ['gather', 'slice'], [(), ('native',)]),
)
def test_both_sides_compute_the_same(cell, fused, reads, off):
    settings = BlockSettings(cell, fused, rows=6, hidden=4, embed=5, reads=reads, off=off)
    plain = PlainBatch(settings, settings.build())
    expected = [output.asnumpy() for output in plain.forward()]
    for training in (False, True):
        compiled = CompiledBatch(settings, settings.build(), training)
        for found, wanted in zip(compiled.forward(), expected):
            np.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
        assert compiled.gathers == (len(CELLS[cell].arguments) if reads == 'gather' else 0)
        assert plain.operators > 0 and (
            compiled.operators == 1 if compiled.native else compiled.operators > compiled.gathers
        )
        assert not (off and compiled.native)


def test_gates_apart_and_fused_have_as_many_parameters():
    def size(cell):
        return sum(np.prod(parameter.shape) for parameter in cell.collect_params().values())

    for name in NAMES:
        apart, fused = (BlockSettings(name, kind, 1, 4, 5).build() for kind in (False, True))
        assert size(apart) == size(fused) > 0


def test_backward_adds_gradients_of_the_parameters():
    settings = BlockSettings('lstm', False, rows=6, hidden=4, embed=5)
    plain_cell = settings.build()
    plain = PlainBatch(settings, plain_cell)
    plain.both()
    expected = [parameter.grad().asnumpy() for parameter in plain_cell.collect_params().values()]
    compiled = CompiledBatch(settings, settings.build(), training=True)
    compiled.both()
    found = [gradient.asnumpy() for gradient in compiled.gradients]
    assert len(found) == len(expected) == 12
    for one in expected:  # in whatever order the batch reads them
        assert any(
            one.shape == other.shape and np.allclose(one, other, rtol=1e-4, atol=1e-6)
            for other in found
        )


def test_rows_and_options(capsys):
    command = ['blocks', 'gru', '--gates', 'fused', '--json', *TINY]
    assert main([*command, '--rows', '1,4', '--off', 'native']) == 0
    assert main([*command, '--rows', '4', '--off', 'native,operators']) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row['rows'], row['mode']) for row in rows] == [
        (1, 'forward'),
        (1, 'both'),
        (4, 'forward'),
        (4, 'both'),
        (4, 'forward'),
        (4, 'both'),
    ]
    for row in rows:
        assert set(row) == FIELDS and (row['cell'], row['gates']) == ('gru', 'fused')
        assert row['plain_us'] > 0 and row['compiled_us'] > 0 and not row['native']
    assert rows[0]['gathers'] == 0 and rows[2]['gathers'] == 2  # one row is always a slice
    assert rows[4]['off'] == ['native', 'operators'] and rows[4]['operators'] < rows[2]['operators']


def test_table(capsys):
    assert main(['blocks', 'mv', 'treegru-leaf', '--rows', '2', *TINY]) == 0
    out = capsys.readouterr().out
    for title in ('mv, gates apart, hidden 3', 'mv, gates fused', 'treegru-leaf, gates apart'):
        assert title in out
    assert out.count('forward speedup') == 4


def test_errors(capsys):
    assert main(['blocks', 'gru', '--off', 'speed', *TINY]) == 2
    assert 'no compile option is called speed' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(['blocks', 'gru', '--gates', 'both'])
    assert "'both' is none of apart, fused" in capsys.readouterr().err
