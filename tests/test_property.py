"""Random programs under random schedulers against plain NumPy and eager Gluon.

A program is a list of steps over a growing list of values: calls of a few blocks, made once so
that their types compile once, arithmetic, ragged sums, several rows and results, reads in the
middle. Every value may be used any number of times, or never.
"""
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import mxnet as mx
import numpy as np
from hypothesis import given, settings, strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.schedule import Frontier, Schedule
from gluon_edbatch.testing import check_schedule
from models import started

WIDTH = 3


class RandomScheduler:
    """Takes the ready nodes of a random type; half of the time, only some of them."""

    name = 'random'

    def __init__(self, seed: int, partial: bool = True):
        self.seed, self.partial = seed, partial

    def schedule(self, graph) -> Schedule:
        """Batches that respect dependencies."""
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
    def _partial_batches(graph, generator) -> List[np.ndarray]:
        waits = np.diff(graph.offsets).tolist()
        readers: List[List[int]] = [[] for _ in waits]
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
    """Two values in, two out, with parameters."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.left = nn.Dense(WIDTH, in_units=WIDTH, use_bias=False)

    def hybrid_forward(self, F, x, y):
        """Both (N, WIDTH)."""
        return F.Activation(self.left(x) + y, act_type='tanh'), x * F.Activation(
            y, act_type='sigmoid')


class Attend(gluon.HybridBlock):
    """x and any number of values, none included."""

    def hybrid_forward(self, F, x, values):
        """x (N, WIDTH), values (N, K, WIDTH)"""
        return F.Activation(x + F.sum(F.broadcast_mul(values, F.expand_dims(x, axis=1)), axis=1),
                            act_type='tanh')


class Mixing(gluon.HybridBlock):
    """Looks over all rows: must run one by one."""

    def hybrid_forward(self, F, x):
        """(N, WIDTH)"""
        return F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True)) + x


DENSE = started(nn.Dense(WIDTH, in_units=WIDTH, activation='tanh'), seed=1, dtype='float64')
PAIR = started(Pair(), seed=2, dtype='float64')
ATTEND, MIXING = Attend(), Mixing()
EMBED = started(nn.Embedding(5, WIDTH), seed=3, dtype='float64')
BLOCKS = [DENSE, PAIR, EMBED]
RAGGED = 'ragged'


def tanh(x):
    """NumPy's, for short."""
    return np.tanh(x)


def weight(parameter) -> np.ndarray:
    """A parameter as NumPy array."""
    return parameter.data().asnumpy()


class Op(NamedTuple):
    """A step: how many values it takes, and how to compute it lazily and with NumPy."""

    arity: int
    lazy: Callable
    plain: Callable


OPS: Dict[str, Op] = {
    'dense': Op(1, lambda x: [DENSE(x)],
                lambda x: [tanh(x @ weight(DENSE.weight).T + weight(DENSE.bias))]),
    'pair': Op(2, lambda x, y: list(PAIR(x, y)),
               lambda x, y: [tanh(x @ weight(PAIR.left.weight).T + y), x / (1 + np.exp(-y))]),
    'add': Op(2, lambda x, y: [x + y], lambda x, y: [x + y]),
    'scale': Op(1, lambda x: [x * 0.5 - 0.25], lambda x: [x * 0.5 - 0.25]),
    'square': Op(1, lambda x: [mx.nd.tanh(x ** 2)], lambda x: [tanh(x ** 2)]),
    'split': Op(1, lambda x: [mx.nd.concat(*x.split(3, axis=1)[::-1], dim=1)],
                lambda x: [x[:, ::-1]]),
    'softmax': Op(1, lambda x: [mx.nd.softmax(x, axis=-1)],
                  lambda x: [np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)]),
    'mixing': Op(1, lambda x: [MIXING(x)], lambda x: [2 * x - x.mean(axis=0, keepdims=True)]),
    'norm': Op(1, lambda x: [mx.nd.broadcast_div(x, 1 + x.sum(axis=1, keepdims=True) ** 2)],
               lambda x: [x / (1 + x.sum(axis=1, keepdims=True) ** 2)]),
    'detach': Op(1, lambda x: [x.detach()], lambda x: [x]),
    RAGGED: Op(-1, lambda x, values: [ATTEND(x, edb.ragged(values, shape=x.shape,
                                                           dtype='float64'))],
               lambda x, values: [tanh(x + sum([x * value for value in values], 0))]),
    'add_n': Op(-1, lambda x, values: [edb.add_n([x] + values)],
                lambda x, values: [sum(values, x)]),
}


class Step(NamedTuple):
    """An operator and the positions, counted from the end, of what it reads."""

    op: str
    sources: Tuple[int, ...]
    read: bool  # whether user code looks at the result at once


class Program(NamedTuple):
    """One sample: rows of its values, its first values' seed, and its steps."""

    rows: int
    seed: int
    steps: Tuple[Step, ...]


SHAPES = {
    'any': st.lists(st.integers(1, 9), min_size=1, max_size=4),   # a DAG
    'chain': st.just([1, 1]),
    'fan': st.lists(st.integers(20, 40), min_size=1, max_size=4),  # all read the first values
}


@st.composite
def programs(draw, reads: bool = False) -> Program:
    """A random program with up to ten steps."""
    shape = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    steps = [Step(draw(st.sampled_from(sorted(OPS))), tuple(draw(shape)),
                  reads and draw(st.integers(0, 9)) == 0)
             for _ in range(draw(st.integers(0, 10)))]
    return Program(draw(st.integers(1, 3)), draw(st.integers(0, 99)), tuple(steps))


def run(program: Program, lazy: bool, given: List[Any]) -> List[Any]:
    """All values of a program. Steps read values that exist, counted back from the newest."""
    values = list(given)
    for step in program.steps:
        op = OPS[step.op]
        chosen = [values[max(len(values) - back, 0)] for back in step.sources]
        if op.arity < 0:
            arguments: Tuple[Any, ...] = (chosen[0], chosen[1:])
        else:
            arguments = tuple((chosen * 2)[:op.arity])
        results = (op.lazy if lazy else op.plain)(*arguments)
        if step.read:
            results[0].asnumpy() if lazy else None  # pylint: disable=expression-not-assigned
        values += results
    return values


def inputs_of(program: Program) -> List[np.ndarray]:
    """Two arrays that a program starts from."""
    generator = np.random.RandomState(program.seed)
    return [generator.uniform(-1, 1, (program.rows, WIDTH)) for _ in range(2)]


def as_ndarrays(program: Program) -> List[mx.nd.NDArray]:
    """The same as NDArrays with gradients."""
    made = [mx.nd.array(array, dtype='float64') for array in inputs_of(program)]
    for array in made:
        array.attach_grad()
    return made


schedulers = st.one_of(
    st.sampled_from(['depth', 'agenda', 'agenda-remaining', 'unbatched']),
    st.builds(RandomScheduler, st.integers(0, 999), st.booleans()))


def assert_close(found, expected, what):
    """To 1e-10 of the largest magnitude."""
    scale = max(np.abs(expected).max(initial=0), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * scale, err_msg=what)


@settings(max_examples=1500)
@given(st.lists(programs(), max_size=5), schedulers, st.integers(0, 3))
def test_random_programs_give_what_numpy_gives(minibatch, scheduler, skip):
    with edb.batching(scheduler) as scope:
        results = [run(program, True, as_ndarrays(program)) for program in minibatch]
    wanted = [values[skip:] for values in results]  # some values nobody asks for
    found = edb.forward(wanted)
    for program, values in zip(minibatch, found):
        expected = run(program, False, inputs_of(program))[skip:]
        assert len(values) == len(expected)
        for value, right in zip(values, expected):
            assert_close(value.asnumpy(), right, str(program))
    report = scope.report()
    assert report.lower_bound <= report.batches <= report.nodes


@settings(max_examples=400)
@given(st.lists(programs(reads=True), max_size=4), schedulers)
def test_reading_in_the_middle_changes_nothing_and_recomputes_nothing(minibatch, scheduler):
    with edb.batching(scheduler) as scope:
        results = [run(program, True, as_ndarrays(program)) for program in minibatch]
    recorded = len(scope._recording.node_forms)
    found = edb.forward(results)
    for program, values in zip(minibatch, found):
        for value, right in zip(values, run(program, False, inputs_of(program))):
            assert_close(value.asnumpy(), right, str(program))
    assert scope.report().nodes == recorded


def gradients_of(total, given) -> Dict[str, np.ndarray]:
    """Gradients of all parameters and given arrays."""
    named = {parameter.name: parameter.grad() for block in BLOCKS
             for parameter in block.collect_params().values()}
    named.update((str(i), array.grad) for i, array in enumerate(given))
    for array in named.values():
        array[:] = 0
    total.backward()
    return {name: array.asnumpy().copy() for name, array in named.items()}


def weighted(values) -> mx.nd.NDArray:
    """A sum over values in which each counts differently."""
    return mx.nd.add_n(*[(value * (0.5 + i % 7)).sum() for i, value in enumerate(values)])


@settings(max_examples=500)
@given(st.lists(programs(reads=True), min_size=1, max_size=4), schedulers, st.integers(0, 1))
def test_random_programs_have_the_gradients_of_eager_gluon(minibatch, scheduler, skip):
    given_arrays = [as_ndarrays(program) for program in minibatch]
    flat = [array for arrays in given_arrays for array in arrays]

    def results():
        return [run(program, True, arrays) for program, arrays in zip(minibatch, given_arrays)]

    with autograd.record():
        with edb.batching(scheduler):
            lazy = results()
        total = weighted([v for values in edb.forward(lazy) for v in values[skip:]])
    found = gradients_of(total, flat)
    with autograd.record():
        total = weighted([v for values in results() for v in values[skip:]])
    expected = gradients_of(total, flat)
    for name, right in expected.items():
        assert_close(found[name], right, f'gradient of {name} in {minibatch}')


class Node(NamedTuple):
    """A node of a random tree; `twin` repeats its state further up (then it is a DAG)."""

    token: int
    children: Tuple['Node', ...]
    twin: bool


NODES = st.recursive(
    st.builds(Node, st.integers(0, 4), st.just(()), st.booleans()),
    lambda nodes: st.builds(Node, st.integers(0, 4), st.lists(nodes, max_size=4).map(tuple),
                            st.booleans()), max_leaves=8)


def tree_states(node: Node, lazy: bool):
    """State of a node; a `twin` gives its state twice to its parent."""
    states = []
    for child in node.children:
        state = tree_states(child, lazy)
        states += [state] * (1 + child.twin)
    if lazy:
        word = EMBED(node.token)
        return OPS[RAGGED].lazy(DENSE(word), states)[0]
    word = weight(EMBED.weight)[[node.token]]
    return OPS[RAGGED].plain(OPS['dense'].plain(word)[0], states)[0]


@settings(max_examples=500)
@given(st.lists(NODES, max_size=5), schedulers)
def test_random_trees(minibatch, scheduler):
    with edb.batching(scheduler) as scope:
        values = [tree_states(node, True) for node in minibatch]
    for value, node in zip(edb.forward(values), minibatch):
        assert_close(value.asnumpy(), tree_states(node, False), str(node))
    assert len(scope.report().types) <= 3


@settings(max_examples=100)
@given(st.lists(NODES, min_size=1, max_size=4), st.integers(0, 999))
def test_any_schedule_gives_the_same_gradients(minibatch, seed):
    found = []
    for scheduler in ('unbatched', 'agenda', RandomScheduler(seed)):
        with autograd.record():
            with edb.batching(scheduler):
                values = [tree_states(node, True) for node in minibatch]
            total = weighted(edb.forward(values))
        found.append(gradients_of(total, []))
    for other in found[1:]:
        for name, right in found[0].items():
            assert_close(other[name], right, name)


def test_no_program_at_all():
    with edb.batching(RandomScheduler(0)) as scope:
        pass
    assert edb.forward([]) == [] and scope.report().nodes == 0
