"""The control-flow graph of a program as a picture: blocks in their order, ways beside them."""

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ..branching.program_graph import (
    Calculate,
    Choose,
    Finish,
    ProgramBlock,
    ProgramGraph,
    RunNetwork,
    gotos,
)
from ..branching.program_report import shown_block, shown_calculation, shown_values
from .svg import LINE, MARGIN, TEXT, WIDE, colour, document

TRUE, FALSE, ON, NEVER = '#2a7a4b', '#b5482e', '#777777', '#c4c4c4'
_GREY = '#555555'
_LETTERS = 52  # of a row
_BOLD = 0.85  # as many bold ones take that room
_WIDTH = 12 + _LETTERS * TEXT * WIDE
_BETWEEN, _LANE, _STUB = 26, 13, 16
_HEIGHT = 860  # of a column, if there are others
_WIDEST = 6  # of a way that all samples take
_SITE = re.compile(r'(?P<file>.*?):(?P<line>\d+)(?:: (?P<source>.*))?$', re.DOTALL)

Taken = Sequence[Sequence[int]]


class _Row(NamedTuple):
    """A line of a box.

    Attributes
    ----------
    text : str
    fill : str
        Colour behind it, or none.
    way : int
        Which of the block's ways begins here, or -1.
    right : str
        What stands at its other end.
    source : bool
        Whether it is the user's, rather than of the program.
    """

    text: str
    fill: str = ''
    way: int = -1
    right: str = ''
    source: bool = False


class _Box(NamedTuple):
    """A block."""

    number: int
    rows: list[_Row]
    title: str

    @property
    def height(self) -> float:
        """Without what is between boxes."""
        return LINE * len(self.rows) + 8


class _Way(NamedTuple):
    """From a block to another, or to itself."""

    block: int
    way: int
    to: int
    colour: str
    share: float  # of the most samples that any way was taken by


def program_svg(graph: ProgramGraph, taken: Taken, runs: int) -> str:
    """The picture as SVG.

    Parameters
    ----------
    graph : ProgramGraph
    taken : sequence of sequence of int
        How many samples took each way of each block.
    runs : int
        Of blocks, so far.
    """
    boxes = [_box(graph, number, taken[number], runs > 0) for number in range(len(graph.blocks))]
    columns = _columns(boxes)
    return _Picture(boxes, columns, _ways(graph, taken, runs > 0)).svg(
        _heading(graph, taken, runs), _legend(graph)
    )


# --- what is told --------------------------------------------------------------------------------


def _heading(graph: ProgramGraph, taken: Taken, runs: int) -> str:
    text = (
        f'{len(graph.blocks)} blocks, {len(graph.networks)} networks, '
        f'{len(graph.parameters)} parameters'
    )
    done = sum([ways[0] for block, ways in zip(graph.blocks, taken) if _ends(block)])
    return f'{text}; {done} samples in {runs} runs of blocks' if runs else f'{text}; not run yet'


def _ends(block: ProgramBlock) -> bool:
    return isinstance(block.end, Finish)


def _legend(graph: ProgramGraph) -> list[str]:
    """A line for each network."""
    lines = []
    for number, network in enumerate(graph.networks):
        counted = Counter(network.graph.operators).most_common()
        operators = ', '.join([f'{count} {name}' for name, count in counted])
        lines.append(f'{number}: {operators}{"" if network.batched else " (one by one)"}')
    return lines


def _box(graph: ProgramGraph, number: int, ways: Sequence[int], ran: bool) -> _Box:
    block = graph.blocks[number]
    where, _ = _site(block.name)
    count = f'{sum(ways)} samples' if ran else ''
    rows = [_Row(f'block {number}: {where}', right=count)]
    for step in block.steps:
        if isinstance(step, RunNetwork):
            operators = graph.networks[step.network].operators
            text = f'network {step.network}: {operators} operators'
            rows.append(_Row(f'{text}, {len(step.parameters)} parameters', colour(step.network)))
    title = '\n'.join(shown_block(graph, number))
    return _Box(number, rows + _end(block, ways), title)


def _end(block: ProgramBlock, ways: Sequence[int]) -> list[_Row]:
    end = block.end
    if isinstance(end, Finish):
        return [_Row(f'return {shown_values(end.values)}')]
    if not isinstance(end, Choose):
        return [_Row(f'to block {end.block}', way=0)]
    samples = sum(ways)
    rows = [_Row(f'if {_condition(block, end.condition)}'), _Row(_told(end.line), source=True)]
    for way, (name, to) in enumerate(zip(('true', 'false'), (end.then, end.other))):
        share = f'{ways[way]} ({ways[way] / samples:.0%})' if samples else ''
        rows.append(_Row(f'{name}: to block {to.block}', way=way, right=share))
    return rows


def _condition(block: ProgramBlock, place: int) -> str:
    """How it was computed, if that is here."""
    for step in block.steps:
        if isinstance(step, Calculate) and step.output == place:
            return shown_calculation(step)
    return f'%{place}'


def _site(line: str) -> tuple[str, str]:
    """File and line, and what is written there; or a block's name."""
    found = _SITE.match(line)
    if found is None:
        return line, ''
    file = re.split(r'[/\\]', found['file'])[-1]
    return f'{file}:{found["line"]}', found['source'] or ''


def _told(line: str) -> str:
    where, source = _site(line)
    return source or where


def _ways(graph: ProgramGraph, taken: Taken, ran: bool) -> list[_Way]:
    most = max([count for ways in taken for count in ways] or [0]) or 1
    found = []
    for number, block in enumerate(graph.blocks):
        for index, to in enumerate(gotos(block.end)):
            count = taken[number][index]
            kind = (TRUE, FALSE)[index] if isinstance(block.end, Choose) else ON
            used = kind if count or not ran else NEVER
            found.append(_Way(number, index, to.block, used, count / most))
    return found


# --- where it is ---------------------------------------------------------------------------------


def _columns(boxes: Sequence[_Box]) -> list[list[int]]:
    """Numbers of blocks, in columns that are about as high as each other."""
    heights = [box.height + _BETWEEN for box in boxes]
    count = max(1, round(sum(heights) / _HEIGHT))
    columns: list[list[int]] = [[] for _ in range(count)]
    used = 0.0
    for box, height in zip(boxes, heights):
        columns[min(count - 1, int((used + height / 2) * count / sum(heights)))].append(box.number)
        used += height
    return [column for column in columns if column]


class _Picture:
    """Boxes in columns, with ways."""

    def __init__(
        self, boxes: Sequence[_Box], columns: Sequence[Sequence[int]], ways: Sequence[_Way]
    ):
        self._boxes, self._ways = boxes, ways
        self._column = {number: place for place, each in enumerate(columns) for number in each}
        self._lanes = self._with_lanes()
        self._x: dict[int, float] = {}
        self._y: dict[int, float] = {}
        self._down = 0.0
        x = float(MARGIN)
        for place, column in enumerate(columns):
            x += self._room(place, False)
            y = MARGIN + 2.0 * LINE
            for number in column:
                self._x[number], self._y[number] = x, y
                y += boxes[number].height + _BETWEEN
            x += _WIDTH + self._room(place, True) + MARGIN
            self._down = max(self._down, y)
        self._across = x

    def _with_lanes(self) -> dict[_Way, int]:
        """Beside the boxes of a column, the lane of each way that does not lead to the next one:
        short ones are inside."""
        lanes: dict[_Way, int] = {}
        for way in sorted(self._ways, key=lambda way: abs(way.to - way.block)):
            if self._is_beside(way):
                others = {
                    lane for other, lane in lanes.items() if self._are_side_by_side(way, other)
                }
                lanes[way] = min(set(range(len(others) + 1)) - others)
        return lanes

    def _is_beside(self, way: _Way) -> bool:
        return way.to != way.block + 1 and self._column[way.to] == self._column[way.block]

    def _are_side_by_side(self, one: _Way, other: _Way) -> bool:
        """Whether they would meet in one lane; those that end in one place may."""
        if (one.to > one.block) != (other.to > other.block) or one.to == other.to:
            return False
        low, high = sorted((one.block, one.to))
        least, most = sorted((other.block, other.to))
        return (
            self._column[one.block] == self._column[other.block] and low <= most and least <= high
        )

    def _room(self, column: int, forwards: bool) -> float:
        """For ways on a side of a column."""
        lanes = [
            lane
            for way, lane in self._lanes.items()
            if self._column[way.block] == column and (way.to > way.block) is forwards
        ]
        return _STUB + _LANE * (1 + max(lanes, default=-1))

    def svg(self, heading: str, legend: Sequence[str]) -> str:
        """All of it."""
        top = MARGIN + 2 * LINE
        parts = [_text(MARGIN, MARGIN, heading, bold=True)]
        ways = sorted(self._ways, key=lambda way: way.colour != NEVER)  # what was taken is above
        parts += [element for way in ways for element in self._drawn_way(way)]
        parts += [element for box in self._boxes for element in self._drawn(box)]
        room = max(1, int((self._down - top) / LINE))
        shown = legend if len(legend) <= room else legend[: room - 1]
        for place, line in enumerate(shown):
            y = top + LINE * place
            parts += [_rect(self._across, y, 12, 12, colour(place))]
            parts += [_text(self._across + 20, y + 10, _cut(line, 60))]
        if len(shown) < len(legend):
            y = top + LINE * len(shown)
            more = f'and {len(legend) - len(shown)} more networks'
            parts.append(_text(self._across + 20, y + 10, more))
        across = self._across + 20 + 60 * TEXT * WIDE + MARGIN
        return document(parts, across, self._down + MARGIN)

    def _drawn(self, box: _Box) -> list[str]:
        x, y = self._x[box.number], self._y[box.number]
        parts = [f'<g><title>{escape(box.title)}</title>']
        parts += [_rect(x, y, _WIDTH, box.height, '#ffffff', '#333333')]
        for place, row in enumerate(box.rows):
            top = y + 4 + LINE * place
            if row.fill:
                parts.append(_rect(x + 4, top + 1, _WIDTH - 8, LINE - 2, row.fill))
            parts += _row_texts(x + 8, top + 13, row, bold=not place)
        return [*parts, '</g>']

    def _drawn_way(self, way: _Way) -> list[str]:
        x = self._x[way.block]
        box = self._boxes[way.block]
        (row,) = [place for place, each in enumerate(box.rows) if each.way == way.way]
        y, to_y = self._y[way.block] + LINE * row + 13, self._y[way.to]
        if way in self._lanes:
            beside = _STUB + _LANE * self._lanes[way]
            edge, lane = (x + _WIDTH, beside) if way.to > way.block else (x, -beside)
            to_y += LINE / 2 + 4
            points = [(edge, y), (edge + lane, y), (edge + lane, to_y), (edge, to_y)]
        elif self._column[way.to] != self._column[way.block]:
            points = [(x + _WIDTH, y), (x + _WIDTH + _STUB, y)]
        else:
            x += _WIDTH * (0.4 + 0.2 * way.way)
            points = [(x, self._y[way.block] + box.height), (x, to_y)]
        return _arrow(points, way)


# --- elements ------------------------------------------------------------------------------------


def _arrow(points: Sequence[tuple[float, float]], way: _Way) -> list[str]:
    """Along some points, which lie right above or beside each other."""
    (x, y), (end_x, end_y) = points[-2:]
    right, down = (end_x > x) - (end_x < x), (end_y > y) - (end_y < y)
    back = end_x - 8 * right, end_y - 8 * down
    line = ' '.join([f'{x:.1f},{y:.1f}' for x, y in [*points[:-1], back]])
    head = ' '.join(
        [
            f'{x:.1f},{y:.1f}'
            for x, y in (
                (end_x, end_y),
                (back[0] + 5 * down, back[1] + 5 * right),
                (back[0] - 5 * down, back[1] - 5 * right),
            )
        ]
    )
    dashes = ' stroke-dasharray="4 3"' if way.colour == NEVER else ''
    width = 1 + (_WIDEST - 1) * min(1.0, way.share)
    return [
        f'<polyline points="{line}" fill="none" stroke="{way.colour}" '
        f'stroke-width="{width:.1f}"{dashes}/>',
        f'<polygon points="{head}" fill="{way.colour}"/>',
    ]


def _rect(x: float, y: float, width: float, height: float, fill: str, stroke: str = 'none') -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )


def _text(x: float, y: float, text: str, bold: bool = False, more: str = '') -> str:
    weight = ' font-weight="bold"' * bold
    return f'<text x="{x:.1f}" y="{y:.1f}"{weight}{more}>{escape(text)}</text>'


def _row_texts(x: float, y: float, row: _Row, bold: bool) -> list[str]:
    room = (_LETTERS - len(row.right)) * (_BOLD if bold else 1)
    grey = f' fill="{_GREY}"' * row.source
    parts = [_text(x, y, _cut(row.text, int(room)), bold, grey)]
    if row.right:
        parts.append(_text(x + _WIDTH - 16, y, row.right, more=' text-anchor="end"'))
    return parts


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f'{text[: letters - 1]}…'
