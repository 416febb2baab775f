"""Steps of NumPy that a batch runs: what they read and write is in slots of a list.

Ragged arguments are ordered by rank (see `cell_program`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

Env = list[Any]
Outs = Sequence[np.ndarray]


class Segments(NamedTuple):
    """Numbers of values in the ragged arguments of a batch of `rows` rows. `counts` has the number
    of calls with more than 0, 1, … values, which is the number of values of each rank."""

    rows: int
    counts: list[int]

    def slices(self) -> list[tuple[int, int]]:
        """Return, for each rank, where it begins among all values, and how many it has."""
        begin, found = 0, []
        for count in self.counts:
            found.append((begin, count))
            begin += count
        return found


NONE = Segments(0, [])
Step = Callable[[Env, Outs, Segments], None]


class Joined(NamedTuple):
    """Products with the same input, joined to one: where the columns of each end, and whether rows
    are flattened first. With a zero tail, products of calls without values are skipped."""

    weight: np.ndarray
    bias: Optional[np.ndarray]
    ends: list[int]
    flat: bool
    has_zero_tail: bool

    def of(self, x: np.ndarray, out: Optional[np.ndarray] = None, segments: Segments = NONE) -> Any:
        """Return the product with an array."""
        if self.flat and x.ndim > 2:
            x = x.reshape(len(x), -1)
        elif x.ndim == 1:
            x = x[:, None]
        if self.has_zero_tail:
            count = segments.counts[0] if segments.counts else 0
            out = np.empty((len(x), len(self.weight[0])), x.dtype) if out is None else out
            np.matmul(x[:count], self.weight, out=out[:count])
            out[count:] = 0
        else:
            out = np.matmul(x, self.weight, out=out)
        return out if self.bias is None else np.add(out, self.bias, out=out)


def product(source: int, slots: list[int], joined: Joined, target: Optional[int]) -> Step:
    """Return a step for products with the same input."""
    cuts = list(zip(slots, [0, *joined.ends], joined.ends))

    def step(env: Env, outs: Outs, segments: Segments) -> None:
        result = joined.of(env[source], None if target is None else outs[target], segments)
        if len(cuts) == 1:
            env[slots[0]] = result
        else:
            for slot, begin, end in cuts:
                env[slot] = result[..., begin:end]

    return step


def one_step(
    function: Callable,
    sources: list[int],
    slot: int,
    target: Optional[int],
    reuse: Optional[int],
) -> Step:
    """Return a step for one function, which writes to a result, an argument, or new memory."""

    def to_result(env: Env, outs: Outs, segments: Segments) -> None:
        env[slot] = function(*[env[source] for source in sources], out=outs[target])  # type: ignore

    def over_argument(env: Env, outs: Outs, segments: Segments) -> None:
        arrays, out = [env[source] for source in sources], env[reuse]  # type: ignore[index]
        if any([each.shape != out.shape for each in arrays]):
            out = None  # the result may be wider than the argument
        env[slot] = function(*arrays, out=out)

    def plain(env: Env, outs: Outs, segments: Segments) -> None:
        env[slot] = function(*[env[source] for source in sources])

    if target is not None:
        return to_result
    if reuse is not None:
        return over_argument
    return plain


def _with_calls(function: Callable, x: Any, y: Any, segments: Segments, result: Any) -> Any:
    """Apply a function to ragged values and what each call has."""
    for begin, count in segments.slices():
        end = begin + count
        function(x[begin:end], y[:count], out=result[begin:end])
    return result


def of_parents(
    function: Callable, sources: list[int], long: list[bool], slot: int, reuse: Optional[int]
) -> Step:
    """Return a step for a function of ragged values and of one row for each call, (n, 1, ...)."""
    of_value, of_call = sources[::-1] if long[1] else sources

    def turned(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        function(y, x, out=out)

    def step(env: Env, outs: Outs, segments: Segments) -> None:
        x, y = env[of_value], env[of_call]
        if y.shape[1] != 1:
            raise ValueError(f'{y.shape} is not one for each call')
        y = y[:, 0]
        shape = (len(x), *np.broadcast_shapes(x.shape[1:], y.shape[1:]))
        wide = reuse is None or shape != x.shape
        result = np.empty(shape, x.dtype) if wide else env[reuse]  # type: ignore[index]
        env[slot] = _with_calls(turned if long[1] else function, x, y, segments, result)

    return step


def _over_ranks(function: Callable, x: np.ndarray, segments: Segments) -> np.ndarray:
    """Return a function over the values of each segment; that of an empty segment is 0."""
    made = np.zeros((segments.rows, *x.shape[1:]), x.dtype)
    for rank, (begin, count) in enumerate(segments.slices()):
        part, values = made[:count], x[begin : begin + count]
        if rank:
            function(part, values, out=part)
        else:
            part[...] = values
    return made


_sum, _max = partial(_over_ranks, np.add), partial(_over_ranks, np.maximum)


def _mean(x: np.ndarray, segments: Segments) -> np.ndarray:
    lengths = np.ones(segments.rows, x.dtype)
    for count in segments.counts[1:]:
        lengths[:count] += 1
    total = _sum(x, segments)
    total /= lengths.reshape((-1,) + (1,) * (x.ndim - 1))
    return total


REDUCTIONS: dict[str, Callable] = {'sum': _sum, 'max': _max, 'mean': _mean}


def reduced(function: Callable, source: int, slot: int, keep: bool) -> Step:
    """Return a step for one of `REDUCTIONS`, over the values of each call."""

    def step(env: Env, outs: Outs, segments: Segments) -> None:
        result = function(env[source], segments)
        env[slot] = result[:, None] if keep else result

    return step


def softmax(source: int, slot: int) -> Step:
    """Return a step for a softmax over the values of each call."""

    def step(env: Env, outs: Outs, segments: Segments) -> None:
        x = env[source]
        result = _with_calls(np.subtract, x, _max(x, segments), segments, np.empty_like(x))
        np.exp(result, out=result)
        env[slot] = _with_calls(np.divide, result, _sum(result, segments), segments, result)

    return step


def times_matrix(sources: list[int], turned: bool, slot: int) -> Step:
    """Return a step for products of ragged values with a matrix of each call, (n, k, l)."""

    def step(env: Env, outs: Outs, segments: Segments) -> None:
        x, y = env[sources[0]], env[sources[1]]
        y = y.swapaxes(1, 2) if turned else y
        result = np.empty((len(x), 1, y.shape[2]), x.dtype)
        env[slot] = _with_calls(np.matmul, x[:, None], y, segments, result)[:, 0]

    return step


def summed_products(sources: list[int], slot: int) -> Step:
    """Return a step that sums products of two ragged values over each call, to (n, k, l)."""

    def step(env: Env, outs: Outs, segments: Segments) -> None:
        x, y = env[sources[0]], env[sources[1]]
        env[slot] = _sum(x[:, :, None] * y[:, None], segments)

    return step


def masked(sources: list[int], slot: int, value: float) -> Step:
    """Return a step that replaces each call's values from its own rank on by a number."""

    def step(env: Env, outs: Outs, segments: Segments) -> None:
        x, lengths = env[sources[0]], env[sources[1]]
        result = x
        for rank, (begin, count) in enumerate(segments.slices()):
            late = np.flatnonzero(lengths[:count] <= rank)
            if len(late):
                result = result.copy() if result is x else result
                result[begin + late] = value
        env[slot] = result

    return step
