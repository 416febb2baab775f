"""Write a folder for the server: a Tree-LSTM with its words, parameters, requests and page."""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Any, Optional

import gluon_edbatch  # noqa: F401  before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx

from example.common import checkpoint as checkpoints
from example.common.words import Words
from example.tree_sst.data import Phrase, load_split
from example.tree_sst.task import SentimentTask
from example.tree_sst.train import main as train

__all__ = ['as_request', 'main', 'write_folder']

SERVED = Path(__file__).with_name('served')
TRAINING = '--epochs 8 --hidden 150 --embed 150 --lr 0.005 --embed-lr 0.015 --batch-size 20'


def as_request(phrase: Phrase) -> dict[str, list[Any]]:
    """Return a tree in the form of a request."""
    merges: list[list[int]] = []
    waiting: list[int] = []
    words = phrase.words()
    leaf = 0
    for node in phrase.nodes():
        if node.children:
            right, left = waiting.pop(), waiting.pop()
            merges.append([left, right])
            waiting.append(len(words) + len(merges) - 1)
        else:
            waiting.append(leaf)
            leaf += 1
    return {'words': words, 'merges': merges}


def write_folder(folder: Path, checkpoint: Path, data: Path) -> None:
    """Write the folder of a checkpoint; a complete new folder replaces an older one.

    Parameters
    ----------
    folder, checkpoint : Path
    data : Path
        Directory of the treebank; its trees of dev are what a server warms up with.
    """
    found = checkpoints.load(checkpoint)
    words = Words.from_json(found.state['words'])
    arrays = {
        name: mx.nd.array(array, dtype=array.dtype) for name, array in found.best_parameters.items()
    }
    shape = {name: found.options[name] for name in ('embed', 'hidden')}
    warm_up = [as_request(phrase) for phrase in load_split(data / 'dev.txt')[:64]]
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f'.{folder.name}.'))
    try:
        for path in SERVED.iterdir():
            if path.is_file():
                shutil.copy(path, part)
        mx.nd.save(str(part / 'net.params'), arrays)
        texts = {'words': {'words': words.vocab.idx_to_token, **shape}, 'warm_up': warm_up}
        for name, content in texts.items():
            (part / f'{name}.json').write_text(json.dumps(content), encoding='utf-8')
        part.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, required=True, metavar='DIR', help='the folder')
    parser.add_argument(
        '--checkpoint',
        type=Path,
        metavar='FILE',
        help='of train.py, with --model treelstm; otherwise one is trained on the embedded sample',
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = options.checkpoint
        if checkpoint is None:
            checkpoint = Path(directory) / 'checkpoint'
            status = train([*TRAINING.split(), '--checkpoint', str(checkpoint)])
            if status:
                return status
        try:
            write_folder(options.out, checkpoint, SentimentTask.sample)
        except (OSError, ValueError, KeyError) as error:
            print(f'{options.out}: not written: {error}', file=sys.stderr)
            return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
