"""What each worker gets: each sample once, equally many minibatches, of nearly equal cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.data import BalancedSampler, idle_share

numbers = st.floats(0, 100, allow_subnormal=False)


@st.composite
def samplers(draw):
    workers = draw(st.integers(1, 5))
    costs = draw(st.lists(numbers, min_size=workers, max_size=80))
    settings = dict(
        batch_size=draw(st.integers(1, 9)),
        num_workers=workers,
        shuffle=draw(st.booleans()),
        bucket_steps=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 99)),
    )
    return [BalancedSampler(costs, rank=rank, **settings) for rank in range(workers)]


@given(samplers(), st.integers(0, 3))
def test_every_sample_once_and_equally_many_minibatches(workers, number):
    epochs = [sampler.epoch(number) for sampler in workers]
    first = workers[0]
    assert {len(epoch) for epoch in epochs} == {len(first)}
    seen = sorted(i for epoch in epochs for minibatch in epoch for i in minibatch)
    assert seen == list(range(len(first.costs)))
    for step, joined in enumerate(first.joined_sizes):
        sizes = [len(epoch[step]) for epoch in epochs]
        assert sum(sizes) == joined and min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


@given(samplers(), st.integers(0, 3), st.integers(0, 30))
def test_an_epoch_goes_on_from_any_step(workers, number, done):
    for sampler in workers:
        whole = list(sampler.epoch(number))
        assert list(sampler.epoch(number)[done:]) == whole[done:]


@given(samplers())
def test_loads_differ_by_one_sample_at_most(workers):
    """In hands of one size, the worker with the greater load took its last sample while it had
    less."""
    sampler = workers[0]
    for step, joined in enumerate(sampler._joined(0)):
        hands = sampler.deal(joined)
        largest = max(sampler.costs[joined])
        if len(joined) % sampler.num_workers == 0:
            loads = [sampler.costs[hand].sum() for hand in hands]
            assert max(loads) - min(loads) <= largest * (1 + 1e-9), (step, hands)


def test_one_process_draws_what_it_always_drew():
    sampler = BalancedSampler(10, 4, seed=3)
    order = np.random.RandomState([3, 7]).permutation(10).tolist()
    assert list(sampler.epoch(7)) == [order[:4], order[4:8], order[8:]]
    assert list(sampler.epoch(8)) != list(sampler.epoch(7))
    assert list(BalancedSampler(3, 2, shuffle=False).epoch(1)) == [[0, 1], [2]]


def test_workers_together_draw_what_one_process_draws():
    one = BalancedSampler(100, 6, seed=1).epoch(2)
    settings = dict(num_workers=3, seed=1)
    three = [BalancedSampler(range(100), 2, rank=r, **settings).epoch(2) for r in range(3)]
    assert [set(step) for step in one] == [set().union(*step) for step in zip(*three)]


def costs_like_sentences():
    return np.random.RandomState(0).gamma(4, 5, 4500).round() + 2


def test_balanced_workers_wait_less():
    costs = costs_like_sentences()
    balanced = BalancedSampler(costs, 25, num_workers=2)
    by_chance = BalancedSampler(len(costs), 25, num_workers=2)
    assert idle_share(balanced, range(3)) < 0.005
    assert idle_share(by_chance, range(3), costs) > 0.04
    assert idle_share(BalancedSampler(costs, 25, num_workers=8), range(3)) < 0.03


def test_samples_of_a_bucket_cost_alike():
    costs = costs_like_sentences()

    def spread(steps):
        sampler = BalancedSampler(costs, 25, bucket_steps=steps)
        return np.mean([np.ptp(costs[minibatch]) for minibatch in sampler.epoch(1)])

    assert spread(20) < 0.2 * spread(1)
    first, second = (list(BalancedSampler(costs, 25, bucket_steps=20).epoch(n)) for n in (1, 2))
    assert first != second
    means = [costs[minibatch].mean() for minibatch in first[:20]]
    assert means != sorted(means)  # the steps of a bucket are shuffled


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(costs=3, batch_size=0), 'are 1 or more'),
        (dict(costs=3, batch_size=1, num_workers=2, rank=2), 'a rank is below the workers'),
        (dict(costs=3, batch_size=1, num_workers=4), '3 samples for 4 workers'),
        (dict(costs=[1, float('nan')], batch_size=1), 'a cost is a finite number'),
        (dict(costs=[1, -1], batch_size=1), 'a cost is a finite number'),
    ],
)
def test_what_cannot_be_dealt_out(arguments, message):
    with pytest.raises(ValueError, match=message):
        BalancedSampler(**arguments)


def test_costs_are_recorded_calls():
    cell = gluon.nn.Dense(3, in_units=3)
    cell.initialize()
    ran = []

    def chain(length):
        value = np.ones((1, 3), np.float32)
        for _ in range(length):
            value = cell(value)
        ran.append(type(value))

    lengths = [3, 1, 7] * 50
    assert edb.data.recorded_calls(chain, lengths).tolist() == lengths
    assert set(ran) == {edb.LazyArray}


class Parsed(gluon.data.Dataset):
    """Sentences that are parsed when somebody asks for them."""

    def __getitem__(self, index):
        return ('parsed', index)

    def __len__(self):
        return 11


@pytest.mark.parametrize('processes', [0, 2])
def test_gluons_loader_parses_in_other_processes(processes):
    sampler = BalancedSampler(len(Parsed()), 4, seed=5)
    loader = gluon.data.DataLoader(
        Parsed(),
        batch_sampler=sampler.epoch(1)[1:],
        batchify_fn=edb.data.as_list,
        num_workers=processes,
        prefetch=2,
    )
    expected = [[('parsed', i) for i in minibatch] for minibatch in sampler.epoch(1)[1:]]
    assert list(loader) == expected and len(expected) == 2
