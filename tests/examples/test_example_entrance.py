"""python -m example, the entrance to all programs of the examples; and those that make samples."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from example.__main__ import main
from example.common.samples import Writer, different, write_files
from tests.support import processes

EXAMPLES = processes.ROOT / 'example'
STEMS = (
    'train page powers trees mnist_forward mnist_train make_sample make_served estimator'
).split()
PROGRAMS = sorted(
    str(path.relative_to(EXAMPLES).with_suffix(''))
    for path in EXAMPLES.glob('*/*.py')
    if path.stem in STEMS
)
NAMES = [path.replace('/train', '').replace('/', '.') for path in PROGRAMS]


def run(*arguments):
    return processes.run_python('-m', 'example', *arguments, cwd=processes.ROOT)


@pytest.mark.parametrize('arguments', [[], ['--help'], ['-h']])
def test_all_programs_but_those_that_make_samples_are_listed(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['example', *arguments])
    assert main() == 0
    told = capsys.readouterr().out
    assert told.startswith('usage: python -m example NAME')
    lines = [line.split(maxsplit=1) for line in told.splitlines() if line.startswith('  ')]
    assert [name for name, _ in lines] == sorted(n for n in NAMES if 'make_sample' not in n)
    assert all(len(said) > 20 and 'see --help' not in said for _, said in lines)


@pytest.mark.parametrize('name', ['tree', 'tree_lstm.data', 'common', '../scripts', '--mode'])
def test_an_unknown_name(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['example', name])
    assert main() == 2
    told = capsys.readouterr()
    assert told.err.startswith(f'python -m example: there is no {name!r}; there are adaptive')
    assert len(told.err.splitlines()) == 1 and not told.out


def test_a_program_gets_its_options_and_gives_its_status(tmp_path):
    done = run('lattice.make_sample', '--out', tmp_path, '--seed', '0')
    assert done.returncode == 0, done.stderr
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (EXAMPLES / 'lattice' / 'sample' / path.name).read_bytes()
    done = run('tree_lstm', '--data', tmp_path / 'nowhere')
    assert done.returncode == 1 and 'nowhere: there is no such directory' in done.stderr


def test_both_ways_to_call_say_the_same():
    arguments = '--epochs', '1', '--hidden', '4', '--mode', 'infer'
    ways = [run('beam_search', *arguments), processes.run_example('beam_search/train', *arguments)]
    figures = [done.stdout.splitlines()[-2].split()[:3] for done in ways]
    assert figures[0] == figures[1] and figures[0][0] == 'dev', ways


def without(folder, *names):
    """Variables of a process in which some packages are not installed."""
    for name in names:
        text = f'raise ModuleNotFoundError("No module named {name!r}", name={name!r})'
        (folder / f'{name}.py').write_text(text)
    return {'PYTHONPATH': f'{folder}:{processes.ROOT}'}


@pytest.mark.parametrize('name', ['tree_lstm', 'sentence_sst', 'transition_parser', 'pointer'])
def test_an_example_without_gluonnlp_says_how_to_install_it(name, tmp_path):
    done = processes.run_python('-m', 'example', name, **without(tmp_path, 'gluonnlp', 'tqdm'))
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.splitlines() == [
        "this example needs gluonnlp: install it with `pip install '.[cpu,example]'`"
    ]


def test_an_example_needs_neither_gluonnlp_nor_tqdm_nor_scipy(tmp_path):
    done = processes.run_python(
        *('-m', 'example', 'beam_search', '--epochs', '1', '--hidden', '4'),
        **without(tmp_path, 'gluonnlp', 'tqdm', 'scipy'),
    )
    assert done.returncode == 0, done.stderr
    assert 'epoch   1' in done.stdout


# --- samples -------------------------------------------------------------------------------

MAKERS = [path for path in PROGRAMS if path.endswith('make_sample')]


def files_below(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in Path(directory).rglob('*')
        if path.is_file()
    }


@pytest.mark.parametrize('path', MAKERS)
def test_a_maker_is_a_program(path):
    done = processes.run_example(path, '--help')
    assert done.returncode == 0 and 'usage: ' in done.stdout, done.stderr


# Images are not the same to the byte: another NumPy may round otherwise.
@pytest.mark.parametrize('path', [path for path in MAKERS if 'torchfold' not in path])
def test_the_embedded_sample_is_what_its_maker_makes(path, tmp_path):
    make = import_module('example.' + path.replace('/', '.')).main
    assert make(['--out', str(tmp_path)]) == 0
    kept = files_below((EXAMPLES / path).with_name('sample'))
    assert kept and files_below(tmp_path) == kept
    assert make(['--out', str(tmp_path), '--seed', '1']) == 0
    made = files_below(tmp_path)
    assert set(made) == set(kept) and made != kept


def test_what_is_drawn_by_a_seed():
    one, same, other = (Writer(seed) for seed in ('a', 'a', 'b'))
    letters = [writer.pick('abcdefgh') for writer in (one, same, other) for _ in range(20)]
    assert letters[:20] == letters[20:40] != letters[40:]
    assert not one.chance(0) and one.chance(1)
    assert sorted(different(3, lambda: one.pick('abc'))) == ['a', 'b', 'c']
    assert different(2, iter([1, 3, 2]).__next__, key=lambda number: number % 2) == [1, 2]


def test_files_are_whole_and_in_folders(tmp_path):
    write_files(tmp_path / 'new', {'text': 'ä\n', 'folder/bytes': b'\0'})
    assert files_below(tmp_path / 'new') == {'text': 'ä\n'.encode(), 'folder/bytes': b'\0'}
