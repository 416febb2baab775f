"""Measure models that read values in the middle: plain code, with ``yield``, and in eager Gluon."""

import time
from collections.abc import Sequence
from math import exp, log
from statistics import mean, median
from typing import Any, Callable
from warnings import catch_warnings, simplefilter

import mxnet as mx
from mxnet import autograd

import gluon_edbatch as edb

from .machine import machine_info
from .output import aligned, rounded
from .reading_models import MODELS, Model

__all__ = ['measure_reads', 'reads_table']

Row = dict[str, Any]
ALONE = 8  # samples that run in eager Gluon, one after the other
WARM_UP = 4


def in_batches(model: Model, samples: Sequence[Any]) -> list[Any]:
    """Run plain code by ``net.batch``."""
    return model.net.batch(samples)


def by_steps(model: Model, samples: Sequence[Any]) -> list[Any]:
    """Run generators by ``run_concurrently``."""
    with edb.batching():
        results = edb.run_concurrently(samples, model.steps)
    return edb.forward(results)


def eagerly(model: Model, samples: Sequence[Any]) -> list[Any]:
    """Run plain code, one sample after the other."""
    return [model.net(sample) for sample in samples]


WAYS = {'plain_ms': in_batches, 'steps_ms': by_steps, 'eager_ms': eagerly}


def run(way: Callable[..., list[Any]], model: Model, samples: Sequence[Any]) -> list[Any]:
    """Return the results, and compute gradients if they are losses."""
    if model.trains:
        with autograd.record():
            results = way(model, samples)
            loss = mx.nd.add_n(*[each.sum() for each, _ in results])
        loss.backward()
    else:
        results = way(model, samples)
    mx.nd.waitall()
    return results


def measure_reads(name: str, count: int, repeat: int, seconds: float) -> Row:
    """Return a model's row: ms of processor time for all samples, and the ratios of rounds in which
    all ways run the same minibatch, in turns. Each figure is the median of the rounds."""
    model, rounds = MODELS[name](), list[list[float]]()
    with catch_warnings():
        simplefilter('ignore')  # Gluon's, of lists of layers
        model.net.hybridize()
    end = time.perf_counter() + repeat * seconds
    while len(rounds) < WARM_UP + repeat or time.perf_counter() < end:
        first = len(rounds) * count
        samples = [model.samples[(first + k) % len(model.samples)] for k in range(count)]
        rounds.append(_round(model, samples, len(rounds)))
    plain, steps, eager = zip(*rounds[WARM_UP:])
    return {
        'model': name,
        'samples': count,
        **{way: rounded(1e3 * median(each)) for way, each in zip(WAYS, (plain, steps, eager))},
        'of_steps': rounded(median([b / a for a, b in zip(plain, steps)])),
        'of_eager': rounded(median([b / a for a, b in zip(plain, eager)])),
        'rounds': len(plain),
        **machine_info(),
    }


def _round(model: Model, samples: Sequence[Any], number: int) -> list[float]:
    """Return seconds of processor time by way."""
    found, ways = {}, list(WAYS.items())
    for way, function in ways[number % 3 :] + ways[: number % 3]:
        some = samples[:ALONE] if way == 'eager_ms' else samples
        begin = time.process_time()
        run(function, model, some)
        found[way] = (time.process_time() - begin) * len(samples) / len(some)
    return [found[way] for way in WAYS]


def reads_table(rows: Sequence[Row]) -> str:
    """Return rows as a table, and the geometric means of the ratios."""
    row = rows[0]
    head = f'ms of processor time for {row["samples"]} samples, on {row["cpus"]} x {row["cpu"]}'
    cells = [['model', 'plain', 'yield', 'eager', 'yield / plain', 'eager / plain']]
    cells += [[row['model'], *[f'{row[way]:.2f}' for way in WAYS], *_ratios(row)] for row in rows]
    means = {each: exp(mean([log(row[each]) for row in rows])) for each in ('of_steps', 'of_eager')}
    cells.append(['mean', '', '', '', *_ratios(means)])
    return '\n'.join([head, *aligned(cells, left=['model'])])


def _ratios(row: Row) -> list[str]:
    return [f'{row[each]:.2f}' for each in ('of_steps', 'of_eager')]
