"""Draws one minibatch on its way through all stages: docs/how-it-works/minibatch.svg.

What is drawn is what the package does with two trees: nothing of it is written down here.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.plan.plan import Batch, Plan
from gluon_edbatch.report.svg import colour, document, write

PICTURE = Path(__file__).resolve().parents[1] / 'docs' / 'how-it-works' / 'minibatch.svg'
TREES = ((3, ((1, ()), (2, ()))), (4, ((5, ((6, ()), (7, ()))), (8, ()))))
LEFT, WIDTH, STEP = 40, 1000, 50


class Classifier(edb.AutoBatchMixin, gluon.Block):
    """Of trees, which are (word, children)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(50, 8)
            self.cell = edb.rnn.ChildSumTreeLSTMCell(16, input_size=8)
            self.scores = gluon.nn.Dense(3, in_units=16)

    def encode(self, tree: Any) -> Any:
        """(h, c) of a tree."""
        word, children = tree
        return self.cell(self.embed(word), [self.encode(child) for child in children])

    def forward(self, tree: Any) -> mx.nd.NDArray:
        """(1, 3), its scores."""
        return self.scores(self.encode(tree)[0])


def main() -> int:
    """Command line: where to write it, if not into the documentation."""
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    write(picture, drawn)
    return 0


def drawn() -> str:
    """The picture, as SVG."""
    mx.random.seed(1)
    net = Classifier(prefix='classifier_')
    net.initialize()
    options = edb.CompileOptions(at_once=False)
    with edb.batching(compile_options=options) as scope:
        values = [net(tree) for tree in TREES]
    edb.forward(values)
    (evaluation,) = scope._recording.evaluator.counts
    graph, schedule, plan = evaluation.graph, evaluation.schedule, evaluation.plan
    parts = [*_recorded(graph), *_types(graph), *_batches(graph, schedule), *_arenas(graph, plan)]
    return document(parts, WIDTH, 816)


def _recorded(graph: Any) -> Iterator[str]:
    """Calls in their order, with what they read."""
    yield from _title(30, '1  Recording', 'the model runs sample by sample; each call is noted')
    places = [(LEFT + 20 + STEP * node, 200 - 32 * graph.depth[node]) for node in range(len(graph))]
    for producer, reader in zip(graph.inputs.tolist(), graph.readers.tolist()):
        (x, y), (u, v) = places[producer], places[reader]
        yield f'<path d="M{x},{y} L{u},{v}" stroke="#888888" fill="none"/>'
    for node, place in enumerate(places):
        yield from _node(*place, graph, node)


def _types(graph: Any) -> Iterator[str]:
    yield from _title(260, '2  Types', 'calls of one colour may run together')
    for kind in range(graph.num_types):
        x, count = LEFT + 310 * kind, int((graph.types == kind).sum())
        yield f'<rect x="{x}" y="282" width="18" height="18" rx="4" fill="{colour(kind)}"/>'
        name = graph.type_names[kind].partition('(')[0]
        yield _text(x + 26, 296, f'{name}, {count} calls')


def _batches(graph: Any, schedule: Any) -> Iterator[str]:
    yield from _title(340, '3  Scheduling', f'{len(graph)} calls in {len(schedule)} batches')
    x = LEFT
    for number, nodes in enumerate(schedule):
        width = 34 * len(nodes) + 8
        yield (
            f'<rect x="{x}" y="368" width="{width}" height="40" rx="6" fill="none" '
            'stroke="#555555"/>'
        )
        yield _text(x + 2, 424, f'batch {number}')
        for place, node in enumerate(nodes.tolist()):
            yield from _node(x + 21 + 34 * place, 388, graph, node)
        x += max(width, 52) + 14


def _arenas(graph: Any, plan: Plan) -> Iterator[str]:
    yield from _title(464, '4  Planning', 'each batch writes neighbouring rows of an arena')
    yield from _title(660, '5  Execution', 'batch after batch; gradients go the same way back')
    for line, (arena, cells) in enumerate(_rows(plan)):
        y = 512 + 44 * line
        yield _text(LEFT, y + 5, arena)
        for row, (node, output) in cells:
            x = LEFT + 230 + 30 * row
            yield (
                f'<rect x="{x}" y="{y - 14}" width="28" height="28" '
                f'fill="{colour(int(graph.types[node]))}"/>'
            )
            yield _text(x + 14, y + 4, f'{node}{output}', 'middle')
    for number, batch in enumerate(plan.batches):
        yield _text(LEFT + 16, 690 + 20 * number, f'{number + 1}.  {_told(batch)}')


def _rows(plan: Plan) -> Iterator[tuple[str, list[tuple[int, tuple[int, str]]]]]:
    """For each arena of results, which value of which call is in each row."""
    for number, arena in enumerate(plan.arenas):
        cells = [
            (write.begin + place, (node, 'hc'[output] if len(batch.writes) > 1 else ''))
            for batch in plan.batches
            if not batch.hoisted
            for output, write in enumerate(batch.writes)
            if write.arena == number
            for place, node in enumerate(batch.nodes.tolist())
        ]
        if cells:
            yield f'arena {number}: rows of {arena.key.row_shape[0]} numbers', cells


def _told(batch: Batch) -> str:
    ahead = ', the part that needs words only, for all at once' if batch.hoisted else ''
    slices = sum(not read.gather for read in batch.reads)
    return (
        f'{batch.node_type.name.partition("(")[0]}{ahead}: {batch.rows} rows, '
        f'{slices} of {len(batch.reads)} arguments read as slices'
    )


def _title(y: float, name: str, what: str) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="{y}" font-size="17" font-weight="bold">{name}</text>'
    yield _text(LEFT + 180, y, what)


def _node(x: float, y: float, graph: Any, node: int) -> Iterator[str]:
    yield f'<circle cx="{x}" cy="{y}" r="14" fill="{colour(int(graph.types[node]))}"/>'
    yield _text(x, y + 4, str(node), 'middle')


def _text(x: float, y: float, what: str, anchor: str = 'start') -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#222222">{what}</text>'


if __name__ == '__main__':
    sys.exit(main())
