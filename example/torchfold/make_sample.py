"""Make the embedded sample: digits of a font, shifted, turned, slanted and stretched.

    python example/torchfold/make_sample.py            # writes example/torchfold/sample

The font is seven cells high. The files are those that `data` reads.
"""

import gzip
import io
import struct
import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Optional

import numpy as np

from example.common.samples import run_maker, write_files

__all__ = ['main', 'write_sample']

SPLITS = {'train': 400, 'test': 150}
SIDE = 28
GLYPHS = [
    glyph.split()
    for glyph in (
        '.###. #...# #..## #.#.# ##..# #...# .###.',
        '..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###.',
        '.###. #...# ....# ..##. .#... #.... #####',
        '.###. #...# ....# ..##. ....# #...# .###.',
        '...#. ..##. .#.#. #..#. ##### ...#. ...#.',
        '##### #.... ####. ....# ....# #...# .###.',
        '..##. .#... #.... ####. #...# #...# .###.',
        '##### ....# ...#. ..#.. ..#.. .#... .#...',
        '.###. #...# #...# .###. #...# #...# .###.',
        '.###. #...# #...# .#### ....# ...#. .##..',
    )
]
_BITMAPS = np.pad(
    np.array([[[cell == '#' for cell in row] for row in glyph] for glyph in GLYPHS], np.float64),
    ((0, 0), (2, 2), (2, 2)),
)


def draw(digit: int, generator: np.random.RandomState) -> np.ndarray:
    """Draw a digit, (28, 28) uint8. Each pixel is looked up, by bilinear interpolation, where a
    random affine map places it in the font's bitmap."""
    angle, slant = generator.uniform(-0.2, 0.2), generator.uniform(-0.25, 0.25)
    height, width = generator.uniform(2.3, 3.1), generator.uniform(2.3, 3.3)  # pixels a cell
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    to_cells = np.diag([1 / height, 1 / width]) @ np.array([[1, 0], [slant, 1]]) @ turn
    place = np.indices((SIDE, SIDE)).reshape(2, -1) - (SIDE - 1) / 2
    bitmap = _BITMAPS[digit]
    center = (np.array(bitmap.shape) - 1) / 2 + generator.uniform(-0.7, 0.7, 2)
    rows, columns = np.clip(
        to_cells @ place + center[:, None], 0, np.array(bitmap.shape)[:, None] - 1.001
    )
    top, left = rows.astype(int), columns.astype(int)
    down, right = rows - top, columns - left
    ink = (1 - down) * ((1 - right) * bitmap[top, left] + right * bitmap[top, left + 1]) + down * (
        (1 - right) * bitmap[top + 1, left] + right * bitmap[top + 1, left + 1]
    )
    ink = np.clip(1.6 * ink - 0.3, 0, 1) * generator.uniform(0.7, 1)
    return (17 * np.round(15 * ink)).astype(np.uint8).reshape(SIDE, SIDE)  # 16 shades


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write training and test images into a directory."""
    counts = splits or SPLITS
    images, labels = _make(counts['train'], [seed, 0])
    lines = io.StringIO()
    np.savetxt(lines, np.column_stack([images.reshape(len(images), -1), labels]), '%d', ',')
    contents = {'mnist_5k.csv.gz': lines.getvalue().encode()}
    images, labels = _make(counts['test'], [seed, 1])
    contents['t10k-images-idx3-ubyte.gz'] = (
        struct.pack('>4I', 2051, *images.shape) + images.tobytes()
    )
    contents['t10k-labels-idx1-ubyte.gz'] = struct.pack('>2I', 2049, len(labels)) + labels.tobytes()
    write_files(
        directory, {name: gzip.compress(content, mtime=0) for name, content in contents.items()}
    )


def _make(count: int, seed):
    generator = np.random.RandomState(seed)
    labels = generator.permutation(np.arange(count) % 10).astype(np.uint8)
    return np.stack([draw(label, generator) for label in labels]), labels


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_maker(
        write_sample,
        Path(__file__).with_name('sample'),
        "Make a sample in the form of MNIST's files.",
        arguments,
    )


if __name__ == '__main__':
    sys.exit(main())
