"""Step 4: make static networks, each once, of the operators of all blocks."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon

from gluon_edbatch_core.branching.program_graph import (
    FillTensor,
    GiveTensor,
    Network,
    ProgramBlock,
    ProgramGraph,
    ReadNumber,
    RunNetwork,
    Step,
    TensorSpec,
    read_by,
    written_by,
)

from ..ops.attrs import Attrs
from ..ops.whole import NoRule
from ..subgraph.ir import Entry, Node, Subgraph
from ..subgraph.lift import lift
from ..subgraph.rowwise import Verdict, analyse
from ..subgraph.trace import INPUT
from .block_ir import Applied, IRBlock, IRBlocks, Made, exact_array

PARAMETER = 'edb_parameter%d'


def lowered(blocks: IRBlocks, arguments: Any, training: bool) -> ProgramGraph:
    """Return the program of finished blocks."""
    networks = _Networks(training)
    blocks, constants = _with_constants(blocks)
    finished = [
        ProgramBlock(block.specs[: block.takes], _steps(block, networks), block.end, block.name)
        for block in blocks
    ]
    return ProgramGraph(finished, networks.all, networks.parameters, constants, arguments)


def _with_constants(blocks: IRBlocks) -> tuple[IRBlocks, list[np.ndarray]]:
    """Number constant arrays, those of constant numbers included; equal ones have one number."""
    constants: dict[Any, tuple[int, np.ndarray]] = {}
    kept: IRBlocks = []
    for block in blocks:
        made: list[Made] = []
        for each in block.made:
            if isinstance(each, GiveTensor) and isinstance(each.input, tuple):
                each = FillTensor(each.output, np.array(each.input, each.dtype))
            if isinstance(each, FillTensor):
                array = each.constant
                found = constants.setdefault(exact_array(array), (len(constants), array))
                each = each._replace(constant=found[0])
            made.append(each)
        kept.append(block._replace(made=tuple(made)))
    return kept, [array for _, array in constants.values()]


_BEFORE, _APPLIED, _AFTER = range(3)  # calculations, then operators, then numbers that are read


def _steps(block: IRBlock, networks: '_Networks') -> list[Step]:
    """Return the block's steps, with one network for the operators of each level: how many times
    numbers were read and became arrays before them."""
    level = dict.fromkeys(range(block.takes), 0)
    groups: dict[tuple[int, int], list[Any]] = {}
    for made in block.made:
        own = max([level[place] for place in read_by(made)], default=0)
        is_read = isinstance(made, ReadNumber)
        phase = _APPLIED if isinstance(made, Applied) else _AFTER if is_read else _BEFORE
        groups.setdefault((own, phase), []).append(made)
        level.update(dict.fromkeys(written_by(made), own + is_read))
    steps: list[Any] = []
    for key in sorted(groups):
        if key[1] == _APPLIED:
            others = [made for other, group in groups.items() if other != key for made in group]
            wanted = set(read_by(block.end)).union(*map(read_by, others))
            steps.append(networks.run(block, groups[key], wanted))
        else:
            steps += groups[key]
    return steps


class _Networks:
    """Collect all networks of a program, and their parameters."""

    def __init__(self, training: bool):
        self.all: list[Network] = []
        self.parameters: list[gluon.Parameter] = []
        self._training = training
        self._number_of: dict[Any, int] = {}
        self._parameter_numbers: dict[int, int] = {}  # by id; they are kept

    def run(self, block: IRBlock, applied: list[Applied], wanted: set[int]) -> RunNetwork:
        """Return the step that runs one network for some operators, with the wanted results."""
        joined = _JoinedGraphs(applied)
        made = [place for each in applied for place in each.outputs]
        outputs = [place for place in dict.fromkeys(made) if place in wanted]
        graph = Subgraph.of(joined.nodes, [joined.entry_of[place] for place in outputs])
        specs: Any = block.specs
        network = self._number(
            graph,
            tuple([specs[place] for place in joined.inputs]),
            tuple([specs[place] for place in outputs]),
            tuple([(each.shape, str(each.dtype)) for each in joined.parameters]),
        )
        parameters = tuple(map(self._parameter, joined.parameters))
        return RunNetwork(network, parameters, tuple(joined.inputs), tuple(outputs))

    def _parameter(self, parameter: gluon.Parameter) -> int:
        number = self._parameter_numbers.setdefault(id(parameter), len(self.parameters))
        if number == len(self.parameters):
            self.parameters.append(parameter)
        return number

    def _number(self, graph: Subgraph, inputs, outputs, parameters) -> int:
        """Return the number of a network; graphs that differ in operators' names share one."""
        key = graph.structure or graph.symbol.tojson(), inputs, outputs, parameters
        if key not in self._number_of:
            self._number_of[key] = len(self.all)
            self.all.append(_of_batches(graph, inputs, outputs, self._training))
        return self._number_of[key]


class _JoinedGraphs:
    """Join operators' graphs to one: its inputs (values of the block), its parameters, and the
    entry of each value."""

    def __init__(self, applied: Sequence[Applied]):
        self.nodes: list[Node] = []
        self.inputs: list[int] = []
        self.parameters: list[Any] = []
        self.entry_of: dict[int, Entry] = {}
        self._variable_of: dict[int, Entry] = {}
        made = {place for each in applied for place in each.outputs}
        for each in applied:
            for place in each.inputs:
                if place not in made and place not in self.entry_of:
                    self.entry_of[place] = self._variable(INPUT % len(self.inputs))
                    self.inputs.append(place)
        for number, each in enumerate(applied):
            self._add(each, number)

    def _variable(self, name: str, attrs: Optional[Attrs] = None) -> Entry:
        self.nodes.append(Node('', name, attrs or Attrs()))
        return Entry(len(self.nodes) - 1)

    def _add(self, each: Applied, number: int) -> None:
        entries: dict[int, Entry] = {}  # of the first output of each of its nodes

        def moved(entry: Entry) -> Entry:
            first = entries[entry.node]
            return Entry(first.node, first.output + entry.output)

        for index, node in enumerate(each.graph.nodes):
            if not node.is_variable:
                entries[index] = Entry(len(self.nodes))
                inputs = tuple(map(moved, node.inputs))
                # MXNet's ONNX exporter appends digits: no name of a node is another with digits.
                self.nodes.append(node._replace(name=f'n{number}_{index}o', inputs=inputs))
            elif node.name in each.parameters:
                entries[index] = self._parameter(each.parameters[node.name], node.attrs)
            else:
                position = int(node.name[len(INPUT) - 2 :])
                entries[index] = self.entry_of[each.inputs[position]]
        self.entry_of.update(zip(each.outputs, map(moved, each.graph.heads)))

    def _parameter(self, parameter: gluon.Parameter, attrs: Attrs) -> Entry:
        if id(parameter) not in self._variable_of:
            name = PARAMETER % len(self.parameters)
            self._variable_of[id(parameter)] = self._variable(name, attrs)
            self.parameters.append(parameter)
        return self._variable_of[id(parameter)]


def _of_batches(
    graph: Subgraph, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], training: bool
) -> Network:
    """Return the network for a batch of samples where rules say how, else for one sample."""
    count = len(graph.operators)
    if len({spec.shape[0] for spec in inputs}) == 1:
        own = {INPUT % place: spec.shape[1:] for place, spec in enumerate(inputs)}
        found = analyse(graph, own, training)
        rows = inputs[0].shape[0]
        if found.verdict is Verdict.PROVED and [spec.shape[0] for spec in outputs] == [
            rows * factor for factor in found.factors
        ]:
            return Network(graph, inputs, outputs, True, count)
    if inputs:
        try:
            shapes = {INPUT % place: spec.shape for place, spec in enumerate(inputs)}
            return Network(lift(graph, shapes), inputs, outputs, True, count)
        except (NoRule, mx.base.MXNetError):
            pass
    return Network(graph, inputs, outputs, False, count)
