"""What random programs (`tests/fuzz/walk_programs.py`) have found: as few lines as showed it."""

import functools
import math
from collections import defaultdict

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.program import specialise
from gluon_edbatch.program.optimise import PASSES
from tests.fuzz.programs.case import same


class Written(gluon.Block):
    """One function, with what it may call."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.anchor = mx.nd.ones((1, 4))
        with self.name_scope():
            self.dense = gluon.nn.Dense(4, in_units=4)

    def forward(self, x):
        return self.function(self, x)

    def parted(self, x):
        """A network in which samples take two branches."""
        if x.sum() > 0:
            return x - 4
        return x + 1


def assert_is_eager(function, without=()):
    """Compare a program with eager Gluon on samples that take different branches."""
    net = Written(function)
    net.initialize()
    samples = [mx.nd.array(np.random.RandomState(seed).randn(1, 4)) for seed in range(6)]
    expected = [net(sample) for sample in samples]
    program = edb.compile_program(net, samples[0], without=without)
    for results in (program(samples), [program([sample])[0] for sample in samples]):
        for number, pair in enumerate(zip(expected, results)):
            same(f'sample {number}', *pair)


def appends_what_a_call_gives(net, x):
    rows = []
    rows.append(net.parted(x))
    return rows, [net.parted(each) for each in (x, x + 1)], x.clip(net.parted(x).size * 0, 1)


def test_a_method_of_a_list_is_that_of_the_list_when_its_arguments_are_there():
    assert_is_eager(appends_what_a_call_gives)


def changes_a_constant_on_one_way(net, x):
    y = mx.nd.zeros((1, 4))
    if x.sum() > 0:
        y += 1
    return y


def adds_up_in_a_constant(net, x):
    y, z = mx.nd.zeros((1, 4)), mx.nd.array([[1, 2, 3, 4]])
    for _ in range(2):
        y += net.dense(x)
        z *= x.sum().asscalar()
    return y, z, mx.nd.ones((1, 4)) * x.sum().asscalar()


def changes_an_array_of_numpy_on_one_way(net, x):
    counts = np.zeros(2)
    same = counts
    if x.sum() > 0:
        counts[0] += 1
    counts += 1
    return float(counts[0]), float(same[1])


@pytest.mark.parametrize(
    'function',
    [
        changes_a_constant_on_one_way,
        adds_up_in_a_constant,
        changes_an_array_of_numpy_on_one_way,
    ],
)
def test_what_is_changed_on_one_way_is_not_on_another(function):
    assert_is_eager(function)


def changes_an_array_of_the_model(net, x):
    y = net.anchor
    y += 1
    return y + x


def test_an_array_of_the_model_is_not_changed():
    net = Written(changes_an_array_of_the_model)
    with pytest.raises(edb.ProgramError, match='not of this call'):
        edb.compile_program(net, mx.nd.zeros((1, 4)))
    assert (net.anchor == 1).min().asscalar()


def computes_with_constants(net, x):
    return mx.nd.tanh(net.anchor), net.anchor.tanh() + x, net.anchor.broadcast_like(x)


def test_operators_on_what_is_known():
    assert_is_eager(computes_with_constants)


def draws_with_an_operator(net, x):
    return x + mx.nd.random_uniform(shape=(1, 4))


def test_noise_is_no_constant():
    with pytest.raises(edb.ProgramError, match='each time'):
        edb.compile_program(Written(draws_with_an_operator), mx.nd.zeros((1, 4)))


def appends_in_a_loop(net, x):
    rows = [x]
    for row in rows:
        if len(rows) < 4 and row.sum() > -5:
            rows.append(row + 1)
    return rows


def test_a_loop_goes_on_with_what_is_appended():
    assert_is_eager(appends_in_a_loop)


def computes_with_numbers(net, x):
    n, m = int(x.argmax(axis=1).asscalar()), float(x.sum().asscalar())
    return (n + 1) ** -2, divmod(m, 0.7), abs(n), mx.nd.full((1, 4), m), (m > 0) * 2.5


def asks_of_several(net, x):
    n = x.sum().asscalar()
    return any([n > 1, x.max() > 1.5]), all(each > 0 for each in (n, 2)), any([n > 1, True])


@pytest.mark.parametrize('function', [computes_with_numbers, asks_of_several])
def test_numbers(function):
    assert_is_eager(function)


def asks_for_a_class(net, x):
    return 1 if isinstance(int(x.argmax(axis=1).asscalar()), int) else 2


def asks_for_a_type(net, x):
    return 1 if type(x.sum().asscalar()) is float else 2


def adds_truth_values(net, x):
    return (x.sum().asscalar() > 0) + (x.max().asscalar() > 1)


@pytest.mark.parametrize('function', [asks_for_a_class, asks_for_a_type, adds_truth_values])
def test_what_numpy_and_python_do_differently_is_refused(function):
    with pytest.raises(edb.ProgramError, match='something else|int.a. . int.b.'):
        edb.compile_program(Written(function), mx.nd.zeros((1, 4)))


def takes_a_power(net, x):
    n = int(x.sum().asscalar())
    return 2**n


def takes_a_root(net, x):
    return math.sqrt(x.sum().asscalar())


def multiplies(net, x):
    n = int(x.sum().asscalar())
    for _ in range(7):
        n = n * n
    return n


@pytest.mark.parametrize(
    'function, element, message',
    [
        (takes_a_power, -1.0, 'negative'),
        (takes_a_root, -1.0, 'sqrt'),
        (multiplies, 4.0, '64 bits'),
    ],
)
def test_numbers_that_are_none_here(function, element, message):
    program = edb.compile_program(Written(function), mx.nd.zeros((1, 4)))
    with pytest.raises(edb.ProgramError, match=message):
        program([mx.nd.full((1, 4), element)])


def is_one_of(net, x):
    n, rows = int(x.argmax(axis=1).asscalar()), {'a': x}
    return (
        n in (1, 2),
        n not in [0, n + 1, None],
        'a' in rows,
        3 in [n, 4],
        not (n in (1, 5) or n == 2),
    )


def test_a_number_that_is_one_of_several():
    assert_is_eager(is_one_of)


def keeps_an_iterator(net, x):
    pairs = zip([1, 2], [3, 4])
    if x.sum() > 0:
        x = x + 1
    return x, [one + other for one, other in pairs]


def keeps_a_view(net, x):
    rows = {'a': x}
    items = rows.items()
    if x.sum() > 0:
        rows['b'] = x
    return [key for key, _ in items]


@pytest.mark.parametrize('function', [keeps_an_iterator, keeps_a_view])
def test_what_one_way_would_use_up_is_refused(function):
    with pytest.raises(edb.ProgramError, match='make a list'):
        edb.compile_program(Written(function), mx.nd.zeros((1, 4)))


def doubled(function):
    @functools.wraps(function)
    def twice(*arguments, **keywords):
        return function(*arguments, **keywords) * 2

    return twice


@doubled
def turned(x):
    return x if x.sum() > 0 else -x


def calls_what_is_wrapped(net, x):
    return turned(x)


def test_what_wraps_a_function_is_called():
    assert_is_eager(calls_what_is_wrapped)


def has_a_dict_with_defaults(net, x):
    found = defaultdict(list)
    found['a'].append(x)
    if x.sum() > 0:
        found['b'].append(x + 1)
    return list(found), found['a'], found['b']


def test_a_dict_with_defaults_has_them_behind_a_branch():
    assert_is_eager(has_a_dict_with_defaults)


def reads_a_parameter(net, x):
    return mx.nd.dot(x, net.dense.weight.data())


def test_a_parameter_is_no_constant():
    net = Written(reads_a_parameter)
    net.initialize()
    with pytest.raises(edb.ProgramError, match='HybridBlock'):
        edb.compile_program(net, mx.nd.zeros((1, 4)))


def sorts(net, x):
    return x.sort(), x.sort(is_ascend=False) if x.sum() > 0 else x


def test_operators_that_do_harm_in_graphs_are_others():
    assert_is_eager(sorts)


def goes_on_for_ever(x):
    return x if x.sum() > 5 else goes_on_for_ever(x + 1)


def calls_what_goes_on_for_ever(net, x):
    return goes_on_for_ever(x)


def test_recursion_that_only_values_end_is_refused_soon():
    with pytest.raises(edb.ProgramError, match='batching'):
        edb.compile_program(Written(calls_what_goes_on_for_ever), mx.nd.zeros((1, 4)))


def appends_for_ever(net, x):
    rows = []
    while x.sum() < 100:
        rows.append(x)
        x = x + 1
    return rows


def test_a_list_that_grows_for_ever_is_refused_soon(monkeypatch):
    assert specialise.MOST_VALUES == 500_000  # ten seconds
    monkeypatch.setattr(specialise, 'MOST_VALUES', 10_000)
    with pytest.raises(edb.ProgramError, match='a list that grows'):
        edb.compile_program(Written(appends_for_ever), mx.nd.zeros((1, 4)))


def scales_by_its_turns(net, x):
    y = x
    for each in (x, y):
        turns = 0
        while turns < 2 and y.sum() > -3:
            turns += 1
            x = each + y
            for more in (x, y):
                y = (more * turns).tanh()
                x = x * 2 if y.sum() > 0.1 else x * 3
    return x, y


def test_a_number_that_passes_find_constant_is_given_to_operators_as_one():
    assert_is_eager(scales_by_its_turns)
    for each in PASSES:
        assert_is_eager(scales_by_its_turns, without=[each])


def next_of(found):
    found[0] = found[0] + 10
    return found[0]


def writes_what_it_adds_to(net, x):
    rows = [1, 2]
    k = 2
    k += (k := 5)
    rows[0] += next_of(rows)
    y = x * 1
    y += net.parted(y)
    return k, rows, y


def test_what_is_added_to_is_read_before_what_is_added():
    assert_is_eager(writes_what_it_adds_to)


def is_the_larger_of_two_constants(net, x):
    low = 0.1
    for each in (x, x + 1):
        if each.sum() > 0:
            low = max(low, 0.3) + min(2, low)
    return x * low, max(low, 1)


def test_the_larger_of_two_constants_is_a_number():
    assert_is_eager(is_the_larger_of_two_constants)
