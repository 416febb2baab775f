"""What is declared of operators is so: by MXNet's registry, and by numbers."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet._ctypes.ndarray import CachedOp

import gluon_edbatch as edb
from gluon_edbatch.mx.invoke import operator_handle, operator_name
from gluon_edbatch.mx.symbols import registered, symbol_function
from gluon_edbatch.ops import OPS, __main__
from gluon_edbatch.ops import axis_rules as axes
from gluon_edbatch.ops.attrs import Attrs
from gluon_edbatch.ops.axis_rules import At, AxisCall, AxisEntry, Unproved
from gluon_edbatch.ops.header import header
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch_core.native import compiler
from tests.support.cases import in_one_test
from tests.support.processes import HANG

# --- names, and what is generated ----------------------------------------------------------------


def test_header_is_what_is_declared():
    text = (compiler.SOURCES / 'opcodes.h').read_text(encoding='ascii')
    assert text == header(), 'run `python -m gluon_edbatch.ops --header`'


def test_entries_have_mxnets_own_names():
    assert [name for name in OPS if operator_name(operator_handle(name)) != name] == []
    assert all(OPS[name].name == name for name in OPS)
    for op in OPS.values():
        assert op.aligned is None or op.aligned in OPS, op


def printed(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, 'argv', ['ops', *arguments])
    __main__.main()
    return capsys.readouterr().out.splitlines()


def test_what_has_no_entry_is_listed(monkeypatch, capsys):
    *names, counts, numpy, slow = printed(monkeypatch, capsys)
    numpy = numpy.split('): ')[1].split()
    assert sorted(names + numpy) == sorted(registered() - set(OPS))
    assert 'Correlation' in names and '_npi_einsum' in numpy
    assert counts.startswith(f'{len(names)} operators without an entry')
    assert {'InstanceNorm', 'sin'} < set(slow.split()) and 'tanh' not in slow.split()
    monkeypatch.delitem(OPS, 'erf')
    *more, _, _, _ = printed(monkeypatch, capsys)
    assert set(more) - set(names) == {'erf'}


def test_a_reader_of_the_list_may_leave():
    command = f'"{sys.executable}" -m gluon_edbatch.ops | head -1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=HANG)
    assert len(done.stdout.splitlines()) == 1 and 'BrokenPipeError' not in done.stderr


def test_what_is_known_of_one_is_shown(monkeypatch, capsys):
    lines = printed(monkeypatch, capsys, 'LayerNorm', 'Correlation')
    assert lines[0] == 'LayerNorm' and lines[-1] == 'Correlation has no entry'
    path, line = re.search(r'  axis: layer_norm.* \((.+):(\d+)\)', '\n'.join(lines)).groups()
    assert 'def layer_norm' in Path(path).read_text(encoding='utf-8').splitlines()[int(line) - 1]


def test_header_is_written(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, 'argv', ['ops', '--header'])
    monkeypatch.setattr(__main__, '_HEADER', tmp_path / 'opcodes.h')
    __main__.main()
    assert (tmp_path / 'opcodes.h').read_text(encoding='ascii') == header()


# --- formulas ------------------------------------------------------------------------------------

# Slopes get what they are declared to read, and else NaN; beside each is a quotient of differences.
SLOPES_PROGRAM = """
#include <cstdio>
#include <stdexcept>
#include "opcodes.h"
using namespace edb;

const double kNothing = std::nan(""), kStep = 1e-5;
const double kPoints[] = {-2.3, -1.4, -0.7, -0.3, 0.2, 0.45, 0.55, 0.8, 1.7, 3.1};

template <typename F> double difference(F f) { return (f(kStep) - f(-kStep)) / (2 * kStep); }

template <typename F> void unary(F f, Slope slope) {
  for (double x : kPoints) {
    const double reads[] = {kNothing, x, f.value(x)};
    std::printf("%s 1 %.17g %.17g\\n", slope.name, f.slope(reads[slope.reads]),
                difference([=](double step) { return f.value(x + step); }));
  }
}

template <typename F> void binary(F f, Slope slope) {
  for (double x : kPoints)
    for (double y : {-1.1, 0.35, 2.6}) {
      const double a = slope.reads ? x : kNothing, b = slope.reads ? y : kNothing;
      std::printf("%s 1 %.17g %.17g\\n", slope.name, f.first(a, b),
                  difference([=](double step) { return f.value(x + step, y); }));
      std::printf("%s 2 %.17g %.17g\\n", slope.name, f.second(a, b),
                  difference([=](double step) { return f.value(x, y + step); }));
    }
}

template <typename Body> void for_all(Body body) {
  try {
    for (int64_t which = 0;; ++which) body(which);
  } catch (const std::runtime_error&) {
  }
}

int main() {
  for_all([](int64_t which) {
    with_unary<double>(which, 0.5, 0.75, [](auto f, Slope slope) { unary(f, slope); });
  });
  for_all([](int64_t which) {
    with_binary<double>(which, [](auto f, Slope slope) { binary(f, slope); });
  });
}
"""


def slopes(tmp_path, sources):
    """For each function and argument: slopes at some points, and what they should be."""
    (tmp_path / 'slopes.cc').write_text(SLOPES_PROGRAM)
    try:
        command = compiler.find_compiler()
    except compiler.BuildError:
        pytest.skip('no C++ compiler')
    subprocess.run(
        [command, '-std=c++17', f'-I{sources}', 'slopes.cc', '-o', 'slopes'],
        cwd=tmp_path,
        check=True,
        timeout=HANG,
    )
    done = subprocess.run(
        [tmp_path / 'slopes'], check=True, timeout=HANG, text=True, stdout=subprocess.PIPE
    )
    found = {}
    for line in done.stdout.splitlines():
        name, argument, *numbers = line.split()
        found.setdefault((name, argument), []).append([float(number) for number in numbers])
    return {key: np.array(rows) for key, rows in found.items()}


def wrong(found):
    """Functions whose slope is not what differences say, where there is a value."""
    names = set()
    for (name, _), rows in found.items():
        rows = rows[~np.isnan(rows[:, 1])]
        assert len(rows) >= 4, name
        if not np.allclose(rows[:, 0], rows[:, 1], rtol=1e-5, atol=1e-6):
            names.add(name)
    return names


def test_slopes_read_what_they_need(tmp_path):
    found = slopes(tmp_path, compiler.SOURCES)
    text = header()
    declared = set(re.findall(r'Slope\{"(\w+)"', text))
    assert {name for name, _ in found} == declared and len(declared) > 20
    assert wrong(found) == {'Held'}  # which is held from autograd


def test_what_slopes_need_is_seen(tmp_path):
    """Each function that is declared to read another value has another slope."""
    text = header()
    for one, other in [('kFromResult', 'kFrom_'), ('kFromArgument', 'kFromResult')]:
        text = re.sub(rf'(Slope\{{"\w+", ){one}', rf'\1{other}', text)
    text = re.sub(r'(Slope\{"\w+", )kFrom_', r'\1kFromArgument', text)
    text = text.partition('void with_binary')
    text = text[0] + text[1] + text[2].replace('kFromResult', 'kFromNothing')
    (tmp_path / 'opcodes.h').write_text(text)
    (tmp_path / 'math_functions.h').write_text((compiler.SOURCES / 'math_functions.h').read_text())
    # Of these, argument and result have the same sign, or are the same where it matters.
    same = {'Relu', 'Abs', 'Leaky', 'Maximum', 'Minimum', 'Clip'}
    reading = set(re.findall(r'Slope\{"(\w+)", (?!kFromNothing)', header()))
    assert reading - wrong(slopes(tmp_path, tmp_path)) <= same


# --- padding -------------------------------------------------------------------------------------

ROWS, LENGTHS, WIDTH = 3, (4, 1, 2), 5
PADDING = np.arange(max(LENGTHS)) >= np.array(LENGTHS)[:, None]  # (N, K)


def _scalar(random):
    return {'scalar': random.choice([-2.5, -1, 0, 0.5, 1, 2, 3])}


def _leaky(random):
    return {'act_type': random.choice(['leaky', 'elu', 'gelu', 'selu', 'prelu']), 'slope': 0.3}


MAKERS = {  # attributes by chance, of operators that have some
    'clip': lambda random: dict(zip(('a_min', 'a_max'), sorted(random.uniform(-2, 2, 2)))),
    'Activation': lambda random: {
        'act_type': random.choice(['relu', 'sigmoid', 'tanh', 'softrelu', 'softsign'])
    },
    'smooth_l1': lambda random: {'scalar': random.choice([0.5, 1, 3])},
    '_contrib_gradientmultiplier': lambda random: {'scalar': random.uniform(-2, 2)},
    'one_hot': lambda random: {'depth': 4},
    'repeat': lambda random: {'repeats': random.randint(1, 4), 'axis': 2},
    'reverse': lambda random: {'axis': (2,)},
    'slice': lambda random: {'begin': (None, None, random.randint(2)), 'end': (None, None, 3)},
    'sort': lambda random: {'axis': 2, 'is_ascend': random.randint(2)},
    'tile': lambda random: {'reps': (1, 1, random.randint(1, 4))},
    'Cast': lambda random: {'dtype': random.choice(['float32', 'float64', 'int32'])},
    'amp_cast': lambda random: {'dtype': random.choice(['float32', 'float16'])},
    'hard_sigmoid': lambda random: {'alpha': random.uniform(0, 1), 'beta': random.uniform(0, 1)},
    'LeakyReLU': _leaky,
    'Dropout': lambda random: {'p': random.uniform(0, 0.9)},
    'FullyConnected': lambda random: {
        'num_hidden': 2,
        'flatten': bool(random.randint(4) == 0),
        'no_bias': bool(random.randint(2)),
    },
    'Embedding': lambda random: {'input_dim': 4, 'output_dim': 2},
    'L2Normalization': lambda random: {'mode': random.choice(['instance', 'channel', 'spatial'])},
    '_contrib_arange_like': lambda random: {'axis': int(random.randint(1, 3))},
    'batch_dot': lambda random: dict(
        zip(
            ('transpose_a', 'transpose_b'),
            [(True, False), (False, False), (False, True)][random.randint(3)],
        )
    ),
    'broadcast_axis': lambda random: {'axis': 2, 'size': 2},
    'broadcast_to': lambda random: {'shape': (0, 0, 2)},
    'expand_dims': lambda random: {'axis': int(random.randint(1, 4))},
    'Reshape': lambda random: {
        'shape': [(0, 0, 1, -1), (0, 1, 0, -1), (-3, 0), (0, -1), (0, 0, -4, -1, 1)][
            random.randint(5)
        ]
    },
    'squeeze': lambda random: {'axis': 2},
    'transpose': lambda random: {'axes': [(0, 2, 1), (0, 1, 2)][random.randint(2)]},
    'SwapAxis': lambda random: {'dim1': 1, 'dim2': 2},
    'SliceChannel': lambda random: {'num_outputs': 1, 'axis': int(random.randint(1, 3))},
    '_split_v2': lambda random: {'indices': (0,), 'axis': int(random.randint(1, 3))},
    'stack': lambda random: {'axis': int(random.randint(1, 4))},
    'Concat': lambda random: {'dim': int(random.randint(1, 3))},
    'slice_axis': lambda random: {'axis': int(random.randint(1, 3)), 'begin': 1, 'end': 3},
    '_np_cumsum': lambda random: {'axis': int(random.randint(1, 3))},
    'SequenceMask': lambda random: {
        'axis': int(random.choice([1, 1, 0])),
        'use_sequence_length': True,
        'value': float(random.choice([0, -1e8, -1e30, 3])),
    },
}
MAKERS['_linalg_gemm2'] = MAKERS['batch_dot']
MAKERS['take'] = lambda random: {'axis': int(random.choice([0, 2]))}
REDUCTIONS = 'sum mean prod nanprod nansum norm max min'.split()
for each in REDUCTIONS:
    MAKERS[each] = lambda random: {
        'axis': int(random.randint(1, 3)),
        'keepdims': bool(random.randint(2)),
    }
for each in ('softmax', 'log_softmax', 'softmin', 'argmax', 'argmin', 'pick'):
    MAKERS[each] = lambda random: {'axis': int(random.choice([1, -1]))}
NARROW = ('Flatten', 'squeeze', 'broadcast_axis', 'broadcast_to')  # arrays with an axis of one
# The interleaved ones have sequences along axis 0, see tests/integration/test_encoders.py.
NEUTRAL = sorted(
    name
    for name, op in OPS.items()
    if op.axis
    and 'rows_only' not in op.axis.__qualname__
    and not name.startswith('_contrib_interleaved')
)


def attributes(name, random):
    maker = MAKERS.get(name) or (_scalar if name.endswith('_scalar') else lambda random: {})
    return maker(random)


def ragged(random, state):
    """(N, K, H): at the padding what the state says."""
    values = random.uniform(-0.9, 0.9, (ROWS, max(LENGTHS), WIDTH))
    if state is not At.FINITE:
        values[PADDING] = 0 if state is At.ZERO else np.inf
    return values


def operands(name, attrs, random):
    """(array, state) for each input: of those without a ragged axis the state is None."""
    op = OPS[name]
    states = [At.ZERO, At.ZERO, At.FINITE, At.ANY]
    if name in ('Concat', 'add_n', 'stack', 'where') or op.aligned:
        count = 2 if op.aligned else 3 if name == 'where' else random.randint(1, 4)
        made = [(ragged(random, state), state) for state in random.choice(states, count)]
        if op.aligned not in (None, name) and random.randint(2):
            made[random.randint(2)] = random.uniform(-1, 1, (ROWS, 1, WIDTH)), None
        return made
    state = random.choice(states)
    made = [(ragged(random, state), state)]
    if name in NARROW:
        made = [(made[0][0][:, :, :1], state)]
    if name == 'broadcast_like':
        made.insert(0, (random.uniform(-1, 1, (ROWS, 1, WIDTH)), None))
    products = name in ('batch_dot', '_linalg_gemm2')
    if name == 'reshape_like' or (products and attrs['transpose_a']):
        other = random.choice(states)
        made.append((ragged(random, other), other))
    elif products:
        made.append((random.uniform(-1, 1, (ROWS, WIDTH, WIDTH)), None))
    if name == 'pick':
        along = attrs['axis'] == 1
        shape = (ROWS, WIDTH) if along else (ROWS, max(LENGTHS))
        made.append((random.randint(0, 6, shape).astype(float), None if along else At.FINITE))
    if name == 'Embedding':
        made.append((random.uniform(-1, 1, (4, 2)), None))
    if name == 'take':
        table, index = (random.uniform(-1, 1, (4, 2)), None), (np.array([2.0, 0.0]), None)
        made = [table, *made] if attrs['axis'] == 0 else [*made, index]
    if name == 'dot':
        made.append((random.uniform(-1, 1, (WIDTH, 2)), None))
    if name == 'LayerNorm':
        made += [(random.uniform(-1, 1, WIDTH), None)] * 2
    if name == 'FullyConnected':
        made.append((random.uniform(-1, 1, (2, WIDTH)), None))
        made += [] if attrs['no_bias'] else [(random.uniform(-1, 1, 2), None)]
    if attrs.get('act_type') == 'prelu':
        made.append((random.uniform(0, 1, 1), None))
    if name == 'SequenceMask':
        made.append((np.array(LENGTHS, float), None))
    return made


class Run:
    """An operator that is applied eagerly: what comes out, and the gradients of some heads."""

    def __init__(self, name, attrs, arrays):
        symbol = symbol_function(name)(*[mx.sym.var(f'x{i}') for i in range(len(arrays))], **attrs)
        dtype = 'float32' if name == 'amp_cast' else 'float64'  # MXNet's refuses others
        self._arrays = [mx.nd.array(array, dtype=dtype) for array in arrays]
        for i, array in enumerate(self._arrays):
            if name != 'Embedding' or i not in OPS[name].indices:  # which refuses a gradient
                array.attach_grad()
        with autograd.record(train_mode=False):
            self._result = CachedOp(symbol)(*self._arrays)
        self.value = self._result.asnumpy()

    def gradients(self, heads):
        if self._result.dtype == np.int32:
            return []
        for array in self._arrays:
            if array.grad is not None:
                array.grad[:] = 0
        heads = mx.nd.array(heads, dtype=self._result.dtype)
        self._result.backward(heads, retain_graph=True)
        return [
            np.zeros(array.shape) if array.grad is None else array.grad.asnumpy()
            for array in self._arrays
        ]


def one_sample(made, row):
    """The inputs of one row without its axes."""
    return [
        array[row : row + 1, : LENGTHS[row]]
        if state
        else array[row : row + 1]
        if len(array) == ROWS
        else array
        for array, state in made
    ]


def entries_of(name, attrs, made):
    """Shape and ragged axis of the inputs and of the result."""
    inputs = [AxisEntry(array.shape, 1 if state else None) for array, state in made]
    long, short = [Run(name, attrs, one_sample(made, row)).value.shape for row in (0, 2)]
    axes = [axis for axis, sizes in enumerate(zip(long, short)) if sizes[0] != sizes[1]]
    if len(long) != len(short) or len(axes) > 1 or any(long[axis] != 4 for axis in axes):
        raise Unproved
    shape = (ROWS,) + long[1:] if axes != [0] else long
    return inputs, AxisEntry(shape, axes[0] if axes else None)


def check_padding(name, attrs, made, at, call):
    """All that the state of a result claims, with what the operator wants at the axes."""
    random, axis = np.random.RandomState(1), call.result.axis
    assert (at is None) == (axis is None)
    name = 'sum' if call.counted else name
    filled = [array.copy() for array, _ in made]
    for i, wanted in call.fills.items():
        filled[i][PADDING] = wanted.value
    if call.limited:
        filled[1] = np.minimum(filled[1], np.array(LENGTHS)[:, None] - 1)
    padded = Run(name, attrs, filled)
    heads = random.uniform(-1, 1, padded.value.shape)
    if axis:
        there = np.moveaxis(padded.value, axis, 1)[PADDING]
        assert {At.ZERO: there == 0, At.FINITE: np.isfinite(there), At.ANY: True}[at] is True or (
            {At.ZERO: there == 0, At.FINITE: np.isfinite(there)}[at].all()
        )
        if at is not At.ZERO:
            np.moveaxis(heads, axis, 1)[PADDING] = 0
    gradients = padded.gradients(heads)
    for i, gradient in enumerate(gradients):
        if i not in call.fills and made[i][1] is not None:
            assert np.isfinite(gradient).all()
            assert made[i][1] is At.ZERO or not gradient[PADDING].any()
    shared = [0] * len(made)
    for row, length in enumerate(LENGTHS):
        alone = Run(name, attrs, one_sample(made, row))
        mine = [slice(None)] * len(heads.shape)
        if len(heads) == ROWS and axis != 0:
            mine[0] = slice(row, row + 1)
        if axis is not None:
            mine[axis] = slice(length)
        mine = tuple(mine)
        np.testing.assert_allclose(padded.value[mine], alone.value, rtol=1e-6, atol=1e-9)
        own = alone.gradients(heads[mine])
        for i, (gradient, (array, state)) in enumerate(zip(own, made)):
            if state is None and len(array) != ROWS:
                shared[i] = shared[i] + gradient
                continue
            where = (slice(row, row + 1), *([slice(length)] if state else []))
            np.testing.assert_allclose(gradients[i][where], gradient, rtol=1e-6, atol=1e-9)
    for i, total in enumerate(shared):
        if not isinstance(total, int):
            np.testing.assert_allclose(gradients[i], total, rtol=1e-6, atol=1e-9)


def check_by_value(name, attrs, made, axis):
    """That a value gives its own result, and others nothing to the gradient."""
    row, place = LENGTHS.index(max(LENGTHS)), 1
    every = one_sample(made, row)
    one = [array[:, [place]] if state else array for array, (_, state) in zip(every, made)]
    every, alone = Run(name, attrs, every), Run(name, attrs, one)
    np.testing.assert_allclose(every.value.take([place], axis), alone.value, rtol=1e-6)
    heads = np.zeros(every.value.shape)
    np.moveaxis(heads, axis, 0)[place] = 1
    expected = alone.gradients(np.ones(alone.value.shape))
    for mine, own, (_, state) in zip(every.gradients(heads), expected, made):
        if state:
            assert not np.nan_to_num(np.delete(mine, place, axis=1)).any()
            mine = mine[:, [place]]
        known = np.isfinite(mine)  # where a slope is infinite, times zero it is no number
        np.testing.assert_allclose(mine[known], own[known], rtol=1e-6, atol=1e-9)


def prove(name, times=8):
    """Check what the rule says of some attributes and states by chance; gives how often."""
    random, proved = np.random.RandomState(0), 0
    for _ in range(30):
        if proved == times:
            break
        attrs = attributes(name, random)
        made = operands(name, attrs, random)
        as_text = Attrs({key: str(value) for key, value in attrs.items()})
        try:
            call = AxisCall(as_text, [state for _, state in made], *entries_of(name, attrs, made))
            at = OPS[name].axis(call)
        except (Unproved, mx.MXNetError):
            continue
        check_padding(name, attrs, made, at, call)
        if call.result.axis is not None and not call.across:
            check_by_value(name, attrs, made, call.result.axis)
        proved += 1
    return proved


# All but layers of whole sentences: test_sequence_layers.py has cases of these, and of padding the
# walk in tests/fuzz/walk_sentences.py has.
# These know the first axis only, or have no gradient: tests/fuzz/walk_operators.py has them.
OF_ROWS = (
    'Deconvolution GroupNorm InstanceNorm LRN SequenceReverse UpSampling argmax_channel '
    '_contrib_AdaptiveAvgPooling2D _contrib_BilinearResize2D depth_to_space im2col slice_like '
    'space_to_depth _grad_add'
).split()
LAYERS = 'Convolution', 'Pad', 'Pooling', 'RNN', 'SequenceLast'
DRAWN = [name for name in NEUTRAL if name not in (*LAYERS, *OF_ROWS)]


@in_one_test('name', DRAWN)
def test_padding_is_what_rules_say(name):
    drawn = OPS[name].aligned or attributes(name, np.random.RandomState(0))
    assert prove(name, times=8 if drawn else 5) >= 3


@pytest.mark.slow
@pytest.mark.parametrize('name', DRAWN)
def test_padding_is_what_rules_say_of_many(name):
    assert prove(name, times=30) >= 3


@in_one_test(
    'name, rule',
    [
        ('exp', axes.keeps),
        ('_plus_scalar', axes.keeps),
        ('broadcast_add', axes.product),
        ('softmax', axes.normalised(At.ZERO, At.ZERO)),
        ('mean', axes.reduced(At.ZERO)),
        ('max', axes.reduced(At.ZERO)),
        ('prod', axes.reduced(At.ZERO)),
        ('batch_dot', lambda call: axes.product(call) and None),
        ('Reshape', axes.alike),
        ('elemwise_div', axes.product),
        ('_minus_scalar', lambda call: At.ZERO),
        ('_power_scalar', axes.keeps),
        ('_div_scalar', axes.keeps),
        ('log', axes.only_at(At.ZERO, At.FINITE)),
    ],
)
def test_a_wrong_rule_is_seen(name, rule, monkeypatch):
    monkeypatch.setitem(OPS, name, replace(OPS[name], axis=rule))
    with pytest.raises(AssertionError):
        prove(name)


@in_one_test('name', ['softmax', 'log_softmax', 'softmin', 'L2Normalization'])
def test_what_works_across_values_says_so(name, monkeypatch):
    own = OPS[name].axis

    def rule(call):
        at = own(call)
        call.across = False
        return at

    monkeypatch.setitem(OPS, name, replace(OPS[name], axis=rule))
    with pytest.raises(AssertionError):
        prove(name)


def of_one_array(name):
    """Whether an operator is a function of one ragged array, element by element."""
    op = OPS[name]
    return op.elementwise and not op.aligned and name not in ('add_n', 'amp_cast')


def types_of_lengths(name, attrs):
    """How many types and batches an operator has in a scope, on ragged arguments.

    Its values are multiplied by the arguments, as most operators leave no zeros, and summed."""
    x = mx.sym.var('x', dtype='float32')
    values = mx.sym.Cast(symbol_function(name)(x * 0.5, **attrs), dtype='float32')
    net = gluon.SymbolBlock(mx.sym.sum(values * x, axis=1), [x])
    random = np.random.RandomState(0)
    samples = [
        [mx.nd.array(random.uniform(-0.9, 0.9, (1, WIDTH))) for _ in range(length)]
        for length in (*LENGTHS, 3)
    ]

    def model(values):
        return net(edb.ragged(values))

    assert_matches_eager(model, samples, hybridized=[False], schedulers=['agenda'], training=[True])
    with edb.batching('agenda') as scope:
        values = [model(sample) for sample in samples]
    edb.forward(values)
    report = scope.report()
    return len(report.types), report.batches


def attributes_with_a_slope(name):
    """Attributes with which an operator of one array keeps values apart from zero."""
    attrs = {**attributes(name, np.random.RandomState(1))}
    attrs = {'scalar': 2.0} if 'scalar' in attrs else attrs
    if attrs.get('act_type') in ('prelu', 'gelu', 'selu', 'elu'):
        attrs['act_type'] = 'leaky'
    return attrs


OF_ONE_ARRAY = [name for name in NEUTRAL if of_one_array(name)]


@in_one_test('name', OF_ONE_ARRAY)
def test_ragged_arguments_of_any_length_are_one_batch(name):
    assert types_of_lengths(name, attributes_with_a_slope(name)) == (1, 1)


@in_one_test('name', OF_ONE_ARRAY[::8])
def test_without_a_rule_each_length_is_a_batch(name, monkeypatch):
    monkeypatch.setitem(OPS, name, replace(OPS[name], axis=axes.of_rows))
    assert types_of_lengths(name, attributes_with_a_slope(name))[1] == 4
