"""A classifier of digits, written for one image."""

import numpy as np
from mxnet import gluon
from mxnet.gluon import nn, rnn

from .data import CLASSES, SIDE

__all__ = ['DigitNet', 'strips_of']

HEIGHT = 2  # rows of a strip


def strips_of(image: np.ndarray) -> list[np.ndarray]:
    """Return the part of an image that has ink, from top to bottom.

    Parameters
    ----------
    image : numpy.ndarray
        (784,)

    Returns
    -------
    list of numpy.ndarray
        (1, 56) each, two rows; a tall digit has more strips.
    """
    rows = image.reshape(SIDE, SIDE)
    inked = np.flatnonzero(rows.any(axis=1))
    if not len(inked):
        return [np.zeros((1, HEIGHT * SIDE), np.float32)]
    rows = rows[inked[0] : inked[-1] + 1]
    rows = np.pad(rows, ((0, -len(rows) % HEIGHT), (0, 0)))
    return list(rows.reshape(-1, 1, HEIGHT * SIDE))


class DigitNet(gluon.Block):
    """Read an image strip by strip. `Fold.add` notes its methods by name.

    Parameters
    ----------
    hidden_size : int
        Width of the recurrent cell.
    """

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = rnn.LSTMCell(hidden_size, input_size=HEIGHT * SIDE)
            self.out = nn.Dense(CLASSES, in_units=hidden_size)

    def begin(self):
        """Return output and memory before the first strip, (1, H) each."""
        return self.cell.begin_state(1)

    def read(self, strip, output, memory):
        """Return output and memory after one more strip."""
        return self.cell(strip, [output, memory])[1]

    def scores(self, output):
        """Return scores of the ten digits, (1, 10)."""
        return self.out(output)

    def forward(self, strips):
        """Return scores of an image, (1, 10)."""
        state = self.begin()
        for strip in strips:
            state = self.read(strip, *state)
        return self.scores(state[0])
