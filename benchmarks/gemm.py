"""Measure the rate of matrix products alone, to compare whole models with."""

import time
from collections.abc import Iterable

import mxnet as mx

__all__ = ['best_rate', 'product_rates']

ROWS = (64, 256, 1024, 4096)


def product_rates(
    shapes: Iterable[tuple[int, int]], ctx: mx.Context, seconds: float = 0.02
) -> dict[tuple[int, int, int], float]:
    """Return FLOP/s of ``FullyConnected`` for layers (in, out), by (in, out, rows).

    Parameters
    ----------
    shapes : iterable of (int, int)
        Columns in and out.
    ctx : mxnet.Context
        Where to measure.
    seconds : float
        How long one of three tries takes; the best of them counts.
    """
    rates = {}
    for wide, high in sorted(set(shapes)):
        weight = mx.nd.random.normal(shape=(high, wide), ctx=ctx)
        for rows in ROWS:
            x = mx.nd.random.normal(shape=(rows, wide), ctx=ctx)
            flops = 2.0 * rows * wide * high
            first = _seconds(x, weight, 2) / 2
            times = max(1, int(seconds / first))
            rates[wide, high, rows] = max(
                flops * times / _seconds(x, weight, times) for _ in range(3)
            )
    return rates


def best_rate(shapes: Iterable[tuple[int, int]], ctx: mx.Context, seconds: float = 0.02) -> float:
    """Return the best FLOP/s of `product_rates`: what the products of a model could run at."""
    return max(product_rates(shapes, ctx, seconds).values())


def _seconds(x, weight, times: int) -> float:
    mx.nd.waitall()
    begin = time.perf_counter()
    for _ in range(times):
        mx.nd.FullyConnected(x, weight, no_bias=True, num_hidden=weight.shape[0])
    mx.nd.waitall()
    return time.perf_counter() - begin
