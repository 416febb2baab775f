"""Canvases with two or three digits, and captions that say where they are: "three above seven".

Which digit comes first in a caption follows from the layout, so that each canvas has one caption.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ['END', 'LONGEST', 'SIDE', 'START', 'WORDS', 'caption_text', 'draw_canvases']

SIDE = 48
_LARGEST = 22  # of a digit: what a quarter of the canvas has room for when digits are moved
_NUMBERS = 'zero one two three four five six seven eight nine'.split()
WORDS = ('<end>', '<start>', *_NUMBERS, 'above', 'left', 'right', 'of', 'and')
END, START = 0, 1

_LOW, _MID, _HIGH = SIDE // 4, SIDE // 2, 3 * SIDE // 4  # centres


class _Layout(NamedTuple):
    """Words, with numbers for digits, and the centres (row, column) of these."""

    words: str
    centres: tuple[tuple[int, int], ...]
    free: tuple[int, int]  # how far all may be moved together, by rows and columns


_LAYOUTS = (
    _Layout('0 above 1', ((_LOW, _MID), (_HIGH, _MID)), (0, 10)),
    _Layout('0 left of 1', ((_MID, _LOW), (_MID, _HIGH)), (10, 0)),
    _Layout('0 above and left of 1', ((_LOW, _LOW), (_HIGH, _HIGH)), (0, 0)),
    _Layout('0 above and right of 1', ((_LOW, _HIGH), (_HIGH, _LOW)), (0, 0)),
    _Layout('0 above 1 left of 2', ((_LOW, _MID), (_HIGH, _LOW), (_HIGH, _HIGH)), (0, 0)),
    _Layout('0 left of 1 above 2', ((_LOW, _LOW), (_LOW, _HIGH), (_HIGH, _MID)), (0, 0)),
)
LONGEST = max(len(layout.words.split()) for layout in _LAYOUTS)  # words of a caption


def draw_canvases(
    images: np.ndarray, labels: np.ndarray, count: int, seed: Sequence[int]
) -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
    """Draw canvases (48, 48) uint8 and their captions, numbers of `WORDS` without the end symbol.

    Parameters
    ----------
    images : numpy.ndarray
        (n, 28, 28) uint8.
    labels : numpy.ndarray
        (n,) the digits that they show.
    count : int
        Number of canvases.
    seed : sequence of int
        Seed of layouts, digits and places.
    """
    generator = np.random.RandomState(list(seed))
    for _ in range(count):
        layout = _LAYOUTS[generator.randint(len(_LAYOUTS))]
        chosen = generator.randint(len(images), size=len(layout.centres))
        canvas = np.zeros((SIDE, SIDE), np.uint8)
        together = [generator.randint(-free, free + 1) for free in layout.free]
        for index, centre in zip(chosen, layout.centres):
            alone = generator.randint(-1, 2, size=2)
            _paint(canvas, images[index], np.array(centre) + together + alone)
        yield canvas, _caption(layout, labels[chosen].tolist())


def caption_text(caption: Sequence[int]) -> str:
    """Return the words of a caption as text."""
    return ' '.join(WORDS[word] for word in caption)


def _caption(layout: _Layout, digits: list[int]) -> tuple[int, ...]:
    return tuple(
        WORDS.index(_NUMBERS[digits[int(word)]] if word.isdigit() else word)
        for word in layout.words.split()
    )


def _paint(canvas: np.ndarray, image: np.ndarray, centre: np.ndarray) -> None:
    """Add the ink of a digit around a place; where two overlap, the darker one counts."""
    rows, columns = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return  # there are images without ink in no data set, but a file may have one
    ink = image[_middle(rows[0], rows[-1] + 1), _middle(columns[0], columns[-1] + 1)]
    top, left = centre - np.array(ink.shape) // 2
    part = canvas[top : top + ink.shape[0], left : left + ink.shape[1]]
    np.maximum(part, ink, out=part)


def _middle(begin: int, end: int) -> slice:
    """Return the middle part of an array that is too large for its place."""
    over = max(0, end - begin - _LARGEST)
    return slice(begin + over // 2, end - (over - over // 2))
