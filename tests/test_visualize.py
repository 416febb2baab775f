"""Pictures of schedules: every node once, one colour a batch, well-formed whatever the names."""
from xml.etree import ElementTree

import mxnet as mx
import pytest
from hypothesis import given, settings
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.graph import Graph
from gluon_edbatch.schedule import get_scheduler
from gluon_edbatch.visualize import _layout
from support.strategies import graphs

SVG = '{http://www.w3.org/2000/svg}'
NAMED = Graph.from_lists([0, 0, 1, 1], [[], [], [0, 1, 0], [2]], type_names=['<in> & "x"', 'cell'])


def drawn(path):
    """(title, colour) of each node, and the lines of the legend."""
    root = ElementTree.parse(path).getroot()
    nodes = [(group.find(f'{SVG}title').text, group[1].get('fill')) for group in root.iter(f'{SVG}g')
             if group.find(f'{SVG}title') is not None]
    texts = [text.text for text in root.iter(f'{SVG}text')]
    return nodes, texts[len(nodes):], list(root.iter(f'{SVG}line'))


def test_nodes_have_the_colour_of_their_batch(tmp_path):
    path = tmp_path / 'graph.svg'
    edb.visualize.schedule((NAMED, get_scheduler('depth').schedule(NAMED)), path)
    nodes, legend, lines = drawn(path)
    assert [title for title, _ in nodes] == [
        '<in> & "x", node 0, batch 1', '<in> & "x", node 1, batch 1', 'cell, node 2, batch 2',
        'cell, node 3, batch 3']
    colours = [colour for _, colour in nodes]
    assert colours[0] == colours[1] and len(set(colours)) == 3
    assert legend == ['1: 2 x <in> & "x"', '2: 1 x cell', '3: 1 x cell']
    assert len(lines) == 3 and [entry.name for entry in tmp_path.iterdir()] == ['graph.svg']


@settings(max_examples=100, deadline=None)
@given(graph=graphs())
def test_no_two_nodes_are_in_one_place_and_results_are_above(graph):
    x, y = _layout(graph)
    assert len(set(zip(x.round(3).tolist(), y.tolist()))) == len(graph)
    assert (y[graph.inputs] < y[graph.readers]).all()


def test_empty_graph(tmp_path):
    graph = Graph.from_lists([], [])
    edb.visualize.schedule((graph, get_scheduler('depth').schedule(graph)), tmp_path / 'none.svg')
    assert drawn(tmp_path / 'none.svg') == ([], [], [])


def test_scope(tmp_path):
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    with edb.batching() as scope:
        values = [net(mx.nd.ones((1, 3))) for _ in range(4)]
    with pytest.raises(ValueError, match='nothing of this scope was evaluated yet'):
        edb.visualize.schedule(scope, tmp_path / 'scope.svg')
    edb.forward(values)
    edb.visualize.schedule(scope, tmp_path / 'scope.svg')
    nodes, legend, _ = drawn(tmp_path / 'scope.svg')
    assert len(nodes) == 4 and len(legend) == 1 and legend[0].startswith('1: 4 x Dense(dense')


def test_what_was_there_stays_if_drawing_fails(tmp_path):
    path = tmp_path / 'graph.svg'
    path.write_text('old')
    with pytest.raises(TypeError):
        edb.visualize.schedule((NAMED, None), path)
    assert path.read_text() == 'old' and len(list(tmp_path.iterdir())) == 1


def test_explanation(tmp_path):
    net = gluon.nn.Dense(2, in_units=3, flatten=False)
    net.initialize()
    with edb.batching() as scope:
        values = [net(mx.nd.ones(shape)) for shape in [(1, 3)] * 3 + [(1, 2, 3)]]
        values[0].asnumpy()
        values += [net(mx.nd.ones((1, 3)))]
    edb.forward(values)
    explanation = scope.explain()
    edb.visualize.explanation(scope, tmp_path / 'scope.svg')
    edb.visualize.explanation(explanation, tmp_path / 'explanation.svg')
    assert (tmp_path / 'scope.svg').read_text() == (tmp_path / 'explanation.svg').read_text()
    root = ElementTree.parse(tmp_path / 'scope.svg').getroot()
    bars = [rect for rect in root.iter(f'{SVG}rect') if rect.find(f'{SVG}title') is not None]
    places = explanation.places
    assert len(bars) == sum(one.batches for one in places)
    colours = {bar.get('fill') for bar in bars}
    assert len(colours) == 2
    heights = sorted(float(bar.get('height')) for bar in bars)
    assert heights == [10, 30, 40]  # of 4 that are possible, and of 1
    texts = '\n'.join(text.text for text in root.iter(f'{SVG}text'))
    assert 'values = [net(mx.nd.ones(shape))' in texts and 'another shape' in texts
    assert 'Dense: 4 calls in 2 batches, the largest of 3 (4 possible)' in texts


def test_explanation_of_nothing(tmp_path):
    edb.visualize.explanation(edb.batching(), tmp_path / 'none.svg')
    assert drawn(tmp_path / 'none.svg')[0] == []
    assert 'nothing was recorded' in (tmp_path / 'none.svg').read_text()
