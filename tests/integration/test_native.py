"""Native operators: the same results and gradients as eager Gluon, and optional."""

import contextlib

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute import execution_state
from gluon_edbatch.execute.executable import executable
from gluon_edbatch.execute.gradients import Gradients, InputGradients
from gluon_edbatch.execute.native import library, native_run
from gluon_edbatch.execute.native.library import gather
from gluon_edbatch.execute.native.native_program import native_program
from gluon_edbatch.execute.steps import steps
from gluon_edbatch.ops.instructions import Opcode, Place
from gluon_edbatch.subgraph.node_type import NodeType
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch_core.native import compiler, executor_library
from tests.support.cases import in_one_test
from tests.support.models import Tree, TreeLSTM, random_trees, started
from tests.support.processes import ROOT, run_python
from tests.support.random_blocks import SHAPES, H, blocks
from tests.support.tiers import sampled

needs_native = pytest.mark.skipif(not edb.native_available(), reason='no native operators')
pytestmark = needs_native
F = mx.sym


@pytest.fixture
def types(monkeypatch):
    """The types that are made in a test."""
    made = []
    original = NodeType.__init__

    def noted(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(NodeType, '__init__', noted)
    return made


def block_of(symbol):
    """A block that computes a Symbol of `random_blocks`."""
    names = [name for name in symbol.list_inputs() if name in SHAPES]
    block = started(gluon.SymbolBlock(symbol, [F.var(name) for name in names]))
    return block, names


def arrays(shape, count, seed=0, dtype='float32'):
    """NDArrays that want gradients."""
    random = np.random.RandomState(seed)
    made = [mx.nd.array(random.uniform(-1, 1, shape), dtype=dtype) for _ in range(count)]
    for array in made:
        array.attach_grad()
    return made


def read_by(block):
    """A function that calls a block, and makes NumPy arrays new NDArrays, on no tape."""
    return lambda *args: block(
        *[mx.nd.array(each) if isinstance(each, np.ndarray) else each for each in args]
    )


@pytest.mark.filterwarnings('ignore:Cannot decide type')
@settings(max_examples=60)
@given(symbol=blocks(14), rows=st.integers(1, 3), data=st.sets(st.integers(0, 3)))
def test_random_blocks(symbol, rows, data):
    """Rows of one and two axes; some operators have no rule, and then run as before. Some arguments
    are data, which want no gradients."""
    block, names = block_of(symbol)
    if not names:
        return
    made = [arrays((rows,) + SHAPES[name][1:], 4, seed) for seed, name in enumerate(names)]
    for place in data.intersection(range(len(made))):
        made[place] = [array.asnumpy() for array in made[place]]
    samples, model = list(zip(*made)), read_by(block)
    options = {'hybridized': [False], 'rtol': 3e-5, 'schedulers': ['agenda']}
    assert_matches_eager(model, samples, blocks=[block], unpack=True, **options)


@pytest.mark.filterwarnings('ignore:Cannot decide type')
@settings(max_examples=60)
@given(symbol=blocks(14, ragged=True), lengths=st.lists(st.integers(0, 5), min_size=2, max_size=5))
def test_random_blocks_with_ragged_arguments(symbol, lengths):
    """Any number of values for each row, none included."""
    block, names = block_of(symbol)
    others = [name for name in names if name != 'edb_input2']
    values = [arrays((1, H), length, seed) for seed, length in enumerate(lengths)]
    samples = [
        ([x] * len(others), list(ragged))
        for x, ragged in zip(arrays((1, H), len(lengths), 7), values)
    ]

    def model(rest, ragged):
        rest = iter(rest)
        together = edb.ragged(ragged, (1, H), 'float32', mx.cpu())
        return block(*[together if name == 'edb_input2' else next(rest) for name in names])

    try:
        model(*samples[0])
    except mx.MXNetError as error:  # of a pass of MXNet over sums of three, rarely
        assert 'node2index_' in str(error), error
        return
    assert_matches_eager(
        model,
        samples,
        unpack=True,
        blocks=[block],
        hybridized=[False],
        rtol=3e-5,
        schedulers=['agenda'],
    )


class Gates(gluon.HybridBlock):
    """Everything that the rules of lowering tell apart, in one cell."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self._width = width
        with self.name_scope():
            self.own = nn.Dense(3 * width, in_units=width)
            self.other = nn.Dense(3 * width, in_units=width, use_bias=False)
            self.last = nn.Dense(width, in_units=2 * width, activation='tanh')
            self.scale = self.params.get('scale', shape=(1, width), init=mx.init.Normal(1))

    def hybrid_forward(self, F, x, h, scale):
        own = self.own(x) + self.other(h)
        gate, new, kept = F.split(own, num_outputs=3, axis=1)
        gate = F.sigmoid(gate)
        mixed = F.broadcast_mul(gate * F.tanh(new) + (1 - gate) * h, scale)
        out = self.last(F.concat(mixed, F.relu(kept), dim=1))
        return out, F.log_softmax(mixed), F.sum(F.abs(kept), axis=1, keepdims=True)


@pytest.mark.parametrize('dtype, width', sampled(2, ['float32', 'float64'], [2, 7, 16, 33, 150]))
def test_cell_of_any_width(types, dtype, width):
    """Chains in batches of more and fewer rows than a tile and a block have."""
    cell = Gates(width)
    cell.initialize(mx.init.Normal(width**-0.5))
    cell.cast(dtype)

    def chain(x, length):
        h = x
        results = []
        for _ in range(length):
            h, scores, total = cell(x, h)
            results += [scores, total]
        return results

    samples = list(zip(arrays((1, width), 40, dtype=dtype), [1 + i % 4 for i in range(40)]))
    assert_matches_eager(
        chain,
        samples,
        unpack=True,
        blocks=[cell],
        hybridized=[False],
        schedulers=['agenda'],
        rtol=1e-10 if dtype == 'float64' else 3e-5,
    )
    assert any(executable(kind).native is not None for kind in types)


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_products_of_any_number_of_rows(types, dtype):
    """Tiles of every height, and of half a vector's to several panels' width."""
    for inputs, units in (3, 5), (40, 20), (17, 90):
        layer = started(nn.Dense(units, in_units=inputs))
        layer.cast(dtype)
        data = arrays((1, inputs), 60, dtype=dtype)
        for rows in list(range(1, 14)) + [20, 33, 57]:
            assert_matches_eager(
                lambda x: layer(x),
                data[:rows],
                blocks=[layer],
                hybridized=[False],
                schedulers=['agenda'],
                rtol=1e-10 if dtype == 'float64' else 3e-5,
            )
    assert all(executable(kind).native is not None for kind in types)


def test_many_rows_and_wide_fans(types):
    """Blocks of rows end where a row has more values than a block has rows."""
    cell = started(edb.rnn.ChildSumTreeLSTMCell(5, 4))
    leaf = [arrays((1, 4), 300, seed=1), arrays((1, 4), 300, seed=2)]

    def model(x, many):
        children = [cell(child, []) for child in many]
        return cell(x, children)

    samples = [
        (leaf[0][0], leaf[1][:250]),
        (leaf[0][1], []),
        (leaf[0][2], leaf[1][250:]),
        *[(x, leaf[1][i : i + 1]) for i, x in enumerate(leaf[0][3:200])],
    ]
    assert_matches_eager(
        model,
        samples,
        unpack=True,
        blocks=[cell],
        hybridized=[False],
        schedulers=['agenda'],
        rtol=3e-5,
    )
    assert any(executable(kind).native is not None and kind.ragged for kind in types)


def test_attention_over_ragged_values(types):
    """A softmax along the ragged axis, over as many values as there are."""

    class Attention(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.score = nn.Dense(1, in_units=4, flatten=False, use_bias=False)

        def hybrid_forward(self, F, length, values):
            scores = F.SequenceMask(
                self.score(values), length, axis=1, value=-1e9, use_sequence_length=True
            )
            return F.sum(F.broadcast_mul(F.softmax(scores, axis=1), values), axis=1)

    block = started(Attention())
    samples = [arrays((1, 4), k, seed=k) for k in (1, 3, 2, 5)]

    def model(values):
        values = edb.ragged(values)
        return block(values.lengths, values)

    assert_matches_eager(model, samples, blocks=[block], hybridized=[False], schedulers=['agenda'])
    assert any(executable(kind).native is not None and kind.ragged for kind in types), [
        executable(kind).not_native for kind in types
    ]


class OfPieces(gluon.HybridBlock):
    """Products of what would lie side by side line by line, in all the ways that they are told
    apart by; one layer's weight is read whole as well."""

    def __init__(self, widths, bias):
        super().__init__()
        width = sum(widths)
        self._ends = np.cumsum(widths).tolist()
        with self.name_scope():
            self.first = nn.Dense(18, in_units=width, flatten=False, use_bias=bias)
            self.second = nn.Dense(width, in_units=18, flatten=False)
            self.third = nn.Dense(18, in_units=width, flatten=False, use_bias=bias)

    def hybrid_forward(self, F, a, b, whole):
        def joined(*pieces):
            return F.concat(*pieces, dim=2)

        one = F.tanh(self.first(joined(a, b)))
        other = self.first(whole) + self.third(joined(b, a))  # a sum of products
        third = F.slice_axis(self.second(one), axis=2, begin=0, end=self._ends[0])
        return one * other + self.third(joined(third, b)), joined(a, b)


@in_one_test('dtype', ['float32', 'float64'])
@in_one_test('bias', [True, False])
@in_one_test('widths', [(9, 25), (16, 8), (8, 3)])
def test_products_of_pieces_side_by_side(types, widths, bias, dtype):
    """Each product takes some columns of a weight, unless they are narrow."""
    net = started(OfPieces(widths, bias))
    net.cast(dtype)
    shapes = [(1, 5, widths[0]), (1, 5, widths[1]), (1, 5, sum(widths))]
    samples = list(zip(*[arrays(shape, 7, seed, dtype) for seed, shape in enumerate(shapes)]))
    assert_matches_eager(
        net,
        samples,
        unpack=True,
        hybridized=[False],
        schedulers=['agenda'],
        rtol=1e-10 if dtype == 'float64' else 3e-5,
    )
    native = [native_program(kind) for kind in types]
    products = [
        instruction.numbers[3:]
        for each in native
        if each
        for instruction in each.program.instructions
        if instruction.op is Opcode.PRODUCT
    ]
    assert products and ((sum(widths),) in products) == (min(widths) >= 8)


def test_products_of_a_part_of_a_weight_and_of_all_of_it(types):
    """One product uses the first rows of a weight, another one all rows."""

    class Parts(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get('weight', shape=(70, 6), init=mx.init.Normal())

        def hybrid_forward(self, F, x, weight):
            part = F.slice_axis(weight, axis=0, begin=0, end=6)
            first = F.FullyConnected(x, part, no_bias=True, num_hidden=6)
            return F.FullyConnected(F.tanh(first), weight, no_bias=True, num_hidden=70)

    block = started(Parts())
    assert_matches_eager(
        block, arrays((1, 6), 9), blocks=[block], hybridized=[False], schedulers=['agenda']
    )
    assert any(map(native_program, types))


@pytest.mark.parametrize('dot', [True, False])
def test_products_with_columns_of_a_weight(types, dot):
    """Each with some, by lines that are as long as all of it; and with some of its first lines."""

    class Columns(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get('weight', shape=(18, 40), init=mx.init.Normal())

        def hybrid_forward(self, F, x, weight):
            def product(x, weight, count):
                if dot:
                    return F.dot(x, weight, transpose_b=True)
                return F.FullyConnected(x, weight, no_bias=True, num_hidden=count)

            first = F.slice_axis(weight, axis=1, begin=0, end=20)
            second = F.slice_axis(weight, axis=1, begin=20, end=None)
            lines = F.slice_axis(weight, axis=0, begin=0, end=5)
            both = product(x, first, 18), product(x, second, 18)
            return both[0] * F.tanh(both[1]), product(F.concat(x, x, dim=1), lines, 5)

    block = started(Columns())
    assert_matches_eager(
        block, arrays((1, 20), 9), blocks=[block], hybridized=[False], schedulers=['agenda']
    )
    assert all(map(native_program, types)), [executable(kind).not_native for kind in types]


def test_columns_of_a_parameter_are_read_by_products_alone(types):
    """Whatever else reads them is right, and not native."""

    class Sum(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get('weight', shape=(6, 8), init=mx.init.Normal())

        def hybrid_forward(self, F, x, weight):
            part = F.slice_axis(weight, axis=1, begin=2, end=6)
            lines = F.slice_axis(part, axis=0, begin=1, end=2)
            return F.broadcast_add(x, lines)

    block = started(Sum())
    assert_matches_eager(
        block, arrays((1, 4), 5), blocks=[block], hybridized=[False], schedulers=['agenda']
    )


def test_products_of_pieces_of_ragged_values(types):
    """Each value's pieces, and each value's sum of them."""

    class Scores(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.score = nn.Dense(4, in_units=20, flatten=False)

        def hybrid_forward(self, F, query, keys):
            queries = F.broadcast_like(
                F.expand_dims(query, axis=1), keys, lhs_axes=(1,), rhs_axes=(1,)
            )
            return F.sum(F.tanh(self.score(F.concat(queries, keys, dim=2))), axis=1)

    block = started(Scores())
    samples = [(*arrays((1, 8), 1), arrays((1, 12), k, seed=k)) for k in (1, 3, 2, 5)]

    def model(query, keys):
        return block(query, edb.ragged(keys))

    assert_matches_eager(
        model, samples, unpack=True, blocks=[block], hybridized=[False], schedulers=['agenda']
    )


def test_parameters_that_are_read_by_every_row(types):
    """Each row has a copy of them, which holds the values after an update."""

    class Scaled(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                for name in 'scale', 'shift', 'joined':
                    setattr(self, name, self.params.get(name, shape=(1, 6), init=mx.init.Normal()))

        def hybrid_forward(self, F, x, scale, shift, joined):
            y = F.broadcast_add(F.broadcast_mul(x, scale), shift)
            return F.concat(y, F.broadcast_mul(F.ones_like(x), joined), F.tanh(y), dim=1)

    block = started(Scaled())
    trainer = gluon.Trainer(block.collect_params(), 'sgd', {'learning_rate': 0.5})
    samples = arrays((1, 6), 33)
    for _ in range(2):
        assert_matches_eager(
            block, samples, blocks=[block], hybridized=[False], schedulers=['agenda']
        )
        with autograd.record():
            with edb.batching():
                values = [block(x) for x in samples]
            loss = edb.concat(values).square().sum()
        loss.backward()
        trainer.step(1)
    operations = [
        instruction.op
        for kind in types
        if native_program(kind)
        for instruction in native_program(kind).program.instructions
    ]
    assert Opcode.PARAMETER_ROW in operations


def test_what_has_no_rule_says_so(types):
    """And runs as a compiled call among native ones."""
    first, last = started(nn.Dense(3, in_units=4)), started(nn.Dense(2, in_units=3))
    samples = arrays((1, 4), 5)
    assert_matches_eager(
        lambda x: last(mx.nd.sort(first(x), axis=1)),
        samples,
        blocks=[first, last],
        hybridized=[False],
        schedulers=['agenda'],
    )
    reasons = {executable(kind).not_native for kind in types if executable(kind).not_native}
    assert any('sort' in reason for reason in reasons)
    assert any(native_program(kind) is not None for kind in types)


class Shared(gluon.HybridBlock):
    """One product alone, beside another with the same input, and in a way that has no rule."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.one = nn.Dense(4, in_units=4)
            self.other = nn.Dense(4, in_units=4)

    def hybrid_forward(self, F, x, how):
        if how == 'alone':
            return F.tanh(self.one(x))
        return F.sort(self.one(x), axis=1) if how == 'sorted' else self.one(x) * self.other(x)


@pytest.mark.parametrize('req', ['write', 'add'])
@pytest.mark.parametrize('ways', ['beside alone', 'sorted beside', 'alone sorted beside alone'])
def test_a_parameter_gets_all_that_is_added_to_it_in_whichever_way(ways, req, types):
    """By its own array, by a part of a pack's, and by what MXNet's operators add."""
    net = started(Shared())
    net.collect_params().setattr('grad_req', req)

    def model(x):
        for how in ways.split():
            x = net(x, how)
        return x.sum(axis=1)

    def gradients(scope):
        net.collect_params().zero_grad()
        for _ in range(2):
            with autograd.record():
                with scope():
                    values = [model(x) for x in arrays((1, 4), 5)]
                loss = edb.concat(values).square().sum()
            loss.backward()
        return [each.grad().asnumpy() for each in net.collect_params().values()]

    for found, expected in zip(gradients(edb.batching), gradients(contextlib.nullcontext)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    native = [native_program(kind) for kind in types]
    assert any(native) and all(native) == ('sorted' not in ways)
    assert any(each.program.packs for each in native if each)


def test_gradients_that_nobody_asks_for_are_left_out(monkeypatch):
    """`autograd.grad` asks for the gradients of its variables only."""
    net = started(Shared())
    wanted = net.one.weight.data()
    call, runs = native_run.run_native, []

    def watched(function, words, handles):
        if function == library.address('edb_push_backward'):
            gradients = zip(handles[3 - len(words) :], words[3:])
            runs.append(
                [None if handle is None else bool(written) for handle, written in gradients]
            )
        return call(function, words, handles)

    def gradient(scope):
        with autograd.record():
            with scope():
                values = [net(net(x, 'beside'), 'alone') for x in arrays((1, 4), 5)]
            loss = edb.concat(values).square().sum()
        return autograd.grad(loss, [wanted])[0].asnumpy()

    expected = gradient(contextlib.nullcontext)
    monkeypatch.setattr(native_run, 'run_native', watched)
    np.testing.assert_allclose(gradient(edb.batching), expected, rtol=1e-5, atol=1e-6)
    # Of the arena's gradient, and of the weights': what is wanted is in two types.
    assert runs == [[False, True, None, None, None, False, None]]


@pytest.mark.parametrize('request_, result', [(0, [3, 3]), (1, [2, 4]), (2, [2, 4]), (3, [5, 7])])
def test_gradients_come_as_mxnet_wants_them(request_, result):
    """By its codes, what is delivered once and twice to an array of threes."""
    for times, expected in enumerate(result, 1):
        target = mx.nd.full((2,), 3)
        inputs = InputGradients([target], [request_])
        gradients = Gradients([], [], inputs, [0])
        for _ in range(times):
            gradients.deliver(0, mx.nd.full((2,), 2))
        inputs.zero()
        assert target.asnumpy().tolist() == [expected] * 2


BOUNDS = {
    'clip': lambda F, x: F.clip(x, -1, 1),
    'maximum': lambda F, x: F.maximum(x, 1.0),
    'minimum': lambda F, x: F.minimum(x, 1.0),
    'relu': lambda F, x: F.relu(x),
    'clipped relu': lambda F, x: F.clip(F.relu(x), 0, 1),
    'elu': lambda F, x: F.LeakyReLU(x, act_type='elu', slope=1.5),
    'of two': lambda F, x: F.broadcast_maximum(x, F.reverse(x, axis=1)),
    '==': lambda F, x: x * (x == 1) + F.broadcast_equal(x, F.relu(x)),
    '!=': lambda F, x: x * (x != 1) + F.broadcast_not_equal(x, F.relu(x)),
    '>': lambda F, x: x * (x > 1) + F.broadcast_greater(F.relu(x), x),
    '>=': lambda F, x: x * (x >= 1) + F.broadcast_greater_equal(x, F.relu(x)),
    '<': lambda F, x: x * (x < 1) + F.broadcast_lesser(x, F.relu(x)),
    '<=': lambda F, x: x * (x <= 1) + F.broadcast_lesser_equal(F.relu(x), x),
}


class Bounded(gluon.HybridBlock):
    """An operator that has two slopes at some points."""

    def __init__(self, bound):
        super().__init__()
        self.bound = bound

    def hybrid_forward(self, F, x):
        return BOUNDS[self.bound](F, x) * 3


@in_one_test('bound', BOUNDS)
def test_slopes_at_bounds_are_those_of_mxnet(bound, types):
    block, samples = Bounded(bound), arrays((1, 5), 3)
    for sample in samples:
        sample[:] = mx.nd.array([[-2, -1, 0, 1, 2]])
    assert_matches_eager(
        block, samples, blocks=[block], hybridized=[False], schedulers=['agenda'], rtol=1e-6
    )
    assert bound == 'of two' or any(native_program(kind) is not None for kind in types)


@pytest.mark.parametrize('frozen', ['weight', 'bias'])
def test_parameters_that_are_not_trained(frozen):
    """(Eager MXNet computes no gradient for a bias whose weight needs none.)"""
    net = started(nn.Dense(3, in_units=4))

    def gradients():
        with autograd.record():
            with edb.batching():
                values = [net(x) for x in arrays((1, 4), 5)]
            loss = edb.stack(values).square().sum()
        loss.backward()
        return {
            name: getattr(net, name).grad().asnumpy().copy()
            for name in ('weight', 'bias')
            if getattr(net, name).grad_req != 'null'
        }

    expected = gradients()
    getattr(net, frozen).grad_req = 'null'
    for name, found in gradients().items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-5)


def test_second_backward_pass_gives_the_same():
    net = started(Gates(6))
    with autograd.record():
        with edb.batching():
            values = [net(x, x)[0] for x in arrays((1, 6), 4)]
        loss = edb.stack(values).sum()
    loss.backward(retain_graph=True)
    once = net.own.weight.grad().asnumpy().copy()
    loss.backward()
    np.testing.assert_allclose(net.own.weight.grad().asnumpy(), once, rtol=1e-6)


def test_updates_between_recording_backward_and_step():
    """The backward pass computes with the weights of the forward pass."""
    net = started(nn.Dense(1, in_units=2))
    trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.5})
    for native in (True, False):
        net.initialize(mx.init.One(), force_reinit=True)
        for _ in range(5):
            with autograd.record(), edb.compile_options(native=native):
                with edb.batching():
                    values = [net(net.weight.data() * 0 + i) for i in range(3)]
                loss = edb.stack(values).square().mean()
            loss.backward()
            trainer.step(1)
        if native:
            expected = net.weight.data().asnumpy()
    np.testing.assert_allclose(net.weight.data().asnumpy(), expected, rtol=1e-4)


# --- optional ------------------------------------------------------------------------------------

PROGRAM = """
import gluon_edbatch as edb, mxnet as mx
net = mx.gluon.nn.Dense(2, in_units=2)
net.initialize()
with edb.batching():
    values = [net(mx.nd.ones((1, 2)) * i) for i in range(3)]
print(edb.native_available(), edb.stack(values).shape)
"""


def run(**variables):
    """Run a program with these environment variables."""
    done = run_python('-c', PROGRAM, **variables)
    assert done.returncode == 0, done.stderr
    return done


def test_switched_off():
    result = run(GLUON_EDBATCH_NATIVE='0')
    assert result.stdout.startswith('False') and not result.stderr


def test_without_compiler(tmp_path):
    result = run(  # native: an installation may have brought compiled operators
        CXX='/no/such/compiler', GLUON_EDBATCH_CACHE=str(tmp_path), GLUON_EDBATCH_NATIVE='native'
    )
    assert result.stdout.startswith('False') and 'slower' in result.stderr
    assert not any(path.suffix == '.so' for path in tmp_path.iterdir())


def test_failing_compiler(tmp_path):
    compiler = tmp_path / 'c++'
    compiler.write_text('#!/bin/sh\necho "fatal error: no such header" >&2\nexit 1\n')
    compiler.chmod(0o755)
    result = run(
        CXX=str(compiler), GLUON_EDBATCH_CACHE=str(tmp_path / 'cache'), GLUON_EDBATCH_NATIVE='1'
    )
    assert result.stdout.startswith('False') and 'no such header' in result.stderr


def test_compiler_that_writes_rubbish(tmp_path):
    compiler = tmp_path / 'c++'
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho rubbish > "$last"\n')
    compiler.chmod(0o755)
    result = run(
        CXX=str(compiler), GLUON_EDBATCH_CACHE=str(tmp_path / 'cache'), GLUON_EDBATCH_NATIVE='1'
    )
    assert result.stdout.startswith('False') and 'remove the file' in result.stderr


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / 'file').write_text('')
    result = run(GLUON_EDBATCH_CACHE=str(tmp_path / 'file'), GLUON_EDBATCH_NATIVE='1')
    assert result.stdout.startswith('False') and 'GLUON_EDBATCH_CACHE' in result.stderr


# --- what the backward pass reads ----------------------------------------------------------------

LACKING_PROGRAM = """
from gluon_edbatch.execute.native import lowering
import gluon_edbatch as edb, mxnet as mx
from gluon_edbatch.ops.instructions import BINARY, UNARY, Opcode

MODELS = {
    'Affine': lambda F, x: x * 2 + 1, 'Sigmoid': lambda F, x: F.sigmoid(x),
    'Held': lambda F, x: F.BlockGrad(x) + x,
    'Tanh': lambda F, x: F.tanh(x), 'Relu': lambda F, x: F.relu(x), 'Exp': lambda F, x: F.exp(x),
    'Log': lambda F, x: F.log(x), 'Square': lambda F, x: F.square(x),
    'Sqrt': lambda F, x: F.sqrt(x), 'Abs': lambda F, x: F.abs(x),
    'Reciprocal': lambda F, x: 2 / x,
    'SoftRelu': lambda F, x: F.Activation(x, act_type='softrelu'),
    'SoftSign': lambda F, x: F.softsign(x), 'Leaky': lambda F, x: F.LeakyReLU(x, slope=0.1),
    'Maximum': lambda F, x: F.maximum(x, 1.0), 'Minimum': lambda F, x: F.minimum(x, 1.0),
    'Gamma': lambda F, x: F.gamma(x), 'LogGamma': lambda F, x: F.gammaln(x),
    'Erf': lambda F, x: F.erf(x), 'ErfInv': lambda F, x: F.erfinv(x / 7),
    'Clip': lambda F, x: F.clip(x, 0.5, 1), 'Add': lambda F, x: x + F.identity(x * 2),
    'Subtract': lambda F, x: x - F.identity(x * 2), 'Multiply': lambda F, x: x * (x + 1),
    'Divide': lambda F, x: x / (x + 1), 'Larger': lambda F, x: F.maximum(x, x + 1),
    'Smaller': lambda F, x: F.minimum(x, x + 1), 'Equal': lambda F, x: F.broadcast_equal(x, x * 1),
    'NotEqual': lambda F, x: x != 1, 'Greater': lambda F, x: x > 1,
    'GreaterEqual': lambda F, x: x >= 1, 'Lesser': lambda F, x: x < 1,
    'LesserEqual': lambda F, x: x <= 1,
    'Elu': lambda F, x: F.LeakyReLU(x, act_type='elu'), 'softmax': lambda F, x: F.softmax(x),
    'log_softmax': lambda F, x: F.log_softmax(x), 'pick': lambda F, x: F.pick(x, F.sum(x, axis=1)),
    'batch_dot': lambda F, x: F.batch_dot(F.expand_dims(x, 1), F.expand_dims(x, 2)),
}
kept, used = lowering.read_backward, set()

def keep_nothing(instruction):
    if instruction.op in (Opcode.UNARY, Opcode.BINARY):
        used.add((instruction.op, instruction.numbers[0]))
    lowered.append(bool(kept(instruction)))
    return []

lowering.read_backward = keep_nothing
for name, function in MODELS.items():
    lowered = []
    net = mx.gluon.nn.HybridLambda(lambda F, x: function(F, x * 2) * 3)
    samples = [mx.nd.ones((1, 3)) * i for i in range(1, 4)]
    for sample in samples:
        sample.attach_grad()
    error = ''
    try:
        with mx.autograd.record():
            with edb.batching():
                values = [net(sample) for sample in samples]
            loss = edb.stack(values).sum()
        loss.backward()
        mx.nd.waitall()
    except mx.MXNetError as raised:
        error = str(raised).strip().splitlines()[-1].partition('operators: ')[2]
    assert lowered, name
    print(name, any(lowered), error, sep='|')
for opcode, functions in (Opcode.UNARY, UNARY), (Opcode.BINARY, BINARY):
    for function in functions:
        assert (opcode, function.number) in used, f'no line of MODELS calls {function}'
"""


def test_gradients_that_lack_a_value_that_was_not_kept_are_errors():
    """Only functions whose gradient reads a value (`read_backward`) fail if it is missing."""
    done = run_python('-W', 'ignore', '-c', LACKING_PROGRAM)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        name, reads, error = line.split('|')
        kernel = name.removeprefix('log_')  # one for both kinds of softmax
        expected = f'the gradient of {kernel} reads a value that was not kept'
        assert error == (expected if reads == 'True' else ''), line


# --- levels of the instruction set ---------------------------------------------------------------


@pytest.mark.slow  # compiles each; scripts/test_install.sh does the same with an installed package
def test_levels_agree_within_rounding():
    """Each level that this processor has is as near to float64 as float32 can be. In float64 levels
    agree, and the best one gives equal bits every time."""
    done = run_python(ROOT / 'tests' / 'runtime' / 'check_levels.py')
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('level', ['v9', 'yes'])
def test_level_that_is_not_there(level):
    result = run(GLUON_EDBATCH_NATIVE=level)
    assert result.stdout.startswith('False')
    assert f'GLUON_EDBATCH_NATIVE={level}, where this processor has 0, 1' in result.stderr


@pytest.mark.parametrize('lacking, best', [((), 'v4'), (('avx512bw',), 'v3'), (('fma',), 'v2')])
def test_best_level_is_taken(tmp_path, monkeypatch, lacking, best):
    """The best level that was built and that the processor has is loaded."""
    features = set().union(*compiler.levels().values())
    if 'avx2' not in features:
        pytest.skip('another architecture has one level')
    monkeypatch.setattr(executor_library, 'features', lambda: features - set(lacking))
    monkeypatch.setattr(executor_library, 'BUILT', tmp_path)
    monkeypatch.setenv('GLUON_EDBATCH_NATIVE', '1')
    own = library.OPERATORS
    assert executor_library.built(own) is None
    for level in compiler.levels():
        (tmp_path / compiler.library_name(level, compiler.digest_of(own))).write_text('')
    assert executor_library.built(own).name.startswith(f'{best}-')
    assert executor_library.built(None) == executor_library.built(own)
    monkeypatch.setenv('GLUON_EDBATCH_NATIVE', 'v2')
    assert executor_library.built(own).name.startswith('v2-')


@pytest.mark.parametrize('dtype', ['float32', 'float64', 'float16', 'int8'])
def test_rows_of_many_arrays_at_once(dtype):
    random = np.random.RandomState(3)
    sources = [random.uniform(-99, 99, (rows, 2, 3)).astype(dtype) for rows in (4, 1, 7)]
    rows = [np.array([3, 0, 3]), np.array([0]), np.array([6, 1])]
    target = mx.nd.zeros((8, 2, 3), dtype=dtype)
    assert gather([mx.nd.array(each, dtype=dtype) for each in sources], rows, target, 1)
    expected = np.concatenate([each[own] for each, own in zip(sources, rows)])
    np.testing.assert_array_equal(target.asnumpy()[1:7], expected)
    assert not target.asnumpy()[[0, 7]].any()


def test_values_of_many_rounds_are_read_by_one_operator(monkeypatch):
    """Each step of a sample reads what all of its earlier rounds have computed."""
    gathered = []

    def noted(sources, *rest):
        gathered.append(len(sources))
        return gather(sources, *rest)

    monkeypatch.setattr(execution_state, 'gather', noted)
    cell = started(nn.Dense(H, in_units=H))

    def steps_of(start):
        values = [cell(start)]
        for _ in range(5):
            yield values[-1]
            values.append(cell(sum(values[1:], values[0])))
        return values

    starts = [mx.nd.array(np.random.RandomState(seed).rand(1, H)) for seed in range(3)]
    with edb.batching():
        found = edb.run_concurrently(starts, steps_of)
    for values, expected in zip(found, edb.run_concurrently(starts, steps_of)):
        for value, wanted in zip(values, expected):
            np.testing.assert_allclose(value.asnumpy(), wanted.asnumpy(), rtol=1e-5, atol=1e-6)
    assert max(gathered) > 2


def test_library_is_kept():
    assert library.build() == library.build()


@pytest.mark.parametrize('uneven', [False, True])
def test_batches_that_need_no_comparison_run_together(uneven):
    """Once compared, calls with as many children each have no padding to compare."""
    cell = started(edb.rnn.ChildSumTreeLSTMCell(4, 3))

    def scope_of_trees():
        with edb.batching('agenda') as scope:
            states = [[cell(np.ones((1, 3), np.float32) * i, []) for i in range(8)]]
            while len(states[-1]) > 1:
                below = states[-1]
                states.append(
                    [
                        cell(
                            0 * below[i][0].slice_axis(axis=1, begin=0, end=3),
                            [below[i], below[i + 1]][: 1 if uneven and i else 2],
                        )
                        for i in range(0, len(below), 2)
                    ]
                )
        edb.forward(states[-1])
        return list(steps(scope._recording.evaluator.counts[-1].plan))

    scope_of_trees()
    assert len(scope_of_trees()) == 1


class SharedIds(gluon.HybridBlock):
    """Ids that are looked up in two tables; `stopped` cuts a result off from autograd, too."""

    def __init__(self, stopped=False):
        super().__init__()
        self.stopped = stopped
        with self.name_scope():
            self.one, self.other = nn.Embedding(5, 4), nn.Embedding(5, 4)

    def hybrid_forward(self, F, token):
        one = self.one(token)
        return (F.BlockGrad(one) if self.stopped else one) * self.other(token)


@pytest.mark.parametrize('stopped', [False, True])
def test_ids_of_several_tables(stopped, types):
    block = started(SharedIds(stopped))
    assert_matches_eager(block, [0, 3, 1, 3], hybridized=[False], schedulers=['agenda'])
    assert all(native_program(kind) is not None for kind in types)


HELD = {
    'a factor': lambda F, x: F.BlockGrad(F.tanh(x)) * x,
    'straight through': lambda F, x: x + F.BlockGrad(F.relu(x) - x),
    'a part': lambda F, x: F.tanh(F.concat(F.BlockGrad(x * 2), x, dim=1)),
    'a result': lambda F, x: [F.BlockGrad(F.sigmoid(x)), x * x],
    'by hand': lambda F, x: F.broadcast_sub(x, F.BlockGrad(F.sum(x, axis=1, keepdims=True))),
}


@pytest.mark.parametrize('name', HELD)
def test_what_is_held_from_autograd(name, types):
    dense, net = started(nn.Dense(3, in_units=4)), nn.HybridLambda(HELD[name])
    samples = [mx.nd.array([[1, -2, 3, place]]) for place in range(3)]
    for x in samples:
        x.attach_grad()
    assert_matches_eager(
        lambda x: net(dense(x)),
        samples,
        blocks=[dense, net],
        hybridized=[False],  # of which MXNet's own graphs have no gradients where one is held
        schedulers=['agenda'],
    )
    assert all(native_program(kind) is not None for kind in types if 'Lambda' in kind.name)


@pytest.mark.parametrize('name', ['Dense', 'Conv1D', 'LSTM'])
def test_gradients_of_data_are_left_out(name, monkeypatch):
    """In turns with gradients of the same arguments, of all samples or of one: plans are kept."""
    left_out = []
    original = native_run.with_gradients

    def noted(program, wanted):
        left_out.append(original(program, wanted))
        return left_out[-1]

    monkeypatch.setattr(native_run, 'with_gradients', noted)
    layer = {
        'Dense': lambda: nn.Dense(4, in_units=4, flatten=False),
        'Conv1D': lambda: nn.Conv1D(4, 3, padding=1, in_channels=4),
        'LSTM': lambda: gluon.rnn.LSTM(4, input_size=4, layout='NTC'),
    }[name]()
    net = started(layer)
    for wanted in ([], [0, 1, 2, 3], [], [2], []):
        shapes = [(1, 3 + place, 4) for place in range(4)]
        shapes = [shape[:1] + shape[:0:-1] for shape in shapes] if name == 'Conv1D' else shapes
        samples = [arrays(shape, 1, place)[0] for place, shape in enumerate(shapes)]
        samples = [x if place in wanted else x.asnumpy() for place, x in enumerate(samples)]
        assert_matches_eager(read_by(net), samples, blocks=[net], schedulers=['agenda'])
    assert left_out
    for program in left_out:
        assert Place.INPUT not in [register.gradient for register in program.registers]


@in_one_test('index, position', [(1e30, 2), (np.inf, 2), (2, 2), (np.nan, 0), (-np.inf, 0)])
@in_one_test('dtype', ['float32', 'float64'])
def test_an_index_beyond_all_rows_is_clipped(index, position, dtype, types):
    """Also one that no integer can be; eager MXNet takes whatever the processor makes of it."""
    net = nn.HybridLambda(lambda F, x, index: F.pick(x, index, axis=1, keepdims=True) * 2)
    x = mx.nd.array([[1, 2, 3]], dtype=dtype)
    with edb.batching():
        values = [net(x, mx.nd.array([[index]], dtype=dtype).reshape((-1,))) for _ in range(2)]
    for value in edb.forward(values):
        assert value.asscalar() == 2 * x[0, position].asscalar()
    assert any(native_program(kind) is not None for kind in types)


@in_one_test(
    'name, function',
    [
        ('clip', lambda F, x: F.clip(x, 0, 1)),
        ('clip at -0', lambda F, x: F.clip(x, -0.0, 1)),
        ('maximum', lambda F, x: F.maximum(x, 0.5)),
        ('minimum', lambda F, x: F.minimum(x, 0.5)),
        ('larger', lambda F, x: F.maximum(x, F.reverse(x, axis=1))),
        ('smaller', lambda F, x: F.minimum(x, F.reverse(x, axis=1))),
        ('relu', lambda F, x: F.relu(x)),
        ('product', lambda F, x: x * -2),
        ('quotient', lambda F, x: x / -0.0),
        ('negative', lambda F, x: -x),
        ('copy', lambda F, x: F.identity(x)),
        ('pieces', lambda F, x: F.concat(x, x, dim=1)),
    ],
)
def test_nan_and_signs_of_zero_are_as_mxnet_has_them(name, function):
    net = nn.HybridLambda(function)
    x = mx.nd.array([[np.nan, 0.0, -0.0, 2, -3, 1, 0.25]])
    expected = net(x).asnumpy()
    with edb.batching():
        values = [net(x) for _ in range(2)]
    for value in edb.forward(values):
        np.testing.assert_array_equal(value.asnumpy(), expected)
        zeros = expected == 0
        np.testing.assert_array_equal(
            np.signbit(value.asnumpy()[zeros]), np.signbit(expected[zeros])
        )


@pytest.mark.parametrize('name', ['sigmoid', 'tanh'])
def test_saturating_functions_are_right_everywhere(name):
    """Down to the least numbers, and never beyond where they saturate."""
    sizes = np.concatenate(
        [2.0 ** np.arange(-126, 6.5, 0.01), [9.02, 87.0, 88.0, 1e4, 3e38, np.inf]]
    )
    x = np.concatenate([sizes, -sizes, [np.nan]]).astype(np.float32)[None]
    net = nn.HybridLambda(lambda F, x: getattr(F, name)(x * 1))
    with edb.batching():
        values = [net(mx.nd.array(x)) for _ in range(2)]
    found, exact = values[0].asnumpy()[0], x[0].astype(np.float64)
    with np.errstate(over='ignore'):
        exact = np.tanh(exact) if name == 'tanh' else 1 / (1 + np.exp(-exact))
    assert np.isnan(found[-1]) and (np.abs(found[:-1]) <= 1).all()
    assert found[len(sizes) - 1] == 1 and (found[-2] == -1 if name == 'tanh' else found[-2] < 1e-37)
    normal = np.abs(exact[:-1]) > 2e-38
    np.testing.assert_allclose(found[:-1][normal], exact[:-1][normal], rtol=4e-7)


@in_one_test(
    'shapes, turned',
    [
        (((m, k), (k, n)), turned)
        for m, k, n in [(1, 64, 64), (64, 3, 64), (5, 7, 37), (4, 1, 9), (9, 33, 3), (1, 1, 1)]
        for turned in [(False, False), (True, False), (False, True), (True, True)]
    ],
)
def test_products_of_matrices_in_rows(shapes, turned):
    """Matrix products, of sizes that end in the middle of a vector, too, have right gradients."""
    random = np.random.RandomState(5)
    arrays = [
        [random.uniform(-1, 1, (1, *(shape[::-1] if turn else shape))) for _ in range(3)]
        for shape, turn in zip(shapes, turned)
    ]
    samples = [[mx.nd.array(each) for each in pair] for pair in zip(*arrays)]
    net = nn.HybridLambda(
        lambda F, a, b: F.batch_dot(a, b, transpose_a=turned[0], transpose_b=turned[1])
    )
    for array in (array for pair in samples for array in pair):
        array.attach_grad()
    with mx.autograd.record():
        with edb.batching():
            values = [net(a, b) for a, b in samples]
        loss = (edb.concat(values) ** 2).sum()
    loss.backward()
    for (a, b), value in zip(samples, values):
        u, v = (
            array.asnumpy()[0].T if turn else array.asnumpy()[0]
            for array, turn in zip((a, b), turned)
        )
        np.testing.assert_allclose(value.asnumpy()[0], u @ v, rtol=1e-5, atol=1e-5)
        wanted = 2 * (u @ v) @ v.T, 2 * u.T @ (u @ v)
        for array, turn, slope in zip((a, b), turned, wanted):
            expected = slope.T if turn else slope
            np.testing.assert_allclose(array.grad.asnumpy()[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('weight', [np.inf, -np.inf, np.nan])
def test_zeros_times_weights_that_are_not_finite(weight):
    """No product with the states of a leaf's children is left out for them."""
    net, leaves = started(TreeLSTM()), [Tree(word) for word in (1, 2, 3)]

    def outputs():
        with edb.batching():
            values = [net(leaf) for leaf in leaves]
        return np.array([value.asnumpy() for value in edb.forward(values)])

    assert np.isfinite(outputs()).all()
    weights = net.cell.h2h_i_weight
    changed = weights.data().asnumpy()
    changed[0, 0] = weight
    weights.set_data(mx.nd.array(changed))
    assert np.isnan([net(leaf).asnumpy() for leaf in leaves]).all()
    assert np.isnan(outputs()).all()


def test_the_first_minibatch_has_the_bits_of_later_ones():
    """What is compared with a run alone, once, runs with all else: sums are added up alike."""
    net, trees, found = started(TreeLSTM(6)), random_trees(12, seed=7), []
    for _ in range(3):
        with autograd.record():
            with edb.batching('agenda'):
                values = [net(tree) for tree in trees]
            loss = (edb.concat(values) ** 2).sum()
        loss.backward()
        found.append([loss.asnumpy(), *[p.grad().asnumpy() for p in net.collect_params().values()]])
    for later in found[1:]:
        for one, other in zip(found[0], later):
            np.testing.assert_array_equal(one, other)
