"""Graph networks, the pointer network and models of sentences, batched by hand in PyTorch with
padding and masks.

Neighbours are a matrix of each sentence, so that messages are products of whole minibatches; the
sentence that is read goes through PyTorch's own LSTM, packed. Checked against the per-sample models
in ``tests/bench/test_benchmark_dependencies.py`` and ``test_benchmark_sentences.py``.
"""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import torch
from mxnet import gluon
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from example.adaptive.model import LITTLE

from . import parameters_of
from .on_torch import OnTorch
from .padding import (
    Graphs,
    Groups,
    Height,
    Jagged,
    OfGraphs,
    OfGroups,
    OfWords,
    Orders,
    Phrases,
    Sentences,
    Words,
    plan_jagged,
    plan_orders,
    plan_phrases,
)

__all__ = [
    'NestedTransformer',
    'PaddedGraphs',
    'PaddedPhrases',
    'PaddedPointer',
    'PaddedReader',
    'PaddedTransformer',
]


class _Padded(OnTorch):
    """The common part of rivals that pad.

    Parameters
    ----------
    net : mxnet.gluon.Block
        An initialised model, whose parameters are copied.
    optimizer : str
        ``sgd``, ``adagrad`` or ``adam``.
    learning_rate : float
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        super().__init__(ctx)
        self.weights = {
            name: torch.tensor(
                parameter.data().asnumpy(),
                device=self.device,
                requires_grad=parameter.grad_req != 'null',
            )
            for name, parameter in parameters_of(net).items()
        }
        self._trained = {name: value for name, value in self.weights.items() if value.requires_grad}
        self._sparse = optimizer != 'adam'  # which PyTorch has for dense gradients only
        self.train(self._trained, optimizer, learning_rate)

    def gradients(self) -> dict[str, np.ndarray]:
        """Return gradients of the last backward pass, by a parameter's place in the model."""
        return {name: value.grad.to_dense().cpu().numpy() for name, value in self._trained.items()}

    def _upload(self, arrays: Sequence[np.ndarray]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)

    def _words(self, ids: torch.Tensor, name: str = 'embed') -> torch.Tensor:
        return F.embedding(ids, self.weights[f'{name}.weight'], sparse=self._sparse)

    def _dense(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weights[f'{name}.weight'], self.weights.get(f'{name}.bias'))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self.weights[f'{name}.gamma'], self.weights[f'{name}.beta']
        return F.layer_norm(x, weight.shape, weight, bias)

    def _cell(self, name: str):
        kinds = 'i2h_weight', 'h2h_weight', 'i2h_bias', 'h2h_bias'
        return [self.weights[f'{name}.{kind}'] for kind in kinds]


class PaddedGraphs(OfGraphs, _Padded):
    """Run `graph_attention.model.GraphTagger` with sums or attention on padded graphs."""

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        super().__init__(net, optimizer, learning_rate, ctx)
        self.layers = len(net.layers)
        self.heads = len(getattr(net.layers[0].gather, 'heads', ()))

    def batches(self, plan: Graphs) -> int:
        """Return the number of layers, each of which runs once."""
        return self.layers

    def predict(self, plan: Graphs) -> torch.Tensor:
        """Return scores (number of words, relations)."""
        with torch.inference_mode():
            return self._scores(plan)

    def loss(self, plan: Graphs, samples: Sequence[Any]) -> torch.Tensor:
        """Return the mean over the sentences of the sum over their words."""
        (relations,) = self._upload([np.concatenate([sample.relations for sample in samples])])
        scores = self._scores(plan)
        return F.cross_entropy(scores, relations.long(), reduction='sum') / len(samples)

    def _scores(self, plan: Graphs) -> torch.Tensor:
        nodes, apart = self._words(plan.words), plan.edges == 0
        for layer in range(self.layers):
            values = self._dense(nodes, f'layers.{layer}.project')
            if self.heads:
                nodes = self._attend(values, apart, f'layers.{layer}.gather.heads')
            else:
                both = torch.cat([values, torch.bmm(plan.edges, values)], 2)
                nodes = torch.tanh(self._dense(both, f'layers.{layer}.gather.update'))
        return self._dense(nodes.flatten(0, 1).index_select(0, plan.places), 'scores')

    def _attend(self, values: torch.Tensor, apart: torch.Tensor, name: str) -> torch.Tensor:
        parts = []
        for k, part in enumerate(values.chunk(self.heads, 2)):
            of_node = self._dense(part, f'{name}.{k}.of_node')
            of_neighbour = self._dense(part, f'{name}.{k}.of_neighbour')
            scores = F.leaky_relu(of_node + of_neighbour.transpose(1, 2), 0.2)
            parts.append(torch.bmm(scores.masked_fill(apart, -torch.inf).softmax(2), part))
        return F.elu(torch.cat(parts, 2))


class PaddedPointer(_Padded):
    """Run `pointer.model.PointerNetwork` on padded sentences. (The longest possible sentence has no
    effect here.)"""

    def __init__(self, net: gluon.Block, longest: int, **arguments: Any):
        super().__init__(net, **arguments)

    def plan(self, samples: Sequence[Any]) -> Orders:
        """Return the samples' sentences, padded to one length."""
        return Orders(*self._upload(plan_orders(samples)))

    def batches(self, plan: Orders) -> int:
        """Return the number of calls of a cell."""
        return 2 * plan.read.shape[1]

    def loss(self, plan: Orders, samples: Sequence[Any]) -> torch.Tensor:
        """Return the mean over the sentences of the sum over their words."""
        memory, keys, states = self._read(plan, self._words(plan.read))
        written, apart = self._words(plan.written), plan.positions == 0
        word, context = torch.zeros_like(written[:, 0]), torch.zeros_like(states[0])
        found = []
        for step in range(written.shape[1]):
            weights, context, states = self._step(word, context, states, memory, keys, apart)
            found.append((weights * plan.right[:, step]).sum(1))
            word = written[:, step]
        costs = -torch.log(torch.stack(found, 1) + 1e-12)
        return (costs * plan.positions).sum() / len(samples)

    @torch.inference_mode()
    def predict(self, plan: Orders) -> torch.Tensor:
        """Return positions (N, T) in the predicted order."""
        words = self._words(plan.read)
        memory, keys, states = self._read(plan, words)
        apart, left = plan.positions == 0, plan.positions.clone()
        word, context = torch.zeros_like(words[:, 0]), torch.zeros_like(states[0])
        rows, order = torch.arange(len(words), device=self.device), []
        for _ in range(words.shape[1]):
            weights, context, states = self._step(word, context, states, memory, keys, apart)
            order.append(weights.masked_fill(left == 0, -1).argmax(1))
            left[rows, order[-1]] = 0
            word = words[rows, order[-1]]
        return torch.stack(order, 1)

    def _read(self, plan: Orders, words: torch.Tensor):
        """Return memory and keys of attention, (N, T, H) each, and the states behind the last
        words."""
        packed = pack_padded_sequence(
            words, plan.lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        data, sizes, order, back = packed
        begin = data.new_zeros(1, len(words), self.weights['position.key.weight'].shape[0])
        outputs, h, c = torch.lstm(
            data, sizes, (begin, begin), self._cell('reader'), True, 1, 0.0, False, False
        )
        packed = torch.nn.utils.rnn.PackedSequence(outputs, sizes, order, back)
        memory, _ = pad_packed_sequence(packed, batch_first=True)
        return memory, self._dense(memory, 'position.key'), (h[0, back], c[0, back])

    def _step(self, word, context, states, memory, keys, apart):
        """Return attention weights (N, T), contexts (N, H), and the states after the word."""
        states = torch.lstm_cell(torch.cat([word, context], 1), states, *self._cell('step.cell'))
        mixed = torch.tanh(keys + self._dense(states[0], 'pointer.query')[:, None])
        scores = self._dense(mixed, 'pointer.score')[:, :, 0]
        weights = scores.masked_fill(apart, -torch.inf).softmax(1)
        return weights, torch.bmm(weights[:, None], memory)[:, 0], states


class PaddedTransformer(OfGroups, _Padded):
    """Run `sentence_sst.model.SentenceTransformer` on sentences sorted by length, in several
    groups."""

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        super().__init__(net, optimizer, learning_rate, ctx)
        cells = net.encoder.transformer_cells
        self.layers, self.heads = len(cells), cells[0].attention_cell._num_heads

    def loss(self, plan: Groups, samples: Sequence[Any]) -> torch.Tensor:
        """Return the mean over the sentences."""
        (labels,) = self._upload([np.concatenate([sample.label for sample in samples])])
        return F.cross_entropy(self._scores(plan), labels.long())

    @torch.inference_mode()
    def predict(self, plan: Groups) -> torch.Tensor:
        """Return scores (number of sentences, classes)."""
        return self._scores(plan)

    def _scores(self, plan: Groups) -> torch.Tensor:
        means = torch.cat([self._means(group) for group in plan.sentences])
        return self._dense(means.index_select(0, plan.back), 'scores')

    def _means(self, group: Sentences) -> torch.Tensor:
        words = self._words(group.words)
        there = torch.arange(words.shape[1], device=self.device) < group.lengths[:, None]
        x = words * words.shape[2] ** 0.5 + self.weights['encoder.position_weight'][: len(there[0])]
        x = self._norm(x, 'encoder.layer_norm')
        for layer in range(self.layers):
            x = self._layer(x, there[:, None, None], f'encoder.transformer_cells.{layer}')
        return (x * there[:, :, None]).sum(1) / group.lengths[:, None]

    def _layer(self, x: torch.Tensor, there: Optional[torch.Tensor], name: str) -> torch.Tensor:
        query, key, value = (
            self._dense(x, f'{name}.attention_cell.proj_{part}')
            .unflatten(2, (self.heads, -1))
            .transpose(1, 2)
            for part in ('query', 'key', 'value')
        )
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=there)
        found = self._dense(found.transpose(1, 2).flatten(2), f'{name}.proj')
        x = self._norm(x + found, f'{name}.layer_norm')
        inner = self._dense(torch.relu(self._dense(x, f'{name}.ffn.ffn_1')), f'{name}.ffn.ffn_2')
        return self._norm(x + inner, f'{name}.ffn.layer_norm')


class NestedTransformer(PaddedTransformer):
    """Run `sentence_sst.model.SentenceTransformer` on a nested tensor: all sentences together,
    without padding."""

    def plan(self, samples: Sequence[Any]) -> Jagged:
        """Return the samples' words in one array."""
        return Jagged(*self._upload(plan_jagged(samples)))

    def batches(self, plan: Jagged) -> int:
        """Return 1: the encoder runs once."""
        return 1

    def _scores(self, plan: Jagged) -> torch.Tensor:
        words = self._words(plan.words)
        places = F.embedding(plan.positions, self.weights['encoder.position_weight'])
        x = self._norm(words * words.shape[1] ** 0.5 + places, 'encoder.layer_norm')
        x = torch.nested.nested_tensor_from_jagged(x, plan.offsets)
        for layer in range(self.layers):
            x = self._layer(x, None, f'encoder.transformer_cells.{layer}')
        # A mean of words by the nested tensor has no gradient.
        means = torch.segment_reduce(x.values(), 'mean', offsets=plan.offsets)
        return self._dense(means, 'scores')


class PaddedReader(OfWords, _Padded):
    """Run `adaptive.model.PonderingReader` until all sentences had enough; those that had it before
    stay as they are.

    Parameters
    ----------
    options : argparse.Namespace
        ``most`` and ``price`` are those of the example.
    """

    def __init__(self, net: gluon.Block, options: Any, **arguments: Any):
        super().__init__(net, **arguments)
        self.most, self.price = options.most, options.price

    def loss(self, plan: Words, samples: Sequence[Any]) -> torch.Tensor:
        """Return the mean over the sentences."""
        (labels,) = self._upload([np.concatenate([sample.label for sample in samples])])
        scores, cost = self._read(plan)
        return F.cross_entropy(scores, labels.long()) + self.price * cost.mean()

    @torch.inference_mode()
    def predict(self, plan: Words) -> torch.Tensor:
        """Return scores (number of sentences, classes)."""
        return self._read(plan)[0]

    def _read(self, plan: Words) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores of all sentences, and what their steps cost."""
        vectors, apart = self._words(plan.words), plan.there == 0
        both = torch.cat([vectors, F.pad(vectors, (0, 0, 1, 0))[:, :-1]], 2)
        memory = torch.tanh(self._dense(both, 'word.both'))
        state = mean = torch.zeros_like(memory[:, 0])
        cost = torch.zeros_like(state[:, :1])
        left = torch.ones_like(cost)
        going = torch.ones_like(cost, dtype=torch.bool)
        for _ in range(self.most):
            new = self._step(state, mean, left, cost, memory, apart)
            state, mean, left, cost = (
                torch.where(going, value, old) for old, value in zip((state, mean, left, cost), new)
            )
            going = left >= LITTLE
            if not going.any():
                break
        return self._dense(mean + left * state, 'answer.scores'), cost

    def _step(self, state, mean, left, cost, memory, apart):
        scores = torch.bmm(memory, self._dense(state, 'step.query')[:, :, None])[:, :, 0]
        weights = scores.masked_fill(apart, -torch.inf).softmax(1)
        context = torch.bmm(weights[:, None], memory)[:, 0]
        state = torch.gru_cell(context, state, *self._cell('step.cell'))
        share = left * torch.sigmoid(self._dense(state, 'step.halt'))
        return state, mean + share * state, left - share, cost + left


class PaddedPhrases(_Padded):
    """Run `tree_sst.model.TreeTransformer`, height by height.

    Vectors of all phrases are rows of one array, and their gradients of another. The tape ends at
    each height, which reads rows and adds to their gradients in place. On one tape, each gradient
    of a read would be an array of the whole size.
    """

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        super().__init__(net, optimizer, learning_rate, ctx)
        self.heads, self.width = net.cell._heads, net.scores.weight.shape[1]

    def plan(self, samples: Sequence[Any]) -> Phrases:
        """Return rows of each height."""
        plan = plan_phrases([sample.tree for sample in samples])
        heights = [
            Height(height.begin, height.end, *self._upload(height[2:])) for height in plan.heights
        ]
        return Phrases(*self._upload([plan.words]), heights, *self._upload(plan[2:]))

    def batches(self, plan: Phrases) -> int:
        """Return the number of heights, and one for the words."""
        return len(plan.heights) + 1

    def loss(self, plan: Phrases, samples: Sequence[Any]) -> torch.Tensor:
        """Return the mean over the trees of the sum over their phrases."""
        (labels,) = self._upload([np.concatenate([sample.labels for sample in samples])])
        self._vectors = self._climb(plan).requires_grad_()
        scores = self._dense(self._vectors, 'scores')
        right = labels.index_select(0, plan.order).long()
        return F.cross_entropy(scores, right, reduction='sum') / len(samples)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute gradients of all parameters."""
        super().backward(loss)
        gradients = self._vectors.grad
        for begin, end, found, read in reversed(self._written):
            found.backward(gradients[begin:end])
            for rows, values in read:
                gradients.index_add_(0, rows.flatten(), values.grad.flatten(0, 1))

    @torch.inference_mode()
    def predict(self, plan: Phrases) -> torch.Tensor:
        """Return scores (number of phrases, classes)."""
        return self._dense(self._climb(plan), 'scores').index_select(0, plan.back)

    def _climb(self, plan: Phrases) -> torch.Tensor:
        """Return vectors of all phrases; note what was written, and what was read for it."""
        words = self._words(plan.words, 'leaf.embed')
        vectors = words.new_empty(len(plan.order), self.width)
        self._written = [(0, len(words), words, ())]
        vectors[: len(words)] = words.detach()
        for height in plan.heights:
            read = [
                (rows, F.embedding(rows, vectors).requires_grad_(torch.is_grad_enabled()))
                for rows in (height.parts, height.inside)
            ]
            found = self._phrases(*(values for _, values in read), height.there[:, None] == 0)
            vectors[height.begin : height.end] = found.detach()
            self._written.append((height.begin, height.end, found, read))
        return vectors

    def _phrases(self, parts: torch.Tensor, memory: torch.Tensor, apart: torch.Tensor):
        phrase = torch.tanh(self._dense(parts.flatten(1), 'cell.both'))
        queries = self._dense(phrase, 'cell.queries').unflatten(1, (self.heads, -1))
        scores = torch.bmm(queries * self.width**-0.5, memory.transpose(1, 2))
        found = torch.bmm(scores.masked_fill(apart, -torch.inf).softmax(2), memory)
        phrase = self._norm(phrase + self._dense(found.flatten(1), 'cell.found'), 'cell.norms.0')
        wide = torch.relu(self._dense(phrase, 'cell.wide'))
        return self._norm(phrase + self._dense(wide, 'cell.narrow'), 'cell.norms.1')
