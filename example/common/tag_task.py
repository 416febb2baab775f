"""Base class of tasks that tag the units of a sentence, to find named entities."""

from collections.abc import Sequence
from typing import Any, ClassVar

import mxnet as mx
import numpy as np
from mxnet import gluon

from .errors import DataError
from .options import add_size
from .spans import SpanScore, score_spans
from .vocab_task import VocabTask

__all__ = ['TagTask']


class TagTask(VocabTask):
    """A task whose model gives a row of scores, over the tags, for each unit of a sentence.

    A sample has ``tags``, (n,) float32 ids of the right ones; `vocabs` has them, too.
    """

    columns = {'f1': 'F1', 'precision': 'precision', 'recall': 'recall', 'accuracy': 'accuracy'}
    best_by = 'f1'
    shape = (*VocabTask.shape, 'embed')
    embed_width: ClassVar[int] = 100

    @classmethod
    def add_options(cls, data, model) -> None:
        add_size(model, '--embed', cls.embed_width, 'D', 'width of the embeddings')

    def tag_id(self, tag: str) -> int:
        """Return the id of a tag."""
        tags = self.vocabs['tags']
        if tag not in tags:
            raise DataError(
                f'{self.options.data}: the tag {tag} is none of those that the '
                f'checkpoint knows ({" ".join(tags.idx_to_token)})'
            )
        return tags[tag]

    def initialize(self, net: gluon.Block) -> None:
        """Initialise a model."""
        for parameter in net.collect_params('.*embedding.*_weight').values():
            parameter.init = mx.init.Normal(0.3)
        net.initialize(mx.init.Xavier(), ctx=self.options.ctx)

    def loss(self, net, criterion, sample):
        return criterion(net(sample), sample.tags)

    def measure(self, rows: np.ndarray, samples: Sequence[Any]) -> SpanScore:
        names = self.vocabs['tags'].idx_to_token
        ends = np.cumsum([len(sample.tags) for sample in samples])
        predicted = np.split(rows.argmax(axis=1), ends[:-1])
        return score_spans(
            [[names[int(tag)] for tag in sample.tags] for sample in samples],
            [[names[tag] for tag in tags] for tags in predicted],
        )
