#!/usr/bin/env python3
"""Whether native operators compute the same on every level of the instruction set that this
processor has: trains Tree-LSTMs with each level's library, in float32 and float64.

    python tests/runtime/check_levels.py

In an installed package these are the libraries that came with it; elsewhere each is compiled at
first use. Prints each level's error, relative to the least level's float64. Used by
scripts/test_install.sh.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from gluon_edbatch_core.native import compiler

BOUNDS = {'float32': 1e-6, 'float64': 1e-14}


def random_tree(random, depth):
    """A tree, of at most so many levels below its root: the list of its children."""
    children = random.randint(0, 4) if depth else 0
    return [random_tree(random, depth - 1) for _ in range(children)]


def computed(dtype):
    """Outputs and gradients of twenty random trees, by name."""
    random = np.random.RandomState(1)
    cell, head = edb.rnn.ChildSumTreeLSTMCell(50, input_size=30), gluon.nn.Dense(7, in_units=50)
    parameters = [*cell.collect_params().values(), *head.collect_params().values()]
    for block in (cell, head):
        block.initialize()
        block.cast(dtype)
    for parameter in parameters:  # the same numbers for both dtypes
        value = random.uniform(-0.5, 0.5, parameter.shape).astype('float32')
        parameter.set_data(mx.nd.array(value, dtype=dtype))

    def state(tree):
        x = mx.nd.array(random.uniform(-1, 1, (1, 30)).astype('float32'), dtype=dtype)
        return cell(x, [state(child) for child in tree])

    with autograd.record():
        with edb.batching():
            values = [edb.nd.log_softmax(head(state(random_tree(random, 4))[0])) for _ in range(20)]
        values = edb.concat(values)
        loss = (values * values).sum()
    loss.backward()
    arrays = {'values': values, **{str(i): each.grad() for i, each in enumerate(parameters)}}
    return {f'{name} {dtype}': array.asnumpy() for name, array in arrays.items()}


def of_level(level, path):
    """What a process of its own computes on a level: arrays by name."""
    subprocess.run(
        [sys.executable, '-W', 'ignore', __file__, '--to', str(path)],
        env={**os.environ, 'GLUON_EDBATCH_NATIVE': level},
        check=True,
    )
    with np.load(path) as arrays:
        return dict(arrays)


def faults_of(results):
    """What is wrong with the arrays of levels, the least level first; prints errors."""
    exact = next(iter(results.values()))
    for level, found in results.items():
        for dtype, bound in BOUNDS.items():
            errors = {
                name: np.abs(values - like).max() / np.abs(like).max()
                for name, values in found.items()
                if name.endswith(dtype)
                for like in [exact[name.replace(dtype, 'float64')]]
            }
            worst = max(errors, key=errors.get)
            print(f'{level} {dtype}: {errors[worst]:.1e} ({worst.split()[0]})')
            if not errors[worst] < bound:
                yield f'{level}: {worst} is {errors[worst]:.1e} off, where {bound} is allowed'


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--to', type=Path, help=argparse.SUPPRESS)  # in a level's own process
    path = parser.parse_args().to
    if path:
        assert edb.native_available()
        np.savez(path, **{name: a for dtype in BOUNDS for name, a in computed(dtype).items()})
        return 0
    levels = [level for level, needed in compiler.levels().items() if needed <= compiler.features()]
    if not levels:
        print('check_levels: this machine has no levels, nothing to compare')
        return 0
    with tempfile.TemporaryDirectory() as folder:
        results = {level: of_level(level, Path(folder, f'{level}.npz')) for level in levels}
        again = of_level(levels[-1], Path(folder, 'again.npz'))
    faults = list(faults_of(results))
    faults += [
        f'{levels[-1]}: {name} is not the same once more'
        for name, values in results[levels[-1]].items()
        if values.tobytes() != again[name].tobytes()
    ]
    for fault in faults:
        print(f'check_levels: {fault}', file=sys.stderr)
    return int(bool(faults))


if __name__ == '__main__':
    sys.exit(main())
