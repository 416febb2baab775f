"""Plain code that reads values: samples take turns where nobody can see it, else run in order."""

import gc
import random
import weakref
from typing import NamedTuple

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.api import concurrent
from gluon_edbatch.record.sample_greenlets import SuspendedSample
from tests.fuzz import walk_reads
from tests.support.models import started

SIZE, WORDS = 4, 6
SAMPLES = [[1, 2, 3, 4], [5, 1], [3, 3, 2], [4], [2, 5, 1, 1]]
LOG = []


class Reader(edb.AutoBatchMixin, gluon.Block):
    """Moves over a sentence as its scores say."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, SIZE)
            self.cell = gluon.rnn.GRUCell(SIZE, input_size=SIZE)
            self.scores = nn.Dense(3, in_units=SIZE)
        self.count = 0

    def forward(self, words):
        place, path, states = 0, [], self.cell.begin_state(1)
        while len(path) < 6:
            output, states = self.cell(self.embed(words[place]), states)
            scores = self.scores(output)
            action = self.choose(scores)
            if action == 0:
                break
            place = (place + action) % len(words)
            path.append(place)
        return path, states[0]

    def choose(self, scores):
        return int(scores.argmax(axis=1).asscalar())


def run(net, samples=SAMPLES):
    """Return results, the number of evaluations and why samples were not suspended."""
    with edb.batching() as scope:
        results = edb.run_concurrently(samples, net)
    reasons = scope._recording.evaluator.reasons
    return results, scope.report().evaluations, next(iter(reasons.values()), '')


def net_of(cls=Reader, seed=3):
    mx.random.seed(seed)
    net = cls()
    net.initialize(mx.init.Normal(1))
    return net


@pytest.mark.parametrize(('read', 'times'), [
    (lambda scores: int(scores.argmax(axis=1).asscalar()), 1),
    (lambda scores: int(scores.asnumpy()[0].argmax()), 1),
    (lambda scores: max(range(3), key=lambda k: float(scores[0, k].asscalar())), 3),
    (lambda scores: 1 if scores[:, 0].sum() > 0 else 2, 1),
])  # fmt: skip
def test_reads_are_rounds(read, times):
    net = net_of()
    type(net).choose = staticmethod(read)
    try:
        eager = [net(words) for words in SAMPLES]
        found, evaluations, why = run(net)
        assert [path for path, _ in found] == [path for path, _ in eager]
        for (_, one), (_, other) in zip(net.batch(SAMPLES), eager):
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5, atol=1e-6)
        rounds = max(len(path) for path, _ in eager) + 1
        assert not why and evaluations <= rounds * times, why
    finally:
        type(net).choose = _CHOOSE


_CHOOSE = Reader.choose


def test_gradients_are_those_of_eager_mode():
    net, gradients = net_of(), []
    net.collect_params().setattr('grad_req', 'add')
    for run_all in (lambda: [net(words) for words in SAMPLES], lambda: net.batch(SAMPLES)):
        net.collect_params().zero_grad()
        with autograd.record():
            loss = sum([(state * state).sum() for _, state in run_all()], mx.nd.zeros(1))
        loss.backward()
        gradients.append([each.grad().asnumpy() for each in net.collect_params().values()])
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def counts(self, scores):
    self.count += 1
    return _CHOOSE(self, scores)


def logs(self, scores):
    LOG.append(scores.shape)
    return _CHOOSE(self, scores)


def draws(self, scores):
    return _CHOOSE(self, scores) if random.random() < 0.9 else 0


def pauses(self, scores):
    with autograd.pause():
        return _CHOOSE(self, scores)


@pytest.mark.parametrize(
    ('choose', 'words'),
    [
        (counts, 'writes self.count, which others share'),
        (logs, 'writes LOG.append(scores.shape), which others share'),
        (draws, 'calls Random.random, which is not known to be pure'),
        (pauses, 'has a statement that is not understood: with autograd.pause()'),
    ],
)
def test_what_others_could_see_runs_in_order(choose, words):
    net = net_of()
    Reader.choose = choose
    try:
        _, evaluations, why = run(net)
    finally:
        Reader.choose = _CHOOSE
    line = choose.__code__.co_firstlineno + 1
    assert f'samples ran one after the other: {__file__.rpartition("/")[2]}' in why.replace(
        'tests/integration/', ''
    )
    assert f':{line} {words}' in why and evaluations > 6
    assert not run(net)[2]  # the change was noticed, and so is its end


def test_hooks_run_in_order():
    net = net_of()
    handle = net.scores.register_forward_hook(lambda *_: LOG.append(0))
    assert 'which has a hook' in run(net)[2]
    handle.detach()
    assert not run(net)[2]


class Node:
    def __init__(self, word, children=()):
        self.word, self.children, self.state = word, list(children), None


class Marks(Reader):
    """Keeps states in its sample."""

    def forward(self, node):
        node.state = self.embed(node.word)
        for child in node.children:
            self(child)
            node.state = node.state + child.state
        return float(self.scores(node.state).max().asscalar())


def test_writing_to_samples():
    def trees():
        return [Node(1, [Node(2)]), Node(3), Node(4, [Node(1), Node(2)])]

    net = net_of(Marks)
    expected = [net(tree) for tree in trees()]
    found, evaluations, why = run(net, trees())
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not why and evaluations <= 3
    shared = trees()
    shared[1].children.append(shared[0].children[0])
    assert 'samples that the program writes to share a Node' in run(net, shared)[2]


class Failing(Reader):
    """Raises for some samples, in a later round for the first of them."""

    def forward(self, word):
        h = self.embed(word)
        for _ in range(4 - word):
            h, _ = self.cell(h, [h])
            float(h.max().asscalar())
        if word in (1, 2):
            raise ValueError(f'word {word}')
        return h


def test_the_error_is_that_of_eager_mode():
    net = net_of(Failing)
    for samples in ([3, 1, 2, 3], [2, 1]):
        with pytest.raises(ValueError) as eager:
            _ = [net(word) for word in samples]
        with pytest.raises(ValueError) as batched:
            net.batch(samples)
        assert str(batched.value) == str(eager.value)
        assert batched.value.__cause__ is None
        with pytest.raises(edb.SampleError) as found, edb.batching():
            edb.run_concurrently(samples, net)
        assert isinstance(found.value.__cause__, ValueError)
        assert found.value.index == next(k for k, word in enumerate(samples) if word < 3)


class Interrupted(Failing):
    """Is interrupted after a read."""

    left = []

    def forward(self, word):
        h = self.embed(word)
        try:
            if float(h.max().asscalar()) and word == 2:
                raise KeyboardInterrupt
            return float((h * 2).max().asscalar())
        finally:
            word = None


def test_an_interrupt_closes_all_samples():
    net = net_of(Interrupted)
    with pytest.raises(KeyboardInterrupt):
        net.batch([1, 2, 3])
    assert len(net.batch([1, 3])) == 2


class Step(NamedTuple):
    h: object
    score: float


class Beam(Reader):
    """Reads several values at one step."""

    def forward(self, words):
        beam = [Step(self.embed(words[0]), 0.0)]
        for word in words[1:3]:
            steps = [self.cell(each.h, [self.embed(word)])[0] for each in beam for _ in range(2)]
            scores = [self.scores(h) for h in steps]
            found = [each.asnumpy()[0].max() for each in scores]
            beam = sorted(map(Step, steps, found), key=lambda step: -step.score)[:2]
        return beam[0].score


def test_several_reads_are_one_round():
    net = net_of(Beam)
    samples = [[1, 2, 3], [3, 4, 5], [2, 2, 1]]
    found, evaluations, why = run(net, samples)
    np.testing.assert_allclose(found, [net(words) for words in samples], rtol=1e-5)
    assert not why and evaluations == 2


@edb.pure
def looks_up(table, score):
    with open(table) as file:
        return len(file.read()) + score


def test_a_function_that_the_user_calls_pure(tmp_path):
    table = tmp_path / 'table'
    table.write_text('abc')
    net = net_of()

    def program(words):
        return looks_up(table, net.choose(net.scores(net.embed(words[0]))))

    assert not run(program)[2]
    looks = looks_up.__edb_pure__
    del looks_up.__edb_pure__
    try:
        assert 'open' in run(program)[2] or 'with' in run(program)[2]
    finally:
        looks_up.__edb_pure__ = looks


def test_in_an_engine():
    net = net_of()
    expected = [net.batch([words])[0][0] for words in SAMPLES]
    with edb.serving.Engine(net, warm_up=SAMPLES) as engine:
        futures = [engine.future(words) for words in SAMPLES * 4]
        assert [each.result()[0] for each in futures] == expected * 4


class Rereads(Reader):
    """Writes to what it has read, and reads again."""

    def forward(self, words):
        scores, other = [self.scores(self.embed(words[place])) for place in (0, -1)]
        scores.asnumpy()[:] = 0
        other.asnumpy()[:] = 0
        for _ in range(3):
            other.asnumpy()[:] += 1
        return scores.asnumpy(), scores.asnumpy(), other.asnumpy()


def test_each_read_is_a_copy():
    net = net_of(Rereads)
    found, evaluations, why = run(net)
    np.testing.assert_allclose(found, [net(words) for words in SAMPLES], rtol=1e-5)
    assert not why and evaluations == 1


def test_ragged_values_of_several_rounds():
    net = net_of()

    def program(words):
        first = net.embed(words[0])
        mean = float(first.mean().asscalar())
        rest = [net.embed(word) * mean for word in words[1:]]
        return edb.ragged([first, *rest]).asnumpy(), edb.ragged(rest or [first * mean]).asnumpy()

    def with_steps(words):
        first = net.embed(words[0])
        mean = float((yield first.mean())[0])
        rest = [net.embed(word) * mean for word in words[1:]]
        return (yield [edb.ragged([first, *rest]), edb.ragged(rest or [first * mean])])

    weight = net.embed.weight.data().asnumpy()
    for fn in (program, with_steps):
        for (every, rest), words in zip(run(fn)[0], SAMPLES):
            vectors = weight[words]
            expected = np.concatenate([vectors[:1], vectors[1:] * vectors[0].mean()])
            np.testing.assert_allclose(every, expected[None], rtol=1e-5)
            if len(words) > 1:
                np.testing.assert_allclose(rest, expected[None, 1:], rtol=1e-5)


class Endless(Reader):
    """Never stops for one word, and raises for another."""

    def forward(self, word):
        h = self.embed(word)
        while float(h.max().asscalar()) < 1e6 and word < 3:
            if word == 2:
                raise ValueError('two')
            h = h * 0.5 if word == 1 else h + 1e6
        return word


def test_in_an_engine_the_others_finish():
    with edb.serving.Engine(net_of(Endless), max_rounds=20) as engine:
        futures = [engine.future(word) for word in (0, 1, 2, 3, 0)]
        assert [futures[k].result() for k in (0, 3, 4)] == [0, 3, 0]
        with pytest.raises(edb.StepsError):
            futures[1].result()
        with pytest.raises(ValueError, match='two'):
            futures[2].result()


def test_in_a_loop_reads_are_in_place():
    net = net_of()
    with edb.batching() as scope:
        _ = [net(words) for words in SAMPLES]
    assert 'net.batch(samples)' in str(scope.explain())


class Sometimes(Reader):
    """Reads a value of long sentences only."""

    def forward(self, words):
        scores = self.scores(self.cell(self.embed(words[0]), self.cell.begin_state(1))[0])
        return scores * self.choose(scores) if len(words) > 2 else scores


def test_programs_that_read_nothing_have_no_greenlets():
    """Until a call that reads, whose samples run in order; those of later calls are suspended."""
    short, net = [[1], [2, 3], [4]], net_of(Sometimes)
    made = []

    class Sample(SuspendedSample):
        """Counts those that are made."""

        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrent, 'SuspendedSample', Sample)
        for samples, count in ((short, 3), (short, 0), (SAMPLES, 0), (SAMPLES, len(SAMPLES))):
            made.clear()
            for one, other in zip(net.batch(samples), map(net, samples)):
                np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5, atol=1e-6)
            assert len(made) == count


def test_random_programs():
    assert walk_reads.main(['--cases', '60', '--seed', '11']) == 0


@pytest.mark.parametrize('kind', ['SHARED', 'FREE'])
def test_each_statement(kind):
    """Each statement of the random programs, alone between two reads."""
    blocks, wrong = walk_reads.Blocks(), []
    for number, statement in enumerate(getattr(walk_reads, kind)):
        text = statement.replace('AT', 'at').replace('{}', 'pass')
        source = walk_reads.source_of(f'n = self.best(h)\n{text}\nn = self.best(h)', 'Noting')
        _, why = walk_reads.run(number, source, False, blocks, 'concurrent')
        is_free = kind == 'FREE' or text == 'n = self.count'  # which nothing writes
        if (why == walk_reads.SUSPENDED) != is_free:
            wrong.append((text, why))
    assert not wrong


def test_models_are_not_kept():
    net = net_of()
    run(net)
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


def test_layers_trace_as_before():
    net = started(nn.Dense(2, in_units=SIZE))
    assert len(edb.run_concurrently([mx.nd.ones((1, SIZE))] * 2, net)) == 2
