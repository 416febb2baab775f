"""The model, written for one sentence: a Transformer (Vaswani et al. 2017) of gluonnlp's."""

from mxnet import gluon

import gluon_edbatch as edb
from example.common.extras import nlp

from .data import Sentence

__all__ = ['SentenceTransformer']


class SentenceTransformer(edb.AutoBatchMixin, gluon.Block):
    """Compute scores (1, number of classes) of a sentence.

    Parameters
    ----------
    num_words, num_classes : int
        Sizes of the vocabulary and of the answer.
    hidden_size : int
        H: width of words and layers. Between, a layer is four times as wide.
    layers, heads : int
        Numbers of layers and heads of the encoder.
    longest : int
        Most words of a sentence, the number of positions.
    """

    def __init__(
        self,
        num_words: int,
        num_classes: int,
        hidden_size: int,
        layers: int = 2,
        heads: int = 4,
        longest: int = 100,
        **kwargs,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(num_words, hidden_size, sparse_grad=True)
            self.encoder = nlp.model.transformer.TransformerEncoder(
                num_layers=layers,
                units=hidden_size,
                hidden_size=4 * hidden_size,
                num_heads=heads,
                max_length=longest,
            )
            self.scores = gluon.nn.Dense(num_classes, in_units=hidden_size)

    def forward(self, sentence: Sentence):
        outputs, _ = self.encoder(self.embed(sentence.words))  # (1, n, H)
        return self.scores(outputs.mean(axis=1))
