"""The lattice and tagger examples as programs: they learn, go on, and say what is wrong."""

import os
import re

import numpy as np
import pytest

from example.common import checkpoint as checkpoints
from example.common.options import parse
from example.common.program import run_program
from example.common.spans import spans
from example.lattice import make_sample as make_lattices
from example.lattice.task import LatticeTask
from example.tagger import make_sample as make_sentences
from example.tagger.task import TaggerTask
from tests.support.processes import run_example

TINY = ['--hidden', '6', '--embed', '6', '--batch-size', '4', '--epochs', '1']


@pytest.fixture(scope='module')
def lattices(tmp_path_factory):
    """Options for a few lattices."""
    directory = tmp_path_factory.mktemp('lattices')
    make_lattices.write_sample(directory, {'train': 12, 'dev': 4, 'test': 3})
    return ['--data', str(directory), '--words', str(directory / 'words.txt')]


@pytest.fixture(scope='module')
def sentences(tmp_path_factory):
    """Options for a few tagged sentences."""
    directory = tmp_path_factory.mktemp('sentences')
    make_sentences.write_sample(directory, {'train': 12, 'dev': 4})
    return ['--data', str(directory)]


@pytest.mark.parametrize(
    'arguments, epochs',
    [('lattice --model lstm', 3), ('lattice --model gru', 3), ('tagger', 2), ('tagger --char', 2)],
)
def test_program_learns_from_the_embedded_sample(tmp_path, arguments, epochs):
    example, *arguments = arguments.split()
    done = run_example(
        f'{example}/train',
        *arguments,
        '--epochs',
        epochs,
        '--hidden',
        '24',
        '--embed',
        '16',
        '--lr',
        '0.02',
        '--batch-size',
        '16',
        cwd=tmp_path,
    )
    assert done.returncode == 0 and done.stderr == '', done.stderr
    losses, figures = (
        [
            float(text)
            for text in re.findall(rf'^epoch .*{name} ([\d.]+)', done.stdout, re.MULTILINE)
        ]
        for name in ('loss', 'F1')
    )
    assert len(losses) == epochs and losses[-1] < 0.6 * losses[0]
    assert figures[-1] > 0.4 and figures[-1] > figures[0]
    assert ('test ' in done.stdout) == (example == 'lattice')  # WikiNER has none
    assert os.listdir(tmp_path) == []


def run(task, arguments, path):
    """Train to a checkpoint; gives it."""
    assert run_program(task, [*arguments, '--checkpoint', str(path)]) == 0
    return checkpoints.load(path)


@pytest.mark.parametrize('task', [LatticeTask, TaggerTask])
def test_training_is_the_same_however_it_runs(tmp_path, lattices, sentences, task):
    arguments = [*(lattices if task is LatticeTask else [*sentences, '--char']), *TINY]
    one = run(task, arguments, tmp_path / 'one')
    for other in (['--unbatched'], ['--scheduler', 'depth']):
        found = run(task, [*arguments, *other], tmp_path / other[-1])
        np.testing.assert_allclose(
            [epoch['loss'] for epoch in one.history],
            [epoch['loss'] for epoch in found.history],
            rtol=1e-4,
        )


def test_resumed_training_gives_the_same_numbers(tmp_path, lattices):
    # (the default scheduler learns from minibatches that it meets, in another order after resuming)
    arguments = [*lattices, *TINY, '--model', 'gru', '--bidirectional', '--scheduler', 'agenda']
    whole = run(LatticeTask, [*arguments, '--epochs', '2'], tmp_path / 'whole')
    run(LatticeTask, arguments, tmp_path / 'parts')
    assert (
        run_program(
            LatticeTask,
            [
                '--checkpoint',
                str(tmp_path / 'parts'),
                '--resume',
                '--epochs',
                '2',
                '--scheduler',
                'agenda',
            ],
        )
        == 0
    )
    parts = checkpoints.load(tmp_path / 'parts')
    for name, array in whole.parameters.items():
        # (A type's first batch runs alone, to be verified: sums of batches are rounded elsewhere.)
        np.testing.assert_allclose(
            array, parts.parameters[name], rtol=1e-5, atol=1e-6, err_msg=name
        )


def test_a_checkpoint_meets_other_tags(tmp_path, sentences, capsys):
    run(TaggerTask, [*sentences, *TINY], tmp_path / 'one')
    (tmp_path / 'data').mkdir()
    for split in ('train', 'dev'):
        (tmp_path / 'data' / f'{split}.txt').write_text('a|I-NEW b|O\n', encoding='utf-8')
    assert (
        run_program(
            TaggerTask,
            [
                '--checkpoint',
                str(tmp_path / 'one'),
                '--mode',
                'infer',
                '--data',
                str(tmp_path / 'data'),
            ],
        )
        == 1
    )
    assert 'the tag I-NEW is none of those that the checkpoint knows' in capsys.readouterr().err


@pytest.mark.parametrize(
    'task, arguments, message',
    [
        (TaggerTask, ['--char', '--embed', '7'], '--embed 7: with --char'),
        (LatticeTask, ['--data', '.'], 'needs a word list: --words FILE'),
        (LatticeTask, ['--words', 'nowhere'], 'nowhere: there is no such word list'),
        (TaggerTask, ['--data', 'nowhere'], 'nowhere: there is no such directory'),
    ],
)
def test_what_is_wrong_is_said(capsys, task, arguments, message):
    assert run_program(task, arguments) == 1
    assert message in capsys.readouterr().err


def task_of(task, arguments):
    """A task with its data read."""
    options, _ = parse(task, arguments)
    return task(options)


def test_figures_are_those_of_the_predicted_tags(sentences):
    task = task_of(TaggerTask, sentences)
    samples = task.samples['dev']
    names = task.vocabs['tags'].idx_to_token
    right = np.concatenate([np.eye(len(names))[sample.tags.astype(int)] for sample in samples])
    assert task.measure(right, samples) == (1, 1, 1, 1)
    nothing = np.zeros_like(right)
    nothing[:, task.vocabs['tags']['O']] = 1
    score = task.measure(nothing, samples)
    assert score.f1 == 0 and score.accuracy == pytest.approx(
        right[:, task.vocabs['tags']['O']].mean()
    )
    assert any(spans([names[int(tag)] for tag in sample.tags]) for sample in samples)


def test_only_rare_words_are_spelt(tmp_path):
    (tmp_path / 'train.txt').write_text('aa|O aa|O aa|O aa|O aa|O bb|O bb|O bb|O bb|O c|O\n')
    (tmp_path / 'dev.txt').write_text('aa|O bb|O ad|O\n')
    with_chars = task_of(TaggerTask, ['--data', str(tmp_path), '--char'])
    common, rare, new = with_chars.samples['dev'][0].tokens
    a, b = (with_chars.vocabs['chars'][char] for char in 'ab')
    assert not common.chars and rare.chars == (b, b) and new.chars == (a, 0)
    without = task_of(TaggerTask, ['--data', str(tmp_path)])
    tokens = without.samples['dev'][0].tokens
    assert not any(token.chars for token in tokens)
    assert tokens[1].word != 0 and tokens[2].word == 0
    assert without.samples['train'][0].tokens[-1].word == 0  # seen once
