"""The nine networks of example/dynamic as programs: exported, compared, and timed in turns.

python scripts/exported_programs.py write DIR [--data DATA]      # where gluon_edbatch is
python scripts/exported_programs.py check DIR                    # where gluon_edbatch_runtime is
python scripts/exported_programs.py speed [--other PYTHON]       # both: PYTHON is that of the latter

Networks are not trained: thresholds are chosen so that samples part at as many branches as can be.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, List, Optional, Sequence

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np  # reads how many threads it has

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / 'example'), str(ROOT)]
SECONDS, SAMPLES = 0.6, 64
TOLERANCE = {'rtol': 1e-4, 'atol': 1e-4}


def arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Of the command line."""
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


def networks_of(options: argparse.Namespace) -> List[str]:
    """Names of networks to take."""
    from dynamic.networks import NETWORKS

    return options.networks or list(NETWORKS)


def network_and_samples(name: str, data: Optional[str]) -> Any:
    """A network of which samples take several paths, and these."""
    import mxnet as mx
    from dynamic.networks import build, samples

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


def same(found: Any, expected: Any) -> bool:
    """Whether two results are equal but for rounding."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, (np.ndarray, float)):
        return bool(np.allclose(found, expected, **TOLERANCE))  # type: ignore[arg-type]
    return bool(found == expected)


def write(options: argparse.Namespace) -> int:
    """Bundles of all networks, with samples and what eager Gluon gives for them."""
    import gluon_edbatch as edb

    for name in networks_of(options):
        net, images = network_and_samples(name, options.data)
        program = edb.compile_program(net, images[0])
        expected = [plain(net(image)) for image in images]
        if not all(map(same, map(plain, program(images)), expected)):
            print(f'{name}: the program differs from eager Gluon')
            return 1
        folder = options.folder / name
        program.export(folder, onnx=True)
        np.savez(folder.with_suffix('.npz'), *[image.asnumpy() for image in images])
        data = json.dumps(expected, default=lambda array: array.tolist())
        folder.with_suffix('.json').write_text(data)
        print(f'{name}: written, {len(images)} samples in {program.report().runs} runs of blocks')
    return 0


# --- where it is not -----------------------------------------------------------------------------


def check(options: argparse.Namespace) -> int:
    """Whether the runtime gives the same, for all samples at once and for some alone."""
    import gluon_edbatch_runtime as edb

    assert 'mxnet' not in sys.modules
    wrong = 0
    for path in sorted(options.folder.glob('*.npz')):
        program = edb.load_program(path.with_suffix(''))
        arrays = np.load(path)
        images = [arrays[f'arr_{number}'] for number in range(len(arrays.files))]
        expected = json.loads(path.with_suffix('.json').read_text())
        found = program(images) + [program([image])[0] for image in images[:5]]
        bad = sum(
            not same(_lists(one), other) for one, other in zip(found, expected + expected[:5])
        )
        print(f'{path.stem}: {len(found) - bad} of {len(found)} results equal')
        wrong += bad
    return int(wrong > 0)


def _lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_lists(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


# --- speed ---------------------------------------------------------------------------------------


def seconds_of(run: Callable[[], Any]) -> float:
    """Of one run, repeated for a while; the best of short rounds."""
    run()
    best, until = float('inf'), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def run(options: argparse.Namespace) -> int:
    """Milliseconds a sample of a bundle, alone and of all at once, as JSON (for ``speed``)."""
    import gluon_edbatch_runtime as edb

    program = edb.load_program(options.folder)
    arrays = np.load(options.folder.with_suffix('.npz'))
    images = [arrays[f'arr_{number}'] for number in range(len(arrays.files))]
    print(json.dumps(times_of(program, images)))
    return 0


def times_of(program: Callable, images: Sequence[Any], finish: Callable = list) -> Dict[str, float]:
    """Milliseconds a sample, alone and of all at once."""
    some = images[:8]
    alone = seconds_of(lambda: [finish(program([image])) for image in some]) / len(some)
    together = seconds_of(lambda: finish(program(list(images)))) / len(images)
    return {'alone': 1e3 * alone, 'together': 1e3 * together}


def speed(options: argparse.Namespace) -> int:
    """A table of eager hybridized Gluon, the program, and the program without MXNet, in turns."""
    import mxnet as mx

    import gluon_edbatch as edb

    print('ms a sample   eager    program  of 64    ONNX     of 64   eager / best')
    for name in networks_of(options):
        net, images = network_and_samples(name, options.data)
        program = edb.compile_program(net, images[0])
        rows: List[List[float]] = []
        with tempfile.TemporaryDirectory() as folder:
            bundle = Path(folder) / name
            program.export(bundle, onnx=True)
            np.savez(bundle.with_suffix('.npz'), *[image.asnumpy() for image in images])
            for _ in range(options.rounds):
                row = [1e3 * seconds_of(partial(_eagerly, net, images[:8])) / 8]
                row += times_of(program, images, _waited).values()
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


def _leaves(value: Any) -> List[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value] if hasattr(value, 'wait_to_read') else []


def _of_other(options: argparse.Namespace, bundle: Path) -> List[float]:
    if not options.other:
        return []
    command = [options.other, __file__, 'run', str(bundle)]
    environment = {**os.environ, 'PYTHONPATH': ''}
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return list(json.loads(found.stdout.splitlines()[-1]).values())


if __name__ == '__main__':
    chosen = arguments()
    sys.exit({'write': write, 'check': check, 'speed': speed, 'run': run}[chosen.command](chosen))
