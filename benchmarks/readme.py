"""Measure the first program of README.md: its model batched, and eagerly one tree at a time.

    OMP_NUM_THREADS=1 python -m benchmarks.readme --rounds 5

The program runs unchanged. Its model, hybridized, is the eager rival. Both train and infer on the
program's minibatch, in turns. The command prints the best of each in trees a second, and the
medians.
"""

import argparse
import contextlib
import io
import re
import statistics
import time
from pathlib import Path
from typing import Any, Callable

import mxnet as mx
from mxnet import autograd

import gluon_edbatch as edb

README = Path(__file__).resolve().parents[1] / 'README.md'


def first_program() -> dict[str, Any]:
    """Run the program, and return the names that it defines."""
    source = re.search(r'```python\n(.*?)```', README.read_text(encoding='utf-8'), re.DOTALL)
    assert source is not None
    names: dict[str, Any] = {'__name__': 'readme'}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source[1], str(README), 'exec'), names)
    return names


def batched(names: dict[str, Any], training: bool) -> None:
    """Run one minibatch as the program does, or inference on it."""
    net, minibatch = names['net'], names['minibatch']
    if not training:
        with edb.batching():
            scores = [net(tree) for tree, _ in minibatch]
        edb.forward(scores)
        return
    with autograd.record():
        with edb.batching():
            losses = [names['loss_fn'](net(tree), label) for tree, label in minibatch]
        loss = edb.stack(losses).mean()
    loss.backward()
    names['trainer'].step(1)


def eager(names: dict[str, Any], training: bool) -> None:
    """Run one minibatch of the program, one tree at a time."""
    net, minibatch = names['net'], names['minibatch']
    if not training:
        for tree, _ in minibatch:
            net(tree)
        return
    with autograd.record():
        losses = [names['loss_fn'](net(tree), label) for tree, label in minibatch]
        loss = mx.nd.stack(*losses).mean()
    loss.backward()
    names['trainer'].step(1)


def trees_a_second(run: Callable, names: dict[str, Any], training: bool) -> float:
    """Return the speed of one minibatch."""
    begin = time.perf_counter()
    run(names, training)
    mx.nd.waitall()
    return len(names['minibatch']) / (time.perf_counter() - begin)


def main() -> None:
    """Measure in turns, and print a line for each way and mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--trees', type=int, default=256, help='of the minibatch (default: 256)')
    options = parser.parse_args()
    ours, other = first_program(), first_program()
    ours['minibatch'] = ours['minibatch'][: options.trees]
    # Outside of a scope MXNet's loss takes no Python number.
    other['minibatch'] = [(tree, mx.nd.array([label])) for tree, label in ours['minibatch']]
    for block in (other['net'], other['loss_fn']):
        block.hybridize()
    cells = [
        (f'{name} {mode}', run, names, mode == 'training')
        for mode in ('training', 'inference')
        for name, run, names in (('batched', batched, ours), ('eager', eager, other))
    ]
    found: dict[str, list[float]] = {name: [] for name, *_ in cells}
    for number in range(options.rounds + 1):  # the first one compiles
        for name, run, names, training in cells:
            count = 10 if run is batched else 1
            speeds = [trees_a_second(run, names, training) for _ in range(count)]
            found[name] += speeds if number else []
    for name, speeds in found.items():
        median = statistics.median(speeds)
        print(f'{name}: best {max(speeds):.0f}, median {median:.0f} trees/s')


if __name__ == '__main__':
    main()
