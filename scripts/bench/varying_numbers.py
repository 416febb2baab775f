"""Numbers that differ from sample to sample, in batches and in eager Gluon.

cd scripts && python -m bench.varying_numbers
"""

import time
from typing import Any, Callable, Dict, List

__all__ = ['IDIOMS', 'measure_varying_numbers']

SAMPLES, WIDTH = 256, 16
Row = Dict[str, Any]

IDIOMS: Dict[str, Callable[[Any, int], Any]] = {
    'y * float(i)': lambda y, i: y * float(i),
    'y / (i + 1)': lambda y, i: y / (i + 1),
    'y + i': lambda y, i: y + i,
    'y > i': lambda y, i: y > i,
    'y[:, i]': lambda y, i: y[:, i % WIDTH],
}


def measure_varying_numbers(rounds: int = 30) -> List[Row]:
    """Microseconds a sample of a Dense layer and each idiom, the best of so many rounds in turns.

    Returns
    -------
    list of dict
        idiom, eager_us and batched_us (hybridized layer, results computed), and batches.
    """
    return [{'idiom': name, **_measured(name, rounds)} for name in IDIOMS]


def _measured(name: str, rounds: int) -> Row:
    import mxnet as mx
    import numpy as np

    import gluon_edbatch as edb

    function = IDIOMS[name]
    net = mx.gluon.nn.Dense(WIDTH, in_units=WIDTH)
    net.initialize()
    net.hybridize()
    samples = [np.ones((1, WIDTH), np.float32) for _ in range(SAMPLES)]
    arrays = [mx.nd.array(sample) for sample in samples]

    def eager() -> None:
        for i, array in enumerate(arrays):
            function(net(array), i)
        mx.nd.waitall()

    def batched() -> Any:
        with edb.batching() as scope:
            values = [function(net(sample), i) for i, sample in enumerate(samples)]
        edb.forward(values)
        mx.nd.waitall()
        return scope.report().batches

    times: Dict[str, float] = {}
    for _ in range(rounds):
        for key, run in (('eager_us', eager), ('batched_us', batched)):
            begin = time.perf_counter()
            run()
            took = (time.perf_counter() - begin) / SAMPLES * 1e6
            times[key] = min(took, times.get(key, took))
    return {**{key: round(value, 1) for key, value in times.items()}, 'batches': batched()}


if __name__ == '__main__':
    for row in measure_varying_numbers():
        print(row)
