"""Measure a call in the forms in which users write it: recorded, run, and in eager Gluon."""

import time
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb

from .contexts import context
from .machine import machine_info
from .output import aligned, rounded

__all__ = ['CASES', 'Case', 'Samples', 'idiom_table', 'measure_idiom']

Row = dict[str, Any]


class Samples:
    """Arguments of the cases: all of one row, different for each sample.

    Attributes
    ----------
    cell : LSTMCell
    width : int
    numpy, arrays : list of numpy.ndarray, and of NDArray
        The same numbers.
    zero, zeros : NDArray, numpy.ndarray
        Initial values of sequences.
    values : list of NDArray
        Results of a layer; lazy ones while calls are recorded.
    """

    def __init__(self, count: int, width: int, ctx: mx.Context, seed: int):
        mx.random.seed(seed)
        self.width = width
        numbers = np.random.RandomState(seed).uniform(-1, 1, (count, 1, width))
        self.cell = gluon.rnn.LSTMCell(width, input_size=width)
        self._layer = gluon.nn.Dense(width, in_units=width)
        for block in (self.cell, self._layer):
            block.initialize(ctx=ctx)
            block.hybridize()
        self.numpy: list[np.ndarray] = list(numbers.astype('float32'))
        self.arrays = [nd.array(array, ctx=ctx) for array in self.numpy]
        self.zero = nd.zeros((1, width), ctx=ctx)
        self.zeros = np.zeros((1, width), 'float32')
        self.values: list[nd.NDArray] = []

    def compute(self) -> None:
        """Make the values again, in the scope if there is one."""
        self.values = [self._layer(array) for array in self.arrays]


class Case(NamedTuple):
    """A call of a sample.

    Attributes
    ----------
    run : callable
        Gets `Samples` and the number of one.
    eager : callable, optional
        The form of the call for eager MXNet, if it differs.
    """

    run: Callable[[Samples, int], Any]
    eager: Optional[Callable[[Samples, int], Any]] = None


def _lstm(s: Samples, i: int) -> Any:
    return s.cell(s.arrays[i], [s.zero, s.zero])


CASES = {
    'lstm, NumPy input': Case(lambda s, i: s.cell(s.numpy[i], [s.zeros, s.zeros]), _lstm),
    'lstm, NDArray input': Case(_lstm),
    'lstm, NDArray input, begin_state': Case(
        lambda s, i: s.cell(s.arrays[i], s.cell.begin_state(batch_size=1))
    ),
    'nd.array(...) and a look': Case(lambda s, i: nd.array([i, 1, 2]).asnumpy()),
    'nd.zeros(...)': Case(lambda s, i: nd.zeros((1, 8))),
    'y.tanh()': Case(lambda s, i: s.values[i].tanh()),
    'y.sum(axis=1)': Case(lambda s, i: s.values[i].sum(axis=1)),
    'y.reshape((-1, 1))': Case(lambda s, i: s.values[i].reshape((-1, 1))),
    'y[0:1]': Case(lambda s, i: s.values[i][0:1]),
    'y[:, 0:2]': Case(lambda s, i: s.values[i][:, 0:2]),
    'y + y': Case(lambda s, i: s.values[i] + s.values[i]),
    'y * 2.0': Case(lambda s, i: s.values[i] * 2.0),
    'y * float(i)': Case(lambda s, i: s.values[i] * float(i)),
    'y / len(x)': Case(lambda s, i: s.values[i] / (i + 1)),
    'y > i': Case(lambda s, i: s.values[i] > i),
    'y[:, i]': Case(lambda s, i: s.values[i][:, i % s.width]),
    'slice_axis(y, begin=i)': Case(
        lambda s, i: nd.slice_axis(s.values[i], axis=1, begin=i % s.width, end=i % s.width + 1)
    ),
    'pick(y, i)': Case(lambda s, i: nd.pick(s.values[i], nd.array([i % s.width]))),
    'np.asarray(y)': Case(lambda s, i: np.asarray(s.values[i]), lambda s, i: s.values[i].asnumpy()),
    'mx.nd.tanh(y)': Case(lambda s, i: nd.tanh(s.values[i])),
    'edb.nd.tanh(y)': Case(lambda s, i: edb.nd.tanh(s.values[i])),
    'y + NDArray': Case(lambda s, i: s.values[i] + s.arrays[i]),
    'y + NumPy array': Case(
        lambda s, i: s.values[i] + s.numpy[i], lambda s, i: s.values[i] + nd.array(s.numpy[i])
    ),
    'NumPy array * y': Case(
        lambda s, i: s.numpy[i] * s.values[i], lambda s, i: nd.array(s.numpy[i]) * s.values[i]
    ),
}


def measure_idiom(
    name: str,
    count: int = 256,
    width: int = 8,
    repeat: int = 7,
    seconds: float = 0.05,
    ctx: str = 'cpu',
    seed: int = 0,
) -> list[Row]:
    """Return the rows of a case, without autograd and under it: the best of as many rounds as fill
    the repeats, µs a call."""
    rows = []
    for recording in (False, True):
        with context(ctx), autograd.record() if recording else autograd.pause():
            # Each its own: eager Gluon puts what it reads under autograd on the tape.
            sides = [Samples(count, width, context(ctx), seed) for _ in range(2)]
            end = time.perf_counter() + repeat * seconds
            times = [_round(*sides, CASES[name])]
            while len(times) <= repeat or time.perf_counter() < end:
                times.append(_round(*sides, CASES[name]))
        best = _Round(*np.min(times[1:], axis=0).tolist())
        record, evaluate, eager = (rounded(1e6 * each / count) for each in best[:3])
        rows.append(
            {
                'idiom': name,
                'autograd': recording,
                'record_us': record,
                'evaluate_us': evaluate,
                'eager_us': eager,
                'times_as_fast': rounded(best.eager_whole / best.whole),
                'batches': int(best.batches),
                'calls': count,
                'hidden': width,
                'repeat': repeat,
                'seed': seed,
                **machine_info(),
            }
        )
    return rows


class _Round(NamedTuple):
    """Seconds that all samples take to be recorded, to be evaluated, and in eager Gluon, and both
    with the layer; and the number of batches, the layer's among them."""

    record: float
    evaluate: float
    eager: float
    whole: float
    eager_whole: float
    batches: int


def _round(samples: Samples, eager: Samples, case: Case) -> _Round:
    start = time.perf_counter()
    with edb.batching() as scope:
        samples.compute()
        begin = time.thread_time()  # nothing else computes yet
        results = _called(samples, case.run)
        record = time.thread_time() - begin
        begin = time.perf_counter()
        if not isinstance(results[-1], np.ndarray):
            edb.forward(results[-1])  # and all that was recorded with it
        mx.nd.waitall()
        end = time.perf_counter()
    eager_start = time.perf_counter()
    eager.compute()
    mx.nd.waitall()
    eager_begin = time.perf_counter()
    _called(eager, case.eager or case.run)
    mx.nd.waitall()
    eager_end = time.perf_counter()
    return _Round(
        record,
        end - begin,
        eager_end - eager_begin,
        end - start,
        eager_end - eager_start,
        scope.report().batches,
    )


def _called(samples: Samples, run: Callable[[Samples, int], Any]) -> list[Any]:
    return [run(samples, i) for i in range(len(samples.arrays))]


def idiom_table(rows: Sequence[Row]) -> str:
    """Return rows as a table, with and without autograd side by side."""
    row = rows[0]
    head = (
        f'µs a call, best of {row["repeat"]} rounds of {row["calls"]} calls, hidden '
        f'{row["hidden"]}, on {row["cpus"]} x {row["cpu"]}'
    )
    titles = 'and run', 'eager', 'times', 'batches'
    cells = [['idiom', 'recorded', *titles, 'recorded, autograd', *titles]]
    cells += [
        [pair[0]['idiom'], *(cell for row in pair for cell in _cells(row))]
        for pair in zip(rows[::2], rows[1::2])
    ]
    return '\n'.join([head, *aligned(cells, left=['idiom'])])


def _cells(row: Row) -> list[str]:
    times = [f'{row[f"{part}_us"]:.2f}' for part in ('record', 'evaluate', 'eager')]
    return [*times, f'{row["times_as_fast"]:.1f}', str(row['batches'])]
