"""The sentiment trees: loader, sample, models, metric and program."""

import contextlib
import os
import sys
from pathlib import Path
from zlib import crc32

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet import gluon

import gluon_edbatch as edb
from example.common.errors import DataError
from example.tree_sst import make_sample
from example.tree_sst.data import Phrase, Tree, build_samples, load_split, parse_tree, tokens_of
from example.tree_sst.metrics import accuracy
from example.tree_sst.model import MODELS, ONE_WIDTH, MVLeaf
from example.tree_sst.train import main
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch.testing.matches_eager import SCHEDULERS
from tests.support.cases import in_one_test
from tests.support.processes import run_example
from tests.support.tiers import sampled

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(make_sample.__file__).with_name('sample')
GOOD = '(3 (2 a) (4 (1 b) (0 c)))'


def word_ids(words):
    """Ids below 100 that depend on the word alone."""
    return [crc32(word.encode()) % 100 for word in words]


def built(*lines):
    """Samples of trees in brackets."""
    return build_samples(map(parse_tree, lines), word_ids)


# --- reading -------------------------------------------------------------------------------


def test_reads_a_tree():
    tree = parse_tree(GOOD)
    assert tree == Phrase(
        3, None, (Phrase(2, 'a'), Phrase(4, None, (Phrase(1, 'b'), Phrase(0, 'c'))))
    )
    assert tree.words() == ['a', 'b', 'c']
    assert [node.label for node in tree.nodes()] == [2, 1, 0, 4, 3]
    assert parse_tree('(2 word)') == Phrase(2, 'word')
    assert parse_tree(' ( 3  (2 a)(4 (1 b) (0 c ) )) ') == tree


def test_only_the_ascii_space_separates():
    assert parse_tree('(2 (2 8\u00a01\\/2) (2 \u0085x\u2003y))').words() == [
        '8\u00a01\\/2',
        '\u0085x\u2003y',
    ]


def test_lines_end_with_line_feeds_only(tmp_path):
    path = tmp_path / 'dev.txt'
    path.write_bytes('(2 a\u0085\x0b\u2028b)\r\n(1 c)'.encode())
    assert tokens_of(load_split(path)) == ['a\u0085\x0b\u2028b', 'c']


@in_one_test(
    'line, message',
    [
        ('', 'this one is empty'),
        ('   ', 'this one is empty'),
        ('(3 (2 a) (2 b)', '1 brackets are not closed'),
        ('(((', '3 brackets are not closed'),
        ('(2 a))', r"the tree ends before '\)'"),
        ('(2 a) (2 b)', r"the tree ends before '\('"),
        ('a', "'a' stands outside of all brackets"),
        (')', r"'\)' stands outside"),
        ('(5 a)', "a number from 0 to 4, not '5'"),
        ('(-1 a)', "not '-1'"),
        ('(x a)', "not 'x'"),
        ('(\u0663 a)', 'a number from 0 to 4'),
        ('()', 'a node starts with its label'),
        ('((2 a) (2 b))', 'a node starts with its label'),
        ('(2)', r'one word or two nodes, not \(2\)'),
        ('(2 a b)', r'not \(2 a b\)'),
        ('(2 (2 a))', r'not \(2 \(...\)\)'),
        ('(2 (2 a) b)', r'not \(2 \(...\) b\)'),
        ('(2 (2 a) (2 b) (2 c))', 'one word or two nodes'),
    ],
)
def test_what_is_no_tree_is_said_with_its_line(tmp_path, line, message):
    path = tmp_path / 'train.txt'
    path.write_text(f'{GOOD}\n{line}\n{GOOD}\n', encoding='utf-8')
    with pytest.raises(DataError, match=rf'train\.txt:2: .*{message}'):
        load_split(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r'train\.txt: there is no such file; .* dev\.txt'):
        load_split(tmp_path / 'train.txt')
    (tmp_path / 'train.txt').write_bytes(b'')
    with pytest.raises(DataError, match=r'train\.txt:1: the file is empty'):
        load_split(tmp_path / 'train.txt')
    (tmp_path / 'train.txt').write_bytes(b'(2 \xff)\n')
    with pytest.raises(DataError, match=r'train\.txt: not UTF-8'):
        load_split(tmp_path / 'train.txt')


WORDS = st.text(
    st.characters(blacklist_characters=' ()\r\n', blacklist_categories=('Cs',)),
    min_size=1,
    max_size=4,
)
LABELS = st.integers(0, 4)
PHRASES = st.recursive(
    st.builds(Phrase, LABELS, WORDS, st.just(())),
    lambda inner: st.builds(
        lambda label, left, right: Phrase(label, None, (left, right)), LABELS, inner, inner
    ),
    max_leaves=12,
)


def brackets(phrase):
    """The line of a phrase."""
    return f'({phrase.label} {phrase.word or " ".join(map(brackets, phrase.children))})'


@given(PHRASES)
def test_a_written_tree_is_read_as_it_was(phrase):
    assert parse_tree(brackets(phrase)) == phrase
    (sample,) = build_samples([phrase], word_ids)
    assert sample.labels.dtype == np.float32
    assert sample.labels.tolist() == [node.label for node in phrase.nodes()]
    assert leaf_tokens(sample.tree) == word_ids(phrase.words())


def leaf_tokens(tree):
    """Tokens from left to right."""
    if not tree.children:
        return [tree.token]
    return leaf_tokens(tree.children[0]) + leaf_tokens(tree.children[1])


@given(st.text('(() 23ab'))
def test_junk_is_a_tree_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert isinstance(parse_tree(text), Phrase)


def test_a_tree_deeper_than_the_recursion_limit():
    depth = 2 * sys.getrecursionlimit()
    (sample,) = built('(2 (1 a) ' * depth + '(3 b)' + ')' * depth)
    assert len(sample.labels) == 2 * depth + 1


def test_kinds_are_those_of_the_words():
    first, second = built('(2 (2 a) (2 (2 b) (2 c)))', '(4 (2 (0 a) (1 b)) (0 c))')
    assert first.tree.kind == second.tree.kind == crc32(b'a b c') % 2
    assert first.tree.children[1].kind == crc32(b'b c') % 2
    kinds = [node.kind for sample in built(*lines('train')) for node in inner_nodes(sample.tree)]
    assert 0.4 < np.mean(kinds) < 0.6


def inner_nodes(tree):
    """All nodes that have children."""
    if not tree.children:
        return []
    return [tree] + [node for child in tree.children for node in inner_nodes(child)]


# --- the embedded sample -------------------------------------------------------------------


def lines(split):
    """Return the lines of the embedded sample."""
    return (SAMPLE / f'{split}.txt').read_text(encoding='utf-8').splitlines()


def test_sample_has_as_many_trees_as_it_should():
    for split, count in make_sample.SPLITS.items():
        assert (SAMPLE / f'{split}.txt').read_bytes().count(b'\n') == count
        assert len(load_split(SAMPLE / f'{split}.txt')) == count
    assert make_sample.make_trees(5, 'one') != make_sample.make_trees(5, 'other')


def test_sample_has_all_classes_and_rules():
    trees = load_split(SAMPLE / 'train.txt')
    assert {tree.label for tree in trees} == {0, 1, 2, 3, 4}
    assert {*tokens_of(load_split(SAMPLE / 'dev.txt'))} <= {*tokens_of(trees)}
    labels = {' '.join(node.words()): node.label for tree in trees for node in tree.nodes()}
    assert labels['good'] == 3 and labels['very good'] == 4
    assert labels['not good'] == 1 and labels['rather awful'] == 1


# --- models --------------------------------------------------------------------------------


def started(model, sparse_grad=False):
    """An initialised model of that name, with biases that are not zeros."""
    net = MODELS[model](100, 6, 6, sparse_grad)
    net.initialize(mx.init.Xavier())
    for name, parameter in net.collect_params().items():
        if name.endswith('bias'):
            parameter.set_data(mx.nd.random.uniform(-1, 1, parameter.shape))
    return net


@pytest.mark.parametrize('model, sparse_grad', sampled(3, MODELS, [False, True]))
def test_losses_and_scores_equal_eager(model, sparse_grad):
    net, loss = started(model, sparse_grad), gluon.loss.SoftmaxCrossEntropyLoss()
    assert {
        parameter.grad().stype for name, parameter in net.collect_params('.*embed').items()
    } == {'row_sparse' if sparse_grad else 'default'}
    samples = built('(2 alone)', *lines('dev')[:5])

    def scores_and_losses(sample):
        scores = net(sample.tree)
        assert scores.shape == (len(sample.labels), 5)
        return scores, loss(scores, mx.nd.array(sample.labels))

    assert_matches_eager(scores_and_losses, samples, blocks=[net, loss])


@pytest.mark.parametrize('model', MODELS)
def test_root_comes_last(model):
    """A change of the root's kind or children shows in the last row only."""
    net = started(model)
    left, right = built('(2 (1 a) (2 b))', '(2 c)')
    both = net(Tree(None, (left.tree, right.tree))).asnumpy()
    np.testing.assert_allclose(both[:3], net(left.tree).asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(both[3:4], net(right.tree).asnumpy(), rtol=1e-5)
    assert abs(both[4] - both[:4]).max(axis=1).min() > 1e-3


def test_two_kinds_are_two_cells():
    net = started('treelstm2')
    leaves = [sample.tree for sample in built('(2 a)', '(2 b)')]
    one, other = (net(Tree(None, tuple(leaves), kind)).asnumpy() for kind in (0, 1))
    np.testing.assert_array_equal(one[:2], other[:2])
    assert abs(one[2] - other[2]).max() > 1e-3
    with edb.batching() as scope:
        trees = [net(sample.tree) for sample in built(*lines('dev')[:8])]
    edb.forward(trees)
    cells = [kind for kind in scope.report().types if 'NaryTreeLSTMCell' in kind.name]
    assert len(cells) == 2


def test_matrix_of_a_word():
    leaf = MVLeaf(9, 4)
    leaf.initialize()
    found = leaf(mx.nd.array([3, 5]))[1].asnumpy()
    values = {
        name: getattr(leaf, name).weight.data().asnumpy()[5]
        for name in ('left', 'right', 'diagonal')
    }
    expected = values['left'].reshape(4, -1) @ values['right'].reshape(-1, 4) + np.diag(
        values['diagonal']
    )
    np.testing.assert_allclose(found[1], expected, rtol=1e-5)
    np.testing.assert_array_equal(values['diagonal'], np.ones(4))


def test_one_matrix():
    net = started('treenn')
    left, right = (sample.tree for sample in built('(2 a)', '(2 b)'))
    words = net.leaf.embed.weight.data().asnumpy()[[left.token, right.token]].reshape(1, -1)
    cell, scores = net.cell.both, net.scores
    phrase = np.tanh(words @ cell.weight.data().asnumpy().T + cell.bias.data().asnumpy())
    expected = phrase @ scores.weight.data().asnumpy().T + scores.bias.data().asnumpy()
    found = net(Tree(None, (left, right))).asnumpy()
    np.testing.assert_allclose(found[2:], expected, rtol=1e-4)


def normal(values):
    """Normalise each row to mean 0 and variance 1."""
    centred = values - values.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)


def test_a_phrase_attends_to_all_in_it():
    net = started('tree-transformer')
    (sample,) = built('(2 (2 a) (2 (2 b) (2 c)))')
    states = []
    net.vector = lambda state: states.append(state[0].asnumpy()) or state[0]
    net(sample.tree)
    *inside, found = states
    left, right, memory = inside[0], inside[3], np.concatenate(inside)

    def dense(layer, x):
        return x @ layer.weight.data().asnumpy().T + layer.bias.data().asnumpy()

    cell = net.cell
    phrase = np.tanh(dense(cell.both, np.concatenate([left, right], axis=1)))
    weights = np.exp(dense(cell.queries, phrase).reshape(2, 6) @ memory.T / np.sqrt(6))
    means = (weights / weights.sum(axis=1, keepdims=True)) @ memory
    phrase = normal(phrase + dense(cell.found, means.reshape(1, 12)))
    phrase = normal(phrase + dense(cell.narrow, np.maximum(dense(cell.wide, phrase), 0)))
    np.testing.assert_allclose(found, phrase, rtol=1e-3, atol=1e-5)


def test_phrases_of_all_sizes_are_one_type():
    net, samples = started('tree-transformer'), built(*lines('dev')[:8])
    with edb.batching() as scope:
        trees = [net(sample.tree) for sample in samples]
    edb.forward(trees)
    report = scope.report()
    (cell,) = [kind for kind in report.types if kind.name.startswith('TransformerCell')]
    inner = sum(len(inner_nodes(sample.tree)) for sample in samples)
    assert cell.calls == inner and report.batches == report.lower_bound


def test_operators_batch_as_well_as_a_cell():
    """Each operator has as many batches as the cell, and the scores are equal."""
    samples, scores, batches = built(*lines('dev')[:8]), [], []
    for model in ('treenn', 'treenn-operators'):
        mx.random.seed(0)
        net = started(model)
        with edb.batching() as scope:
            trees = [net(sample.tree) for sample in samples]
        scores.append(np.concatenate([tree.asnumpy() for tree in edb.forward(trees)]))
        batches.append(
            {kind.name.split('[')[0].split('(')[0]: kind.batches for kind in scope.report().types}
        )
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4, atol=1e-5)
    cell, operators = batches
    assert {operators[name] for name in ('Concat', 'FullyConnected', 'tanh')} == {
        cell['OneMatrixCell']
    }


@pytest.mark.parametrize('model', ONE_WIDTH)
def test_one_width(model):
    with pytest.raises(ValueError, match='one width, not 3 and 4'):
        MODELS[model](9, 3, 4)


def test_accuracy():
    labels = [np.array([0, 1, 2.0]), np.array([4.0])]
    scores = np.eye(5)[[0, 1, 3, 4]]
    assert accuracy(scores, labels) == (0.5, 0.75)


# --- the program ---------------------------------------------------------------------------

TINY = ['--hidden', '16', '--batch-size', '20', '--lr', '0.01']


def figures(out):
    """Root and node accuracy on dev, epoch by epoch."""
    return [
        (float(line.split()[6]), float(line.split()[8]))
        for line in out.splitlines()
        if line.startswith('epoch')
    ]


def test_program_on_the_embedded_sample(tmp_path):
    done = run_example(
        'tree_sst/train', '--epochs', '4', *TINY, '--embed', '16', '--report', cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == []
    assert all('lazy_update = True' in line for line in done.stderr.splitlines())  # MXNet's word
    assert 'trees: 400 train, 100 dev, 100 test; model treelstm, words: 66' in done.stdout
    assert 'best on dev: epoch' in done.stdout and 'of all nodes' in done.stdout
    assert 'NaryTreeLSTMCell' in done.stdout  # the report
    first, *_, last = figures(done.stdout)
    assert last[0] > first[0] + 0.1 and last[1] > first[1] + 0.1


@pytest.mark.parametrize('model', MODELS)
def test_models_learn(tmp_path, capsys, model):
    make_sample.write_sample(tmp_path, splits={'train': 120, 'dev': 60, 'test': 6})
    embed = [] if model in ONE_WIDTH else ['--embed', '16']
    assert (
        main(
            [
                '--data',
                str(tmp_path),
                '--model',
                model,
                '--epochs',
                '4',
                *TINY,
                *embed,
                '--batch-size',
                '10',
            ]
        )
        == 0
    )
    first, *_, last = figures(capsys.readouterr().out)
    assert last[1] > first[1] + 0.05


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """A smaller sample."""
    directory = tmp_path_factory.mktemp('sst')
    make_sample.write_sample(directory, splits={'train': 24, 'dev': 6, 'test': 6})
    return str(directory)


@pytest.mark.parametrize(
    'how', [['--unbatched'], *(['--scheduler', name] for name in SCHEDULERS)], ids=' '.join
)
def test_training_is_the_same_however_it_runs(data, capsys, how):
    arguments = [
        '--data',
        data,
        '--model',
        'treelstm2',
        '--epochs',
        '1',
        '--batch-size',
        '4',
        '--hidden',
        '5',
        '--embed',
        '4',
    ]
    losses = []
    for options in (['--scheduler', 'depth'], how):
        assert main([*arguments, *options]) == 0
        losses.append(float(capsys.readouterr().out.split('loss')[1].split()[0]))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize('model', MODELS)
def test_a_minibatch_without_inner_nodes(tmp_path, capsys, model):
    """An update does not change parameters that no tree of the minibatch used."""
    for split in ('train', 'dev', 'test'):
        (tmp_path / f'{split}.txt').write_text(f'(2 a)\n{GOOD}\n')
    assert (
        main(
            [
                '--data',
                str(tmp_path),
                '--model',
                model,
                '--epochs',
                '2',
                '--batch-size',
                '1',
                '--hidden',
                '4',
            ]
        )
        == 0
    )
    assert 'best on dev' in capsys.readouterr().out


def test_a_checkpoint_keeps_the_model(data, tmp_path, capsys):
    path = str(tmp_path / 'run.ckpt')
    assert (
        main(
            [
                '--data',
                data,
                '--model',
                'mvrnn',
                '--hidden',
                '4',
                '--epochs',
                '1',
                '--checkpoint',
                path,
            ]
        )
        == 0
    )
    trained = capsys.readouterr().out
    assert main(['--mode', 'infer', '--checkpoint', path]) == 0
    found = capsys.readouterr().out
    assert 'model mvrnn' in found and 'hidden 4, embedding 4' in found
    for split in ('dev', 'test'):
        before, after = (
            [line.split()[:3] for line in out.splitlines() if line.startswith(split)]
            for out in (trained, found)
        )
        assert before == after != []
    assert main(['--mode', 'infer', '--checkpoint', path, '--model', 'treegru']) == 1
    assert '--model treegru: the run in' in capsys.readouterr().err


def test_a_checkpoint_of_another_example(data, tmp_path, capsys):
    from example.tree_lstm.train import main as tree_lstm

    path = str(tmp_path / 'run.ckpt')
    assert (
        main(
            ['--data', data, '--hidden', '4', '--embed', '4', '--epochs', '1', '--checkpoint', path]
        )
        == 0
    )
    assert tree_lstm(['--mode', 'infer', '--checkpoint', path]) == 1
    assert 'a checkpoint of another program (tree_sst, not tree_lstm' in capsys.readouterr().err


@pytest.mark.parametrize('model', ONE_WIDTH)
def test_widths_that_do_not_go_together(capsys, model):
    assert main(['--model', model, '--embed', '8', '--hidden', '4']) == 1
    assert 'leave out --embed 8' in capsys.readouterr().err
