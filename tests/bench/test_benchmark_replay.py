"""python -m benchmarks replay: what differs between two commits is told."""

import json

from benchmarks.commands import main, replay
from tests.support.processes import ROOT

MINIBATCH = {
    'results': 'a',
    'batches of evaluation 0': ['Dense x 2', 'Dense x 1'],
    'schedule of evaluation 0': 'b',
}


def test_nothing_differs_from_itself(capsys, monkeypatch):
    monkeypatch.setattr(replay, 'write_commit', lambda commit, folder: None)
    start = replay._started
    monkeypatch.setattr(replay, '_started', lambda root, cells: start(ROOT, cells))
    assert main(['replay', 'HEAD', '--workloads', 'treelstm-sick']) == 0
    assert capsys.readouterr().out == '6 minibatches, 0 differences\n'


def test_differences_are_told():
    other = dict(MINIBATCH, results='c')
    other['batches of evaluation 0'] = ['Dense x 3']
    assert replay._differences('m', MINIBATCH, json.loads(json.dumps(MINIBATCH))) == []
    assert replay._differences('m', MINIBATCH, other) == [
        'm: results',
        'm: batches of evaluation 0: 2 before, 1 now',
    ]
    assert replay._differences('m', None, other) == ['m: was not there']


def test_unknown_commits_and_workloads(capsys):
    assert main(['replay', 'no such commit']) == 2
    assert main(['replay', 'HEAD', '--workloads', 'nothing']) == 2
    assert 'no workload nothing' in capsys.readouterr().err
