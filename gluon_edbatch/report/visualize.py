"""Pictures of graphs with their schedules, of explanations and of programs, as SVG."""

import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ..graph.graph import Graph
from ..schedule import lower_bound
from ..schedule.protocol import Schedule
from .explain import Explanation, SiteReport
from .explain.explanation import headline, reason_text, shown
from .program_picture import program_svg
from .svg import LINE, MARGIN, TEXT, WIDE, colour, document, write

__all__ = ['explanation', 'program', 'schedule']

_STEP_X, _STEP_Y, _RADIUS = 26, 42, 10
_BETWEEN = 20  # samples
_SCREEN = (1600, 900)  # what pictures fit if they can
_SMALLEST = 0.3  # scale of nodes; a larger graph makes a larger picture
_READABLE = 0.6  # of that scale: below, numbers in the nodes are left out
_MANY = 16  # what reads more values joins samples, rather than being of one
_ENTRY = 60  # letters of an entry of a legend
# Of explanations: bars of batches, letters in a line, types with a name in a row.
_BAR_HEIGHT, _BARS_WIDTH, _LETTERS, _TYPES = 40, 900, 140, 6
# One outline a type: corners on the unit circle, as (number, turn in degrees); 0 for a circle.
_OUTLINES = ((0, 0), (4, 45), (3, -90), (4, 0), (6, 0), (3, 90), (5, -90), (8, 22.5))


def schedule(source: Any, path: Union[str, Path], evaluation: Optional[int] = None) -> None:
    """Draw what was recorded, with the batches that it ran in, as an SVG file.

    Each evaluation has a section. Samples, those parts of the graph that are not connected, stand
    side by side, in rows. Nodes that ran together have one colour and the number of their batch;
    the outline tells the type. Results are above what they were made from. A large picture is
    scaled down to a screen, where its nodes tell what they are when pointed at, or zoomed in.

    Parameters
    ----------
    source : batching or (Graph, Schedule)
        A scope that was evaluated, or a graph with a schedule of it.
    path : str or Path
        The file; an older one is replaced when all is written.
    evaluation : int, optional
        Which evaluation of a scope; all by default.

    Raises
    ------
    ValueError
        If nothing of the scope was evaluated yet.
    """
    made = [source] if isinstance(source, tuple) else source.schedules()
    if not made:
        raise ValueError(
            'nothing of this scope was evaluated yet; call '
            'gluon_edbatch.forward on its results first'
        )
    numbers = range(len(made)) if evaluation is None else [range(len(made))[evaluation]]
    count = len(made)
    write(path, lambda: _svg([_Section(made[number], number, count) for number in numbers]))


def explanation(source: Any, path: Union[str, Path]) -> None:
    """Draw why calls were batched as they were, as an SVG file.

    Places in the user's code are rows; each batch that calls of a place ran in is a bar, from left
    to right as they ran, as high as it has calls (full height: the most that could be one batch),
    in the colour of its type. Grey lines are borders of evaluations. Below the bars are the types,
    and what kept calls apart.

    Parameters
    ----------
    source : batching or Explanation
        A scope, or what its ``explain()`` gave.
    path : str or Path
        The file; an older one is replaced when all is written.
    """
    made = source if isinstance(source, Explanation) else source.explain()
    write(path, lambda: _explanation_svg(made))


def program(program: Any, path: Union[str, Path]) -> None:
    """Draw a compiled program, with what samples did in it so far, as an SVG file.

    Blocks are boxes, in their order; where there is no more room, the next column goes on. A block
    says where it begins in the user's code, which networks it runs (each network has a colour, also
    where it runs with other parameters), and on what it decides. Each way leads to a block, green
    where the condition is true and red where it is not; it is as wide as many samples took it, and
    grey and dashed if none did. Boxes tell all of their steps when pointed at.

    Parameters
    ----------
    program : Program, or what `load_program` gave
        As it is in inference mode.
    path : str or Path
        The file; an older one is replaced when all is written.
    """
    made = getattr(program, 'inference', program)
    write(path, lambda: program_svg(made.graph, made.counts.taken, made.counts.runs))


class _Part(NamedTuple):
    """A part of a graph that nothing connects with others, and where its nodes are in it."""

    nodes: np.ndarray
    x: np.ndarray
    y: np.ndarray
    joins: bool  # it is no sample, but what adds up many of them

    @property
    def width(self) -> float:
        """With the space to the next one."""
        return float(self.x.max()) + _STEP_X + _BETWEEN

    @property
    def height(self) -> float:
        """The same."""
        return float(self.y.max()) + _STEP_Y + _BETWEEN


class _Section:
    """The picture of one evaluation: a heading, samples in rows, and the batches beside them."""

    def __init__(self, source: tuple[Graph, Schedule], number: int, of: int) -> None:
        self.graph, self.made = graph, made = source
        self.batch = np.empty(len(graph), np.int64)
        self.batch[made.order] = np.repeat(np.arange(len(made)), np.diff(made.bounds))
        self.names = list(graph.type_names) or [f'type {kind}' for kind in range(graph.num_types)]
        self.samples = _samples(graph)
        title = f'Evaluation {number + 1} of {of}: ' if of > 1 else ''
        self.heading = (
            f'{title}{len(graph)} calls in {len(made)} batches (lower bound {lower_bound(graph)})'
        )
        self.legend = [
            (
                int(graph.types[nodes[0]]),
                number,
                f'{number + 1}: {len(nodes)} x {self.names[graph.types[nodes[0]]]}',
            )
            for number, nodes in enumerate(made)
        ]

    def legend_width(self) -> float:
        """Of the entries."""
        longest = max([len(text) for _, _, text in self.legend], default=0)
        return 60 + TEXT * WIDE * min(_ENTRY, longest)

    def rows(self, width: float) -> list[list[_Part]]:
        """The samples in rows that are not wider, if a sample is not."""
        rows: list[list[_Part]] = []
        left = 0.0
        for sample in self.samples:
            if left < sample.width or not rows:
                rows.append([])
                left = width
            rows[-1].append(sample)
            left = 0.0 if sample.joins else left - sample.width
        return rows

    def width(self, most: float) -> float:
        """Of the rows, if they are not to be wider than `most`."""
        return max([sum([sample.width for sample in row]) for row in self.rows(most)], default=0.0)

    def height(self, width: float, scale: float) -> float:
        """Of the whole section, with nodes to this scale."""
        rows = sum([max([sample.height for sample in row]) for row in self.rows(width)])
        return 3 * LINE + max(scale * rows, LINE * min(len(self.legend), 12))

    def draw(self, top: float, width: float, scale: float) -> list[str]:
        """Its elements, below `top`."""
        x, y = self._places(width)
        used = self.width(width)
        return [
            f'<text x="{MARGIN}" y="{top + LINE:.1f}" font-weight="bold">'
            f'{escape(self.heading)}</text>',
            f'<g transform="translate({MARGIN},{top + 2 * LINE:.1f}) scale({scale:.4f})">',
            *self._edges(x, y),
            *self._nodes(x, y, scale >= _READABLE),
            '</g>',
            *self._entries(
                scale * used + 2 * MARGIN, top + 2 * LINE, self.height(width, scale) - 3 * LINE
            ),
        ]

    def _places(self, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Where each node is, by what is right and below of the upper left corner."""
        x, y = np.zeros(len(self.graph)), np.zeros(len(self.graph))
        base, used = 0.0, self.width(width)
        for row in self.rows(width):
            base += max([sample.height for sample in row])
            right = (used - row[0].width) / 2 * row[0].joins
            for sample in row:
                x[sample.nodes] = right + _RADIUS + sample.x
                y[sample.nodes] = base - _STEP_Y / 2 - _BETWEEN - sample.y
                right += sample.width
        return x, y

    def _edges(self, x: np.ndarray, y: np.ndarray) -> list[str]:
        joins = {node for sample in self.samples if sample.joins for node in sample.nodes.tolist()}
        read = sorted(
            set(zip(self.graph.inputs.tolist(), self.graph.readers.tolist())),
            key=lambda edge: (edge[1] not in joins, edge),
        )
        return [
            f'<line x1="{x[a]:.1f}" y1="{y[a]:.1f}" x2="{x[b]:.1f}" y2="{y[b]:.1f}" '
            f'stroke="{"#e0e0e0" if b in joins else "#999999"}"/>'
            for a, b in read
        ]

    def _nodes(self, x: np.ndarray, y: np.ndarray, numbers: bool) -> list[str]:
        parts = ['<g stroke="#333333" text-anchor="middle">']
        for node in range(len(self.graph)):
            number, kind = int(self.batch[node]), int(self.graph.types[node])
            text = (
                f'<text x="{x[node]:.1f}" y="{y[node] + 3.5:.1f}" stroke="none" '
                f'font-size="10">{number + 1}</text>'
                if numbers
                else ''
            )
            parts.append(
                f'<g><title>{escape(self.names[kind])}, node {node}, batch {number + 1}'
                f'</title>{_mark(x[node], y[node], kind, number)}{text}</g>'
            )
        return parts + ['</g>']

    def _entries(self, left: float, top: float, height: float) -> list[str]:
        """The legend, as much as there is room for."""
        room = max(1, int(height / LINE))
        shown = self.legend if len(self.legend) <= room else self.legend[: room - 1]
        parts = ['<g stroke="#333333">']
        for line, (kind, number, text) in enumerate(shown):
            at = top + line * LINE
            if len(text) > _ENTRY:  # shapes are at the end
                text = f'{text[: _ENTRY - 20]}…{text[-19:]}'
            parts.append(
                f'{_mark(left, at, kind, number, 0.7)}<text x="{left + 16:.0f}" '
                f'y="{at + 4:.1f}" stroke="none">{escape(text)}</text>'
            )
        if len(shown) < len(self.legend):
            parts.append(
                f'<text x="{left:.0f}" y="{top + len(shown) * LINE + 4:.1f}" '
                f'stroke="none">and {len(self.legend) - len(shown)} more batches</text>'
            )
        return parts + ['</g>']


def _svg(sections: Sequence[_Section]) -> str:
    width = min(_widths(sections), key=lambda width: _unlike_a_screen(sections, width))
    scale = min(1.0, max(_SMALLEST, _scale(sections, width)))
    parts, top = [], float(LINE)
    for section in sections:
        parts += section.draw(top, width, scale)
        top += section.height(width, scale)
    return document(parts, *_size(sections, width, scale))


def _size(sections: Sequence[_Section], width: float, scale: float) -> tuple[float, float]:
    across = max([section.width(width) for section in sections])
    legend = max([section.legend_width() for section in sections])
    down = sum([section.height(width, scale) for section in sections])
    return scale * across + legend + 3 * MARGIN, down + MARGIN


def _scale(sections: Sequence[_Section], width: float) -> float:
    """The largest at which the picture with rows of this width fits a screen; it may be above 1."""
    text, whole = _size(sections, width, 0.0), _size(sections, width, 1.0)
    return max(
        0.0,
        min(
            [
                (room - fixed) / max(size - fixed, 1.0)
                for room, fixed, size in zip(_SCREEN, text, whole)
            ]
        ),
    )


def _unlike_a_screen(sections: Sequence[_Section], width: float) -> tuple[float, float]:
    """The less, the better: by the scale that there has to be, then by the form."""
    across, down = _size(sections, width, 1.0)
    return -min(1.0, _scale(sections, width)), abs(np.log(across / down * _SCREEN[1] / _SCREEN[0]))


def _widths(sections: Sequence[_Section]) -> list[float]:
    """Of the rows, to choose from."""
    samples = [sample.width for section in sections for sample in section.samples]
    least = max(samples, default=1.0)
    most = max([sum([sample.width for sample in section.samples]) for section in sections])
    return np.geomspace(least, max(least, most) + 1, 60).tolist()


def _mark(x: float, y: float, kind: int, batch: int, scale: float = 1.0) -> str:
    fill = colour(batch)
    corners, turn = _OUTLINES[kind % len(_OUTLINES)]
    if not corners:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS * scale:.1f}" fill="{fill}"/>'
    angles = np.radians(turn + 360 / corners * np.arange(corners))
    points = ' '.join(
        f'{x + 1.2 * _RADIUS * scale * np.cos(angle):.1f},'
        f'{y + 1.2 * _RADIUS * scale * np.sin(angle):.1f}'
        for angle in angles
    )
    return f'<polygon points="{points}" fill="{fill}"/>'


def _explanation_svg(made: Explanation) -> str:
    picture = _PlacesPicture(made)
    for line in made.summary():
        picture.write(line, weight='bold')
    for place in made.places:
        picture.space()
        picture.write(f'{shown(place.site)}   {place.source}')
        picture.write(headline(place))
        if place.bars:
            picture.draw(place)
        for reason in place.reasons:
            for line in textwrap.wrap(f'– {reason_text(reason)}', _LETTERS):
                picture.write(line, colour='#555555')
    return picture.svg()


class _PlacesPicture:
    """A picture of places that grows downwards."""

    def __init__(self, made: Explanation):
        bars = [bar for place in made.places for bar in place.bars]
        self._step = min(_STEP_X, _BARS_WIDTH / max(1, made.batches))
        self._end = MARGIN + self._step * made.batches
        self._borders = sorted(
            {bar.evaluation: self._left(bar.batch) for bar in sorted(bars, reverse=True)}.values()
        )[1:]
        self._colours: dict[int, str] = {}
        self._parts: list[str] = []
        self._y = float(MARGIN)
        self._right = self._end

    def _left(self, batch: int) -> float:
        return MARGIN + self._step * batch

    def space(self) -> None:
        """Leave a line empty."""
        self._y += LINE

    def write(
        self, text: str, x: float = MARGIN, weight: str = 'normal', colour: str = 'black'
    ) -> None:
        """A line of text."""
        self._parts.append(
            f'<text x="{x:.1f}" y="{self._y:.1f}" font-weight="{weight}" '
            f'fill="{colour}">{escape(text)}</text>'
        )
        self._right = max(self._right, x + len(text) * TEXT * WIDE)
        self._y += LINE

    def draw(self, place: SiteReport) -> None:
        """The batches of a place, and its types."""
        base = self._y + _BAR_HEIGHT - LINE / 2
        self._parts += [self._line(x, base - _BAR_HEIGHT, x, base) for x in self._borders]
        for bar in place.bars:
            height = max(1.0, _BAR_HEIGHT * bar.calls / place.largest_possible)
            others = f' of {bar.size}' if bar.size != bar.calls else ''
            self._parts.append(
                f'<rect x="{self._left(bar.batch):.1f}" y="{base - height:.1f}" '
                f'width="{max(1.0, self._step - 1):.1f}" height="{height:.1f}" '
                f'fill="{self._colour(bar.type)}"><title>batch {bar.batch + 1}: {bar.calls}'
                f'{others} calls of {escape(bar.type_name)}</title></rect>'
            )
        self._parts.append(self._line(MARGIN, base, self._end, base))
        self._y = base + LINE
        types = list({bar.type: bar.type_name for bar in place.bars}.items())
        for kind, name in types[:_TYPES]:
            self._parts.append(
                f'<rect x="{MARGIN}" y="{self._y - 9:.1f}" width="10" height="10" '
                f'fill="{self._colour(kind)}"/>'
            )
            self.write(name, MARGIN + 16)
        if len(types) > _TYPES:
            self.write(f'and {len(types) - _TYPES} more types', MARGIN + 16)

    def _colour(self, kind: int) -> str:
        return self._colours.setdefault(kind, colour(len(self._colours)))

    @staticmethod
    def _line(x: float, y: float, to_x: float, to_y: float) -> str:
        return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#999999"/>'

    def svg(self) -> str:
        """All of it."""
        return document(self._parts, self._right + MARGIN, self._y + MARGIN)


def _samples(graph: Graph) -> list[_Part]:
    """The parts of a graph that nothing connects, in the order of their first calls. If there are
    hardly any, as losses were added up, those that nothing but such a sum connects."""
    edges = np.stack([graph.inputs, graph.readers], axis=1)
    many = np.bincount(graph.readers, minlength=len(graph)) > _MANY
    parts = _components(len(graph), edges)
    apart = _components(len(graph), edges[~many[graph.readers]])
    if len(apart) <= _MANY * len(parts):
        return [_Part(np.array(nodes), *_layout(graph, nodes), False) for nodes in parts]
    return sorted(
        [
            _Part(np.array(nodes), *_layout(graph, nodes), bool(many[nodes].any()))
            for nodes in apart
        ],
        key=lambda part: not part.joins,
    )  # above all else


def _components(count: int, edges: np.ndarray) -> list[list[int]]:
    """The connected components of a graph with so many nodes, by their first nodes."""
    first = list(range(count))

    def root(node: int) -> int:
        while first[node] != node:
            first[node] = node = first[first[node]]
        return node

    for one, other in edges.tolist():
        one, other = root(one), root(other)
        first[max(one, other)] = min(one, other)
    parts: dict[int, list[int]] = {}
    for node in range(count):
        parts.setdefault(root(node), []).append(node)
    return list(parts.values())


def _layout(graph: Graph, nodes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Columns of these nodes by what they read, rows by depth.

    Nodes that read none of them stand side by side as they were recorded, each other node stands
    over the middle of what it reads, and is moved to the right if another one is in its place.
    """
    known = set(nodes)
    read = {
        node: known.intersection(
            graph.inputs[graph.offsets[node] : graph.offsets[node + 1]].tolist()
        )
        for node in nodes
    }
    sources = [node for node in nodes if not read[node]]
    x = {node: float(column * _STEP_X) for column, node in enumerate(sources)}
    depth = graph.depth[nodes]
    for level in np.unique(depth):
        row = [nodes[i] for i in np.flatnonzero(depth == level)]
        x.update(
            {node: float(np.mean([x[one] for one in read[node]])) for node in row if read[node]}
        )
        row.sort(key=lambda node: x[node])
        for before, node in zip(row[:-1], row[1:]):
            x[node] = max(x[node], x[before] + _STEP_X)
    return np.array([x[node] for node in nodes]), (depth - depth.min()) * float(_STEP_Y)
