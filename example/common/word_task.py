"""Base class of tasks whose samples are made of words."""

import argparse
from collections.abc import Sequence
from typing import Any, ClassVar, Optional

import mxnet as mx
from mxnet import gluon

from .errors import OptionError
from .options import nonnegative_float, positive_int
from .task import Task
from .words import Words, build_words, embedding_rows, read_vectors

__all__ = ['WordTask']


class WordTask(Task):
    """A task with a vocabulary of words and, on request, pretrained word vectors.

    Attributes
    ----------
    embed_width : int
        Width of the embedding, if neither ``--embed`` nor ``--glove`` sets it.
    options : argparse.Namespace
    words : Words
    """

    embed_width: ClassVar[int] = 50
    shape = (*Task.shape, 'embed')
    training = (*Task.training, 'embed_lr')
    paths = (*Task.paths, 'glove')

    words: Words

    @classmethod
    def add_options(cls, data, model) -> None:
        data.add_argument(
            '--glove',
            metavar='FILE',
            help='word vectors: GloVe text, or .npz with "vectors" and words in it '
            'or in words.txt beside it',
        )
        model.add_argument(
            '--embed',
            type=positive_int,
            metavar='D',
            help=f'width of the word vectors (default: that of --glove, or {cls.embed_width})',
        )
        model.add_argument(
            '--embed-lr',
            type=nonnegative_float,
            metavar='LR',
            help='learning rate of word vectors; 0 leaves them as they are '
            '(default: 0 with --glove, else --lr)',
        )

    def settle_words(
        self,
        options: argparse.Namespace,
        state: Optional[dict[str, Any]],
        train: Sequence[str],
        others: Sequence[str],
    ) -> None:
        """Set the vocabulary, and what depends on ``--glove``.

        Parameters
        ----------
        options : argparse.Namespace
            Options, in which ``embed`` and ``embed_lr`` are set if they are not yet.
        state : dict, optional
            State of a checkpoint, which has these values.
        train, others : sequence of str
            Tokens of the training samples, and of those of dev and test.
        """
        self.options = options
        self._rows = None
        if state is not None:
            self.words = Words.from_json(state['words'])
            return
        known = None
        if options.glove is not None:
            tokens = {*train, *others}
            known = read_vectors(options.glove, tokens | {token.lower() for token in tokens})
        self.words = build_words(train, others, known)
        if known is not None:
            self._take_vectors(known)
        options.embed = options.embed or self.embed_width
        if options.embed_lr is None:
            options.embed_lr = options.lr if known is None else 0.0

    def _take_vectors(self, known) -> None:
        options, width = self.options, known.vectors.shape[1]
        if options.embed not in (None, width):
            raise OptionError(
                f'--embed {options.embed}: the vectors in {options.glove} have {width} numbers'
            )
        self._rows, missing = embedding_rows(self.words, known, options.seed)
        print(
            f'{len(self.words.vocab) - len(missing)} of {len(self.words.vocab)} words '
            f'({"cased" if self.words.cased else "lower case"}) have a vector'
        )
        options.embed = width

    def state(self) -> dict[str, Any]:
        return {'words': self.words.to_json()}

    def initialize(self, net: gluon.Block, embedding: gluon.Parameter, scale: float) -> None:
        """Initialise a model: word vectors are pretrained, or normal with that scale."""
        options = self.options
        embedding.lr_mult = options.embed_lr / options.lr
        embedding.grad_req = 'write' if options.embed_lr else 'null'
        embedding.init = mx.init.Normal(scale)
        net.initialize(mx.init.Xavier(factor_type='in', magnitude=1), ctx=options.ctx)
        if self._rows is not None:
            embedding.set_data(self._rows)

    def describe(self) -> str:
        return (
            f'words: {len(self.words.vocab)}; hidden {self.options.hidden}, embedding '
            f'{self.options.embed}'
        )
