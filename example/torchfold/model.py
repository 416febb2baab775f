"""A classifier of digits, written for one image."""
from mxnet import gluon
from mxnet.gluon import nn

from .data import CLASSES, PIXELS

__all__ = ['DigitNet']


class DigitNet(gluon.Block):
    """A perceptron; its layers are methods, to be noted by name.

    Parameters
    ----------
    hidden_size : int
        Width of the hidden layer.
    """

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first = nn.Dense(hidden_size, activation='relu', in_units=PIXELS)
            self.last = nn.Dense(CLASSES, in_units=hidden_size)

    def hidden(self, image):
        """(1, H) from an image (1, 784)."""
        return self.first(image)

    def scores(self, hidden):
        """(1, 10) from the hidden layer."""
        return self.last(hidden)

    def forward(self, image):
        """Scores of the ten digits, (1, 10), from an image (1, 784)."""
        return self.scores(self.hidden(image))
