"""Random HybridBlocks with control flow of MXNet's: cond, while_loop and foreach, also nested."""

import random
import zlib
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

WIDTH, CHILDREN = 4, 2
Statement = tuple[Any, ...]


class ByName(mx.init.Initializer):
    """Draw a parameter by its name, so that two nets with equal names are equal."""

    def _init_weight(self, name: str, array: mx.nd.NDArray) -> None:
        drawn = np.random.RandomState(zlib.crc32(name.encode()))
        array[:] = drawn.uniform(-0.7, 0.7, array.shape)


def statements(drawn: random.Random, depth: int = 2) -> list[Statement]:
    """Draw a few statements; control flow has bodies of its own."""
    kinds = ['child', 'tanh', 'scale', 'inner'] + ['cond', 'while', 'foreach'] * (2 * (depth > 0))
    found: list[Statement] = []
    for kind in drawn.choices(kinds, k=drawn.randint(1, 3)):
        bodies = {'cond': 2, 'while': 1, 'foreach': 1}.get(kind, 0)
        which = drawn.randrange(CHILDREN)
        found.append((kind, which, *[statements(drawn, depth - 1) for _ in range(bodies)]))
    return found


class Inner(gluon.HybridBlock):
    """A child with its own layer, which may branch."""

    def __init__(self, branches: bool, in_units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.branches = branches
        with self.name_scope():
            self.dense = nn.Dense(WIDTH, in_units=in_units, flatten=False)

    def hybrid_forward(self, F, x):
        """Return an array of the shape of `x`."""
        if not self.branches:
            return F.tanh(self.dense(x))
        return F.contrib.cond(F.sum(x) > 0, lambda: self.dense(x), lambda: F.tanh(x))


class Drawn(gluon.HybridBlock):
    """Run random statements on (1, WIDTH)."""

    def __init__(self, body: list[Statement], branches: bool, deferred: bool):
        super().__init__(prefix='drawn_')
        self.body, in_units = body, 0 if deferred else WIDTH
        with self.name_scope():
            self.scale = self.params.get('scale_weight', shape=(1, WIDTH))
            for which in range(CHILDREN):
                layer = nn.Dense(WIDTH, in_units=in_units, flatten=False)
                setattr(self, f'child{which}', layer)
                setattr(self, f'inner{which}', Inner(branches, in_units))

    def hybrid_forward(self, F, x, scale):
        """Return (1, WIDTH)."""
        return self.run(F, self.body, x, scale)

    def run(self, F: Any, body: list[Statement], x: Any, scale: Any) -> Any:
        """Run some statements, one after the other."""
        for kind, which, *bodies in body:
            x = getattr(self, f'_{kind}')(F, which, bodies, x, scale)
        return x

    def _child(self, F, which, bodies, x, scale):
        return getattr(self, f'child{which}')(x)

    def _inner(self, F, which, bodies, x, scale):
        return getattr(self, f'inner{which}')(x)

    def _tanh(self, F, which, bodies, x, scale):
        return F.tanh(x * (which + 1))

    def _scale(self, F, which, bodies, x, scale):
        return F.broadcast_mul(x, scale)

    def _cond(self, F, which, bodies, x, scale):
        return F.contrib.cond(
            F.sum(x) > 0.1 * which,
            lambda: self.run(F, bodies[0], x, scale),
            lambda: self.run(F, bodies[1], x, scale),
        )

    def _while(self, F, which, bodies, x, scale):
        _, (x, _) = F.contrib.while_loop(
            lambda x, step: step < which + 1,
            lambda x, step: ([], (self.run(F, bodies[0], x, scale), step + 1)),
            (x, F.sum(F.zeros_like(x)).reshape((1,))),
            max_iterations=3,
        )
        return x

    def _foreach(self, F, which, bodies, x, scale):
        _, (x,) = F.contrib.foreach(
            lambda step, states: (
                step,
                [self.run(F, bodies[0], F.broadcast_add(states[0], step), scale)],
            ),
            F.concat(*[x * 0.1] * (which + 1), dim=0),
            [x],
        )
        return x


def net(seed: int) -> 'Drawn':
    """Return an initialised net for a seed; parameters have equal values in all nets of this
    seed."""
    drawn = random.Random(seed)
    made = Drawn(statements(drawn), drawn.random() < 0.5, drawn.random() < 0.3)
    made.initialize(ByName())
    return made
