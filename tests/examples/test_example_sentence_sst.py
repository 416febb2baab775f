"""The Transformer on sentences: the model in batches, its figures, and the program."""

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.loss import SoftmaxCrossEntropyLoss

from example.common import checkpoint as checkpoints
from example.sentence_sst.data import Sentence
from example.sentence_sst.metrics import accuracy
from example.sentence_sst.model import SentenceTransformer
from example.sentence_sst.task import LONGEST
from example.sentence_sst.train import main
from example.tree_sst import make_sample
from gluon_edbatch.testing import assert_matches_eager

WORDS = 20


def sentences():
    """Return sentences of one word, of equal lengths, and others."""
    return [Sentence(range(n, n + length), n % 5) for n, length in enumerate([3, 1, 9, 3, 2, 7])]


def transformer():
    net = SentenceTransformer(WORDS, 5, 8)
    net.initialize(mx.init.Normal(0.3))
    return net


def test_batched_equals_eager():
    net, loss = transformer(), SoftmaxCrossEntropyLoss()

    def model(sentence):
        scores = net(sentence)
        return scores, loss(scores, sentence.label)

    assert_matches_eager(
        model, sentences(), blocks=[net, loss], schedulers=['agenda', 'fsm'], atol=1e-5
    )


def test_order_of_words_counts():
    net = transformer()
    there, back = (net(Sentence(words, 0)).asnumpy() for words in ([1, 2, 3], [3, 2, 1]))
    assert abs(there - back).max() > 1e-3


def test_sentences():
    (sample, *_) = sentences()
    assert repr(sample) == 'Sentence(3 words)'
    assert sample.words.tolist() == [[0, 1, 2]] and sample.label.tolist() == [0]


def test_accuracy():
    scores = np.array(
        [
            [3, 0, 9, 0, 4],  # neutral is most probable, but positive rather than negative
            [2, 2, 5, 2.5, 0],  # neutral again, but the negative ones together
            [0, 9, 0, 0, 0],
            [5, 0, 0, 0, 0],
        ]
    )
    assert accuracy(scores, np.array([4, 1, 1, 2])) == (1 / 4, 1)
    assert accuracy(scores, np.array([2, 1, 4, 0])) == (1 / 2, 2 / 3)
    assert str(accuracy(scores[:1], np.array([2]))) == 'five 1.0000  two 0.0000'


def test_program(tmp_path, capsys):
    make_sample.write_sample(tmp_path / 'data', {'train': 240, 'dev': 60, 'test': 2})
    options = ['--data', str(tmp_path / 'data'), '--hidden', '16', '--lr', '0.01']
    options += ['--batch-size', '16']
    assert main([*options, '--epochs', '4', '--checkpoint', str(tmp_path / 'one')]) == 0
    assert '2 layers, hidden 16, 4 heads' in capsys.readouterr().out
    history = checkpoints.load(tmp_path / 'one').history
    assert history[-1]['loss'] < 0.9 * history[0]['loss']
    assert history[-1]['two'] > max(0.65, history[0]['two'])
    again = ['--epochs', '1', '--unbatched', '--checkpoint', str(tmp_path / 'other')]
    assert main([*options, *again]) == 0
    (other,) = checkpoints.load(tmp_path / 'other').history
    np.testing.assert_allclose(other['loss'], history[0]['loss'], rtol=1e-3)


@pytest.mark.parametrize(
    'words, options, message',
    [
        (1, ['--hidden', '9'], '--heads 4 cannot share --hidden 9'),
        (LONGEST + 1, [], f'a sentence has 101 words; the model has positions for {LONGEST}'),
    ],
)
def test_what_does_not_fit(words, options, message, tmp_path, capsys):
    tree = '(2 word)'
    for _ in range(words - 1):
        tree = f'(2 (2 word) {tree})'
    for split in ('train', 'dev', 'test'):
        (tmp_path / f'{split}.txt').write_text(tree + '\n')
    assert main(['--data', str(tmp_path), *options]) == 1
    assert message in capsys.readouterr().err
