"""python -m example: one entrance to all programs of the examples."""

import pytest

from support import processes

EXAMPLES = processes.ROOT / 'example'
PROGRAMS = sorted(str(path.relative_to(EXAMPLES).with_suffix('')) for path in EXAMPLES.glob('*/*.py')
                  if path.stem in ('train', 'page', 'powers', 'trees', 'mnist_forward',
                                   'mnist_train', 'make_sample'))
NAMES = [path.replace('/train', '').replace('/', '.') for path in PROGRAMS]


def run(*arguments):
    return processes.run_python('-m', 'example', *arguments, cwd=processes.ROOT)


@pytest.mark.parametrize('arguments', [[], ['--help'], ['-h']])
def test_all_programs_are_listed(arguments):
    done = run(*arguments)
    assert done.returncode == 0 and done.stdout.startswith('usage: python -m example NAME')
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith('  ')]
    assert [name for name, _ in lines] == sorted(NAMES)
    assert all(len(said) > 20 and 'see --help' not in said for _, said in lines)


@pytest.mark.parametrize('name', ['tree', 'tree_lstm.data', 'common', '../scripts', '--mode'])
def test_an_unknown_name(name):
    done = run(name)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(f'python -m example: there is no {name!r}; there are beam_search')
    assert len(done.stderr.splitlines()) == 1


def test_a_program_gets_its_options_and_gives_its_status(tmp_path):
    done = run('lattice.make_sample', '--out', tmp_path, '--seed', '0')
    assert done.returncode == 0, done.stderr
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (EXAMPLES / 'lattice' / 'sample' / path.name).read_bytes()
    done = run('tree_lstm', '--data', tmp_path / 'nowhere')
    assert done.returncode == 1 and 'there is no such file' in done.stderr


def test_both_ways_to_call_say_the_same():
    arguments = '--epochs', '1', '--hidden', '4', '--mode', 'infer'
    ways = [run('beam_search', *arguments), processes.run_example('beam_search/train', *arguments)]
    figures = [done.stdout.splitlines()[-2].split()[:3] for done in ways]
    assert figures[0] == figures[1] and figures[0][0] == 'dev', ways


@pytest.mark.parametrize('path', [path for path in PROGRAMS if path.endswith('make_sample')])
def test_files_are_programs(path):
    done = processes.run_example(path, '--help')
    assert done.returncode == 0 and 'usage: ' in done.stdout, done.stderr
