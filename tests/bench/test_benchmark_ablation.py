"""python -m benchmarks ablation: a row for each optimisation that is switched off."""

import json

import pytest

import gluon_edbatch as edb
from benchmarks.ablation import measure_ablation, variants
from benchmarks.commands import main
from benchmarks.measure import Measurement
from benchmarks.settings import Settings

FIELDS = {
    'workload',
    'mode',
    'batch_size',
    'hidden',
    'embed',
    'scheduler',
    'threads',
    'off',
    'samples_per_s',
    'samples_per_s_min',
    'samples_per_s_max',
    'ratio',
    'cpu_ms',
    'cpu_ratio',
    'without',
    'types_changed',
    'types',
    'repeat',
    'seed',
    'data',
    'cpu',
    'cpus',
    'mxnet',
    'python',
}
TINY = [
    '--batch-size',
    '3',
    '--hidden',
    '5',
    '--embed',
    '4',
    '--repeat',
    '2',
    '--minibatches',
    '1',
    '--seconds',
    '0.05',
]
NAMES = list(edb.CompileOptions.names())


@pytest.mark.parametrize('workload, mode', [('bilstm-tagger', 'infer'), ('treelstm-sick', 'train')])
def test_rows(workload, mode, capsys):
    assert main(['ablation', workload, '--mode', mode, '--json', *TINY]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row['off'] for row in rows] == ['all on', *NAMES, 'all off']
    for row in rows:
        assert set(row) == FIELDS
        assert (row['workload'], row['mode'], row['repeat']) == (workload, mode, 2)
        assert 0 < row['samples_per_s_min'] <= row['samples_per_s'] <= row['samples_per_s_max']
    assert rows[0]['ratio'] == rows[0]['cpu_ratio'] == 1
    changed = {row['off']: row['types_changed'] for row in rows}
    assert changed['all on'] is None and changed['all off'] is None
    assert changed['operators' if workload == 'bilstm-tagger' else 'segments'] > 0


def test_each_variant_runs_with_its_options_on_the_same_minibatches(monkeypatch):
    seen = []
    original = Measurement.timed

    def timed(self, number):
        speed = original(self, number)
        report = self.system.scope.report()
        seen.append((number, report.nodes, {name for kind in report.types for name in kind.passes}))
        return speed

    monkeypatch.setattr(Measurement, 'timed', timed)
    measure_ablation(
        Settings(
            'treelstm-sick',
            'infer',
            'agenda',
            batch_size=3,
            hidden=5,
            embed=4,
            repeat=2,
            minibatches=1,
            seconds=0.05,
        ),
        ['segments', 'hoisting'],
    )
    *repeats, last = seen
    numbers, nodes, passes = zip(*repeats)
    assert numbers == (0,) * 4 + (1,) * 4 and len(set(nodes[:4])) == len(set(nodes[4:])) == 1
    assert {'segments', 'hoisting'} <= last[2]
    assert ['segments' in names for names in passes] == [
        True,
        False,
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert ['hoisting' in names for names in passes] == [
        True,
        True,
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_variants():
    found = variants(['hoisting'])
    assert list(found) == ['all on', 'hoisting', 'all off']
    assert found['hoisting'] == edb.CompileOptions(hoisting=False)
    assert found['all off'] == edb.CompileOptions.none()
    found = variants(['hoisting', 'native'], ['native'])
    assert list(found) == ['all on', 'hoisting', 'all off']
    assert found['all on'] == edb.CompileOptions(native=False)
    assert found['hoisting'] == edb.CompileOptions(native=False, hoisting=False)


def test_table_and_several_modes(capsys):
    assert (
        main(
            [
                'ablation',
                'treelstm-sick',
                '--option',
                'hoisting',
                '--without',
                'native',
                '--mode',
                'infer,train',
                *TINY,
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert 'treelstm-sick, infer' in out and 'treelstm-sick, train' in out
    assert out.count('hoisting') == 2 and 'speed ratio' in out and 'without native' in out


@pytest.mark.parametrize(
    'arguments, message',
    [
        (
            ['--option', 'speed'],
            '--option, --without: no compile option is called speed; there are ',
        ),
        (['--without', 'fast'], 'no compile option is called fast'),
        (['--data', '/nowhere'], 'benchmarks: '),
    ],
)
def test_errors(arguments, message, capsys):
    assert main(['ablation', 'treelstm-sick', *arguments, *TINY]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['nonsense'], 'invalid choice'),
        (['--mode', 'sideways'], "'sideways' is none of"),
        (['--repeat', '0'], '0 is less than 1'),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(['ablation', *arguments])
    assert message in capsys.readouterr().err
