"""The taggers among the workloads of python -m benchmarks."""

import json

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

from benchmarks.commands import main
from benchmarks.settings import EQUAL_LENGTH_RIVALS, Settings
from benchmarks.systems import build_system
from benchmarks.workloads import load_workload
from example.lattice import make_sample as make_lattices
from example.lattice.data import Arc, Lattice
from example.tagger import make_sample as make_sentences
from example.tagger.data import Sentence, Token

NAMES = [
    'lattice-lstm',
    'lattice-gru',
    'bilstm-tagger',
    'bilstm-tagger-char',
    'bilstm-tagger-equal',
]


def settings(name, system='agenda', mode='train', **fields):
    return Settings(name, mode, system, **{**dict(hidden=5, embed=6), **fields})


@pytest.fixture(params=NAMES)
def workload(request):
    """Each of the taggers."""
    return load_workload(settings(request.param))


def test_products_are_those_of_the_eager_model(workload, products):
    net, _ = workload.build()
    samples = workload.samples[:3]
    for sample in samples:
        workload.predict(net, sample)
    assert workload.products(samples) == dict(products)


def test_batched_loss_is_the_eager_one(workload):
    samples, name = workload.samples[:4], workload.settings.workload
    losses = [
        build_system(workload, settings(name, system)).mean_loss(samples).asscalar()
        for system in ('agenda', 'depth', 'unbatched')
    ]
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
    assert (
        main(
            [
                name,
                '--json',
                '--mode',
                'infer',
                '--batch-size',
                '3',
                '--hidden',
                '5',
                '--embed',
                '4',
                '--repeat',
                '1',
                '--minibatches',
                '1',
                '--seconds',
                '0.05',
            ]
        )
        == 0
    )
    row = json.loads(capsys.readouterr().out)
    assert (row['workload'], row['mode'], row['batch_size']) == (name, 'infer', 3)
    assert row['nodes'] > row['batches'] >= row['lower_bound'] >= row['levels'] > 0


def test_rivals_are_refused(capsys):
    assert main(['lattice-lstm', '--scheduler', 'manual', '--minibatches', '1']) == 1
    assert 'lattice-lstm has no such rival' in capsys.readouterr().err


# --- sentences of one length ---------------------------------------------------------------


def test_sentences_of_one_length():
    equal, all_sentences = (
        load_workload(settings(name)).samples for name in ('bilstm-tagger-equal', 'bilstm-tagger')
    )
    (length,) = {len(sentence) for sentence in equal}
    assert len(equal) >= len(all_sentences) / 2
    long_enough = [sentence for sentence in all_sentences if len(sentence) >= length]
    for cut, whole in zip(equal, long_enough):
        assert cut.tokens == whole.tokens[:length]
        assert cut.tags.tolist() == whole.tags[:length].tolist()


@pytest.mark.parametrize('system', EQUAL_LENGTH_RIVALS)
def test_rival_equals_the_model_one_sentence_at_a_time(system):
    chosen = settings('bilstm-tagger-equal', system)
    workload = load_workload(chosen)
    (net, criterion), rival = workload.build(), workload.rival(system)
    samples = workload.samples[:4]
    with autograd.record():
        losses = [workload.loss(net, criterion, sample, eager=True) for sample in samples]
        loss = mx.nd.concat(*losses, dim=0).sum() / len(samples)
    loss.backward()
    scores = np.stack([net(sample).asnumpy() for sample in samples], axis=1)  # (T, N, tags)
    expected = {
        name: parameter.grad().asnumpy()
        for name, parameter in net._collect_params_with_prefix().items()
    }
    plan = rival.plan(samples)
    np.testing.assert_allclose(
        rival.predict(plan).asnumpy().reshape(scores.shape), scores, rtol=1e-4, atol=1e-5
    )
    for _ in range(2):  # a second pass must not add to the first
        ours = rival.loss(plan, samples)
        rival.backward(ours)
        np.testing.assert_allclose(ours.asscalar(), loss.asscalar(), rtol=1e-5)
        assert rival.gradients().keys() == expected.keys()
        for name, gradient in rival.gradients().items():
            assert abs(gradient - expected[name]).max() <= 1e-4 * abs(expected[name]).max(), name


@pytest.mark.parametrize('system', EQUAL_LENGTH_RIVALS)
def test_rival_trains_like_the_model(system):
    losses = []
    for name in (system, 'fsm'):
        chosen = settings('bilstm-tagger-equal', name, optimizer='adam', learning_rate=0.01)
        workload = load_workload(chosen)
        built = build_system(workload, chosen)
        losses.append([built.train(workload.samples[:4]).asscalar() for _ in range(4)])
        built.wait()
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    assert losses[0][3] < losses[0][0]


def test_rival_refuses_other_lengths():
    workload = load_workload(settings('bilstm-tagger-equal', 'manual'))
    with pytest.raises(ValueError, match='batched by hand, no others'):
        workload.rival('manual').plan([*workload.samples[:1], Sentence([Token(1)], [0])])
