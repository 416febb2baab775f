"""The models, written for one graph: message passing (after Gilmer et al. 2017) and graph attention
(Veličković et al. 2018)."""

from collections.abc import Sequence
from typing import Any

from mxnet import gluon

import gluon_edbatch as edb

from .data import Graph

__all__ = ['KINDS', 'Attention', 'AttentionHead', 'GraphLayer', 'GraphTagger', 'Messages']


class Messages(gluon.HybridBlock):
    """Compute a node's new vector from its own and the sum, or the maximum, of incoming messages.

    Inputs
        - **node**: (N, H)
        - **neighbours**: (N, K, H)

    Outputs
        - (N, H)
    """

    def __init__(self, hidden_size: int, reduce: str, **kwargs):
        super().__init__(**kwargs)
        self._reduce = reduce
        with self.name_scope():
            self.update = gluon.nn.Dense(hidden_size, activation='tanh', in_units=2 * hidden_size)

    def hybrid_forward(self, F, node, neighbours):
        """Compute vectors; each call is one node."""
        gathered = getattr(F, self._reduce)(neighbours, axis=1)
        return self.update(F.concat(node, gathered, dim=1))


class AttentionHead(gluon.HybridBlock):
    """Compute a mean of a node's neighbours, weighted by attention.

    Inputs
        - **node**: (N, D)
        - **neighbours**: (N, K, D)

    Outputs
        - (N, D)
    """

    def __init__(self, size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.of_node = gluon.nn.Dense(1, use_bias=False, in_units=size)
            self.of_neighbour = gluon.nn.Dense(1, use_bias=False, flatten=False, in_units=size)

    def hybrid_forward(self, F, node, neighbours):
        """Compute means; each call is one node."""
        scores = F.broadcast_add(
            F.expand_dims(self.of_node(node), axis=1), self.of_neighbour(neighbours)
        )
        weights = F.softmax(F.LeakyReLU(scores, slope=0.2), axis=1)
        return F.squeeze(F.batch_dot(weights, neighbours, transpose_a=True), axis=1)


class Attention(gluon.HybridBlock):
    """Compute a node's new vector by several heads, each with its share of the columns.

    Inputs and outputs are those of `Messages`.
    """

    def __init__(self, hidden_size: int, heads: int, **kwargs):
        super().__init__(**kwargs)
        if hidden_size % heads:
            raise ValueError(f'{heads} heads cannot share {hidden_size} columns alike')
        self._size = hidden_size // heads
        with self.name_scope():
            self.heads = gluon.nn.HybridSequential()
            for _ in range(heads):
                self.heads.add(AttentionHead(self._size))

    def hybrid_forward(self, F, node, neighbours):
        """Compute vectors; each call is one node."""
        parts = [
            head(self._part(F, node, k), self._part(F, neighbours, k))
            for k, head in enumerate(self.heads)
        ]
        return F.LeakyReLU(F.concat(*parts, dim=1), act_type='elu', slope=1.0)

    def _part(self, F, values, k: int):
        return F.slice_axis(values, axis=-1, begin=k * self._size, end=(k + 1) * self._size)


KINDS = {
    'sum': lambda hidden_size, heads: Messages(hidden_size, 'sum'),
    'max': lambda hidden_size, heads: Messages(hidden_size, 'max'),
    'attention': Attention,
}


class GraphLayer(edb.AutoBatchMixin, gluon.Block):
    """Compute new vectors, (1, H) each, of all nodes of a graph from the old ones, (1, E)."""

    def __init__(self, kind: str, hidden_size: int, input_size: int, heads: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.project = gluon.nn.Dense(hidden_size, use_bias=False, in_units=input_size)
            self.gather = KINDS[kind](hidden_size, heads)

    def forward(self, nodes: Sequence[Any], neighbours: Sequence[Sequence[int]]) -> list[Any]:
        values = [self.project(node) for node in nodes]
        return [
            self.gather(value, edb.ragged([values[other] for other in near]))
            for value, near in zip(values, neighbours)
        ]


class GraphTagger(edb.AutoBatchMixin, gluon.Block):
    """Compute scores (number of words, number of relations) for the words of a graph.

    Parameters
    ----------
    kind : str
        One of `KINDS`: how a node takes in its neighbours.
    num_words, num_relations : int
        Sizes of the vocabularies.
    embed_dim, hidden_size : int
        E and H.
    layers : int, default 2
        Number of `GraphLayer`: how far a node sees.
    heads : int, default 2
        Number of heads of `Attention`.
    """

    def __init__(
        self,
        kind: str,
        num_words: int,
        num_relations: int,
        embed_dim: int,
        hidden_size: int,
        layers: int = 2,
        heads: int = 2,
        **kwargs,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(num_words, embed_dim, sparse_grad=True)
            self.layers = gluon.nn.Sequential()
            for layer in range(layers):
                self.layers.add(
                    GraphLayer(kind, hidden_size, hidden_size if layer else embed_dim, heads)
                )
            self.scores = gluon.nn.Dense(num_relations, in_units=hidden_size)

    def forward(self, graph: Graph):
        nodes = [self.embed(word) for word in graph.words]
        for layer in self.layers:
            nodes = layer(nodes, graph.neighbours)
        return self.scores(edb.concat(nodes))
