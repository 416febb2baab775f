"""Additions whose partial sums nobody reads run as one sum, and give what eager Gluon gives."""

import gc
import random
import weakref
from contextlib import nullcontext
from functools import partial

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb
from gluon_edbatch.api.scope import lasting
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch.testing.matches_eager import SCHEDULERS
from tests.support.tiers import sampled

WIDTH = 3
_doubled = gluon.nn.HybridLambda(lambda F, x: x * 2)


def twice(array):
    """A call of a block: in a scope the result is lazy."""
    return _doubled(array)


def batched(additions=True, **options):
    """A scope whose calls never run eagerly."""
    scheduler = options.pop('scheduler', 'agenda')
    chosen = edb.CompileOptions(at_once=False, additions=additions, **options)
    return edb.batching(scheduler=scheduler, compile_options=chosen)


def values(count, rows=1):
    """Arrays with a gradient."""
    arrays = [nd.random.uniform(-1, 1, shape=(rows, WIDTH)) for _ in range(count)]
    for array in arrays:
        array.attach_grad()
    return arrays


def calls_of(report, name):
    """Calls and batches of the types of this name."""
    kinds = [kind for kind in report.types if kind.name.split('[')[0] == name]
    return sum(kind.calls for kind in kinds), sum(kind.batches for kind in kinds)


class Program:
    """A random DAG of additions, with readers of some partial sums."""

    def __init__(self, seed, writes):
        self._seed, self._writes = seed, writes

    def __call__(self, leaves, is_read_early=False, held=None):
        """Give all results; partial sums that the user keeps are appended to `held`."""
        choose = random.Random(self._seed)
        known, results = [twice(leaf) for leaf in leaves], []
        for _ in range(choose.randrange(3, 14)):
            kind = choose.randrange(10)
            operands = [known.pop(choose.randrange(len(known))) for _ in range(min(2, len(known)))]
            if kind == 0:
                value = nd.add_n(*operands, *known[: choose.randrange(3)])
            elif kind == 1:
                value = 0 + operands[0]
            elif kind == 2:
                value = operands[0] + operands[0]
            elif kind == 3:
                value = operands[0] + 0.25
            elif kind == 4:
                value = sum(operands)
            elif kind == 5:
                value = operands[0] + operands[0][:, 1:2]
            elif kind == 6 and len(operands) > 1 and self._writes:
                value = operands[0].copy()
                value += operands[1]
            else:
                value = operands[0] + operands[-1]
            known.append(value)
            reader = choose.randrange(8)
            if reader == 0:
                results.append(value * 2)
            elif reader == 1 and held is not None:
                held.append(value)
            elif reader == 2 and is_read_early:
                results.append(value.asnumpy().sum() + value)
            elif reader == 3:
                known.append(nd.broadcast_add(value[:, 0:1], value))
            elif reader == 4:
                known.append(twice(leaves[choose.randrange(len(leaves))]))
        return results + known


def run(program, samples, recorded, scope=None, **options):
    """Results of all samples, and of what is read after all others; gradients of what is read."""
    held, results = [], []
    for arrays in samples:
        for array in arrays:
            array.grad[:] = 0
    with autograd.record(recorded) if recorded else nullcontext():
        if scope is None:
            results = [program(arrays, held=held, **options) for arrays in samples]
        else:
            with scope:
                results = [program(arrays, held=held, **options) for arrays in samples]
        flat = [value for result in results for value in result]
        loss = sum([(value * value).sum() for value in flat])
    if recorded:
        loss.backward()
    gradients = [array.grad.asnumpy() for arrays in samples for array in arrays]
    return [value.asnumpy() for value in flat + held], gradients


@pytest.mark.parametrize(
    'scheduler, early_and_recorded, native',
    sampled(7, SCHEDULERS, [(0, 1), (1, 1), (1, 0)], [True, False]),
)
def test_random_additions_give_what_eager_gluon_gives(native, scheduler, early_and_recorded):
    """Partial sums may have other readers, be read early, later, or never."""
    is_read_early, recorded = early_and_recorded
    merged = 0
    for seed in range(12):
        mx.random.seed(seed)
        samples = [values(random.Random(seed + other).randrange(2, 7)) for other in range(3)]
        program = Program(seed, not recorded)
        wanted, gradients = run(program, samples, recorded, is_read_early=is_read_early)
        scope = batched(scheduler=scheduler, native=native)
        found, others = run(program, samples, recorded, scope, is_read_early=is_read_early)
        for one, other in zip(wanted + gradients, found + others):
            np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-6)
        merged += calls_of(scope.report(), 'sum')[0]
    assert merged


@pytest.mark.parametrize('training', [False, True])
def test_a_chain_is_one_batch(training):
    """`sum(list)` of lists of different lengths takes the batches of its values, and one."""
    dense = gluon.nn.Dense(WIDTH, in_units=2)
    dense.initialize()
    with autograd.record(training), batched() as scope:
        totals = [
            sum([dense(nd.ones((1, 2)) * number) for number in range(count)]) for count in (3, 20)
        ]
    edb.forward(totals)
    report = scope.report()
    assert report.batches == report.lower_bound <= 3
    assert calls_of(report, 'sum') == (23, 1)
    assert report.nodes == 23 + 23 + 23 * (report.batches == 3)


def test_a_scope_shows_the_graph_that_is_scheduled():
    """What a policy is learned from has sums, and later evaluations have them, too."""
    with batched() as scope:
        total = sum([twice(array) for array in values(6)])
    graph = scope.graph()
    total.asnumpy()
    assert graph.type_names == scope.schedules()[0][0].type_names
    assert len(graph) == len(scope.schedules()[0][0]) == 7


def test_one_addition_stays_as_it_is():
    """A sum of two is no chain."""
    with batched() as scope:
        totals = [twice(one) + twice(two) for one, two in (values(2), values(2))]
    edb.forward(totals)
    assert not calls_of(scope.report(), 'sum')[0]


@pytest.mark.parametrize('native', [True, False])
def test_add_n_is_one_type_whatever_the_number(native):
    """`mx.nd.add_n` of 1 to 6 arguments is one batch."""
    samples = [values(count) for count in range(1, 7)]
    with autograd.record():
        with batched(native=native) as scope:
            totals = [nd.add_n(*[twice(array) for array in arrays]) for arrays in samples]
        edb.stack(totals).sum().backward()
    assert calls_of(scope.report(), 'sum') == (6, 1)
    for arrays, total in zip(samples, totals):
        wanted = sum([array.asnumpy() for array in arrays]) * 2
        np.testing.assert_allclose(total.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
        assert all((array.grad.asnumpy() == 2).all() for array in arrays)
    assert 'ragged' not in str(scope.explain())


@pytest.mark.parametrize('native', [True, False])
@pytest.mark.parametrize('join', [partial(nd.concat, dim=0), lambda *values: edb.stack(values)])
def test_joined_values_are_one_type_whatever_the_number(join, native):
    """`mx.nd.concat` along axis 0, and `edb.stack`, take one type for 1 to 5 arguments."""
    samples = [values(count) for count in range(1, 6)]
    with autograd.record():
        with batched(native=native) as scope:
            joined = [join(*[twice(array) for array in arrays]) for arrays in samples]
            weighted = [(value * value).sum(axis=(0, -1)) for value in joined]
        edb.add_n([value.sum() for value in weighted]).backward()
    kinds = [kind for kind in scope.report().types if kind.name.split('[')[0] != 'HybridLambda']
    assert not [kind for kind in kinds if kind.name.startswith(('Concat', 'stack'))]
    assert len([kind for kind in kinds if kind.name.startswith(('concat', 'Reshape'))]) <= 2
    for arrays, value in zip(samples, joined):
        wanted = join(*[2 * array for array in arrays])
        assert value.shape == wanted.shape
        np.testing.assert_array_equal(value.asnumpy(), wanted.asnumpy())
        for array in arrays:
            np.testing.assert_allclose(array.grad.asnumpy(), 8 * array.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize('dtype', ['float32', 'int32'])
def test_concatenations_of_concatenations(dtype):
    """Parts of several rows, and parts that were joined before, keep their order."""
    parts = [nd.arange(WIDTH * rows, dtype=dtype).reshape((rows, WIDTH)) for rows in (1, 2, 1, 3)]
    with batched() as scope:
        one, two, three, four = [twice(part) for part in parts]
        inner = nd.concat(one, two, dim=0)
        joined = nd.concat(nd.concat(inner, three, dim=0), four, one, dim=0)
    wanted = np.concatenate([2 * part.asnumpy() for part in (*parts, parts[0])])
    np.testing.assert_array_equal(joined.asnumpy(), wanted)
    assert calls_of(scope.report(), 'concat') == (3, 1)
    np.testing.assert_array_equal(inner.asnumpy(), wanted[:3])


def test_a_partial_sum_read_later_is_right():
    """The partial sums that the user keeps are computed when one of them is read."""
    arrays = values(9)
    with autograd.record():
        with batched() as scope:
            total, partial_sums = twice(arrays[0]), []
            for array in arrays[1:]:
                total = total + twice(array)
                partial_sums.append(total)
        total.backward()
    assert scope.report().batches == 2
    wanted = np.cumsum([2 * array.asnumpy() for array in arrays], axis=0)[1:]
    for one, other in zip(partial_sums, wanted):
        np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-6, atol=1e-6)
    assert len(scope.schedules()) == 2
    assert all((array.grad.asnumpy() == 2).all() for array in arrays)
    for array in arrays:
        array.grad[:] = 0
    partial_sums[3].backward()
    assert [int(array.grad.asnumpy().max()) for array in arrays] == [2] * 5 + [0] * 4


def test_a_partial_sum_is_what_it_was_after_the_model_was_trained():
    """Neither changed parameters nor written arrays show in a partial sum that is read later."""
    dense = gluon.nn.Dense(WIDTH, in_units=WIDTH)
    dense.initialize(mx.init.Uniform(1))
    trainer = gluon.Trainer(dense.collect_params(), 'sgd', {'learning_rate': 1.0})
    arrays = values(4)
    wanted = sum([dense(array).asnumpy() for array in arrays[:3]])
    with autograd.record():
        with batched():
            computed = [dense(array) for array in arrays]
            kept = computed[0] + computed[1] + computed[2]
            total = kept + computed[3]
        total.backward()
    trainer.step(1)
    for array in (*arrays, *edb.forward(computed)):
        array[:] = 7
    np.testing.assert_allclose(kept.asnumpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_partial_sum_read_in_a_later_call():
    """What a later evaluation of the scope reads of a partial sum is right."""
    arrays = values(5)
    with batched():
        doubled = [twice(array) for array in arrays]
        kept = doubled[0] + doubled[1]
        several = edb.ragged([kept + doubled[2], doubled[3]])
        total = several.values()[0] + doubled[4]
        total.asnumpy()
        late = edb.add_n(several.values())
        late += kept
    given = [array.asnumpy() * 2 for array in arrays]
    wanted = 2 * (given[0] + given[1]) + given[2] + given[3]
    np.testing.assert_allclose(late.asnumpy(), wanted, rtol=1e-5, atol=1e-6)


def in_place(total, one):
    """Write to the total."""
    total += one
    return total


def anew(total, one):
    """Make another total."""
    return total + one


@pytest.mark.parametrize(('add', 'recorded'), [(in_place, False), (anew, False), (anew, True)])
def test_loops_that_add_up(add, recorded):
    """`total += x` and `total = total + x` are one sum."""
    arrays = values(8)
    with autograd.record() if recorded else nullcontext(), batched() as scope:
        total = twice(arrays[0])
        for array in arrays[1:]:
            total = add(total, twice(array))
    wanted = 2 * sum([array.asnumpy() for array in arrays])
    np.testing.assert_allclose(total.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
    assert calls_of(scope.report(), 'sum') == (7, 1)


@pytest.mark.parametrize('dtype', ['int32', 'float64', 'float16'])
def test_other_dtypes(dtype):
    """Sums of whole numbers are exact, and those of other dtypes as near as eager ones."""
    arrays = [nd.arange(6, dtype=dtype).reshape((1, 6)) + number for number in range(5)]
    with batched():
        total = sum([twice(array) for array in arrays])
    assert total.dtype == np.dtype(dtype)
    assert (total.asnumpy() == sum([2 * array.asnumpy() for array in arrays])).all()


def test_sums_of_several_rows_and_of_no_axes():
    """Values of two rows, and losses of shape (1,), add up as well."""
    loss_fn, samples = gluon.loss.L2Loss(), [values(4, rows) for rows in (1, 2, 1)]
    with autograd.record():
        with batched() as scope:
            losses = [sum([loss_fn(a, a * 2) for a in arrays]) for arrays in samples]
            totals = [sum([twice(array) for array in arrays]) for arrays in samples]
        edb.concat(losses).sum().backward()
    edb.forward(totals)
    for arrays, loss, total in zip(samples, losses, totals):
        given = [array.asnumpy() for array in arrays]
        np.testing.assert_allclose(total.asnumpy(), 2 * sum(given), rtol=1e-5, atol=1e-6)
        wanted = sum([np.square(array).mean(axis=1) / 2 for array in given])
        np.testing.assert_allclose(loss.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
        for array, one in zip(arrays, given):
            np.testing.assert_allclose(array.grad.asnumpy(), one / WIDTH, rtol=1e-5, atol=1e-6)
    assert calls_of(scope.report(), 'sum')[0] == 24


def test_modes_of_autograd_are_kept_apart():
    """A partial sum that was recorded under pause() hands no gradient on."""
    arrays = values(4)
    with autograd.record():
        with batched():
            with autograd.pause():
                paused = twice(arrays[0]) + twice(arrays[1]) + twice(arrays[2])
            total = paused + twice(arrays[3]) + twice(arrays[2])
        total.backward()
    assert [float(array.grad.asnumpy().max()) for array in arrays] == [0, 0, 2, 2]


def test_switched_off_by_its_option():
    """Without the option a chain stays a chain, and `explain` names `edb.add_n`."""
    with batched(additions=False) as scope:
        total = sum([twice(array) for array in values(12)])
        several = [nd.add_n(*[twice(array) for array in values(count)]) for count in (2, 3, 4)]
    edb.forward([total, several])
    report, explanation = scope.report(), str(scope.explain())
    assert report.batches > 12 and not calls_of(report, 'sum')[0]
    assert 'edb.add_n' in explanation and 'ragged' not in explanation


def test_a_chain_whose_partial_sums_are_read_is_explained():
    """Where partial sums have readers, the advice is a sum."""
    with batched() as scope:
        total, read = twice(values(1)[0]), []
        for array in values(12):
            total = total + twice(array)
            read.append(total * total)
    edb.forward(read)
    assert 'edb.add_n' in str(scope.explain())


def test_nothing_is_left_behind():
    """A scope whose partial sums nobody keeps goes with its last value."""
    with batched() as scope:
        total = sum([twice(array) for array in values(5)])
    total.asnumpy()
    recording = weakref.ref(scope._recording)
    del scope, total
    gc.collect()
    assert recording() is None


def test_results_of_other_kinds_are_not_kept():
    """While a partial sum may be read, its scope keeps results of its kind only."""
    dense = gluon.nn.Dense(1, in_units=WIDTH)
    dense.initialize()
    with batched() as scope:
        wide = [twice(array) for array in values(5)]
        total = sum([dense(value) for value in wide])
    total.asnumpy()
    assert wide[0]._store.recording is None
    kept = {key.row_shape for found in scope._recording.results.values() for key in found}
    assert kept == {(1,)}


class SumOfCalls(edb.AutoBatchMixin, gluon.Block):
    """Adds up what a cell gives for each step of a sample."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.cell = gluon.rnn.GRUCell(4, input_size=2)

    def forward(self, steps):
        states, outputs = self.cell.begin_state(1), []
        for step in steps:
            output, states = self.cell(step, states)
            outputs.append(output)
        total = 0
        for output in outputs:
            total = total + output
        return nd.tanh(sum(outputs)) + total


@pytest.mark.parametrize('native', [True, False])
def test_models_match_eager(native):
    """Outputs and gradients, by all schedulers, hybridized or not, in both modes."""
    net = SumOfCalls()
    net.initialize()
    samples = [[np.random.uniform(size=(1, 2)) for _ in range(count)] for count in (1, 3, 6)]
    with edb.compile_options(native=native, at_once=False):
        assert_matches_eager(net, samples)


def test_rounded_as_eager_gluon_rounds():
    """A chain adds up in the order in which it was written."""
    terms = [nd.array([[10.0**place, -(10.0**place), 1 / 3]]) for place in range(8)]
    eager = sum([twice(term) for term in terms])
    with batched():
        total = sum([twice(term) for term in terms])
    exact = sum([2 * term.asnumpy().astype(np.float64) for term in terms])
    error = np.abs(total.asnumpy() - exact)
    assert (error <= 2 * np.abs(eager.asnumpy() - exact) + 1e-6 * np.abs(exact)).all()


def test_concurrent_samples():
    """Samples that wait for their totals have sums of one batch a round."""

    def sample(number):
        total = twice(nd.ones((1, WIDTH)) * number)
        for _ in range(3):
            total = sum([total, twice(nd.ones((1, WIDTH))), twice(nd.ones((1, WIDTH)))])
            seen = yield total
            total = total + seen[0, 0]
        return total

    with batched() as scope:
        results = edb.run_concurrently(range(6), sample)
    wanted = np.arange(6) * 2.0
    for _ in range(3):
        wanted = (wanted + 4) * 2
    assert [float(result.asnumpy()[0, 0]) for result in results] == wanted.tolist()
    assert calls_of(scope.report(), 'sum')[1] <= 4


def test_a_scope_that_forgets():
    """Partial sums of earlier samples are forgotten with these."""
    scope = lasting('agenda')
    with scope:
        total = twice(nd.ones((1, WIDTH)))
        kept = total + twice(nd.ones((1, WIDTH)))
        total = kept + twice(nd.ones((1, WIDTH)))
        assert total.asnumpy()[0, 0] == 6
        scope.forget(scope.evaluations)
        assert not scope.calls_kept
        with pytest.raises(edb.StaleValueError):
            (kept * 2).asnumpy()
        with pytest.raises(edb.StaleValueError):
            kept.asnumpy()
