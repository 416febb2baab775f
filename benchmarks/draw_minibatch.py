"""Draw one minibatch in all stages: docs/how-it-works/minibatch.svg.

The picture shows what the package really does with two trees.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.report.page import Page, colour, draw
from gluon_edbatch_core.plan.plan import Batch, Plan

PICTURE = Path(__file__).resolve().parents[1] / 'docs' / 'how-it-works' / 'minibatch.svg'
TREES = ((3, ((1, ()), (2, ()))), (4, ((5, ((6, ()), (7, ()))), (8, ()))))
STEP = 50


class Classifier(edb.AutoBatchMixin, gluon.Block):
    """Classify trees, which are (word, children)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(50, 8)
            self.cell = edb.rnn.ChildSumTreeLSTMCell(16, input_size=8)
            self.scores = gluon.nn.Dense(3, in_units=16)

    def encode(self, tree: Any) -> Any:
        """Return (h, c) of a tree."""
        word, children = tree
        return self.cell(self.embed(word), [self.encode(child) for child in children])

    def forward(self, tree: Any) -> mx.nd.NDArray:
        """Return the scores of a tree, (1, 3)."""
        return self.scores(self.encode(tree)[0])


def main() -> int:
    """Run the command line, which may name another file than the documentation's."""
    draw(sys.argv[1] if len(sys.argv) > 1 else PICTURE, _draw_minibatch)
    return 0


def _draw_minibatch(page: Page) -> None:
    mx.random.seed(1)
    net = Classifier(prefix='classifier_')
    net.initialize()
    options = edb.CompileOptions(at_once=False)
    with edb.batching(compile_options=options) as scope:
        values = [net(tree) for tree in TREES]
    edb.forward(values)
    (evaluation,) = scope._recording.evaluator.counts
    graph, schedule, plan = evaluation.graph, evaluation.schedule, evaluation.plan
    _draw_calls(page, graph)
    _draw_types(page, graph)
    _draw_batches(page, graph, schedule)
    _draw_arenas(page, graph, plan)


def _draw_calls(page: Page, graph: Any) -> None:
    """Draw calls in their order, with what they read."""
    _title(page, 30, '1  Recording', 'the model runs sample by sample; each call is recorded')
    x = [20 + STEP * node for node in range(len(graph))]
    y = [200 - 32 * depth for depth in graph.depth.tolist()]
    for edge in zip(graph.inputs.tolist(), graph.readers.tolist()):
        ends = [x[node] for node in edge], [y[node] for node in edge]
        page.axes.plot(*ends, color='#888888', linewidth=0.75, zorder=1)
    for node in range(len(graph)):
        _draw_node(page, x[node], y[node], graph, node)


def _draw_types(page: Page, graph: Any) -> None:
    _title(page, 260, '2  Signatures', 'one colour for each batch signature')
    for kind in range(graph.num_types):
        x, count = 310 * kind, int((graph.types == kind).sum())
        page.markers(x + 9, 291, 's', colour(kind), 18)
        name = graph.type_names[kind].partition('(')[0]
        page.text(x + 26, 291, f'{name}, {count} calls')


def _draw_batches(page: Page, graph: Any, schedule: Any) -> None:
    _title(page, 340, '3  Scheduling', f'{len(graph)} calls in {len(schedule)} batches')
    x = 0
    for number, nodes in enumerate(schedule):
        width = 34 * len(nodes) + 8
        page.axes.bar(x, 40, width, 368, align='edge', color='none', edgecolor='#555555')
        page.text(x + 2, 420, f'batch {number}')
        for place, node in enumerate(nodes.tolist()):
            _draw_node(page, x + 21 + 34 * place, 388, graph, node)
        x += max(width, 52) + 14


def _draw_arenas(page: Page, graph: Any, plan: Plan) -> None:
    _title(page, 464, '4  Planning', 'each batch writes neighbouring rows of an arena')
    _title(page, 660, '5  Execution', 'batch after batch; gradients go the same way back')
    for line, (arena, cells) in enumerate(_rows(plan)):
        y = 512 + 44 * line
        page.text(0, y, arena)
        for row, (node, output) in cells:
            x = 244 + 30 * row
            page.axes.bar(x, 28, 28, y - 14, color=colour(int(graph.types[node])))
            page.text(x, y, f'{node}{output}', ha='center')
    for number, batch in enumerate(plan.batches):
        page.text(16, 690 + 20 * number, f'{number + 1}.  {_told(batch)}')


def _rows(plan: Plan) -> Iterator[tuple[str, list[tuple[int, tuple[int, str]]]]]:
    """Yield, for each arena of results, which value of which call is in each row."""
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


def _title(page: Page, y: float, name: str, what: str) -> None:
    page.text(0, y, name, fontsize=13, weight='bold')
    page.text(180, y, what)


def _draw_node(page: Page, x: float, y: float, graph: Any, node: int) -> None:
    page.markers(x, y, 'o', colour(int(graph.types[node])), 28)
    page.text(x, y, str(node), ha='center')


if __name__ == '__main__':
    sys.exit(main())
