"""Explanations: each cause is found at its line with its values, and the numbers add up."""

import re
from collections import Counter
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch import Cause
from gluon_edbatch.record.sites import Site
from gluon_edbatch.report.explain.explanation import TYPE_CAUSES
from tests.support.models import Reader, TreeLSTM, ndarrays, random_trees, sentences, started
from tests.support.programs import RandomScheduler, as_ndarrays, programs, run, schedulers

WIDTH = 3
SOURCE = Path(__file__).read_text(encoding='utf-8').splitlines()


def site(marker):
    """The line of this file that ends with ``# marker``."""
    (line,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith(f'# {marker}')]
    return Site(__file__, line)


def place(explanation, marker, operation=None):
    """Return the explanation of the marked line."""
    (found,) = [
        one
        for one in explanation.places
        if one.site == site(marker) and operation in (None, one.operation)
    ]
    assert found.source == SOURCE[found.site.line - 1].strip()
    return found


def reason(found, cause):
    """Return a place's reason with a cause."""
    (one,) = [one for one in found.reasons if one.cause is cause]
    assert one.text and one.advice
    return one


def causes(found):
    """Return the causes of a place's reasons, in order."""
    return [one.cause for one in found.reasons]


def assert_adds_up(scope, explanation):
    """Calls and batches are those of the report, each once."""
    report = scope.report()
    assert (
        explanation.scheduler,
        explanation.evaluations,
        explanation.calls,
        explanation.batches,
        explanation.lower_bound,
    ) == (report.scheduler, report.evaluations, report.nodes, report.batches, report.lower_bound)
    assert sum(one.calls for one in explanation.places) == report.nodes
    assert sum(one.waiting for one in explanation.places) == explanation.waiting
    sizes = {}
    for one in explanation.places:
        assert one.calls == sum(bar.calls for bar in one.bars)
        assert one.fewest >= 1 and one.largest <= one.largest_possible
        for bar in one.bars:
            sizes.setdefault(bar.batch, []).append((bar.calls, bar.size))
    assert sorted(sizes) == list(range(report.batches))
    for parts in sizes.values():
        assert {size for _, size in parts} == {sum(calls for calls, _ in parts)}
    calls = Counter()
    for kind in report.types:
        calls[kind.name] += kind.calls
    assert calls == sum(
        [Counter({bar.type_name: bar.calls}) for one in explanation.places for bar in one.bars],
        Counter(),
    )


def dense(units=2, **options):
    """A layer that takes rows of `WIDTH`."""
    return started(nn.Dense(units, in_units=WIDTH, **options))


def explained(scope, values):
    """Evaluate the values, and return the scope's explanation."""
    edb.forward(values)
    explanation = scope.explain()
    assert_adds_up(scope, explanation)
    return explanation


# --- another type --------------------------------------------------------------------------------


def test_another_shape():
    net = dense(flatten=False)
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(5, (1, WIDTH)) + ndarrays(2, (1, 4, WIDTH))]  # shape
    found = place(explained(scope, values), 'shape')
    assert (found.operation, found.calls, found.batches) == ('Dense', 7, 2)
    assert (found.largest, found.largest_possible, found.fewest) == (5, 7, 1)
    assert causes(found) == [Cause.SHAPE]
    why = reason(found, Cause.SHAPE)
    assert why.values == (('n', WIDTH), ('n', 4, WIDTH)) and why.batches == 1
    assert why.text == 'x is (n, 3) in 5 calls and (n, 4, 3) in 2'


def test_many_shapes_are_counted_and_the_most_frequent_shown():
    net = dense(flatten=False)
    with edb.batching() as scope:
        values = [net(x) for k in range(1, 6) for x in ndarrays(k, (2, k, WIDTH))]  # many
    why = reason(place(explained(scope, values), 'many'), Cause.SHAPE)
    assert why.values[:2] == (('n', 5, WIDTH), ('n', 4, WIDTH)) and len(why.values) == 5
    assert why.text.startswith('x is (n, 5, 3) in 5 calls, (n, 4, 3) in 4, and 3 others in 6;')


def test_numbers_of_rows_are_no_difference():
    net = dense()
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(2, (1, WIDTH)) + ndarrays(2, (4, WIDTH))]  # rows
    assert not place(explained(scope, values), 'rows').reasons


def test_another_dtype():
    net = dense()
    with edb.batching() as scope:
        made = [net(x) for x in ndarrays(3, (1, WIDTH))]
        made[1] = made[1].astype('float64')
        values = [mx.nd.tanh(x) for x in made]  # dtypes
    found = place(explained(scope, values), 'dtypes')
    why = reason(found, Cause.DTYPE)
    assert found.operation == 'tanh' and why.values == ('float32', 'float64')
    assert why.text == 'argument 1 is float32 in 2 calls and float64 in 1'


def test_another_context():
    contexts = [mx.cpu(0), mx.cpu(0), mx.cpu(1)]
    net = nn.Dense(2, in_units=WIDTH)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with edb.batching() as scope:
        values = [net(mx.nd.ones((1, WIDTH), ctx=ctx)) for ctx in contexts]  # contexts
    why = reason(place(explained(scope, values), 'contexts'), Cause.CONTEXT)
    assert why.values == ('on cpu(0)', 'on cpu(1)')
    assert why.text == 'x is on cpu(0) in 2 calls and on cpu(1) in 1'


class Scaled(gluon.HybridBlock):
    """A block with an argument that is no array."""

    def hybrid_forward(self, F, x, factor, bias=None):
        """x (N, WIDTH); factor is a string, as numbers would be values."""
        return x * float(factor) if bias is None else x * float(factor) + bias


def test_another_argument_that_is_no_array():
    net = Scaled()
    with edb.batching() as scope:
        values = [net(x, factor) for x, factor in zip(ndarrays(3, (1, 2)), '212')]  # constant
    found = place(explained(scope, values), 'constant')
    why = reason(found, Cause.ARGUMENT)
    assert why.values == ('2', '1') and why.text == "factor is '2' in 2 calls and '1' in 1"


def test_an_array_or_none():
    net = Scaled()
    x, y, z = ndarrays(3, (1, 2))
    with edb.batching() as scope:
        values = [net(x, '1', bias) for bias in (None, y, z)]  # none
    why = reason(place(explained(scope, values), 'none'), Cause.ARGUMENT)
    assert why.advice.startswith('Give bias in all calls, or in none')
    assert why.text == 'bias is an array in 2 calls and None in 1'


def test_another_attribute_of_an_operator():
    net = dense(4)
    with edb.batching() as scope:
        made = [net(x) for x in ndarrays(3, (1, WIDTH))]
        values = [
            edb.nd.slice_axis(x, axis=1, begin=0, end=2 + (i == 1))  # attribute
            for i, x in enumerate(made)
        ]
    explanation = explained(scope, values)
    (why,) = [
        why for one in explanation.places if one.operation == 'slice_axis' for why in one.reasons
    ]
    assert why.cause is Cause.ARGUMENT and why.text == 'end is 2 in 2 calls and 3 in 1'


@pytest.mark.parametrize(
    'written, advised, fewest',
    [
        (lambda y, i: y.clip(-i, i), lambda y, i: mx.nd.minimum(mx.nd.maximum(y, -i), i), 4),
        (lambda y, i: mx.nd.softmax(y, temperature=i), lambda y, i: mx.nd.softmax(y / i), 3),
        (
            lambda y, i: y.astype('int32') * int(i),
            lambda y, i: y.astype('int32').astype('float32') * int(i),
            4,
        ),
    ],
)
def test_what_to_write_for_numbers_that_split(written, advised, fewest):
    """The advice names a form, and that form batches and computes the same."""
    net, xs = dense(12), ndarrays(9, (1, WIDTH))
    results, explanations = [], []
    for form in (written, advised):
        with edb.batching() as scope:
            values = [form(net(x), float(i + 1)) for i, x in enumerate(xs)]
        explanations.append(explained(scope, values))
        results.append([value.asnumpy() for value in values])
    split = [why for one in explanations[0].places for why in one.reasons]
    assert [why.cause for why in split] == [Cause.ARGUMENT] and split[0].batches == 8
    assert any(word in split[0].advice for word in ('maximum', 'softmax', 'astype'))
    assert explanations[1].batches <= fewest + 1
    for one, other in zip(*results):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_different_numbers_of_arrays():
    net, xs = dense(), ndarrays(3, (1, WIDTH))
    with edb.batching() as scope:
        values = [
            mx.nd.concat(*[net(x) for x in xs[:count]], dim=1)  # joined
            for count in (1, 2, 3)
        ]
    why = reason(place(explained(scope, values), 'joined', 'Concat'), Cause.ARGUMENT)
    assert why.text.startswith('the number of arrays is 1 in 1 call') and 'edb.ragged' in why.advice


def test_numbers_that_are_data_are_no_loss():
    net = dense()
    with edb.batching() as scope:
        values = [net(x) * float(i) for i, x in enumerate(ndarrays(5, (1, WIDTH)))]  # data
    why = reason(place(explained(scope, values), 'data', '_mul_scalar'), Cause.ARGUMENT)
    assert why.text == 'scalar is any other number in 4 calls and 0.0 in 1'
    assert why.advice.startswith('Nothing to do')


# --- whole sentences -----------------------------------------------------------------------------


class Sentences(gluon.HybridBlock):
    """Attention over (1, length, WIDTH), and what is not known to be proof against padding."""

    def __init__(self, then=None):
        super().__init__()
        self._then = then

    def hybrid_forward(self, F, x, mask=None):
        """mask (1, length, length)"""
        scores = F.tanh(F.batch_dot(x, x, transpose_b=True)) * 2 + 1
        if mask is not None:
            scores = F.broadcast_add(scores, (mask - 1) * 1e9)
        attended = F.batch_dot(F.softmax(scores), x)
        return self._then(F, attended) if self._then else attended


def _products(F, x):
    return F.batch_dot(x, x, transpose_b=True)


LENGTHS = (3, 7, 5, 7, 10)


MASKED, PAIRS = Sentences(), Sentences()
LAYER = started(gluon.rnn.LSTM(2, input_size=WIDTH))  # takes words for samples


def explained_sentences(call, lengths=LENGTHS):
    with edb.batching() as scope:
        values = [call(mx.nd.ones((1, length, WIDTH))) for length in lengths]
    return scope, explained(scope, values)


def why_by_length(explanation):
    why, *_ = [why for one in explanation.places for why in one.reasons if why.cause is Cause.SHAPE]
    return why


@pytest.mark.parametrize(
    'call, text, advice',
    [
        (Sentences(lambda F, x: F.reverse(x % 3, axis=1)), 'mod', 'outside of sentences'),
        (LAYER, 'RNN joins axes', 'LSTMCell'),
        (lambda x: MASKED(x, mx.nd.ones((1,) + x.shape[1:2] * 2)), 'several axes', 'in the'),
        (lambda x: PAIRS(mx.nd.concat(x, x, dim=0)), 'several rows', 'one sample'),
    ],
)
def test_why_sentences_are_not_padded(call, text, advice):
    scope, explanation = explained_sentences(call)
    why = why_by_length(explanation)
    assert why.batches == len(set(LENGTHS)) - 1
    before, reason = why.text.split('; not padded to one length: ')
    assert text in reason and advice in why.advice and text not in before
    assert f'by length: {reason}' in str(scope.report())


def test_a_mean_over_rows():
    """A loss takes a mean over rows, joined along axis 0 or ragged."""
    net, loss = dense(WIDTH), gluon.loss.SoftmaxCrossEntropyLoss()

    def of_rows(scores, labels):
        losses = loss(mx.nd.concat(*scores, dim=0), mx.nd.array(labels))
        return losses.mean()  # mean of rows

    def of_ragged(scores, labels):
        return loss(edb.ragged(scores), edb.ragged(labels))  # ragged loss

    def explanation_of(loss_of):
        with edb.batching() as scope:
            values = [
                loss_of([net(x) for x in ndarrays(length, (1, WIDTH))], list(range(length)))
                for length in (1, 2, 3)
            ]
        return [value.asscalar() for value in edb.forward(values)], explained(scope, values)

    for _ in range(2):  # lengths differ only as of the second sample
        expected, rows = explanation_of(of_rows)
    assert place(rows, 'mean of rows').batches == 1
    results, together = explanation_of(of_ragged)
    assert place(together, 'ragged loss').batches == 1
    np.testing.assert_allclose(results, expected, rtol=1e-5)


def test_a_softmax_over_rows():
    """Attention to values that are joined along axis 0, or ragged."""
    net = dense(WIDTH)
    softmax = gluon.nn.HybridLambda(lambda F, x: F.sum(F.softmax(x, axis=1) * x, axis=1))

    def of_rows(values):
        rows = mx.nd.concat(*values, dim=0)
        weights = mx.nd.softmax(rows, axis=0)  # softmax of rows
        return (weights * rows).sum(axis=0)

    def of_ragged(values):
        return softmax(edb.ragged(values))  # ragged softmax

    def explanation_of(attend):
        with edb.batching() as scope:
            values = [
                attend([net(x) for x in ndarrays(length, (1, WIDTH))]) for length in (1, 2, 3)
            ]
        results = [value.asnumpy().reshape(-1) for value in edb.forward(values)]
        return results, explained(scope, values)

    for _ in range(2):
        expected, rows = explanation_of(of_rows)
    assert rows.batches <= 3
    results, together = explanation_of(of_ragged)
    assert place(together, 'ragged softmax').batches == 1
    np.testing.assert_allclose(results, expected, rtol=1e-5)


def test_rows_that_no_rule_is_for():
    net = dense(WIDTH)
    with edb.batching() as scope:
        rows = [mx.nd.concat(*map(net, ndarrays(k, (1, WIDTH))), dim=0) for k in (1, 2, 3)]
        values = [mx.nd.argsort(each, axis=0) for each in rows]  # order
    advice = reason(place(explained(scope, values), 'order'), Cause.SHAPE).advice
    assert 'edb.ragged(values)' in advice and 'axis 0' in advice


def test_operators_on_sentences_that_are_padded():
    net = Sentences()
    for _ in range(2):
        _, explanation = explained_sentences(lambda x: mx.nd.slice_like(net(x), net(x)))
    why = why_by_length(explanation)
    assert 'slice_like joins' in why.text and 'HybridBlock' in why.advice


def test_operators_on_their_own_are_not_padded():
    _, explanation = explained_sentences(lambda x: edb.nd.softmax(x, axis=1))
    (one,) = explanation.places
    assert 'an operator on its own' in reason(one, Cause.SHAPE).text


def test_that_padding_is_switched_off():
    with edb.compile_options(buckets=False):
        _, explanation = explained_sentences(Sentences())
    assert 'the compile option buckets is off' in why_by_length(explanation).text


def test_sentences_of_all_lengths_are_one_batch():
    net = Sentences(_products)  # of which two axes are as long as the sentence
    explained_sentences(net)  # the first length of all is met before it is seen that they differ
    scope, explanation = explained_sentences(net)
    assert explanation.batches == 1 and 'by length' not in str(scope.report())


def test_another_block():
    first, second = dense(prefix='left_'), dense(prefix='right_')
    x = mx.nd.ones((1, WIDTH))
    with edb.batching() as scope:
        values = [net(x) for net in (first, second, first)]  # blocks
    found = place(explained(scope, values), 'blocks')
    why = reason(found, Cause.BLOCK)
    assert why.values == ('left', 'right')
    assert why.text.endswith('left (2 calls), right (1 call)')
    assert found.batches == 2 and why.batches == 1 and 'parameters of their own' in why.advice


def test_blocks_without_parameters_are_as_good_as_one():
    with edb.batching() as scope:
        values = [
            gluon.loss.L2Loss()(x, y)  # fresh
            for x, y in zip(ndarrays(4, (1, 2)), ndarrays(4, (1, 2), seed=1))
        ]
    found = place(explained(scope, values), 'fresh')
    assert (found.batches, found.fewest) == (4, 1)
    assert 'have no parameters: make one block, once' in reason(found, Cause.BLOCK).advice


def test_a_block_and_an_operator_of_one_name():
    drop, net = nn.Dropout(0.5), dense()
    with edb.batching() as scope:
        made = [net(x) for x in ndarrays(2, (1, WIDTH))]
        values = [x for y in made for x in (drop(y), edb.nd.Dropout(y, p=0.5))]  # one name
    found = [one for one in explained(scope, values).places if one.site == site('one name')]
    assert [(one.operation, one.calls, one.reasons) for one in found] == [('Dropout', 2, ())] * 2


def test_layers_one_over_the_other_are_no_loss():
    layers = [dense(WIDTH) for _ in range(3)]
    values = []
    with edb.batching() as scope:
        for x in ndarrays(4, (1, WIDTH)):
            for layer in layers:
                x = layer(x)  # layers
            values.append(x)
    explanation = explained(scope, values)
    assert causes(place(explanation, 'layers')) == [Cause.DEPENDENCY]
    assert 'nothing but dependencies keeps calls apart' in str(explanation)


class Tempered(gluon.HybridBlock):
    """A block with an attribute that changes."""

    temperature = 1.0

    def hybrid_forward(self, F, x):
        """x (N, WIDTH)"""
        return x / self.temperature


def test_a_block_that_was_changed():
    net = Tempered()
    net.temperature = 1.0
    values = []
    with edb.batching() as scope:
        for i, x in enumerate(ndarrays(4, (1, 2))):
            net.temperature = float(1 + i // 2)
            values.append(net(x))  # changed
            if i == 1:
                values[0].asnumpy()  # changed early
    why = reason(place(explained(scope, values), 'changed'), Cause.ATTRIBUTE)
    assert why.text == 'self.temperature is 1.0 in 2 calls and 2.0 in 2'


def test_parameters_that_were_cast():
    net, values = started(nn.Embedding(5, 2)), []
    with edb.batching() as scope:
        for dtype in ('float32', 'float64'):
            net.cast(dtype)
            values += [net(mx.nd.array([i])) for i in range(3)]  # cast
            values[0].asnumpy()
    why = reason(place(explained(scope, values), 'cast'), Cause.DTYPE)
    assert why.values == ('float32', 'float64')
    assert why.text == 'its parameters are float32 in 3 calls and float64 in 3'


# --- other causes --------------------------------------------------------------------------------


def test_a_dependency():
    net = dense(WIDTH)
    values = []
    with edb.batching() as scope:
        for x, length in zip(ndarrays(3, (1, WIDTH)), (4, 2, 1)):
            for _ in range(length):
                x = net(x)  # chain
            values.append(x)
    found = place(explained(scope, values), 'chain')
    why = reason(found, Cause.DEPENDENCY)
    assert why.values == (4, 4) and why.batches == 0 and found.largest_possible == 3
    assert causes(found) == [Cause.DEPENDENCY] and 'up to 4 calls' in why.text


def test_a_value_read_early():
    net = dense()
    values = []
    with edb.batching() as scope:
        for x in ndarrays(4, (1, WIDTH)):
            values.append(net(x))  # read
            if len(values) in (2, 3):
                values[-1].asnumpy()  # early
    explanation = explained(scope, values)
    found = place(explanation, 'read')
    why = reason(found, Cause.READ_EARLY)
    assert found.batches == 3 and found.largest_possible == 4
    assert why.sites == (site('early'),) and why.values == (3,) and why.batches == 2
    assert f'test_explain.py:{site("early").line} (2 times) needed a value' in why.text
    assert set(scope.report().forced) == {site('early')}


def test_rounds_of_samples_that_wait_are_told_from_values_read_early():
    net = dense(WIDTH)

    def walk(steps):
        for step in range(steps):
            yield net(mx.nd.full((1, WIDTH), step))  # walked

    with edb.batching() as scope:
        edb.run_concurrently([1, 3, 2], walk)  # rounds
    why = reason(place(scope.explain(), 'walked'), Cause.READ_EARLY)
    assert why.sites == (site('rounds'),) and 'as its longest sample waits' in why.advice
    with edb.batching() as scope:
        edb.run_concurrently([1, 3, 2], walk)
        for x in ndarrays(2, (1, WIDTH)):
            net(x).asnumpy()  # by hand
    why = reason(place(scope.explain(), 'by hand'), Cause.READ_EARLY)
    assert why.sites == (site('by hand'),) and 'Look at values' in why.advice


def test_calls_that_wait_after_an_early_read():
    net = dense()
    with edb.batching() as scope:
        for x in ndarrays(4, (1, WIDTH)):
            value = net(x)  # middle
            if scope.report().evaluations == 0:
                value.asnumpy()
        why = reason(place(scope.explain(), 'middle'), Cause.READ_EARLY)
        assert why.values == (2,) and why.batches == 1


def test_reading_early_where_nothing_could_have_run_together_is_no_cause():
    net = dense(WIDTH)
    x = mx.nd.ones((1, WIDTH))
    with edb.batching() as scope:
        for _ in range(3):
            x = net(x)  # decoder
            x.asnumpy()
    assert causes(place(explained(scope, [x]), 'decoder')) == [Cause.DEPENDENCY]


def test_values_asked_for_one_after_the_other():
    net = dense()
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(3, (1, WIDTH))]  # asked
    for value in values:
        edb.forward(value)  # alone
    why = reason(place(explained(scope, values), 'asked'), Cause.ASKED_APART)
    assert why.sites == (site('alone'),) and why.batches == 2 and '(2 times)' in why.text


class Unruled(gluon.HybridBlock):
    """Has an operator without a batching rule."""

    def hybrid_forward(self, F, x):
        """x (N, 6)"""
        return F.GridGenerator(x, transform_type='affine', target_shape=(2, 2)) + 1


def test_an_operator_without_a_rule():
    net = Unruled()
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(3, (1, 6))]  # grid
    found = place(explained(scope, values), 'grid')
    why = reason(found, Cause.NO_RULE)
    assert found.batches == 3 and why.batches == 2 and 'GridGenerator' in why.values[0]
    assert f'outside of {net.name}' in why.advice


class Centred(gluon.HybridBlock):
    """Subtract the mean over the rows, which mixes them."""

    def hybrid_forward(self, F, x):
        """x (N, WIDTH)"""
        return F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True))


class Filter(gluon.HybridBlock):
    """Filters of each call, which MXNet takes for weights of the batch."""

    def hybrid_forward(self, F, x, kernel):
        """x (N, 1, K), kernel (1, 1, 2)"""
        return F.Convolution(x, kernel, kernel=(2,), num_filter=1, no_bias=True)


@pytest.mark.parametrize(
    'rows, text, advice',
    [
        (1, 'do not fit a batch', 'Axis 0 is the batch axis'),
        (2, 'different numbers of rows', 'equally many rows'),
    ],
)
def test_an_operator_that_mixes_rows(rows, text, advice):
    net = Filter()
    with edb.batching() as scope:
        images, kernels = ndarrays(3, (rows, 1, 4)), ndarrays(3, (1, 1, 2))
        values = [net(x, y) for x, y in zip(images, kernels)]  # mixed
    found = place(explained(scope, values), 'mixed')
    why = reason(found, Cause.MIXED_ROWS)
    assert found.batches == 3 and why.batches == 2
    assert text in why.text and advice in why.advice


class Bilinear(gluon.HybridBlock):
    """A tensor times a vector."""

    def __init__(self):
        super().__init__()
        self.tensor = self.params.get('tensor', shape=(3, WIDTH, WIDTH))

    def hybrid_forward(self, F, x, tensor):
        return F.dot(tensor, x.reshape((-1,)))


def test_a_bilinear_product():
    net = Bilinear()
    net.initialize()
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(3, (1, WIDTH))]  # bilinear
    why = reason(place(explained(scope, values), 'bilinear'), Cause.MIXED_ROWS)
    for name in ('Dense', 'reshape((-1, ', 'batch_dot'):
        assert name in why.advice
    assert f'[3,{WIDTH},{WIDTH}] X [{WIDTH}n]' in why.text and '7 rows' not in why.text
    assert 'whole.py' not in why.advice


def test_chains_are_explained_once():
    first, second, values = dense(WIDTH), dense(WIDTH), []
    with edb.batching() as scope:
        for x in ndarrays(4, (1, WIDTH)):
            for _ in range(3):
                x = first(x)  # one chain
            for _ in range(3):
                x = second(x)  # another chain
            values.append(x)
    explanation = explained(scope, values)
    assert str(explanation).count('need the result of the one before') == 1
    for marker in ('one chain', 'another chain'):
        assert causes(place(explanation, marker)) == [Cause.DEPENDENCY]


def test_whole_values_agree_in_all_axes():
    net = Centred()

    def call(x):
        return net(x)  # whole

    with edb.batching() as scope:
        values = [call(x) for x in ndarrays(3, (2, 4)) + ndarrays(2, (2, 3, 4))]
    why = reason(place(explained(scope, values), 'whole'), Cause.SHAPE)
    assert why.text == 'x is (2, 4) in 3 calls and (2, 3, 4) in 2'
    assert why.advice.startswith('Rows of these calls depend on each other')
    with edb.batching(compile_options=edb.CompileOptions(whole_values=False)) as scope:
        values = [call(x) for x in ndarrays(3, (2, 4))]
    why = reason(place(explained(scope, values), 'whole'), Cause.MIXED_ROWS)
    assert 'mean(axis=0)' in why.text and 'whole_values on' in why.advice


def test_another_weight():
    weights = ndarrays(2, (WIDTH, WIDTH), gradient=True)
    net = dense(WIDTH)
    with edb.batching() as scope:
        made = [net(x) for x in ndarrays(3, (1, WIDTH))]
        values = [edb.nd.dot(x, weights[i % 2]) for i, x in enumerate(made)]  # weights
    found = place(explained(scope, values), 'weights')
    why = reason(found, Cause.WEIGHT)
    assert causes(found) == [Cause.WEIGHT] and (found.batches, why.batches) == (2, 1)
    assert why.text == 'argument 2 is a weight of shape (3, 3) in 2 calls and another in 1'


def test_a_weight_in_the_place_of_data():
    """A learned vector is the bottom of a stack; code that follows the advice costs no more."""
    net, table = dense(WIDTH), started(nn.Embedding(1, WIDTH))
    bottom = mx.gluon.Parameter('bottom', shape=(1, WIDTH))
    bottom.initialize()

    def explanation_of(bottom):
        with edb.batching() as scope:
            rows = [net(x) for x in ndarrays(3, (1, WIDTH))]
            pairs = zip([bottom(), *rows], rows)
            values = [edb.nd.concat(x, y, dim=1) for x, y in pairs]  # learned
        return place(explained(scope, values), 'learned')

    why = reason(explanation_of(bottom.data), Cause.WEIGHT)
    assert why.text == 'argument 1 is data in 2 calls and a weight of shape (1, 3) in 1'
    assert 'as a row of an Embedding' in why.advice
    assert not causes(explanation_of(lambda: mx.nd.reshape(table(0), (1, WIDTH))))


def test_values_that_nobody_asks_for_cost_nothing():
    net = dense()
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(3, (1, WIDTH))]  # unwanted
    edb.forward(values[:2])
    explanation = scope.explain()
    found = place(explanation, 'unwanted')
    assert (found.calls, found.waiting, found.reasons) == (2, 1, ())
    assert '1 call not evaluated yet' in str(explanation)


def test_modes_on_two_lines_are_no_difference_of_either():
    net = dense()
    values = []
    with autograd.record(), edb.batching() as scope:
        for i, x in enumerate(ndarrays(5, (1, WIDTH))):
            if i < 3:
                values.append(net(x))
                continue
            with autograd.pause():
                values.append(net(x))
    assert not any(one.reasons for one in explained(scope, values).places)


def test_modes_of_autograd():
    net = dense()

    def call(x):
        return net(x)  # modes

    with autograd.record(), edb.batching() as scope:
        values = [call(x) for x in ndarrays(3, (1, WIDTH))]
        with autograd.predict_mode():
            values += [call(x) for x in ndarrays(2, (1, WIDTH))]
    why = reason(place(explained(scope, values), 'modes'), Cause.MODE)
    assert [mode.training for mode in why.values] == [True, False] and why.batches == 1
    assert why.text == "autograd's mode is recording and training in 3 calls and recording in 2"


class Longest(gluon.HybridBlock):
    """Padding with zeros would show in it."""

    def hybrid_forward(self, F, values):
        """values (N, K, WIDTH)"""
        return F.slice_axis(F.sort(values % 9, axis=1, is_ascend=False), axis=1, begin=0, end=1)


def test_lengths_of_ragged_arguments():
    net, make = Longest(), dense(WIDTH)
    with edb.batching() as scope:
        parts = [make(x) for x in ndarrays(5, (1, WIDTH))]
        values = [net(edb.ragged(parts[:k])) for k in (3, 2, 3)]  # lengths
    found = place(explained(scope, values), 'lengths')
    why = reason(found, Cause.LENGTHS)
    assert causes(found) == [Cause.LENGTHS]
    assert why.values == ((3,), (2,)) and 'values is 3 in 2 calls and 2 in 1' in why.text
    assert why.text.endswith('_mod_scalar has no rule for padding')


def test_the_scheduler():
    net = dense()
    with edb.batching('unbatched') as scope:
        values = [net(x) for x in ndarrays(6, (1, WIDTH))]  # unbatched
    why = reason(place(explained(scope, values), 'unbatched'), Cause.SCHEDULER)
    assert why.values == (6, 1) and why.batches == 5 and "'unbatched'" in why.text
    assert why.advice == ("batching(scheduler='agenda') would take 1 batches for all that took 6.")


def test_several_causes_and_what_is_said_once():
    net = dense(flatten=False)
    values = []
    with edb.batching('unbatched') as scope:
        for k in (1, 2) * 3:
            values.append(net(mx.nd.ones((2, k, WIDTH))))  # several
            if len(values) == 4:
                values[0].asnumpy()  # several early
    explanation = explained(scope, values)
    found = place(explanation, 'several')
    assert causes(found) == [Cause.SHAPE, Cause.READ_EARLY, Cause.SCHEDULER]
    assert found.avoidable == 1 + 2 + 2 == found.batches - found.fewest
    text = str(explanation)
    for one in found.reasons:
        words = re.escape(one.advice).replace(r'\ ', r'\s+')
        assert len(re.findall(words, text)) == 1


def test_places_with_nothing_to_tell_are_one_line_each_and_few():
    names = {}
    source = ['def run(net, x):'] + ['    x = net(x)'] * 14 + ['    return x']
    exec(compile('\n'.join(source), 'many.py', 'exec'), names)
    net = dense(WIDTH)
    with edb.batching() as scope:
        values = [names['run'](net, x) for x in ndarrays(2, (1, WIDTH))]
    lines = str(explained(scope, values)).splitlines()
    assert lines[-13] == 'many.py:2  Dense: 2 calls in 1 batch, the largest of 2'
    assert sum(line.startswith('many.py:') for line in lines) == 12
    assert lines[-1] == 'and 2 places with nothing to tell'


# --- calls that wait, and no calls ---------------------------------------------------------------


def test_calls_that_wait():
    net = dense(flatten=False)
    with edb.batching() as scope:
        values = [net(mx.nd.ones((2, k, WIDTH))) for k in (1, 1, 2)]  # waits
        explanation = scope.explain()
        found = place(explanation, 'waits')
        assert (found.calls, found.waiting, found.largest_possible) == (0, 3, 3)
        assert reason(found, Cause.SHAPE).values == (('n', 1, WIDTH), ('n', 2, WIDTH))
        assert explanation.waiting == 3 and '3 calls not evaluated yet' in str(explanation)
    edb.forward(values[0])
    explanation = scope.explain()
    assert (explanation.calls, explanation.waiting) == (1, 2)
    assert_adds_up(scope, explanation)
    assert not explained(scope, values).waiting


def test_a_scope_that_failed():
    with pytest.raises(ZeroDivisionError):
        with edb.batching() as scope:
            dense()(mx.nd.ones((1, WIDTH)))
            raise ZeroDivisionError
    assert '1 call will never be evaluated: ZeroDivisionError' in str(scope.explain())


def test_nothing_recorded():
    scope = edb.batching()
    assert str(scope.explain()) == str(edb.batching().explain())
    with scope:
        assert 'nothing was recorded' in str(scope.explain())
    explanation = scope.explain()
    assert not explanation.places and explanation.scheduler == 'fsm'


def test_nothing_is_evaluated_or_changed():
    net = dense()
    with edb.batching(CountingScheduler()) as scope:
        values = [net(x) for x in ndarrays(3, (1, WIDTH))]
        values[0].asnumpy()
        values += [net(x) for x in ndarrays(2, (1, WIDTH))]
        before = state(scope)
        first = scope.explain()
        assert state(scope) == before and scope.explain() == first
        values.append(net(mx.nd.ones((1, WIDTH))))
    before = state(scope)
    str(scope.explain())
    assert state(scope) == before
    assert [value.asnumpy().shape for value in values] == [(1, 2)] * 6
    assert scope.report().evaluations == 2 == scope.scheduler.runs


class CountingScheduler:
    """Counts how often it is asked."""

    name = 'counting'

    def __init__(self):
        self.runs = 0
        self._inner = edb.DepthScheduler()

    def schedule(self, graph):
        """Schedule as the depth-based scheduler does."""
        self.runs += 1
        return self._inner.schedule(graph)


def state(scope):
    """All that an evaluation or a further call would change."""
    recording = scope._recording
    evaluator = recording.evaluator
    kept = [sorted(vars(count.graph)) for count in evaluator.counts]
    return (
        len(recording.node_forms),
        recording.next_value,
        len(recording.forms),
        len(recording.ran),
        evaluator.pending._seen_nodes,
        len(evaluator.forced),
        evaluator.inside_s,
        recording.locations.evaluation.tobytes(),
        kept,
        scope.scheduler.runs,
        mx.random.uniform(shape=1).shape,
    )


# --- any program ---------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.lists(programs(reads=True), max_size=4), schedulers)
def test_random_programs(minibatch, scheduler):
    with edb.batching(scheduler) as scope:
        results = [run(program, True, as_ndarrays(program)) for program in minibatch]
        assert_adds_up(scope, scope.explain())
    before = scope.explain()
    assert_adds_up(scope, before)
    explanation = explained(scope, results)
    assert explanation.calls == before.calls + before.waiting and not explanation.waiting
    for one in explanation.places:
        assert one.fewest <= one.batches <= one.calls
        # All but the scheduler's share adds up to no more than what was lost.
        why = Counter({reason.cause: reason.batches for reason in one.reasons})
        types = max([why.pop(cause, 0) for cause in TYPE_CAUSES])
        rest = (
            one.batches
            - one.fewest
            - types
            - sum(count for cause, count in why.items() if cause is not Cause.SCHEDULER)
        )
        assert rest >= 0 and (one.reasons or not rest)
    assert str(explanation).count('\n') >= len(explanation.places)


def test_models():
    generator = np.random.RandomState(0)
    reader, tree = started(Reader()), started(TreeLSTM())
    reuse = edb.Reuse()
    for _ in range(2):
        with edb.batching(RandomScheduler(int(generator.randint(99)))) as scope:
            values = [reuse(i, reader, sentence) for i, sentence in enumerate(sentences(9))]
            values += [tree(sample) for sample in random_trees(5)]
        explanation = explained(scope, values)
        assert {Path(one.site.filename).name for one in explanation.places} == {'models.py'}


# --- what was given ------------------------------------------------------------------------------


def explained_inputs(net, xs):
    with edb.batching() as scope:
        values = [net(x) for x in xs]
    return explained(scope, values)


def test_how_arrays_came_in():
    net, marked = dense(), ndarrays(1, (1, WIDTH))[0]
    marked.attach_grad()
    arrays = [np.full((1, WIDTH), i, 'float32') for i in range(4)]
    given = arrays + [arrays[0].copy()] + [mx.nd.array(array + 9) for array in arrays] + [marked]
    explanation = explained_inputs(net, given)
    assert dict(explanation.given) == {'constant or NumPy array': 4, 'NDArray, read at once': 5}
    assert 'given: 5 NDArrays, read at once; 4 constant or NumPy arrays\n' in str(explanation)
    assert not any(one.reasons for one in explanation.places)


def test_numbers_are_counted():
    net = dense()
    rows = np.eye(3, dtype='float32')[:, None]
    explanation = explained_inputs(lambda x: net(x) * float(x[0, 0]), rows)
    assert dict(explanation.given) == {'constant or NumPy array': 3, 'number': 2}


@pytest.mark.parametrize(
    'make, how, advice',
    [
        (lambda shape: np.ones(shape, 'float32'), 'large NumPy array, copied', 'as NDArrays'),
        (mx.nd.ones, 'large NDArray, not copied', None),
    ],
)
def test_large_arrays(make, how, advice):
    net = started(nn.Dense(1, in_units=1 << 16))
    explanation = explained_inputs(net, [make((1, 1 << 16)) for _ in range(2)])
    assert dict(explanation.given) == {how: 2}
    reasons = explanation.places[0].reasons
    assert [why.cause for why in reasons] == [Cause.INPUT] * (advice is not None)
    for why in reasons:
        assert advice in why.advice and why.text == '2 large NumPy arrays, copied for 2 calls'


def test_arrays_that_the_engine_copies():
    mx.npx.set_np()
    try:
        net, scalars = dense(), [mx.np.array(float(i)) for i in range(3)]
        with edb.batching() as scope:
            values = [net(np.ones((1, WIDTH), 'float32')) * x for x in scalars]
        (why,) = [why for one in explained(scope, values).places for why in one.reasons]
        assert why.cause is Cause.INPUT and 'asnumpy' in why.advice
        assert why.text == "3 MXNet arrays, copied by MXNet's engine for 3 calls"
    finally:
        mx.npx.reset_np()


def test_arrays_of_numpy_mode_are_read_at_once():
    mx.npx.set_np()
    try:
        arrays = [mx.np.ones((1, WIDTH)) * i for i in range(3)]
        assert dict(explained_inputs(dense(), arrays).given) == {'NDArray, read at once': 3}
    finally:
        mx.npx.reset_np()


def test_calls_that_wait_are_no_reason_for_batches():
    net = started(nn.Dense(WIDTH, in_units=WIDTH))
    with edb.batching() as scope:
        states = ndarrays(1, (1, WIDTH))
        for _ in range(5):
            states.append(net(states[-1]))
    assert 'up to 5 calls each need' in str(scope.explain())
    edb.forward(states[3])
    text = str(scope.explain())
    assert 'up to 3 calls each need' in text and 'so 3 batches are' in text
