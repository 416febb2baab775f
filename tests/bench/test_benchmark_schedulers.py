"""python -m benchmarks schedulers and the graphs that it records."""

import json

import pytest

import gluon_edbatch as edb
from benchmarks.commands import main
from benchmarks.graphs import GraphSource
from benchmarks.workloads import WORKLOADS
from tests.support.models import TreeLSTM, random_trees, started

FIELDS = {
    'workload',
    'scheduler',
    'batch_size',
    'nodes',
    'types',
    'batches',
    'lower_bound',
    'ratio',
    'tighter_bound',
    'proved',
    'tighter_ratio',
    'schedule_ms',
    'learn_s',
    'unseen_states',
    'minibatches',
    'decides',
}
QUICK = ['--minibatches', '2', '--hidden', '4', '--json']


@pytest.mark.parametrize('workload', ['treelstm-sick', 'treelstm2-sst', 'bilstm-tagger-char'])
def test_rows(workload, capsys):
    assert main(['schedulers', workload, '--batch-size', '1,8', *QUICK]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    tables = ('E_base', 'E_max', 'E_sort')
    assert [(row['batch_size'], row['scheduler']) for row in rows] == [
        (size, name)
        for size in (1, 8)
        for name in ('depth', 'agenda', 'sufficient', *tables, 'fsm')
    ]
    for row in rows:
        assert set(row) == FIELDS and row['workload'] == workload
        assert row['batches'] >= row['tighter_bound'] >= row['lower_bound']
        assert row['ratio'] >= row['tighter_ratio'] >= 1
        assert row['proved'] == row['minibatches'] == 2
        assert bool(row['decides']) == (row['scheduler'] == 'fsm' or row['scheduler'] in tables)
        if row['scheduler'] in tables:
            assert row['decides'] == 'table'
        if row['scheduler'] == 'fsm' and workload != 'treelstm2-sst':
            assert row['ratio'] == 1


def test_policies_are_read_again_and_pictures_drawn(tmp_path, capsys):
    rows = []
    for _ in range(2):
        main(
            [
                'schedulers',
                'lattice-gru',
                '--policies',
                str(tmp_path),
                '--scheduler',
                'fsm',
                '--batch-size',
                '4',
                *QUICK,
            ]
        )
        rows.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert rows[0][0]['batches'] == rows[1][0]['batches'] and rows[1][0]['learn_s'] == 0
    (tmp_path / 'rows.jsonl').write_text('\n'.join(map(json.dumps, rows[0])))
    main(['schedulers', '--plot', str(tmp_path / 'rows.jsonl'), '--out', str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {
        'lattice-gru.json',
        'rows.jsonl',
        'schedulers-lattice-gru.png',
    }


def test_lattices_are_cut(capsys):
    nodes = []
    for more in ([], ['--characters', '20']):
        arguments = [
            'lattice-gru',
            '--batch-size',
            '4',
            '--scheduler',
            'depth',
            *more,
            '--effort=0',
            *QUICK,
        ]
        assert main(['schedulers', *arguments]) == 0
        row = json.loads(capsys.readouterr().out)
        nodes.append(row['nodes'])
        assert row['tighter_bound'] == row['lower_bound'] and row['proved'] == 0
    assert 2 * 20 < nodes[1] < nodes[0]


@pytest.mark.parametrize('workload', WORKLOADS)
def test_graphs_of_all_workloads(workload):
    for mode in ('train', 'infer'):
        source = GraphSource(workload, None, mode, 4)
        one, two = source.graph(source.samples[:1]), source.graph(source.samples[:2])
        assert 0 < len(one) < len(two)
        assert edb.lower_bound(two) >= edb.lower_bound(one) - sum(one.alone)


def test_the_graph_of_a_scope_is_what_will_be_scheduled():
    net = started(TreeLSTM())
    with edb.batching('agenda') as scope:
        values = [net(tree) for tree in random_trees(4)]
        first = scope.graph()
    edb.forward(values)
    ((graph, _),) = scope.schedules()
    for name in ('types', 'offsets', 'inputs'):
        assert (getattr(first, name) == getattr(graph, name)).all()
    assert len(scope.graph()) == 0


def test_a_scope_that_was_not_entered_has_no_graph():
    with pytest.raises(RuntimeError, match='not entered'):
        edb.batching().graph()
