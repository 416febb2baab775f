"""Some hundred requests at once to a model that looks at its values: by the engine in this process,
and over HTTP where a folder and three ports are given."""

import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import mxnet as mx
from digits.model import Continue

import gluon_edbatch as edb


async def engine(net, samples):
    """What each sample's task had: a result, or an error of its own."""
    async with edb.serving.Engine(net.predict, warm_up=samples[:16]) as engine:
        tasks = [engine.submit(sample, deadline=60) for sample in samples]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        return answers, engine.metrics()


def ask(base, samples):
    """Answers to samples of one request, or status and message of the server."""
    data = [json.dumps(sample) for sample in samples]
    tensor = {'name': 'samples', 'shape': [len(data)], 'datatype': 'BYTES', 'data': data}
    request = urllib.request.Request(
        f'{base}/v2/models/digits/infer',
        json.dumps({'inputs': [tensor]}).encode(),
        {'Content-Type': 'application/json'},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return [json.loads(text) for text in json.load(answer)['outputs'][0]['data']]
    except urllib.error.HTTPError as error:
        return [error.code, json.load(error)['error']]


def over_http(net, samples, folder, ports):
    """What a server of its own answers, to samples and to a bad one, and how it ends."""
    shutil.copytree(Path(__file__).parent / 'digits', folder)
    net.save_parameters(str(folder / 'net.params'))
    names = ['--port', '--grpc-port', '--metrics-port']
    options = [text for pair in zip(names, map(str, ports)) for text in pair]
    command = [sys.executable, '-m', 'gluon_edbatch.serving', str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        base = f'http://127.0.0.1:{ports[0]}'
        for line in server.stdout:
            if line.startswith('serve: digits is ready'):
                break
        answers, refused = ask(base, samples), ask(base, [[1, 2], [3, 10]])
        server.send_signal(signal.SIGTERM)
        server.stdout.read()
        return {'http': answers, 'refused': refused, 'status': server.wait()}


def main(folder=None, *ports):
    """How many were answered, whether as eagerly, and what was wrong with the others."""
    random.seed(1)
    mx.random.seed(1)
    net = Continue()
    net.initialize(mx.init.Normal(1))
    samples = [[random.randrange(10) for _ in range(random.randint(1, 9))] for _ in range(300)]
    expected = edb.run_concurrently(samples[:40], net.predict)  # outside of a scope: one by one
    bad = 150
    requests = [*samples[:bad], [1, 'two'], *samples[bad:]]
    answers, metrics = asyncio.run(engine(net, requests))
    error = answers.pop(bad)
    told = {
        'as eager': answers[:40] == expected,
        'error': f'{type(error).__name__}: {error}',
        'outcomes': metrics.outcomes,
        'lengths': sorted({len(answer) for answer in answers}),
    }
    if folder:
        told.update(over_http(net, samples[:3], Path(folder), ports), expected=expected[:3])
    return told


if __name__ == '__main__':
    print(json.dumps(main(*sys.argv[1:])))
