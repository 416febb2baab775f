"""Folders that are served, and MLServer around them, where it is installed (the extra `serve`)."""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gluon_edbatch as edb
from gluon_edbatch.serving import admission
from gluon_edbatch.serving.__main__ import main, request_of
from gluon_edbatch.serving.folder import load_folder
from tests.support.processes import ROOT, free_ports, start
from tests.support.tiers import sampled

needs_mlserver = pytest.mark.skipif(
    find_spec('mlserver') is None, reason="MLServer comes with the extra serve: '.[serve]'"
)
MODEL = """
import mxnet as mx
import gluon_edbatch as edb
from mxnet.gluon import nn
from pydantic import BaseModel, Field
from typing import List

class Request(BaseModel):
    row: List[float] = Field(min_length=3, max_length=3)

def read(request):
    if request.row[0] == 13:
        raise ValueError('13 is not read')
    return mx.nd.array([request.row])

def load(folder):
    net = nn.Dense(2, in_units=3)
    net.load_parameters(str(folder / 'net.params'))
    def predict(row):
        if float(row[0, 0].asscalar()) == 14:
            raise KeyError('14 is not computed')
        return net(row)
    return edb.serving.Served(predict, Request, read, lambda scores: scores[0].tolist(),
                              warm_up=[{'row': [1, 2, 3]}])
"""


@pytest.fixture
def folder(tmp_path):
    """Of a model with one layer."""
    from mxnet import gluon, init

    net = gluon.nn.Dense(2, in_units=3)
    net.initialize(init.One())
    folder = tmp_path / 'layer'
    folder.mkdir()
    net.save_parameters(str(folder / 'net.params'))
    (folder / 'model.py').write_text(MODEL)
    (folder / 'page.html').write_text('<p>a page')
    settings = {
        'name': 'layer',
        'implementation': 'gluon_edbatch.serving.runtime.Runtime',
        'parameters': {'uri': '.'},
    }
    (folder / 'model-settings.json').write_text(json.dumps(settings))
    return folder


def damaged(folder, name, text):
    (folder / name).write_bytes(text)
    return folder


def assert_told(capsys, arguments, message):
    assert main([str(each) for each in arguments]) == 1
    said = capsys.readouterr()
    assert said.out == '' and re.fullmatch(f'serve: .*{message}.*\n', said.err), said.err


def test_no_folder(tmp_path, capsys):
    assert_told(capsys, [tmp_path / 'no'], 'there is no such folder')
    assert_told(capsys, [tmp_path], 'has no model-settings.json')


def test_damaged_settings(folder, capsys):
    assert_told(capsys, [damaged(folder, 'model-settings.json', b'{')], 'is damaged')


@pytest.mark.parametrize(
    ['name', 'text', 'message'],
    [
        ('net.params', b'no parameters', 'does not load'),
        ('model.py', b'def load(', 'does not load: SyntaxError'),
        ('model.py', b'def load(folder): return 3', 'is to return gluon_edbatch.serving.Served'),
    ],
)
def test_damaged_folders(folder, name, text, message):
    if find_spec('pydantic') is None:
        pytest.skip('pydantic comes with MLServer')
    with pytest.raises(edb.FolderError, match=message):
        load_folder(damaged(folder, name, text))


def test_no_model(folder):
    (folder / 'model.py').unlink()
    with pytest.raises(edb.FolderError, match=r'has no model\.py'):
        load_folder(folder)


TURN = admission._ROUNDS  # of the event loop


async def rounds(count):
    """Of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_more_requests_than_can_be_done_are_refused(monkeypatch):
    """Of 200 requests 130 are done, ten in a second; then others come."""
    now, waiting, sent = [0.0], [], []
    monkeypatch.setattr(admission, 'monotonic', lambda: now[0])

    async def app(scope, receive, send):
        waiting.append(asyncio.get_running_loop().create_future())
        await send({'type': 'http.response.start', 'status': await waiting[-1]})

    async def send(message):
        sent.append(message)

    async def done(reply, status=200, seconds=0.1):
        now[0] += seconds
        reply.set_result(status)
        await rounds(2)

    async def some(bounded, count):
        path = '/v2/models/any/infer'
        tasks = [
            asyncio.ensure_future(bounded({'type': 'http', 'path': path}, None, send))
            for _ in range(count)
        ]
        await rounds(TURN * count + 4)
        return tasks

    async def main():
        bounded = admission.BoundedRequests(app, admission.Admission())
        tasks = await some(bounded, 200)
        assert len(waiting) == 200 and not sent  # nothing is known yet
        for each in waiting[:120]:
            await done(each)
        for each in waiting[120:130]:
            await done(each, 503, 0)  # which tells nothing of how long it takes
        assert bounded._admission._expectation.work(1) == pytest.approx(0.1)
        sent.clear()
        tasks += await some(bounded, 130)  # as if each was sent by one of those that were answered
        assert len(waiting) == 330 and not sent
        tasks += await some(bounded, 5)
        assert [each['status'] for each in sent[::2]] == [503] * 5
        assert b'200 requests are on their way, which takes some 20000 ms' in sent[1]['body']
        for each in waiting[130:]:
            await done(each)
        sent.clear()
        for _ in range(50):
            tasks += await some(bounded, 1)
            await done(waiting[-1])
        assert bounded._admission._expectation.patience == 1.0  # 3.3 s would be borne
        tasks += await some(bounded, 12)
        now[0] += 2
        tasks += await some(bounded, 12)
        assert len(waiting) == 392 and [each['status'] for each in sent[50::2]] == [503] * 12
        for each in waiting[-12:]:
            await done(each)
        await asyncio.gather(*tasks)

    asyncio.run(main())


@pytest.mark.parametrize('grpc', [False, pytest.param(True, marks=needs_mlserver)])
def test_those_that_are_taken_go_on_one_by_one(grpc):
    """One that is given up while it waits holds up no others."""
    begun, number = [], [0]

    async def app(*_):
        begun.append(number[0])

    async def main():
        shared = admission.Admission()
        if grpc:
            from gluon_edbatch.serving.server import BoundedPlane

            plane = BoundedPlane(SimpleNamespace(infer=app), shared)
            tasks = [asyncio.ensure_future(plane.infer()) for _ in range(6)]
        else:
            bounded, scope = (
                admission.BoundedRequests(app, shared),
                {'type': 'http', 'path': '/infer'},
            )
            tasks = [asyncio.ensure_future(bounded(scope, None, None)) for _ in range(6)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[2].cancel()
        for number[0] in range(1, 4 * TURN + 4):
            await asyncio.sleep(0)
        assert shared._open == 0
        await rounds(TURN)
        assert not shared._row._goes_on

    asyncio.run(main())
    assert begun == list(range(begun[0], begun[0] + 4 * TURN, TURN))


def test_a_refusal_reads_no_body():
    heard, bounded = [], SimpleNamespace(refusal=lambda: 'too many')

    async def app(scope, receive, send):
        heard.append(scope['path'])

    async def send(message):
        heard.append(message.get('status') or message['body'])
        if (b'connection', b'close') in message.get('headers', ()):
            heard.append('closed')

    async def main():
        early = admission.EarlyRefusal(app, bounded)
        for path, length in (('/v2', 5), ('/v2/a/infer', 5), ('/v2/b/infer', 2 << 20)):
            headers = [(b'content-length', str(length).encode())]
            await early({'type': 'http', 'path': path, 'headers': headers}, None, send)
        headers = [(b'content-length', b'5'), (b'expect', b'100-continue')]
        await early({'type': 'http', 'path': '/infer', 'headers': headers}, None, send)

    asyncio.run(main())
    body = b'{"error": "too many"}'
    assert heard == ['/v2', 503, body, '/v2/b/infer', 503, 'closed', body]


class Plane:
    """Of MLServer, which notes what is asked for."""

    def __init__(self, **answer):
        self._answer, self.asked = answer, []

    async def infer(self, payload, name, version):
        from mlserver.errors import MLServerError
        from mlserver.types import InferenceResponse

        self.asked.append((payload, name, version))
        if not self._answer:
            raise MLServerError('no "text"', 400)
        return InferenceResponse(model_name=name, outputs=[], **self._answer)


def short_way(plane, path='/v2/models/a b/infer', body=None, **scope):
    """What is sent, and what the routes of FastAPI are asked for."""
    from gluon_edbatch.serving.server import ShortWay

    sent, left = [], []

    async def app(scope, receive, send):
        left.append(await receive())

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    whole = {'type': 'http.request', 'body': body or json.dumps(rows(1)).encode()}
    messages = [whole, {'type': 'http.disconnect'}]
    scope = {
        'type': 'http', 'method': 'POST', 'path': path, 'app': SimpleNamespace(router='routes'),
        'headers': [(b'content-type', b'application/json'), (b'x-any', b'\xe4')], **scope,
    }  # fmt: skip
    asyncio.run(ShortWay(app, plane)(scope, receive, send))
    assert scope.get('router') == ('routes' if plane.asked else None)
    assert not left or (left == [whole] and not sent and not plane.asked)
    return sent, len(left)


@needs_mlserver
def test_the_short_way():
    plane = Plane(parameters={'headers': {'Ce-Id': 'some'}})
    for path in ('/v2/models/a b/infer', '/v2/models/a b/versions/v1/infer'):
        (start, end), left = short_way(plane, path)
        assert start['status'] == 200 and not left
        headers = dict(start['headers'])
        assert headers[b'ce-id'] == b'some' and headers[b'content-length'] == b'%d' % len(
            end['body']
        )
        assert json.loads(end['body']) == {'model_name': 'a b', 'parameters': {}, 'outputs': []}
    (payload, *name), (_, *versioned) = plane.asked
    assert name == ['a b', None] and versioned == ['a b', 'v1']
    assert payload.parameters.headers == {'content-type': 'application/json', 'x-any': 'ä'}
    assert payload.inputs[0].data.root == rows(1)['inputs'][0]['data']


@needs_mlserver
def test_errors_on_the_short_way():
    (start, end), _ = short_way(Plane())
    assert start['status'] == 400 and json.loads(end['body']) == {'error': 'no "text"'}


@needs_mlserver
@pytest.mark.parametrize(
    'other',
    [
        {'path': '/v2/models/a/ready'},
        {'path': '/v2/models/a/b/infer'},
        {'method': 'GET'},
        {'headers': [(b'content-type', b'text/plain')]},
        {'headers': []},
        {'body': b'{"inputs": 3}'},
        {'body': b'{"inputs": '},
        {'body': b'\xff'},
    ],
)
def test_what_is_left_to_the_routes(other):
    assert short_way(Plane(), **other) == ([], 1)


@needs_mlserver
def test_no_objects_are_walked_through_once_it_is_ready(capsys):
    import gc

    from gluon_edbatch.serving import server

    class Ready:
        async def is_ready(self):
            return True

    before = gc.get_freeze_count()
    asyncio.run(server._tell(Ready(), ['ready'], None))
    try:
        assert capsys.readouterr().out == 'ready\n' and gc.get_freeze_count() > before + 1000
    finally:
        gc.unfreeze()


@needs_mlserver
@pytest.mark.filterwarnings('ignore::DeprecationWarning')
@pytest.mark.parametrize(
    'settings, compressed',
    [(None, False), ({'gzip_enabled': True}, True), ({'debug': False}, False)],
)
def test_answers_are_compressed_where_that_is_asked_for(folder, monkeypatch, settings, compressed):
    from gluon_edbatch.serving import server

    given = []

    class Noted:
        failed = False

        def __init__(self, settings, max_bytes):
            given.append(settings.gzip_enabled)

        async def start(self, models):
            pass

    monkeypatch.setattr(server, 'DrainingServer', Noted)
    if settings is not None:
        (folder / 'settings.json').write_text(json.dumps(settings))
    assert asyncio.run(server.serve(folder, {}, 1, [], None)) == 0
    assert given == [compressed]


@needs_mlserver
def test_the_event_loop_is_that_of_uvloop(folder, monkeypatch):
    from gluon_edbatch.serving import server

    pytest.importorskip('uvloop')
    loops = []

    async def serve(*_):
        loops.append(type(asyncio.get_running_loop()).__module__)
        return 0

    monkeypatch.setattr(server, 'serve', serve)
    options = [
        f'--{name}={port}'
        for name, port in zip(['port', 'grpc-port', 'metrics-port'], free_ports(3))
    ]
    policy = asyncio.get_event_loop_policy()
    try:
        assert main([str(folder), *options]) == 0
    finally:
        asyncio.set_event_loop_policy(policy)
    assert loops == ['uvloop']


@needs_mlserver
def test_after_a_refusal_a_connection_goes_on():
    """Also if the body comes later, or in pieces."""
    uvicorn = pytest.importorskip('uvicorn')
    app = admission.EarlyRefusal(None, SimpleNamespace(refusal=lambda: 'too many'))

    async def main():
        config = uvicorn.Config(app, port=0, lifespan='off', log_level='critical')
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        for _ in range(3):
            writer.write(b'POST /infer HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n')
            status = await reader.readline()
            assert status.startswith(b'HTTP/1.1 503')
            assert b'connection: close' not in await reader.readuntil(b'\r\n\r\n')
            assert await reader.readexactly(21) == b'{"error": "too many"}'
            for _ in range(3):
                writer.write(b'x' * 100_000)
                await writer.drain()
        writer.close()
        server.should_exit = True
        await serving

    asyncio.run(main())


def test_refusals_leave_no_tracebacks(caplog):
    admission.log_only_faults()
    for status in (503, 504, 400, None):
        error = ValueError(str(status))
        if status:
            error.status_code = status
        try:
            raise error
        except ValueError:
            logging.getLogger('mlserver.parallel').exception('an error occurred')
    assert [str(record.exc_info[1]) for record in caplog.records] == ['400', 'None']


@needs_mlserver
def test_a_port_in_use(folder, capsys):
    with closing(socket.socket()) as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_told(capsys, [folder, '--port', port], f'127.0.0.1:{port}: cannot listen there')


def asked(url, body=None):
    """Status and text."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(params=[0, 2])
def server(folder, request):
    """Base address, port of metrics, process; it says where it is when it is ready."""
    ports = free_ports(3)
    options = zip(['--port', '--grpc-port', '--metrics-port'], map(str, ports))
    command = [sys.executable, '-m', 'gluon_edbatch.serving', folder, '--workers', request.param]
    command += [each for option in options for each in option]
    command += ['--max-bytes', '100000']
    with start(command, cwd=folder, PYTHONPATH=str(ROOT)) as process:
        line = process.stdout.readline()
        while line and not line.startswith('serve: layer is ready'):
            line = process.stdout.readline()
        assert line, process.stderr.read()
        assert process.stdout.readline().startswith('curl ')
        yield f'http://127.0.0.1:{ports[0]}', ports, process


def workers_of(process):
    """Process numbers."""
    children = Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text().split()
    return [each for each in children if b'spawn_main' in command_line(each)]


def command_line(process):
    try:
        return Path(f'/proc/{process}/cmdline').read_bytes()
    except FileNotFoundError:  # it has just ended
        return b''


def rows(*firsts):
    return request_of([{'row': [first, 2, 3]} for first in firsts])


@needs_mlserver
def test_served(server):
    base, ports, process = server
    infer = f'{base}/v2/models/layer/infer'
    assert asked(f'{base}/v2/health/ready')[0] == 200
    assert asked(f'{base}/') == (200, '<p>a page')
    status, text = asked(infer, rows(1, 2, 4))
    assert status == 200
    answers = json.loads(text)['outputs'][0]
    assert answers['shape'] == [3]
    assert [json.loads(each) for each in answers['data']] == [[6, 6], [7, 7], [9, 9]]

    bad = rows(1)
    bad['inputs'][0]['data'] = []
    nested = rows(1)
    nested['inputs'][0]['data'] = json.loads('[' * 400 + ']' * 400)
    late = {**rows(1), 'parameters': {'deadline': 0}}
    soon = {**rows(1), 'parameters': {'deadline': 'soon'}}
    for body, expected, message in [
        (rows(1, 13), 400, 'sample 1: 13 is not read'),
        (rows(14), 400, '14 is not computed'),
        (request_of([{'row': [1, 2]}]), 400, r'sample 0: .*\(row\)'),
        (request_of(['x']), 400, 'sample 0: .*'),
        (bad, 400, '1 to 1024 samples, not 0'),
        (nested, 422, 'nested more than 50'),
        (b'[' * 90000, 422, ''),
        (b'{"inputs": 3', 422, ''),
        (b'\xff', 422, ''),
        (b' ' * 200000, 413, 'longer than 100000 bytes'),
        (late, 504, 'the deadline passed'),
        (soon, 400, r'"(mlserver\.errors\.InferenceError: )?the parameter deadline is'),
    ]:
        status, text = asked(infer, body)
        assert status == expected and re.search(message, text), (body, text)
        assert asked(infer, rows(1))[0] == 200
    counted = asked(f'http://127.0.0.1:{ports[2]}/metrics')[1]  # eight are the server's own
    assert 'edb_requests_total{model="layer",outcome="answered"} 23.0' in counted.splitlines()
    assert 'edb_requests_total{model="layer",outcome="expired"} 1.0' in counted.splitlines()
    path = re.escape('path="/v2/models/{model_name}/infer",status_code="200"')
    assert re.findall(f'rest_server_requests_total{{.*{path}}} (.*)', counted) == ['13.0']
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


@needs_mlserver
@pytest.mark.parametrize('server', sampled(2, [0, 2]), indirect=True)
def test_grpc(server):
    grpc = pytest.importorskip('grpc')
    from mlserver.grpc import dataplane_pb2 as messages
    from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub

    def request(*texts):
        contents = messages.InferTensorContents(bytes_contents=[each.encode() for each in texts])
        tensor = messages.ModelInferRequest.InferInputTensor(
            name='samples', datatype='BYTES', shape=[len(texts)], contents=contents
        )
        return messages.ModelInferRequest(model_name='layer', inputs=[tensor])

    _, ports, _ = server
    with grpc.insecure_channel(f'127.0.0.1:{ports[1]}') as channel:
        stub = GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(request('{"row": [5, 2, 3]}'))
        assert [json.loads(each) for each in answer.outputs[0].contents.bytes_contents] == [
            [10, 10]
        ]
        with pytest.raises(grpc.RpcError) as raised:
            stub.ModelInfer(request('{"row": [5, 2]}'))
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError, match='max_queue') as raised:
            stub.ModelInfer(request(*['{"row": [5, 2, 3]}'] * 600))
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


@needs_mlserver
def test_more_requests_by_grpc_than_can_be_done_are_refused(monkeypatch):
    """They count together with those by HTTP."""
    from mlserver.errors import MLServerError

    from gluon_edbatch.serving.server import BoundedPlane

    now, waiting = [0.0], []
    monkeypatch.setattr(admission, 'monotonic', lambda: now[0])

    class Plane:
        name = 'any'

        async def infer(self, payload):
            waiting.append(asyncio.get_running_loop().create_future())
            return payload, await waiting[-1]

    async def main():
        shared = admission.Admission()
        plane = BoundedPlane(Plane(), shared)
        assert plane.name == 'any'
        with shared.one_more(), shared.one_more():
            tasks = [asyncio.ensure_future(plane.infer(payload=i)) for i in range(150)]
            await rounds(TURN * 150 + 4)
            for each in waiting[:80]:
                now[0] += 0.1
                each.set_result('done')
                await rounds(2)
            tasks += [asyncio.ensure_future(plane.infer(payload=i)) for i in range(150, 230)]
            last = asyncio.ensure_future(plane.infer(payload=230))
            await rounds(TURN * 81 + 4)
            assert last.done()
            with pytest.raises(MLServerError, match='152 requests are on their way') as raised:
                last.result()
            assert raised.value.status_code == 503
        for each in waiting[80:]:
            each.set_result('done')
        assert await asyncio.gather(*tasks) == [(i, 'done') for i in range(230)]
        assert shared.refusal() is None

    asyncio.run(main())


@needs_mlserver
@pytest.mark.parametrize('server', [2], indirect=True)
def test_a_worker_that_dies_is_replaced(server):
    base, _, process = server
    workers = workers_of(process)
    assert len(workers) == 2
    os.kill(int(workers[0]), signal.SIGKILL)
    statuses = {asked(f'{base}/v2/models/layer/infer', rows(1))[0] for _ in range(50)}
    assert 200 in statuses and statuses <= {200, 500}
    while workers_of(process) == workers or len(workers_of(process)) < 2:
        assert asked(f'{base}/v2/models/layer/infer', rows(1))[0] in (200, 500)


@needs_mlserver
def test_a_queue_that_is_full_is_503(folder):
    from mlserver import ModelSettings
    from mlserver.errors import MLServerError
    from mlserver.types import InferenceRequest

    from gluon_edbatch.serving.runtime import Runtime

    text = (
        (folder / 'model.py').read_text().replace('warm_up=', "options={'max_queue': 2}, warm_up=")
    )
    (folder / 'model.py').write_text(text)
    settings = ModelSettings(name='layer', implementation=Runtime, parameters={'uri': str(folder)})

    async def ask():
        model = Runtime(settings)
        assert await model.load()
        with pytest.raises(MLServerError, match='max_queue') as raised:
            await model.predict(InferenceRequest.model_validate(rows(1, 2, 3)))
        answer = await model.predict(InferenceRequest.model_validate(rows(1, 2)))
        assert await model.unload()
        return raised.value.status_code, answer.outputs[0].shape

    assert asyncio.run(ask()) == (503, [2])


@needs_mlserver
@pytest.mark.parametrize('options, seconds', [({}, 1.0), ({'max_wait': 0.25}, 0.25)])
def test_lists_may_wait_for_a_second_or_what_the_folder_says(folder, options, seconds, monkeypatch):
    """Where an engine by itself bears less, of small samples."""
    from mlserver import ModelSettings

    from gluon_edbatch.serving import runtime

    text = (folder / 'model.py').read_text()
    (folder / 'model.py').write_text(text.replace('warm_up=', f'options={options}, warm_up='))
    settings = ModelSettings(
        name='layer', implementation=runtime.Runtime, parameters={'uri': str(folder)}
    )
    engine, given = runtime.Engine, []

    def noted(*args, **kwargs):
        given.append(kwargs['max_wait'])
        return engine(*args, **kwargs)

    monkeypatch.setattr(runtime, 'Engine', noted)

    async def load():
        model = runtime.Runtime(settings)
        assert await model.load() and await model.unload()

    asyncio.run(load())
    assert given == [seconds]


@needs_mlserver
def test_the_folder_of_the_example(tmp_path):
    pytest.importorskip('gluonnlp')
    from example.tree_sst import make_served
    from example.tree_sst.data import build_samples, load_split
    from example.tree_sst.task import SentimentTask
    from example.tree_sst.train import main as train

    checkpoint = tmp_path / 'checkpoint'
    options = '--epochs 1 --hidden 8 --embed 6 --batch-size 50'.split()
    assert train([*options, '--checkpoint', str(checkpoint)]) == 0
    folder = tmp_path / 'served'
    assert make_served.main(['--out', str(folder), '--checkpoint', str(checkpoint)]) == 0
    served = load_folder(folder)
    phrases = load_split(SentimentTask.sample / 'dev.txt')[:5]
    ids = {
        word: number
        for number, word in enumerate(json.loads((folder / 'words.json').read_text())['words'])
    }
    from example.tree_sst.model import TreeLSTM

    net = TreeLSTM(len(ids), 6, 8)
    net.load_parameters(str(folder / 'net.params'))
    trees = build_samples(phrases, lambda words: [ids.get(word, 0) for word in words])
    for phrase, tree in zip(phrases, trees):
        request = served.request.model_validate_json(json.dumps(make_served.as_request(phrase)))
        chances = served.predict(served.read(request)).asnumpy()
        expected = net(tree.tree).softmax().asnumpy()[by_number(request)]
        np.testing.assert_allclose(chances, expected, rtol=1e-4, atol=1e-5)
        answer = served.write(chances)
        assert answer['sentiment'] == expected.argmax(axis=1).tolist()
    words, chain = ['good'] * 300, [[0, 1]] + [[300 + number, number + 2] for number in range(298)]
    deep = served.request(words=words, merges=list(map(tuple, chain)))
    assert served.predict(served.read(deep)).shape == (599, 5)
    for merges in (
        [(0, 1)],
        [(0, 1), (0, 2)],
        [(0, 1), (2, 2)],
        [(0, 1), (2, 4)],
        [(3, 0), (1, 2)],
    ):
        with pytest.raises(ValueError, match='merge'):
            served.read(served.request(words=['a', 'b', 'c'], merges=merges))


def by_number(request):
    """Where each node of a request is among those of its tree, children before their parents."""
    places, count = [], len(request.words)

    def visit(node):
        for child in request.merges[node - count] if node >= count else ():
            visit(child)
        places.append(node)

    visit(2 * count - 2)
    return np.argsort(places)
