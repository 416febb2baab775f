"""Models as users report them in public: batched results and gradients are eager Gluon's."""

import random
from typing import Any, NamedTuple

import numpy as np
import pytest
from mxnet.ndarray import NDArray

import gluon_edbatch as edb
from gluon_edbatch.record import hooks
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch.testing.matches_eager import SCHEDULERS
from tests.support import public_reports as reports
from tests.support.models import started
from tests.support.tiers import sampled


class Report(NamedTuple):
    """A model with options; for eight samples, how many calls a batch there are at least.

    `together` is 1 where every sample reads values of its own before it goes on.
    """

    model: type[reports.Model]
    together: float
    options: dict[str, Any] = {}

    def make(self, seed: int, count: int = 4) -> tuple[reports.Model, list[Any]]:
        """The model and samples, drawn from `seed`."""
        random = np.random.RandomState(seed)
        net = started(self.model(**self.options), seed)
        return net, [net.sample(random) for _ in range(count)]


REPORTS = {
    'dropout tree': Report(reports.DropoutTree, 8),
    'word pairs': Report(reports.WordPairs, 10),
    'shift-reduce, given': Report(reports.ShiftReduce, 5),
    'shift-reduce, greedy': Report(reports.ShiftReduce, 1, {'greedy': True}),
    'captions of a batch by hand': Report(reports.Captions, 8),
    'candidates': Report(reports.Candidates, 4),
    'early exit': Report(reports.EarlyExit, 1),
    'crf': Report(reports.Crf, 1),
    'message passing': Report(reports.MessagePassing, 8),
    'translator': Report(reports.Translator, 1),
    'documents': Report(reports.Documents, 8),
    'pointer-generator': Report(reports.PointerGenerator, 5),
    'ctc by length': Report(reports.Ctc, 6),
    'ctc padded': Report(reports.Ctc, 8, {'form': 'padded'}),
    'ctc ragged': Report(reports.Ctc, 6, {'form': 'ragged'}),
    'turing machine': Report(reports.TuringMachine, 5),
    'modules': Report(reports.Modules, 5),
    'set transformer': Report(reports.SetTransformer, 6),
    'experts': Report(reports.Experts, 1),
    'adversary': Report(reports.Adversary, 4),
    'language': Report(reports.Language, 10),
    'nested states': Report(reports.Nested, 6),
    'conditions': Report(reports.Conditions, 1),
    'loops': Report(reports.Loops, 2),
}

# In CI one seed for each model.
SEEDS = sampled(3, REPORTS, range(3))


class OneGradientWrong:
    """A model of which batched runs get the gradient of one parameter 1.001 times as large.

    The parameter is drawn from those with a gradient after the first backward pass, which is an
    eager one.
    """

    def __init__(self, net, seed, monkeypatch):
        self.net, self.random = net, random.Random(seed)
        self.parameter, self.batched = None, False
        backward = NDArray.backward

        def wrong(array, *args, **kwargs):
            backward(array, *args, **kwargs)
            self.scale()

        monkeypatch.setattr(NDArray, 'backward', wrong)

    def __call__(self, sample):
        self.batched = hooks.current_recording() is not None
        return self.net(sample)

    def scale(self):
        """Draw the parameter, or scale its gradient after a batched run."""
        if self.parameter is None:
            assert not self.batched
            trained = [
                each for each in self.net.collect_params().values() if each.grad_req != 'null'
            ]
            self.parameter = self.random.choice(
                [each for each in trained if abs(each.data().grad.asnumpy()).max() > 1e-4]
            )
        elif self.batched:
            gradient = self.parameter.data().grad
            gradient[:] = gradient * 1.001


# MXNet's own gradients of a hybridized `F.contrib.cond` are of memory that nobody wrote.
@pytest.mark.filterwarnings('ignore:eager Gluon differs from itself')
@pytest.mark.parametrize('name, seed', SEEDS)
def test_batched_equals_eager(name, seed):
    """The seed that CI runs meets two schedulers, the others meet all."""
    net, samples = REPORTS[name].make(seed)
    assert_matches_eager(net, samples, schedulers=SCHEDULERS if seed else ['agenda', 'fsm'])


@pytest.mark.parametrize('name, seed', sampled(9, REPORTS, range(3)))
def test_a_gradient_that_is_wrong_by_a_thousandth_fails(name, seed, monkeypatch):
    net, samples = REPORTS[name].make(seed)
    wrong = OneGradientWrong(net, seed, monkeypatch)
    with pytest.raises(AssertionError) as caught:
        assert_matches_eager(
            wrong,
            samples,
            blocks=[net],
            schedulers=['fsm'],
            hybridized=[False],
            training=[True],
        )
    assert f'gradient of {wrong.parameter.name} on' in str(caught.value)


@pytest.mark.parametrize('name', REPORTS)
def test_calls_run_together(name):
    """Many calls are one batch, and what is said of them names the model's lines."""
    report = REPORTS[name]
    net, samples = report.make(0, 8)
    for _ in range(2):  # the first call of an autograd.Function runs eagerly
        with edb.batching() as scope:
            values = [net(sample) for sample in samples]
        edb.forward(values)
    found, explained = scope.report(), str(scope.explain())
    assert found.nodes >= report.together * found.batches, str(found)
    assert 'reports.py:' in explained
    assert ('run_concurrently' in explained) == (report.together == 1), explained


def test_dropout_that_is_switched_off_by_inference():
    net, samples = REPORTS['dropout tree']._replace(options={'rate': 0.5}).make(0)
    assert_matches_eager(net, samples, training=[False])
