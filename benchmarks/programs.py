"""Measure where the time of compiled programs goes: the nine networks of example/dynamic.

python -m benchmarks.programs passes     # each pass left out, against all
python -m benchmarks.programs parts      # 64 samples, against their networks by themselves

Networks are those of exported_programs.py: not trained, with thresholds by which samples part.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from math import exp, log
from statistics import mean, median
from typing import Any, Callable, Optional

from tests.runtime.exported_programs import (
    SAMPLES,
    _waited,
    network_and_samples,
    networks_of,
    seconds_of,
)

ALONE = 8  # samples one by one


def arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('command', choices=['passes', 'parts'])
    parser.add_argument('--data', help="MNIST's files (default: the embedded sample)")
    parser.add_argument('--networks', nargs='+', metavar='NAME', help='these only')
    parser.add_argument('--rounds', type=int, default=9)
    return parser.parse_args(argv)


def one_by_one(program: Callable, samples: Sequence[Any]) -> None:
    """Run a program on the first few samples, one by one."""
    for sample in samples[:ALONE]:
        _waited(program([sample]))


def together(program: Callable, samples: Sequence[Any]) -> None:
    """Run all samples in one call."""
    _waited(program(samples))


# --- passes --------------------------------------------------------------------------------------


def passes(options: argparse.Namespace) -> int:
    """Print how many times as long a program takes without a pass; the best of rounds, in turns."""
    import gluon_edbatch as edb
    from gluon_edbatch.program.optimise import PASSES

    columns = [*PASSES, 'all of them']
    print('time without a pass / with all, one by one and 64 at once')
    print(' ' * 20 + ' '.join([f'{name:>13s}' for name in columns]))
    gains: dict[tuple[str, int], list[float]] = {}
    for name in networks_of(options):
        net, samples = network_and_samples(name, options.data)
        variants: dict[str, Sequence[str]] = {'': (), **{each: [each] for each in PASSES}}
        variants['all of them'] = list(PASSES)
        programs = {
            each: edb.compile_program(net, samples[0], without=without)
            for each, without in variants.items()
        }
        best = {
            (each, way): float('inf') for each in variants for way in range(2)
        }  # of rounds in turns
        for _ in range(options.rounds):
            for each, program in programs.items():
                for way, run in enumerate((one_by_one, together)):
                    took = seconds_of(partial(run, program, samples), 0.1)
                    best[each, way] = min(best[each, way], took)
        for each in columns:
            for way in range(2):
                gains.setdefault((each, way), []).append(best[each, way] / best['', way])
        print(f'{name:20s}' + ' '.join([_pair(gains, each, lambda of: of[-1]) for each in columns]))
    print(f'{"mean":20s}' + ' '.join([_pair(gains, each, _geometric) for each in columns]))
    return 0


def _geometric(ratios: Sequence[float]) -> float:
    return exp(mean(map(log, ratios)))


def _pair(gains: dict[tuple[str, int], list[float]], name: str, of: Callable) -> str:
    return f'{of(gains[name, 0]):6.3f} {of(gains[name, 1]):6.3f}'


# --- parts ---------------------------------------------------------------------------------------


class Watched:
    """A host that keeps what networks were run with."""

    def __init__(self, host: Any):
        self._host = host
        self.runs: list[tuple[Any, list[Any], int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def run(self, run: Any, inputs: list[Any], samples: int) -> Any:
        """Return the results of a network."""
        self.runs.append((run, inputs, samples))
        return self._host.run(run, inputs, samples)


def _run_network(host: Any, each: tuple[Any, list[Any], int]) -> None:
    _waited(list(host.run(*each)))


def parts(options: argparse.Namespace) -> int:
    """Print the time of 64 samples, and the sum of the runs of networks in it."""
    import mxnet as mx

    import gluon_edbatch as edb
    from gluon_edbatch.program.mxnet_host import MXNetHost
    from gluon_edbatch_core.branching.program_interpreter import ControlFlowProgram

    print('ms for 64 samples     all    networks   ratio   runs')
    for name in networks_of(options):
        net, samples = network_and_samples(name, options.data)
        graph = edb.compile_program(net, samples[0]).inference.graph
        host = MXNetHost(graph, mx.cpu())
        watched = Watched(host)
        ControlFlowProgram(graph, watched, 10_000)(samples)
        program, ratios, rows = ControlFlowProgram(graph, host, 10_000), [], []
        for _ in range(options.rounds):
            whole = 1e3 * seconds_of(partial(together, program, samples))
            alone = [seconds_of(partial(_run_network, host, each), 0.05) for each in watched.runs]
            rows.append((whole, 1e3 * sum(alone)))
            ratios.append(rows[-1][0] / rows[-1][1])
        whole, of_networks = [median(column) for column in zip(*rows)]
        print(
            f'{name:18s} {whole:8.2f} {of_networks:9.2f} {median(ratios):8.2f} '
            f'{len(watched.runs):6d}'
        )
    return 0


if __name__ == '__main__':
    assert SAMPLES == 64
    chosen = arguments()
    sys.exit({'passes': passes, 'parts': parts}[chosen.command](chosen))
