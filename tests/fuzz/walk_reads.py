#!/usr/bin/env python3
"""Run random plain programs that read values, in `net.batch` and in eager mode.

Results, gradients, exceptions and all effects must be those of eager mode. About half of the
programs have state that samples share. Prints how many programs were suspended, and the source of
each program that differs; the exit status says whether one did.

    python -m tests.fuzz.walk_reads --cases 10000 --seed 1
    python -m tests.fuzz.walk_reads --only 1:37            # one program of a seed
"""

import argparse
import linecache
import random
import re
import sys
import textwrap
import traceback
from collections import Counter

import gluon_edbatch as edb  # isort: skip
import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import nn

SIZE, WORDS, SAMPLES = 3, 5, 4
SUSPENDED, NO_READ, UNKNOWN = 'suspended', 'reads nothing', 'raises'

HEAD = """
import dataclasses, itertools, math, operator, random
from collections import defaultdict, namedtuple
from typing import Any, NamedTuple
import mxnet as mx, numpy as np
import gluon_edbatch as edb
from mxnet import autograd, gluon, nd

LOG, TABLE, SCALES = [], {}, [0.5, 1.0, 1.5]
TOTAL = 0

class Pair(NamedTuple):
    left: Any
    right: Any = None

@dataclasses.dataclass
class Data:
    first: Any
    items: list = dataclasses.field(default_factory=list)

class Found(Exception):
    pass

class Base(gluon.Block):
    total = 0
    @classmethod
    def adds(cls, n):
        Base.total += n
        return Base.total
    @staticmethod
    def static(n):
        return n + 1
    def above(self, h, n):
        return h * 0.5

class Noting(Base):
    def above(self, h, n):
        self.log.append(n)
        return h

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

class Counting:
    def __init__(self):
        self.calls = 0
    def __call__(self, n):
        self.calls += 1
        return n + 1
    def __getitem__(self, n):
        self.calls += n
        return self.calls
    @property
    def seen(self):
        self.calls += 1
        return self.calls

def helper(h, n, xs):
    xs.append(n)
    return h * 0.5 if n % 2 else h

def keeps(n, seen=[]):
    seen.append(n)
    return len(seen)

def outer(h):
    total = []
    def inner(n):
        total.append(n)
        return sum(total)
    return inner

def logs(n):
    LOG.append(n)
    return n

def passes_on(xs, n):
    xs.append(n)
    return xs

class Net(edb.AutoBatchMixin, NOTING):
    def above(self, h, n):
        return super().above(h, n)

    def __init__(self, embed, cell, score, scores):
        super().__init__(prefix='net_')
        self.embed, self.cell, self.score, self.scores = embed, cell, score, scores
        self.cells = [cell, cell]
        self.layers, self.inner = gluon.nn.Sequential(), gluon.nn.Sequential()
        self.layers.add(cell, cell)
        self.inner.add(self.layers, self.layers)
        self.count, self.memo, self.h, self.log, self.limit = 0, {}, None, [], 3
        self.box, self.counting, self.ids = Box(None), Counting(), itertools.count()
        self.weights, self.kept = np.ones(3), [[1], [2]]
        self.defaults, self.pair = defaultdict(list), Pair(self.log, 1)

    def state(self):
        return (self.count, sorted(self.memo), self.log, self.box.n, self.box.items,
                self.counting.calls, next(self.ids), self.weights.tolist(), self.kept, LOG,
                sorted(TABLE), TOTAL, Box.made, random.random(), np.random.rand(),
                keeps.__defaults__, getattr(helper, 'calls', 0), dict(self.defaults), Base.total,
                self.limit, getattr(Net.forward, 'tag', 0))

    def value(self, h):
        return float(self.score(h).asscalar())

    def best(self, h):
        return int(self.scores(h).argmax(axis=1).asscalar())

    def below(self, tree):
        h = self.cell(self.embed(tree.word))
        for child in tree.children:
            h = h + self.below(child)
        return h

    def walk(self, tree, depth):
        h = self.cell(self.embed(tree.word))
        if depth and self.value(h) > 0:
            for child in tree.children:
                h = self.cell(h + self.walk(child, depth - 1))
        return h
"""

# Statements, of which `{}` is the body of the next ones. What they know: h, n, v, xs, d, box, tree.
FREE = [
    'h = self.cell(h)',
    'h = self.layers[n % 2](h)',
    'for one, two in zip(self.layers, self.inner): h = two[n % 2](one(h))',
    'h = self.cell(h + self.embed(n % 5))',
    'h = self.cells[n % 2](h)',
    'h = nd.tanh(h * SCALES[n % 3])',
    'n = self.best(h)',
    'v = self.value(h)',
    'v = self.score(h).asnumpy()[0, 0]',
    'n += self.best(h + n)',
    'xs.append(h)',
    'h = edb.add_n(xs) if xs else h',
    'd[n] = v',
    'v = d.get(n, v)',
    'box.add(n)',
    'box = Box(h, n)',
    'n = int(box.half) + len(box)',
    'h = helper(h, n, found)',
    'f = outer(h); n = f(n) + f(1)',
    'h = self.below(tree)',
    'h = self.walk(tree, 2)',
    'vs = [self.score(each).asscalar() for each in xs]; v = max(vs, default=v)',
    'xs = sorted(xs, key=lambda each: float(self.score(each).asscalar()))',
    'v = sum(float(self.score(each).asscalar()) for each in xs)',
    'g = lambda h: self.value(h) + n; v = g(h)',
    'v = math.tanh(v) + min(n, 2)',
    'a = np.zeros(3); a[n % 3] = v; v = float(a.sum())',
    'n, m = divmod(n, 2); n += m',
    'words = list(map(self.embed, range(n % 3 + 1))); h = h + words[-1]',
    'h = h + self.embed(tree.word)',
    'h = h * 1.25',
    'h = nd.broadcast_add(h, nd.array([[v]]))',
    'h = nd.broadcast_mul(h, nd.ones((1, 1))) + nd.zeros((1, 1))',
    "n = getattr(tree, 'word', 0) + hasattr(tree, 'nothing')",
    'p = Pair(h, n); h, n = p; n = p.right + 1',
    'p = Pair(*[xs, n]); p.left.append(h)',
    'e = Data(n); e.items.append(n); n = len(e.items)',
    'n = self.static(n)',
    'first, *rest = [n, 2, 3]; n = sum(rest)',
    'def gen():\n    yield from (n, 1)\nn = sum(gen())',
    'h = {"a": h}.get("a")',
    'x = [[]] * 2; x[0].append(n); n = len(x[1])',
    'z = h.asnumpy(); z[0] = 0; v = float(z.sum())',
    'vs = list(map(self.value, [h])); v = vs[0]',
    'self_best = self.best; n = self_best(h)',
    'h = max([h, self.cell(h)], key=self.value)',
    'n = len(tree.children)',
    'for child in tree.children:\n    {}',
    'if v > 0.1:\n    {}',
    'if self.score(h).sum() > 0:\n    {}\nelse:\n    {}',
    'for i in range(2):\n    {}',
    'AT = 0\nwhile AT < 3 and self.value(h) > -0.2:\n    AT += 1\n    h = self.cell(h)\n    {}',
    'try:\n    {}\n    if v > 0.6: raise KeyError(n)\nexcept KeyError as e:\n    n = e.args[0]',
]
READS = ['n = self.best(h)', 'v = self.value(h)', 'h = self.walk(tree, 2)']
FAILING = ['if self.value(h) > 0.3: raise ValueError("at %d" % n)', 'v = 1 / (n - 1)']
OF_SAMPLES = [
    'tree.state = h',
    'tree.visits += 1',
    'tree.marks.append(n)',
    'n += tree.visits',
    'tree.best = box',
    'tree.children and tree.children[0].marks.append(n)',
]
SHARED = [
    'get = operator.itemgetter(0); get(self.kept).append(n)',
    'np.add(self.weights, 1.0, self.weights); v = float(self.weights[0])',
    'self.defaults[n].append(1)',
    'n = len(self.defaults[n]) + len(self.defaults)',
    'p = Pair(*[self.log, n]); p.left.append(n)',
    'p = Pair(self.log, n)._replace(right=n); p.left.append(n)',
    'self.pair.left.append(n)',
    'e = Data(self.log); e.first.append(n)',
    'e = Data(n, self.log); e.items.append(n)',
    'n = self.adds(n)',
    'h = self.above(h, n)',
    'for each in map(lambda m: self.log.append(m), [n]): pass',
    'exec("self.count += 1")',
    'self.__dict__["count"] += 1',
    'object.__setattr__(self, "count", self.count + 1)',
    'Net.forward.tag = n',
    'try: raise Found(self.log)\nexcept Found as e: e.args[0].append(n)',
    'g = (each for each in [self.log]); next(g).append(n)',
    'def gen():\n    yield self.log\nfor each in gen(): each.append(n)',
    'x = [self.log] * 2; x[0].append(n)',
    'x = {0: self.log}.get(0); x.append(n)',
    'x = sorted([self.kept[0]], key=len)[0]; x.append(n)',
    'x = max([self.kept[0]], key=len); x.append(n)',
    'x = dict(zip("a", [self.log]))["a"]; x.append(n)',
    '(lambda q: q.append(n))(self.log)',
    'x = self.log if v else None; x is not None and x.append(n)',
    'x = [*self.kept]; x[0].append(n)',
    'first, *rest = self.kept; rest[0].append(n)',
    'b = Box(h); b.items = self.log; b.add(n)',
    'tree.marks = self.log; tree.marks.append(n)',
    'x = list(itertools.chain([self.log]))[0]; x.append(n)',
    'x = (v and 0.0) or self.log; x.append(n)',
    'x = [self.log][:1][0]; x.append(n)',
    'x = (each := self.log); each.append(n)',
    'x = list(self.kept)[0]; x.append(n)',
    'while True:\n    self.log.append(n)\n    break',
    'passes_on(xs=self.log, n=n)',
    'passes_on(*[self.log, n])',
    'passes_on(**dict(xs=self.log, n=n))',
    'assert self.log.append(n) is None',
    'print(end="", file=None if self.log.append(n) else None)',
    'n = {True: self.adds}[True](1)',
    'n = [self.adds, self.static][0](1)',
    'n = (self.adds if n else self.static)(1)',
    'f = self.counting; n = f(n)',
    'n = min([2], key=self.adds)',
    'del self.log[:1]',
    'f"{self.log.append(n)}"',
    'self.log[len(self.log):] = [n]',
    'x = self.kept; x[0], x[1] = x[1], x[0]',
    'for self.limit in (n, n + 1): pass',
    '[self.log.append(i) for i in range(2)]',
    'lst = self.log; lst += [n]',
    'w = self.weights[1:]; w[0] = n',
    'w = self.weights.reshape(3, 1); w[0] = n',
    'w = np.asarray(self.weights); w[0] = n',
    'self.count += 1',
    'n = self.count',
    'self.count += 1; n += self.count % 2',
    'self.memo[n] = v',
    'v = self.memo.setdefault(n, v)',
    'if n in self.memo: v = self.memo[n]\nelse: self.memo[n] = v',
    'self.h = h',
    'h = h if self.h is None else h + self.h; self.h = h',
    'self.log.append(n)',
    'log = self.log; log.append(n)',
    'passes_on(self.log, n)',
    'passes_on(self.kept[n % 2], n)',
    'kept = [each for each in self.kept]; kept[0].append(n)',
    'k = dict(a=self.log); k["a"].append(n)',
    'b = Box(self.log); b.h.append(n)',
    'for each in zip(self.kept, [1]): each[0].append(n)',
    'x, = [self.log]; x += [n]',
    'LOG.append(n)',
    'logs(n)',
    'list(map(logs, [n]))',
    'xs = sorted(xs, key=lambda each: logs(n))',
    'TABLE[n] = v; n = len(TABLE)',
    'global TOTAL\nTOTAL += 1; n += TOTAL % 3',
    'n = keeps(n)',
    'Box.made += 1; n = Box.made',
    'self.box.add(n); n = self.box.n % 4',
    'b = self.box; b.n += 1; n = b.n',
    'n = self.counting(n)',
    'n = self.counting[1]',
    'n = self.counting.seen',
    'n = next(self.ids)',
    'n = [i for i, _ in zip(self.ids, [1])][0]',
    'n = random.randint(0, 3)',
    'h = h if random.random() < 0.5 else self.cell(h)',
    'v = v + np.random.rand()',
    'helper.calls = getattr(helper, "calls", 0) + 1',
    'self.weights[n % 3] += 1; v = float(self.weights[0])',
    'w = self.weights; w *= 2; v = float(w[0])',
    'setattr(self, "count", self.count + 1)',
    'vars(self)["log"].append(n)',
    'with autograd.pause():\n    LOG.append(n)',
    'getattr(self, "log").append(n)',
    'from functools import partial; partial(self.log.append, n)()',
    'self.log.insert(0, n); n = self.log[-1]',
    'LOG.extend([n]); n = LOG[0]',
    'x = (self.log, n)[0]; x.append(n)',
    'x = self.log if n else found; x.append(n)',
    'def inner():\n    self.count += 1\n    return self.count\nn = inner()',
]


class Tree:
    """A sample."""

    def __init__(self, word, children):
        self.word, self.children = word, children
        self.visits, self.marks, self.state, self.best = 0, [], None, None


def trees_of(draw, shared):
    """Return samples; some have subtrees in common, or are the same, if `shared`."""

    def tree(depth):
        below = [tree(depth - 1) for _ in range(draw.randrange(3))] if depth else []
        return Tree(draw.randrange(WORDS), below)

    trees = [tree(2) for _ in range(SAMPLES)]
    if shared:
        trees[2].children.append(trees[0].children[0] if trees[0].children else trees[0])
    return trees


def program(draw):
    """Return the source of a program, and whether samples share objects."""
    shared = draw.random() < 0.5
    kinds = [FREE] * 8 + [FAILING] * (draw.random() < 0.3)
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
        if not depth:  # each program reads
            lines.insert(draw.randint(0, len(lines)), draw.choice(READS))
            if shared:
                lines.insert(draw.randint(0, len(lines)), draw.choice(SHARED))
        return '\n'.join(lines)

    base = 'Noting' if shared and draw.random() < 0.3 else 'Base'
    return source_of(block(0), base), draw.random() < 0.3


def source_of(body, base='Base'):
    """Return the source of a program with these statements."""
    if 'global TOTAL' in body:
        body = 'global TOTAL\n' + body.replace('global TOTAL', 'pass')
    start = (
        'h, n, v, xs, d, box, found = '
        'self.cell(self.embed(tree.word)), 1, 0.0, [], {}, Box(None), []\n'
    )
    body = textwrap.indent(f'{start}{body}\nreturn h, n, v, found\n', ' ' * 8)
    return f'{HEAD.replace("NOTING", base)}\n    def forward(self, tree):\n{body}'


class Blocks:
    """Layers that all programs call, so that each is traced once."""

    def __init__(self):
        mx.random.seed(5)
        self.all = [
            nn.Embedding(WORDS, SIZE, prefix='embed_'),
            nn.Dense(SIZE, activation='tanh', in_units=SIZE, prefix='cell_'),
            nn.Dense(1, in_units=SIZE, prefix='score_'),
            nn.Dense(3, in_units=SIZE, prefix='scores_'),
        ]
        for block in self.all:
            block.initialize(mx.init.Normal(1))
            for parameter in block.collect_params().values():
                parameter.grad_req = 'add'

    def gradients(self):
        """Return all gradients, and zero them."""
        found = []
        for block in self.all:
            for parameter in block.collect_params().values():
                found.append(parameter.grad().asnumpy())
                parameter.zero_grad()
        return found


def run(number, source, share, blocks, way):
    """Run a program in one of three ways; return all that can be seen of it."""
    name = f'<program {number}>'
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    names = {'__name__': 'program'}
    exec(compile(source, name, 'exec'), names)
    net, trees = names['Net'](*blocks.all), trees_of(random.Random(number), share)
    random.seed(number)
    np.random.seed(number % 2**31)
    error, results, why, stopped = '', [], '', False
    try:
        with autograd.record():
            if way == 'eager':
                results = [net(tree) for tree in trees]
            elif way == 'batch':
                results = net.batch(trees)
            else:
                scope = edb.batching()
                try:
                    with scope:
                        results = edb.run_concurrently(trees, net)
                finally:
                    evaluator = scope._recording.evaluator
                    why = next(iter(evaluator.reasons.values()), '')
                    why = why or (SUSPENDED if evaluator.rounds else UNKNOWN)
                    why = why if evaluator.forced else NO_READ
                results = edb.forward(results)
            loss = sum([h.sum() for h, *_ in results], mx.nd.zeros(1))
        loss.backward()
    except (ValueError, ZeroDivisionError, KeyError, edb.SampleError) as raised:
        cause = raised.__cause__ if isinstance(raised, edb.SampleError) else raised
        error, results = f'{type(cause).__name__}: {cause}', []
        stopped = True
    values = [(h.asnumpy(), n, v, found) for h, n, v, found in results]
    seen = net.state()
    if not stopped:  # later samples than one that raises may have begun
        seen = *seen, [(tree.visits, tree.marks) for tree in trees]
    return (error, seen, values, blocks.gradients()), why


def same(one, other):
    """Return whether nested values are the same within rounding."""
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (float, np.ndarray, np.floating)):
        return np.allclose(one, other, rtol=1e-4, atol=1e-5)
    return one == other


def check(seed, number, blocks):
    """Run a program in all ways. Return what differs, its source, and whether it was suspended."""
    draw = random.Random(f'{seed}:{number}')
    source, share = program(draw)
    runs = {}
    for way in ('eager', 'batch', 'concurrent'):
        try:
            runs[way], in_place = run(number, source, share, blocks, way)
        except Exception:
            return f'{way} failed:\n{traceback.format_exc()}', source, ''
    expected = runs.pop('eager')
    for way, found in runs.items():
        for what, one, other in zip(('error', 'state', 'values', 'gradients'), found, expected):
            if not same(one, other):
                return f'{what} of {way}: {one} and not {other}', source, ''
    return '', source, in_place


def main(argv=None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--cases', type=int, default=1000, help='how many (default: 1000)')
    parser.add_argument('--seed', type=int, default=1, help='which (default: 1)')
    parser.add_argument('--only', metavar='SEED:NUMBER', help='this program only')
    parser.add_argument('--reasons', action='store_true', help='show why programs are not')
    options = parser.parse_args(argv)
    blocks, wrong = Blocks(), 0
    numbers = range(options.cases)
    seed = options.seed
    if options.only:
        seed, number = map(int, options.only.split(':'))
        numbers = [number]
    reasons = Counter()
    for number in numbers:
        why, source, in_place = check(seed, number, blocks)
        reasons[re.sub('.*:[0-9]+ ', '', in_place)] += 1
        if why or options.only:
            wrong += bool(why)
            print(f'--- {seed}:{number}: {why or "equal"}\n{source[source.index("def forward") :]}')
    print(f'{len(numbers)} programs, {reasons.pop(SUSPENDED, 0)} suspended, {wrong} differ')
    for reason, count in reasons.most_common() if options.reasons else ():
        print(f'{count:6d} {reason}')
    return int(wrong > 0)


if __name__ == '__main__':
    sys.exit(main())
