"""Draw the control-flow graph of a program: blocks in their order, edges beside them."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from gluon_edbatch_core.branching.program_graph import (
    Calculate,
    Choose,
    Finish,
    ProgramBlock,
    ProgramGraph,
    RunNetwork,
    gotos,
)
from gluon_edbatch_core.branching.program_report import (
    pretty_block,
    pretty_calculation,
    pretty_values,
)

from .page import LINE, Page, colour

TRUE, FALSE, ON, NEVER = '#2a7a4b', '#b5482e', '#777777', '#c4c4c4'
_LETTERS, _ENTRY = 52, 60  # of a line in a box, and of an entry of the legend
_BOLD = 0.85  # share of bold letters that take the same space
_WIDTH, _BETWEEN, _BESIDE = 370, 26, 110  # of boxes, and from box to box below and beside
_PADDING = 4  # above and below the rows of a box
_HEIGHT = 900  # of a column, if it has several boxes
_THINNEST, _WIDEST = 1.5, 4.5  # of ways, in points
_STUB = 20  # length of a way to another column
_SITE = re.compile(r'(?P<file>.*?):(?P<line>\d+)(?:: (?P<source>.*))?$', re.DOTALL)

Taken = Sequence[Sequence[int]]


class _Row(NamedTuple):
    """A line of a box: the texts at its two ends, and the colours behind and of its letters."""

    text: str
    right: str = ''
    fill: str = ''
    colour: str = 'black'


class _Box(NamedTuple):
    """A block of a program, and its position in the picture."""

    rows: list[_Row]
    x: float
    y: float

    @property
    def bottom(self) -> float:
        """Lower end of the box."""
        return self.y + LINE * len(self.rows) + 2 * _PADDING


def draw_program(page: Page, graph: ProgramGraph, taken: Taken, runs: int) -> None:
    """Draw blocks in columns, the edges between them, and a legend of the networks.

    `taken` counts the samples that took each edge of each block, in `runs` runs of blocks."""
    page.write(_heading(graph, taken, runs), weight='bold')
    top = page.y = page.y + LINE / 2
    boxes: list[_Box] = []
    x, y = 0, top
    for number, ways in enumerate(taken):
        box = _Box(_rows(graph, number, ways, runs), x, y)
        if box.bottom > _HEIGHT and y > top:
            x += _WIDTH + _BESIDE
            box = box._replace(x=x, y=top)
        page.title(_draw_box(page, box), '\n'.join(pretty_block(graph, number)))
        boxes.append(box)
        y = box.bottom + _BETWEEN
    _draw_ways(page, graph, taken, runs, boxes)
    entries = [('s', colour(number), line) for number, line in enumerate(_networks(graph))]
    room = max([box.bottom for box in boxes]) - top
    page.y += LINE / 2
    page.legend(x + _WIDTH + _BESIDE, entries, max(1, int(room / LINE)), 'networks')


def _heading(graph: ProgramGraph, taken: Taken, runs: int) -> str:
    text = (
        f'{len(graph.blocks)} blocks, {len(graph.networks)} networks, '
        f'{len(graph.parameters)} parameters'
    )
    ends = [isinstance(block.end, Finish) for block in graph.blocks]
    done = sum([ways[0] for end, ways in zip(ends, taken) if end])
    return f'{text}; {done} samples in {runs} runs of blocks' if runs else f'{text}; not run yet'


def _networks(graph: ProgramGraph) -> list[str]:
    """Return a line for each network."""
    lines = []
    for number, network in enumerate(graph.networks):
        counted = Counter(network.graph.operators).most_common()
        operators = ', '.join([f'{count} {name}' for name, count in counted])
        line = f'{number}: {operators}{"" if network.batched else " (one by one)"}'
        lines.append(_cut(line, _ENTRY))
    return lines


def _rows(graph: ProgramGraph, number: int, ways: Sequence[int], runs: int) -> list[_Row]:
    """Return the rows of a block's box; the last rows are those of its edges."""
    block = graph.blocks[number]
    where, _ = _site(block.name)
    rows = [_Row(f'block {number}: {where}'.rstrip(': '), f'{sum(ways)} samples' if runs else '')]
    for step in block.steps:
        if isinstance(step, RunNetwork):
            operators = graph.networks[step.network].operators
            text = f'network {step.network}: {operators} operators'
            text = f'{text}, {len(step.parameters)} parameters'
            rows.append(_Row(text, fill=colour(step.network)))
    end = block.end
    if isinstance(end, Finish):
        return [*rows, _Row(f'return {pretty_values(end.values)}')]
    if not isinstance(end, Choose):
        return [*rows, _Row(f'to block {end.block}')]
    where, source = _site(end.line)
    rows.append(_Row(f'if {_condition(block, end.condition)}'))
    rows.append(_Row(source or where, colour='#555555'))
    samples = sum(ways)
    for way, (name, to) in enumerate(zip(('true', 'false'), (end.then, end.other))):
        share = f'{ways[way]} ({ways[way] / samples:.0%})' if samples else ''
        rows.append(_Row(f'{name}: to block {to.block}', share))
    return rows


def _condition(block: ProgramBlock, place: int) -> str:
    """Return how a block's condition was computed, if that is in the block."""
    for step in block.steps:
        if isinstance(step, Calculate) and step.output == place:
            return pretty_calculation(step)
    return f'%{place}'


def _site(line: str) -> tuple[str, str]:
    """Return file and line, and the code there; or a block's name."""
    found = _SITE.match(line)
    if found is None:
        return line, ''
    file = re.split(r'[/\\]', found['file'])[-1]
    return f'{file}:{found["line"]}', found['source'] or ''


def _draw_box(page: Page, box: _Box) -> Any:
    """Draw the rows of a block, and return what has the title."""
    inside = page.box(box.x, box.y, _WIDTH, box.bottom - box.y)
    inside.y = _PADDING + LINE / 2
    for place, row in enumerate(box.rows):
        letters = (_LETTERS - len(row.right)) * (1 if place else _BOLD)
        if row.fill:
            inside.axes.barh(inside.y, _WIDTH - 8, LINE - 2, 4, color=row.fill)
        inside.text(_WIDTH - 8, inside.y, row.right, ha='right')
        weight = 'normal' if place else 'bold'
        inside.write(_cut(row.text, int(letters)), 8, color=row.colour, weight=weight)
    return inside.axes


def _draw_ways(page: Page, graph: ProgramGraph, taken: Taken, runs: int, boxes: list[_Box]) -> None:
    """Draw an arrow for each edge: straight to the next box, curved to other boxes of the column,
    and only its beginning to another column."""
    most = max([1, *[count for ways in taken for count in ways]])
    for number, (block, box) in enumerate(zip(graph.blocks, boxes)):
        ways = gotos(block.end)
        for way, to in enumerate(ways):
            target, count = boxes[to.block], taken[number][way]
            right, y = box.x + _WIDTH, box.bottom - _PADDING - LINE * (len(ways) - way - 0.5)
            bow = 0.0
            if target.x != box.x:
                begin, end = (right, y), (right + _STUB, y)
            elif to.block == number + 1:
                x = box.x + _WIDTH * (0.4 + 0.2 * way)
                begin, end = (x, box.bottom), (x, target.y)
            else:
                x = right if to.block > number else box.x
                begin, end = (x, y), (x, target.y + _PADDING + LINE / 2)
                bow = -0.12 - 28 / abs(end[1] - y)
            kind = (TRUE, FALSE)[way] if isinstance(block.end, Choose) else ON
            used = count or not runs
            width = _THINNEST + (_WIDEST - _THINNEST) * count / most
            look = dict(
                arrowstyle='-|>',
                connectionstyle=f'arc3,rad={bow}',
                color=kind if used else NEVER,
                joinstyle='miter',
                linestyle='solid' if used else 'dashed',
                linewidth=width,
                mutation_scale=8 + 2 * width,
                shrinkA=0,
                shrinkB=0,
            )
            arrow = page.axes.annotate('', end, begin, arrowprops=look, annotation_clip=False)
            told = f'block {number} to block {to.block}: {count} samples'
            page.title(arrow.arrow_patch, told)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f'{text[: letters - 1]}…'
