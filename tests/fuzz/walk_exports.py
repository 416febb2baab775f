#!/usr/bin/env python3
"""Export random models, and compare what the runtime makes of new samples with eager mode.

Results must be those of eager mode, and so must exceptions. A model may be refused, with its line.
Half of the models have state that samples share. Prints how many were equal, suspended and refused,
and the source of each that differs; the exit status says whether one did.

    python -m tests.fuzz.walk_exports --cases 3000 --seed 1
    python -m tests.fuzz.walk_exports --only 1:37            # one model of a seed
"""

import argparse
import linecache
import random
import sys
import tempfile
import textwrap
import warnings
from collections import Counter
from copy import deepcopy
from pathlib import Path

import gluon_edbatch as edb  # isort: skip
import mxnet as mx
import numpy as np
from mxnet.gluon import nn

import gluon_edbatch_runtime as runtime
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of

SIZE, WORDS = 3, 5

HEAD = """
import math
from typing import Any, NamedTuple
import mxnet as mx, numpy as np
import gluon_edbatch as edb
from gluon_edbatch import nd
from mxnet import gluon

LOG, TABLE, SCALES = [], {}, [0.5, 1.0, 1.5]

class Pair(NamedTuple):
    left: Any
    right: Any = None
    def swapped(self):
        return Pair(self.right, self.left)

class Box:
    made = 0
    def __init__(self, h, n=0):
        self.h, self.n, self.items = h, n, []
    def add(self, n):
        self.n += n
        self.items.append(n)
        return self
    @property
    def half(self):
        return self.n / 2
    def __len__(self):
        return len(self.items)

def helper(h, n, xs, *, more=1):
    xs.append(n)
    return nd.tanh(h) if n % 2 else h

def keeps(n, seen=[]):
    seen.append(n)
    return len(seen)

def passes_on(xs, n):
    xs.append(n)
    return xs

def logs(n):
    LOG.append(n)
    return len(LOG)

def below(model, tree):
    h = model.cell(model.embed(tree.word))
    for child in tree.children:
        h = model.join(h, below(model, child))
    return h

class Inner(gluon.Block):
    def __init__(self, cell, score):
        super().__init__()
        self.cell, self.score, self.seen = cell, score, []
    def forward(self, h, n):
        if n > 1 and self.score(h).asnumpy()[0, 0] > 0:
            h = self.cell(h)
        return h

class Net(edb.AutoBatchMixin, gluon.Block):
    limit = 3

    def __init__(self, embed, cell, join, score, scores, mix, read):
        super().__init__(prefix='net_')
        self.embed, self.cell, self.join, self.score, self.scores = embed, cell, join, score, scores
        self.mix, self.read = mix, read
        self.inner = Inner(cell, score)
        self.cells = gluon.nn.Sequential()
        self.cells.add(cell, cell)
        self.count, self.memo, self.log, self.kept = 0, {}, [], [[1], [2]]
        self.also = TABLE
        self.weights = np.ones(3)

    def value(self, h):
        return float(self.score(h).asnumpy()[0, 0])

    def best(self, h):
        return int(self.scores(h).asnumpy().argmax())

    def walk(self, tree, depth):
        h = self.cell(self.embed(tree.word))
        if depth and self.value(h) > 0:
            for child in tree.children:
                h = self.join(h, self.walk(child, depth - 1))
        return h
"""

# Statements, of which `{}` is the body of the next ones. What they know: h, n, v, xs, d, box, tree.
FREE = [
    'h = self.cell(h)',
    'h = self.join(h, self.embed(n % 5))',
    'h = self.cells[n % 2](h)',
    'h = self.inner(h, n)',
    'h = nd.tanh(h + self.embed(n % 5))',
    'h = h * 0.5 + 0.1',
    'h += self.embed(n % 5)',
    'g = h; g *= 0.5; h = self.join(g, h)',
    'v = 1.0 if h[:, 0:1] > 0.1 else -1.0',
    'n = 2 if (h * 0).sum(axis=1) else n + 1',
    'n = int(h.argmax(axis=1).asscalar()) + (self.embed(1) == h).asnumpy().sum() * 0',
    'v = float(abs(h).asnumpy().sum()) + math.log(2 + abs(n))',
    'h = max([h, self.cell(h)], key=lambda each: float(each[:, n % 3].asscalar()))',
    'h = self.cell(h) if float(h[0, 1].asscalar()) > 0 else h',
    'h = nd.relu(h) - 0.3 * h',
    'h = nd.softmax(h)',
    'h = 1 - h',
    'h = nd.concat(h[:, 1:], h[:, 0:1], dim=1)',
    'h = nd.broadcast_add(h, h.mean(axis=1, keepdims=True)) / 2',
    'v = float(nd.sum(h, axis=1).asnumpy()[0])',
    'h = nd.add_n(*xs) if xs else h',
    'h = h.reshape((1, -1)).clip(-1, 1)',
    'h = nd.max(nd.stack(h, self.cell(h), axis=1), axis=1)',
    'n = self.best(h)',
    'v = self.value(h)',
    'v = float(self.score(h).asscalar()) * SCALES[n % 3]',
    'n += self.best(self.cell(h))',
    'xs.append(h)',
    'h = self.join(xs[-1], h) if xs else h',
    'd[n] = v',
    'v = d.get(n, v)',
    'box.add(n)',
    'box = Box(h, n)',
    'n = int(box.half) + len(box)',
    'h = helper(h, n, found, more=2)',
    'h = below(self, tree)',
    'h = self.walk(tree, 2)',
    'vs = [self.score(each).asscalar() for each in xs]; v = max(vs, default=v)',
    'vs = [self.value(each) + i for i, each in enumerate(xs) if i != 1]; v = sum(vs) + v',
    'vs = {i: [self.value(x) for x in xs[:i]] for i in range(2)}; v = v + len(vs[1])',
    'xs = sorted(xs, key=lambda each: float(self.score(each).asscalar()))',
    'v = sum(float(self.score(each).asscalar()) for each in xs) + 0.0',
    'v = math.tanh(v) + min(n, 2)',
    'a = np.zeros(3); a[n % 3] = v; v = float(a.sum())',
    'n, m = divmod(n, 2); n += m',
    'words = list(map(self.embed, range(n % 3 + 1))); h = self.join(h, words[-1])',
    'h = self.join(h, mx.nd.zeros((1, 3)))',
    "n = getattr(tree, 'word', 0) + hasattr(tree, 'nothing')",
    'p = Pair(h, n); h, n = p; n = p.right + 1',
    'p = Pair(n, h).swapped(); h = p.left',
    'first, *rest = [n, 2, 3]; n = sum(rest)',
    'h = {"a": h}.get("a")',
    'x = [[]] * 2; x[0].append(n); n = len(x[1])',
    'h = max([h, self.cell(h)], key=self.value)',
    'n = len(tree.children) + self.limit',
    "found.append(f'{n:03d}-{v > 0}')",
    'v = 1.5 if v > 0 and self.value(h) > 0.1 or n > 3 else -v',
    'assert n > -99, f"{n}"',
    'for child in tree.children:\n    h = self.join(h, self.embed(child.word))\n    {}',
    'if v > 0.1:\n    {}',
    'if self.score(h).asnumpy().sum() > 0:\n    {}\nelse:\n    {}',
    'for i in range(2):\n    {}\nelse:\n    n += 1',
    'AT = 0\nwhile AT < 3 and self.value(h) > -0.2:\n    AT += 1\n    h = self.cell(h)\n    {}',
    'for i, (x, y) in enumerate(zip(xs, xs[1:])):\n    if i > 1: break\n    h = self.join(x, y)',
]
WHOLE = [  # of m, three or more rows that operators mix
    'm = nd.concat(m, h, dim=0)',
    'm = nd.concat(m[1:], h, h * 0.5, dim=0)',
    'h = m.max(axis=0, keepdims=True)',
    'h = nd.mean(m, axis=0).expand_dims(0)',
    'h = nd.norm(m, axis=0, keepdims=True)',
    'h = m[n % m.shape[0]].reshape((1, -1))',
    'h = m[-1:]',
    'h = h + m[0]',
    'm = nd.softmax(m, axis=0)',
    'm = nd.log_softmax(m, axis=0, temperature=2.0)',
    'm = m[::-1]',
    'm = nd.flip(m, axis=0)',
    'm = nd.take(m, nd.argsort(m[:, 0], axis=0), axis=0)',
    'm = nd.take(m, mx.nd.array([n, 0, 1]), mode="wrap")',
    'm = m[[2, 0, 1]]',
    'm = nd.tanh(nd.dot(m, m.T))[:, 0:3]',
    'm = nd.batch_dot(m.expand_dims(0), h.reshape((1, 3, 1)))[0] * m',
    'm = nd.broadcast_sub(m, m.mean(axis=0, keepdims=True))',
    'm = m - nd.broadcast_axis(h, axis=0, size=m.shape[0])',
    'm = nd.where(m > 0, m, m * 0.5)',
    'm = nd.tile(h, reps=(3, 1)) + m[0:3]',
    'm = nd.repeat(m, repeats=2, axis=0)[0:4]',
    'm = m.reshape((-1,))[0:9].reshape((3, 3))',
    'm = m.reshape((-4, 1, -1, 0)).reshape((-3, 0))',
    'm = nd.concat(*[self.cell(x.expand_dims(0)) for x in m], dim=0)',
    'm = self.cell(m)',
    'm = self.mix(m)',
    'm = self.read(m.expand_dims(0))[0]',
    'm = nd.stack(m, m, axis=1).sum(axis=1)',
    'm = m.transpose().transpose((1, 0))',
    'm = nd.swapaxes(m, 0, 1)[0:3, 0:3]',
    'm = nd.slice(m, begin=(None, 0), end=(None, None), step=(-1, 1))',
    'm = nd.split(m, num_outputs=3, axis=1)[1] + m',
    'm = nd.topk(m, axis=0, k=3, ret_typ="value")',
    'm = nd.array(np.eye(3)) + m[:3]',
    'm = mx.nd.arange(3) * m',
    'm = 1 - m % 2',
    'm = self.read(edb.ragged([h, h * n, h]))[0] + m[0:3]',
    'h = nd.max(edb.ragged([h] * (n % 2), shape=(1, 3)), axis=1)',
    'h = nd.sum(edb.ragged([h, self.cell(h)]), axis=1)',
    'h = h + nd.one_hot(m.argmax(axis=1), depth=3).sum(axis=0, keepdims=True)',
    'h = h + nd.pick(m[0:3], mx.nd.array([0, 1, n % 3]))',
    'v = float(m.sum().asscalar())',
    'v = float(nd.max(m[1:3, 1:]).asnumpy()[0])',
    'n += int(m.argmax(axis=0)[0].asscalar())',
    'n = len(m) + int((m > 0).sum().asscalar()) % 3',
    'if m[0, 0] > 0.1:\n    {}',
    'for row in m:\n    if row[0] > 0.3: break\n    h = h + row',
]
READS = ['n = self.best(h)', 'v = self.value(h)', 'h = self.walk(tree, 2)']
FAILING = ['if self.value(h) > 0.3: raise ValueError("at %d" % n)', 'v = 1 / (n - 1)']
OF_SAMPLES = ['tree.visits += 1', 'tree.marks.append(n)', 'n += tree.visits']
SHARED = [
    'self.count += 1; n += self.count % 2', 'self.memo[n] = v', 'self.log.append(n)',
    'n = len(self.log)', 'LOG.append(n); n = len(LOG) % 7',
    'n = logs(n) % 5',
    'n = len(self.also) + len(LOG)',
    'self.also[len(self.log)] = n', 'TABLE[n] = v; n = len(TABLE)',
    'n = keeps(n) % 5', 'passes_on(self.log, n)',
    'self.weights[n % 3] += 1; v = float(self.weights[0])',
    'Box.made += 1; n = Box.made % 4', 'self.inner.seen.append(n); n = len(self.inner.seen) % 6',
    'self.kept[n % 2].append(n); n = len(self.kept[0]) % 3',
]  # fmt: skip


class Tree:
    """A sample."""

    def __init__(self, word, children):
        self.word, self.children, self.visits, self.marks = word, children, 0, []


def trees_of(draw, count):
    """Return samples."""

    def tree(depth):
        below = [tree(depth - 1) for _ in range(draw.randrange(3))] if depth else []
        return Tree(draw.randrange(WORDS), below)

    return [tree(2) for _ in range(count)]


def program(draw):
    """Return the source of a model."""
    shared = draw.random() < 0.5
    kinds = [FREE] * 6 + [WHOLE] * 4 + [FAILING] * (draw.random() < 0.3)
    kinds += [OF_SAMPLES] * (2 * (draw.random() < 0.3)) + [SHARED] * shared

    def block(depth):
        lines = []
        for _ in range(draw.randint(1, 3 if depth else 6)):
            text = draw.choice(draw.choice(kinds))
            if '{}' in text and depth > 2:
                text = 'h = self.cell(h)'
            text = text.replace('AT', f'at{draw.randrange(1 << 30)}')
            while '{}' in text:
                at = text.index('{}')
                indent = len(text[:at]) - len(text[:at].rstrip(' '))
                inner = block(depth + 1).replace('\n', '\n' + ' ' * indent)
                text = text[:at] + inner + text[at + 2 :]
            lines.append(text)
        if not depth:  # each model reads
            lines.insert(draw.randint(0, len(lines)), draw.choice(READS))
        return '\n'.join(lines)

    start = (
        'h, n, v, xs, d, box, found = '
        'self.cell(self.embed(tree.word)), 1, 0.0, [], {}, Box(None), []\n'
        'm = self.embed(mx.nd.array([tree.word, 1, *[child.word for child in tree.children], 2]))\n'
    )
    body = textwrap.indent(f'{start}{block(0)}\nreturn h, n, v, found, m\n', ' ' * 8)
    return f'{HEAD}\n    def forward(self, tree):\n{body}'


class Join(mx.gluon.HybridBlock):
    """Compute one vector from two."""

    def __init__(self):
        super().__init__(prefix='join_')
        with self.name_scope():
            self.dense = nn.Dense(SIZE, in_units=2 * SIZE)

    def hybrid_forward(self, F, a, b):
        """(N, H) each."""
        return F.tanh(self.dense(F.concat(a, b, dim=1)))


class Mix(mx.gluon.HybridBlock):
    """Let rows depend on each other."""

    def hybrid_forward(self, F, x):
        """(L, H)."""
        return F.broadcast_mul(x, F.softmax(F.sum(x, axis=1, keepdims=True), axis=0))


def blocks():
    """Return the layers that all models call, so that each is traced once."""
    mx.random.seed(5)
    made = [
        nn.Embedding(WORDS, SIZE, prefix='embed_'),
        nn.Dense(SIZE, activation='tanh', in_units=SIZE, prefix='cell_'),
        Join(),
        nn.Dense(1, in_units=SIZE, prefix='score_'),
        nn.Dense(3, in_units=SIZE, prefix='scores_'),
        Mix(prefix='mix_'),
        mx.gluon.rnn.GRU(SIZE, layout='NTC', input_size=SIZE, prefix='read_'),
    ]
    for block in made:
        block.initialize(mx.init.Normal(1))
    return made


def made_of(number, source, parts):
    """Return a model of a source."""
    filename = f'<model {number}>'
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    names = {'__name__': 'made'}
    exec(compile(source, filename, 'exec', dont_inherit=True), names)
    return names['Net'](*parts)


def outcomes(run, samples):
    """Return results as JSON, until one raises; and that error, as text."""
    found = []
    for sample in samples:
        try:
            found.append(json_of(run(sample)))
        except Exception as error:
            return found, f'{type(error).__name__}: {error}'
    return found, ''


def compare(seed, number, parts, runtime, folder, said):
    """Return what differs; an empty text if nothing does."""
    draw = random.Random(f'{seed}:{number}')
    source = program(draw)
    examples, samples = trees_of(draw, 12), trees_of(draw, 4)
    net, eager = made_of(number, source, parts), made_of(number, source, parts)
    try:
        edb.export(net, examples, folder / 'bundle')
    except edb.BundleError as error:
        said['refused: ' + str(error).rpartition(': ')[2][:60]] += 1
        return ''
    except Exception as error:  # of the model's code
        said[f'raises {type(error).__name__} {error}'[:60]] += 1
        return ''
    # The state of the model that was written is that after the samples of the export.
    for sample in examples:
        outcomes(eager, [deepcopy(sample)])
    try:
        model = runtime.load(folder / 'bundle')
    except runtime.BundleError as error:
        return str(error)
    said['waits' if model._model.generators else 'does not wait'] += 1
    wanted, error = outcomes(eager, deepcopy(samples))
    try:
        found, other = list(map(json_of, model(samples))), ''
    except Exception as raised:
        found, other = wanted, f'{type(raised).__name__}: {raised}'
    if error or other:
        return '' if error == other else f'{error!r} and {other!r}'
    return '' if are_close(found, wanted) else f'{wanted} and {found}'


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--cases', type=int, default=300)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--only', help='one model, as SEED:NUMBER')
    options = parser.parse_args(arguments)
    seed, numbers = options.seed, range(options.cases)
    if options.only:
        seed, number = map(int, options.only.split(':'))
        numbers = [number]
    said, wrong, parts = Counter(), 0, blocks()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)  # of NumPy's numbers divided by 0
        for number in numbers:
            difference = compare(seed, number, parts, runtime, Path(folder), said)
            if difference:
                wrong += 1
                source = program(random.Random(f'{seed}:{number}'))
                print(f'{seed}:{number} differs: {difference}\n{source.partition(HEAD)[2]}')
    print(f'{len(numbers)} models of seed {seed}: {wrong} differ; {dict(said)}')
    return int(wrong > 0)


if __name__ == '__main__':
    np.random.seed(0)
    sys.exit(main())
