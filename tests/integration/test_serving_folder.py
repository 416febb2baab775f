"""Folders that are served: a real server on loopback, where the extra `serve` is installed."""

import asyncio
import contextlib
import http.client
import json
import logging
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from configparser import ConfigParser
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gluon_edbatch as edb
from gluon_edbatch_core.serving.__main__ import _JsonFormatter, _options, request_of
from gluon_edbatch_core.serving.folder import load_folder, name_of
from tests.support.processes import ROOT, free_ports, run, start

needs_serve = pytest.mark.skipif(
    find_spec('tritonclient') is None or find_spec('uvicorn') is None,
    reason="the extra serve is missing: '.[serve]'",
)
MODEL = """
import gluon_edbatch as edb
import mxnet as mx
import numpy as np
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
PARTS = """
import gluon_edbatch as edb

def load(folder):
    def predict(count):
        for number in range(count):
            edb.serving.emit({'word': number})
        if count == 13:
            raise ValueError('13 is not computed')
        return count
    return edb.serving.Served(predict, int, int, int, warm_up=[1])
"""
ARRAYS = """
import gluon_edbatch as edb
import mxnet as mx

def load(folder):
    predict = lambda sample: mx.nd.array(sample['row']).sum() * float(sample['factor'])
    return edb.serving.Served(
        predict, None, dict, lambda total: {'total': total}, warm_up=[{'row': [1, 2], 'factor': 3}],
        inputs={'row': ('FP32', [-1]), 'factor': ('INT64', [])}, outputs={'total': ('FP32', [1])})
"""
SLOW = """
import os
import time
import gluon_edbatch as edb

def load(folder):
    def predict(seconds):
        if seconds:
            with open(folder / 'begun', 'a') as file:
                file.write(f'{os.getpid()} ')
        time.sleep(seconds)
        return seconds
    return edb.serving.Served(predict, float, float, float, warm_up=[0])
"""


@pytest.fixture
def folder(tmp_path):
    """Write the folder of a model with one layer."""
    return layer(tmp_path / 'layer', 1)


def layer(folder, weight):
    from mxnet import gluon, init

    net = gluon.nn.Dense(2, in_units=3)
    net.initialize(init.Constant(weight))
    folder.mkdir(exist_ok=True)
    net.save_parameters(str(folder / 'net.params'))
    (folder / 'model.py').write_text(MODEL)
    (folder / 'page.html').write_text('<p>a page')
    return folder


def folder_of(path, text):
    path.mkdir()
    (path / 'model.py').write_text(text)
    return path


class Server:
    """One that is ready."""

    def __init__(self, process, ports):
        self.process, (self.port, self.grpc_port, self.metrics_port) = process, ports
        self.base, self.lines = f'http://127.0.0.1:{self.port}', []

    def ask(self, path, body=None, **headers):
        """Status and text."""
        answer = self.answer(path, body, **headers)
        return answer.status, answer.text

    def answer(self, path, body=None, method=None, **headers):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {name.replace('_', '-'): value for name, value in headers.items()}
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as found:
                return SimpleNamespace(
                    status=found.status, text=found.read().decode(), headers=found.headers
                )
        except urllib.error.HTTPError as error:
            return SimpleNamespace(
                status=error.code, text=error.read().decode(), headers=error.headers
            )

    def infer(self, *firsts):
        return self.infer_of('layer', *[{'row': [first, 2, 3]} for first in firsts])

    def infer_of(self, name, *samples):
        status, text = self.ask(f'/v2/models/{name}/infer', request_of(samples))
        return status, results(text) if status == 200 else text

    @property
    def workers(self):
        """Process numbers."""
        children = f'/proc/{self.process.pid}/task/{self.process.pid}/children'
        return [int(each) for each in Path(children).read_text().split()]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


@contextlib.contextmanager
def serving(*arguments, shell='', module='gluon_edbatch.serving', path=ROOT, **environment):
    """Start a server and return when it says where it listens. It has no worker processes unless a
    test asks for some, as one process starts sooner than two."""
    if '--workers' not in arguments:
        arguments = (*arguments, '--workers', '0')
    ports = free_ports(3)
    options = zip(['--port', '--grpc-port', '--metrics-port'], map(str, ports))
    command = [sys.executable, '-m', module, *arguments]
    command += [each for option in options for each in option]
    if shell:
        command = ['bash', '-c', f'{shell}; exec "$@"', 'bash', *command]
    paths = os.pathsep.join([str(path), str(ROOT)])
    with start(command, PYTHONPATH=paths, **environment) as process:
        server = Server(process, ports)
        line = process.stdout.readline()
        assert re.match('serve: .* (is|are) ready at', line), process.stderr.read()
        server.lines.append(line)
        yield server


@pytest.fixture(scope='module')
def shared(tmp_path_factory):
    """A server of three models, for tests that change nothing of it."""
    path = tmp_path_factory.mktemp('shared')
    arrays = folder_of(path / 'arrays', ARRAYS)
    (arrays / 'model-settings.json').write_text('{"name": "sum"}')
    folders = layer(path / 'layer', 1), arrays, folder_of(path / 'parts', PARTS)
    options = '--allowed-host', 'models.example', '--max-bytes', '100000'
    with serving(*folders, *options) as server:
        yield server


def rows(*firsts):
    return request_of([{'row': [first, 2, 3]} for first in firsts])


def results(text):
    return [json.loads(each) for each in json.loads(text)['outputs'][0]['data']]


def told(*arguments):
    """What a server that does not start says, after which it ends with 1."""
    command = [sys.executable, '-m', 'gluon_edbatch.serving', *arguments]
    options = ['--port', '0', '--grpc-port', '0', '--metrics-port', '0']
    done = run([*command, *([] if '--port' in arguments else options)], PYTHONPATH=str(ROOT))
    assert done.returncode == 1 and done.stdout == ''
    (line,) = done.stderr.splitlines()
    assert line.startswith('serve: ')
    return line


@needs_serve
def test_no_folder(tmp_path, folder):
    assert 'there is no such folder' in told(tmp_path / 'no')
    assert 'has no model.py' in told(tmp_path)
    (folder / 'model-settings.json').write_text('{')
    assert 'is damaged' in told(folder)
    (folder / 'model-settings.json').write_text('{"name": "other"}')
    assert name_of(folder) == 'other'
    assert 'the same name' in told(folder, folder)


@needs_serve
@pytest.mark.parametrize(
    ['text', 'line', 'message'],
    [
        ('def load(', 1, 'does not load: SyntaxError'),
        ('\nraise SystemExit(3)', 2, 'does not load: SystemExit: 3'),
        ('\n\ndef load(folder):\n    return folder.no', 4, 'does not load: AttributeError'),
        (PARTS.replace('return count', 'raise SystemExit("is over")'), 10,
         'does not warm up: SystemExit: is over'),
        (PARTS.replace('return count', 'return 1 / 0'), 10, 'does not warm up: ZeroDivisionError'),
        (PARTS.replace('[1]', '["no"]'), 0, 'does not warm up: ValidationError'),
    ],
)  # fmt: skip
def test_a_model_that_fails(tmp_path, text, line, message):
    where = f'model.py:{line}: ' if line else r'model.py(:\d+)?: '
    assert re.search(where + message, told(folder_of(tmp_path / 'any', text)))


def test_damaged_folders(folder):
    if find_spec('pydantic') is None:
        pytest.skip('pydantic comes with the extra serve')
    (folder / 'net.params').write_bytes(b'no parameters')
    with pytest.raises(edb.FolderError, match=r'model\.py:19: does not load'):
        load_folder(folder)
    (folder / 'model.py').write_text('def load(folder): return 3')
    with pytest.raises(edb.FolderError, match='is to return gluon_edbatch.serving.Served'):
        load_folder(folder)


def test_a_folder_says_itself_what_is_wrong(tmp_path):
    text = """
import gluon_edbatch as edb

def load(folder):
    raise edb.FolderError('the parameters are of another version')
"""
    with pytest.raises(edb.FolderError, match='^the parameters are of another version$'):
        load_folder(folder_of(tmp_path / 'any', text))


def test_the_extra_is_missing(folder, tmp_path):
    """Here one of its packages is not there."""
    (tmp_path / 'uvloop.py').write_text('raise ImportError("no uvloop")')
    command = [sys.executable, '-m', 'gluon_edbatch.serving', folder]
    done = run(command, PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]))
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr == "serve: the extra is missing: `pip install '.[serve]'` (no uvloop)\n"


@needs_serve
def test_a_port_in_use(folder):
    with closing(socket.socket()) as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f'127.0.0.1:{port}: cannot listen there' in told(folder, '--port', str(port))


BAD = [
    (rows(1, 13), 400, 'sample 1: 13 is not read'),
    (rows(14), 400, '14 is not computed'),
    (request_of([{'row': [1, 2]}]), 400, r'sample 0: .*\(row\)'),
    (request_of(['x']), 400, 'sample 0: .*'),
    (request_of([]), 400, '1 to 512 samples'),
    (rows(*[1] * 513), 400, r'1 to 512 samples \(max_queue\), not 513: split it'),
    ({'inputs': [{**rows(1)['inputs'][0], 'shape': [2]}]}, 400, r'the shape \[2\] does not fit 1'),
    ({'inputs': [{**rows(1)['inputs'][0], 'datatype': 'FP32'}]}, 400, 'no FP32'),
    ({'inputs': [{**rows(1)['inputs'][0], 'datatype': 'X'}]}, 400, 'the datatype is one of BYTES'),
    ({'inputs': [{**rows(1)['inputs'][0], 'data': [1]}]}, 400, 'an element is no text'),
    ({'inputs': rows(1)['inputs'] * 2}, 400, 'one input'),
    ({**rows(1), 'outputs': [{'name': 'no'}]}, 400, 'the outputs are answers, not no'),
    ({**rows(1), 'parameters': {'deadline': 'soon'}}, 400, 'the parameter deadline is'),
    ({**rows(1), 'parameters': {'deadline': True}}, 400, 'the parameter deadline is'),
    ({**rows(1), 'parameters': {'deadline': 0}}, 504, 'the deadline passed'),
    ({'inputs': [{**rows(1)['inputs'][0], 'data': json.loads('[' * 400 + ']' * 400)}]}, 400, ''),
    (b'[' * 90000, 400, ''),
    (b'{"inputs": 3', 400, ''),
    (b'\xff', 400, ''),
    (b' ' * 200000, 413, 'longer than 100000 bytes'),
]  # fmt: skip


@needs_serve
@pytest.mark.parametrize('workers', [0, 2])
def test_served(folder, workers):
    with serving(folder, '--workers', str(workers), '--max-bytes', '100000') as server:
        assert server.process.stdout.readline().startswith('curl ')
        assert len(server.workers) == workers
        policies = [os.sched_getscheduler(each) for each in server.workers]
        assert policies == [os.SCHED_BATCH] * workers  # who listens does not wait for them
        assert server.infer(1, 2, 4) == (200, [[6, 6], [7, 7], [9, 9]])
        for body, expected, message in BAD:
            answer = server.answer('/v2/models/layer/infer', body)
            (error,) = json.loads(answer.text).items()
            assert answer.status == expected and error[0] == 'error', (body, answer.text)
            assert re.search(message, error[1]) and 'Error:' not in error[1], (body, answer.text)
            assert server.infer(1) == (200, [[6, 6]])
        counted = server.ask('/metrics')[1].splitlines()
        assert 'edb_requests_total{model="layer",outcome="answered"} 24.0' in counted
        assert 'edb_requests_total{model="layer",outcome="expired"} 1.0' in counted
        assert 'edb_answers_total{protocol="http",status="400"} 18.0' in counted
        assert any(
            line.startswith('edb_batch_size_bucket{le="1.0",model="layer"}') for line in counted
        )
        aside = f'http://127.0.0.1:{server.metrics_port}'
        with urllib.request.urlopen(f'{aside}/metrics') as found:
            assert b'edb_requests_total' in found.read()
        with pytest.raises(urllib.error.HTTPError, match='404'):
            urllib.request.urlopen(f'{aside}/v2/models/layer')
        assert server.stop() == 0


@needs_serve
def test_pages_and_what_is_described(shared):
    server = shared
    page = server.answer('/')
    assert page.text == '<p>a page'
    assert "default-src 'none'" in page.headers['content-security-policy']
    metadata = json.loads(server.ask('/v2/models/layer')[1])
    assert metadata == json.loads(server.ask('/v2/models/layer/versions/1')[1])
    assert metadata['inputs'] == [{'name': 'samples', 'datatype': 'BYTES', 'shape': [-1]}]
    assert metadata['outputs'] == [{'name': 'answers', 'datatype': 'BYTES', 'shape': [-1]}]
    assert metadata['parameters']['schema']['properties']['row']['minItems'] == 3
    assert metadata['parameters']['example'] == {'row': [1, 2, 3]}
    for path in ('/no', '/v2/models/no', '/v2/models/layer/versions/2', '/docs'):
        assert server.ask(path)[0] == 404
    assert server.ask('/v2/models/no/infer', rows(1))[0] == 404
    assert server.answer('/v2/models/layer/infer').status == 405
    assert 'http' not in (ROOT / 'example/tree_sst/served/page.html').read_text().replace(
        'http://www.w3.org/2000/svg', ''
    )


@needs_serve
def test_models_are_changed_by_those_who_may(shared):
    server = shared
    index = json.loads(server.ask('/v2/repository/index', b'')[1])
    assert index == [
        {'name': name, 'version': '1', 'state': 'READY'} for name in ('layer', 'sum', 'parts')
    ]
    for verb in ('load', 'unload'):
        status, text = server.ask(f'/v2/repository/models/layer/{verb}', b'')
        assert status == 403 and '--model-control' in text
    assert server.infer(1)[0] == 200


@needs_serve
def test_hosts_and_origins(shared):
    body = rows(1)
    server = shared
    own = f'127.0.0.1:{server.port}'
    for host, origin, expected in [
        (own, None, 200), ('localhost', None, 200), ('[::1]:80', None, 200),
        ('models.example', None, 200), ('models.example:80', None, 200),
        ('evil.example', None, 403), (f'127.0.0.1.evil.example:{server.port}', None, 403),
        (own, f'http://{own}', 200), (own, 'https://models.example', 200),
        (own, 'http://evil.example', 403), (own, 'null', 403),
    ]:  # fmt: skip
        headers = {'Host': host, **({'Origin': origin} if origin else {})}
        for path in ('/v2/models/layer/infer', '/v2/repository/index'):
            assert server.ask(path, body, **headers)[0] == expected, headers
        assert server.ask('/', **headers)[0] == expected


@needs_serve
def test_request_ids_and_logs(folder):
    with serving(folder, '--verbose', '--log-format', 'json') as server:
        given = server.answer('/v2/models/layer/infer', rows(1), x_request_id='mine-1')
        assert given.headers['x-request-id'] == 'mine-1' == json.loads(given.text)['id']
        made = server.answer('/v2/models/layer/infer', {**rows(1), 'id': 'own'}, x_request_id='ä b')
        assert json.loads(made.text)['id'] == 'own' and made.headers['x-request-id'] != 'ä b'
        lines = [json.loads(server.process.stderr.readline()) for _ in range(2)]
        assert [line['id'] for line in lines] == ['mine-1', made.headers['x-request-id']]
        assert lines[0]['request'] == 'POST /v2/models/layer/infer' and lines[0]['status'] == 200


def test_a_line_of_a_json_log():
    try:
        raise ZeroDivisionError('a bug')
    except ZeroDivisionError:
        what = {
            'levelname': 'ERROR',
            'msg': '%s failed',
            'args': ('it',),
            'exc_info': sys.exc_info(),
        }
    line = json.loads(_JsonFormatter().format(logging.makeLogRecord(what)))
    assert (line['level'], line['message']) == ('ERROR', 'it failed')
    assert 'ZeroDivisionError: a bug' in line['traceback']
    line = json.loads(_JsonFormatter().format(logging.makeLogRecord({'fields': {'id': 'mine-1'}})))
    assert line['id'] == 'mine-1' and 'message' not in line and 'traceback' not in line


@needs_serve
def test_several_models(shared):
    server = shared
    assert server.lines[0].startswith('serve: layer, sum, parts are ready')
    assert server.infer(1) == (200, [[6, 6]])
    metadata = json.loads(server.ask('/v2/models/sum')[1])
    assert metadata['inputs'] == [
        {'name': 'row', 'datatype': 'FP32', 'shape': [-1, -1]},
        {'name': 'factor', 'datatype': 'INT64', 'shape': [-1]},
    ]
    row = {'name': 'row', 'datatype': 'FP32', 'shape': [2, 2], 'data': [[1, 2], [3, 4]]}
    factor = {'name': 'factor', 'datatype': 'INT64', 'shape': [2], 'data': [2, 3]}
    status, text = server.ask('/v2/models/sum/infer', {'inputs': [row, factor]})
    (output,) = json.loads(text)['outputs']
    assert (status, output['data'], output['shape']) == (200, [6, 21], [2, 1])
    for inputs, message in [
        ([row], 'the inputs are row, factor'),
        ([row, {**factor, 'data': [1.5, 2]}], 'no INT64'),
        ([row, {**factor, 'datatype': 'INT8', 'data': [128, 1]}], 'an element is out of range'),
        ([row, {**factor, 'datatype': 'INT32'}], 'is INT64 of shape'),
        ([row, {**factor, 'shape': [1], 'data': [1]}], 'differs between inputs'),
        ([{**row, 'shape': [4]}, factor], 'is FP32 of shape'),
    ]:
        status, text = server.ask('/v2/models/sum/infer', {'inputs': inputs})
        assert status == 400 and message in text, text
    import tritonclient.http as triton

    client = triton.InferenceServerClient(f'127.0.0.1:{server.port}')
    sent = [
        triton.InferInput('row', [1, 3], 'FP32'),
        triton.InferInput('factor', [1], 'INT64'),
    ]
    sent[0].set_data_from_numpy(np.array([[1, 2, 3]], np.float32))
    sent[1].set_data_from_numpy(np.array([10]))
    np.testing.assert_array_equal(client.infer('sum', sent).as_numpy('total'), [[60]])
    client.close()


@needs_serve
def test_curl(shared):
    server = shared
    command = server.process.stdout.readline()
    done = subprocess.run(['bash', '-c', command], capture_output=True, text=True, check=True)
    assert results(done.stdout) == [[6, 6]]


def tensor_of(triton, *firsts):
    texts = [json.dumps({'row': [first, 2, 3]}) for first in firsts]
    tensor = triton.InferInput('samples', [len(texts)], 'BYTES')
    tensor.set_data_from_numpy(np.array(texts, object))
    return tensor


@needs_serve
@pytest.mark.parametrize('kind', ['http', 'grpc'])
def test_tritonclient(folder, kind):
    if kind == 'http':
        import tritonclient.http as triton
    else:
        import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    with serving(folder, '--model-control', '--workers', '1') as server:
        port = server.port if kind == 'http' else server.grpc_port
        client = triton.InferenceServerClient(f'127.0.0.1:{port}')
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready('layer') and not_ready(client, 'no')
        options = {} if kind == 'http' else {'as_json': True}
        index = client.get_model_repository_index(**options)
        assert 'READY' in str(index) and 'layer' in str(index)
        assert 'samples' in str(client.get_model_metadata('layer', **options))
        assert 'gluon_edbatch' in str(client.get_server_metadata(**options))
        found = client.infer('layer', [tensor_of(triton, 1, 2)], request_id='mine')
        assert [json.loads(each) for each in found.as_numpy('answers')] == [[6, 6], [7, 7]]
        response = found.get_response()
        assert (response['id'] if kind == 'http' else response.id) == 'mine'
        asked = triton.InferRequestedOutput('answers')
        found = client.infer('layer', [tensor_of(triton, 4)], outputs=[asked])
        assert json.loads(found.as_numpy('answers')[0]) == [9, 9]
        if kind == 'http':
            asked = triton.InferRequestedOutput('answers', binary_data=False)
            found = client.infer('layer', [tensor_of(triton, 4)], outputs=[asked])
            assert json.loads(found.as_numpy('answers')[0]) == [9, 9]
        for firsts, message in [((13,), 'sample 0: 13 is not read'), ([1] * 513, 'split it')]:
            with pytest.raises(InferenceServerException, match=message):
                client.infer('layer', [tensor_of(triton, *firsts)])
        with pytest.raises(InferenceServerException, match='no/1 does not exist'):
            client.infer('no', [tensor_of(triton, 1)])
        client.unload_model('layer')
        assert not client.is_server_ready()
        with pytest.raises(InferenceServerException, match='is not loaded now'):
            client.infer('layer', [tensor_of(triton, 1)])
        client.load_model('layer')
        assert client.is_server_ready()
        client.close()


def not_ready(client, name):
    from tritonclient.utils import InferenceServerException

    try:
        return not client.is_model_ready(name)
    except InferenceServerException:
        return True


@needs_serve
def test_statuses_of_grpc(shared):
    import grpc
    from tritonclient.grpc import service_pb2 as messages
    from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

    def request(*texts, **parameters):
        contents = messages.InferTensorContents(bytes_contents=[each.encode() for each in texts])
        tensor = messages.ModelInferRequest.InferInputTensor(
            name='samples', datatype='BYTES', shape=[len(texts)], contents=contents
        )
        asked = messages.ModelInferRequest(model_name='layer', inputs=[tensor])
        for name, value in parameters.items():
            setattr(asked.parameters['deadline'], name, value)
        return asked

    codes = grpc.StatusCode
    with grpc.insecure_channel(f'127.0.0.1:{shared.grpc_port}') as channel:
        stub = GRPCInferenceServiceStub(channel)
        good = '{"row": [5, 2, 3]}'
        answer, call = stub.ModelInfer.with_call(request(good), metadata=[('x-request-id', 'mine')])
        assert answer.id == 'mine' and b'[10.0,10.0]' in answer.raw_output_contents[0]
        assert ('x-request-id', 'mine') in [tuple(each) for each in call.trailing_metadata()]
        for asked, code in [
            (request('{"row": [5, 2]}'), codes.INVALID_ARGUMENT),
            (request(good, bool_param=True), codes.INVALID_ARGUMENT),
            (request(good, double_param=0.0), codes.DEADLINE_EXCEEDED),
            (messages.ModelInferRequest(model_name='no'), codes.INVALID_ARGUMENT),
        ]:
            with pytest.raises(grpc.RpcError) as raised:
                stub.ModelInfer(asked)
            assert raised.value.code() == code
        control = messages.RepositoryModelLoadRequest(model_name='layer')
        with pytest.raises(grpc.RpcError, match='--model-control') as raised:
            stub.RepositoryModelLoad(control)
        assert raised.value.code() == codes.PERMISSION_DENIED


def events(text):
    """Names and data of server-sent events."""
    found = re.findall('event: (.*)\ndata: (.*)\n\n', text)
    return [(name, json.loads(data)) for name, data in found]


@needs_serve
def test_answers_in_parts(shared):
    import tritonclient.grpc as triton

    server = shared
    path, body = '/v2/models/parts/infer', request_of([2, 1])
    for more in ({'Accept': 'text/event-stream'}, {}):
        answer = server.answer(path + ('' if more else '_stream'), body, **more)
        assert answer.headers['content-type'] == 'text/event-stream'
        *parts, (name, last) = events(answer.text)
        assert name == 'answer' and last['outputs'][0]['data'] == ['2', '1']
        pairs = [[each['data'][0] for each in part['outputs']] for _, part in parts]
        words = sorted([(sample, json.loads(text)['word']) for sample, text in pairs])
        assert words == [(0, 0), (0, 1), (1, 0)]
    assert server.answer(f'{path}_stream', request_of(['no'])).status == 400
    failed = events(server.answer(f'{path}_stream', request_of([13])).text)
    assert len(failed) == 14 and failed[-1] == (
        'error', {'error': 'not computed: 13 is not computed'}
    )  # fmt: skip
    assert server.infer_of('parts', 3) == (200, [3])

    got, over = [], threading.Semaphore(0)

    def take(result, error):
        got.append(error or [result.as_numpy(name) for name in ('sample', 'part', 'answers')])
        over.release()

    client = triton.InferenceServerClient(f'127.0.0.1:{server.grpc_port}')
    client.start_stream(take)
    tensor = triton.InferInput('samples', [1], 'BYTES')
    tensor.set_data_from_numpy(np.array(['2'], object))
    client.async_stream_infer('parts', [tensor])
    client.async_stream_infer('no', [tensor])
    for _ in range(4):
        over.acquire()
    client.stop_stream()
    client.close()
    assert [json.loads(part[1][0])['word'] for part in got[:2]] == [0, 1]
    assert got[2][2][0] == b'2' and 'no/1 does not exist' in str(got[3])


@needs_serve
@pytest.mark.parametrize('workers', ['0', '2'])
def test_new_parameters_under_traffic(folder, workers):
    """Each request has the answer of the old or of the new ones, and no request is lost."""
    with (
        serving(folder, '--workers', workers, '--model-control') as server,
        traffic(server) as seen,
    ):
        wait_for(lambda: len(seen) > 5)
        for weight in (2, 3):
            layer(folder, weight)
            assert server.ask('/v2/repository/models/layer/load', b'')[0] == 200
            assert server.infer(1) == (200, [[6 * weight, 6 * weight]])
        status, text = server.ask('/v2/repository/models/no/load', b'')
        assert status == 404 and 'no model' in text
        (folder / 'model.py').write_text('def load(')
        status, text = server.ask('/v2/repository/models/layer/load', b'')
        assert status == 400 and 'SyntaxError' in text and server.infer(1) == (200, [[18, 18]])
        assert {status for status, _ in seen} == {200}
        assert {found[0][0] for _, found in seen} == {6, 12, 18}
        (folder / 'model.py').write_text(MODEL)
        assert server.ask('/v2/repository/models/layer/unload', b'')[0] == 200
        assert server.ask('/v2/health/ready')[0] == 503
        assert server.infer(1)[0] == 503
        assert server.ask('/v2/repository/models/layer/load', b'')[0] == 200
        assert server.ask('/v2/health/ready')[0] == 200 and server.infer(1)[0] == 200
        assert {status for status, _ in seen} <= {200, 503}
        answers = sum(status == 200 for status, _ in list(seen))  # before counts are asked for
        counted = server.ask('/metrics')[1]  # goes on where it was
        answered = re.search(r'outcome="answered"} (\d+)', counted)
        assert int(answered[1]) >= answers


@contextlib.contextmanager
def traffic(server, clients=3):
    """Status and results of requests that go on until the end."""
    seen, over = [], threading.Event()

    def go_on():
        while not over.is_set():
            seen.append(server.infer(1))

    threads = [threading.Thread(target=go_on) for _ in range(clients)]
    for each in threads:
        each.start()
    try:
        yield seen
    finally:
        over.set()
        for each in threads:
            each.join()


def wait_for(condition):
    while not condition():
        os.sched_yield()


def begun(folder):
    """The processes that began with a sample of `SLOW`, once for each sample."""
    file = folder / 'begun'
    return file.read_text().split() if file.exists() else []


@needs_serve
@pytest.mark.parametrize('rate, workers', [(5, 1), (60, 2), (200, 1), (200, 2)])
def test_sigterm(folder, rate, workers):
    """What was accepted is answered, all else refused, until nobody listens."""
    with serving(folder, '--workers', str(workers)) as server:
        outcomes = asyncio.run(requests_until_the_end(server, rate))
        assert server.process.wait() == 0
    assert set(outcomes) <= {200, 503, 'nobody listens'}, outcomes
    assert outcomes.count(200) and outcomes.count(503)


async def requests_until_the_end(server, rate):
    async def ask():
        try:
            reader, writer = await asyncio.open_connection('127.0.0.1', server.port)
        except ConnectionRefusedError:
            return 'nobody listens'
        head = 'POST /v2/models/layer/infer HTTP/1.1\r\nHost: localhost\r\n'
        head += f'Content-Length: {len(body)}'
        try:
            writer.write(head.encode() + b'\r\n\r\n' + body)
            found = await reader.readuntil(b'\r\n\r\n')
            length = re.search(rb'content-length: (\d+)', found)
            await reader.readexactly(int(length[1]))
            status = int(found.split()[1])
            if status == 503:
                assert b'retry-after: 1' in found
            return status
        except (ConnectionError, asyncio.IncompleteReadError):
            return 'broken'
        finally:
            writer.close()

    body, tasks = json.dumps(rows(1)).encode(), []
    for number in range(int(rate * 0.8) + 2):
        if number == int(rate * 0.2) + 1:
            server.process.send_signal(signal.SIGTERM)
        tasks.append(asyncio.ensure_future(ask()))
        await asyncio.sleep(1 / rate)
    return await asyncio.gather(*tasks)


@needs_serve
def test_a_server_that_ends_is_not_ready(tmp_path):
    """The last request is answered; health says what is so; who comes is told to go elsewhere."""
    folder = folder_of(tmp_path / 'slow', SLOW)
    with serving(folder) as server:
        taken = threading.Thread(
            target=lambda: found.append(server.infer_of('slow', 2)), daemon=True
        )
        found = []
        taken.start()
        wait_for(lambda: begun(folder))
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: server.ask('/v2/health/ready')[0] == 503)
        assert server.ask('/v2/health/live')[0] == 200
        status, text = server.ask('/v2/models/slow')
        assert status == 503 and 'the server ends' in text
        answer = server.answer('/v2/models/slow/infer', request_of([0]))
        assert answer.status == 503 and answer.headers['retry-after'] == '1'
        assert answer.headers['connection'] == 'close'
        assert server.process.wait() == 0
        taken.join()
        assert found == [(200, [2.0])]


@needs_serve
def test_a_worker_that_dies_is_replaced(tmp_path):
    folder = folder_of(tmp_path / 'slow', SLOW)
    with serving(folder, '--workers', '2') as server:
        answers = []
        threads = [
            threading.Thread(
                target=lambda: answers.append(
                    server.answer('/v2/models/slow/infer', request_of([3]))
                )
            )
            for _ in range(2)
        ]
        for each in threads:
            each.start()
        workers = server.workers
        assert len(workers) == 2
        wait_for(lambda: len(set(begun(folder))) == 2)
        os.kill(workers[0], signal.SIGKILL)
        # Until the kernel has freed its memory, nobody knows that it is gone.
        wait_for(lambda: server.infer_of('slow', 0) == (200, [0.0]))
        for each in threads:
            each.join()
        assert sorted(each.status for each in answers) == [200, 503]
        (lost,) = [each for each in answers if each.status == 503]
        assert lost.headers['retry-after'] == '1' and 'try again' in lost.text
        wait_for(lambda: len(server.workers) == 2 and workers[0] not in server.workers)
        os.kill(workers[1], signal.SIGKILL)  # so that the new one has to answer
        wait_for(lambda: server.ask('/v2/health/ready')[0] == 200)
        wait_for(lambda: server.infer_of('slow', 0) == (200, [0.0]))
        (folder / 'model.py').rename(folder / 'away.py')
        for each in server.workers:
            os.kill(each, signal.SIGKILL)
        for _ in range(2):
            assert any('a worker does not start' in line for line in server.process.stderr)
        (folder / 'away.py').rename(folder / 'model.py')  # it is tried again
        wait_for(lambda: server.infer_of('slow', 0) == (200, [0.0]))
        assert server.stop() == 0


@needs_serve
def test_slow_clients(folder):
    """A thousand halves of requests do not outlive the time that they have."""
    head = b'POST /v2/models/layer/infer HTTP/1.1\r\nHost: localhost\r\n'
    halves = [b'', b'POST', head, head + b'Content-Length: 100\r\n\r\n{']
    with serving(folder, '--timeout', '2', '--max-connections', '1500') as server:
        clients = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(1000)]
        for number, each in enumerate(clients):
            each.sendall(halves[number % 4])
        assert server.infer(1)[0] == 200
        for number, each in enumerate(clients):
            with each, each.makefile('rb') as lines:
                assert b' 408 ' in lines.readline(), number
                assert b'within 2 seconds' in lines.read()
        assert server.infer(1)[0] == 200
        idle = socket.create_connection(('127.0.0.1', server.port))
        with idle, idle.makefile('rb') as lines:
            idle.sendall(b'GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n')
            assert b' 200 ' in lines.readline()
            idle.sendall(b'\r\n')  # begins no request, and must not keep the connection
            assert b' 408 ' in lines.read()


@needs_serve
@pytest.mark.parametrize('limit', ['connections', 'files'])
def test_too_many_connections(folder, limit):
    options = ['--max-connections', '20'] if limit == 'connections' else []
    shell = '' if limit == 'connections' else 'ulimit -n 104'  # of which 64 are spare
    with serving(folder, *options, '--timeout', '3', shell=shell) as server:
        idle = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(20)]
        wait_for(lambda: server.ask('/v2/health/live')[0] == 503)
        answer = server.answer('/v2/models/layer/infer', rows(1))
        assert answer.status == 503 and answer.headers['retry-after'] == '1'
        assert 'too many connections' in answer.text
        more = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(40)]
        for each in more[::2]:
            each.sendall(b'GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n')
        for number, each in enumerate(more):  # those that nobody reads any more are told, too
            with each, each.makefile('rb') as lines:
                known = (b'503', b'408') if number % 2 else (b'503',)
                assert lines.readline().split()[1] in known and lines.read()
        for each in idle:
            each.close()
        wait_for(lambda: server.infer(1)[0] == 200)


@needs_serve
def test_bodies_in_pieces_and_connections_that_go_on(shared):
    server = shared
    connection = http.client.HTTPConnection('127.0.0.1', server.port)
    body = json.dumps(rows(1)).encode()
    for _ in range(3):
        pieces = iter([body[:10], body[10:]])
        connection.request('POST', '/v2/models/layer/infer', pieces, encode_chunked=True,
                           headers={'Transfer-Encoding': 'chunked'})  # fmt: skip
        answer = connection.getresponse()
        assert answer.status == 200 and results(answer.read()) == [[6, 6]]
    kept = connection.sock
    connection.request('POST', '/v2/models/no/infer', body)  # of which the body is not read
    assert connection.getresponse().read() and connection.sock is kept
    pieces = iter([b' ' * 60000, b' ' * 60000])
    connection.request('POST', '/v2/models/layer/infer', pieces, encode_chunked=True,
                       headers={'Transfer-Encoding': 'chunked'})  # fmt: skip
    assert connection.getresponse().status == 413
    answer = server.answer('/v2/models/layer/infer', body, content_encoding='gzip')
    assert answer.status == 415
    raw = socket.create_connection(('127.0.0.1', server.port))
    raw.sendall(b'no request\r\n\r\n')
    with raw, raw.makefile('rb') as lines:
        assert b' 400 ' in lines.readline() and b'{"error":' in lines.read()


@needs_serve
def test_who_goes_away_is_not_waited_for(tmp_path):
    folder = folder_of(tmp_path / 'slow', SLOW)
    with serving(folder) as server:
        body = json.dumps(request_of([1.0])).encode()
        head = (
            f'POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}'
        )
        clients = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(30)]
        for each in clients:
            each.sendall(head.encode() + b'\r\n\r\n' + body)
            wait_for(lambda: begun(folder))  # the others come while the first is computed
        for each in clients:
            each.close()
        assert server.infer_of('slow', 0) == (200, [0.0])
        assert len(begun(folder)) < len(clients)
        assert 'status="499"' in server.ask('/metrics')[1]
        assert server.stop() == 0 and server.process.stderr.read() == ''


@needs_serve
def test_a_bug_of_the_server_is_told_to_its_log(caplog):
    from gluon_edbatch_core.serving import worker_processes
    from gluon_edbatch_core.serving.open_inference import Call

    class Broken:
        async def infer(self, *_):
            raise ZeroDivisionError('a bug')

    call = Call('http', 'any/1', 'mine-1', json.dumps(rows(1)).encode())
    answer = asyncio.run(worker_processes._answer(call, print, {'any': Path()}, {'any': Broken()}))
    assert answer.status == 500 and b'the log tells more' in answer.body
    assert b'a bug' not in answer.body and 'ZeroDivisionError: a bug' in answer.traceback

    async def ask():
        pool = worker_processes.WorkerPool({}, 0)
        worker = worker_processes.Worker(FakeWriter(), None)
        parts = pool.ask(call, worker)
        asyncio.get_running_loop().call_soon(lambda: worker.calls[0](answer))
        return [each async for each in parts]

    assert asyncio.run(ask()) == [answer]
    assert 'request mine-1 failed' in caplog.text and 'ZeroDivisionError: a bug' in caplog.text


class FakeWriter:
    """Nobody reads what is written."""

    def write(self, data):
        pass


class FakePool:
    """Has one model, and nobody to evaluate."""

    def __init__(self):
        self.folders, self.models, self.workers = {'any': Path()}, {'any': {}}, [None]


@needs_serve
def test_more_requests_than_can_be_done_while_one_waits_are_refused(monkeypatch):
    """A hundred a second, of which a second is waited for."""
    from gluon_edbatch_core.serving import front as fronts

    now = [0.0]
    monkeypatch.setattr(fronts, 'monotonic', lambda: now[0])
    front = fronts.Front(FakePool(), SimpleNamespace(max_wait=1.0))
    opened = [front.admitted() for _ in range(300)]
    for each in opened:
        each.__enter__()  # nothing is known yet
    for each in opened[:250]:
        now[0] += 0.01
        each.__exit__(None, None, None)
    assert front.open == 50
    opened = opened[250:]
    with pytest.raises(fronts.RequestError, match='requests are open, which takes some') as raised:
        while True:
            one = front.admitted()
            one.__enter__()
            opened.append(one)
    assert raised.value.status == 503 and 98 <= front.open <= 102
    for each in opened:
        now[0] += 0.1  # a tenth of the speed
        each.__exit__(None, None, None)
    opened = [front.admitted() for _ in range(fronts.LEAST_OPEN)]
    for each in opened:
        each.__enter__()
    with pytest.raises(fronts.RequestError):
        front.admitted().__enter__()
    front.is_draining = True
    with pytest.raises(fronts.RequestError, match='the server ends'):
        front.admitted().__enter__()
    assert asyncio.run(front._other('/v2', None, False)).status == 503


@needs_serve
def test_binary_data():
    from gluon_edbatch_core.serving import open_inference as protocol

    def read(body, length):
        return protocol.read(protocol.Call('http', 'any/1', 'id', body, length))

    def body(raw, shape, datatype='BYTES', **more):
        tensor = {'name': 'any', 'shape': shape, 'datatype': datatype}
        tensor['parameters'] = {'binary_data_size': len(raw), **more}
        text = json.dumps({'inputs': [tensor]}).encode()
        return text + raw, str(len(text))

    text = struct.pack('<I', 3) + b'abc'
    assert read(*body(text * 2, [2])).inputs['any'].tolist() == [b'abc'] * 2
    array = read(*body(np.arange(6.0).tobytes(), [2, 3], 'FP64')).inputs['any']
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    for wrong, message in [
        (body(text[:-1], [1]), 'no BYTES'),
        (body(text[:2], [1]), 'no BYTES'),
        (body(b'123', [1], 'FP32'), 'no FP32'),
        (body(text, [1], binary_data_size=99), 'beyond the body'),
        (body(text, [1], binary_data_size=True), 'beyond the body'),
        ((b'{}', '3'), 'not a length within'),
        ((b'{}', 'x'), 'not a length within'),
    ]:
        with pytest.raises(protocol.RequestError, match=message) as raised:
            read(*wrong)
        assert raised.value.status == 400
    array, plain = np.array([np.nan, 1], np.float32), read(*body(text, [1]))
    assert b'[NaN,1.0]' in protocol.write(plain, {'x': array}).body
    answer = protocol.write(plain._replace(is_raw=True), {'x': array})
    assert answer.body[int(answer.headers[protocol.HEADER_LENGTH]) :] == array.tobytes()


def test_what_a_sample_emits_is_given_once(monkeypatch):
    """Also where it begins again, as another's evaluation has failed."""
    import mxnet as mx

    parts, again = [], []

    def predict(number):
        edb.serving.emit(number)
        value = yield mx.nd.array([number])
        if number == 2 and len(again) < 1:
            again.append(number)
            raise mx.base.MXNetError('maybe of another')
        edb.serving.emit(float(value.asscalar()) if hasattr(value, 'asscalar') else float(value[0]))
        return number

    async def ask():
        async with edb.serving.Engine(predict) as engine:
            replies = engine.submit_all([1, 2, 3], part=lambda *each: parts.append(each))
            return await asyncio.gather(*replies)

    assert asyncio.run(ask()) == [1, 2, 3] and again
    assert sorted(parts) == [(0, 1), (0, 1.0), (1, 2), (1, 2.0), (2, 3), (2, 3.0)]
    edb.serving.emit('to nobody')


@needs_serve
def test_traces(folder):
    pytest.importorskip('opentelemetry.instrumentation.asgi')
    trace_service = pytest.importorskip(
        'opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc'
    )
    pytest.importorskip('opentelemetry.exporter.otlp.proto.grpc.trace_exporter')
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    names = []

    class Collector(trace_service.TraceServiceServicer):
        def Export(self, request, context):
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    names.extend(span.name for span in scope.spans)
            return trace_service_pb2.ExportTraceServiceResponse()

    collector = grpc.server(ThreadPoolExecutor(2))
    trace_service.add_TraceServiceServicer_to_server(Collector(), collector)
    port = collector.add_insecure_port('127.0.0.1:0')
    collector.start()
    endpoint = f'http://127.0.0.1:{port}'
    with serving(folder, '--otel', OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as server:
        assert server.infer(1)[0] == 200
        assert server.stop() == 0
    collector.stop(None)
    assert any('/v2/models/layer/infer' in name for name in names), names


def test_the_systemd_unit_is_well_formed(tmp_path):
    text = (ROOT / 'scripts/gluon-edbatch.service').read_text()
    unit = ConfigParser(delimiters='=', comment_prefixes='#', interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    program, _, options = unit['Service']['ExecStart'].partition(' ')
    assert unit['Service']['KillMode'] == 'mixed' and unit['Install']['WantedBy']
    if find_spec('tritonclient') is not None:
        _, *given = options.replace('/srv/models/sentiment', str(tmp_path)).split()
        assert given[0] == 'gluon_edbatch.serving' and _options(given[1:]).log_format == 'json'
    verify = shutil.which('systemd-analyze')
    if verify:
        copy = tmp_path / 'gluon-edbatch.service'
        copy.write_text(text.replace(program, sys.executable))
        done = subprocess.run([verify, 'verify', copy], capture_output=True, text=True)
        assert copy.name not in done.stderr, done.stderr


def test_the_dockerfile_is_well_formed():
    text = (ROOT / 'scripts/Dockerfile').read_text().replace('\\\n', ' ')
    lines = [line for line in text.splitlines() if line and not line.startswith('#')]
    steps = [line.split(maxsplit=1) for line in lines]
    known = 'FROM RUN COPY USER ENV EXPOSE HEALTHCHECK STOPSIGNAL ENTRYPOINT'.split()
    assert {name for name, _ in steps} == set(known) and steps[0][0] == 'FROM'
    assert [name for name, _ in steps].index('USER') < len(steps) - 1  # it is not root that serves
    for name, what in steps:
        if '[' in what.split()[0] or name == 'HEALTHCHECK':
            assert all(isinstance(each, str) for each in json.loads(what[what.index('[') :]))
    assert 'python -m gluon_edbatch.serving' in steps[-1][1]


@needs_serve
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
