"""The taggers among the workloads of scripts/benchmark.py."""
import json
import sys
from collections import Counter
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from lattice import make_sample as make_lattices
from lattice.data import Arc, Lattice
from tagger import make_sample as make_sentences
from tagger.data import Sentence, Token

SCRIPTS = Path(__file__).resolve().parents[1] / 'scripts'
sys.path.append(str(SCRIPTS))

from bench.settings import Settings  # noqa: E402
from bench.systems import build_system  # noqa: E402
from bench.workloads import load_workload  # noqa: E402
from benchmark import main  # noqa: E402

NAMES = ['lattice-lstm', 'lattice-gru', 'bilstm-tagger', 'bilstm-tagger-char']


def settings(name, system='agenda', mode='train', **fields):
    return Settings(name, mode, system, **{**dict(hidden=5, embed=6), **fields})


@pytest.fixture(params=NAMES)
def workload(request):
    """Each of the taggers."""
    return load_workload(settings(request.param))


@pytest.fixture
def products(monkeypatch):
    """Counts the rows of every matrix product that runs eagerly, by its columns in and out."""
    found = Counter()
    original = mx.nd.FullyConnected

    def counted(data, weight, *args, **kwargs):
        columns_out, columns_in = weight.shape
        found[columns_in, columns_out] += data.size // columns_in
        return original(data, weight, *args, **kwargs)
    monkeypatch.setattr(mx.nd, 'FullyConnected', counted)
    return found


def test_products_are_those_of_the_eager_model(workload, products):
    net, _ = workload.build()
    samples = workload.samples[:3]
    for sample in samples:
        workload.predict(net, sample)
    assert workload.products(samples) == dict(products)


def test_batched_loss_is_the_eager_one(workload):
    samples, name = workload.samples[:4], workload.settings.workload
    losses = [build_system(workload, settings(name, system)).mean_loss(samples).asscalar()
              for system in ('agenda', 'depth', 'unbatched')]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


def test_levels():
    words = [[], [Arc(0, 1)], [Arc(0, 2)], []]
    lattices = [Lattice([1] * 4, words, [0] * 4), Lattice([1], [[]], [0])]
    assert load_workload(settings('lattice-lstm')).levels(lattices) == 4
    sentence = Sentence([Token(1), Token(0, (1, 2, 3)), Token(1), Token(1)], [0] * 4)
    # three characters, the second word to the fourth, and back in the second layer
    assert load_workload(settings('bilstm-tagger-char')).levels([sentence]) == 3 + 3 + 4
    plain = Sentence([Token(1)] * 4, [0] * 4)
    assert load_workload(settings('bilstm-tagger')).levels([plain]) == 4 + 4


def test_real_data_are_found_by_their_folders(tmp_path):
    make_sentences.write_sample(tmp_path / 'wikiner', {'train': 7, 'dev': 2})
    assert len(load_workload(settings('bilstm-tagger', data=str(tmp_path))).samples) == 7
    make_lattices.write_sample(tmp_path / 'zh_ner_weibo', {'train': 9, 'dev': 2, 'test': 2})
    (tmp_path / 'zh_wordlist').mkdir()
    (tmp_path / 'zh_ner_weibo' / 'words.txt').rename(tmp_path / 'zh_wordlist' / 'dict.txt.small')
    assert len(load_workload(settings('lattice-gru', data=str(tmp_path))).samples) == 9


@pytest.mark.parametrize('name', ['lattice-lstm', 'bilstm-tagger-char'])
def test_row(name, capsys):
    assert main([name, '--json', '--mode', 'infer', '--batch-size', '3', '--hidden', '5',
                 '--embed', '4', '--repeat', '1', '--minibatches', '1', '--seconds', '0.05']) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row['workload'], row['mode'], row['batch_size']) == (name, 'infer', 3)
    assert row['nodes'] > row['batches'] >= row['lower_bound'] >= row['levels'] > 0


def test_rivals_are_refused(capsys):
    assert main(['lattice-lstm', '--scheduler', 'manual', '--minibatches', '1']) == 1
    assert 'lattice-lstm has no such rival' in capsys.readouterr().err
