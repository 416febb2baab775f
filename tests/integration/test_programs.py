"""Networks whose path depends on values, compiled: the numbers and decisions of eager Gluon."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.program.block_runner import BlockRunner


def initialized(net, scale=0.7):
    mx.random.seed(3)
    net.initialize(mx.init.Normal(scale))
    return net


def drawn(count, shape=(1, 8)):
    random = np.random.RandomState(5)
    return [mx.nd.array(random.uniform(-1, 1, shape)) for _ in range(count)]


def assert_same(found, expected):
    if isinstance(expected, mx.nd.NDArray):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-5)
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    else:
        assert found == expected


def assert_is_eager(net, samples, **options):
    """The program of a net, after it was compared on all samples, together and alone."""
    program = edb.compile_program(net, samples[0], **options)
    expected = [net(*each) if isinstance(each, tuple) else net(each) for each in samples]
    assert_same(program(samples), expected)
    for sample, each in zip(samples, expected):
        assert_same(program([sample])[0], each)
    return program


class Exits(gluon.Block):
    """Leaves when it is sure."""

    threshold = 0.5

    def __init__(self, depth=4):
        super().__init__()
        with self.name_scope():
            self.layers, self.heads = nn.Sequential(), nn.Sequential()
            for _ in range(depth):
                self.layers.add(nn.Dense(8, activation='tanh', in_units=8))
                self.heads.add(nn.Dense(3, in_units=8))

    def forward(self, x):
        for number, (layer, head) in enumerate(zip(self.layers, self.heads)):
            x = layer(x)
            scores = head(x)
            if float(scores.softmax().max().asscalar()) > self.threshold:
                return scores, number
        return scores, len(self.layers)


class Skips(gluon.Block):
    """Counts what it does not skip."""

    def __init__(self, depth=5):
        super().__init__()
        with self.name_scope():
            self.blocks, self.gates = nn.Sequential(), nn.Sequential()
            for _ in range(depth):
                self.blocks.add(nn.Dense(8, activation='tanh', in_units=8))
                self.gates.add(nn.Dense(1, in_units=8))

    def forward(self, x):
        ran = 0
        for block, gate in zip(self.blocks, self.gates):
            if gate(x).asscalar() > 0:
                x = x + block(x)
                ran += 1
        return x, ran


class Speaks(gluon.Block):
    """Says words until it says the last one."""

    def __init__(self, longest=6):
        super().__init__()
        self.longest = longest
        with self.name_scope():
            self.embed = nn.Embedding(7, 8)
            self.cell = gluon.rnn.LSTMCell(8, input_size=8)
            self.scores = nn.Dense(7, in_units=8)

    def forward(self, x):
        word, words = 1, []
        states = self.cell.begin_state(batch_size=1)
        states[0] = x
        while word != 0 and len(words) < self.longest:
            out, states = self.cell(self.embed(mx.nd.array([word])), states)
            word = int(self.scores(out).argmax(axis=1).asscalar())
            words.append(word)
        return {'words': words, 'state': states}


class Iterates(gluon.Block):
    """Repeats what it does until it is far enough; nobody knows how often."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(8, in_units=8)

    def forward(self, x):
        steps, total = 0, 0.0
        while x.sum().asscalar() < 5:
            x = x + 0.2 * self.dense(x).abs()
            total += float(x.mean().asscalar())
            steps += 1
        return x, steps, total / (steps + 1)


def test_early_exits():
    net = initialized(Exits())
    program = assert_is_eager(net, drawn(30))
    assert len({result[1] for result in program(drawn(30))}) > 1
    together = str(program)
    assert together.count('network 0(') == 3  # one network, of three layers' parameters


def test_ways_that_differ_in_a_count_go_on_as_one():
    net = initialized(Skips())
    program = assert_is_eager(net, drawn(30))
    blocks, networks = map(int, (str(program).split()[0], str(program).split()[2]))
    assert blocks <= 2 * 5 + 1 and networks <= 4
    counts = edb.compile_program(net, drawn(1)[0])
    counts(drawn(30))
    assert counts.report().samples == 30
    assert counts.report().runs <= blocks  # all regroup wherever ways meet


def test_loops_that_a_value_ends():
    program = assert_is_eager(initialized(Iterates(), 0.3), drawn(10))
    assert len({result[1] for result in program(drawn(10))}) > 2


def test_captions():
    assert_is_eager(initialized(Speaks(), 1.0), drawn(10))


@pytest.mark.parametrize('name', ['thread', 'constants', 'dead', 'merge'])
@pytest.mark.parametrize('make', [Exits, Skips, Speaks, Iterates])
def test_without_a_pass(make, name):
    assert_is_eager(initialized(make(), 0.5), drawn(5), without=[name])


def test_without_any_pass():
    for make in (Exits, Skips, Speaks):
        everything = list(edb.compile_program(initialized(make()), drawn(1)[0]).report().effects)
        assert_is_eager(initialized(make()), drawn(5), without=everything)


@pytest.mark.parametrize('make', [Exits, Skips, Iterates])
def test_gradients(make):
    net, samples = initialized(make(), 0.4), drawn(12)
    program = edb.compile_program(net, samples[0])
    gradients = []
    for run in (lambda: [net(each) for each in samples], lambda: program(samples)):
        with autograd.record():
            loss = mx.nd.add_n(*[(result[0] ** 2).sum() for result in run()])
        loss.backward()
        gradients.append([p.grad().asnumpy() for p in net.collect_params().values()])
    assert any(each.any() for each in gradients[0])
    for one, other in zip(*gradients):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


class OneByOne(gluon.HybridBlock):
    """Has an operator that is known for one sample only."""

    def hybrid_forward(self, F, x):
        return F.SoftmaxActivation(x) * x


class Doubles(gluon.Block):
    """Decides by what is computed sample by sample."""

    def __init__(self):
        super().__init__()
        self.inner = OneByOne()

    def forward(self, x):
        found = self.inner(x)
        return found * 2 if found.sum().asscalar() > 0 else found


def test_networks_that_run_sample_by_sample():
    net, samples = Doubles(), drawn(5, (2, 3))
    program = assert_is_eager(net, samples)
    assert [each.batched for each in program.inference.graph.networks] == [False, True]
    gradients = []
    for called in (program, lambda given: [net(each) for each in given]):
        for sample in samples:
            sample.attach_grad()
        with autograd.record():
            total = sum(result.sum() for result in called(samples))
        total.backward()
        gradients.append([sample.grad for sample in samples])
    assert_same(*gradients)


class Written(gluon.Block):
    """A network of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.kept = []
        with self.name_scope():
            self.dense = nn.Dense(8, in_units=8)

    def forward(self, x):
        return self.function(self, x)


def python(net, x):
    words = {'a': [x, 1], 'b': (2.5, -x)}
    first, *rest = [x * i for i in range(3)]
    n = int((x.sum().asscalar() + 3) // 1)
    total = 0
    for i in range(n):
        total += i if i % 2 else -i
        if total > 4:
            break
    else:
        total = max(total, 0.5) ** 2
    words['c'] = [each + total for each in rest if each.shape == (1, 8)]
    inside = 0 < n < 4 and not (total == 4 or n == 1)
    words['a'][1] += n
    return words, first, 'in' if inside else 'out', (n, abs(total), min(n, 2), float(total))


def test_python_is_python():
    assert_is_eager(initialized(Written(python)), drawn(20))


def counts_known(net, x):
    at = 0
    while at < 3:
        x = net.dense(x)
        if x.sum().asscalar() > 0:
            x = -x
        at += 1
    return x, [x, x * 2][at - 2]


def test_a_number_that_has_to_be_known_is():
    assert_is_eager(initialized(Written(counts_known)), drawn(10))


class Experts(gluon.Block):
    """Runs the expert that a gate chooses, and another one by a negative index."""

    def __init__(self, held, count=4):
        super().__init__()
        with self.name_scope():
            self.gate, self.last = nn.Dense(count, in_units=8), nn.Dense(3, in_units=8)
            experts = [nn.Dense(8, activation='tanh', in_units=8) for _ in range(count)]
            if held in (list, tuple):
                self.experts = held(experts)
                for expert in experts:
                    self.register_child(expert)
            else:
                self.experts = held()
                self.experts.add(*experts)

    def forward(self, x):
        best = int(self.gate(x).argmax(axis=1).asscalar())
        y = self.experts[best](x)
        expert = self.experts[best - len(self.experts)]
        return self.last(expert(x + y)), best


@pytest.mark.parametrize('held', [list, tuple, nn.Sequential, nn.HybridSequential])
def test_a_value_chooses_a_block(held):
    program = assert_is_eager(initialized(Experts(held)), drawn(30))
    assert len({best for _, best in program(drawn(30))}) == 4
    assert all(
        'test_programs.py' in line and 'self.experts[best' in line
        for line in program.report().paths
    )


def test_gradients_reach_the_chosen_block_only():
    net, samples = initialized(Experts(list)), drawn(12)
    program = edb.compile_program(net, samples[0])
    gradients = []
    for run in (lambda: program(samples), lambda: [net(sample) for sample in samples]):
        net.collect_params().zero_grad()
        with autograd.record():
            loss = sum(scores.square().sum() for scores, _ in run())
        loss.backward()
        gradients.append([each.grad().asnumpy() for each in net.collect_params().values()])
    for found, expected in zip(*gradients):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def chooses_by_a_sum(net, x):
    place = int(x.sum().asscalar())
    return net.choices[place](x)


def looks_up_by_a_sum(net, x):
    chosen = net.choices[int(x.sum().asscalar())]
    return x if chosen is None else x * 2


@pytest.mark.parametrize('function', [chooses_by_a_sum, looks_up_by_a_sum])
@pytest.mark.parametrize('count', [1, 3])
def test_a_block_that_is_not_there_is_an_index_error(function, count):
    net = Written(function)
    net.choices = [nn.Dense(8, in_units=8) for _ in range(count)]
    for block in net.choices:
        net.register_child(block)
    initialized(net)
    inside = [mx.nd.ones((1, 8)) * total / 8 for total in (0.1, count - 0.9, 0.1 - count)]
    program = assert_is_eager(net, inside)
    for total in (count + 0.1, -count - 1.1):
        outside = mx.nd.ones((1, 8)) * total / 8
        for run in (net, lambda sample: program([sample]), lambda one: program([inside[0], one])):
            with pytest.raises(IndexError, match='list index out of range'):
                run(outside)


def chooses_by_a_float(net, x):
    return [net.dense, net.dense][x.sum().asscalar()](x)


def writes_into_the_model(net, x):
    net.kept.append(x)
    return x


def writes_an_attribute(net, x):
    net.kept = x
    return x


def decides_in_c(net, x):
    return sorted([x.sum().asscalar(), 2.0])


def indexes(net, x):
    return [1, 2, 3][int(x.sum().asscalar())]


def tries(net, x):
    try:
        return x
    except ValueError:
        return -x


def draws(net, x):
    return x * np.random.rand()


def reads_all(net, x):
    return x.asnumpy()


def needs_one(net, x):
    return float(x.asscalar())


def changes_the_sample(net, x):
    x += 1
    return x


def has_a_function(net, x):
    return (lambda y: y)(x)


@pytest.mark.parametrize(
    'function, message',
    [
        (writes_into_the_model, 'return the value'),
        (writes_an_attribute, 'return the value'),
        (decides_in_c, 'sorted'),
        (indexes, 'used as an index'),
        (chooses_by_a_float, 'write int(n)'),
        (tries, 'try'),
        (draws, 'may give something else'),
        (reads_all, 'asnumpy'),
        (needs_one, 'single element'),
        (changes_the_sample, 'in place'),
        (has_a_function, 'lambda'),
    ],
)
def test_what_cannot_be_taken_is_refused(function, message):
    net = initialized(Written(function))
    with pytest.raises(edb.ProgramError) as error:
        edb.compile_program(net, drawn(1)[0])
    line = function.__code__.co_firstlineno
    assert message in str(error.value)
    assert f'{__file__}:' in str(error.value)
    named = int(str(error.value).split(f'{__file__}:')[1].split(':')[0])
    assert line < named <= line + 4
    assert not net.kept


def python_of_integers(net, x):
    n = int((4 * x).sum().asscalar())
    return ~n, n << 2, n >> 1, 3 << abs(n), -100 >> abs(n), n << True


def numbers_with_known_arrays(net, x):
    n = x.sum().asscalar()
    less = n < net.anchor
    return (
        n * net.anchor,
        n - net.anchor,
        n / net.anchor,
        net.anchor * mx.nd.array([n]),
        less,
        n.item(),
    )


@pytest.mark.parametrize('function', [python_of_integers, numbers_with_known_arrays])
def test_operators_of_numbers(function):
    net = initialized(Written(function))
    net.anchor = mx.nd.array([1.0, -2.0, 3.0])
    assert_is_eager(net, drawn(12))


def known_array_first(net, x):
    return net.anchor * x.sum().asscalar()


def known_array_compared(net, x):
    return net.anchor > x.sum().asscalar()


def inverts_a_truth_value(net, x):
    return ~(x.sum().asscalar() > 0)


def inverts_a_float(net, x):
    return ~x.sum().asscalar()


def shifts_a_float(net, x):
    return x.sum().asscalar() << 1


def shifts_back(net, x):
    return int(x.sum().asscalar()) << -1


def asks_for_an_integer(net, x):
    return float(x.sum().asscalar()).is_integer()


def asks_for_bits(net, x):
    return int(x.sum().asscalar()).bit_length()


def has_no_operator(net, x):
    return x.sum().asscalar() @ x


def adds_to_a_text(net, x):
    return 'n' + x.sum().asscalar()


@pytest.mark.parametrize(
    'function, message',
    [
        (known_array_first, r'write n \* array'),
        (known_array_compared, r'write n \* array'),
        (inverts_a_truth_value, 'write not b'),
        (inverts_a_float, r'write ~int\(n\)'),
        (shifts_a_float, r'write int\(n\) << 1'),
        (shifts_back, 'by a negative number'),
        (asks_for_an_integer, 'no is_integer in a program: write n % 1 == 0'),
        (asks_for_bits, 'no bit_length in a program: write it with'),
        (has_no_operator, '@: a number of the sample and an array of the sample'),
        (adds_to_a_text, 'not a number of the sample'),
    ],
)
def test_operators_that_numbers_do_not_have(function, message):
    net = initialized(Written(function))
    net.anchor = mx.nd.array([1.0, 2.0])
    with pytest.raises(edb.ProgramError, match=message) as error:
        edb.compile_program(net, drawn(1)[0])
    line = function.__code__.co_firstlineno + 1
    assert str(error.value).startswith(f'{__file__}:{line}: return ')
    assert 'SampleNumber' not in str(error.value)


def inverts_a_count(net, x):
    ran = 0
    if x.sum().asscalar() > 0:
        ran = 1
    if x.max().asscalar() > 0.9:
        ran = True
    return ~ran, ran.bit_length()


@pytest.mark.filterwarnings("ignore:Bitwise inversion '~' on bool")  # Python 3.12
def test_what_counts_as_a_value_is_known_again_for_what_numbers_do_not_have():
    assert_is_eager(initialized(Written(inverts_a_count)), drawn(12))


def test_samples_that_do_not_fit():
    net = initialized(Exits())
    program = edb.compile_program(net, drawn(1)[0])
    with pytest.raises(edb.ProgramError, match='empty'):
        program([])
    with pytest.raises(edb.ProgramError, match=r'sample 1 has float32\(1, 7\)'):
        program([drawn(1)[0], mx.nd.ones((1, 7))])
    with pytest.raises(edb.ProgramError, match='sample 0 has float64'):
        program([mx.nd.ones((1, 8), dtype='float64')])
    with pytest.raises(edb.ProgramError, match='sample 0 is not like the example'):
        program([(drawn(1)[0], 3)])


def test_not_a_number_does_not_decide():
    program = edb.compile_program(initialized(Exits()), drawn(1)[0])
    with pytest.raises(edb.ProgramError, match='NaN'):
        program([*drawn(3), mx.nd.full((1, 8), np.nan)])


def leaves_early(net, x):
    if x.sum().asscalar() > 0:
        return x
    y = x * 2
    return net.dense(y)


def test_blocks_name_the_lines_on_which_they_begin():
    program = edb.compile_program(initialized(Written(leaves_early)), drawn(1)[0])
    _, taken, other = [line for line in str(program).splitlines() if line.startswith('block')]
    assert taken.endswith(')')  # nothing is left to run
    assert other.endswith(f'test_programs.py:{leaves_early.__code__.co_firstlineno + 3}: y = x * 2')


def never_ends(net, x):
    while x.sum().asscalar() < 1e9:
        x = x * 1
    return x


def test_a_loop_without_an_end():
    net = initialized(Written(never_ends))
    program = edb.compile_program(net, drawn(1)[0], max_steps=100)
    with pytest.raises(edb.StepsError, match='more than 100 blocks'):
        program(drawn(3))


def near(net, x):
    return 1 if x.sum().asscalar() > 2 else 0


def test_what_rounding_may_have_decided_is_counted():
    net = initialized(Written(near))
    program = edb.compile_program(net, drawn(1)[0])
    program([mx.nd.full((1, 8), 0.25 + each) for each in (0.5, 1e-7, -0.5)])
    assert [sample for _, sample in program.report().near] == [1]
    assert 'as good as equal' in str(program.report())


def grows(net, x):
    kept = []
    while x.sum().asscalar() < 5:
        x = x + 1
        kept.append(x)
    return kept


def grows_by_a_count(net, x):
    rows, count = [x], 0
    while True:
        count += 1
        if count > 2 or x.sum().asscalar() > 2:
            break
        if x.max().asscalar() > 0.5:
            rows.append(x)
    return rows


def test_a_count_that_bounds_a_list_is_known():
    program = assert_is_eager(initialized(Written(grows_by_a_count)), drawn(12))
    assert int(str(program).split()[0]) < 20


def counts_one_after_another(net, x):
    few, many, most = 0, 0, 0
    for place in range(6):
        if x[0, place].asscalar() > 0:
            few += 1
        if x[0, place].asscalar() > 0.5:
            many += 2
        if x[0, place].asscalar() > 1:
            most += 3
    return few, many, most


def grows_in_several_places(net, x):
    kept, turns = [0], 0
    best = int(x.argmax(axis=1).asscalar())
    while turns < 4 and x.max().asscalar() > 0.1:
        turns += 1
        x = x - 0.3
        kept.append(turns)
        if best > 2:
            kept.insert(0, best if x.sum().asscalar() < -1 else turns)
        elif x.sum().asscalar() < 0:
            kept.insert(0, best)
        elif x.min().asscalar() < -1:
            kept.insert(0, turns * 3)
    return kept


@pytest.fixture
def runs(monkeypatch):
    """Where each block begins that is run while programs are made."""
    began = []
    monkeypatch.setattr(
        BlockRunner,
        '_run',
        lambda self, at, run=BlockRunner._run: began.append(at) or run(self, at),
    )
    return began


@pytest.mark.parametrize(
    'function, most',
    [(counts_one_after_another, 65), (grows_by_a_count, 110), (grows_in_several_places, 600)],
)
def test_few_blocks_are_run_to_find_out_what_numbers_are(function, most, runs):
    """Not all of them again for each number, nor for each place in which one has to be known."""
    assert_is_eager(initialized(Written(function)), drawn(12))
    assert len(runs) < most


def adds_its_turns(net, x):
    turns = 0
    while x.sum().asscalar() < 9:
        turns += 1
        x = x + mx.nd.array([turns] * 8)
    return x + mx.nd.ones((1, 8)) * 2


def test_constants_are_those_of_blocks_that_are_left():
    program = assert_is_eager(initialized(Written(adds_its_turns)), drawn(12))
    assert [array.tolist() for array in program.inference.graph.constants] == [[[1.0] * 8]]


def test_a_list_that_grows_without_a_bound(monkeypatch):
    monkeypatch.setattr('gluon_edbatch.program.specialise.MOST_BLOCKS', 200)
    with pytest.raises(edb.ProgramError, match='Give it a bound') as error:
        edb.compile_program(initialized(Written(grows)), drawn(1)[0])
    line = grows.__code__.co_firstlineno
    assert str(error.value).startswith(f'{__file__}:')
    assert line < int(str(error.value).split(':')[1]) <= line + 5
