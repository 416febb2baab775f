"""Pictures of graphs with their schedules, and of explanations, as SVG."""
import os
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
_BAR_HEIGHT, _BARS_WIDTH = 40, 900
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
    in the colour of its type. Grey lines are the borders of evaluations. Below the bars is what
    kept calls apart.

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
    step = min(_STEP_X, _BARS_WIDTH / max(1, made.batches))
    colours: Dict[str, int] = {}
    parts: List[str] = []
    y, longest = _MARGIN, 0
    for line in made.summary():
        parts.append(_line_of_text(_MARGIN, y, line, 'bold'))
        y, longest = y + _LINE, max(longest, len(line))
    for place in made.places:
        lines = [f'{shown(place.site)}   {place.source}', headline(place)]
        lines += [f'– {reason_text(reason)}' for reason in place.reasons]
        parts += [_line_of_text(_MARGIN, y + _LINE * (1 + number), line)
                  for number, line in enumerate(lines[:2])]
        y += 3 * _LINE + (_BAR_HEIGHT if place.bars else 0)
        parts += _bars(place, y - _LINE / 2, step, colours)
        parts += [_line_of_text(_MARGIN, y + _LINE * (number + 0.5), line, colour='#555')
                  for number, line in enumerate(lines[2:])]
        y += _LINE * len(lines[2:])
        longest = max([longest] + [len(line) for line in lines])
    width = 2 * _MARGIN + max(longest * _TEXT * _WIDE, step * made.batches)
    return '\n'.join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y + _MARGIN:.0f}" '
        f'font-family="sans-serif" font-size="{_TEXT}">',
        '<rect width="100%" height="100%" fill="white"/>', *parts, '</svg>', ''])


def _bars(place: Place, base: float, step: float, colours: Dict[str, int]) -> List[str]:
    """The batches of a place above the line `base`; types get their colours in turn."""
    parts, evaluation = [], None
    for bar in place.bars:
        x = _MARGIN + step * bar.batch
        if bar.evaluation != evaluation:
            if evaluation is not None:
                parts.append(f'<line x1="{x:.1f}" y1="{base - _BAR_HEIGHT}" x2="{x:.1f}" '
                             f'y2="{base}" stroke="#999"/>')
            evaluation = bar.evaluation
        height = max(1.0, _BAR_HEIGHT * bar.calls / place.largest_possible)
        colour = _colour(colours.setdefault(bar.type_name, len(colours)))
        others = f' of {bar.size}' if bar.size != bar.calls else ''
        parts.append(f'<rect x="{x:.1f}" y="{base - height:.1f}" width="{max(1.0, step - 1):.1f}" '
                     f'height="{height:.1f}" fill="{colour}"><title>batch {bar.batch + 1}: '
                     f'{bar.calls}{others} calls of {escape(bar.type_name)}</title></rect>')
    return parts


def _line_of_text(x: float, y: float, text: str, weight: str = 'normal', colour: str = 'black'
                  ) -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}" fill="{colour}">'
            f'{escape(text)}</text>')


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
