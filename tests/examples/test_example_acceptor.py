"""The sequence acceptor: data, the model in batches, the training program and the page's."""

import contextlib

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.loss import SoftmaxCrossEntropyLoss

import gluon_edbatch as edb
from example.common.errors import DataError
from example.sequence_acceptor import page
from example.sequence_acceptor.data import build_sentences, load_split
from example.sequence_acceptor.model import LSTMAcceptor
from example.sequence_acceptor.train import main
from example.tree_sst import make_sample
from gluon_edbatch.testing import assert_matches_eager

SEQUENCES = [(1, 4, 5, 1), (42, 1), (56,), (56, 2, 17), (3,) * 9]


# --- files ---------------------------------------------------------------------------------


def write(directory, text):
    path = directory / 'train.txt'
    path.write_text(text, encoding='utf-8')
    return path


def test_sentences_have_the_words_in_order_and_the_class_of_the_root(tmp_path):
    phrases = load_split(write(tmp_path, '(3 (2 a) (1 b))\n(2 (4 c) (0 d))\n(0 e)\n(4 f)\n(1 g)\n'))
    sentences = build_sentences(phrases, lambda words: list(map(ord, words)))
    assert [''.join(map(chr, sentence.tokens)) for sentence in sentences] == ['ab', 'e', 'f', 'g']
    assert [sentence.label.tolist() for sentence in sentences] == [[1], [0], [1], [0]]
    assert {sentence.label.dtype for sentence in sentences} == {np.dtype('float32')}


@pytest.mark.parametrize(
    'text, message',
    [
        ('(2 a)\n(2 b)\n', 'train.txt: all sentences are neutral'),
        ('(4 a)\n(4\n', 'train.txt:2: 1 brackets are not closed'),
    ],
)
def test_malformed_split(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load_split(write(tmp_path, text))


# --- the model -----------------------------------------------------------------------------


def acceptor():
    net = LSTMAcceptor(vocab_size=60, embed_dim=4, hidden_size=5, num_classes=3)
    net.initialize(mx.init.Uniform(0.5))
    return net


def test_batched_equals_eager():
    net, loss = acceptor(), SoftmaxCrossEntropyLoss()

    def model(sequence):
        scores = net(sequence)
        assert scores.shape == (1, 3)
        return scores, loss(scores, mx.nd.array([len(sequence) % 3]))

    assert_matches_eager(model, SEQUENCES, blocks=[net, loss])


def test_the_last_state_is_scored():
    net = acceptor()
    states = [mx.nd.zeros((1, 5))] * 2
    for token in SEQUENCES[0]:
        output, states = net.cell(net.embed(mx.nd.array([token])), states)
    np.testing.assert_allclose(net(SEQUENCES[0]).asnumpy(), net.scores(output).asnumpy(), rtol=1e-5)


def test_as_many_batches_as_the_longest_sequence_has_tokens():
    net = acceptor()
    with edb.batching() as scope:
        scores = [net(sequence) for sequence in SEQUENCES]
    edb.forward(scores)
    (cell,) = [kind for kind in scope.report().types if kind.name.startswith('LSTMCell')]
    assert (cell.calls, cell.batches) == (sum(map(len, SEQUENCES)), max(map(len, SEQUENCES)))


def test_a_sequence_without_tokens():
    with pytest.raises(ValueError, match='one token or more'):
        acceptor()([])


# --- the programs --------------------------------------------------------------------------


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """A smaller sample."""
    directory = tmp_path_factory.mktemp('sst')
    make_sample.write_sample(directory, splits={'train': 200, 'dev': 60, 'test': 20})
    return str(directory)


def epochs(out, column):
    """What the lines of the epochs have in a column."""
    return [float(line.split()[column]) for line in out.splitlines() if line.startswith('epoch ')]


def test_it_learns(data, capsys):
    assert (
        main(
            [
                '--data',
                data,
                '--epochs',
                '8',
                '--hidden',
                '24',
                '--embed',
                '24',
                '--lr',
                '0.01',
                '--batch-size',
                '16',
                '--report',
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert 'best on dev: epoch' in out and 'LSTMCell' in out
    first, *_, last = epochs(out, 6)
    assert last > first + 0.1


def test_training_is_the_same_however_it_runs(data, capsys):
    losses = []
    for how in ([], ['--unbatched'], ['--scheduler', 'depth']):
        assert main(['--data', data, '--epochs', '1', '--hidden', '4', '--embed', '4', *how]) == 0
        losses += epochs(capsys.readouterr().out, 3)
    np.testing.assert_allclose(losses, losses[0], rtol=1e-3)


def test_page_has_the_same_losses_batched_and_not():
    (_, one_by_one, _), (_, batched, _) = (
        page.train(page.PAGE, batching, epochs=5, width=8)
        for batching in (contextlib.nullcontext, edb.batching)
    )
    np.testing.assert_allclose(batched, one_by_one, rtol=1e-5)
    assert abs(batched[0] - np.log(3)) < 0.2 and (np.diff(batched) < 0).all()


@pytest.mark.parametrize('real', [False, True], ids=['page', 'data'])
def test_page(real, data, capsys):
    assert (
        page.main(
            [
                '--epochs',
                '3',
                '--width',
                '8',
                '--batch-size',
                '5',
                *(['--data', data] if real else []),
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    table, predictions = out.split('Prediction time!')
    rows = [list(map(float, line.split())) for line in table.splitlines()[1:4]]
    assert [row[0] for row in rows] == [1, 2, 3]
    np.testing.assert_allclose([row[1] for row in rows], [row[2] for row in rows], rtol=1e-4)
    assert 'ms' in table and len(predictions.split('\n\n')[1].splitlines()) == 3


def test_page_says_what_is_missing(tmp_path, capsys):
    assert page.main(['--data', str(tmp_path)]) == 1
    assert 'there is no such file' in capsys.readouterr().err
