"""The examples that wait for values by `yield`, written as plain code: the same decisions, in at
most as many evaluations."""

import pytest

import gluon_edbatch as edb
from example.adaptive.task import AdaptiveTask
from example.beam_search.beam import Search
from example.beam_search.task import VowelTask
from example.common.options import parse
from example.pointer.task import PointerTask
from example.transition_parser.task import ParserTask
from tests.support import plain_examples


def _searches(task, words):
    return [Search(word, task.options.beam, task.options.margin) for word in words]


@pytest.mark.parametrize(
    ('task_class', 'plain', 'method', 'decision'),
    [
        (ParserTask, plain_examples.Parser, 'parse', lambda found: found.tolist()),
        (VowelTask, plain_examples.Writer, 'search', lambda found: found.text),
        (AdaptiveTask, plain_examples.Reader, 'read', lambda found: found.steps),
        (PointerTask, plain_examples.Pointing, 'write', lambda found: found.tolist()),
    ],
)
def test_plain_form(task_class, plain, method, decision):
    options, _ = parse(task_class, [])
    task = task_class(options)
    net, samples = task.build(), task.samples['train'][:12]
    if task_class is VowelTask:
        samples = _searches(task, samples)
    net.__class__ = plain
    evaluations, found = [], []
    for fn in (getattr(net, method), net):
        with edb.batching() as scope:
            found.append(list(map(decision, edb.run_concurrently(samples, fn))))
        assert not scope._recording.evaluator.reasons
        evaluations.append(scope.report().evaluations)
    found.append(list(map(decision, net.batch(samples))))
    found.append([decision(net(sample)) for sample in samples])
    assert all(each == found[0] for each in found)
    assert evaluations[1] <= evaluations[0]
