"""The example's loader: what it accepts, and what it says of the rest."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from example.common.errors import DataError, shortened
from example.lattice import data as lattice
from example.tagger import data as tagger
from example.torchfold.data import load_train
from example.tree_lstm import make_sample
from example.tree_lstm.data import (
    FILES,
    Pair,
    RawPair,
    Sentence,
    Tree,
    build_pairs,
    build_tree,
    load_split,
    score_distribution,
)
from example.tree_sst import data as tree_sst
from tests.support.cases import in_one_test

SAMPLE = Path(make_sample.__file__).with_name('sample')

GOOD = {
    'a.toks': 'A dog is running\nTwo dogs run\n',
    'a.parents': '2 4 4 0\n2 3 0\n',
    'b.toks': 'A cat sleeps\nRun\n',
    'b.parents': '2 3 0\n0\n',
    'sim.txt': '2.5\n5\n',
    'id.txt': '1\n7\n',
}


@pytest.fixture
def split(tmp_path):
    """Writes a split of two good pairs but for the files given, and gives its directory."""

    def write(**changes):
        for name, text in GOOD.items():
            text = changes.get(name.replace('.', '_'), text)
            if text is not None:
                (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return tmp_path

    return write


def load_digits(path):
    """NumPy, which reads it, cuts what it quotes itself."""
    return load_train(path.parent)


def load_lattice(path):
    return lattice.load_split(path.parent, 'train')


@in_one_test(
    'load, name, text',
    [
        (tagger.load_split, 'x', 'x' * 10**6),
        (tagger.load_split, 'x', 'x|' + 'y' * 10**6),
        (load_lattice, 'x.train', 'x' * 10**6),
        (load_lattice, 'x.train', 'x' * 10**6 + '\tO'),
        (load_lattice, 'x.train', 'x0\t' + 'O' * 10**6),
        (tree_sst.load_split, 'x', '(' + 'x' * 10**6 + ' y)'),
        (tree_sst.load_split, 'x', '(2 ' + 'x ' * 10**5 + ')'),
        (load_digits, 'mnist_5k.csv.gz', 'x' * 10**6),
    ],
)
def test_long_lines_are_not_quoted_whole(tmp_path, load, name, text):
    """The message still begins with file and rule, and ends with the end of what is quoted."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith('.gz') else text.encode())
    with pytest.raises(DataError) as info:
        load(path)
    message = str(info.value)
    assert message.startswith(f'{path}') and len(message) < 500
    assert load is load_digits or re.search(r' \[… \d+ more characters …\] ', message)


def test_shortened():
    text = ''.join(map(chr, range(256, 1256)))
    assert shortened(text[:400]) == text[:400]
    assert shortened(text) == f'{text[:340]} [… 600 more characters …] {text[-60:]}'


def test_reads_pairs(split):
    first, second = load_split(split())
    assert first == RawPair(
        Sentence(('A', 'dog', 'is', 'running'), (2, 4, 4, 0)),
        Sentence(('A', 'cat', 'sleeps'), (2, 3, 0)),
        2.5,
        '1',
    )
    assert second.right == Sentence(('Run',), (0,))
    assert second.score == 5


@pytest.mark.parametrize(
    'text',
    [
        'A dog is running\r\nTwo dogs run\r\n',
        'A dog is running\nTwo dogs run',
        ' A dog  is running \nTwo dogs run\n',
    ],
)
def test_ends_of_lines_and_extra_spaces_do_not_matter(split, text):
    assert load_split(split(a_toks=text))[0].left.tokens == ('A', 'dog', 'is', 'running')


def test_only_spaces_separate_tokens(split):
    pairs = load_split(split(a_toks='A\u00a0dog is running\u0085\x0b x\nTwo dogs run\n'))
    assert pairs[0].left.tokens == ('A\u00a0dog', 'is', 'running\u0085\x0b', 'x')


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(a_parents='2 4 4 0\n2 0\n'), r'a\.parents:2: 2 parents for 3 tokens'),
        (dict(b_parents='2 3 x\n0\n'), r'b\.parents:1: parents are whole numbers'),
        (dict(b_parents='2 4 0\n0\n'), r'b\.parents:1: the parent of token 2 is 4, .* 1 to 3'),
        (dict(b_parents='2 -1 0\n0\n'), r'b\.parents:1: the parent of token 2 is -1'),
        (dict(b_parents='0 3 0\n0\n'), r'b\.parents:1: a tree has one root .* has 2'),
        (dict(b_parents='2 3 1\n0\n'), r'b\.parents:1: a tree has one root .* has 0'),
        (dict(a_parents='2 1 4 0\n2 3 0\n'), r'a\.parents:1: token [12] is its own ancestor'),
        (dict(a_parents='1 4 4 0\n2 3 0\n'), r'a\.parents:1: token 1 is its own ancestor'),
        (dict(a_toks='A dog is running\n\n', a_parents='2 4 4 0\n\n'), r'a\.toks:2: .* empty'),
        (dict(sim_txt='2.5\n5.1\n'), r'sim\.txt:2: a score is between 1 and 5, not 5\.1'),
        (dict(sim_txt='2.5\n0.9\n'), r'sim\.txt:2: a score is between'),
        (dict(sim_txt='nan\n5\n'), r'sim\.txt:1: a score is between'),
        (dict(sim_txt='2.5\nhigh\n'), r"sim\.txt:2: a score is a number, not 'high'"),
        (dict(sim_txt='2.5\n'), r'sim\.txt:2: the file has 1 lines, .*a\.toks has 2'),
        (dict(id_txt='1\n2\n3\n'), r'id\.txt:3: the file has 3 lines, .*a\.toks has 2'),
        (dict(b_toks=None), r'b\.toks: there is no such file; a data directory holds'),
        (dict(b_toks=b'A c\xe9t sleeps\nRun\n'), r'b\.toks: not UTF-8'),
        ({name.replace('.', '_'): '' for name in FILES}, r'a\.toks:1: the file is empty'),
    ],
)
def test_errors_name_file_and_line(split, changes, message):
    directory = split(**changes)
    with pytest.raises(DataError, match=message) as error:
        load_split(directory)
    assert str(directory) in str(error.value)


def test_tree_has_children_in_order_of_tokens():
    tree = build_tree([10, 11, 12, 13], [2, 4, 4, 0])
    assert tree.token == 13
    assert [child.token for child in tree.children] == [11, 12]
    assert [child.token for child in tree.children[0].children] == [10]
    assert not hasattr(tree, '__dict__')


def test_deep_tree_needs_no_recursion():
    count = 20000
    tree = build_tree(range(count), [*range(2, count + 1), 0])
    depth = 0
    while tree.children:
        (tree,) = tree.children
        depth += 1
    assert depth == count - 1 and tree.token == 0
    # As a file line, too: the check for cycles walks up the whole chain once.
    chain = ' '.join(map(str, [*range(2, count + 1), 0]))
    sentence = ' '.join(['x'] * count)
    raw = RawPair(
        Sentence(tuple(sentence.split()), tuple(map(int, chain.split()))),
        Sentence(('x',), (0,)),
        1.0,
        '1',
    )
    (pair,) = build_pairs([raw], lambda tokens: [0] * len(tokens))
    assert isinstance(pair.left, Tree)


@pytest.mark.parametrize(
    'score, expected',
    [
        (1, [1, 0, 0, 0, 0]),
        (2.5, [0, 0.5, 0.5, 0, 0]),
        (4.75, [0, 0, 0, 0.25, 0.75]),
        (5, [0, 0, 0, 0, 1]),
    ],
)
def test_score_distribution(score, expected):
    target = score_distribution(score)
    assert target.shape == (1, 5) and target.dtype == np.float32
    np.testing.assert_allclose(target[0], expected, atol=1e-6)


@in_one_test('score', np.linspace(1, 5, 21))
def test_score_distribution_has_the_score_as_mean(score):
    target = Pair(Tree(0), Tree(0), score).target
    assert target.sum() == pytest.approx(1) and (target >= 0).all()
    assert target @ np.arange(1, 6) == pytest.approx(score)


@pytest.mark.parametrize('score', [0.99, 5.01, float('nan')])
def test_score_out_of_range(score):
    with pytest.raises(ValueError, match='between 1 and 5'):
        score_distribution(score)


def test_sample_is_sound_and_varied():
    pairs = {name: load_split(SAMPLE / name) for name in ('train', 'dev', 'test')}
    assert {name: len(split) for name, split in pairs.items()} == make_sample.SPLITS
    scores = [pair.score for pair in pairs['train']]
    assert min(scores) < 1.5 and max(scores) == 5 and np.std(scores) > 0.8
    text = (SAMPLE / 'train' / 'a.toks').read_text()
    assert not re.search(r'\ba [aeiou]', text, re.IGNORECASE)
    assert {'no', 'not', 'by', 'and', 'who'} <= set(text.split())


def test_another_seed_gives_another_sample(tmp_path):
    make_sample.write_sample(tmp_path, seed=1, splits={'train': 20})
    other = (tmp_path / 'train' / 'a.toks').read_text()
    assert not (SAMPLE / 'train' / 'a.toks').read_text().startswith(other)


@pytest.mark.parametrize(
    'changes, expected',
    [
        ({}, 5),
        (dict(subject=(0, 1)), 3.9),
        (dict(subject=(1, 1)), 3.2),
        (dict(verb=1), 2.8),
        (dict(negated=True), 3.8),
        (dict(adjective=1), 4.8),
    ],
)
def test_relatedness_falls_with_what_differs(changes, expected):
    scene = dict(subject=(0, 0), verb=0)
    left, right = make_sample.Scene(**scene), make_sample.Scene(**{**scene, **changes})
    score = make_sample.relatedness([left], [right])
    assert score == make_sample.relatedness([right], [left]) == expected


def test_relatedness_of_two_scenes_in_any_order():
    one, other = make_sample.Scene((0, 0), 0), make_sample.Scene((1, 2), 3)
    assert make_sample.relatedness([one, other], [other, one]) == 5
    assert make_sample.relatedness([one, other], [one]) < 5
