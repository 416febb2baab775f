"""Compiled programs that left as C++: built by make, run, compared with eager Gluon and NumPy."""

import io
import itertools
import json
import re
import shutil

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.program.cpp_format import _CALCULATED
from gluon_edbatch.program.mxnet_host import MXNetHost
from gluon_edbatch.program.program_bundle import write_program
from gluon_edbatch_core.branching.host_arithmetic import KNOWN, calculate
from gluon_edbatch_core.branching.program_graph import (
    Calculate,
    Choose,
    Finish,
    Goto,
    NumberSpec,
    ProgramBlock,
    ProgramGraph,
    ReadNumber,
    TensorSpec,
)
from gluon_edbatch_core.branching.program_interpreter import ControlFlowProgram
from gluon_edbatch_core.branching.pytree import LEAF, flatten
from tests.support.cases import in_one_test
from tests.support.damage import damaged, truncated
from tests.support.processes import run

pytestmark = pytest.mark.skipif(
    not (shutil.which('g++') and shutil.which('make')), reason='needs g++ and make'
)
MXNET = mx.__path__[0]


def built(folder, *flags, options=()):
    """Return the compiled program of a bundle."""
    flags = ' '.join(['-O0', '-Wall', *flags])
    done = run(['make', *options, f'MXNET={MXNET}', f'CXXFLAGS={flags}'], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'warning' not in done.stderr, done.stderr
    return folder / 'program'


def saved(path, *columns):
    """A file of samples: for each argument, what all samples have."""
    arrays = [
        np.stack([each.asnumpy() if isinstance(each, mx.nd.NDArray) else each for each in column])
        for column in columns
    ]
    np.save(path, arrays[0]) if len(arrays) == 1 else np.savez(path, *arrays)
    return path


def results(program, samples, *options):
    """Run a program, and return the results that it writes."""
    path = samples.with_suffix('.json')
    done = run([program, *options, samples, path])
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in path.read_text().splitlines()]


def as_json(value):
    """A result of Python as one of C++."""
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(as_json, value))
    if isinstance(value, mx.nd.NDArray):
        return value.asnumpy().tolist()
    return value.item() if isinstance(value, np.generic) else value


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert found == expected


class Wanders(gluon.Block):
    """Loops in loops, with all that leaves them; lists, counts, numbers that become arrays."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.layers = nn.Sequential()
            self.layers.add(*[nn.Dense(4, activation='tanh', in_units=4) for _ in range(3)])
            self.embed = nn.Embedding(9, 4)

    def forward(self, x, token):
        seen, rounds = [x.sum().asscalar()], 0
        x = x + self.embed(token)
        while rounds < 5:
            rounds += 1
            for number, layer in enumerate(self.layers):
                y = layer(x)
                score = float(y.mean().asscalar())
                if score > 0.6:
                    return {'early': x, 'at': (number, rounds)}, None
                if score < -0.4:
                    continue
                x = y + x * rounds
                if abs(score) < 0.05 or number + rounds > 5:
                    break
            else:
                x = x - mx.nd.array([score])
            if x.max().asscalar() > 4:
                x = x / 2
                break
            seen.append(rounds * 2 if score > 0 else -1.5)
        best = int(x.argmax(axis=1).asscalar())
        chosen = self.layers[best - 3](x)
        found = {'rounds': rounds, 'best': best, 'is': best > 1 and rounds > 2, 'chosen': chosen}
        return found, [x, *seen[:2]]


@pytest.fixture(scope='module')
def wanders(tmp_path_factory):
    """A network, samples of two arrays, its program, built."""
    mx.random.seed(3)
    net = Wanders()
    net.initialize(mx.init.Normal(1))
    random = np.random.RandomState(1)
    samples = [
        (
            mx.nd.array(random.uniform(-2, 2, (1, 4))),
            mx.nd.array(random.randint(0, 9, 1), dtype='int32'),
        )
        for _ in range(50)
    ]
    compiled = edb.compile_program(net, samples[0])
    folder = edb.export(compiled, tmp_path_factory.mktemp('cpp') / 'bundle', cpp=True)
    return net, samples, compiled, built(folder, '-Wextra')


def test_control_flow_is_that_of_python(wanders, tmp_path):
    net, samples, compiled, program = wanders
    expected = [as_json(net(*sample)) for sample in samples]
    assert len({str(each[0]) for each in expected}) > 8  # many ways were taken
    file = saved(tmp_path / 'samples.npz', *zip(*samples))
    for batch in ('50', '7', '1'):
        assert_same(results(program, file, '--batch', batch), expected)
    assert_same(as_json(compiled(samples)), expected)


@pytest.mark.slow
@pytest.mark.parametrize('fault', ['', 'std::vector<char> one(1); one.data()[words.size()] = 1;'])
def test_sanitizers_end_what_writes_beside_its_memory_and_nothing_else(wanders, tmp_path, fault):
    net, samples, _, program = wanders
    folder = shutil.copytree(program.parent, tmp_path / 'bundle')
    main = (folder / 'main.cc').read_text()
    assert main.count(' run(words);') == 1
    (folder / 'main.cc').write_text(main.replace(' run(words);', f'{fault} run(words);'))
    checked = built(folder, options=['-B', 'SANITIZE=1'])
    file = saved(tmp_path / 'samples.npz', *zip(*samples))
    if fault:
        done = run([checked, file, tmp_path / 'results'])
        assert done.returncode and 'heap-buffer-overflow' in done.stderr
    else:
        assert_same(results(checked, file), [as_json(net(*sample)) for sample in samples])


def test_it_tells_what_samples_did(wanders, tmp_path):
    net, samples, _, program = wanders
    file = saved(tmp_path / 'samples.npz', *zip(*samples))
    done = run([program, '--report', '--repeat', '2', file, tmp_path / 'results'])
    alone = edb.compile_program(net, samples[0])
    alone(samples)
    report = alone.report()
    assert f'50 samples in {report.runs} runs of blocks' in done.stderr
    for line, (then, other) in report.paths.items():
        assert f'{line}  true {then}  false {other}' in done.stderr
    assert 'ms a sample' in done.stderr


class Says(gluon.Block):
    """Says which element is the largest."""

    def forward(self, x):
        return int((x * 2).argmax(axis=1).asscalar())


def test_it_tells_where_rounding_may_have_decided(tmp_path):
    samples = [mx.nd.array([row]) for row in [[1, 2, 3], [5, 1, 5], [0, 7, 7.00001], [-1, -2, -9]]]
    compiled = edb.compile_program(Says(), samples[0])
    program = built(edb.export(compiled, tmp_path / 'bundle', cpp=True))
    file = saved(tmp_path / 'samples.npy', samples)
    assert results(program, file) == compiled(samples) == [2, 0, 2, 0]
    done = run([program, '--report', '--batch', '2', file, tmp_path / 'results'])
    told = [line for line in done.stderr.splitlines() if 'as good as equal' in line]
    near = compiled.report().near
    assert [sample for _, sample in near] == [1, 2] and len(told) == 2
    for (line, sample), text in zip(near, told):
        assert f'{line}: as good as equal for sample {sample},' in text


def test_it_is_a_bundle_as_ever(wanders):
    _, samples, compiled, program = wanders
    again = edb.load_program(program.parent)
    assert_same(as_json(again(samples)), as_json(compiled(samples)))


def test_help(wanders):
    done = run([wanders[-1], '--help'])
    assert done.returncode == 0 and 'SAMPLES' in done.stdout
    assert 'float32(1, 4) int32(1,)' in done.stdout


def test_it_runs_from_anywhere(wanders, tmp_path):
    _, samples, compiled, program = wanders
    saved(tmp_path / 'samples.npz', *zip(*samples[:3]))
    (tmp_path / 'link').symlink_to(program)
    done = run(['./link', 'samples.npz', 'results'], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / 'results').read_text().splitlines()
    assert_same(list(map(json.loads, lines)), as_json(compiled(samples[:3])))


def npy_of(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_results_can_go_to_a_device(wanders, tmp_path):
    _, samples, compiled, program = wanders
    done = run([program, saved(tmp_path / 'samples.npz', *zip(*samples[:3])), '/dev/stdout'])
    assert done.returncode == 0, done.stderr
    assert_same(list(map(json.loads, done.stdout.splitlines())), as_json(compiled(samples[:3])))


FIRST, SECOND = np.zeros((3, 1, 4), 'f4'), np.zeros((3, 1), 'i4')


@in_one_test(
    'write, message',
    [
        (lambda f: np.savez(f, FIRST[:, :, :3], SECOND), r'float32\(3, 1, 3\).*float32\(N, 1, 4\)'),
        (lambda f: np.savez(f, FIRST[0], SECOND), r'arr_0.* has float32\(1, 4\)'),
        (lambda f: np.savez(f, FIRST.astype('f8'), SECOND), r'has float64\(3, 1, 4\)'),
        (lambda f: np.savez(f, FIRST.astype('>f4'), SECOND), 'type >f4'),
        (lambda f: np.savez(f, FIRST, SECOND.astype('i8')), r'arr_1.* has int64\(3, 1\)'),
        (lambda f: np.savez(f, FIRST, SECOND[:2]), 'has 2 samples, and .* 3'),
        (lambda f: np.savez(f, FIRST[:0], SECOND[:0]), 'has no samples'),
        (lambda f: np.savez(f, FIRST), 'has 1 arrays, and is to have 2'),
        (lambda f: np.savez(f, x=FIRST, token=SECOND), 'arr_0, arr_1'),
        (lambda f: np.savez_compressed(f, FIRST, SECOND), 'is compressed'),
        (lambda f: np.savez(f, np.ones((3, 4, 4), 'f4').T, SECOND), "Fortran's order"),
        (lambda f: f.write_bytes(npy_of(FIRST)), 'is no archive'),
        (lambda f: f.write_bytes(b''), 'nothing in it'),
        (lambda f: f.write_bytes(b'PK and no more'), 'truncated'),
        (lambda f: None, 'cannot be read'),
    ],
)
def test_samples_that_do_not_fit(wanders, tmp_path, write, message):
    file, result = tmp_path / 'samples.npz', tmp_path / 'results'
    write(file)
    done = run([wanders[-1], file, result])
    assert done.returncode == 1
    assert done.stderr.startswith('program: ') and str(file) in done.stderr
    assert re.search(message, done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == [file] * file.exists()


@pytest.mark.parametrize(
    'words, message',
    [
        ([], 'two files are needed'),
        (['a', 'b', 'c'], 'two files are needed'),
        (['--fast', 'a', 'b'], 'no option --fast'),
        (['a', 'b', '--batch'], '--batch needs a value'),
        (['--batch', '0', 'a', 'b'], 'a number from 1 on'),
        (['--max-steps', '-3', 'a', 'b'], 'a number from 1 on'),
    ],
)
def test_command_lines(wanders, words, message):
    done = run([wanders[-1], *words])
    assert done.returncode == 2
    assert message in done.stderr and '--help' in done.stderr


def test_errors_of_a_run(wanders, tmp_path):
    _, samples, _, program = wanders
    file = saved(tmp_path / 'samples.npz', *zip(*samples))
    done = run([program, '--max-steps', '3', file, tmp_path / 'results'])
    assert done.returncode == 1
    assert 'a sample ran more than 3 blocks, the last at' in done.stderr
    assert 'test_cpp_programs.py:' in done.stderr
    done = run([program, file, tmp_path / 'nowhere' / 'results'])
    assert done.returncode == 1 and 'cannot be written' in done.stderr
    samples = [*samples[:4], (samples[0][0] * np.nan, samples[0][1])]
    done = run([program, saved(file, *zip(*samples)), tmp_path / 'results'])
    assert done.returncode == 1
    assert 'if score > 0.6\n  what is compared is not a number (NaN)' in done.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_files_of_a_bundle_that_was_altered(wanders, tmp_path):
    _, samples, _, program = wanders
    file = saved(tmp_path / 'samples.npz', *zip(*samples))
    for name in ('network0-symbol.json', 'network0-0.params'):
        folder = shutil.copytree(program.parent, tmp_path / name)
        data = (folder / name).read_bytes()
        for damage in (data[:-1], data[:-9] + b'x' + data[-8:], None):
            (folder / name).unlink()
            if damage is not None:
                (folder / name).write_bytes(damage)
            done = run([program, '--bundle', folder, file, tmp_path / 'results'])
            assert done.returncode == 1 and name in done.stderr
            (folder / name).touch()


def test_damaged_samples_are_errors(wanders, tmp_path):
    """Or, where other elements came of it, results; never a crash."""
    _, samples, _, program = wanders
    whole = saved(tmp_path / 'whole.npz', *zip(*samples[:3])).read_bytes()
    generator, file = np.random.RandomState(5), tmp_path / 'samples.npz'
    refused = 0
    for case in range(30):
        file.write_bytes((damaged if case % 3 else truncated)(whole, generator))
        done = run([program, file, tmp_path / 'results'])
        assert done.returncode in (0, 1), (case, done.stderr)
        refused += done.returncode
    assert refused > 10


# --- numbers -------------------------------------------------------------------------------------

OPERANDS = {
    'float': [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        -2.5,
        3.0,
        -7.0,
        1e18,
        1e19,
        9007199254740994.0,
        0.1,
        np.inf,
    ],
    'int': [0, 1, -1, 2, 3, -7, 12, 2**31, 2**53 + 1, 2**62],
    'bool': [False, True],
}
KINDS = list(OPERANDS)
CONSTANTS = {'float': 2.5, 'int': -3, 'bool': True}
UNARY = 'neg pos abs not float int bool round floor ceil sqrt exp log tanh'.split()
FIRSTS, SECONDS, WAY, MADE = range(3), range(3, 6), 6, 7  # values: one of each kind, twice


def ways_to_calculate():
    """Operators and operands: of each kind that there is, and constants."""
    made = []
    for op in sorted(KNOWN):
        kinds = range(1 if op in ('and', 'or', 'xor', 'index') else 0, 3)
        if op in UNARY:
            made += [(op, (first,)) for first in FIRSTS]
            continue
        made += [(op, (FIRSTS[one], SECONDS[other])) for one in kinds for other in kinds]
        constants = [(CONSTANTS[KINDS[one]],) for one in kinds]
        made += [(op, (FIRSTS[one], constant)) for one in kinds for constant in constants]
        made += [(op, (constant, SECONDS[one])) for one in kinds for constant in constants]
    return made


def graph_of(ways):
    """A program of two floats, integers and bools, and a number that says which way to take."""
    dtypes = ['float64', 'int64', 'bool'] * 2 + ['int64']
    kinds = KINDS * 2 + ['int']
    takes = tuple(NumberSpec(kind) for kind in kinds)
    on = tuple(range(len(kinds)))
    reads = [ReadNumber(len(on) + place, place, kind) for place, kind in enumerate(kinds)]
    begin = Goto(1, tuple(len(on) + place for place in on))
    blocks = [ProgramBlock(tuple(TensorSpec((1,), each) for each in dtypes), reads, begin, 'begin')]
    for number, (op, operands) in enumerate(ways):
        here, after = 2 * number + 1, min(2 * number + 3, 2 * len(ways) - 1)
        is_it = Calculate(MADE, 'eq', (WAY, (number,)), 'which')
        choice = Choose(MADE, Goto(here + 1, on), Goto(after, on), 'which')
        step = Calculate(MADE, op, operands, f'file.py:{number}: {op} "of" {operands}')
        blocks.append(ProgramBlock(takes, [is_it], choice, 'which'))
        blocks.append(ProgramBlock(takes, [step], Finish(LEAF, (MADE,)), 'calculates'))
    arguments = flatten(tuple(mx.nd.zeros(1) for _ in dtypes), mx.nd.NDArray, [])
    return ProgramGraph(blocks, [], [], [], arguments)


def samples_of(ways):
    """Values for each way, of which all operands occur; and what NumPy makes of each, or says."""
    for number, (op, operands) in enumerate(ways):
        lists = [
            OPERANDS[KINDS[place % 3]] if isinstance(place, int) else [place[0]]
            for place in operands
        ]
        for chosen in itertools.product(*lists):
            sample = [0.0, 0, False, 0.0, 0, False, number]
            for place, value in zip(operands, chosen):
                if isinstance(place, int):
                    sample[place] = value
            step = Calculate(MADE, op, operands, f'file.py:{number}: {op} "of" {operands}')
            arrays = [
                value if isinstance(place, tuple) else np.array([value])
                for place, value in zip(operands, chosen)
            ]
            try:
                yield sample, calculate(step, arrays, 1).tolist()[0]
            except edb.ProgramError as error:
                yield sample, error


def saved_numbers(path, samples):
    dtypes = ['f8', 'i8', '?', 'f8', 'i8', '?', 'i8']
    columns = [np.array(column, dtype)[:, None] for column, dtype in zip(zip(*samples), dtypes)]
    np.savez(path, *columns)
    return path


def test_numbers_are_those_of_python(tmp_path):
    """All operators, with operands of all kinds; and what Python has an error for."""
    assert set(_CALCULATED) == KNOWN
    ways = ways_to_calculate()
    graph = graph_of(ways)
    program = ControlFlowProgram(graph, MXNetHost(graph, mx.cpu()), 10_000)
    program = built(write_program(program, mx.cpu(), tmp_path / 'bundle', False, True))
    pairs = list(samples_of(ways))
    right = [pair for pair in pairs if not isinstance(pair[1], Exception)]
    file = saved_numbers(tmp_path / 'samples.npz', [sample for sample, _ in right])
    found = results(program, file, '--batch', '100000')
    assert len(found) == len(right) > 3000
    for one, (sample, expected) in zip(found, right):
        op = ways[sample[WAY]][0]
        assert type(one) is type(expected), (op, sample)
        if op in ('pow', 'exp', 'log', 'tanh'):
            assert one == pytest.approx(expected, rel=1e-14, nan_ok=True), (op, sample)
        else:
            assert repr(one) == repr(expected), (op, sample)
    wrong = {
        (ways[sample[WAY]][0], str(error).split('\n')[1]): (sample, error)
        for sample, error in pairs
        if isinstance(error, Exception)
    }
    assert len(wrong) > 15
    for sample, error in wrong.values():
        done = run([program, saved_numbers(file, [sample]), tmp_path / 'results'])
        assert done.returncode == 1
        assert done.stderr == f'program: {error}\n'


# --- what cannot leave ---------------------------------------------------------------------------


class Gives(gluon.Block):
    """A network that returns a function of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def halves(x):
    return x.astype('float16')


def gives_a_number_by_another(x):
    return {1: x}


def is_too_large(x):
    return x, 2**64 + float(x.sum().asscalar())


def doubles(x):
    return x * 2


def sorts_alone(x):
    return mx.nd.sort(x - x.mean(axis=0), axis=0) if x.sum().asscalar() > 0 else x * 2


@pytest.mark.parametrize(
    'function, message',
    [
        (halves, 'does not compute in float16'),
        (gives_a_number_by_another, 'the key 1'),
        (is_too_large, 'more than 64 bits'),
    ],
)
def test_what_the_host_does_not_take_is_refused(tmp_path, function, message):
    program = edb.compile_program(Gives(function), mx.nd.ones((1, 4)))
    with pytest.raises(edb.BundleError, match=message):
        edb.export(program, tmp_path / 'bundle', cpp=True)
    assert list(tmp_path.iterdir()) == []


def test_without_mxnet_make_says_where_to_look(tmp_path):
    program = edb.compile_program(Gives(doubles), mx.nd.ones((1, 4)))
    folder = edb.export(program, tmp_path / 'bundle', cpp=True)
    done = run(['make', 'PYTHON=/bin/false'], folder)
    assert done.returncode != 0 and 'make MXNET=' in done.stdout + done.stderr
    assert not (folder / 'program').exists()


def test_networks_that_take_one_sample_at_a_time(tmp_path):
    net, random = Gives(sorts_alone), np.random.RandomState(2)
    samples = [mx.nd.array(random.uniform(-1, 1, (3, 2))) for _ in range(9)]
    compiled = edb.compile_program(net, samples[0])
    compiled._of_mode(False).graph.networks[:] = [
        network._replace(batched=False) for network in compiled._of_mode(False).graph.networks
    ]
    program = built(edb.export(compiled, tmp_path / 'bundle', cpp=True))
    found = results(program, saved(tmp_path / 'samples.npy', samples))
    assert_same(found, [as_json(net(sample)) for sample in samples])
