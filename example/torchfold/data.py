"""Images of handwritten digits in MNIST's files: reading and checking them.

A directory holds ``mnist_5k.csv.gz`` (training: 784 pixels from 0 to 255 and the digit in each
line), ``t10k-images-idx3-ubyte.gz`` and ``t10k-labels-idx1-ubyte.gz`` (test).
"""

import gzip
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from example.common.errors import DataError

__all__ = ['Digits', 'LAYOUT', 'load_test', 'load_train']

TRAIN = 'mnist_5k.csv.gz'
TEST_IMAGES, TEST_LABELS = 't10k-images-idx3-ubyte.gz', 't10k-labels-idx1-ubyte.gz'
LAYOUT = f'{TRAIN}, {TEST_IMAGES} and {TEST_LABELS}'
SIDE, CLASSES = 28, 10
PIXELS = SIDE**2
_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049


class Digits(NamedTuple):
    """Images of digits and their labels.

    Attributes
    ----------
    images : numpy.ndarray
        (n, 784) float32, from 0 (background) to 1.
    labels : numpy.ndarray
        (n,) the digits.
    """

    images: np.ndarray
    labels: np.ndarray


def load_train(directory) -> Digits:
    """Return the training images.

    Raises
    ------
    DataError
        The file is missing, or not what the layout asks for.
    """
    path = Path(directory) / TRAIN
    contents = _unpacked(path)
    try:
        lines = [line for line in contents.decode().splitlines() if line.strip()]
        table = (
            np.loadtxt(lines, dtype=np.int64, delimiter=',', ndmin=2, comments=None)
            if lines
            else np.zeros((0, PIXELS + 1), np.int64)
        )
    except ValueError as error:
        raise DataError(
            f'{path}: not lines of whole numbers with commas between ({error})'
        ) from None
    if table.shape[1] != PIXELS + 1 or ((table < 0) | (table > 255)).any():
        raise DataError(
            f'{path}: a line has {PIXELS} pixels from 0 to 255 and a digit, not '
            f'{table.shape[1]} numbers from {table.min()} to {table.max()}'
        )
    return _digits(path, table[:, :PIXELS], table[:, PIXELS])


def load_test(directory) -> Digits:
    """Return the test images. Raise a DataError as `load_train` does."""
    directory = Path(directory)
    images = _read_idx(directory / TEST_IMAGES, _IMAGES_MAGIC, (SIDE, SIDE))
    labels = _read_idx(directory / TEST_LABELS, _LABELS_MAGIC, ())
    if len(images) != len(labels):
        raise DataError(f'{directory / TEST_LABELS}: {len(labels)} labels for {len(images)} images')
    return _digits(directory / TEST_LABELS, images.reshape(-1, PIXELS), labels)


def _digits(path: Path, pixels: np.ndarray, labels: np.ndarray) -> Digits:
    if not len(labels):
        raise DataError(f'{path}: there are no images')
    if labels.max() >= CLASSES:
        raise DataError(f'{path}: a label is a digit, not {labels.max()}')
    return Digits(pixels.astype(np.float32) / 255, labels.astype(np.int64))


def _read_idx(path: Path, magic: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return (n, *shape) bytes of an idx file."""
    contents = _unpacked(path)
    header = struct.Struct(f'>{2 + len(shape)}I')
    if len(contents) < header.size:
        raise DataError(f'{path}: no idx file, as it has {len(contents)} bytes only')
    found, count, *sides = header.unpack_from(contents)
    if found != magic or tuple(sides) != shape:
        raise DataError(
            f'{path}: an idx file with magic number {found} and shape {tuple(sides)}, '
            f'not {magic} and {shape}'
        )
    values = np.frombuffer(contents, np.uint8, offset=header.size)
    if len(values) != count * int(np.prod(shape)):
        raise DataError(f'{path}: {len(values)} bytes for {count} items of shape {shape}')
    return values.reshape((count, *shape))


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f'{path}: there is no such file; a data directory holds {LAYOUT}') from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f'{path}: not a gzip file, or damaged ({error})') from None
