"""Pictures of schedules: every node once, one colour a batch, well-formed whatever the names; as
SVG, and as the pixels that a renderer makes of it."""

import re
import sys
import warnings
from collections import Counter
from xml.etree import ElementTree

import matplotlib
import mxnet as mx
import numpy as np
import pytest
import resvg_py
from hypothesis import given, settings
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.report import program_picture
from gluon_edbatch.report.page import colour
from gluon_edbatch.report.visualize import _Placement
from gluon_edbatch_core.branching.program_graph import gotos
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule import get_scheduler
from tests.support.models import TreeLSTM, random_trees, started
from tests.support.processes import run_python
from tests.support.strategies import graphs

SVG = '{http://www.w3.org/2000/svg}'
WAY = r'block (\d+) to block (\d+): (\d+) samples'
NAMED = Graph.from_lists([0, 0, 1, 1], [[], [], [0, 1, 0], [2]], type_names=['<in> & "x"', 'cell'])


def titled(path, kind):
    """What is shown when each element of this kind is pointed at, and the element."""
    return [
        (element.find(f'{SVG}title').text, element)
        for element in ElementTree.parse(path).getroot().iter(f'{SVG}{kind}')
        if element.find(f'{SVG}title') is not None
    ]


def style(element, name):
    """One of the element's properties, if it is set."""
    found = re.search(rf'\b{name}: ([^;]+)', element.get('style'))
    return found and found[1]


def texts(path):
    """Headings, the lines of a legend or an explanation: what is not in a node or a box."""
    root = ElementTree.parse(path).getroot()
    for group in root.iter(f'{SVG}g'):
        if group.find(f'{SVG}title') is not None:
            group.clear()
    return [text.text for text in root.iter(f'{SVG}text')]


def places(element):
    """The points of a path, as (x, y)."""
    numbers = re.findall(r'-?[\d.]+', element.get('d'))
    return np.array(numbers, float).reshape(-1, 2)


def drawn(path):
    """(title, colour) of each node, the headings and lines of the legend, and number of edges."""
    root = ElementTree.parse(path).getroot()
    lines = [
        line
        for group in root.iter(f'{SVG}g')
        if group.get('id', '').startswith('line2d')
        for line in group.iter(f'{SVG}path')
        if style(line, 'fill') == 'none'
    ]
    return (
        [(title, style(node, 'fill')) for title, node in titled(path, 'use')],
        texts(path),
        sum([line.get('d').count('M') for line in lines]),
    )


def pixels(path):
    """How often each colour occurs when a program draws the picture, and its size."""
    png = bytes(resvg_py.svg_to_bytes(svg_path=str(path), dpi=96))
    image = mx.image.imdecode(png).asnumpy()
    assert (image[0, 0] == 255).all()  # the background
    return (
        Counter(map('#{:02x}{:02x}{:02x}'.format, *image.reshape(-1, 3).T.tolist())),
        image.shape[:2],
    )


def assert_known_colours(path):
    """Assert that all colours are written in forms that every program knows."""
    for found in re.findall(r'\b(?:fill|stroke): ([^;"]+)', path.read_text()):
        assert re.fullmatch('#[0-9a-f]{6}|none', found)


def test_nodes_have_the_colour_of_their_batch(tmp_path):
    path = tmp_path / 'graph.svg'
    edb.visualize.schedule((NAMED, get_scheduler('depth').schedule(NAMED)), path)
    nodes, legend, edges = drawn(path)
    assert [title for title, _ in nodes] == [
        '<in> & "x", node 0, batch 1',
        '<in> & "x", node 1, batch 1',
        'cell, node 2, batch 2',
        'cell, node 3, batch 3',
    ]
    colours = [colour for _, colour in nodes]
    assert colours[0] == colours[1] and len(set(colours)) == 3
    assert legend == [
        '4 calls in 3 batches (lower bound 3)',
        '1: 2 x <in> & "x"',
        '2: 1 x cell',
        '3: 1 x cell',
    ]
    assert edges == 3 and [entry.name for entry in tmp_path.iterdir()] == ['graph.svg']


@settings(max_examples=100, deadline=None)
@given(graph=graphs())
def test_no_two_nodes_are_in_one_place_and_results_are_above(graph):
    layout = _Placement(graph)
    for a, b in zip(graph.inputs.tolist(), graph.readers.tolist()):
        assert layout.part[a] == layout.part[b]
    for width in (1, 200, 10**6):
        x, y = layout.placed(width)
        assert len(set(zip(x.round(3).tolist(), y.tolist()))) == len(graph)
        assert not len(graph) or min(x.min(), y.min()) > 0
        assert not len(graph) or x.max() < max(width, layout.widths.max())
        for a, b in zip(graph.inputs.tolist(), graph.readers.tolist()):
            assert y[b] < y[a]


def minibatch(count, read=()):
    """A scope of trees, evaluated after those of some numbers and after all."""
    net = started(TreeLSTM())
    with edb.batching() as scope:
        values = []
        for number, tree in enumerate(random_trees(count)):
            values.append(net(tree))
            if number in read:
                values[-1].asnumpy()
    edb.forward(values)
    return scope


def test_64_trees_fit_a_screen_and_each_batch_has_its_colour(tmp_path):
    scope, path = minibatch(64), tmp_path / 'trees.svg'
    edb.visualize.schedule(scope, path)
    assert_known_colours(path)
    colours, (height, width) = pixels(path)
    assert width <= 1600 and height <= 900 and 1.2 < width / height < 2.6
    ((_graph, made),) = scope.schedules()
    assert len({colour(number) for number in range(len(made))}) == len(made)
    each = [colours[colour(number)] / len(nodes) for number, nodes in enumerate(made)]
    assert min(each) > 10, 'a node is some pixels'
    assert colours['#ffffff'] > 0.6 * height * width
    dark = sum(
        [
            n
            for colour, n in colours.items()
            if int(colour[1:3], 16) < 40 and int(colour[3:5], 16) < 40 and int(colour[5:], 16) < 40
        ]
    )
    assert dark < 0.02 * height * width, 'text and outlines'


def test_all_evaluations_are_drawn(tmp_path):
    scope, path = minibatch(9, read=(2, 5)), tmp_path / 'scope.svg'
    edb.visualize.schedule(scope, path)
    nodes, lines, _ = drawn(path)
    schedules = scope.schedules()
    assert len(schedules) == 3 and len(nodes) == sum([len(graph) for graph, _ in schedules])
    assert [line for line in lines if line.startswith('Evaluation')] == [
        f'Evaluation {i + 1} of 3: {len(graph)} calls in {len(made)} batches (lower bound '
        f'{len(made)})'
        for i, (graph, made) in enumerate(schedules)
    ]
    for evaluation in (0, 1, -1):
        edb.visualize.schedule(scope, path, evaluation)
        nodes, lines, _ = drawn(path)
        assert len(nodes) == len(schedules[evaluation][0])
        assert lines[0].startswith(f'Evaluation {evaluation % 3 + 1} of 3')
    with pytest.raises(IndexError):
        edb.visualize.schedule(scope, path, 3)


def test_sum_over_the_samples_does_not_make_them_one(tmp_path):
    net = started(TreeLSTM())
    with edb.batching() as scope:
        total = edb.add_n([net(tree) for tree in random_trees(64)])
    total.asnumpy()
    ((graph, _),) = scope.schedules()
    layout, path = _Placement(graph), tmp_path / 'sum.svg'
    assert len(layout.widths) == 65 and np.flatnonzero(layout.joins).tolist() == [len(graph) - 1]
    edb.visualize.schedule(scope, path)
    _, (height, width) = pixels(path)
    assert width <= 1600 and height <= 900
    assert drawn(path)[2] == len(set(zip(graph.inputs.tolist(), graph.readers.tolist())))
    x, y = layout.placed(1500)
    assert y.argmin() == len(graph) - 1 and 0.2 < x[-1] / x.max() < 0.8


def test_large_legends_are_cut(tmp_path):
    graph = Graph.from_lists([0] * 300, [[]] * 300, type_names=['x' * 300])
    made = get_scheduler('unbatched').schedule(graph)
    edb.visualize.schedule((graph, made), tmp_path / 'graph.svg')
    nodes, lines, _ = drawn(tmp_path / 'graph.svg')
    assert len(nodes) == 300 and len(lines) < 60 and max(map(len, lines)) <= 60
    assert re.fullmatch(r'and 2\d\d more batches', lines[-1])


def test_empty_graph(tmp_path):
    graph = Graph.from_lists([], [])
    edb.visualize.schedule((graph, get_scheduler('depth').schedule(graph)), tmp_path / 'none.svg')
    assert drawn(tmp_path / 'none.svg') == ([], ['0 calls in 0 batches (lower bound 0)'], 0)


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
    assert len(nodes) == 4 and len(legend) == 2 and legend[1].startswith('1: 4 x Dense(dense')


def test_what_was_there_stays_if_drawing_fails(tmp_path):
    path = tmp_path / 'graph.svg'
    path.write_text('old')
    with pytest.raises(TypeError):
        edb.visualize.schedule((NAMED, None), path)
    assert path.read_text() == 'old' and len(list(tmp_path.iterdir())) == 1
    (tmp_path / 'folder').mkdir()
    with pytest.raises(OSError):
        edb.visualize.explanation(edb.batching(), tmp_path / 'folder')
    assert {entry.name for entry in tmp_path.iterdir()} == {'folder', 'graph.svg'}


def test_without_matplotlib_an_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    with pytest.raises(ImportError, match=r"matplotlib: `pip install '\.\[cpu,pictures\]'`"):
        edb.visualize.explanation(edb.batching(), tmp_path / 'none.svg')
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_imported_only_to_draw():
    done = run_python('-c', 'import sys, gluon_edbatch; sys.exit("matplotlib" in sys.modules)')
    assert done.returncode == 0, done.stderr


def test_the_same_drawing_gives_the_same_file_whatever_the_settings(tmp_path):
    made = NAMED, get_scheduler('depth').schedule(NAMED)
    edb.visualize.schedule(made, tmp_path / 'one.svg')
    with matplotlib.rc_context({'font.size': 30, 'svg.fonttype': 'path', 'text.color': 'red'}):
        edb.visualize.schedule(made, tmp_path / 'two.svg')
        assert matplotlib.rcParams['font.size'] == 30
    assert (tmp_path / 'one.svg').read_bytes() == (tmp_path / 'two.svg').read_bytes()


def test_names_are_shown_as_they_are(tmp_path):
    names = ['back\\slash \\N', '"quoted\\"', "<b>'&amp;'</b> ü 漢", '$\\frac{x}$ $y$ ]]>']
    graph = Graph.from_lists([0, 1, 2, 3, 4], [[]] * 5, type_names=[*names, 'one\ntwo\x00\x1b'])
    path = tmp_path / 'graph.svg'
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        edb.visualize.schedule((graph, get_scheduler('depth').schedule(graph)), path)
    nodes, lines, _ = drawn(path)
    assert {title.rpartition(', node ')[0] for title, _ in nodes} == {*names, 'one\ntwo  '}
    assert {line[7:].strip() for line in lines[1:]} == {*names, 'one two'}


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
    bars = [group.find(f'{SVG}path') for _, group in titled(tmp_path / 'scope.svg', 'g')]
    assert len(bars) == sum(one.batches for one in explanation.places)
    colours = {style(bar, 'fill') for bar in bars}
    assert len(colours) == 2
    assert_known_colours(tmp_path / 'scope.svg')
    drawn_colours, _ = pixels(tmp_path / 'scope.svg')
    assert all(drawn_colours[colour] >= 200 for colour in colours)  # bars of 10 to 40 pixels
    heights = sorted(np.ptp(places(bar)[:, 1]) * 96 / 72 for bar in bars)
    assert np.allclose(heights, [10, 30, 40], atol=1e-3)  # of 4 that are possible, and of 1
    told = '\n'.join(texts(tmp_path / 'scope.svg'))
    assert 'values = [net(mx.nd.ones(shape))' in told and 'another shape' in told
    assert 'Dense: 4 calls in 2 batches, the largest of 3 (4 possible)' in told


class Skips(gluon.Block):
    """Skips blocks, counts those that it runs, and goes on while it may."""

    def __init__(self, bounds=(0.0, 0.0)):
        super().__init__()
        self.bounds = bounds
        with self.name_scope():
            self.layers = gluon.nn.Sequential()
            self.layers.add(*[gluon.nn.Dense(4, in_units=4) for _ in bounds])
            self.gate = gluon.nn.Dense(1, in_units=4)

    def forward(self, x):
        ran = 0
        for layer, bound in zip(self.layers, self.bounds):
            if self.gate(x).asscalar() > bound:
                x = mx.nd.tanh(layer(x))
                ran += 1
        while x.sum().asscalar() < 0:
            x = x + 1
        return x, ran


def skipping(bounds=(0.0, 0.0)):
    """The program of such a network, and samples of which it skips some."""
    net = Skips(bounds)
    mx.random.seed(4)
    net.initialize(mx.init.Normal(1))
    samples = [mx.nd.random.normal(shape=(1, 4)) for _ in range(20)]
    return edb.compile_program(net, samples[0]), samples


def boxes(path):
    """The title of each block, its texts, the colours behind these, and the corners of its box."""
    return [
        (
            title,
            [text.text for text in group.iter(f'{SVG}text')],
            [fill for fill in fills if fill not in ('#ffffff', 'none')],
            places(group.find(f'.//{SVG}path')),
        )
        for title, group in titled(path, 'g')
        for fills in [[style(part, 'fill') for part in group.iter(f'{SVG}path')]]
        if group.find(f'.//{SVG}text') is not None
    ]


def arrows(path):
    """The ends of each way, how many samples took it, and the points of its line."""
    found = [(re.fullmatch(WAY, title), group) for title, group in titled(path, 'g')]
    return [
        (*map(int, match.groups()), places(group.find(f'.//{SVG}path')))
        for match, group in found
        if match
    ]


def test_a_program_with_the_share_of_each_way(tmp_path):
    program, samples = skipping()
    program(samples)
    path = tmp_path / 'program.svg'
    edb.visualize.program(program, path)
    assert_known_colours(path)
    drawn_boxes, graph = boxes(path), program.inference.graph
    assert [title for title, *_ in drawn_boxes] == [
        title.rstrip('\n')
        for title in re.findall(r'block \d+ .*?(?=\nblock|$)', str(program), re.DOTALL)
    ]
    for (title, lines, fills, _), block, ways in zip(
        drawn_boxes, graph.blocks, program.inference.counts.taken
    ):
        runs = [step.network for step in block.steps if hasattr(step, 'network')]
        assert fills == [colour(network) for network in runs]
        assert f'{sum(ways)} samples' in lines
        if 'else' in title:
            assert f'{ways[0]} ({ways[0] / sum(ways):.0%})' in lines
            assert any('test_visualize.py' in line for line in title.splitlines())
    gates = [lines for _, lines, *_ in drawn_boxes if 'if self.gate(x).asscalar() > bound' in lines]
    assert len(gates) == 2 and all(any(line.startswith('if %') for line in each) for each in gates)
    assert [count for _, _, count, _ in arrows(path)] == [
        count
        for block, ways in zip(graph.blocks, program.inference.counts.taken)
        for count, _ in zip(ways, gotos(block.end))
    ]
    first = sum(ways[0] for ways in program.inference.counts.taken[:1])
    assert 0 < first < 20 and program.report().paths
    assert texts(path)[0].endswith(f'; 20 samples in {program.report().runs} runs of blocks')
    assert {program_picture.TRUE, program_picture.FALSE} <= set(pixels(path)[0])


def test_colours_of_a_program_are_those_of_networks_and_ways(tmp_path):
    """Counted in pixels: a bar for each run of a network, no green where nothing was true."""
    program, samples = skipping((1e9, 1e9))
    edb.visualize.program(program, tmp_path / 'fresh.svg')
    program(samples)
    edb.visualize.program(program, tmp_path / 'run.svg')
    (fresh, _), (run, _) = pixels(tmp_path / 'fresh.svg'), pixels(tmp_path / 'run.svg')
    graph = program.inference.graph
    bars = Counter(
        step.network for block in graph.blocks for step in block.steps if hasattr(step, 'network')
    )
    assert max(bars.values()) > 1, 'a network that runs with several parameters has one colour'
    for network, count in bars.items():
        assert 0.5 * 16 * 340 * count < run[colour(network)] < 18 * 370 * (count + 1)
    assert fresh[program_picture.TRUE] > 50 > fresh[program_picture.NEVER] + 40
    assert not any(ways[0] for ways in program.inference.counts.taken[:3:2]), 'no gate opens'
    assert run[program_picture.FALSE] > 1.5 * fresh[program_picture.FALSE], 'as wide as it is taken'
    assert run[program_picture.NEVER] > 50


def test_a_program_that_was_read_has_a_picture(tmp_path):
    program, samples = skipping()
    read = edb.load_program(edb.export(program, tmp_path / 'bundle'))
    for each in (program, read):
        each(samples)
    edb.visualize.program(program, tmp_path / 'made.svg')
    edb.visualize.program(read, tmp_path / 'read.svg')
    assert (tmp_path / 'made.svg').read_text() == (tmp_path / 'read.svg').read_text()


def test_many_blocks_are_in_columns(tmp_path):
    program, samples = skipping((0.0,) * 24)
    program(samples)
    edb.visualize.program(program, tmp_path / 'program.svg')
    _, (height, width) = pixels(tmp_path / 'program.svg')
    assert len(program.inference.graph.blocks) > 40 and height < 1200 < width
    assert len(boxes(tmp_path / 'program.svg')) == len(program.inference.graph.blocks)
    ways = arrows(tmp_path / 'program.svg')
    assert len(ways) == sum(len(gotos(block.end)) for block in program.inference.graph.blocks)
    points = np.concatenate([line for *_, line in ways])
    assert (points > 0).all() and (points < np.array([width, height]) * 72 / 96).all()


def test_ways_are_beside_boxes_and_end_at_them(tmp_path):
    program, _ = skipping()
    edb.visualize.program(program, tmp_path / 'program.svg')
    corners = [box for *_, box in boxes(tmp_path / 'program.svg')]
    far = 0
    for block, to, _, line in arrows(tmp_path / 'program.svg'):
        (left, top), (right, bottom) = corners[to].min(axis=0), corners[to].max(axis=0)
        if to == block + 1:
            assert (corners[block].max(axis=0)[1] - 1 < line[:, 1]).all()
            assert (line[:, 1] < top + 1).all()
        else:
            far += 1
            side = line[:, 0] < left + 1 if to <= block else line[:, 0] > right - 1
            assert side.all() and top < line[-1, 1] < bottom
    assert far == 4


def test_explanation_of_nothing(tmp_path):
    edb.visualize.explanation(edb.batching(), tmp_path / 'none.svg')
    assert drawn(tmp_path / 'none.svg')[0] == []
    assert 'nothing was recorded' in (tmp_path / 'none.svg').read_text()
