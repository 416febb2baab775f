"""Measure few and large calls in a scope and in hybridized Gluon: batching must not cost time."""

import time
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb

from .contexts import context
from .machine import machine_info
from .output import aligned, rounded

__all__ = ['LAYERS', 'few_table', 'measure_few']

Row = dict[str, Any]
WARM_UP = 5  # rounds of each kind


class Layer(NamedTuple):
    """A layer to call, and the shape of each sample."""

    make: Callable[[], gluon.HybridBlock]
    shape: tuple[int, ...]


def _convolutions() -> gluon.HybridBlock:
    net = gluon.nn.HybridSequential()
    for _ in range(4):
        net.add(
            gluon.nn.Conv2D(32, 3, padding=1, in_channels=32),
            gluon.nn.Activation('relu'),
            gluon.nn.LayerNorm(axis=1, in_channels=32),
        )
    return net


LAYERS = {
    'dense, 1 row': Layer(lambda: gluon.nn.Dense(2048, in_units=2048), (1, 2048)),
    'dense, 64 rows': Layer(lambda: gluon.nn.Dense(2048, in_units=2048), (64, 2048)),
    'convolution': Layer(
        lambda: gluon.nn.Conv2D(64, 3, padding=1, in_channels=64), (1, 64, 56, 56)
    ),
    'convolutions': Layer(_convolutions, (1, 32, 28, 28)),
    'LSTM layer': Layer(lambda: gluon.rnn.LSTM(256, layout='NTC', input_size=256), (1, 30, 256)),
    'relu': Layer(lambda: gluon.nn.Activation('relu'), (1, 512, 1024)),
    'small dense': Layer(lambda: gluon.nn.Dense(8, in_units=8), (1, 8)),
}


class _Case:
    """A layer with samples of its own: eager Gluon leaves on its tape what it reads."""

    def __init__(self, layer: Layer, count: int, ctx: mx.Context, seed: int):
        mx.random.seed(seed)
        self.block = layer.make()
        self.block.initialize(ctx=ctx)
        self.block.hybridize()
        numbers = np.random.RandomState(seed).uniform(-1, 1, (count, *layer.shape))
        self.samples = [nd.array(each, ctx=ctx) for each in numbers]

    def infer(self, options: Any) -> Any:
        """Run all samples, in a scope with these options, or without one."""
        if options is None:
            return [self.block(sample) for sample in self.samples]
        with edb.batching(compile_options=options):
            values = [self.block(sample) for sample in self.samples]
        return edb.forward(values)

    def train(self, options: Any) -> Any:
        """Run all samples and compute gradients of the parameters, or of the samples if there are
        none."""
        if not self.block.collect_params().keys():
            for sample in self.samples:
                sample.attach_grad()
        with autograd.record():
            values = self.infer(options)
            loss = nd.add_n(*[value.sum() for value in values])
        loss.backward()
        return loss


def measure_few(
    name: str, counts: Sequence[int], repeat: int, seconds: float, ctx: str, seed: int
) -> list[Row]:
    """Return a layer's rows: ms of processor time for all samples, best of the repeats in turn."""
    rows = []
    ways = {'scope_ms': edb.CompileOptions(), 'batched_ms': edb.CompileOptions(at_once=False)}
    for mode in ('infer', 'train'):
        for count in counts:
            cases = {
                way: (_Case(LAYERS[name], count, context(ctx), seed), options)
                for way, options in {**ways, 'eager_ms': None}.items()
            }
            for case, options in cases.values():
                _rounds(getattr(case, mode), options, WARM_UP)
            times: dict[str, list[float]] = {way: [] for way in cases}
            end = time.perf_counter() + repeat * seconds
            while len(times['eager_ms']) < repeat or time.perf_counter() < end:
                for way, (case, options) in cases.items():
                    times[way] += _rounds(getattr(case, mode), options, 3)
            best = {way: rounded(1e3 * min(each)) for way, each in times.items()}
            rows.append({'layer': name, 'mode': mode, 'samples': count, **best, **machine_info()})
    return rows


def _rounds(run: Callable[[Any], Any], options: Any, times: int) -> list[float]:
    found = []
    for _ in range(times):
        begin = time.process_time()
        run(options)
        mx.nd.waitall()
        found.append(time.process_time() - begin)
    return found


def few_table(rows: Sequence[Row]) -> str:
    """Return rows as a table."""
    row = rows[0]
    head = f'ms of processor time, best of many rounds, on {row["cpus"]} x {row["cpu"]}'
    cells = [['layer', 'mode', 'samples', 'scope', 'in batches', 'eager', 'eager / scope']]
    for row in rows:
        ways = [row[way] for way in ('scope_ms', 'batched_ms', 'eager_ms')]
        gain = row['eager_ms'] / row['scope_ms']
        cells.append(
            [row['layer'], row['mode'], str(row['samples'])]
            + [f'{each:.3f}' for each in ways]
            + [f'{gain:.2f}']
        )
    return '\n'.join([head, *aligned(cells, left=['layer', 'mode'])])
