"""Models as users report them in public: each is plain Gluon, written for one sample.

A model here returns everything that its user looks at: losses, scores, paths, numbers. It makes its
zeros, labels and numbers by `nd.zeros`, `nd.array` and Python, as users do.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb

WORDS, WIDTH, CLASSES, END = 12, 6, 3, 0


class Built(gluon.Block):
    """A block whose children are made by `build`."""

    def __init__(self, **options: Any):
        super().__init__()
        with self.name_scope():
            self.build(**options)


class Model(edb.AutoBatchMixin, Built):
    """A model for one sample; `sample` draws its data."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    def sample(self, random: np.random.RandomState) -> Any:
        """Draw a sentence and a class."""
        return words_of(random), random.randint(CLASSES)


def words_of(random: np.random.RandomState, least: int = 2, most: int = 6) -> list[int]:
    """Draw a sentence of word ids, none of which is `END`."""
    return random.randint(1, WORDS, random.randint(least, most + 1)).tolist()


def layers(*blocks: gluon.HybridBlock) -> nn.HybridSequential:
    """Return the blocks, one after the other."""
    made = nn.HybridSequential()
    made.add(*blocks)
    return made


def steps_of(cell: Any, inputs: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return the outputs of a cell over a sequence, and its last states."""
    state, outputs = cell.begin_state(batch_size=1), []
    for x in inputs:
        h, state = cell(x, state)
        outputs.append(h)
    return outputs, state


def floats(random: np.random.RandomState, *shape: int) -> np.ndarray:
    """Draw a NumPy array of float32."""
    return random.uniform(-1, 1, shape).astype('float32')


class DropoutTree(Model):
    """A binary Tree-LSTM with dropout of words, candidates and states, and a sparse embedding."""

    def build(self, rate: float = 0.0) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH, sparse_grad=True)
        self.leaf = nn.Dense(3 * WIDTH, in_units=WIDTH)
        self.inner = nn.Dense(5 * WIDTH, in_units=2 * WIDTH)
        self.of_word, self.of_candidate, self.of_state = (nn.Dropout(rate) for _ in range(3))
        self.out = nn.Dense(CLASSES, in_units=WIDTH)

    def encode(self, tree: Any) -> tuple[Any, Any]:
        if isinstance(tree, int):
            i, o, u = nd.split(self.leaf(self.of_word(self.embed(tree))), num_outputs=3, axis=1)
            c = nd.sigmoid(i) * self.of_candidate(nd.tanh(u))
        else:
            (left_h, left_c), (right_h, right_c) = map(self.encode, tree)
            gates = self.inner(nd.concat(left_h, right_h, dim=1))
            i, o, u, f, g = nd.split(gates, num_outputs=5, axis=1)
            kept = nd.sigmoid(f) * left_c + nd.sigmoid(g) * right_c
            c = nd.sigmoid(i) * self.of_candidate(nd.tanh(u)) + kept
        return self.of_state(nd.sigmoid(o) * nd.tanh(c)), c

    def forward(self, sample):
        tree, label = sample
        return self.cross_entropy(self.out(self.encode(tree)[0]), label)

    def sample(self, random):
        def tree(words):
            if len(words) == 1:
                return words[0]
            cut = random.randint(1, len(words))
            return tree(words[:cut]), tree(words[cut:])

        return tree(words_of(random)), random.randint(CLASSES)


class WordPairs(Model):
    """A dependency parser that scores all pairs of words by an MLP, with a hinge loss."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.forwards = rnn.LSTMCell(WIDTH, input_size=WIDTH)
        hidden = nn.Dense(WIDTH, in_units=2 * WIDTH, activation='tanh')
        self.score = layers(hidden, nn.Dense(1, in_units=WIDTH))

    def forward(self, sample):
        words, heads = sample
        states, _ = steps_of(self.forwards, map(self.embed, words))
        loss, rows = nd.zeros((1, 1)), []
        for modifier, head in enumerate(heads):
            scores = [self.score(nd.concat(h, states[modifier], dim=1)) for h in states]
            wrong = [score for h, score in enumerate(scores) if h != head]
            loss = loss + nd.relu(1 - scores[head] + nd.max(nd.concat(*wrong, dim=1)))
            rows.append(nd.concat(*scores, dim=1))
        return loss / len(words), rows

    def sample(self, random):
        words = words_of(random)
        return words, random.randint(len(words), size=len(words))


class ShiftReduce(Model):
    """SPINN: a tracker reads stack and buffer; transitions are given, or are its own best ones."""

    def build(self, greedy: bool = False) -> None:
        self.greedy = greedy
        self.embed = nn.Embedding(WORDS, 2 * WIDTH)
        self.tracker = rnn.LSTMCell(WIDTH, input_size=3 * WIDTH)
        self.action = nn.Dense(2, in_units=WIDTH)
        self.compose = nn.Dense(5 * WIDTH, in_units=3 * WIDTH)
        self.out = nn.Dense(CLASSES, in_units=WIDTH)

    def reduce(self, left, right, tracked):
        gates = self.compose(nd.concat(left[0], right[0], tracked, dim=1))
        a, i, f, g, o = nd.split(gates, num_outputs=5, axis=1)
        c = nd.tanh(a) * nd.sigmoid(i) + nd.sigmoid(f) * left[1] + nd.sigmoid(g) * right[1]
        return nd.sigmoid(o) * nd.tanh(c), c

    def choose(self, scores, stack, buffer):
        if len(stack) < 2 or not buffer:
            return int(len(stack) >= 2)
        return int(scores.argmax(axis=1).asscalar())

    def forward(self, sample):
        words, actions, label = sample
        buffer = [tuple(nd.split(self.embed(w), num_outputs=2, axis=1)) for w in reversed(words)]
        stack, losses, zero = [], [], nd.zeros((1, WIDTH))
        state = self.tracker.begin_state(batch_size=1)
        for given in actions:
            seen = [stack[-1], stack[-2]] if len(stack) > 1 else [*stack, (zero,), (zero,)][:2]
            ahead = buffer[-1] if buffer else (zero,)
            tracked, state = self.tracker(nd.concat(*[s[0] for s in [*seen, ahead]], dim=1), state)
            scores = self.action(tracked)
            losses.append(self.cross_entropy(scores, given))
            if self.choose(scores, stack, buffer) if self.greedy else given:
                right, left = stack.pop(), stack.pop()
                stack.append(self.reduce(left, right, tracked))
            else:
                stack.append(buffer.pop())
        return self.cross_entropy(self.out(stack[0][0]), label) + nd.add_n(*losses)

    def sample(self, random):
        words = words_of(random)
        actions, depth, left = [], 0, len(words)
        while left or depth > 1:
            action = 0 if depth < 2 else 1 if not left else random.randint(2)
            actions.append(action)
            depth, left = (depth - 1, left) if action else (depth + 1, left - 1)
        return words, actions, random.randint(CLASSES)


class Captions(Model):
    """A batch of pictures, made by hand and encoded at once; a caption is decoded for each row."""

    def build(self) -> None:
        look = nn.Conv2D(2, 3, in_channels=1, activation='relu')
        self.encode = layers(look, nn.Dense(WIDTH, in_units=8))
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.decode = rnn.GRUCell(WIDTH, input_size=WIDTH)
        self.out = nn.Dense(WORDS, in_units=WIDTH)

    def forward(self, sample):
        pictures, captions = sample
        features, losses = self.encode(pictures), []
        for row, caption in enumerate(captions):
            h, before = features[row : row + 1], END
            for word in caption:
                _, (h,) = self.decode(self.embed(before), [h])
                losses.append(self.cross_entropy(self.out(h), word))
                before = word
        return nd.concat(*losses, dim=0).mean()

    def sample(self, random):
        return floats(random, 3, 1, 4, 4), [words_of(random, 1, 4) for _ in range(3)]


class Candidates(Model):
    """Answers out of candidates of the sample's own: rows of the embedding, and their biases."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.encode = rnn.GRUCell(WIDTH, input_size=WIDTH)
        self.bias = self.params.get('bias', shape=(WORDS, 1))

    def forward(self, sample):
        words, candidates, gold = sample
        h = steps_of(self.encode, map(self.embed, words))[0][-1]
        ids = nd.array(candidates)
        rows = nd.take(self.embed.weight.data(), ids)
        scores = nd.dot(h, rows, transpose_b=True) + nd.take(self.bias.data(), ids).T
        return -nd.log_softmax(scores)[:, gold], scores.argmax(axis=1)

    def sample(self, random):
        count = random.randint(2, 5)
        candidates = random.choice(WORDS, count, replace=False)
        return words_of(random), candidates, random.randint(count)


class EarlyExit(Model):
    """A deep network that stops at the first layer whose classifier is sure."""

    def build(self, depth: int = 4, sure: float = 0.45) -> None:
        self.sure = sure
        hidden = [nn.Dense(WIDTH, in_units=WIDTH, activation='tanh') for _ in range(depth)]
        self.layers = layers(*hidden)
        self.exits = layers(*[nn.Dense(CLASSES, in_units=WIDTH) for _ in hidden])

    def forward(self, sample):
        x, label = sample
        loss, depth = nd.zeros((1,)), 0
        for layer, classify in zip(self.layers, self.exits):
            x, depth = layer(x), depth + 1
            scores = classify(x)
            loss = loss + self.cross_entropy(scores, label)
            if nd.softmax(scores).max().asscalar() > self.sure:
                break
        return loss, scores, depth

    def sample(self, random):
        return floats(random, 1, WIDTH), random.randint(CLASSES)


class Crf(Model):
    """A BiLSTM-CRF tagger: the loss by the forward algorithm, the tags by Viterbi."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        left, right = (rnn.LSTMCell(WIDTH, input_size=WIDTH) for _ in range(2))
        self.both = rnn.BidirectionalCell(left, right)
        self.emit = nn.Dense(CLASSES, in_units=2 * WIDTH)
        self.transitions = self.params.get('transitions', shape=(CLASSES, CLASSES))

    @staticmethod
    def log_sum_exp(x):
        most = nd.max(x, axis=1, keepdims=True)
        return nd.log(nd.sum(nd.exp(nd.broadcast_sub(x, most)), axis=1, keepdims=True)) + most

    def viterbi(self, scores):
        table, best, pointers = self.transitions.data().asnumpy(), scores[0].asnumpy()[0], []
        for emitted in scores[1:]:
            ways = best[:, None] + table
            pointers.append(ways.argmax(axis=0))
            best = ways.max(axis=0) + emitted.asnumpy()[0]
        path = [int(best.argmax())]
        for pointer in reversed(pointers):
            path.append(int(pointer[path[-1]]))
        return path[::-1]

    def forward(self, sample):
        words, tags = sample
        inputs = [self.embed(word) for word in words]
        outputs, _ = self.both.unroll(len(words), inputs, merge_outputs=False)
        scores, table = [self.emit(h) for h in outputs], self.transitions.data()
        alpha, gold = scores[0], scores[0][:, tags[0]]
        for emitted, before, tag in zip(scores[1:], tags, tags[1:]):
            ways = nd.broadcast_add(nd.transpose(alpha), table)
            alpha = nd.transpose(self.log_sum_exp(nd.transpose(ways))) + emitted
            gold = gold + table[before, tag] + emitted[:, tag]
        return self.log_sum_exp(alpha) - gold, self.viterbi(scores)

    def sample(self, random):
        words = words_of(random)
        return words, random.randint(CLASSES, size=len(words)).tolist()


class MessagePassing(Model):
    """Messages of molecules by edge networks, and a set2set readout."""

    def build(self) -> None:
        self.atom = nn.Embedding(WORDS, WIDTH)
        self.edge = nn.Dense(WIDTH * WIDTH, in_units=4)
        self.update = rnn.GRUCell(WIDTH, input_size=WIDTH)
        self.read = rnn.LSTMCell(WIDTH, input_size=2 * WIDTH)
        self.out = nn.Dense(1, in_units=2 * WIDTH)
        self.loss = gluon.loss.L2Loss()

    def set2set(self, atoms):
        memory, state = nd.concat(*atoms, dim=0), self.read.begin_state(1)
        q = nd.zeros((1, 2 * WIDTH))
        for _ in range(2):
            h, state = self.read(q, state)
            weights = nd.softmax(nd.dot(h, memory, transpose_b=True))
            q = nd.concat(h, nd.dot(weights, memory), dim=1)
        return q

    def forward(self, sample):
        kinds, bonds, target = sample
        atoms = [self.atom(kind) for kind in kinds]
        matrices = [self.edge(feature).reshape((1, WIDTH, WIDTH)) for _, _, feature in bonds]
        for _ in range(2):
            messages = [nd.zeros((1, WIDTH)) for _ in atoms]
            for (i, j, _), matrix in zip(bonds, matrices):
                for a, b in ((i, j), (j, i)):
                    sent = nd.batch_dot(matrix, atoms[a].expand_dims(2)).reshape((1, -1))
                    messages[b] = messages[b] + sent
            atoms = [self.update(m, [h])[0] for m, h in zip(messages, atoms)]
        return self.loss(self.out(self.set2set(atoms)), target)

    def sample(self, random):
        kinds = words_of(random)
        bonds = [(random.randint(i), i, floats(random, 1, 4)) for i in range(1, len(kinds))]
        return kinds, bonds, floats(random, 1, 1)


class Translator(Model):
    """Attention over the source; training with scheduled sampling, and a beam search."""

    def build(self, beam: int = 2) -> None:
        self.beam = beam
        self.source, self.target = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
        self.encoder = rnn.GRUCell(WIDTH, input_size=WIDTH)
        self.decoder = rnn.GRUCell(WIDTH, input_size=2 * WIDTH)
        self.query = nn.Dense(WIDTH, in_units=WIDTH, use_bias=False)
        self.out = nn.Dense(WORDS, in_units=2 * WIDTH)

    def step(self, word, state, context, memory):
        h, state = self.decoder(nd.concat(self.target(word), context, dim=1), state)
        weights = nd.softmax(nd.batch_dot(memory, self.query(h).expand_dims(2)), axis=1)
        context = nd.batch_dot(weights, memory, transpose_a=True).reshape((1, -1))
        return self.out(nd.concat(h, context, dim=1)), state, context

    def search(self, state, memory, longest):
        beam = [(0.0, [END], state, nd.zeros((1, WIDTH)))]
        for _ in range(longest):
            grown = []
            for score, words, state, context in beam:
                scores, state, context = self.step(words[-1], state, context, memory)
                for word, more in enumerate(nd.log_softmax(scores).asnumpy()[0].tolist()):
                    grown.append((score + more, [*words, word], state, context))
            beam = sorted(grown, key=lambda one: one[0], reverse=True)[: self.beam]
        return beam[0][:2]

    def forward(self, sample):
        source, target, sampled = sample
        words = [self.source(word) for word in source]
        outputs, state = self.encoder.unroll(len(words), words, merge_outputs=False)
        memory = edb.ragged(outputs)
        first, context, before, losses = state, nd.zeros((1, WIDTH)), END, []
        for word, own in zip(target, sampled):
            scores, state, context = self.step(before, state, context, memory)
            losses.append(self.cross_entropy(scores, word))
            before = int(scores.argmax(axis=1).asscalar()) if own else word
        with autograd.pause():
            best = self.search(first, memory, len(target))
        return sum(losses) / len(losses), best[1]

    def sample(self, random):
        target = words_of(random, 1, 3)
        return words_of(random), target, (random.rand(len(target)) < 0.4).tolist()


class Documents(Model):
    """Hierarchical attention: over the words of sentences, and over the sentences."""

    class Attend(Built, gluon.HybridBlock):
        """Compute a weighted mean of (1, any number, width)."""

        def build(self):
            self.hidden = nn.Dense(WIDTH, in_units=2 * WIDTH, flatten=False, activation='tanh')
            self.context = nn.Dense(1, in_units=WIDTH, flatten=False, use_bias=False)

        def hybrid_forward(self, F, x):
            weights = F.softmax(self.context(self.hidden(x)), axis=1)
            return F.sum(F.broadcast_mul(weights, x), axis=1)

    def build(self) -> None:
        def both(width):
            return rnn.BidirectionalCell(*[rnn.GRUCell(WIDTH, input_size=width) for _ in 'lr'])

        self.embed = nn.Embedding(WORDS, WIDTH)
        self.of_words, self.of_sentences = both(WIDTH), both(2 * WIDTH)
        self.attend_words, self.attend_sentences = self.Attend(), self.Attend()
        self.out = nn.Dense(CLASSES, in_units=2 * WIDTH)

    def read(self, inputs, cell, attend):
        outputs, _ = cell.unroll(len(inputs), inputs, merge_outputs=False)
        return attend(edb.ragged(outputs))

    def forward(self, sample):
        document, label = sample
        embedded = [[self.embed(word) for word in words] for words in document]
        sentences = [self.read(words, self.of_words, self.attend_words) for words in embedded]
        scores = self.out(self.read(sentences, self.of_sentences, self.attend_sentences))
        return {'loss': self.cross_entropy(scores, label), 'scores': scores}

    def sample(self, random):
        document = [words_of(random, 1, 4) for _ in range(random.randint(1, 4))]
        return document, random.randint(CLASSES)


class PointerGenerator(Model):
    """A summary by generated and copied words, with a loss for what is attended to twice."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.encoder = rnn.LSTMCell(WIDTH, input_size=WIDTH)
        self.decoder = rnn.LSTMCell(WIDTH, input_size=WIDTH)
        self.key, self.query = nn.Dense(WIDTH, in_units=WIDTH), nn.Dense(WIDTH, in_units=WIDTH)
        self.cover = nn.Dense(WIDTH, in_units=1, use_bias=False)
        self.energy = nn.Dense(1, in_units=WIDTH, use_bias=False)
        self.out, self.copy = nn.Dense(WORDS, in_units=2 * WIDTH), nn.Dense(1, in_units=2 * WIDTH)

    def forward(self, sample):
        source, target = sample
        memory, state = steps_of(self.encoder, map(self.embed, source))
        memory = nd.concat(*memory, dim=0)
        keys, coverage = self.key(memory), nd.zeros((len(source), 1))
        at, before, loss = nd.array(source), END, nd.zeros((1, 1))
        for word in target:
            h, state = self.decoder(self.embed(before), state)
            energy = nd.broadcast_add(keys + self.cover(coverage), self.query(h))
            weights = nd.softmax(self.energy(nd.tanh(energy)), axis=0)
            both = nd.concat(h, nd.dot(weights, memory, transpose_a=True), dim=1)
            p, generated = nd.sigmoid(self.copy(both)), nd.softmax(self.out(both))[:, word]
            copied = nd.sum(weights * (at == word).expand_dims(1))
            loss = loss - nd.log(p * copied + (1 - p) * generated + 1e-6)
            loss = loss + nd.sum(nd.minimum(weights, coverage))
            coverage, before = coverage + weights, word
        return loss / len(target)

    def sample(self, random):
        source = words_of(random, 3)
        return source, [*random.choice(source, random.randint(1, 4)).tolist(), END]


class Ctc(Model):
    """Speech with the CTC loss: frames joined by length, padded by hand, or ragged."""

    MOST = 7

    def build(self, form: str = 'length') -> None:
        self.form = form
        self.cell = rnn.GRUCell(WIDTH, input_size=2)
        self.out = nn.Dense(CLASSES + 1, in_units=WIDTH)
        self.ctc = gluon.loss.CTCLoss(layout='NTC')

    def forward(self, sample):
        frames, labels = sample
        steps = [self.out(h) for h in steps_of(self.cell, frames)[0]]
        if self.form == 'ragged':
            return self.ctc(edb.ragged(steps), nd.array([labels]))
        if self.form == 'length':
            return self.ctc(nd.stack(*steps, axis=1), nd.array([labels]))
        padded = steps + [nd.zeros((1, CLASSES + 1))] * (self.MOST - len(steps))
        labelled = nd.array([labels + [-1] * (3 - len(labels))])
        lengths = nd.array([len(steps)]), nd.array([len(labels)])
        return self.ctc(nd.stack(*padded, axis=1), labelled, *lengths)

    def sample(self, random):
        frames = [floats(random, 1, 2) for _ in range(random.randint(6, Ctc.MOST + 1))]
        return frames, random.randint(CLASSES, size=random.randint(1, 4)).tolist()


class TuringMachine(Model):
    """A neural Turing machine that copies a sequence: it reads and writes a memory by focus."""

    CELLS, SIZE = 3, 2

    def build(self) -> None:
        self.controller = rnn.LSTMCell(WIDTH, input_size=2 + self.SIZE)
        self.heads = nn.Dense(2 * (self.SIZE + 6), in_units=WIDTH)
        self.write = nn.Dense(2 * self.SIZE, in_units=WIDTH)
        self.out = nn.Dense(2, in_units=WIDTH + self.SIZE)
        self.loss = gluon.loss.SigmoidBCELoss()

    def focus(self, head, memory, before):
        key, rest = head[:, : self.SIZE], head[:, self.SIZE :]
        strength, gate = nd.Activation(rest[:, 0:1], 'softrelu'), nd.sigmoid(rest[:, 1:2])
        shift, sharp = nd.softmax(rest[:, 2:5]), 1 + nd.Activation(rest[:, 5:6], 'softrelu')
        dots = nd.sum(nd.broadcast_mul(memory, key.expand_dims(1)), axis=2)
        norms = nd.sqrt(nd.sum(memory**2, axis=2) * nd.sum(key**2, axis=1, keepdims=True) + 1e-3)
        found = nd.softmax(strength * dots / norms)
        w = gate * found + (1 - gate) * before
        left, right = (nd.concat(w[:, i:], w[:, :i], dim=1) for i in (1, self.CELLS - 1))
        w = (shift[:, 0:1] * left + shift[:, 1:2] * w + shift[:, 2:3] * right + 1e-6) ** sharp
        return w / nd.sum(w, axis=1, keepdims=True)

    def forward(self, sequence):
        memory = nd.ones((1, self.CELLS, self.SIZE)) * 0.1
        reading = writing = nd.ones((1, self.CELLS)) / self.CELLS
        state, read, losses = self.controller.begin_state(1), nd.zeros((1, self.SIZE)), []
        for x in [*map(nd.array, sequence), *[nd.zeros((1, 2))] * len(sequence)]:
            h, state = self.controller(nd.concat(x, read, dim=1), state)
            one, other = nd.split(self.heads(h), num_outputs=2, axis=1)
            writing = self.focus(one, memory, writing)
            erase, add = nd.split(self.write(h), num_outputs=2, axis=1)
            place = writing.expand_dims(2)
            memory = memory * (1 - nd.batch_dot(place, nd.sigmoid(erase).expand_dims(1)))
            memory = memory + nd.batch_dot(place, nd.tanh(add).expand_dims(1))
            reading = self.focus(other, memory, reading)
            read = nd.batch_dot(reading.expand_dims(1), memory)[:, 0]
            losses.append(self.out(nd.concat(h, read, dim=1)))
        answers = losses[len(sequence) :]
        return [self.loss(y, nd.array(bits > 0)) for y, bits in zip(answers, sequence)]

    def sample(self, random):
        return [floats(random, 1, 2) for _ in range(random.randint(1, 3))]


class Modules(Model):
    """Neural module networks: a question is a program of small networks over a picture."""

    def build(self) -> None:
        self.look = nn.Conv2D(WIDTH, 3, padding=1, in_channels=1, activation='relu')
        self.word = nn.Embedding(WORDS, WIDTH)
        self.merge = nn.Conv2D(1, 1, in_channels=2)
        self.move = nn.Conv2D(WIDTH, 3, padding=1, in_channels=1)
        self.answer = nn.Dense(CLASSES, in_units=WIDTH)

    def run(self, program, picture):
        name, *rest = program
        if name == 'and':
            return nd.minimum(*[self.run(one, picture) for one in rest])
        query = self.word(rest[0]).reshape((1, WIDTH, 1, 1))
        looked_at = picture if name == 'find' else self.move(self.run(rest[1], picture))
        scores = nd.broadcast_mul(looked_at, query)
        found = nd.concat(scores.sum(axis=1, keepdims=True), picture[:, :1], dim=1)
        return nd.sigmoid(self.merge(found))

    def forward(self, sample):
        picture, program, label = sample
        features = self.look(picture)
        seen = nd.broadcast_mul(features, self.run(program, features)).mean(axis=(2, 3))
        return self.cross_entropy(self.answer(seen), label)

    def sample(self, random):
        def program(depth):
            name = random.choice(['find', 'relate', 'and']) if depth else 'find'
            if name == 'and':
                return name, program(depth - 1), program(depth - 1)
            word = random.randint(1, WORDS)
            return (name, word) if name == 'find' else (name, word, program(depth - 1))

        return floats(random, 1, 1, 4, 4), program(3), random.randint(CLASSES)


class SetTransformer(Model):
    """Sets of any size by attention to each other, pooled, compared by a triplet loss."""

    class Attention(Built, gluon.HybridBlock):
        """The block MAB of (1, n, width) and (1, m, width): two heads, and a layer of its own."""

        def build(self):
            make = dict(in_units=WIDTH, flatten=False)
            self.q, self.k, self.v = (nn.Dense(WIDTH, **make) for _ in 'qkv')
            self.out = nn.Dense(WIDTH, activation='relu', **make)
            self.norm = nn.LayerNorm(in_channels=WIDTH)

        def hybrid_forward(self, F, x, y):
            split = dict(num_outputs=2, axis=2)
            queries = F.split(self.q(x), **split)
            keys, values = F.split(self.k(y), **split), F.split(self.v(y), **split)
            scores = [F.batch_dot(q, k, transpose_b=True) for q, k in zip(queries, keys)]
            read = [F.batch_dot(F.softmax(s), v) for s, v in zip(scores, values)]
            h = self.norm(x + F.concat(*read, dim=2))
            return h + self.out(h)

    def build(self) -> None:
        self.embed = nn.Dense(WIDTH, in_units=2, flatten=False)
        self.among, self.pool = self.Attention(), self.Attention()
        self.seed = self.params.get('seed', shape=(1, 1, WIDTH))
        self.loss = gluon.loss.TripletLoss(margin=2)

    def encode(self, points):
        x = self.embed(nd.array(points))
        return self.pool(self.seed.data(), self.among(x, x)).reshape((1, -1))

    def forward(self, triplet):
        return self.loss(*map(self.encode, triplet))

    def sample(self, random):
        return [floats(random, 1, random.randint(2, 5), 2) for _ in range(3)]


class Experts(Model):
    """A mixture of experts: each word goes to the two best ones, and a loss balances them."""

    def build(self, experts: int = 3) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.gate = nn.Dense(experts, in_units=WIDTH, use_bias=False)
        hidden = [nn.Dense(WIDTH, in_units=WIDTH, activation='tanh') for _ in range(experts)]
        self.experts = layers(*hidden)
        self.out = nn.Dense(CLASSES, in_units=WIDTH)

    def forward(self, sample):
        words, label = sample
        total, importance = nd.zeros((1, WIDTH)), nd.zeros((1, len(self.experts)))
        for word in words:
            x = self.embed(word)
            gates = nd.softmax(self.gate(x))
            importance = importance + gates
            for expert in np.argsort(-gates.asnumpy()[0], kind='stable')[:2].tolist():
                total = total + gates[:, expert : expert + 1] * self.experts[expert](x)
        mean = importance.mean(axis=1, keepdims=True)
        balance = nd.mean(((importance - mean) / mean) ** 2)
        return self.cross_entropy(self.out(total / len(words)), label) + 0.1 * balance


class Reverse(autograd.Function):
    """Reverse the gradient: the forward pass is the identity."""

    def __init__(self, strength):
        super().__init__()
        self.strength = strength

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        return -self.strength * dy


class Step(autograd.Function):
    """A straight-through gate: 0 or 1, with the gradient of the identity."""

    def forward(self, x):
        return (x > 0).astype(x.dtype)

    def backward(self, dy):
        return dy


class Adversary(Model):
    """A reader whose gate is open or closed, and a domain classifier behind a gradient reversal."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.cell = rnn.GRUCell(WIDTH, input_size=WIDTH)
        self.gate = nn.Dense(WIDTH, in_units=WIDTH)
        self.label, self.domain = nn.Dense(CLASSES, in_units=WIDTH), nn.Dense(2, in_units=WIDTH)

    def forward(self, sample):
        words, label, domain = sample
        state = self.cell.begin_state(1)
        for word in words:
            x = self.embed(word)
            h, state = self.cell(x * Step()(self.gate(x)), state)
        loss = self.cross_entropy(self.label(h), label)
        return loss + self.cross_entropy(self.domain(Reverse(0.3)(h)), domain)

    def sample(self, random):
        return words_of(random), random.randint(CLASSES), random.randint(2)


class Language(Model):
    """A language model whose output layer is its embedding; gradients add up, a layer is frozen."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.cell = rnn.LSTMCell(WIDTH, input_size=WIDTH)
        self.frozen = nn.Dense(WIDTH, in_units=WIDTH, activation='tanh')
        self.out = nn.Dense(WORDS, in_units=WIDTH, params=self.embed.params)
        self.collect_params().setattr('grad_req', 'add')
        self.frozen.collect_params().setattr('grad_req', 'null')

    def forward(self, words):
        state, before, losses = self.cell.begin_state(1), END, []
        for word in [*words, END]:
            h, state = self.cell(self.frozen(self.embed(before)), state)
            losses.append(self.cross_entropy(self.out(h), word))
            before = word
        return edb.add_n(losses) / len(losses)

    def sample(self, random):
        return words_of(random)


class Nested(Model):
    """Stacked cells with states in a dict, sequences padded by hand, and their lengths."""

    def build(self) -> None:
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.stack = rnn.SequentialRNNCell()
        self.stack.add(rnn.LSTMCell(WIDTH, input_size=WIDTH))
        self.stack.add(rnn.ResidualCell(rnn.GRUCell(WIDTH, input_size=WIDTH)))
        self.top = rnn.RNNCell(WIDTH, input_size=WIDTH)
        self.out = nn.Dense(CLASSES, in_units=2 * WIDTH)

    def step(self, x, states):
        h, below = self.stack(x, states['below'])
        y, above = self.top(h, states['above'])
        return y, {'below': below, 'above': above, 'steps': states['steps'] + 1}

    def forward(self, sample):
        words, padded, label = sample
        inputs, length = self.embed(nd.array([padded])), nd.array([len(words)])
        outputs, _ = self.stack.unroll(6, inputs, merge_outputs=True, valid_length=length)
        outputs, valid = nd.swapaxes(outputs, 0, 1), dict(use_sequence_length=True)
        last = nd.SequenceLast(outputs, length, **valid)
        kept = nd.SequenceMask(outputs, length, **valid)
        below = self.stack.begin_state(func=nd.zeros, batch_size=1)
        states = {'below': below, 'above': self.top.begin_state(1), 'steps': 0}
        for word in words:
            y, states = self.step(self.embed(word), states)
        scores = self.out(nd.concat(y, last + kept.mean(axis=0), dim=1)) / states['steps']
        return self.cross_entropy(scores, label), states

    def sample(self, random):
        words = words_of(random)
        return words, words + [END] * (6 - len(words)), random.randint(CLASSES)


class Conditions(Model):
    """A block that takes one of two paths for each of two steps, by `F.contrib.cond`."""

    class Twice(Built, gluon.HybridBlock):
        """Call children in both paths."""

        def build(self):
            self.a, self.b = (nn.Dense(WIDTH, in_units=WIDTH) for _ in 'ab')

        def hybrid_forward(self, F, x):
            for _ in range(2):
                x = F.contrib.cond(F.sum(x) > 0, lambda: self.a(x), lambda: F.tanh(self.b(x)))
            return x

    def build(self) -> None:
        self.twice, self.out = self.Twice(), nn.Dense(CLASSES, in_units=WIDTH)

    def forward(self, x):
        return self.out(self.twice(nd.array(x)))

    def sample(self, random):
        return floats(random, 1, WIDTH)


class Loops(Model):
    """A block that steps through a sentence by `F.contrib.foreach`."""

    class Time(Built, gluon.HybridBlock):
        """Return the last state of a cell."""

        def build(self):
            self.cell = rnn.GRUCell(WIDTH, input_size=WIDTH)

        def hybrid_forward(self, F, x, h):
            return F.contrib.foreach(self.cell, F.swapaxes(x, 0, 1), [h])[1][0]

    def build(self) -> None:
        self.embed, self.time = nn.Embedding(WORDS, WIDTH), self.Time()
        self.out = nn.Dense(CLASSES, in_units=WIDTH)

    def forward(self, sample):
        words, label = sample
        h = self.time(self.embed(nd.array([words])), nd.zeros((1, WIDTH)))
        return self.cross_entropy(self.out(h), label)
