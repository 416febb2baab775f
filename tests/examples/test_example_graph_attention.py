"""The graph networks: neighbours, the models in batches, and the program."""

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.loss import SoftmaxCrossEntropyLoss

import gluon_edbatch as edb
from example.common import checkpoint as checkpoints
from example.graph_attention.data import Graph, neighbours_of
from example.graph_attention.model import KINDS, Attention, AttentionHead, GraphTagger, Messages
from example.graph_attention.train import main
from example.transition_parser import make_sample
from gluon_edbatch.testing import assert_matches_eager

WORDS, RELATIONS = 9, 4


def graphs():
    """The root, which is no dependent, stands first, in between, last and alone.

    No graph has a word twice: neighbours would be equal, and a maximum has its gradient where
    rounding says, as MXNet may give equal rows of a matrix other last digits.
    """
    generator = np.random.RandomState(0)
    return [
        Graph(
            generator.permutation(WORDS)[: len(heads)].tolist(),
            heads,
            generator.randint(RELATIONS, size=len(heads)),
        )
        for heads in ([3, 0, 0], [1], [1, 5, 1, 4, 1], [1, 2, 3, 4], [2, 2, 6, 2, 2, 2])
    ]


def tagger(kind):
    net = GraphTagger(kind, WORDS, RELATIONS, 5, 6)
    net.initialize(mx.init.Uniform(1))
    return net


def test_neighbours():
    assert neighbours_of([1, 3, 1]) == [[0, 1], [1, 0, 2], [2, 1]]
    assert neighbours_of([1]) == [[0]]
    assert repr(Graph([1, 2], [2, 0], [0, 1])) == 'Graph(2 words)'


@pytest.mark.parametrize('kind', KINDS)
def test_batched_equals_eager(kind):
    net, loss = tagger(kind), SoftmaxCrossEntropyLoss()

    def model(graph):
        scores = net(graph)
        return scores, loss(scores, mx.nd.array(graph.relations))

    assert_matches_eager(model, graphs(), blocks=[net, loss], schedulers=['agenda', 'fsm'])


@pytest.mark.parametrize('kind', KINDS)
def test_any_number_of_neighbours_is_one_batch_a_layer(kind):
    net = tagger(kind)
    with edb.batching() as scope:
        scores = [net(graph) for graph in graphs()]
    edb.forward(scores)
    gathered = [kind for kind in scope.report().types if 'graphlayer' in kind.name]
    words = sum(map(len, graphs()))  # are projected, and gather, in each of two layers
    assert [(kind.calls, kind.batches) for kind in gathered] == [(words, 1)] * 4


@pytest.mark.parametrize('kind', ['sum', 'max'])
def test_messages(kind):
    block = Messages(2, kind)
    block.initialize()
    block.update.weight.set_data(mx.nd.array([[0, 0, 1, 0], [1, 0, 0, 1]]))
    node, neighbours = mx.nd.array([[0.5, 9]]), mx.nd.array([[[0.1, -0.2], [0.3, 0.4]]])
    gathered = {'sum': (0.4, 0.2), 'max': (0.3, 0.4)}[kind]
    np.testing.assert_allclose(
        block(node, neighbours).asnumpy(), np.tanh([[gathered[0], 0.5 + gathered[1]]]), rtol=1e-5
    )


def test_a_head_is_a_mean_by_scores_of_both():
    head = AttentionHead(2)
    head.initialize(mx.init.Uniform(1))
    node, neighbours = np.array([[0.3, -0.6]]), np.array([[[1.0, 2], [-3, 0.5], [0, 1]]])
    left, right = (layer.weight.data().asnumpy()[0] for layer in (head.of_node, head.of_neighbour))
    scores = node @ left + neighbours[0] @ right
    weights = np.exp(np.where(scores > 0, scores, 0.2 * scores))
    np.testing.assert_allclose(
        head(mx.nd.array(node), mx.nd.array(neighbours)).asnumpy()[0],
        weights @ neighbours[0] / weights.sum(),
        rtol=1e-5,
    )


def test_heads_share_the_columns():
    block = Attention(4, 2)
    block.initialize(mx.init.Uniform(1))
    node, neighbours = mx.nd.random.uniform(shape=(1, 4)), mx.nd.random.uniform(shape=(1, 3, 4))
    apart = [
        head(node[:, 2 * k : 2 * k + 2], neighbours[:, :, 2 * k : 2 * k + 2])
        for k, head in enumerate(block.heads)
    ]
    both = mx.nd.concat(*apart, dim=1).asnumpy()
    np.testing.assert_allclose(block(node, neighbours).asnumpy(), both, rtol=1e-5)  # all above 0
    with pytest.raises(ValueError, match='3 heads cannot share 4 columns'):
        Attention(4, 3)


@pytest.mark.parametrize('kind', ['sum', 'attention'])
def test_a_word_sees_two_steps_away(kind):
    net = tagger(kind)
    heads = [1, 2, 3, 4]
    one, other = (net(Graph([0, 0, 0, word], heads, [0] * 4)).asnumpy() for word in (0, 1))
    assert (abs(one - other).max(axis=1) > 0).tolist() == [False, True, True, True]


def test_program(tmp_path, capsys):
    make_sample.write_sample(tmp_path / 'data', splits={'train': 60, 'dev': 10, 'test': 2})
    options = ['--data', str(tmp_path / 'data'), '--hidden', '12', '--embed', '8']
    options += ['--lr', '0.03', '--batch-size', '4']
    assert main([*options, '--epochs', '4', '--checkpoint', str(tmp_path / 'one')]) == 0
    assert 'attention, hidden 12' in capsys.readouterr().out
    history = checkpoints.load(tmp_path / 'one').history
    assert history[-1]['loss'] < 0.5 * history[0]['loss']
    assert history[-1]['accuracy'] > max(0.8, history[0]['accuracy'])
    again = ['--epochs', '1', '--unbatched', '--checkpoint', str(tmp_path / 'other')]
    assert main([*options, *again]) == 0
    (other,) = checkpoints.load(tmp_path / 'other').history
    np.testing.assert_allclose(other['loss'], history[0]['loss'], rtol=1e-3)


def test_heads_that_do_not_share(capsys):
    assert main(['--hidden', '9', '--heads', '2']) == 1
    assert '--heads 2 cannot share --hidden 9' in capsys.readouterr().err
