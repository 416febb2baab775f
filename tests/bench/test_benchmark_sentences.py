"""Models of whole sentences among the workloads of python -m benchmarks, and rivals that pad."""

import numpy as np
import pytest

from benchmarks.rivals.padding import plan_sentences
from benchmarks.workloads import load_workload
from example.sentence_sst.data import Sentence
from example.tree_sst import make_sample
from tests.support.padded_rivals import (
    RIVALS,
    assert_rival_equals,
    assert_trains_like_the_model,
    rivals,
    settings,
)

NAMES = ['transformer-sst', 'adaptive']


def sentences():
    """More than there are groups, one word and equal lengths among them."""
    return [Sentence(range(n, n + length), n % 5) for n, length in enumerate([3, 1, 9, 3, 2, 7])]


@pytest.mark.parametrize('name', NAMES)
def test_products_are_those_of_the_eager_model(name, products):
    workload = load_workload(settings(name, hidden=8))
    net, _ = workload.build()
    products.clear()
    samples = [*sentences(), *workload.samples[:3]]
    for sample in samples:
        workload.predict(net, sample)
    assert workload.products(samples) == dict(products)


def test_levels():
    reader = load_workload(settings('adaptive', hidden=8))
    assert 2 <= reader.levels(sentences()) <= 8
    assert load_workload(settings('transformer-sst', hidden=8)).levels(sentences()) == 1


@pytest.mark.parametrize('name', NAMES)
def test_real_data_are_found_by_their_folder(name, tmp_path):
    make_sample.write_sample(tmp_path / 'sst', {'train': 40, 'dev': 20, 'test': 20})
    assert len(load_workload(settings(name, hidden=8, data=str(tmp_path))).samples) == 40


@pytest.mark.parametrize('optimizer', ['sgd', 'adam'])
@pytest.mark.parametrize('system', RIVALS)
@pytest.mark.parametrize('name', NAMES)
def test_rival_equals_the_model_one_sentence_at_a_time(name, system, optimizer):
    assert_rival_equals(name, system, sentences(), optimizer=optimizer, hidden=8)


@pytest.mark.parametrize('system', RIVALS)
@pytest.mark.parametrize('name', NAMES)
def test_rival_trains_like_the_model(name, system):
    assert_trains_like_the_model(name, system, hidden=8)


@pytest.mark.filterwarnings('ignore:The PyTorch API of nested tensors is in prototype stage')
@pytest.mark.parametrize('system', rivals(['nested-torch']))
def test_nested_tensors_equal_the_model(system):
    assert_rival_equals('transformer-sst', system, sentences(), hidden=8)
    assert_trains_like_the_model('transformer-sst', system, hidden=8)


def test_sentences_in_groups():
    samples = [Sentence(words, 0) for words in ([7, 8, 9], [5], [6, 4], [3, 2])]
    (short, long), back = plan_sentences(samples, 2)
    assert short.words.tolist() == [[5, 0], [6, 4]] and short.lengths.tolist() == [1, 2]
    assert long.words.tolist() == [[3, 2, 0], [7, 8, 9]] and long.lengths.tolist() == [2, 3]
    assert np.concatenate([[1, 2], [3, 0]])[back].tolist() == [0, 1, 2, 3]
    groups, _ = plan_sentences(samples[:1], 4)
    assert len(groups) == 1
