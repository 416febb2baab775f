"""A program with one sample: the same numbers, errors and counts as with many, and nobody's memory
but the caller's."""

from unittest import mock

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.program.optimise import PASSES

NAN, ZERO = float('nan'), 0.0


class Written(gluon.Block):
    """A net whose forward is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def numbers(x):
    """All operators, of numbers that are small, large, negative, whole and not."""
    a, b = float(x[0].asscalar()), float(x[1].asscalar())
    n, m = int(a), int(b)
    flag = a > b
    made = [a + b, a - b, a * b, -a, abs(b), n + m, n - m, n * m, max(a, b), min(n, 3), flag + 1]
    made += [a < b, a <= b, a > b, a >= b, a == b, a != b, n == m, not flag, round(b), n + a]
    if b != 0:
        made += [a / b, a // b, a % b]
    if m > 0:
        made += [n // m, n % m, n**m, a**m]
    return made


def divides(x):
    return 1 / float(x[0].asscalar())


def compares(x):
    return 1 if float(x[0].asscalar()) > 0.5 else 2


def multiplies(x):
    n = int(x[0].asscalar())
    return n * n * n * n


def counts_down(x):
    n = float(x[0].asscalar())
    while n > 0:
        n -= 1
    return n


def compiled(function, **options):
    return edb.compile_program(Written(function), mx.nd.ones((2,)), **options)


def row(*values):
    return mx.nd.array(values)


DRAWN = [
    row(*each) for each in [(0.5, 0.25), (3, 2), (-7.5, 2.5), (4, -3), (0, 0), (1e9, 1), (2, 2)]
]


def test_numbers_are_those_of_many_samples():
    program = compiled(numbers)
    for sample, together in zip(DRAWN, program(DRAWN)):
        alone, eager = program([sample])[0], numbers(sample)
        assert [type(each) for each in alone] == [type(each) for each in eager]
        assert alone == together == eager


@pytest.mark.parametrize(
    'function, sample, message',
    [
        (divides, row(ZERO, 1), 'divided by zero'),
        (compares, row(NAN, 1), 'NaN'),
        (multiplies, row(1e6, 1), '64 bits'),
    ],
)
def test_errors_are_those_of_many_samples(function, sample, message):
    program = compiled(function)
    for samples in ([sample], [sample, row(1, 1)]):
        with pytest.raises(edb.ProgramError, match=message):
            program(samples)
    assert program([row(2, 1)]) == [function(row(2, 1))]


def test_steps_end():
    program = compiled(counts_down, max_steps=50)
    assert program([row(20, 0)]) == [0.0]
    with pytest.raises(edb.StepsError, match='more than 50 blocks'):
        program([row(1e6, 0)])


def test_counts_are_those_of_many_samples():
    together, alone = compiled(compares), compiled(compares)
    samples = [row(0.5, 1), row(0.9, 1), row(0.1, 1), row(0.500001, 1)]
    together(samples)
    for sample in samples:
        alone([sample])
    one, other = together.report(), alone.report()
    assert other.samples == one.samples == 4 and other.paths == one.paths
    assert [line for line, _ in other.near] == [line for line, _ in one.near] and len(one.near) == 2


class Layers(gluon.Block):
    """Layers until a row is large enough."""

    def __init__(self):
        super().__init__()
        self.dense = gluon.nn.Dense(2, in_units=2)

    def forward(self, x):
        x = x.reshape((1, 2))
        made = [self.dense(x)]
        if made[0].sum() > 0:
            made.append(self.dense(made[0]).tanh())
        return made + [mx.nd.ones((1, 2))]


def layers():
    mx.random.seed(3)
    net = Layers()
    net.initialize(mx.init.Normal(0.7))
    return net, edb.compile_program(net, mx.nd.ones((2,)))


def values(result):
    return [each.asnumpy().tolist() for each in result]


def test_results_are_the_callers():
    """Later runs use the same memory between, and results may be written into."""
    net, program = layers()
    results = [program([sample])[0] for sample in DRAWN]
    expected = [values(net(sample)) for sample in DRAWN]
    for result, each in zip(results, expected):
        for found, wanted in zip(values(result), each):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        for array in result:
            array[:] = 100
    for found, wanted in zip(values(program([DRAWN[0]])[0]), expected[0]):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_parameters_are_read_at_each_call():
    net, program = layers()
    program([DRAWN[0]])
    for write in (
        lambda: net.dense.weight.set_data(mx.nd.array([[1, 2], [3, 4]])),
        lambda: net.dense.bias.data().__iadd__(1),
        lambda: net.initialize(mx.init.Normal(0.3), force_reinit=True),
    ):
        write()
        for found, wanted in zip(values(program([DRAWN[1]])[0]), values(net(DRAWN[1]))):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_of_several_calls_before_one_backward():
    net, program = layers()

    def gradients(run):
        with autograd.record():
            rows = [run(sample) for sample in DRAWN[:3]]
            loss = sum([array.sum() for result in rows for array in result[:2]])
        loss.backward()
        return net.dense.weight.grad().asnumpy()

    program([DRAWN[0]])  # not recorded
    expected = gradients(net)
    np.testing.assert_allclose(gradients(lambda each: program([each])[0]), expected, rtol=1e-5)


def says(x):
    """The place of the largest element, by its row."""
    return int(x.reshape((1, -1)).argmax(axis=1).asscalar())


class Best(gluon.HybridBlock):
    """What `says` does, in a static network: behind what it computes, of what it is given, of what
    it gives as well, or of the smallest element."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def hybrid_forward(self, F, x):
        """Elements to the scores that are given, their best one, and those scores."""
        scores = F.reshape(x, shape=(1, -1))
        if self.how == 'behind others':
            return F.cast(F.argmax(F.log_softmax(scores * 2 + 1), axis=1), 'int32'), x
        if self.how == 'of the smallest':
            return F.argmin(-scores, axis=1).expand_dims(0), x
        if self.how == 'of two':
            return F.argmax(scores, axis=1), scores
        return F.argmax(x, axis=0), x


class Asks(gluon.Block):
    """A network that returns a static network's answer as an integer."""

    def __init__(self, how):
        super().__init__()
        self.best = Best(how)

    def forward(self, x):
        return int(self.best(x)[0].asscalar())


def says_of_the_smallest(x):
    """Say which element is the smallest, by an operator for the smallest."""
    return int((-x).argmin(axis=0).asscalar())


IN_NETWORKS = ['behind others', 'of the smallest', 'of two', 'of its input']
SAY = [Written(says), Written(says_of_the_smallest), *map(Asks, IN_NETWORKS)]


@pytest.mark.parametrize('without', [(), tuple(PASSES)])
@pytest.mark.parametrize('net', SAY, ids=['in Python', 'smallest in Python', *IN_NETWORKS])
def test_rivals_of_the_largest_element_are_counted(net, without):
    samples = [row(1, 2), row(2, 2), row(2, 2 + 1e-6), row(-1, -3), row(NAN, 1)]
    program = edb.compile_program(net, samples[0], without=without)
    assert program(samples[:4]) == [net(sample) for sample in samples[:4]]
    assert program.report().near == [(mock.ANY, 1), (mock.ANY, 2)]
    ((line, _), *_) = program.report().near
    assert 'test_programs_alone.py' in line and 'asscalar()' in line
    for number, sample in enumerate(samples):
        program = edb.compile_program(net, samples[0], without=without)
        assert program([sample]) == [net(sample)]
        assert len(program.report().near) == (number in (1, 2))


class Compares(gluon.HybridBlock):
    """Whether a number is larger than another one, or than what the sample has."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def hybrid_forward(self, F, x):
        """Two elements to 0 or 1."""
        first, second = F.split(x, num_outputs=2, axis=0)
        other = second * 2 if self.other is None else self.other
        return (first.tanh() * 4 < other).astype('int32')


def decides(x):
    """By an array that was compared with a number."""
    return 1 if x[0] * 2 > 1 else 2


def decides_between(x):
    """By an array that was compared with another one."""
    return 1 if x[0] * 2 >= x[1] else 2


def decides_by_integers(x):
    """Branch on integers, which are not rounded."""
    return 1 if x[0].astype('int32') > 1 else 2


class Decides(gluon.Block):
    """By what a static network has compared."""

    def __init__(self, other):
        super().__init__()
        self.compares = Compares(other)

    def forward(self, x):
        if self.compares(x):
            return 1
        return 2


TANH = float(np.arctanh(0.5))


@pytest.mark.parametrize(
    'net, rows, near',
    [
        (Written(decides), [(0.5, 0), (0.5 + 1e-6, 0), (0.6, 0), (0.4, 0)], [0, 1]),
        (Written(decides_between), [(1, 2), (1 + 1e-6, 2), (1, 2.1)], [0, 1]),
        (Written(decides_by_integers), [(1, 0), (2, 0)], []),
        (Decides(2), [(TANH, 0), (0.5, 0), (0.6, 9)], [0]),
        (Decides(None), [(TANH, 1), (0.5, 1), (TANH, 2)], [0]),
    ],
)
def test_arrays_that_were_compared_are_counted_where_they_are_near(net, rows, near):
    samples = [row(*each) for each in rows]
    program = edb.compile_program(net, samples[0])
    assert program(samples) == [net(sample) for sample in samples]
    assert [sample for _, sample in program.report().near] == near
    assert [each.batched for each in program.inference.graph.networks] == [True]
    for number, sample in enumerate(samples):
        program = edb.compile_program(net, sample)
        program([sample])
        assert len(program.report().near) == (number in near)


@pytest.mark.parametrize('net', SAY)
def test_networks_still_take_several_samples_where_rivals_are_looked_at(net):
    program = edb.compile_program(net, row(1, 2))
    assert [each.batched for each in program.inference.graph.networks] == [True]


def test_rivals_are_counted_after_loading(tmp_path):
    edb.export(compiled(says), tmp_path / 'bundle')
    program = edb.load_program(tmp_path / 'bundle')
    assert program([row(1, 1), row(1, 2)]) == [0, 1] and len(program.report().near) == 1
