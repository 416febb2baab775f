"""Pictures of graphs with their schedules, and of explanations, as SVG."""
import os
import textwrap
from html import escape
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

import numpy as np

from .explain import Explanation, Place
from .explain.explanation import headline, reason_text, shown
from .graph import Graph
from .schedule.protocol import Schedule

__all__ = ['explanation', 'schedule']

_STEP_X, _STEP_Y, _RADIUS, _MARGIN, _LINE = 26, 46, 10, 30, 18
_WIDE = 0.56            # of a letter of the legend, by its height
_TEXT = 12
# Of explanations: bars of batches, letters in a line, types with a name in a row.
_BAR_HEIGHT, _BARS_WIDTH, _LETTERS, _TYPES = 40, 900, 140, 6
# One outline a type: corners on the unit circle, as (number, turn in degrees); 0 for a circle.
_OUTLINES = ((0, 0), (4, 45), (3, -90), (4, 0), (6, 0), (3, 90), (5, -90), (8, 22.5))


def schedule(source: Any, path: Union[str, Path], evaluation: int = -1) -> None:
    """Draw what was recorded, with the batches that it ran in, as an SVG file.

    Nodes that ran together have one colour and the number of their batch; the outline tells the
    type. Results are above what they were made from. Meant for a few samples: a node takes about
    26 pixels.

    Parameters
    ----------
    source : batching or (Graph, Schedule)
        A scope that was evaluated, or a graph with a schedule of it.
    path : str or Path
        The file; an older one is replaced when all is written.
    evaluation : int, default -1
        Which evaluation of a scope.

    Raises
    ------
    ValueError
        If nothing of the scope was evaluated yet.
    """
    if not isinstance(source, tuple):
        made = source.schedules()
        if not made:
            raise ValueError('nothing of this scope was evaluated yet; call '
                             'gluon_edbatch.forward on its results first')
        source = made[evaluation]
    _write(path, lambda: _svg(*source))


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
    _write(path, lambda: _explanation_svg(made))


def _write(path: Union[str, Path], draw: Callable[[], str]) -> None:
    path = Path(path)
    temporary = path.with_name(f'{path.name}.{os.getpid()}.part')
    try:
        temporary.write_text(draw(), encoding='utf-8')
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _svg(graph: Graph, made: Schedule) -> str:
    batch = np.empty(len(graph), np.int64)
    batch[made.order] = np.repeat(np.arange(len(made)), np.diff(made.bounds))
    x, y = _layout(graph)
    names = list(graph.type_names) or [f'type {kind}' for kind in range(graph.num_types)]
    legend = _legend(graph, made, names)
    right = float(x.max(initial=0)) + 2 * _MARGIN
    width = right + max([len(text) for _, _, text in legend], default=0) * _TEXT * _WIDE + 60
    height = max(float(y.max(initial=0)) + 2 * _MARGIN, len(legend) * _LINE + 2 * _MARGIN)
    y = height - _MARGIN - y
    x = x + _MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
             f'font-family="sans-serif" font-size="{_TEXT}">',
             '<rect width="100%" height="100%" fill="white"/>',
             '<g stroke="#999" stroke-width="1">']
    parts += [f'<line x1="{x[a]:.1f}" y1="{y[a]:.1f}" x2="{x[b]:.1f}" y2="{y[b]:.1f}"/>'
              for a, b in sorted(set(zip(graph.inputs.tolist(), graph.readers.tolist())))]
    parts.append('</g><g stroke="#333" text-anchor="middle">')
    for node in range(len(graph)):
        number, kind = int(batch[node]), int(graph.types[node])
        parts.append(f'<g><title>{escape(names[kind])}, node {node}, batch {number + 1}</title>'
                     f'{_mark(x[node], y[node], kind, number)}'
                     f'<text x="{x[node]:.1f}" y="{y[node] + 3.5:.1f}" stroke="none" '
                     f'font-size="10">{number + 1}</text></g>')
    parts.append('</g><g stroke="#333">')
    for line, (kind, number, text) in enumerate(legend):
        at = _MARGIN + line * _LINE
        parts.append(f'{_mark(right, at, kind, number, 0.7)}<text x="{right + 16:.0f}" '
                     f'y="{at + 4}" stroke="none">{escape(text)}</text>')
    return '\n'.join(parts + ['</g></svg>', ''])


def _legend(graph: Graph, made: Schedule, names: Sequence[str]) -> List[Tuple[int, int, str]]:
    """(type, batch, text) for each batch."""
    return [(int(graph.types[nodes[0]]), number,
             f'{number + 1}: {len(nodes)} x {names[graph.types[nodes[0]]]}')
            for number, nodes in enumerate(made)]


def _mark(x: float, y: float, kind: int, batch: int, scale: float = 1.0) -> str:
    fill = _colour(batch)
    corners, turn = _OUTLINES[kind % len(_OUTLINES)]
    if not corners:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS * scale:.1f}" fill="{fill}"/>'
    angles = np.radians(turn + 360 / corners * np.arange(corners))
    points = ' '.join(f'{x + 1.2 * _RADIUS * scale * np.cos(angle):.1f},'
                      f'{y + 1.2 * _RADIUS * scale * np.sin(angle):.1f}' for angle in angles)
    return f'<polygon points="{points}" fill="{fill}"/>'


def _colour(number: int) -> str:
    """Hues a golden angle apart, so that those of numbers that follow each other differ."""
    return f'hsl({number * 137.508 % 360:.0f},70%,{(72, 82, 62)[number // 8 % 3]}%)'


def _explanation_svg(made: Explanation) -> str:
    picture = _Rows(made)
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
                picture.write(line, colour='#555')
    return picture.svg()


class _Rows:
    """A picture of places that grows downwards."""

    def __init__(self, made: Explanation):
        bars = [bar for place in made.places for bar in place.bars]
        self._step = min(_STEP_X, _BARS_WIDTH / max(1, made.batches))
        self._end = _MARGIN + self._step * made.batches
        self._borders = sorted({bar.evaluation: self._left(bar.batch) for bar in sorted(
            bars, reverse=True)}.values())[1:]
        self._colours: Dict[int, str] = {}
        self._parts: List[str] = []
        self._y = float(_MARGIN)
        self._right = self._end

    def _left(self, batch: int) -> float:
        return _MARGIN + self._step * batch

    def space(self) -> None:
        """Leave a line empty."""
        self._y += _LINE

    def write(self, text: str, x: float = _MARGIN, weight: str = 'normal', colour: str = 'black'
              ) -> None:
        """A line of text."""
        self._parts.append(f'<text x="{x:.1f}" y="{self._y:.1f}" font-weight="{weight}" '
                           f'fill="{colour}">{escape(text)}</text>')
        self._right = max(self._right, x + len(text) * _TEXT * _WIDE)
        self._y += _LINE

    def draw(self, place: Place) -> None:
        """The batches of a place, and its types."""
        base = self._y + _BAR_HEIGHT - _LINE / 2
        self._parts += [self._line(x, base - _BAR_HEIGHT, x, base) for x in self._borders]
        for bar in place.bars:
            height = max(1.0, _BAR_HEIGHT * bar.calls / place.largest_possible)
            others = f' of {bar.size}' if bar.size != bar.calls else ''
            self._parts.append(
                f'<rect x="{self._left(bar.batch):.1f}" y="{base - height:.1f}" '
                f'width="{max(1.0, self._step - 1):.1f}" height="{height:.1f}" '
                f'fill="{self._colour(bar.type)}"><title>batch {bar.batch + 1}: {bar.calls}'
                f'{others} calls of {escape(bar.type_name)}</title></rect>')
        self._parts.append(self._line(_MARGIN, base, self._end, base))
        self._y = base + _LINE
        types = list({bar.type: bar.type_name for bar in place.bars}.items())
        for kind, name in types[:_TYPES]:
            self._parts.append(f'<rect x="{_MARGIN}" y="{self._y - 9:.1f}" width="10" height="10" '
                               f'fill="{self._colour(kind)}"/>')
            self.write(name, _MARGIN + 16)
        if len(types) > _TYPES:
            self.write(f'and {len(types) - _TYPES} more types', _MARGIN + 16)

    def _colour(self, kind: int) -> str:
        return self._colours.setdefault(kind, _colour(len(self._colours)))

    @staticmethod
    def _line(x: float, y: float, to_x: float, to_y: float) -> str:
        return (f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" '
                f'stroke="#999"/>')

    def svg(self) -> str:
        """All of it."""
        return '\n'.join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._right + _MARGIN:.0f}" '
            f'height="{self._y + _MARGIN:.0f}" font-family="sans-serif" font-size="{_TEXT}">',
            '<rect width="100%" height="100%" fill="white"/>', *self._parts, '</svg>', ''])


def _layout(graph: Graph) -> Tuple[np.ndarray, np.ndarray]:
    """Columns by what a node reads, rows by depth; samples, recorded in turn, do not mix.

    Nodes without inputs stand side by side as they were recorded, each other node stands over the
    middle of what it reads, and is moved to the right if another one is in its place.
    """
    x = np.zeros(len(graph))
    x[graph.sources] = np.arange(len(graph.sources)) * _STEP_X
    for begin, end in zip(graph.levels.bounds[1:-1].tolist(), graph.levels.bounds[2:].tolist()):
        nodes = graph.levels.order[begin:end]
        for node in nodes:
            x[node] = x[graph.inputs[graph.offsets[node]:graph.offsets[node + 1]]].mean()
        nodes = nodes[np.argsort(x[nodes], kind='stable')]
        for before, node in zip(nodes[:-1], nodes[1:]):
            x[node] = max(x[node], x[before] + _STEP_X)
    return x, graph.depth * float(_STEP_Y)
