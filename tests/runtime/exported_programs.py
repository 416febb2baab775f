"""The nine networks of example/dynamic as programs: exported, compared, and timed in turns.

python tests/runtime/exported_programs.py write DIR [--data DATA]  # with gluon_edbatch and g++
python tests/runtime/exported_programs.py check DIR                # with gluon_edbatch_runtime
python tests/runtime/exported_programs.py speed [--other PYTHON]  # both: PYTHON is the latter's

Networks are not trained: thresholds are chosen so that samples part at as many branches as can be.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Callable, Optional

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np  # reads how many threads it has

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
SECONDS, TURNS, SAMPLES = 0.6, 4, 64
TOLERANCE = 1e-4  # of ONNX Runtime; MXNet's own hosts are nearer
MXNETS = 1e-5


def arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('command', choices=['write', 'check', 'speed', 'run'])
    parser.add_argument('folder', nargs='?', type=Path, help='of bundles')
    parser.add_argument('--data', help="MNIST's files (default: the embedded sample)")
    parser.add_argument('--networks', nargs='+', metavar='NAME', help='these only')
    parser.add_argument('--other', help='Python of an environment with gluon_edbatch_runtime')
    parser.add_argument('--rounds', type=int, default=5)
    return parser.parse_args(argv)


# --- where MXNet is ------------------------------------------------------------------------------


def networks_of(options: argparse.Namespace) -> list[str]:
    """Return the names of the networks to measure."""
    from example.dynamic.networks import NETWORKS

    return options.networks or list(NETWORKS)


def network_and_samples(name: str, data: Optional[str]) -> Any:
    """A network of which samples take several paths, and these."""
    import mxnet as mx

    from example.dynamic.networks import build, samples

    mx.random.seed(1)
    net, images = build(name), samples(name, *([data] if data else []))[:SAMPLES]
    if hasattr(net, 'thresholds'):
        net.threshold = max(
            np.linspace(0.1, 0.9, 81), key=lambda each: _parting(net, float(each), images[:12])
        )
        net.threshold = float(net.threshold)
        net.release()
    net.hybridize()
    return net, images


def _parting(net: Any, threshold: float, images: Sequence[Any]) -> int:
    """How many ways samples take with a threshold."""
    net.thresholds = [threshold] * len(net.thresholds)
    return len({net(image)[1] for image in images[:4]})


def plain(value: Any) -> Any:
    """Arrays as NumPy's, in lists and tuples."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.asnumpy() if hasattr(value, 'asnumpy') else value


def same(found: Any, expected: Any, tolerance: float) -> bool:
    """Whether two results are equal but for rounding."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(
            same(one, other, tolerance) for one, other in zip(found, expected)
        )
    if isinstance(expected, (np.ndarray, float)):
        return bool(np.allclose(found, expected, rtol=tolerance, atol=tolerance))
    return bool(found == expected)


def write(options: argparse.Namespace) -> int:
    """Bundles of all networks, with samples and what eager Gluon gives for them."""
    import gluon_edbatch as edb

    for name in networks_of(options):
        net, images = network_and_samples(name, options.data)
        program = edb.compile_program(net, images[0])
        expected = [plain(net(image)) for image in images]
        found = list(map(plain, program(images)))
        if not all(same(one, other, MXNETS) for one, other in zip(found, expected)):
            print(f'{name}: the program differs from eager Gluon')
            return 1
        folder = options.folder / name
        export(program, folder, images)
        data = json.dumps(expected, default=lambda array: array.tolist())
        folder.with_suffix('.json').write_text(data)
        print(f'{name}: written, {len(images)} samples in {program.report().runs} runs of blocks')
    return 0


def export(program: Any, folder: Path, images: Sequence[Any]) -> None:
    """A bundle for all hosts, the C++ one built, and samples beside it."""
    import gluon_edbatch as edb

    edb.export(program, folder, onnx=True, cpp=True)
    make = ['make', '-s', '-C', str(folder), f'PYTHON={sys.executable}']
    subprocess.run(make, check=True)
    np.save(folder.with_suffix('.npy'), np.stack([image.asnumpy() for image in images]))


# --- where it is not -----------------------------------------------------------------------------


def check(options: argparse.Namespace) -> int:
    """Whether the runtime and the program in C++ give the same, for all samples at once and for
    some alone."""
    import gluon_edbatch_runtime as edb

    assert 'mxnet' not in sys.modules
    wrong = 0
    for path in sorted(options.folder.glob('*.npy')):
        program = edb.load_program(path.with_suffix(''))
        images = list(np.load(path))
        expected = json.loads(path.with_suffix('.json').read_text())
        found = program(images) + [program([image])[0] for image in images[:5]]
        wrong += _differ(path.stem, found, expected + expected[:5], TOLERANCE)
        for batch in (len(images), 1):
            found = of_cpp(path.with_suffix(''), path, batch)
            wrong += _differ(f'{path.stem} in C++, by {batch}', found, expected, MXNETS)
    return int(wrong > 0)


def _differ(name: str, found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> int:
    """Return how many results differ."""
    bad = len(expected) - sum(
        same(_lists(one), other, tolerance) for one, other in zip(found, expected)
    )
    print(f'{name}: {len(expected) - bad} of {len(expected)} results equal')
    return bad


def of_cpp(bundle: Path, samples: Path, batch: int) -> list[Any]:
    """Results of the program in C++ that was built in a bundle."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'results')
        command = [str(bundle / 'program'), '--batch', str(batch), str(samples), str(path)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return [json.loads(line) for line in path.read_text().splitlines()]


def _lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_lists(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


# --- speed ---------------------------------------------------------------------------------------


def seconds_of(run: Callable[[], Any], seconds: float = SECONDS) -> float:
    """Return the seconds of one run: the best of short rounds of runs."""
    run()
    best, until = float('inf'), time.perf_counter() + seconds
    while time.perf_counter() < until:
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def run(options: argparse.Namespace) -> int:
    """Milliseconds a sample of a bundle, alone and of all at once, as JSON (for ``speed``)."""
    import gluon_edbatch_runtime as edb

    program = edb.load_program(options.folder)
    images = list(np.load(options.folder.with_suffix('.npy')))
    print(json.dumps(times_of(program, images)))
    return 0


def times_of(program: Callable, images: Sequence[Any], finish: Callable = list) -> dict[str, float]:
    """Milliseconds a sample, alone and of all at once."""
    alone, together = in_turns(runs_of(program, images, finish))
    return {'alone': 1e3 * alone / len(images), 'together': 1e3 * together / len(images)}


def runs_of(program: Callable, images: Sequence[Any], finish: Callable) -> list[Callable[[], Any]]:
    """Run all samples one by one, and together."""
    return [
        lambda: [finish(program([image])) for image in images],
        lambda: finish(program(list(images))),
    ]


def in_turns(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Seconds of each, the best of short rounds: the machine's speed changes within seconds."""
    turns = [[seconds_of(run, SECONDS / TURNS) for run in runs] for _ in range(TURNS)]
    return list(map(min, zip(*turns)))


def cpp_times(bundle: Path, images: Sequence[Any]) -> list[float]:
    """Milliseconds a sample of the program in C++, alone and of all at once; the best of rounds
    that take as long as those of the others."""
    found, samples, count = [], bundle.with_suffix('.npy'), len(images)
    for batch in (1, count):
        rounds = 1
        for _ in range(2):  # the first tells how many rounds there is time for
            command = [
                bundle / 'program',
                '--batch',
                batch,
                '--repeat',
                rounds,
                samples,
                os.devnull,
            ]
            done = subprocess.run(
                list(map(str, command)), check=True, stderr=subprocess.PIPE, text=True
            )
            milliseconds = float(done.stderr.splitlines()[-1].split()[0])
            rounds = max(1, int(1e3 * SECONDS / (milliseconds * count)))
        found.append(milliseconds)
    return found


def speed(options: argparse.Namespace) -> int:
    """A table of eager hybridized Gluon, the program, and the program in C++ and without MXNet, in
    turns."""
    import mxnet as mx

    import gluon_edbatch as edb

    print(
        'ms a sample   eager    program  of 64    C++      of 64    ONNX     of 64   eager / best'
    )
    for name in networks_of(options):
        net, images = network_and_samples(name, options.data)
        program = edb.compile_program(net, images[0])
        rows: list[list[float]] = []
        with tempfile.TemporaryDirectory() as folder:
            bundle = Path(folder) / name
            export(program, bundle, images)
            for _ in range(options.rounds):
                runs = [partial(_eagerly, net, images), *runs_of(program, images, _waited)]
                row = [1e3 * seconds / len(images) for seconds in in_turns(runs)]
                row += cpp_times(bundle, images)
                row += _of_other(options, bundle)
                rows.append(row)
        medians = [median(column) for column in zip(*rows)]
        best = medians[0] / min(medians[1::2])
        print(f'{name:20s} ' + ' '.join([f'{each:8.3f}' for each in medians]) + f'   {best:5.2f}')
        mx.nd.waitall()
    return 0


def _eagerly(net: Any, images: Sequence[Any]) -> None:
    for image in images:
        _waited([net(image)])


def _waited(results: Any) -> Any:
    for leaf in _leaves(results):
        leaf.wait_to_read()
    return results


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value] if hasattr(value, 'wait_to_read') else []


def _of_other(options: argparse.Namespace, bundle: Path) -> list[float]:
    if not options.other:
        return []
    command = [options.other, __file__, 'run', str(bundle)]
    environment = {**os.environ, 'PYTHONPATH': ''}
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return list(json.loads(found.stdout.splitlines()[-1]).values())


if __name__ == '__main__':
    chosen = arguments()
    sys.exit({'write': write, 'check': check, 'speed': speed, 'run': run}[chosen.command](chosen))
