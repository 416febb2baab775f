"""The shared parts of the four programs: options, exit status, and times of several ways to do one
thing."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from example.common.errors import DataError
from example.common.options import parse_context, positive_int, seed_number
from gluon_edbatch_core.errors import DistributedError

from .data import LAYOUT

__all__ = ['add_data_options', 'difference', 'make_parser', 'report', 'run', 'seconds_in_turns']

SAMPLE = Path(__file__).with_name('sample')
ONE_BY_ONE, FOLDED = 'one by one', 'folded'


def make_parser(description: str, batch_size: int) -> argparse.ArgumentParser:
    """Return a parser with the options that all programs have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        '--batch-size',
        type=positive_int,
        default=batch_size,
        metavar='N',
        help='samples that are computed together',
    )
    parser.add_argument(
        '--repeat', type=positive_int, default=5, metavar='N', help='times to measure each way'
    )
    parser.add_argument('--seed', type=seed_number, default=0, metavar='N')
    parser.add_argument(
        '--ctx', type=parse_context, default='cpu', metavar='cpu|gpu[:N]', help='where to compute'
    )
    return parser


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the programs about digits."""
    parser.add_argument(
        '--data',
        default=str(SAMPLE),
        metavar='DIR',
        help=f'directory with {LAYOUT} (by default the embedded sample)',
    )
    parser.add_argument(
        '--hidden', type=positive_int, default=128, metavar='H', help='width of the recurrent cell'
    )


def run(
    parser: argparse.ArgumentParser,
    program: Callable[[argparse.Namespace], None],
    arguments: Optional[Sequence[str]],
) -> int:
    """Run a program as the command line says; return the exit status."""
    options = parser.parse_args(arguments)
    mx.random.seed(options.seed)
    try:
        program(options)
    except (DataError, DistributedError) as error:
        print(f'{parser.prog}: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\ninterrupted', file=sys.stderr)
        return 130
    finally:
        mx.nd.waitall()  # nothing may be under way when Python ends
    return 0


def seconds_in_turns(ways: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Return the median time of each way, run in turns after a first run that does not count."""
    times: dict[str, list] = {name: [] for name in ways}
    for turn in range(repeat + 1):
        for name, way in ways.items():
            mx.nd.waitall()
            begin = time.perf_counter()
            way()
            mx.nd.waitall()
            if turn:
                times[name].append(time.perf_counter() - begin)
    return {name: median(of_way) for name, of_way in times.items()}


def report(seconds: dict[str, float], samples: int, unit: str) -> str:
    """Return a line with the time of each way to run, and the speed-up of the second."""
    width = max(map(len, seconds))
    lines = [
        f'{name:{width}}  {1e3 * of_way:9.2f} ms  {samples / of_way:10.0f} {unit}/s'
        for name, of_way in seconds.items()
    ]
    first, second = seconds.values()
    return '\n'.join([*lines, f'{list(seconds)[1]}: {first / second:.1f} times as fast'])


def difference(found: Sequence[NDArray], expected: Sequence[NDArray]) -> float:
    """Return the largest difference, relative to the largest value."""
    return max(
        float((mx.nd.abs(one - other).max() / mx.nd.abs(other).max()).asscalar())
        for one, other in zip(found, expected)
    )
