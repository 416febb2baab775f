"""run_concurrently: control flow that depends on values is eager's, in as few evaluations as the
longest sample has waits."""

import pickle

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from tests.support.models import HIDDEN, ndarrays, started

WORDS = 7


class Walker(edb.AutoBatchMixin, gluon.Block):
    """Takes steps whose cell, and whether there is another one, depend on what it has computed."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, HIDDEN)
            self.cells = nn.Sequential()
            for _ in range(2):
                self.cells.add(gluon.rnn.GRUCell(HIDDEN, input_size=HIDDEN))
            self.scores = nn.Dense(3, in_units=HIDDEN)

    def walk(self, sample):
        """A generator: the steps taken, and the lazy scores of all of them."""
        word, limit = sample
        state, path, scores = self.embed(word), [], []
        while len(path) < limit:
            scores.append(self.scores(state))
            seen, word_seen = yield scores[-1], word
            assert word_seen is word and seen.shape == (1, 3) and type(seen) is np.ndarray
            path.append(int(seen[0].argmax()))
            if path[-1] == 2:
                break
            state, _ = self.cells[path[-1]](state, [state])
        return path, scores

    async def walk_by_await(self, sample):
        """Walk as `walk` does, as a coroutine that delegates."""
        word, limit = sample
        state, path, scores = self.embed(word), [], []
        while len(path) < limit:
            scores.append(self.scores(state))
            path.append(await self.best(scores[-1]))
            if path[-1] == 2:
                break
            state, _ = self.cells[path[-1]](state, [state])
        return path, scores

    async def best(self, scores):
        """Index of the highest score."""
        answer = await edb.value({'scores': [scores]})
        return int(answer['scores'][0][0].argmax())


def gradients(net):
    return {
        name: parameter.grad().asnumpy()
        for name, parameter in net._collect_params_with_prefix().items()
    }


def train(net, samples, fn, batched):
    """Paths, scores and gradients, and the number of evaluations."""
    with autograd.record():
        if batched:
            with edb.batching() as scope:
                results = edb.run_concurrently(samples, fn)
            assert all(isinstance(score, edb.LazyArray) for _, row in results for score in row)
        else:
            results = edb.run_concurrently(samples, fn)
        scores = [score for _, row in results for score in row]
        loss = sum(((score * (i + 1)).sum() for i, score in enumerate(scores)), mx.nd.zeros(1))
    evaluations = scope.report().evaluations if batched else None
    if scores:
        loss.backward()
    return (
        [path for path, _ in results],
        [score.asnumpy() for score in scores],
        gradients(net),
        evaluations,
    )


@settings(max_examples=30)
@given(
    samples=st.lists(st.tuples(st.integers(0, WORDS - 1), st.integers(0, 8)), max_size=6),
    seed=st.integers(0, 5),
    coroutine=st.booleans(),
)
def test_batched_equals_eager(samples, seed, coroutine):
    net = started(Walker(), seed)
    net.collect_params().setattr('grad_req', 'add')  # not every path meets every cell
    fn = net.walk_by_await if coroutine else net.walk
    runs = []
    for batched in (False, True):
        net.collect_params().zero_grad()
        runs.append(train(net, samples, fn, batched))
    (paths, scores, grads, _), (found, found_scores, found_grads, evaluations) = runs
    assert found == paths
    assert evaluations == max(map(len, paths), default=0)
    for one, other in zip(found_scores, scores):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for name, grad in grads.items():
        scale = max(np.abs(grad).max(), 1e-3)
        np.testing.assert_allclose(found_grads[name], grad, atol=2e-5 * scale, err_msg=name)


def test_paths_differ_in_the_property_test():
    net, samples = started(Walker(), 3), [(word, 8) for word in range(WORDS)]
    lengths = {len(path) for path, _ in edb.run_concurrently(samples, net.walk)}
    assert len(lengths) > 1


def test_only_what_is_waited_for_is_computed():
    net, x = started(nn.Dense(3, in_units=4)), ndarrays(2, (1, 4))

    def fn(sample):
        unread = net(sample)
        yield net(sample * 2)
        return unread

    with edb.batching() as scope:
        unread = edb.run_concurrently(x, fn)
    assert scope.report().evaluations == 1
    assert 'not computed' in repr(unread[0])
    np.testing.assert_allclose(unread[1].asnumpy(), net(x[1]).asnumpy(), rtol=1e-6)


@pytest.mark.parametrize('bare', ['yield', 'await', 'no'])
def test_waiting_for_all_that_is_recorded(bare):
    """Else a chain would be computed link by link, as its links are waited for."""
    net, xs = started(nn.Dense(4, in_units=4)), ndarrays(3, (1, 4))

    def chain(x):
        links = [net(x)]
        for _ in range(3):
            links.append(net(links[-1]))
        return links

    def generator(x):
        links = chain(x)
        if bare == 'yield':
            assert (yield) is None
        for number, link in enumerate(links):
            links[number] = yield link
        return links

    async def coroutine(x):
        links = chain(x)
        assert await edb.value() is None
        return [await edb.value(link) for link in links]

    fn = coroutine if bare == 'await' else generator
    with edb.batching() as scope:
        found = edb.run_concurrently(xs, fn)
    assert scope.report().evaluations == (4 if bare == 'no' else 1)
    np.testing.assert_allclose(found, edb.run_concurrently(xs, fn), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('lazy', [True, False])
def test_structures(lazy):
    """What is not an array comes back as it is; each array comes back as NumPy of its own."""
    net, x = started(nn.Dense(3, in_units=4)), ndarrays(1, (2, 4))[0]
    thing, given = object(), np.ones(2)

    def fn(_):
        both = net(x), net(x * 2)
        answer = yield {'a': [both[0], (both[1], 5)], 'b': (thing, None, 'text', given, x)}
        (one, (two, five)), (same, nothing, text, array, x_seen) = answer['a'], answer['b']
        assert five == 5 and same is thing and nothing is None and text == 'text'
        assert array is given
        np.testing.assert_array_equal(x_seen, x.asnumpy())
        np.testing.assert_allclose(one, net(x).asnumpy(), rtol=1e-6)
        one[:] = -np.inf  # nobody else sees this
        again, twice = yield [both[0], both[0]]
        assert np.isfinite(again).all() and np.isfinite(two).all()
        again[0, 0] = 7
        assert twice[0, 0] != 7
        assert (yield None) is None
        ragged = yield edb.ragged(list(both))
        assert ragged.shape == (2, 2, 3)
        return two

    if lazy:
        with edb.batching():
            results = edb.run_concurrently([0, 1], fn)
    else:
        results = edb.run_concurrently([0, 1], fn)
    assert [type(result) for result in results] == [np.ndarray] * 2
    np.testing.assert_allclose(results[0], net(x * 2).asnumpy(), rtol=1e-6)


def test_values_of_several_kinds_and_rounds():
    """Rows that lie apart in an arena, behind others; several arenas; values of earlier rounds."""
    wide, narrow = started(nn.Dense(4, in_units=4)), started(nn.Dense(2, in_units=4))
    xs = ndarrays(6, (1, 4))

    def fn(sample):
        number, x = sample
        y, z = wide(x), narrow(x)
        first = (yield y) if number % 2 else (yield z)
        later = wide(x * 3)
        return first, (yield y, z, later)

    eager = edb.run_concurrently(enumerate(xs), fn)
    with edb.batching() as scope:
        batched = edb.run_concurrently(enumerate(xs), fn)
    assert scope.report().evaluations == 2
    for (first, rest), (right, others) in zip(batched, eager):
        for one, other in zip([first, *rest], [right, *others]):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_values_of_one_kind_are_fetched_together(monkeypatch):
    """However many rows each has."""
    given = {rows: mx.nd.random.uniform(shape=(rows, HIDDEN)) for rows in range(1, 8)}
    fetched, asnumpy = [], mx.nd.NDArray.asnumpy

    def noted(array):
        fetched.append(array.shape)
        return asnumpy(array)

    def look(rows):
        return (yield edb.nd.tanh(edb.nd.BlockGrad(given[rows])))

    expected = [np.tanh(given[rows].asnumpy()) for rows in given]
    with edb.batching():
        monkeypatch.setattr(mx.nd.NDArray, 'asnumpy', noted)
        found = edb.run_concurrently(range(1, 8), look)
        monkeypatch.undo()
    assert fetched == [(28, HIDDEN)]
    for each, other in zip(found, expected):
        np.testing.assert_allclose(each, other, rtol=1e-5, atol=1e-6)


def test_functions_that_do_not_wait():
    net, xs = started(nn.Dense(3, in_units=4)), ndarrays(3, (1, 4))

    def generator(x):
        return net(x)
        yield

    async def coroutine(x):
        return net(x)

    with edb.batching() as scope:
        results = [edb.run_concurrently(xs, fn) for fn in (net, generator, coroutine)]
        assert edb.run_concurrently([], generator) == []
    assert scope.report().evaluations == 0
    for row in results:
        for x, result in zip(xs, row):
            np.testing.assert_allclose(result.asnumpy(), net(x).asnumpy(), rtol=1e-6)


def test_generators_delegate():
    net, xs = started(nn.Dense(3, in_units=4)), ndarrays(3, (1, 4))

    def half(value):
        return (yield value) / 2

    def fn(x):
        halved = yield from half(net(x))
        same = yield from edb.value(net(x))
        return same - 2 * halved

    with edb.batching():
        assert not np.any(edb.run_concurrently(xs, fn))


@pytest.mark.parametrize('batched', [True, False])
@pytest.mark.parametrize('asynchronous', [True, False])
def test_an_exception_names_the_sample_and_closes_all(batched, asynchronous):
    net, xs = started(nn.Dense(3, in_units=4)), ndarrays(4, (1, 4))
    open_samples = set()

    def generator(number):
        open_samples.add(number)
        try:
            yield net(xs[number])
            if number == 2:
                raise KeyError('lost')
            yield net(xs[number])
        finally:
            open_samples.discard(number)

    async def coroutine(number):
        open_samples.add(number)
        try:
            await edb.value(net(xs[number]))
            if number == 2:
                raise KeyError('lost')
            await edb.value(net(xs[number]))
        finally:
            open_samples.discard(number)

    def run():
        return edb.run_concurrently(range(4), coroutine if asynchronous else generator)

    with pytest.raises(edb.SampleError, match=r"sample 2 failed in .*: KeyError: 'lost'") as caught:
        if batched:
            with edb.batching():
                run()
        else:
            run()
    assert caught.value.index == 2 and isinstance(caught.value.__cause__, KeyError)
    assert not open_samples
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.index) == (str(caught.value), 2)


def test_an_exception_when_samples_begin():
    async def coroutine(number):  # closed, or there would be a warning
        return number

    def fn(number):
        return coroutine(number) if number < 2 else 1 // 0

    with edb.batching(), pytest.raises(edb.SampleError, match='sample 2 failed .*ZeroDivision'):
        edb.run_concurrently(range(4), fn)


def test_scopes_must_not_leak_to_other_samples():
    net, xs = started(nn.Dense(3, in_units=4)), ndarrays(2, (1, 4))

    def paused(x):
        with autograd.pause():
            yield net(x)

    def nested(x):
        with edb.batching():
            yield net(x)

    def outside(x):
        with autograd.pause():
            value = net(x)
        return (yield value)

    for fn in (paused, nested):
        with autograd.record(), edb.batching():
            with pytest.raises(edb.RecordError, match=r'sample 0 waits .*\n.*test_concurrent.py'):
                edb.run_concurrently(xs, fn)
            assert autograd.is_recording()
    with autograd.record(), edb.batching():
        assert len(edb.run_concurrently(xs, outside)) == 2


def test_asynchronous_generators_are_refused():
    async def fn(x):
        yield x

    with pytest.raises(TypeError, match='not both in one'):
        edb.run_concurrently([1], fn)


def test_blocks_take_numbers_in_eager_runs():
    """Also where the generator is not a method of the mixin, and within an eager mixin model."""
    net = started(Walker(), 3)
    paths = [path for path, _ in edb.run_concurrently([(1, 3), (2, 3)], net.walk)]

    def walk(sample):
        return (yield from net.walk(sample))

    class Outer(edb.AutoBatchMixin, gluon.Block):
        """Runs a search within its forward."""

        def forward(self, samples):
            found = edb.run_concurrently(samples, walk)
            net.embed(1)  # numbers are still taken
            return [path for path, _ in found]

    assert [path for path, _ in edb.run_concurrently([(1, 3), (2, 3)], walk)] == paths
    assert Outer()([(1, 3), (2, 3)]) == paths


def test_report_counts_rounds_at_the_users_line():
    net = started(Walker(), 3)
    with edb.batching() as scope:
        results = edb.run_concurrently([(word, 4) for word in range(WORDS)], net.walk)
    report = scope.report()
    assert report.evaluations == max(len(path) for path, _ in results)
    assert {site.filename for site in report.forced} == {__file__}
