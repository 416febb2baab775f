"""python -m benchmarks gains: rows of all workloads that are compared."""

import json

import pytest

from benchmarks import gains
from benchmarks.commands import main
from benchmarks.gains import COMPARISONS
from benchmarks.workloads import WORKLOADS

TINY = [
    '--batch-size',
    '3',
    '--hidden',
    '6',
    '--embed',
    '4',
    '--repeat',
    '1',
    '--minibatches',
    '1',
    '--seconds',
    '0.05',
]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Systems share this process: starting one for each takes longer than all that is measured."""
    measure_in_turn = gains.measure_in_turn
    monkeypatch.setattr(
        gains, 'measure_in_turn', lambda cells, apart: measure_in_turn(cells, apart=False)
    )


def test_what_is_compared_is_there():
    for name, comparison in COMPARISONS.items():
        assert name in WORKLOADS and comparison.bar > 0
        if any(system.startswith('manual') for system in comparison.others):
            assert set(comparison.others) <= set(WORKLOADS[name].rivals)


@pytest.mark.parametrize(
    'workload, modes', [('treenn-sst', ['train']), ('bilstm-tagger-equal', ['train', 'infer'])]
)
def test_rows(workload, modes, capsys):
    assert main(['gains', workload, '--json', *TINY]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    comparison = COMPARISONS[workload]
    systems = ['fsm', *comparison.others]
    assert [(row['mode'], row['scheduler']) for row in rows] == [
        (mode, system) for mode in modes for system in systems
    ]
    for begin in range(0, len(rows), len(systems)):
        ours, *others = rows[begin : begin + len(systems)]
        assert ours['gain'] is None and ours['bar'] is None
        for row in others:
            assert row['workload'] == workload and row['hidden'] == 6
            assert row['gain'] == pytest.approx(ours['samples_per_s'] / row['samples_per_s'], 1e-2)
            assert row['bar'] == pytest.approx(comparison.bar, 1e-2)


def test_table(capsys):
    assert main(['gains', 'treenn-sst', '--scheduler', 'depth', *TINY]) == 0
    head, headings, *rows = capsys.readouterr().out.strip().splitlines()
    assert head.startswith('treenn-sst, minibatches of 3, hidden 6') and 'at least' in headings
    assert [row.split()[1] for row in rows] == ['depth', 'unbatched', 'unbatched-hybridized']
    assert all(row.split()[-1] == '7.00' for row in rows[1:])


def test_a_workload_that_cannot_be_measured(capsys):
    assert main(['gains', 'treenn-sst', '--data', '/nowhere', *TINY]) == 1
    assert 'benchmarks: treenn-sst: fsm: ' in capsys.readouterr().err


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['nonsense'], 'invalid choice'),
        (['--scheduler', 'fastest'], 'invalid choice'),
        (['--batch-size', '0'], '0 is less than 1'),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(['gains', *arguments])
    assert message in capsys.readouterr().err
