"""scripts/benchmark_schedulers.py and the graphs that it makes from the data."""
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / 'scripts'
sys.path.append(str(SCRIPTS))

import benchmark_schedulers  # noqa: E402
from bench.graphs import SOURCES, load_graphs, minibatch  # noqa: E402

FIELDS = {'workload', 'scheduler', 'batch_size', 'nodes', 'types', 'batches', 'lower_bound',
          'ratio', 'schedule_ms', 'learn_s', 'unseen_states', 'minibatches'}


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """A few samples in each format."""
    root = tmp_path_factory.mktemp('data')
    for name, text in {
        'sst/train.txt': '(3 (2 a) (2 (2 b\xa0c) (1 d)))\n(1 (2 (2 a) (2 b)) (2 c))\n' * 4,
        'zh_ner_weibo/weiboNER_2nd_conll.train': '天0\tO\n天1\tO\n上2\tO\n\n上0\tO\n天1\tO\n\n' * 4,
        'zh_wordlist/dict.txt.small': '天天 3 d\n天天上 2 n\n上天 1 v\n天 9 n\n',
        'wikiner/train.txt': 'a|O b|O ||O\nb|I-PER a|O\n' * 4,
    }.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding='utf-8')
    return root


@pytest.mark.parametrize('workload', SOURCES)
def test_rows(workload, data, capsys):
    assert benchmark_schedulers.main([
        workload, '--data', str(data), '--json', '--minibatches', '2', '--batch-size', '1,32']) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row['batch_size'], row['scheduler']) for row in rows] == [
        (size, name) for size in (1, 32) for name in ('depth', 'agenda', 'sufficient', 'fsm')
    ] + [(32, 'beam')]
    for row in rows:
        assert set(row) == FIELDS and row['workload'] == workload
        assert row['batches'] >= row['lower_bound'] and row['ratio'] >= 1
        if row['scheduler'] == 'fsm':
            assert row['ratio'] == 1


def test_policies_are_read_again_and_pictures_drawn(data, tmp_path, capsys):
    rows = []
    for _ in range(2):
        benchmark_schedulers.main(['lattice-gru', '--data', str(data), '--json', '--minibatches',
                                   '1', '--policies', str(tmp_path), '--scheduler', 'fsm'])
        rows.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert rows[0][0]['batches'] == rows[1][0]['batches'] and rows[1][0]['learn_s'] == 0
    (tmp_path / 'rows.jsonl').write_text('\n'.join(map(json.dumps, rows[0])))
    benchmark_schedulers.main(['--plot', str(tmp_path / 'rows.jsonl'), '--out', str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {
        'lattice-gru.json', 'rows.jsonl', 'schedulers-lattice-gru.png'}


def test_graphs_by_hand(data):
    tree = load_graphs('treelstm-sst', data, 1)[0]
    assert tree.inputs == [[], [0], [], [2], [], [4], [3, 5, 3, 5], [1, 6, 1, 6], [7], [8]]
    lattice = minibatch(load_graphs('lattice-gru', data, 1))
    names = [lattice.type_names[kind] for kind in lattice.types]
    # 天天上: three characters, and words that end at the second and at the third.
    assert names.count('GRUCell(char)') == 3 and names.count('GRUCell(word)') == 2
    assert names.count('Merge') == 2 and names.count('Dense') == 3
    tagger = load_graphs('bilstm-tagger-char', data, 2)[0]
    assert tagger.types.count('LSTMCell(char)(forward)') == 1   # "|" is seen four times


def test_data_must_be_named(capsys):
    assert benchmark_schedulers.main([]) == 2
    assert '--data' in capsys.readouterr().err
