"""Which line a call is said to be of: the user's, and that of a library that made it."""

import threading
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model.transformer import TransformerEncoder
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.record.sites import Site
from tests.support.models import started

SOURCE = Path(__file__).read_text(encoding='utf-8').splitlines()


def line(marker):
    """Return the line of this file that ends with ``# marker``."""
    (found,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith(f'# {marker}')]
    return found


def sites(scope):
    """Return the lines of all calls, each once."""
    return sorted({place.site for place in scope.explain().places})


def compiled(filename, source, **names):
    """What code in a file of that name defines."""
    exec(compile(source, filename, 'exec'), names)
    return names


def encoder():
    return started(
        TransformerEncoder(units=4, hidden_size=4, num_layers=1, num_heads=2, max_length=9)
    )


def test_calls_of_an_installed_library():
    net = encoder()
    with edb.batching() as scope:
        net(mx.nd.ones((1, 3, 4)))  # library
    ((filename, number, (inner,)),) = sites(scope)
    assert (filename, number) == (__file__, line('library'))
    assert (
        '__call__' in Path(inner.filename).read_text(encoding='utf-8').splitlines()[inner.line - 1]
    )
    shown = f'test_sites.py:{number} → gluonnlp/model/seq2seq_encoder_decoder.py:{inner.line} '
    assert shown in str(scope.explain())


def test_calls_of_gluon():
    cell = started(gluon.rnn.LSTMCell(2, input_size=3))
    with edb.batching() as scope:
        cell.unroll(2, mx.nd.ones((1, 2, 3)), layout='NTC', merge_outputs=False)  # unrolled
    inner = [site.library[0] for site in sites(scope) if site.line == line('unrolled')]
    assert {Path(site.filename).name for site in inner} == {'rnn_cell.py'}
    assert all(site.library for site in sites(scope))


def test_calls_of_the_users_own_modules(tmp_path):
    helper = compiled(str(tmp_path / 'helper.py'), '\ndef attend(net, x):\n    return net(x)\n')
    with edb.batching() as scope:
        helper['attend'](started(gluon.nn.Dense(2, in_units=3)), np.ones((1, 3), 'float32'))
    assert sites(scope) == [Site(str(tmp_path / 'helper.py'), 3)]


def test_a_library_that_nobody_called():
    """A program that is installed has its own lines, and not those of what started it."""
    main = compiled('/x/site-packages/tool/main.py', 'def main(net, x):\n    net(x)\n')['main']
    net, found = started(gluon.nn.Dense(2, in_units=3)), []

    def record():
        with edb.batching() as scope:
            main(net, np.ones((1, 3), 'float32'))
        found.extend(sites(scope))

    runs = compiled('/x/site-packages/tool/run.py', 'run = lambda record: record()')['run']
    thread = threading.Thread(target=runs, args=(record,))
    thread.start()
    thread.join()
    assert [site.filename for site in found] == [__file__]
    assert found[0].library[0].filename.endswith('main.py')

    scope = edb.batching()
    program = compiled(
        '/x/site-packages/tool/main.py',
        'def main():\n    with scope:\n        net(x)\n',
        scope=scope,
        net=net,
        x=np.ones((1, 3), 'float32'),
    )
    thread = threading.Thread(target=program['main'])
    thread.start()
    thread.join()
    assert sites(scope) == [Site('/x/site-packages/tool/main.py', 3)]


def test_errors_name_both_lines():
    net = encoder()
    with edb.batching(), pytest.raises(edb.RecordError) as raised:
        net(mx.nd.ones((1, 3, 5)))  # refused
    where = f'called at {__file__}:{line("refused")} → gluonnlp/model/seq2seq_encoder_decoder.py:'
    assert where in str(raised.value)
