"""Every exit and every skip of the networks of example/dynamic: eager Gluon, the compiled program
in MXNet, and what was exported in ONNX Runtime, where there is no MXNet.

python tests/runtime/forced_paths.py write DIR [NAME ...]    # where gluon_edbatch is
python tests/runtime/forced_paths.py check DIR               # where gluon_edbatch_runtime is

Networks are narrow and not trained. Each branch has a threshold, or captions an end symbol, by
which some samples go one way and some the other one, none of them nearly.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np  # reads how many threads it has

ROOT = Path(__file__).resolve().parents[2]
SAMPLES, ALONE = 32, 6
IN_MXNET, IN_ONNX = 1e-5, 1e-4


class Found(NamedTuple):
    """What a program did.

    Attributes
    ----------
    most : float
        How far its numbers are from eager Gluon's, of these or of 1; infinity where it decided
        otherwise.
    taken : list of list of int
        How many samples took each way of each block (see `ControlFlowProgram`).
    near : int
        Decisions in which rounding may have decided.
    """

    most: float
    taken: list[list[int]]
    near: int


def run(program: Any, images: Sequence[Any], expected: Sequence[Any]) -> Found:
    """A program on all samples, and on some alone."""
    results = list(program(images))
    taken = [list(ways) for ways in program.counts.taken]
    results += [program([image])[0] for image in images[:ALONE]]
    wanted = [*expected, *expected[:ALONE]]
    most = max([distance(plain(one), other) for one, other in zip(results, wanted)])
    return Found(most, taken, len(program.report().near))


def plain(value: Any) -> Any:
    """Arrays as lists in lists, as JSON has them; so tuples, too."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, 'asnumpy'):
        value = value.asnumpy()
    return value.tolist() if isinstance(value, np.ndarray) else value


def distance(found: Any, expected: Any) -> float:
    """Between results: floats are numbers of arrays, and anything else is decided."""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return float('inf')
        return max(map(distance, found, expected), default=0.0)
    if isinstance(expected, float):
        return abs(found - expected) / max(1, abs(expected))
    return 0.0 if found == expected else float('inf')


# --- where MXNet is ------------------------------------------------------------------------------


class _Noting:
    """Stands for a threshold: notes what is compared with it, none of which is above."""

    __array_ufunc__ = None  # so that NumPy's numbers leave the comparison to it

    def __init__(self) -> None:
        self.values: list[float] = []

    def __lt__(self, value: Any) -> bool:
        self.values.append(float(value))
        return False


def between(values: Sequence[float], above: float) -> float:
    """A number with about such a share of some others above it, where there is room."""
    ordered = np.sort(values)
    middle = min(max(1, round(len(ordered) * (1 - above))), len(ordered) - 1)
    places = range(max(1, middle - 2), min(len(ordered) - 1, middle + 2) + 1)
    place = max(places, key=lambda each: ordered[each] - ordered[each - 1])
    return float(ordered[place - 1] + ordered[place]) / 2


def part(net: Any, images: Sequence[Any]) -> None:
    """Set thresholds, the first branch first: as many as possible leave by each exit, and every
    other sample runs a block."""
    from example.dynamic.network import NEVER

    count = len(net.thresholds)
    for number in range(count):
        noting = _Noting()
        later = [NEVER] * (count - number - 1)
        net.thresholds = [*net.thresholds[:number], noting, *later]
        for image in images:
            net(image)
        above = 1 / (count - number + 1) if net.units == 'exits' else 0.5
        net.thresholds = [*net.thresholds[:number], between(noting.values, above), *later]


def ends_of(net: Any, images: Sequence[Any]) -> list[int]:
    """End symbols by which, between them, captions end at every word, and at none; if there are no
    such ones, none."""
    net.end = -1
    said = [net(image)[0] for image in images]
    at = {
        word: {each.index(word) if word in each else net.most for each in said}
        for word in sorted({word for each in said for word in each})
    }
    missing, chosen = set(range(net.most + 1)), []
    while missing:
        word = max(at, key=lambda word: len(at[word] & missing))
        if not at[word] & missing:
            return []
        chosen.append(word)
        missing -= at[word]
    return chosen


def settle(net: Any, images: Any, targets: Sequence[Any]) -> None:
    """Let batch norm know its statistics, as after training: numbers of a residual network that
    has none grow with each block."""
    from mxnet import autograd, gluon

    with autograd.train_mode():
        for _ in range(12):
            net.losses(images, targets, gluon.loss.SoftmaxCrossEntropyLoss()).wait_to_read()


def temper(net: Any, images: Any) -> None:
    """Let scores of all exits be about as far apart: in deep networks all would be sure."""
    for stage, classifier in zip(net.stages, net.classifiers):
        images = stage(images)
        weight = classifier.reduce[-1].weight
        weight.set_data(weight.data() / float(classifier(images)[0].asnumpy().std()))


def variants(name: str) -> Iterator[tuple[Any, list[Any]]]:
    """A network with samples that part, set up as often as it takes them to go every way."""
    import mxnet as mx

    from example.dynamic.data import images_of, read_splits
    from example.dynamic.networks import SAMPLE, build, draw_samples

    mx.random.seed(3)
    net = build(name, width=4)
    drawn = draw_samples(name, read_splits(SAMPLE)['test'], 'test', SAMPLES)
    together = mx.nd.array(images_of(drawn))
    images = [together[place : place + 1] for place in range(len(drawn))]
    net.hybridize()
    settle(net, together, [sample.target for sample in drawn])
    if net.units == 'exits':
        temper(net, together)
    if hasattr(net, 'thresholds'):
        if net.units == 'blocks':  # whose branches are many, each both ways
            images = images[:16]
        part(net, images)
        yield net, images
        return
    ends: list[int] = []
    while not ends:
        for parameter in net.speaker.collect_params('.*(weight|bias)').values():
            # Large: or all captions would repeat one word.
            parameter.set_data(mx.nd.random.normal(0, 0.45, shape=parameter.shape))
        ends = ends_of(net, images)
    for net.end in ends:
        yield net, images


def write(folder: Path, name: str) -> list[str]:
    """Compare a network's programs with it, and export them with what it comes to.

    Returns
    -------
    list of str
        What was wrong.
    """
    import gluon_edbatch as edb

    ways: dict[tuple[int, int], int] = {}
    most, near, ran = 0.0, 0, 0
    for number, (net, images) in enumerate(variants(name)):
        program, expected = edb.compile_program(net, images[0]), [plain(net(x)) for x in images]
        found = run(program.inference, images, expected)
        most, near, ran = max(most, found.most), near + found.near, ran + len(images)
        for block, counts in enumerate(found.taken):
            for way, count in enumerate(counts):
                ways[block, way] = ways.get((block, way), 0) + count
        target = folder / f'{name}-{number}'
        edb.export(program, target, onnx=True)
        np.savez(target.with_suffix('.npz'), *[image.asnumpy() for image in images])
        facts = {'expected': expected, 'taken': found.taken}
        target.with_suffix('.json').write_text(json.dumps(facts))
    least = min(ways.values())
    print(
        f'{name}: {ran} samples, {len(ways)} ways, each taken by {least} or more, up to {most:.1e} '
        f'apart, {near} near'
    )
    return [
        f'{name}: {what}'
        for what, wrong in (
            (f'differs from eager Gluon by {most}', most > IN_MXNET),
            (f'ways that none takes: {[way for way in ways if not ways[way]]}', not least),
            (f'{near} decisions are near', near),
        )
        if wrong
    ]


# --- where it is not -----------------------------------------------------------------------------


def check(folder: Path) -> list[str]:
    """Run what was exported; gives what was wrong."""
    import gluon_edbatch_runtime as edb

    assert 'mxnet' not in sys.modules
    wrong, paths = [], sorted(folder.glob('*.npz'))
    for path in paths:
        arrays = np.load(path)
        images = [arrays[f'arr_{number}'] for number in range(len(arrays.files))]
        facts = json.loads(path.with_suffix('.json').read_text())
        found = run(edb.load_program(path.with_suffix('')), images, facts['expected'])
        print(f'{path.stem}: {len(images)} samples, up to {found.most:.1e} apart')
        if found.most > IN_ONNX or found.taken != facts['taken']:
            wrong.append(f'{path.stem}: differs from eager Gluon by {found.most}, {found.taken}')
    return wrong if paths else [f'{folder}: there is nothing']


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('do', choices=('write', 'check'))
    parser.add_argument('folder', type=Path, help='of bundles')
    parser.add_argument('names', nargs='*', metavar='NAME', help='networks (default: all)')
    options = parser.parse_args()
    if options.do == 'check':
        wrong = check(options.folder)
    else:
        sys.path[:0] = [str(ROOT)]
        from example.dynamic.networks import NETWORKS

        options.folder.mkdir(parents=True, exist_ok=True)
        names = options.names or list(NETWORKS)
        wrong = [each for name in names for each in write(options.folder, name)]
    print('\n'.join([f'WRONG: {each}' for each in wrong]), end='\n' * bool(wrong))
    return int(bool(wrong))


if __name__ == '__main__':
    sys.exit(main())
