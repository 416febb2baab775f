"""Operators of ragged values in NumPy: values of a batch lie call after call, without padding."""

from typing import Any, Callable, NamedTuple

import numpy as np


class Segments(NamedTuple):
    """What belongs together among ragged values: how many each call has, (n,), and the call of each
    value, (m,), ascending."""

    lengths: np.ndarray
    parents: np.ndarray


def segments_of(lengths: np.ndarray) -> Segments:
    """Return the segments of calls with so many values."""
    return Segments(lengths, np.arange(len(lengths)).repeat(lengths))


Step = Callable[..., np.ndarray]  # of arrays and segments


def over_values(function: Any, x: np.ndarray, segments: Segments) -> np.ndarray:
    """Return a function over the values of each call; 0 for calls without values."""
    made = np.zeros((len(segments.lengths), *x.shape[1:]), x.dtype)
    some = segments.lengths > 0
    if len(x):
        starts = (segments.lengths.cumsum() - segments.lengths)[some]
        made[some] = function.reduceat(x, starts, axis=0)
    return made


def _sum(x: np.ndarray, segments: Segments) -> np.ndarray:
    return over_values(np.add, x, segments)


def _max(x: np.ndarray, segments: Segments) -> np.ndarray:
    return over_values(np.maximum, x, segments)


def _mean(x: np.ndarray, segments: Segments) -> np.ndarray:
    lengths = np.maximum(segments.lengths, 1).astype(x.dtype)
    return _sum(x, segments) / lengths.reshape((-1,) + (1,) * (x.ndim - 1))


REDUCTIONS: dict[str, Step] = {'sum': _sum, 'max': _max, 'mean': _mean}


def reduced(function: Step, keep: bool) -> Step:
    """Return one of `REDUCTIONS` over the values of each call."""
    return lambda x, segments: function(x, segments)[:, None] if keep else function(x, segments)


def of_parents(function: Any, long: list[bool]) -> Step:
    """Return a function of ragged values and of one row for each call, (n, 1, ...)."""

    def step(x: np.ndarray, y: np.ndarray, segments: Segments) -> np.ndarray:
        of_call = y if long[0] else x
        if of_call.shape[1] != 1:
            raise ValueError(f'{of_call.shape} is not one for each call')
        spread = of_call[segments.parents, 0]
        return function(x, spread) if long[0] else function(spread, y)

    return step


def softmax(x: np.ndarray, segments: Segments) -> np.ndarray:
    """Return a softmax over the values of each call."""
    exps = np.exp(x - _max(x, segments)[segments.parents])
    return exps / _sum(exps, segments)[segments.parents]


def times_matrix(turned: bool) -> Step:
    """Return products of ragged values with a matrix of each call, (n, k, l)."""

    def step(x: np.ndarray, y: np.ndarray, segments: Segments) -> np.ndarray:
        matrices = y.swapaxes(1, 2) if turned else y
        return np.matmul(x[:, None], matrices[segments.parents])[:, 0]

    return step


def summed_products(x: np.ndarray, y: np.ndarray, segments: Segments) -> np.ndarray:
    """Sum products of two ragged values over each call, to (n, k, l)."""
    return _sum(x[:, :, None] * y[:, None], segments)


def masked(value: float) -> Step:
    """Return a step that replaces each call's values from its own rank on by a number."""

    def step(x: np.ndarray, lengths: np.ndarray, segments: Segments) -> np.ndarray:
        own, parents = segments
        ranks = np.arange(len(x)) - (own.cumsum() - own)[parents]
        late = ranks >= lengths.reshape(len(own))[parents]
        return np.where(late.reshape((-1,) + (1,) * (x.ndim - 1)), x.dtype.type(value), x)

    return step
