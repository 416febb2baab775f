"""Show a program, and what samples did in it."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Optional

from .program_graph import (
    Calculate,
    Choose,
    Finish,
    Goto,
    NumberSpec,
    ProgramBlock,
    ProgramGraph,
    ReadNumber,
    RunNetwork,
    Spec,
    gotos,
)

_SIGNS = {
    'add': '+', 'sub': '-', 'mul': '*', 'truediv': '/', 'floordiv': '//', 'mod': '%', 'pow': '**',
    'lt': '<', 'le': '<=', 'gt': '>', 'ge': '>=', 'eq': '==', 'ne': '!=',
}  # fmt: skip
NEAR_KEPT = 10_000  # a server runs for months


class Counts:
    """What all calls of a program did: samples, runs of blocks, and for each block how many samples
    took each of its paths or finished. `near` has the last comparisons, line and sample (number in
    the call), of nearly equal numbers, where rounding may have decided."""

    def __init__(self, graph: ProgramGraph):
        self.samples = self.runs = 0
        self.taken = [[0] * max(1, len(gotos(block.end))) for block in graph.blocks]
        self.near: deque[tuple[str, int]] = deque(maxlen=NEAR_KEPT)


class ProgramReport:
    """What samples did in a program so far.

    Parameters
    ----------
    counted : sequence of (ProgramGraph, Counts)
        Graph and counts of each mode of the program.
    effects : dict of str to int, optional
        What each pass took away when the program was made.

    Attributes
    ----------
    samples : int
        Number of samples.
    runs : int
        Number of runs of blocks; each had all samples that waited there.
    paths : dict of str to list of int
        For each line with a condition, how many samples found it true, and how many false.
    near : list of (str, int)
        Lines and samples (number in the call) where compared numbers were nearly equal, so that
        rounding may have decided.
    effects : dict of str to int
        What each pass took away when the program was made.
    """

    def __init__(
        self,
        counted: Sequence[tuple[ProgramGraph, Counts]],
        effects: Optional[dict[str, int]] = None,
    ):
        self.samples = sum([counts.samples for _, counts in counted])
        self.runs = sum([counts.runs for _, counts in counted])
        self.near = [each for _, counts in counted for each in counts.near]
        self.effects = effects or {}
        self.paths: dict[str, list[int]] = {}
        for graph, counts in counted:
            for block, taken in zip(graph.blocks, counts.taken):
                if isinstance(block.end, Choose) and any(taken):
                    before = self.paths.get(block.end.line, [0, 0])
                    self.paths[block.end.line] = [sum(each) for each in zip(before, taken)]

    def __str__(self) -> str:
        lines = [f'{self.samples} samples in {self.runs} runs of blocks']
        width = max(map(len, self.paths), default=0)
        for line, (then, other) in self.paths.items():
            lines.append(f'  {line:<{width}}  true {then:6d}  false {other:6d}')
        for (line, _), count in Counter([(line, 0) for line, _ in self.near]).items():
            lines.append(f'  {line}: {count} times as good as equal, rounding may have decided')
        if self.effects:  # of a program that was read, nothing is known of how it was made
            found = ', '.join([f'{name} {count}' for name, count in self.effects.items() if count])
            lines.append(f'taken away when it was made: {found or "nothing"}')
        return '\n'.join(lines)


def pretty_program(graph: ProgramGraph) -> str:
    """Return a program as text, block after block."""
    lines = [f'{len(graph.blocks)} blocks, {len(graph.networks)} networks']
    for number in range(len(graph.blocks)):
        lines += pretty_block(graph, number)
    return '\n'.join(lines)


def pretty_block(graph: ProgramGraph, number: int) -> list[str]:
    """Return the lines of a block."""
    block = graph.blocks[number]
    takes = ', '.join([f'%{i} {_spec(spec)}' for i, spec in enumerate(block.takes)])
    lines = [f'block {number} ({takes})    # {block.name}'.rstrip(' #')]
    lines += [f'    {_step(step, graph)}' for step in block.steps]
    return lines + [f'    {each}' for each in _end(block)]


def pretty_calculation(step: Calculate) -> str:
    """Return a calculation as text."""
    operands = list(map(_value, step.operands))
    sign = _SIGNS.get(step.op)
    return f' {sign} '.join(operands) if sign else f'{step.op}({", ".join(operands)})'


def _spec(spec: Spec) -> str:
    return spec.kind if isinstance(spec, NumberSpec) else f'{spec.dtype}{spec.shape}'


def _value(place: Any) -> str:
    return repr(place[0]) if isinstance(place, tuple) else f'%{place}'


def pretty_values(places: Any) -> str:
    """Return values as text: their numbers, or constants as they are."""
    return ', '.join(map(_value, places))


def _step(step: Any, graph: ProgramGraph) -> str:
    if isinstance(step, RunNetwork):
        network = graph.networks[step.network]
        alone = '' if network.batched else ', one by one'
        inputs, outputs = pretty_values(step.inputs), pretty_values(step.outputs)
        return (
            f'{outputs} = network {step.network}({inputs})    '
            f'# {network.operators} operators, {len(step.parameters)} parameters{alone}'
        )
    if isinstance(step, Calculate):
        return f'%{step.output} = {pretty_calculation(step)}'
    if isinstance(step, ReadNumber):
        return f'%{step.output} = {step.kind} of %{step.input}'
    source = f'%{step.input}' if hasattr(step, 'input') else f'constant {step.constant}'
    return f'%{step.output} = array of {source}'


def _end(block: ProgramBlock) -> list[str]:
    end = block.end
    if isinstance(end, Finish):
        return [f'return {pretty_values(end.values)}']
    if isinstance(end, Goto):
        return [f'go to {_goto(end)}']
    return [
        f'if %{end.condition}: go to {_goto(end.then)}    # {end.line}',
        f'else: go to {_goto(end.other)}',
    ]


def _goto(to: Goto) -> str:
    return f'block {to.block} ({pretty_values(to.values)})'
