"""Models of the examples with and without MXNet: exported, compared, and timed in turns.

python tests/runtime/exported.py write DIR [--data DATA]     # where gluon_edbatch is
python tests/runtime/exported.py check DIR                   # where gluon_edbatch_runtime is
python tests/runtime/exported.py compare DIR --other PYTHON  # both: PYTHON is that of the latter
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Callable, NamedTuple, Optional
from zlib import crc32

for _name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'):
    os.environ.setdefault(_name, '1')

import numpy as np  # noqa: E402  reads how many threads it has

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

try:
    import gluon_edbatch as edb
except ImportError:
    import gluon_edbatch_runtime as edb

from example.lattice.encode import tags  # noqa: E402
from example.tagger import encode as encode_tagger  # noqa: E402
from example.tree_lstm.encode import relatedness  # noqa: E402
from example.tree_sst.encode import classes  # noqa: E402

SECONDS = 0.8
SCHEDULERS = 'agenda', 'agenda-remaining', 'beam', 'depth', 'sufficient', 'unbatched'


class Tree(NamedTuple):
    """A node as the functions of the examples read it."""

    token: Optional[int]
    kind: int
    children: list['Tree']


class Lattice(NamedTuple):
    """A sentence as the functions of the examples read it."""

    chars: list[int]
    arcs: list[list[list[int]]]


def tree_of(item: Sequence[Any]) -> Tree:
    """A tree from JSON."""
    return Tree(item[0], item[1], [tree_of(child) for child in item[2]])


def item_of(tree: Any) -> list[Any]:
    """A tree as JSON."""
    kind = getattr(tree, 'kind', 0)
    return [tree.token, kind, [item_of(child) for child in tree.children]]


class Token(NamedTuple):
    """A word as the functions of the examples read it: by its id, or spelt."""

    word: int
    chars: list[int]


class Sentence(NamedTuple):
    """A sentence as the tagger takes it."""

    tokens: list[Token]


class Case(NamedTuple):
    """A model, its samples as JSON, and how a sample runs on it.

    Attributes
    ----------
    make : callable
        Net, samples and settings, where there is MXNet.
    build : callable
        The net from the settings.
    parse : callable
        A sample from JSON.
    run : callable
        On the net or its cells, with a sample and the settings.
    batch : int
        Samples of a minibatch.
    arguments : callable
        Of the whole model, for a sample.
    """

    make: Callable[..., Any]
    build: Callable[..., Any]
    parse: Callable[[Any], Any]
    run: Callable[..., Any]
    batch: int
    arguments: Callable[[Any], tuple] = lambda sample: (sample,)


# --- what needs MXNet ---------------------------------------------------------------------------


def make_sick(data: Optional[Path], count: int) -> Any:
    """SICK pairs."""
    from example.common.words import build_words
    from example.tree_lstm.data import build_pairs, load_split, tokens_of

    raw = load_split((data / 'sick' if data else ROOT / 'example/tree_lstm/sample') / 'train')
    words = build_words(tokens_of(raw))
    pairs = build_pairs(raw[:count], words.ids)
    samples = [[item_of(pair.left), item_of(pair.right)] for pair in pairs]
    return samples, [len(words.vocab), 300, 150, 50]


def build_sick(*sizes: int) -> Any:
    """The example's model."""
    from example.tree_lstm.model import SICKModel

    return SICKModel(*sizes)


def make_sst(data: Optional[Path], count: int) -> Any:
    """Trees of two kinds of inner nodes."""
    from example.common.words import build_words
    from example.tree_sst.data import build_samples, load_split, tokens_of

    folder = data / 'sst' if data else ROOT / 'example/tree_sst/sample'
    raw = load_split(folder / 'train.txt')
    words = build_words(tokens_of(raw))
    samples = [item_of(sample.tree) for sample in build_samples(raw[:count], words.ids)]
    return samples, [len(words.vocab), 64, 64]


def build_sst(*sizes: int) -> Any:
    """The example's model."""
    from example.tree_sst.model import TwoCellTreeLSTM

    return TwoCellTreeLSTM(*sizes)


def make_lattice(data: Optional[Path], count: int) -> Any:
    """Sentences with the words of a dictionary."""
    from example.lattice.data import build_lattice, find_words, load_split, load_words

    folder = data / 'zh_ner_weibo' if data else ROOT / 'example/lattice/sample'
    listed = data / 'zh_wordlist/dict.txt.small' if data else folder / 'words.txt'
    dictionary, chars, words = load_words(listed), {}, {}
    samples = []
    for sentence in load_split(folder, 'train')[:count]:
        lattice = build_lattice(
            sentence,
            find_words(sentence.chars, dictionary),
            lambda char: chars.setdefault(char, len(chars)),
            lambda word: words.setdefault(word, len(words)),
            lambda tag: 0,
        )
        samples.append([lattice.chars, lattice.arcs])
    return samples, [len(chars), max(1, len(words)), 9, 64, 64]


def build_lattice_net(*sizes: int) -> Any:
    """The example's model."""
    from example.lattice.model import LatticeTagger

    return LatticeTagger('lstm', *sizes)


def make_tagger(data: Optional[Path], count: int) -> Any:
    """Sentences, of which words that occur once are spelt."""
    from example.tagger.data import load_split

    folder = data / 'wikiner' if data else ROOT / 'example/tagger/sample'
    sentences = [each.words for each in load_split(folder / 'train.txt')[:count]]
    seen = Counter(word for sentence in sentences for word in sentence)
    words: dict[str, int] = {}
    chars: dict[str, int] = {}
    samples = [
        [
            [words.setdefault(word, len(words)), []]
            if seen[word] > 1
            else [-1, [chars.setdefault(char, len(chars)) for char in word]]
            for word in sentence
        ]
        for sentence in sentences
    ]
    return samples, [len(words), 9, 64, 50, 2, len(chars), 20]


def build_tagger(*sizes: int) -> Any:
    """The example's model."""
    from example.tagger.model import BiLSTMTagger

    return BiLSTMTagger(*sizes)


def run_tagger(model: Any, tokens: Any, sizes: Sequence[int]) -> Any:
    """Return the scores of a sentence's words."""
    return encode_tagger.tags(model, tokens, _zeros(sizes[3]), _zeros(sizes[2] // 2))


def _zeros(width: int) -> list[np.ndarray]:
    return [np.zeros((1, width), np.float32)] * 2


CASES: dict[str, Case] = {
    'sick': Case(
        make_sick,
        build_sick,
        lambda item: list(map(tree_of, item)),
        lambda model, pair, sizes: relatedness(model, *pair),
        256,
        tuple,
    ),
    'sst': Case(make_sst, build_sst, tree_of, lambda model, tree, sizes: classes(model, tree), 64),
    'lattice': Case(
        make_lattice,
        build_lattice_net,
        lambda item: Lattice(*item),
        lambda model, lattice, sizes: tags(model, lattice, _zeros(sizes[-1])),
        64,
    ),
    'tagger': Case(
        make_tagger,
        build_tagger,
        lambda item: [Token(*each) for each in item],
        run_tagger,
        64,
        lambda tokens: (Sentence(tokens),),
    ),
}


def write(folder: Path, data: Optional[Path], minibatches: int) -> None:
    """Export each case, with its samples and what MXNet comes to."""
    import mxnet as mx

    for name, case in CASES.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        samples, sizes = case.make(data, case.batch * minibatches)
        mx.random.seed(0)
        np.random.seed(0)
        net = case.build(*sizes)
        net.initialize(mx.init.Xavier())
        parsed = list(map(case.parse, samples))
        starts = range(0, len(parsed), case.batch)
        options = {'compile_options': edb.CompileOptions(at_once=False)}
        learning = edb.FSMScheduler()
        for begin in starts:
            part = parsed[begin : begin + case.batch]
            run_batch(case, net, part, sizes, scheduler=learning, **options)
        learned = edb.FSMScheduler(learning.policies[-1])
        batches, found = [], []
        for begin in starts:
            part = parsed[begin : begin + case.batch]
            scope, values = run_batch(case, net, part, sizes, scheduler=learned, **options)
            batches.append(sum(len(schedule) for _, schedule in scope.schedules()))
            found += [value.asnumpy() for value in values]
        with edb.batching(scheduler=learned, **options) as scope:  # every kind of call
            for sample in parsed:
                case.run(net, sample, sizes)
        edb.export(net, scope, target / 'bundle')
        few = [case.arguments(sample) for sample in parsed[: case.batch]]
        edb.export(net, few, target / 'model', unpack=True)
        net.save_parameters(str(target / 'net.params'))
        np.save(target / 'expected.npy', np.concatenate(found), allow_pickle=False)
        facts = {'samples': samples, 'sizes': sizes, 'batches': batches}
        (target / 'case.json').write_text(json.dumps(facts))
        print(f'{name}: {len(samples)} samples, {batches} batches')
    from tests.runtime import whole_models

    for kind in whole_models.MODELS:
        net, samples = whole_models.made(kind, 12)
        edb.export(net, samples, folder / 'whole' / kind.__name__)
    (folder / 'schedules.json').write_text(json.dumps(schedules()))


# --- either -------------------------------------------------------------------------------------


def run_batch(
    case: Case, model: Any, samples: Sequence[Any], sizes: Sequence[int], **options: Any
) -> Any:
    """The scope of a minibatch, and the values that were computed."""
    with edb.batching(**options) as scope:
        values = [case.run(model, sample, sizes) for sample in samples]
    edb.forward(values)
    return scope, values


def schedules(graphs: int = 12) -> dict[str, list[Any]]:
    """What each scheduler makes of graphs by chance, and the policies that are learned of them:
    the same with every Python and NumPy."""
    room, rng = import_module('gluon_edbatch_core.schedule'), random.Random(0)
    graph_of = import_module('gluon_edbatch_core.graph').Graph.from_lists
    found: dict[str, list[Any]] = {}
    for number in range(graphs):
        count = rng.randrange(2, 120)
        inputs = [
            sorted(rng.sample(range(node), min(node, rng.randrange(4)))) for node in range(count)
        ]
        kinds = [rng.randrange(5) for _ in range(count)]
        graph = graph_of(kinds, inputs, 5, alone=[4] if number % 3 == 0 else [])
        for name in SCHEDULERS:
            _note(found, name, graph, room.get_scheduler(name))
        learning = room.FSMScheduler()
        for _ in range(2):
            _note(found, 'fsm', graph, learning)
        found.setdefault('policies', []).append([each.content() for each in learning.policies])
        found.setdefault('bound', []).append(int(room.lower_bound(graph)))
    return found


def _note(found: dict[str, list[Any]], name: str, graph: Any, scheduler: Any) -> None:
    schedule = scheduler.schedule(graph)
    fault = schedule.fault(graph)
    if fault:
        raise SystemExit(f'{name}: {fault}')
    order, bounds = schedule.order.astype('<i4'), schedule.bounds.astype('<i8')
    found.setdefault(name, []).append(
        [len(schedule), crc32(order.tobytes()), crc32(bounds.tobytes())]
    )


def load(folder: Path, name: str) -> Any:
    """A case's model or cells, samples and facts."""
    facts = json.loads((folder / name / 'case.json').read_text())
    case = CASES[name]
    if hasattr(edb, 'load_cells'):
        model = edb.load_cells(folder / name / 'bundle')
    else:
        model = case.build(*facts['sizes'])
        model.load_parameters(str(folder / name / 'net.params'))
    return case, model, list(map(case.parse, facts['samples'])), facts


def check(folder: Path) -> int:
    """Compare numbers and batches with those that were saved; gives the exit status."""
    failed = 0
    for name in CASES:
        case, model, samples, facts = load(folder, name)
        expected, row = np.load(folder / name / 'expected.npy', allow_pickle=False), 0
        most, batches = 0.0, []
        for begin in range(0, len(samples), case.batch):
            scope, values = run_batch(
                case, model, samples[begin : begin + case.batch], facts['sizes']
            )
            batches.append(scope.batches)
            for value in values:
                found = value.asnumpy()
                most = max(most, float(np.abs(found - expected[row : row + len(found)]).max()))
                row += len(found)
        most = max(most, apart_outside(case, model, samples, facts['sizes'], expected))
        edb.load(folder / name / 'model').check()
        right = row == len(expected) and most <= 1e-5 and batches == facts['batches']
        failed += not right
        print(
            f'{name}: {len(samples)} samples, {row} rows, up to {most:.2g} apart, '
            f'{sum(batches)} batches ({sum(facts["batches"])} with MXNet)'
            f'{"" if right else ": WRONG"}'
        )
    for bundle in sorted((folder / 'whole').iterdir()):
        print(f'{bundle.name}: {edb.load(bundle).check()} samples of whole values')
    found = json.loads(json.dumps(schedules()))
    expected = json.loads((folder / 'schedules.json').read_text())
    wrong = [name for name in expected if found.get(name) != expected[name]]
    failed += len(wrong)
    print(f'schedules: {"as with MXNet" if not wrong else f"WRONG of {wrong}"}')
    return int(failed > 0)


def apart_outside(
    case: Case, model: Any, samples: Sequence[Any], sizes: Sequence[int], expected: np.ndarray
) -> float:
    """How far results outside of scopes are from the expected ones. Cases that need a scope are 0
    apart: they make ragged values themselves."""
    try:
        found = np.concatenate([case.run(model, sample, sizes) for sample in samples])
    except edb.RecordError as error:
        assert 'needs a batching() scope' in str(error), error
        return 0.0
    return float(np.abs(found - expected).max())


def serve(folder: Path, name: str) -> None:
    """Time minibatches whenever a line comes; print samples a second."""
    case, model, samples, facts = load(folder, name)
    batches = [samples[begin : begin + case.batch] for begin in range(0, len(samples), case.batch)]
    for batch in batches * 5:
        run_batch(case, model, batch, facts['sizes'])
    print('ready', flush=True)
    for _ in sys.stdin:
        done, begin, number = 0, time.perf_counter(), 0
        while time.perf_counter() - begin < SECONDS:
            batch = batches[number % len(batches)]
            _, values = run_batch(case, model, batch, facts['sizes'])
            values[-1].asnumpy()
            done, number = done + len(batch), number + 1
        print(done / (time.perf_counter() - begin), flush=True)


def compare(folder: Path, other: str, rounds: int) -> None:
    """Samples a second of both, in turns: medians, with least and greatest."""
    for name in CASES:
        workers = [
            subprocess.Popen(
                [python, __file__, 'serve', str(folder), '--case', name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for python in (sys.executable, other)
        ]
        for worker in workers:
            while worker.stdout.readline().strip() != 'ready':
                if worker.poll() is not None:
                    raise SystemExit(f'{name}: a worker ended')
        found: list[list[float]] = [[], []]
        for _ in range(rounds):
            for worker, figures in zip(workers, found):
                worker.stdin.write('go\n')
                worker.stdin.flush()
                figures.append(float(worker.stdout.readline()))
        for worker in workers:
            worker.stdin.close()
            worker.wait()
        ratio = median(one / two for two, one in zip(*found))
        shown = [f'{median(each):.0f} ({min(each):.0f}–{max(each):.0f})' for each in found]
        print(f'{name}: with MXNet {shown[0]}, without {shown[1]}: {ratio:.2f}', flush=True)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('do', choices=('write', 'check', 'compare', 'serve'))
    parser.add_argument('folder', type=Path)
    parser.add_argument('--data', type=Path, help='real data (default: the embedded samples)')
    parser.add_argument('--minibatches', type=int, default=4)
    parser.add_argument('--other', help='the Python with gluon_edbatch_runtime')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--case', choices=sorted(CASES))
    parser.add_argument('--batch', type=int, help='samples of a minibatch')
    options = parser.parse_args()
    if options.batch:
        CASES.update({name: case._replace(batch=options.batch) for name, case in CASES.items()})
    if options.do == 'write':
        write(options.folder, options.data, options.minibatches)
    elif options.do == 'check':
        return check(options.folder)
    elif options.do == 'serve':
        serve(options.folder, options.case)
    else:
        compare(options.folder, options.other, options.rounds)
    return 0


if __name__ == '__main__':
    sys.exit(main())
