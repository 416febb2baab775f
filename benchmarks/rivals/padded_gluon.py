"""Graph networks, the pointer network and models of sentences, batched by hand in MXNet with
padding and masks.

Neighbours are a matrix of each sentence, so that messages are products of whole minibatches. The
pointer network is unrolled to the longest sentence of all: each minibatch is the same graph.
Checked against the per-sample models in ``tests/bench/test_benchmark_dependencies.py`` and
``test_benchmark_sentences.py``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mxnet import autograd, gluon, nd

from example.adaptive.model import LITTLE

from ..contexts import context
from . import parameters_of
from .on_gluon import OnGluon
from .padding import (
    Graphs,
    Groups,
    Height,
    OfGraphs,
    OfGroups,
    OfWords,
    Orders,
    Phrases,
    Words,
    plan_orders,
    plan_phrases,
)

__all__ = [
    'PaddedGraphs',
    'PaddedPhrases',
    'PaddedPointer',
    'PaddedReader',
    'PaddedTransformer',
]

FAR = -1e9  # a score that a softmax makes zero of


class _Padded(OnGluon):
    """The common part of rivals that pad.

    Parameters
    ----------
    net : gluon.Block
        An initialised model, whose parameters become the rival's.
    optimizer : str
        A name that `gluon.Trainer` knows.
    learning_rate : float
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        self.ctx = context(ctx)
        self.train(parameters_of(net), optimizer, learning_rate)

    def _upload(self, arrays: Sequence[np.ndarray]) -> tuple[nd.NDArray, ...]:
        return tuple(nd.array(array, ctx=self.ctx) for array in arrays)


class PaddedGraphs(OfGraphs, _Padded):
    """Run `graph_attention.model.GraphTagger` with sums or attention on padded graphs."""

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        super().__init__(net, optimizer, learning_rate, ctx)
        self._tagger = _PaddedTagger(net)
        self._criterion = gluon.loss.SoftmaxCrossEntropyLoss()
        for block in (self._tagger, self._criterion):
            block.hybridize(static_alloc=True)

    def batches(self, plan: Graphs) -> int:
        """Return the number of layers, each of which runs once."""
        return len(self._tagger.layers)

    def predict(self, plan: Graphs) -> nd.NDArray:
        """Return scores (number of words, relations). Does not wait."""
        return self._tagger(*plan)

    def loss(self, plan: Graphs, samples: Sequence[Any]) -> nd.NDArray:
        """Return the mean over the sentences of the sum over their words."""
        (relations,) = self._upload([np.concatenate([sample.relations for sample in samples])])
        with autograd.record():
            return self._criterion(self._tagger(*plan), relations).sum() / len(samples)


class _PaddedTagger(gluon.HybridBlock):
    """The model's layers on padded graphs."""

    def __init__(self, net: gluon.Block):
        super().__init__()
        self.embed, self.scores = net.embed, net.scores
        self.layers = [(layer.project, layer.gather) for layer in net.layers]
        for blocks in self.layers:
            for block in blocks:
                self.register_child(block)

    def hybrid_forward(self, F, words, edges, places):
        """Return scores for words (N, T), edges (N, T, T), places (number of words,)."""
        nodes, far = _flat(F, self.embed(words)), (1 - edges) * FAR
        for project, gather in self.layers:
            values = project(nodes)
            if hasattr(gather, 'heads'):
                nodes = self._attend(F, values, gather.heads, words, far)
            else:
                sums = _flat(F, F.batch_dot(edges, _by_sentence(F, values, words)))
                nodes = gather.update(F.concat(values, sums, dim=1))
        return self.scores(F.take(nodes, places))

    def _attend(self, F, values, heads, words, far):
        found, size = [], heads[0].of_node.weight.shape[1]
        for k, head in enumerate(heads):
            part = F.slice_axis(values, axis=1, begin=k * size, end=(k + 1) * size)
            of_node, of_neighbour, part = (
                _by_sentence(F, x, words)
                for x in (head.of_node(part), head.of_neighbour(part), part)
            )
            scores = F.broadcast_add(of_node, F.transpose(of_neighbour, axes=(0, 2, 1)))
            weights = F.softmax(F.LeakyReLU(scores, slope=0.2) + far, axis=2)
            found.append(_flat(F, F.batch_dot(weights, part)))
        return F.LeakyReLU(F.concat(*found, dim=1), act_type='elu', slope=1.0)


def _flat(F, x):
    """Reshape (N, T, ...) to (N * T, ...)."""
    return F.reshape(x, shape=(-3, 0))


def _by_sentence(F, x, words):
    """Reshape (N * T, ...) to (N, T, ...)."""
    return F.reshape_like(x, words, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)


class PaddedPointer(_Padded):
    """Run `pointer.model.PointerNetwork` on padded sentences.

    Parameters
    ----------
    longest : int
        T, words that a sentence has at most.
    """

    def __init__(
        self, net: gluon.Block, longest: int, optimizer: str, learning_rate: float, ctx: str = 'cpu'
    ):
        super().__init__(net, optimizer, learning_rate, ctx)
        self.longest = longest
        self._copier, self._writer = _PaddedCopier(net, longest), _PaddedWriter(net, longest)
        for block in (self._copier, self._writer):
            block.hybridize(static_alloc=True, static_shape=True)

    def plan(self, samples: Sequence[Any]) -> Orders:
        """Return the samples' sentences, padded to one length."""
        return Orders(*self._upload(plan_orders(samples, self.longest)))

    def batches(self, plan: Orders) -> int:
        """Return the number of calls of a cell."""
        return 2 * self.longest

    def predict(self, plan: Orders) -> nd.NDArray:
        """Return positions (N, T) in the predicted order. Does not wait."""
        return self._writer(plan.read, plan.lengths, plan.positions)

    def loss(self, plan: Orders, samples: Sequence[Any]) -> nd.NDArray:
        """Return the mean over the sentences of the sum over their words."""
        with autograd.record():
            return self._copier(*plan).sum() / len(samples)


class _PaddedNetwork(gluon.HybridBlock):
    """The model's blocks on padded sentences."""

    def __init__(self, net: gluon.Block, length: int):
        super().__init__()
        self.embed, self.reader, self.key = net.embed, net.reader, net.position.key
        self.step, self.query, self.score = net.step, net.pointer.query, net.pointer.score
        self._length = length

    def _read(self, F, words, lengths):
        """Return memory and keys of attention, (N, T, H) each, and the states behind the last
        words."""
        memory, states = self.reader.unroll(
            self._length, words, merge_outputs=True, valid_length=lengths
        )
        return memory, _by_sentence(F, self.key(_flat(F, memory)), words), states

    def _attend(self, F, h, memory, keys, far):
        """Return attention weights (N, T), and context vectors (N, H)."""
        mixed = F.Activation(
            F.broadcast_add(keys, F.expand_dims(self.query(h), axis=1)), act_type='tanh'
        )
        weights = F.softmax(F.squeeze(self.score(mixed), axis=2) + far, axis=1)
        return weights, F.squeeze(F.batch_dot(F.expand_dims(weights, axis=1), memory), axis=1)

    def _columns(self, F, x):
        return F.split(x, axis=1, num_outputs=self._length, squeeze_axis=True)


class _PaddedCopier(_PaddedNetwork):
    """Compute costs of the right words, (N, T)."""

    def hybrid_forward(self, F, read, lengths, positions, written, right):
        """Return costs of the right words; see `Orders` for the arguments."""
        memory, keys, states = self._read(F, self.embed(read), lengths)
        columns, rights = self._columns(F, self.embed(written)), self._columns(F, right)
        word, context = F.zeros_like(columns[0]), F.zeros_like(states[0])
        found, far = [], (1 - positions) * FAR
        for column, there in zip(columns, rights):
            states = self.step(word, context, *states)
            weights, context = self._attend(F, states[0], memory, keys, far)
            found.append(F.sum(weights * there, axis=1))
            word = column
        return -F.log(F.stack(*found, axis=1) + 1e-12) * positions


class _PaddedWriter(_PaddedNetwork):
    """Compute positions (N, T) in the predicted order."""

    def hybrid_forward(self, F, read, lengths, positions):
        """Return positions in the predicted order; see `Orders` for the arguments."""
        words = self.embed(read)
        memory, keys, states = self._read(F, words, lengths)
        word = F.zeros_like(F.squeeze(F.slice_axis(words, axis=1, begin=0, end=1), axis=1))
        context, order = F.zeros_like(states[0]), []
        left, far = positions, (1 - positions) * FAR
        for _ in range(self._length):
            states = self.step(word, context, *states)
            weights, context = self._attend(F, states[0], memory, keys, far)
            order.append(F.argmax(F.where(left, weights, left - 1), axis=1))
            chosen = F.one_hot(order[-1], self._length)
            left = left * (1 - chosen)
            word = F.squeeze(F.batch_dot(F.expand_dims(chosen, axis=1), words), axis=1)
        return F.stack(*order, axis=1)


class PaddedTransformer(OfGroups, _Padded):
    """Run `sentence_sst.model.SentenceTransformer` on sentences sorted by length, in several
    groups."""

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        super().__init__(net, optimizer, learning_rate, ctx)
        self._classifier = _PaddedClassifier(net)
        self._criterion = gluon.loss.SoftmaxCrossEntropyLoss()
        for block in (self._classifier, self._criterion):
            block.hybridize(static_alloc=True)

    def predict(self, plan: Groups) -> nd.NDArray:
        """Return scores (number of sentences, classes). Does not wait."""
        scores = [self._classifier(*group) for group in plan.sentences]
        return nd.take(nd.concat(*scores, dim=0), plan.back)

    def loss(self, plan: Groups, samples: Sequence[Any]) -> nd.NDArray:
        """Return the mean over the sentences."""
        (labels,) = self._upload([np.concatenate([sample.label for sample in samples])])
        with autograd.record():
            return self._criterion(self.predict(plan), labels).mean()


class _PaddedClassifier(gluon.HybridBlock):
    """The model's blocks on padded sentences."""

    def __init__(self, net: gluon.Block):
        super().__init__()
        self.embed, self.encoder, self.scores = net.embed, net.encoder, net.scores

    def hybrid_forward(self, F, words, lengths):
        """Return scores; see `Sentences` for the arguments."""
        outputs, _ = self.encoder(self.embed(words), None, lengths)  # zeros behind the ends
        return self.scores(F.broadcast_div(F.sum(outputs, axis=1), F.expand_dims(lengths, axis=1)))


class PaddedReader(OfWords, _Padded):
    """Run `adaptive.model.PonderingReader`: all sentences take as many steps as one may, and those
    that had enough stay as they are.

    Parameters
    ----------
    options : argparse.Namespace
        ``most`` and ``price`` are those of the example.
    """

    def __init__(
        self, net: gluon.Block, options: Any, optimizer: str, learning_rate: float, ctx: str = 'cpu'
    ):
        super().__init__(net, optimizer, learning_rate, ctx)
        self.most, self.price = options.most, options.price
        self._reader = _PaddedSteps(net)
        self._criterion = gluon.loss.SoftmaxCrossEntropyLoss()
        for block in (self._reader, self._criterion):
            block.hybridize(static_alloc=True)

    def predict(self, plan: Words) -> nd.NDArray:
        """Return scores (number of sentences, classes). Does not wait."""
        return self._reader(*plan)[0]

    def loss(self, plan: Words, samples: Sequence[Any]) -> nd.NDArray:
        """Return the mean over the sentences."""
        (labels,) = self._upload([np.concatenate([sample.label for sample in samples])])
        with autograd.record():
            scores, cost = self._reader(*plan)
            return (self._criterion(scores, labels) + self.price * cost.reshape((-1,))).mean()


class _PaddedSteps(gluon.HybridBlock):
    """The model's blocks on padded sentences."""

    def __init__(self, net: gluon.Block):
        super().__init__()
        self.embed, self.word, self.step, self.answer = net.embed, net.word, net.step, net.answer
        self._most = net.most

    def hybrid_forward(self, F, words, there):
        """Return scores and costs; see `Words` for the arguments."""
        memory, far = self._read(F, words), F.expand_dims((1 - there) * FAR, axis=2)
        state = F.zeros_like(F.squeeze(F.slice_axis(memory, axis=1, begin=0, end=1), axis=1))
        cost = F.zeros_like(F.slice_axis(there, axis=1, begin=0, end=1))
        mean, left, going = state, cost + 1, cost + 1
        for _ in range(self._most):
            new = self._take_step(F, state, mean, left, cost, memory, far)
            state, mean, left, cost = (
                F.broadcast_add(old, F.broadcast_mul(going, value - old))
                for old, value in zip((state, mean, left, cost), new)
            )
            going = left >= LITTLE
        return self.answer(state, mean, left), cost

    def _read(self, F, words):
        vectors = self.embed(words)
        first = F.zeros_like(F.slice_axis(vectors, axis=1, begin=0, end=1))
        before = F.slice_axis(F.concat(first, vectors, dim=1), axis=1, begin=0, end=-1)
        return _by_sentence(F, self.word(_flat(F, vectors), _flat(F, before)), words)

    def _take_step(self, F, state, mean, left, cost, memory, far):
        step = self.step
        scores = F.batch_dot(memory, F.expand_dims(step.query(state), axis=2))
        weights = F.softmax(scores + far, axis=1)
        context = F.squeeze(F.batch_dot(weights, memory, transpose_a=True), axis=1)
        state, _ = step.cell(context, [state])
        share = left * F.sigmoid(step.halt(state))
        return state, mean + F.broadcast_mul(share, state), left - share, cost + left


class PaddedPhrases(_Padded):
    """Run `tree_sst.model.TreeTransformer`, height by height.

    Vectors of all phrases are rows of one array, and their gradients of another. The tape ends at
    each height, which reads rows and adds to their gradients in place. On one tape, each gradient
    of a read would be an array of the whole size.
    """

    def __init__(self, net: gluon.Block, optimizer: str, learning_rate: float, ctx: str = 'cpu'):
        super().__init__(net, optimizer, learning_rate, ctx)
        self._leaf, self._cell, self._scores = net.leaf, _PaddedPhrase(net.cell), net.scores
        self._criterion = gluon.loss.SoftmaxCrossEntropyLoss()
        self._width = net.scores.weight.shape[1]
        for block in (self._leaf, self._cell, self._scores, self._criterion):
            block.hybridize(static_alloc=True)
        self._cell.collect_params().setattr('grad_req', 'add')

    def plan(self, samples: Sequence[Any]) -> Phrases:
        """Return rows of each height."""
        plan = plan_phrases([sample.tree for sample in samples])
        heights = [
            Height(height.begin, height.end, *self._upload(height[2:])) for height in plan.heights
        ]
        words, back = self._upload([plan.words, plan.back])
        return Phrases(words, heights, plan.order, back)

    def batches(self, plan: Phrases) -> int:
        """Return the number of heights, and one for the words."""
        return len(plan.heights) + 1

    def predict(self, plan: Phrases) -> nd.NDArray:
        """Return scores (number of phrases, classes). Does not wait."""
        vectors = nd.empty((len(plan.order), self._width), ctx=self.ctx)
        vectors[: len(plan.words)] = self._leaf(plan.words)
        for height in plan.heights:
            vectors[height.begin : height.end] = self._cell(vectors, vectors, *height[2:])
        return nd.take(self._scores(vectors), plan.back)

    def loss(self, plan: Phrases, samples: Sequence[Any]) -> nd.NDArray:
        """Return the mean over the trees of the sum over their phrases."""
        labels = np.concatenate([sample.labels for sample in samples])[plan.order]
        (labels,) = self._upload([labels])
        shape = len(labels), self._width
        vectors, self._gradients = nd.empty(shape, ctx=self.ctx), nd.zeros(shape, ctx=self.ctx)
        read = vectors.detach(), vectors.detach()  # one each: gradients of one would be summed
        autograd.mark_variables(list(read), [self._gradients] * 2, grad_reqs='add')
        self._written = [(0, len(plan.words), self._leaf, (plan.words,))]
        self._written += [
            (height.begin, height.end, self._cell, (*read, *height[2:])) for height in plan.heights
        ]
        for k, (begin, end, block, inputs) in enumerate(self._written):
            with autograd.record():
                found = block(*inputs)
            vectors[begin:end] = found
            self._written[k] = begin, end, found
        with autograd.record():
            return self._criterion(self._scores(read[0]), labels).sum() / len(samples)

    def backward(self, loss: nd.NDArray) -> None:
        """Compute gradients of all parameters."""
        self._cell.collect_params().zero_grad()
        loss.backward()
        for begin, end, found in reversed(self._written):
            found.backward(self._gradients[begin:end])


class _PaddedPhrase(gluon.HybridBlock):
    """The model's cell with a mask. `vectors` and `others` are one array: see `PaddedPhrases`."""

    def __init__(self, cell: gluon.HybridBlock):
        super().__init__()
        self.cell = cell

    def hybrid_forward(self, F, vectors, others, parts, inside, there):
        """Return vectors of phrases; see `Height` for the arguments."""
        cell, memory = self.cell, F.take(vectors, inside)
        phrase = cell.both(F.reshape(F.take(others, parts), shape=(0, -1)))
        queries = F.reshape(cell.queries(phrase) * cell._scale, shape=(0, cell._heads, -1))
        far = F.expand_dims((1 - there) * FAR, axis=1)
        scores = F.batch_dot(queries, memory, transpose_b=True)
        weights = F.softmax(F.broadcast_add(scores, far), axis=2)
        return cell.answer(phrase, F.batch_dot(weights, memory))
