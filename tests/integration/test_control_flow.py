"""Blocks with MXNet's control flow: results and errors do not depend on what happened before."""

import random
from contextlib import nullcontext
from typing import Any, Callable

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from tests.support.cases import in_one_test
from tests.support.control_flow import WIDTH, ByName, net
from tests.support.models import ndarrays, started
from tests.support.tiers import sampled

# Random blocks have layers that they do not call.
pytestmark = pytest.mark.filterwarnings('ignore:Parameter .* is not used by any computation')
Results = list[np.ndarray]


class Outer(gluon.HybridBlock):
    """Hands its argument on to a child."""

    def __init__(self, child: gluon.HybridBlock):
        super().__init__()
        self.child = child

    def hybrid_forward(self, F, x):
        """Gives what the child does."""
        return self.child(x)


def eagerly(block: gluon.Block, xs: list[Any]) -> list[Any]:
    """Call a block for each array outside of a scope."""
    return [block(x) for x in xs]


def in_scope(block: gluon.Block, xs: list[Any]) -> list[Any]:
    """Call a block for each array in a scope."""
    with edb.batching():
        values = [block(x) for x in xs]
    return edb.forward(values)


def hybridized(run: Callable) -> Callable:
    """Run with a block that is hybridized meanwhile."""

    def inner(block: gluon.HybridBlock, xs: list[Any]) -> None:
        block.hybridize()
        run(block, xs)
        block.hybridize(False)

    return inner


def ignoring_errors(run: Callable) -> Callable:
    """Run what MXNet may refuse, as some graphs of its own control flow."""

    def inner(block: gluon.HybridBlock, xs: list[Any]) -> None:
        try:
            run(block, xs)
        except Exception:
            block.hybridize(False)

    return inner


BEFORE: dict[str, Callable] = {
    'nothing': lambda block, xs: None,
    'eagerly': eagerly,
    'eagerly, hybridized': ignoring_errors(hybridized(eagerly)),
    'in a scope': in_scope,
    'in a scope, hybridized': hybridized(in_scope),
    'inside a block': lambda block, xs: in_scope(Outer(block), xs),
    'with a Symbol': ignoring_errors(lambda block, xs: block(mx.sym.var('x'))),
}


def results(block: gluon.Block, run: Callable, training: bool) -> Results:
    """Outputs, and gradients of arguments and parameters if training."""
    xs = ndarrays(4, (1, WIDTH), gradient=True)
    with autograd.record() if training else nullcontext():
        outputs = run(block, xs)
        total = sum([(output * output).sum() for output in outputs])
    arrays = list(outputs)
    if training:
        total.backward()
        arrays += [x.grad for x in xs]
        parameters = sorted(block.collect_params().items())
        arrays += [each.grad() for _, each in parameters if each._grad is not None]
    return [array.asnumpy() for array in arrays]


def check(seed: int) -> None:
    """Compare a random block in a scope, after each of `BEFORE`, with eager Gluon."""
    drawn = random.Random(seed)
    for training in (False, True):
        expected = results(net(seed), eagerly, training)
        for before, run in BEFORE.items():
            block = net(seed)
            run(block, ndarrays(4, (1, WIDTH)))
            block.hybridize(drawn.random() < 0.5)
            found = results(block, in_scope, training)
            assert len(found) == len(expected), before
            for mine, wanted in zip(found, expected):
                scale = max(1.0, np.abs(wanted).max())
                np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-5 * scale, err_msg=before)


@pytest.mark.parametrize('seed', sampled(2, [0, 3, 6, 9, 11]))
def test_random_blocks_equal_eager_whatever_was_called_before(seed):
    check(seed)


@pytest.mark.slow
def test_many_random_blocks_equal_eager_whatever_was_called_before():
    for seed in range(100, 180):
        check(seed)


class Written(gluon.HybridBlock):
    """Runs a function of the block, F and x."""

    def __init__(self, function: Callable):
        super().__init__(prefix='written_')
        self.function = function
        with self.name_scope():
            self.dense = nn.Dense(WIDTH, in_units=WIDTH)
            self.norm = nn.BatchNorm(in_channels=WIDTH)

    def hybrid_forward(self, F, x):
        """Gives what the function does."""
        return self.function(self, F, x)


def loop(F: Any, x: Any, body: Callable) -> Any:
    """Apply a function twice, by foreach."""
    return F.contrib.foreach(
        lambda step, states: (step, [body(states[0] + step)]),
        F.concat(x, x * 0.1, dim=0).expand_dims(axis=1),
        [x],
    )[1][0]


def branch(F: Any, x: Any, one: Callable, other: Callable) -> Any:
    """Apply one function or the other, by cond."""
    return F.contrib.cond(F.sum(x) > 0, lambda: one(x), lambda: other(x))


REFUSED: dict[str, Any] = {
    'shapes that do not fit in a loop': (
        lambda self, F, x: loop(F, x, lambda y: F.broadcast_add(y, F.ones((1, 3)))),
        edb.RecordError,
        'does not accept',
    ),
    'shapes that do not fit in a branch': (
        lambda self, F, x: branch(F, x * x, lambda y: F.broadcast_add(y, F.ones((1, 3))), F.tanh),
        edb.RecordError,
        'does not accept',
    ),
    'an error in a branch that is taken': (
        lambda self, F, x: branch(F, x * x, lambda y: 1 / 0, self.dense),
        ZeroDivisionError,
        'division by zero',
    ),
    'random numbers of Python in a loop': (
        lambda self, F, x: loop(F, x, lambda y: y * random.random()),
        edb.RecordError,
        'builds another graph each time',
    ),
    'statistics of a batch in a loop': (
        lambda self, F, x: loop(F, x, self.norm),
        edb.RowDependenceError,
        'BatchNorm',
    ),
}


@in_one_test('before', BEFORE)
@in_one_test('name', REFUSED)
def test_errors_do_not_depend_on_what_was_called_before(name, before):
    function, kind, message = REFUSED[name]
    block = Written(function)
    block.initialize(ByName())
    ignoring_errors(BEFORE[before])(block, ndarrays(4, (1, WIDTH)))
    with pytest.raises(kind, match=message):
        results(block, in_scope, True)


def test_an_error_in_a_branch_that_is_not_taken():
    block = started(Written(lambda self, F, x: branch(F, x * x, self.dense, lambda y: 1 / 0)))
    found, expected = (results(block, run, True) for run in (in_scope, eagerly))
    for mine, wanted in zip(found, expected):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_tracing_leaves_variables_of_parameters_alone():
    """MXNet would build other graphs with them later."""
    block = started(Written(lambda self, F, x: loop(F, x, self.dense)))
    before = [parameter._var for parameter in block.collect_params().values()]
    in_scope(block, ndarrays(4, (1, WIDTH)))
    assert [parameter._var for parameter in block.collect_params().values()] == before


@pytest.mark.filterwarnings('ignore:Cannot decide type')
def test_an_imported_graph_with_a_branch_runs_eagerly(tmp_path):
    """An imported graph has no Python code whose operators could be called one by one."""
    block = started(Written(lambda self, F, x: branch(F, x, self.dense, F.tanh)))
    block.hybridize()
    block(*ndarrays(1, (1, WIDTH)))
    block.export(str(tmp_path / 'net'))
    imported = gluon.SymbolBlock.imports(
        str(tmp_path / 'net-symbol.json'), ['data'], str(tmp_path / 'net-0000.params')
    )
    # (MXNet 1.9.1 leaves gradients undefined that a branch which is not taken would give.)
    found, expected = (results(imported, run, False) for run in (in_scope, eagerly))
    for mine, wanted in zip(found, expected):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)
