"""Pictures of schedules, explanations and programs, drawn by matplotlib as SVG."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule import lower_bound
from gluon_edbatch_core.schedule.protocol import Schedule

from .explain import Explanation, SiteReport
from .explain.explanation import headline, reason_text, site_text
from .page import LINE, Page, colour, draw
from .program_picture import draw_program

__all__ = ['explanation', 'program', 'schedule']

_STEP_X, _STEP_Y, _SIZE = 26, 42, 18  # from node to node, and of a node
_BETWEEN = 20  # samples
_SCREEN, _LEGEND = (1480, 840), 460  # what pictures fit if they can, and their legend's width
_SMALLEST = 0.3  # scale of nodes; a larger graph makes a larger picture
_READABLE = 0.6  # of that scale: below, numbers in the nodes are left out
_MANY = 16  # what reads more values joins samples, rather than being of one
_ENTRY, _ENTRIES = 60, 12  # letters of an entry of a legend; entries that there is always room for
_FULL = 1.2  # area of rows over that of samples, as rows have gaps at their ends
_MARKERS = 'osD^hvp8'  # one for each type, over and over
_NUMBER: dict[str, Any] = dict(ha='center', fontsize=7.5, in_layout=False)
# Sizes of explanations: bars of batches, letters in a line, types with a name in a row.
_BAR_HEIGHT, _BARS_WIDTH, _LETTERS, _TYPES = 40, 900, 140, 6


def schedule(source: Any, path: Union[str, Path], evaluation: Optional[int] = None) -> None:
    """Draw the recorded graph, with the batches that it ran in, as an SVG file.

    Each evaluation has a section. Samples, the connected parts of the graph, are side by side, in
    rows. Nodes that ran together have one colour and the number of their batch; the outline shows
    the type. Results are above their inputs. A large picture is scaled down to a screen; point at a
    node to see what it is, or zoom in.

    Parameters
    ----------
    source : batching or (Graph, Schedule)
        A scope that was evaluated, or a graph with a schedule of it.
    path : str or Path
        The file; a complete new one replaces an older one.
    evaluation : int, optional
        Number of an evaluation of the scope; all by default.

    Raises
    ------
    ValueError
        If nothing of the scope was evaluated yet.
    ImportError
        If matplotlib is not installed (extra ``pictures``).
    """
    made = [source] if isinstance(source, tuple) else source.schedules()
    if not made:
        raise ValueError(
            'nothing of this scope was evaluated yet; call '
            'gluon_edbatch.forward on its results first'
        )
    numbers = range(len(made)) if evaluation is None else [range(len(made))[evaluation]]
    titles = [f'Evaluation {number + 1} of {len(made)}: ' * (len(made) > 1) for number in numbers]
    sections = [(title, *made[number]) for title, number in zip(titles, numbers)]
    draw(path, lambda page: _draw_schedules(page, sections))


def explanation(source: Any, path: Union[str, Path]) -> None:
    """Draw an explanation of why calls were batched as they were, as an SVG file.

    Lines of the user's code are rows. Each batch with calls of a line is a bar, from left to right
    in the order of running. Its height is its number of calls (full height: the most that could be
    one batch), its colour is the type. Grey lines are borders of evaluations. Below the bars are
    the types, and what kept calls apart.

    Parameters
    ----------
    source : batching or Explanation
        A scope, or the result of its ``explain()``.
    path : str or Path
        The file; a complete new one replaces an older one.

    Raises
    ------
    ImportError
        If matplotlib is not installed (extra ``pictures``).
    """
    made = source if isinstance(source, Explanation) else source.explain()
    draw(path, lambda page: _draw_explanation(page, made))


def program(program: Any, path: Union[str, Path]) -> None:
    """Draw a compiled program, with what samples did in it so far, as an SVG file.

    Blocks are boxes, in their order, in columns. A box has the block's first line in the user's
    code, the networks it runs, and its condition. Each network has a colour, whatever its
    parameters. Edges lead to the next block, green where the condition is true and red where it is
    false. Width shows how many samples took an edge; it is grey and dashed if none did. Point at a
    box to see all of its steps.

    Parameters
    ----------
    program : Program, or what `load_program` gave
        The program, drawn as in inference mode.
    path : str or Path
        The file; a complete new one replaces an older one.

    Raises
    ------
    ImportError
        If matplotlib is not installed (extra ``pictures``).
    """
    made = getattr(program, 'inference', program)
    draw(path, lambda page: draw_program(page, made.graph, made.counts.taken, made.counts.runs))


class _Placement:
    """Place the nodes of a graph within its samples, the connected parts.

    `edges` (m, 2) has each pair of a node and its reader once. For each node, `joins` tells whether
    it adds up samples, and so is in a separate part. `part` is numbered by first nodes. `column`
    and `level` are its position in its part, to the right and upwards. `widths` and `heights` are
    the pixels of each part, with the space to the next one.
    """

    def __init__(self, graph: Graph) -> None:
        count = len(graph)
        self.edges = np.unique(np.column_stack([graph.inputs, graph.readers]), axis=0)
        # If there are hardly any parts, as losses were added up, the sum is a part of its own.
        many = np.bincount(self.edges[:, 1], minlength=count) > _MANY
        whole = _first_nodes(count, self.edges)
        apart = _first_nodes(count, self.edges[~many[self.edges[:, 1]]])
        self.joins = many & (len(np.unique(apart)) > _MANY * len(np.unique(whole)))
        firsts, self.part = np.unique(apart if self.joins.any() else whole, return_inverse=True)
        lowest = np.full(len(firsts), count)
        np.minimum.at(lowest, self.part, graph.depth)
        self.level = graph.depth - lowest[self.part]
        self.column = _columns(graph, self.part)
        self.widths, self.heights = np.zeros((2, len(firsts)))
        np.maximum.at(self.widths, self.part, _STEP_X * (self.column + 1) + _BETWEEN)
        np.maximum.at(self.heights, self.part, _STEP_Y * (self.level + 1) + _BETWEEN)

    def placed(self, widest: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixels of each node, with parts in rows of this width or the widest part's."""
        widest = max([widest, *self.widths])
        joining = np.zeros(len(self.widths), bool)
        joining[self.part[self.joins]] = True
        row, left = np.zeros(len(joining), int), np.zeros(len(joining))
        number, used = -1, widest
        for part in np.argsort(~joining, kind='stable'):  # what joins samples is above all else
            if joining[part] or used + self.widths[part] > widest:
                number, used = number + 1, 0.0
            row[part], left[part] = number, used
            used += self.widths[part]
            if joining[part]:
                left[part], used = (widest - self.widths[part]) / 2, widest
        rows = np.zeros(number + 1)
        np.maximum.at(rows, row, self.heights)
        base = np.cumsum(rows) - _BETWEEN - _STEP_Y / 2
        x = left[self.part] + _STEP_X * self.column + _SIZE / 2
        return x, base[row[self.part]] - _STEP_Y * self.level


def _first_nodes(count: int, edges: np.ndarray) -> np.ndarray:
    """Return the first node of each node's connected part."""
    before, first = np.empty(0, int), np.arange(count)
    while not np.array_equal(before, first):
        before = first.copy()
        least = first[edges].min(axis=1)
        for ends in edges.T:  # NumPy 1.25 and 1.26 do not broadcast `least` in one call
            np.minimum.at(first, ends, least)
        first = first[first]
    return first


def _columns(graph: Graph, part: np.ndarray) -> np.ndarray:
    """Return a column for each node in its part.

    Nodes without inputs are side by side in recorded order. Other nodes are above the middle of
    their inputs, or to the right if that place is taken.
    """
    column = np.zeros(len(graph))
    free: dict[tuple[int, int], float] = {}  # of each part's level, where the next node can stand
    for depth in range(int(graph.depth.max(initial=-1)) + 1):
        nodes = np.flatnonzero(graph.depth == depth)
        for node in nodes.tolist():
            read = graph.inputs[graph.offsets[node] : graph.offsets[node + 1]]
            read = np.unique(read[part[read] == part[node]])
            column[node] = column[read].mean() if len(read) else 0.0
        for node in nodes[np.argsort(column[nodes], kind='stable')].tolist():
            place = int(part[node]), depth
            column[node] = max(column[node], free.get(place, 0.0))
            free[place] = column[node] + 1
    return column


def _draw_schedules(page: Page, sections: Sequence[tuple[str, Graph, Schedule]]) -> None:
    """Draw evaluations below each other, with samples in rows, to fill a screen."""
    layouts = [_Placement(graph) for _, graph, _ in sections]
    room_x, room_y = _SCREEN[0] - _LEGEND, _SCREEN[1] - 2 * LINE * len(sections)
    area = sum([float(layout.widths @ layout.heights) for layout in layouts])
    widest = math.sqrt(_FULL * area * room_x / room_y)
    placed = [layout.placed(widest) for layout in layouts]
    width = max([x.max(initial=0.0) for x, _ in placed]) + _STEP_X
    height = sum([y.max(initial=0.0) + _STEP_Y for _, y in placed])
    scale = max(_SMALLEST, min(1.0, room_x / width, room_y / height))
    for (title, graph, made), layout, (x, y) in zip(sections, layouts, placed):
        calls = f'{len(graph)} calls in {len(made)} batches (lower bound {lower_bound(graph)})'
        page.write(title + calls, weight='bold')
        places = np.column_stack([scale * x, page.y + scale * y])
        bottom = places[:, 1].max(initial=page.y) + 2 * LINE
        _draw_edges(page, layout, places, scale)
        entries = _draw_nodes(page, graph, made, places, scale)
        most = max(_ENTRIES, int((bottom - page.y) / LINE))
        page.legend(scale * width + LINE, entries, most, 'batches')
        page.y = max(bottom, page.y) + LINE


def _draw_edges(page: Page, layout: _Placement, places: np.ndarray, scale: float) -> None:
    """Draw lines between nodes; lines to what joins samples are lighter, and below the others."""
    joining = layout.joins[layout.edges[:, 1]]
    for edges, shade in ((layout.edges[joining], '#e0e0e0'), (layout.edges[~joining], '#999999')):
        # One path for all, with a gap behind each line.
        lines = np.insert(places[edges], 2, np.nan, axis=1).reshape(-1, 2)
        page.axes.plot(*lines.T, color=shade, linewidth=0.75 * scale, zorder=1)


def _draw_nodes(
    page: Page, graph: Graph, made: Schedule, places: np.ndarray, scale: float
) -> list[tuple[str, str, str]]:
    """Draw the nodes of each batch, and return the batch's entries of the legend."""
    names = graph.type_names or [f'type {kind}' for kind in range(graph.num_types)]
    entries = []
    for number, nodes in enumerate(made):
        kind = int(graph.types[nodes[0]])
        marker, fill = _MARKERS[kind % len(_MARKERS)], colour(number)
        titles = [f'{names[kind]}, node {node}, batch {number + 1}' for node in nodes]
        x, y = places[nodes].T
        page.title(page.markers(x, y, marker, fill, _SIZE * scale), *titles)
        if scale >= _READABLE:
            for left, top, title in zip(x, y, titles):
                page.title(page.text(left, top, str(number + 1), **_NUMBER), title)
        text = f'{number + 1}: {len(nodes)} x {names[kind]}'
        if len(text) > _ENTRY:  # shapes are at the end
            text = f'{text[: _ENTRY - 20]}…{text[-19:]}'
        entries.append((marker, fill, text))
    return entries


def _draw_explanation(page: Page, made: Explanation) -> None:
    """Draw a section for each place."""
    step = min(_STEP_X, _BARS_WIDTH / max(1, made.batches))
    bars = sorted([bar for place in made.places for bar in place.bars], reverse=True)
    firsts = sorted({bar.evaluation: bar.batch for bar in bars}.values())
    colours: dict[int, str] = {}
    for line in made.summary():
        page.write(line, weight='bold')
    for place in made.places:
        page.y += LINE
        page.write(f'{site_text(place.site)}   {place.source}')
        page.write(headline(place))
        if place.bars:
            base = page.y + _BAR_HEIGHT - LINE / 4
            page.axes.hlines(base, 0, step * made.batches, '#999999', linewidth=0.75)
            borders = [step * batch for batch in firsts[1:]]
            page.axes.vlines(borders, base - _BAR_HEIGHT, base, '#999999', linewidth=0.75)
            entries = _draw_bars(page, place, step, base, colours)
            page.y = base + LINE
            page.legend(0, entries, _TYPES + 1, 'types')
        for reason in place.reasons:
            for line in textwrap.wrap(f'– {reason_text(reason)}', _LETTERS):
                page.write(line, color='#555555')


def _draw_bars(
    page: Page, place: SiteReport, step: float, base: float, colours: dict[int, str]
) -> list[tuple[str, str, str]]:
    """Draw a line's share of each batch, and return the legend's entries of its types."""
    fills = [colours.setdefault(bar.type, colour(len(colours))) for bar in place.bars]
    left = [step * bar.batch for bar in place.bars]
    heights = [max(1.0, _BAR_HEIGHT * bar.calls / place.largest_possible) for bar in place.bars]
    upwards = -np.array(heights)
    bars = page.axes.bar(left, upwards, max(1.0, step - 1), base, align='edge', color=fills)
    for patch, bar in zip(bars, place.bars):
        others = f' of {bar.size}' if bar.size != bar.calls else ''
        page.title(patch, f'batch {bar.batch + 1}: {bar.calls}{others} calls of {bar.type_name}')
    return list(dict.fromkeys([('s', fill, bar.type_name) for fill, bar in zip(fills, place.bars)]))
