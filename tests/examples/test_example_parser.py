"""The parser example: data, transitions, the model in batches, and the program."""

import gzip
from collections import Counter

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet.gluon.loss import SoftmaxCrossEntropyLoss

import gluon_edbatch as edb
from example.common import checkpoint as checkpoints
from example.common.errors import DataError
from example.transition_parser import make_sample
from example.transition_parser.data import Sentence, load_split
from example.transition_parser.metrics import score
from example.transition_parser.model import TransitionParser
from example.transition_parser.train import main
from example.transition_parser.transitions import (
    NOWHERE,
    SHIFT,
    Configuration,
    Legal,
    left,
    num_actions,
    oracle,
    penalties,
    right,
)
from gluon_edbatch.testing import assert_matches_eager

WORDS, TAGS, RELATIONS = 9, 4, 3


# --- files ---------------------------------------------------------------------------------

CONLLU = """# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tyou\tyou\tPRON\t_\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_


# a comment
1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_
"""
TREES = [
    (('Do', "n't", 'go'), ('AUX', 'PART', 'VERB'), (2, 2, 3), ('aux', 'advmod', 'root')),
    (('#',), ('SYM',), (1,), ('root',)),
]


def write(directory, text, name='train.conllu'):
    (directory / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return directory


def test_load_conllu(tmp_path):
    assert load_split(write(tmp_path, CONLLU, 'en_ewt-ud-train.conllu'), 'train') == TREES


def test_load_columns(tmp_path):
    """Five of them; a word may look like a number of CoNLL-U's."""
    text = '2-3\tNUM\tCD\t2\tnsubj\n1.5\tNUM\tCD\t0\troot\n'
    write(tmp_path, gzip.compress(text.encode()), 'dev.tsv.gz')
    (tree,) = load_split(tmp_path, 'dev')
    assert tree == (('2-3', '1.5'), ('NUM', 'NUM'), (1, 2), ('nsubj', 'root'))


@pytest.mark.parametrize(
    'text, message',
    [
        ('', 'there is no sentence'),
        ('# only this\n\n', 'there is no sentence'),
        ('a\tX\tX\t0\troot\n\nb\tX\n', 'train.tsv:3: a word has 10 fields .* or 5, .* not 2'),
        ('a\tX\tX\t0\t\n', 'train.tsv:1: form, tag and relation may not be empty'),
        ('a\tX\tX\t2\troot\n', "train.tsv:1: a head is 0 .* one of 1 words, not '2'"),
        ('a\tX\tX\t_\troot\n', "train.tsv:1: a head is .*, not '_'"),
        ('a\tX\tX\t0\troot\nb\tX\tX\t0\troot\n', 'train.tsv:1: one word .* not 2 of them'),
        (
            'a\tX\tX\t2\tx\nb\tX\tX\t1\tx\nc\tX\tX\t0\troot\n',
            'train.tsv:1: the heads of word 1 .*circ',
        ),
        (b'\xff', 'not UTF-8 text'),
    ],
)
def test_malformed_file(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load_split(write(tmp_path, text, 'train.tsv'), 'train')


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match='no file for train'):
        load_split(tmp_path, 'train')
    write(tmp_path, CONLLU)
    write(tmp_path, CONLLU, 'x-train.conllu.gz')
    with pytest.raises(DataError, match='train.conllu and x-train.conllu.gz for train'):
        load_split(tmp_path, 'train')
    (tmp_path / 'train.conllu').unlink()
    with pytest.raises(DataError, match='not a whole gzip file'):
        load_split(tmp_path, 'train')


# --- transitions ---------------------------------------------------------------------------


@st.composite
def projective_trees(draw, most=9):
    """Heads of a projective tree: any legal actions build one."""
    state = Configuration(draw(st.integers(1, most)))
    while not state.done:
        legal = state.legal()
        state.apply(
            draw(
                st.sampled_from(
                    [
                        action
                        for action, allowed in zip((SHIFT, left(0), right(0)), legal)
                        if allowed
                    ]
                )
            )
        )
    return state.heads


@st.composite
def trees(draw, most=7):
    """Heads of any tree with one word under ROOT."""
    length = draw(st.integers(1, most))
    order = draw(st.permutations(range(length)))
    heads = [length] * length
    for place, word in enumerate(order[1:], 1):
        heads[word] = order[draw(st.integers(0, place - 1))]
    return heads


def is_projective(heads):
    """No two arcs cross, ROOT at either end."""
    arcs = [sorted((word, head)) for word, head in enumerate(heads)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


@given(projective_trees(), st.data())
def test_oracle_builds_the_tree(heads, data):
    relations = [data.draw(st.integers(0, RELATIONS - 1)) for _ in heads]
    steps = iter(oracle(heads, relations))
    state, count = Configuration(len(heads)), 0
    while not state.done:
        action = SHIFT
        if state.features().top != NOWHERE:
            step = next(steps)
            assert step.features == state.features()
            action = step.action
        assert penalties(RELATIONS)[state.legal()][action] == 0
        state.apply(action)
        count += 1
    assert next(steps, None) is None and count == 2 * len(heads)
    assert (state.heads, state.relations) == (heads, relations)


@given(trees())
def test_oracle_knows_projective_trees(heads):
    assert (oracle(heads, heads) is not None) == is_projective(heads)


def test_both_sorts_of_trees_are_drawn():
    assert is_projective([1, 2, 2]) and not is_projective([2, 3, 4, 2])


def test_legal_actions():
    state = Configuration(2)
    assert state.legal() == (True, False, False)
    assert state.features() == (NOWHERE, NOWHERE, NOWHERE, 0)
    state.apply(SHIFT)
    assert state.legal() == (True, True, False)
    state.apply(SHIFT)
    assert state.legal() == (False, False, True)  # ROOT has one dependent
    assert state.features() == (NOWHERE, 0, 1, 2)
    state.apply(right(1))
    assert state.legal() == (False, True, False) and not state.done
    state.apply(left(2))
    assert state.done and (state.heads, state.relations) == ([2, 0], [2, 1])


def test_penalties():
    assert penalties(2)[Legal(True, False, True)].tolist() == [0, -np.inf, 0, -np.inf, 0]
    actions = [SHIFT, *(towards(r) for r in range(RELATIONS) for towards in (left, right))]
    assert sorted(actions) == list(range(num_actions(RELATIONS)))


# --- the model -----------------------------------------------------------------------------


def sentences():
    generator = np.random.RandomState(0)
    heads = [[1], [1, 3, 1], [1, 2, 4, 2, 5], [2, 2, 7, 2, 6, 6, 3], [1, 2, 2]]
    return [
        Sentence(
            [
                (int(generator.randint(WORDS)), int(generator.randint(TAGS)))
                for _ in range(len(row) + 1)
            ],
            row,
            generator.randint(RELATIONS, size=len(row)),
        )
        for row in heads
    ]


def parser():
    net = TransitionParser(WORDS, TAGS, RELATIONS, 4, 2, 3, 5)
    net.initialize(mx.init.Uniform(1))
    return net


def test_batched_training_equals_eager():
    net, loss = parser(), SoftmaxCrossEntropyLoss()

    def model(sentence):
        scores = net(sentence)
        return scores, loss(scores, mx.nd.array(sentence.actions))

    assert_matches_eager(
        model,
        [sentence for sentence in sentences() if sentence.steps],
        blocks=[net, loss],
        schedulers=['agenda', 'fsm'],
    )


@settings(max_examples=5)
@given(st.integers(0, 100))
def test_batched_parsing_equals_eager(seed):
    mx.random.seed(seed)
    net, samples = parser(), sentences()
    eager = edb.run_concurrently(samples, net.parse)
    with edb.batching() as scope:
        batched = edb.run_concurrently(samples, net.parse)
    for one, other, sentence in zip(batched, eager, samples):
        np.testing.assert_array_equal(one, other)
        assert one.shape == (len(sentence), 2)
        above = one[:, 0]
        for _ in above:  # all lead to ROOT
            above = np.append(one[:, 0], len(one))[above]
        assert (above == len(one)).all() and (one[:, 0] == len(one)).sum() == 1
    assert scope.report().evaluations <= 2 * max(map(len, samples))


def test_all_decisions_of_a_minibatch_are_one_batch():
    net = parser()
    with edb.batching() as scope:
        scores = [net(sentence) for sentence in sentences() if sentence.steps]
    edb.forward(scores)
    (scorer,) = [kind for kind in scope.report().types if kind.name.startswith('Scores')]
    assert scorer.batches == 1
    assert scorer.calls == sum(len(sentence.steps) for sentence in sentences())


def test_scores_are_those_of_two_layers_over_four_vectors():
    scorer = parser().scorer
    weights = {
        name: parameter.data().asnumpy()
        for name, parameter in scorer._collect_params_with_prefix().items()
    }
    assert sorted(weights) == ['hidden.bias', 'hidden.weight', 'scores.bias', 'scores.weight']
    weights['hidden.bias'][:] = 0.5
    scorer.hidden.bias.set_data(mx.nd.array(weights['hidden.bias']))
    size = weights['hidden.weight'].shape[1] // 4
    vectors = [mx.nd.random.normal(shape=(1, size)) for _ in range(4)]
    scores = scorer.scores(
        *[scorer.hidden(vector)[place] for place, vector in enumerate(vectors)]
    ).asnumpy()
    joined = np.concatenate([vector.asnumpy() for vector in vectors], axis=1)
    hidden = np.tanh(joined @ weights['hidden.weight'].T + weights['hidden.bias'])
    expected = hidden @ weights['scores.weight'].T + weights['scores.bias']
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_score():
    right_ones = np.array([[1, 0], [2, 1], [0, 1], [0, 0]])
    predicted = np.array([[1, 0], [2, 0], [1, 1], [0, 0]], np.float32)
    assert score(predicted, right_ones) == (0.75, 0.5)
    assert str(score(predicted, right_ones)) == 'UAS 0.7500  LAS 0.5000'


# --- the sample and the program ------------------------------------------------------------


def test_sample_has_trees_that_are_not_projective():
    kept = make_sample.Path(make_sample.__file__).with_name('sample')
    projective = Counter(is_projective(tree.heads) for tree in load_split(kept, 'train'))
    assert 0.05 < projective[False] / sum(projective.values()) < 0.2


def test_program(tmp_path, capsys):
    make_sample.write_sample(tmp_path / 'data', splits={'train': 60, 'dev': 6, 'test': 6})
    options = [
        '--data',
        str(tmp_path / 'data'),
        '--hidden',
        '12',
        '--embed',
        '6',
        '--tag-embed',
        '4',
        '--scorer-hidden',
        '12',
        '--lr',
        '0.02',
        '--batch-size',
        '4',
        '--epochs',
        '3',
    ]
    assert main([*options, '--checkpoint', str(tmp_path / 'one')]) == 0
    out = capsys.readouterr().out
    assert 'more for training are not projective' in out and 'UAS' in out
    history = checkpoints.load(tmp_path / 'one').history
    assert history[-1]['loss'] < 0.5 * history[0]['loss']
    assert history[-1]['unlabelled'] > 0.6
    assert (
        main([*options, '--unbatched', '--checkpoint', str(tmp_path / 'other'), '--epochs', '1'])
        == 0
    )
    (other,) = checkpoints.load(tmp_path / 'other').history
    np.testing.assert_allclose(other['loss'], history[0]['loss'], rtol=1e-4)
    assert abs(other['unlabelled'] - history[0]['unlabelled']) < 0.03
