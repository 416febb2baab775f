"""Random programs and random schedulers.

A program is a list of steps over a growing list of values. Steps are calls of a few blocks, made
once so that their types compile once, arithmetic, ragged sums, several rows and results, and forced
evaluations. Every value may be used any number of times, or never.
"""

from typing import Any, Callable, NamedTuple

import mxnet as mx
import numpy as np
from hypothesis import strategies as st
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import check_schedule
from gluon_edbatch_core.schedule import Frontier, Schedule
from tests.support.models import started

WIDTH = 3


class RandomScheduler:
    """Take the ready nodes of a random type; half of the time, only some of them."""

    name = 'random'

    def __init__(self, seed: int, partial: bool = True):
        self.seed, self.partial = seed, partial

    def schedule(self, graph) -> Schedule:
        """Return batches that respect dependencies."""
        generator = np.random.RandomState(self.seed)
        if not self.partial:
            frontier, batches = Frontier(graph), []
            while frontier.counts:
                kinds = sorted(frontier.counts)
                batches.append(frontier.take(kinds[generator.randint(len(kinds))]))
            schedule = Schedule.from_batches(batches)
        else:
            schedule = Schedule.from_batches(self._partial_batches(graph, generator))
        check_schedule(schedule, graph)
        return schedule

    @staticmethod
    def _partial_batches(graph, generator) -> list[np.ndarray]:
        waits = np.diff(graph.offsets).tolist()
        readers: list[list[int]] = [[] for _ in waits]
        for reader, producer in zip(graph.readers.tolist(), graph.inputs.tolist()):
            readers[producer].append(reader)
        ready = [node for node, count in enumerate(waits) if not count]
        batches = []
        while ready:
            kinds = sorted({int(graph.types[node]) for node in ready})
            kind = kinds[generator.randint(len(kinds))]
            nodes = [node for node in ready if graph.types[node] == kind]
            if graph.alone[kind] or generator.randint(2):
                size = 1 if graph.alone[kind] else generator.randint(1, len(nodes) + 1)
                nodes = [nodes[i] for i in generator.permutation(len(nodes))[:size]]
            batches.append(np.array(sorted(nodes)))
            ready = [node for node in ready if node not in nodes]
            for node in nodes:
                for reader in readers[node]:
                    waits[reader] -= 1
                    if not waits[reader]:
                        ready.append(reader)
        return batches


class Pair(gluon.HybridBlock):
    """Map two values to two values, with parameters."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.left = nn.Dense(WIDTH, in_units=WIDTH, use_bias=False)

    def hybrid_forward(self, F, x, y):
        """Return two values from x and y, (N, WIDTH) each."""
        return F.Activation(self.left(x) + y, act_type='tanh'), x * F.Activation(
            y, act_type='sigmoid'
        )


class Attend(gluon.HybridBlock):
    """Attend from x to any number of values, zero included."""

    def hybrid_forward(self, F, x, values):
        """Attend from x (N, WIDTH) to values (N, K, WIDTH)."""
        return F.Activation(
            x + F.sum(F.broadcast_mul(values, F.expand_dims(x, axis=1)), axis=1), act_type='tanh'
        )


class Mixing(gluon.HybridBlock):
    """Mix all rows, so that calls must run one by one."""

    def hybrid_forward(self, F, x):
        """Mix the rows of (N, WIDTH)."""
        return F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True)) + x


DENSE = started(nn.Dense(WIDTH, in_units=WIDTH, activation='tanh'), seed=1, dtype='float64')
PAIR = started(Pair(), seed=2, dtype='float64')
ATTEND, MIXING = Attend(), Mixing()
EMBED = started(nn.Embedding(5, WIDTH), seed=3, dtype='float64')
BLOCKS = [DENSE, PAIR, EMBED]
RAGGED = 'ragged'


def tanh(x):
    """Return NumPy's tanh."""
    return np.tanh(x)


def weight(parameter) -> np.ndarray:
    """Return a parameter as a NumPy array."""
    return parameter.data().asnumpy()


class Op(NamedTuple):
    """A step: how many values it takes, and how to compute it lazily and with NumPy."""

    arity: int
    lazy: Callable
    plain: Callable


OPS: dict[str, Op] = {
    'dense': Op(
        1, lambda x: [DENSE(x)], lambda x: [tanh(x @ weight(DENSE.weight).T + weight(DENSE.bias))]
    ),
    'pair': Op(
        2,
        lambda x, y: list(PAIR(x, y)),
        lambda x, y: [tanh(x @ weight(PAIR.left.weight).T + y), x / (1 + np.exp(-y))],
    ),
    'add': Op(2, lambda x, y: [x + y], lambda x, y: [x + y]),
    'scale': Op(1, lambda x: [x * 0.5 - 0.25], lambda x: [x * 0.5 - 0.25]),
    'square': Op(1, lambda x: [mx.nd.tanh(x**2)], lambda x: [tanh(x**2)]),
    'split': Op(
        1, lambda x: [mx.nd.concat(*x.split(3, axis=1)[::-1], dim=1)], lambda x: [x[:, ::-1]]
    ),
    'softmax': Op(
        1,
        lambda x: [mx.nd.softmax(x, axis=-1)],
        lambda x: [np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)],
    ),
    'mixing': Op(1, lambda x: [MIXING(x)], lambda x: [2 * x - x.mean(axis=0, keepdims=True)]),
    'norm': Op(
        1,
        lambda x: [mx.nd.broadcast_div(x, 1 + x.sum(axis=1, keepdims=True) ** 2)],
        lambda x: [x / (1 + x.sum(axis=1, keepdims=True) ** 2)],
    ),
    'detach': Op(1, lambda x: [x.detach()], lambda x: [x]),
    RAGGED: Op(
        -1,
        lambda x, values: [ATTEND(x, edb.ragged(values, shape=x.shape, dtype='float64'))],
        lambda x, values: [tanh(x + sum([x * value for value in values], 0))],
    ),
    'add_n': Op(
        -1, lambda x, values: [edb.add_n([x] + values)], lambda x, values: [sum(values, x)]
    ),
}


class Step(NamedTuple):
    """An operator and the positions, counted from the end, of what it reads."""

    op: str
    sources: tuple[int, ...]
    read: bool  # whether user code looks at the result at once


class Program(NamedTuple):
    """One sample: rows of its values, its first values' seed, and its steps."""

    rows: int
    seed: int
    steps: tuple[Step, ...]


SHAPES = {
    'any': st.lists(st.integers(1, 9), min_size=1, max_size=4),  # a DAG
    'chain': st.just([1, 1]),
    'fan': st.lists(st.integers(20, 40), min_size=1, max_size=4),  # all read the first values
}


@st.composite
def programs(draw, reads: bool = False) -> Program:
    """Draw a random program with up to ten steps."""
    shape = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    steps = [
        Step(
            draw(st.sampled_from(sorted(OPS))),
            tuple(draw(shape)),
            reads and draw(st.integers(0, 9)) == 0,
        )
        for _ in range(draw(st.integers(0, 10)))
    ]
    return Program(draw(st.integers(1, 3)), draw(st.integers(0, 99)), tuple(steps))


def run(program: Program, lazy: bool, given: list[Any]) -> list[Any]:
    """Return all values of a program. Steps read existing values, counted back from the newest."""
    values = list(given)
    for step in program.steps:
        op = OPS[step.op]
        chosen = [values[max(len(values) - back, 0)] for back in step.sources]
        if op.arity < 0:
            arguments: tuple[Any, ...] = (chosen[0], chosen[1:])
        else:
            arguments = tuple((chosen * 2)[: op.arity])
        results = (op.lazy if lazy else op.plain)(*arguments)
        if step.read:
            results[0].asnumpy() if lazy else None
        values += results
    return values


def inputs_of(program: Program) -> list[np.ndarray]:
    """Return two arrays that a program starts from."""
    generator = np.random.RandomState(program.seed)
    return [generator.uniform(-1, 1, (program.rows, WIDTH)) for _ in range(2)]


def as_ndarrays(program: Program) -> list[mx.nd.NDArray]:
    """Return two NDArrays with gradients that a program starts from."""
    made = [mx.nd.array(array, dtype='float64') for array in inputs_of(program)]
    for array in made:
        array.attach_grad()
    return made


schedulers = st.one_of(
    st.sampled_from(['depth', 'agenda', 'agenda-remaining', 'unbatched']),
    st.builds(RandomScheduler, st.integers(0, 999), st.booleans()),
)
