"""Models whose code leaves MXNet, and some whose code cannot."""

import json
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import mxnet as mx
import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example.tree_sst.model import TreeLSTM
from gluon_edbatch import nd


class Node:
    """A part of a sample: a number, or an operation on others."""

    def __init__(self, token, parts=(), weight=1.0, kind=None):
        self.token, self.parts, self.weight, self.kind = token, list(parts), weight, kind
        self.label = {1, 2}  # no code names it, so that it may be what JSON lacks

    @property
    def is_leaf(self):
        """Whether it has no parts."""
        return not self.parts

    def depth(self):
        """Levels below."""
        return 1 + max([part.depth() for part in self.parts], default=0)

    def __len__(self):
        return len(self.parts)


class State(NamedTuple):
    """What a node is computed to."""

    h: object
    level: int


SCALE = 0.5
OFFSETS = {'deep': [1.0, 2.0], 'flat': (0.0,)}


def scaled(value, by=SCALE, *, more=0):
    """A function of the module, with defaults."""
    return value if by == SCALE and more == 0 else value + value


class Outer(gluon.HybridBlock):
    """Add two values."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = gluon.nn.Dense(4, in_units=8)

    def hybrid_forward(self, F, a, b):
        """(N, 4) each."""
        return F.tanh(self.dense(F.concat(a, b, dim=1)))


class Net(edb.AutoBatchMixin, gluon.Block):
    """Most of what code between cells does."""

    limit = 3

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(10, 4)
            self.join = Outer()
            self.heads = gluon.nn.Sequential()
            for _ in range(2):
                self.heads.add(gluon.nn.Dense(2, in_units=4))
        self.start = np.full((1, 4), 0.25, np.float32)
        self._names = {'a': 1, 2: 'b', 'number': np.float64(0.5)}

    def forward(self, node, bias):
        found = []
        state = self._walk(node, found, 0)
        assert found, 'no nodes'
        total = state.h
        for place, (one, other) in enumerate(zip(found[:-1], found[1:])):
            if place % 2:
                continue
            total = self.join(total, one) if len(found) > 2 else self.join(total, other)
        else:
            total = scaled(total, by=SCALE)
        count, left = 0, [*range(self.limit)]
        while left:
            left.pop()
            count += 1
            if count > 1:
                break
        head = self.heads[(count + len(found)) % len(self.heads)]
        texts = sorted({f'{node.token}-{each:02d}' for each in range(2)}, key=lambda text: text[-1])
        assert texts[0].endswith('00') and self._names.get(2) == 'b' and math.sqrt(4.0) == 2
        value = head(edb.concat([total, self.join(self.start, self.embed(bias[0]))]))
        assert isinstance(self._names['number'], np.float64)
        zeros = nd.concat(mx.nd.zeros((1, 2)), mx.nd.ones((1, 2)), dim=1)
        total = self.join(total, zeros)
        return {'scores': value, 'all': [value, (edb.nd.tanh(total),)]}['all']

    def _walk(self, node, found, level):
        if node.is_leaf:
            h = self.embed(node.token)
        else:
            states = [self._walk(part, found, level + 1) for part in node.parts if part is not None]
            h, *rest = [each.h for each in states]
            for other in rest:
                h = self.join(h, other)
            if node.kind is not None and node.kind['k'][0] > OFFSETS['deep'][0] and len(node) > 1:
                h = self.join(h, h)
        found.append(h)
        return State(h=h, level=node.depth() + level)


def samples_of(seed, count=12):
    rng = np.random.RandomState(seed)

    def node(depth):
        if depth == 0 or rng.rand() < 0.3:
            return Node(int(rng.randint(10)))
        kind = {'k': (float(rng.randint(3)), 'x')} if rng.rand() < 0.5 else None
        return Node(0, [node(depth - 1) for _ in range(rng.randint(1, 4))], 0.5, kind)

    return [(node(3), [int(rng.randint(10)), 1]) for _ in range(count)]


class Broken(edb.AutoBatchMixin, gluon.Block):
    """A cell, and code around it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(10, 4)
            self.unused = gluon.nn.Dense(2, in_units=4)


class Handles(Broken):
    def forward(self, x):
        try:
            return self.embed(x)
        except ValueError:
            return None


class Nests(Broken):
    def forward(self, x):
        def inner(y):
            return self.embed(y)

        return inner(x)


class Names(Broken):
    def forward(self, x):
        return [self.embed(y) for y in (x,) if (z := y) == z]


class Reaches(Broken):
    def forward(self, x):
        return self.embed(x).__class__ and self.embed(x)


class Opens(Broken):
    def forward(self, x):
        return self.embed(x) if x < 100 else open('file')


class Operates(Broken):
    def forward(self, x):
        return np.linalg.norm(x) and self.embed(x)


class Prints(Broken):
    def forward(self, x):
        return json.loads(str(x)) and self.embed(x)


class Skips(Broken):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.unused = gluon.nn.Dense(2)  # of which no call tells the inputs

    def forward(self, x):
        return self.embed(x) if x < 100 else self.unused(self.embed(x))


class Supers(TreeLSTM):
    def word(self, token):
        return super().word(token)


class Endless(Broken):
    def forward(self, x):
        while x < 5:
            x = x + 0
        return self.embed(x)


class Decides(Broken):
    """Read the truth of values, without a word for it."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.cell = gluon.nn.Dense(4, activation='tanh', in_units=4)
            self.score = gluon.nn.Dense(1, in_units=4)

    def forward(self, x):
        h, steps, seen = self.cell(self.embed(x)), 0, []
        while self.score(h) > -0.2 and steps < 5:
            h, steps = self.cell(h), steps + 1
            seen.append(1 if h[:, 3] > 0 and not h[:, 2] > 0 else 0)
        assert h[0, 0] < 2, 'never'
        h = h if not h[:, 1] > h[:, 2] else self.cell(h)
        return h, seen, [step for step in range(steps) if self.score(h) > 0.1 * step]


class Comprehends(Broken):
    """Read values in comprehensions, in functions, and in those that are handed on."""

    def forward(self, x):
        values = [self.embed(each) for each in range(x)]
        numbers = [value.asnumpy() for value in values]
        scores = {place: self._score(value) for place, value in enumerate(values) if place != 1}
        kinds = {round(self._again(value), 3) for value in values for _ in range(2)}
        rows = [[self._score(value) + place for value in values[:place]] for place in range(x)]
        order = sorted(range(x), key=lambda place: float(values[place].asnumpy()[0, 0]))
        total = sum(self._handed_on(value) for value in values)
        lists = list(map(self._handed_on, values))
        if self._score(values[-1]) > 0 and self._score(values[0]) > -9:
            order.append(x)
        return numbers, sorted(scores.items()), sorted(kinds), rows, order, total, lists

    def _score(self, value):
        return float(value.asnumpy().sum())

    def _again(self, value):
        return self._score(value) if value is not None else 0.0

    def _handed_on(self, value):
        return float(value.asnumpy()[0, 1])


class Counts(Broken):
    """Count the samples that came to a point where they have read a value."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.order = []

    def forward(self, x):
        value = self.embed(x)
        self.order.append(x)
        number = float(value.asnumpy().sum())
        self.order.append(-x)
        return number, list(self.order)


class Unneeded(Broken):
    """Look up a word that nothing needs before a value is read."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = gluon.nn.Dense(4, in_units=4, activation='tanh')

    def forward(self, x):
        _ = self.embed(0)
        h = self.cell(self.embed(x))
        first = self.unused(h).asnumpy()
        return first.tolist(), list(map(self._read_in_place, [self.cell(h)]))

    def _read_in_place(self, value):  # it is handed on, and so runs all that waits
        return value.asnumpy().tolist()


class OfArrays(Broken):
    """Take arrays of any number of rows, and a dict of them."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = gluon.nn.Dense(3, in_units=2)

    def forward(self, rows, named):
        found = [self.dense(rows[place : place + 1]) for place in range(len(rows))]
        return edb.concat(found) * float(named['scale']) + named['shift']


class Walks(Broken):
    """Move over a sentence, left or right, as scores say, until it stops."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = gluon.rnn.GRUCell(4, input_size=4)
            self.actions = gluon.nn.Dense(3, in_units=4)

    def forward(self, sentence):
        place, path = 0, []
        states = self.cell.begin_state(1)
        while (steps := len(path)) < 8:
            output, states = self.cell(self.embed(sentence[place]), states)
            scores = self.actions(output).asnumpy()
            action = int(scores[0].argmax())
            if action == 0:
                break
            place = (place + (1 if action == 1 else -1)) % len(sentence)
            path.append(place)
        return path if steps else []


@dataclass
class Part:
    """A part of a sample."""

    token: int
    parts: list

    def all(self):
        """Return the tokens of all parts."""
        return [self.token, *[token for part in self.parts for token in part.all()]]


@dataclass
class Answer:
    """A result."""

    words: list
    scores: tuple = ()
    notes: dict = field(default_factory=dict)


class OfAStranger(Broken):
    """What somebody wrote who has not seen the package's own code."""

    def forward(self, part):
        first = self.embed(part.token)
        total, texts = first, []
        for token in part.all()[1:]:
            total += self.embed(token)  # MXNet writes into the array, which `first` names, too
        done = (total * 0).sum(axis=1)
        texts.append('go on' if done else 'stop')
        while not done:
            done = done + 1
        texts.append('same' if first[:, 0:1] == total[:, 0:1] else 'differ')
        texts.append('more' if total[:, 0:1] > self.embed(1)[:, 0:1] else 'less')
        best = int(total.argmax(axis=1).asscalar())
        array = total.asnumpy()
        numbers = [float(array.sum()), float(array.mean()), float(array.std()), abs(best - 3)]
        numbers.append(math.log(len(texts)) + float(np.log(2.0)))
        numbers.append(float(total[0, 1].asscalar()) + float(total[0].asnumpy()[1:3].sum()))
        for place in range(4):
            if float(total[:, place].asscalar()) > 0:
                break
        total = total - first / 2
        answer = Answer([best, place], (abs(first), total), {'n': len(total), 'ndim': total.ndim})
        assert answer.words == answer.words and part == Part(part.token, part.parts)
        return answer.words, answer.scores, texts, numbers, sorted(answer.notes.items())


class Op:
    """A step of a sample."""

    def __init__(self, size):
        self.size = size


class Push(Op):
    """A step that is another one, too."""


class Kinds(edb.AutoBatchMixin, gluon.Block):
    """Tell what samples are, and round numbers that are halves."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(10, 4)

    def forward(self, ops):
        total = self.embed(0)
        for op in ops:
            if isinstance(op, Op):
                total = total + self.embed(op.size)
            if isinstance(op, Push):
                total = total * 2
        made = [isinstance(each, Op) for each in (Push(1), Op(1))]
        return total, made, nd.rint(total * 0 + 0.5 + len(ops))


class Summed(Op):
    """Add by a method that an exported class has not."""

    def __radd__(self, other):
        return other + self.size


@dataclass(eq=False)
class Apart:
    """An object that equals itself only."""

    size: int


@dataclass
class Doubled:
    """A field that is changed when an object is made."""

    size: int

    def __post_init__(self):
        self.size *= 2


class Sizes(edb.AutoBatchMixin, gluon.Block):
    """Take samples of any of these classes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(10, 4)

    def forward(self, op):
        return self.embed(op.size)


class Texts(Sizes):
    """Put an object into text."""

    def forward(self, op):
        return self.embed(op.size), f'{op}'
