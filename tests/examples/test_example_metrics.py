"""The example's figures."""

import numpy as np
import pytest

from example.tree_lstm.metrics import agreement, expected_scores


def test_expected_scores():
    log_probabilities = np.log([[0.5, 0.5, 1e-30, 1e-30, 1e-30], [0.2, 0.2, 0.2, 0.2, 0.2]])
    np.testing.assert_allclose(expected_scores(log_probabilities), [1.5, 3])


def test_agreement_of_figures_known_by_hand():
    figures = agreement([1, 2, 3, 5], [2, 4, 6, 7])
    assert figures.pearson == pytest.approx(np.corrcoef([1, 2, 3, 5], [2, 4, 6, 7])[0, 1])
    assert figures.spearman == pytest.approx(1)
    assert figures.mse == pytest.approx((1 + 4 + 9 + 4) / 4)
    assert str(figures) == f'r {figures.pearson:.4f}  rho 1.0000  mse 4.5000'


def test_equal_values_share_the_mean_of_their_ranks():
    # Ranks 1, 2.5, 2.5, 4 against 2, 1, 3.5, 3.5.
    expected = np.corrcoef([1, 2.5, 2.5, 4], [2, 1, 3.5, 3.5])[0, 1]
    assert agreement([1, 2, 2, 5], [4, 1, 9, 9]).spearman == pytest.approx(expected)


@pytest.mark.parametrize('predicted, true', [([2, 2, 2], [1, 2, 3]), ([1, 2], [3, 3]), ([1], [2])])
def test_nothing_told_apart(predicted, true):
    assert agreement(predicted, true)[:2] == (0, 0)


@pytest.mark.parametrize('predicted, true', [([], []), ([1, 2], [1]), ([[1]], [[1]])])
def test_wrong_shapes(predicted, true):
    with pytest.raises(ValueError, match='predictions for'):
        agreement(predicted, true)
