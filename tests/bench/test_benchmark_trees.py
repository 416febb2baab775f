"""The Transformer on trees among the workloads of python -m benchmarks, and its rivals that pad."""

import pytest

from benchmarks.rivals.padding import plan_phrases
from benchmarks.workloads import load_workload
from example.tree_sst.data import build_samples, parse_tree
from tests.support.padded_rivals import (
    RIVALS,
    assert_rival_equals,
    assert_trains_like_the_model,
    settings,
)

NAME = 'tree-transformer'
LINES = [
    '(2 alone)',
    '(3 (2 a) (4 (1 b) (0 c)))',
    '(4 (2 (0 (2 d) (2 (1 e) (3 f))) (1 b)) (0 c))',
    '(1 (2 a) (2 g))',
]


def samples():
    """A word alone, and trees of several heights."""
    return build_samples(
        map(parse_tree, LINES), lambda words: [ord(word[0]) % 20 for word in words]
    )


def test_products_are_those_of_the_eager_model(products):
    workload = load_workload(settings(NAME))
    net, _ = workload.build()
    products.clear()
    chosen = [*samples(), *workload.samples[:3]]
    for sample in chosen:
        workload.predict(net, sample)
    assert workload.products(chosen) == dict(products)


@pytest.mark.parametrize('optimizer', ['sgd', 'adam'])
@pytest.mark.parametrize('system', RIVALS)
def test_rival_equals_the_model_one_tree_at_a_time(system, optimizer):
    assert_rival_equals(NAME, system, samples(), optimizer=optimizer)


@pytest.mark.parametrize('system', RIVALS)
def test_rival_trains_like_the_model(system):
    assert_trains_like_the_model(NAME, system)


def test_phrases_by_height():
    lone, three, *_ = samples()
    plan = plan_phrases([three.tree, lone.tree])
    assert plan.words.tolist() == [ord(word) % 20 for word in 'abca']
    low, high = plan.heights
    assert (low.begin, low.end, high.begin, high.end) == (4, 5, 5, 6)
    assert low.parts.tolist() == [[1, 2]] and low.inside.tolist() == [[1, 2]]
    assert high.parts.tolist() == [[0, 4]] and high.inside.tolist() == [[0, 1, 2, 4]]
    assert plan.order.tolist() == [0, 1, 2, 5, 3, 4] and plan.back.tolist() == [0, 1, 2, 4, 5, 3]


def test_padding_is_not_there():
    plan = plan_phrases([sample.tree for sample in samples()[1:3]])
    top = plan.heights[1]  # 'a (b c)' and 'd (e f)'
    assert top.there.tolist() == [[1] * 4] * 2
    assert plan_phrases([sample.tree for sample in samples()]).heights[0].there.all()
