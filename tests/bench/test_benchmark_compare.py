"""python -m benchmarks compare: the speed of two commits, in turns."""

import json

import pytest

from benchmarks.commands import compare, main
from tests.support.processes import ROOT

SMALL = ['--workloads', 'treelstm-sick', '--mode', 'infer', '--batch-size', '2', '--hidden', '4']
SHORT = ['--embed', '4', '--seconds', '0.01', '--turns', '3', '--json']


@pytest.mark.parametrize('least, status', [('0.001', 0), ('1000', 1)])
def test_both_sides_are_measured(least, status, capsys, monkeypatch):
    monkeypatch.setattr(compare, '_make', lambda commit, folder: None)
    start = compare.start
    monkeypatch.setattr(compare, 'start', lambda root, *rest: start(ROOT, *rest))
    assert main(['compare', 'HEAD', *SMALL, *SHORT, '--at-least', least]) == status
    out, err = capsys.readouterr()
    row = json.loads(out)
    assert (row['workload'], row['mode']) == ('treelstm-sick', 'infer')
    assert row['best'] == pytest.approx(row['now'] / row['before'])
    assert f'geometric mean of best: {row["best"]:.3f}' in err


def test_unknown_commits_and_workloads(capsys):
    assert main(['compare', 'no such commit']) == 2
    assert main(['compare', 'HEAD', '--workloads', 'nothing']) == 2
    assert 'no workload nothing' in capsys.readouterr().err
