"""python -m benchmarks few: a row for each layer, mode and number of samples."""

import json

from benchmarks import few
from benchmarks.commands import main

TINY = ['--repeat', '1', '--seconds', '0.001']


def test_rows_and_table(capsys, monkeypatch):
    monkeypatch.setattr(few, 'WARM_UP', 1)
    assert main(['few', 'small dense', 'relu', '--samples', '1', '3', '--json', *TINY]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row['layer'], row['mode'], row['samples']) for row in rows] == [
        (layer, mode, samples)
        for layer in ('small dense', 'relu')
        for mode in ('infer', 'train')
        for samples in (1, 3)
    ]
    assert all(min(row[way] for way in ('scope_ms', 'batched_ms', 'eager_ms')) > 0 for row in rows)
    assert main(['few', 'small dense', '--samples', '2', *TINY]) == 0
    assert 'small dense' in capsys.readouterr().out


def test_unknown_layer(capsys):
    assert main(['few', 'nothing', *TINY]) == 2
    assert 'no layer nothing' in capsys.readouterr().err
