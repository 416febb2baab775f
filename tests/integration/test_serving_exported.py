"""Exported models behind an engine and behind the server, without MXNet."""

import json

import pytest
from mxnet import gluon

import gluon_edbatch as edb
import gluon_edbatch_runtime as runtime
from example.common.options import parse
from example.transition_parser.task import ParserTask
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of
from gluon_edbatch_core.serving.__main__ import request_of
from gluon_edbatch_runtime.serving import ModelEngine, load_served
from tests.integration.test_serving_folder import results, serving, told
from tests.runtime.exported_models import Net, samples_of
from tests.support import plain_examples

NO_MXNET = "raise AssertionError('MXNet is imported')\n"


class Words(edb.AutoBatchMixin, gluon.Block):
    """Add words."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = gluon.nn.Embedding(9, 4)

    def forward(self, words):
        total = self.embed(words[0])
        for word in words[1:]:
            total = total + self.embed(word)
        return total


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    net = Net()
    net.initialize()
    where = tmp_path_factory.mktemp('model') / 'bundle'
    return edb.export(net, samples_of(0, 30), where, unpack=True)


@pytest.fixture(scope='module')
def parser(tmp_path_factory):
    task = ParserTask(parse(ParserTask, [])[0])
    net, samples = task.build(), task.samples['train'][:12]
    net.__class__ = plain_examples.Parser
    return edb.export(net, samples, tmp_path_factory.mktemp('parser') / 'bundle')


def expected(model):
    return list(map(json_of, model(model.examples)))


def answers(engine, samples):
    return [json_of(each.result()) for each in [engine.future(s) for s in samples]]


@pytest.mark.parametrize('max_batch', [1, 5, 256])
def test_results_are_those_of_the_model(max_batch, parser):
    model = runtime.load(parser)
    wanted = expected(model)
    with ModelEngine(model, max_batch=max_batch, max_wait=60) as engine:
        found = answers(engine, model.examples * 3)
        assert engine.metrics().outcomes['answered'] == 3 * len(wanted)
    assert all(map(are_close, found, wanted * 3))


def test_a_bad_sample_fails_alone(tmp_path):
    net = Words()
    net.initialize()
    samples = [[1, 2], [3], [4, 5, 6], [7, 8]]
    model = runtime.load(edb.export(net, samples, tmp_path / 'words'))
    wanted = expected(model)
    with ModelEngine(model) as engine:
        futures = [engine.future(each) for each in [*samples[:2], [1, 99], *samples[2:]]]
        with pytest.raises(runtime.BatchError, match='99 is no row of a table of 9'):
            futures.pop(2).result()  # which shows when a batch runs
        found = [json_of(each.result()) for each in futures]
        with pytest.raises(runtime.RecordError, match='sample must be a list, not 5'):
            engine.future(5).result()
    assert all(map(are_close, found, wanted))


def test_a_sample_with_too_many_rounds(parser):
    model = runtime.load(parser)
    with ModelEngine(model, [], max_rounds=2) as engine:
        with pytest.raises(runtime.StepsError, match='waited for values 2 times'):
            engine.future(model.examples[0]).result()


@pytest.mark.parametrize('name, value', [('max_batch', 0), ('max_rounds', 0), ('max_wait', -1)])
def test_bad_arguments(name, value, folder):
    with pytest.raises(ValueError, match=f'{name} is . or more, not {value}'):
        ModelEngine(runtime.load(folder), **{name: value})


def test_schema(folder, parser):
    model = runtime.load(folder)
    assert model.schema['type'] == 'array'
    for path in (folder, parser):
        served = load_served(path)
        schema = runtime.load(path).schema
        assert all([served.read(each) is each for each in served.warm_up])
        for thing in schema.get('$defs', {}).values():
            assert thing['type'] == 'object' and set(thing['required']) == set(thing['properties'])


@pytest.mark.parametrize('workers', ['0', '1'])
def test_server_without_mxnet(workers, parser, tmp_path):
    """A module in place of MXNet ends whoever imports it."""
    (tmp_path / 'mxnet.py').write_text(NO_MXNET)
    model = runtime.load(parser)
    options = parser, '--workers', workers
    with serving(*options, module='gluon_edbatch_core.serving', path=tmp_path) as server:
        status, text = server.ask('/v2/models/bundle/infer', request_of(model.examples))
        assert status == 200 and all(map(are_close, results(text), expected(model)))
        metadata = json.loads(server.ask('/v2/models/bundle')[1])
        assert metadata['parameters']['example'] in model.examples
        assert metadata['parameters']['schema'] == model.schema
        status, text = server.ask('/v2/models/bundle/infer', request_of([{'words': 3}]))
        assert status == 400 and 'sample 0: ' in text
        assert server.stop() == 0


def test_a_damaged_folder_does_not_start(tmp_path, folder):
    (tmp_path / 'bundle').mkdir()
    (tmp_path / 'bundle' / 'manifest.json').write_text('{}')
    assert 'manifest' in told(tmp_path / 'bundle')
