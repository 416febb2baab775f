"""Digits in the networks' form: 32 x 32, in three splits; and the class of samples."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from example.torchfold.data import Digits, load_test, load_train

from .canvas import draw_canvases

__all__ = ['Sample', 'digit_samples', 'canvas_samples', 'images_of', 'read_splits']

SIDE = 28
BORDER = 2  # on each side: 32 can be halved five times


class Sample(NamedTuple):
    """An image and its target.

    Attributes
    ----------
    image : numpy.ndarray
        (1, H, W) uint8: a channel of shades, 0 is background.
    target : int or tuple of int
        The digit, or the words of the caption.
    """

    image: np.ndarray
    target: Any


def read_splits(directory) -> dict[str, Digits]:
    """Return training, dev (a tenth of the training images) and test digits of a directory.

    The training file may have its digits in order, so they are shuffled, always in the same way:
    what is dev does not depend on ``--seed``.
    """
    digits = load_train(directory)
    order = np.random.RandomState(0).permutation(len(digits.labels))
    images, labels = digits.images[order], digits.labels[order]
    dev = len(labels) // 10
    return {
        'train': Digits(images[dev:], labels[dev:]),
        'dev': Digits(images[:dev], labels[:dev]),
        'test': load_test(directory),
    }


def digit_samples(digits: Digits, count: int) -> list[Sample]:
    """Return the first `count` digits, or all, padded to 32 x 32."""
    pixels = _bytes(digits)[:count]
    padded = np.pad(pixels, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))
    return [Sample(image[None], int(label)) for image, label in zip(padded, digits.labels.tolist())]


def canvas_samples(digits: Digits, count: int, seed: Sequence[int]) -> list[Sample]:
    """Return so many canvases (`canvas.draw_canvases`) with digits drawn from these."""
    return [
        Sample(image[None], caption)
        for image, caption in draw_canvases(_bytes(digits), digits.labels, count, seed)
    ]


def images_of(samples: Sequence[Sample]) -> np.ndarray:
    """Return images (n, 1, H, W) float32 from 0 to 1."""
    return np.stack([sample.image for sample in samples]).astype(np.float32) / 255


def _bytes(digits: Digits) -> np.ndarray:
    return np.round(digits.images * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
