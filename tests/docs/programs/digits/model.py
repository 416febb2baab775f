"""Digits that follow digits, as many as the model likes: a folder for `gluon_edbatch.serving`."""

from typing import Annotated

from mxnet import gluon
from mxnet.gluon import nn, rnn
from pydantic import Field

import gluon_edbatch as edb

LONGEST, STOP = 6, 0
Digit = Annotated[int, Field(ge=0, le=9)]
Request = Annotated[list[Digit], Field(min_length=1, max_length=100)]  # a BaseModel is as good


class Continue(gluon.Block):
    """Each digit that is found best is the next one that is read."""

    def __init__(self, size=16, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(10, size)
            self.cell = rnn.GRUCell(size, input_size=size)
            self.scores = nn.Dense(10, in_units=size)

    def predict(self, digits):
        """A generator: all that are served wait for their scores together."""
        states, found = self.cell.begin_state(1), []
        for digit in digits:
            output, states = self.cell(self.embed(digit), states)
        while len(found) < LONGEST and STOP not in found:
            scores = yield self.scores(output)
            found.append(int(scores[0].argmax()))
            output, states = self.cell(self.embed(found[-1]), states)
        return found


def load(folder):
    """What is served; `folder` is a Path."""
    net = Continue()
    net.load_parameters(str(folder / 'net.params'))
    return edb.serving.Served(
        predict=net.predict,
        request=Request,
        read=list,
        write=list,
        warm_up=[[1], [2, 3], [4, 5, 6]],
    )
