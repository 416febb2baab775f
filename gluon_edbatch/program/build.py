"""Blocks while they are made: what is computed of which values, sorted into networks and steps."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import gluon

from ..mx.symbols import symbol_function
from ..ops.attrs import Attrs
from ..ops.whole import NoRule
from ..subgraph.ir import Entry, Node, Subgraph
from ..subgraph.lift import lift
from ..subgraph.rowwise import Verdict, analyse
from ..subgraph.structure import flatten, unflatten
from ..subgraph.trace import INPUT, StaticGraph, trace_block
from .errors import ProgramError
from .graph import (
    Calculate,
    End,
    Fill,
    Give,
    Network,
    NumberSpec,
    ProgramBlock,
    Read,
    Run,
    Spec,
    Step,
    TensorSpec,
)
from .values import Dynamic, Number, Tensor, kind_of

PARAMETER = 'edb_parameter%d'


class Applied(NamedTuple):
    """A static graph on values of a block; its results are values of it, too."""

    graph: Subgraph
    parameters: Dict[str, Any]
    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]


class Shared:
    """What all blocks of a program have in common.

    Attributes
    ----------
    networks : list of Network
        Each once, whatever its parameters.
    parameters : list of Parameter
    constants : list of numpy.ndarray
    training : bool
        Whether operators behave as in training.
    """

    def __init__(self, training: bool):
        self.networks: List[Network] = []
        self.parameters: List[gluon.Parameter] = []
        self.constants: List[np.ndarray] = []
        self.training = training
        self._network_of: Dict[Any, int] = {}
        self._traced: Dict[Any, Any] = {}

    def traced(self, block: gluon.HybridBlock, template: Any, shapes: Sequence[TensorSpec]) -> Any:
        """A block's graph, and the specs of its outputs."""
        key = id(block), template, tuple(shapes)
        if key not in self._traced:
            graph = trace_block(block, template, len(shapes))
            self._traced[key] = graph, _specs(graph.subgraph, shapes, graph.parameters)
        return self._traced[key]

    def parameter(self, parameter: gluon.Parameter) -> int:
        """Its number."""
        for number, each in enumerate(self.parameters):
            if each is parameter:
                return number
        self.parameters.append(parameter)
        return len(self.parameters) - 1

    def constant(self, array: np.ndarray) -> int:
        """Its number; equal ones have one."""
        for number, each in enumerate(self.constants):
            if each.dtype == array.dtype and np.array_equal(each, array) and each.shape == array.shape:
                return number
        self.constants.append(array)
        return len(self.constants) - 1

    def network(
        self,
        graph: Subgraph,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Sequence[Any],
    ) -> int:
        """That of a graph whose variables have no names of their own."""
        nodes = [
            (node.op, node.is_variable and node.name, tuple(sorted(node.attrs.items())), node.inputs)
            for node in graph.nodes
        ]
        key = tuple(nodes), graph.heads, tuple(inputs), tuple(outputs), tuple(shapes)
        if key not in self._network_of:
            self._network_of[key] = len(self.networks)
            self.networks.append(_of_batches(graph, tuple(inputs), tuple(outputs), self.training))
        return self._network_of[key]


def _specs(
    graph: Subgraph, inputs: Sequence[TensorSpec], parameters: Dict[str, Any]
) -> List[TensorSpec]:
    """Of the results."""
    shapes = {INPUT % place: spec.shape for place, spec in enumerate(inputs)}
    dtypes = {INPUT % place: np.dtype(spec.dtype) for place, spec in enumerate(inputs)}
    for name, parameter in parameters.items():
        dtypes[name] = np.dtype(parameter.dtype)
    found = graph.results(shapes, dtypes)
    return [TensorSpec(tuple(shape), np.dtype(dtype).name) for shape, dtype in found]


def _of_batches(
    graph: Subgraph, inputs: Tuple[TensorSpec, ...], outputs: Tuple[TensorSpec, ...], training: bool
) -> Network:
    """The network for several samples at once, where rules say how."""
    rows = {spec.shape[0] for spec in inputs}
    if not inputs:
        return Network(graph, inputs, outputs, False)
    if len(rows) == 1:
        own = {INPUT % place: spec.shape[1:] for place, spec in enumerate(inputs)}
        found = analyse(graph, own, training)
        (each,) = rows
        if found.verdict is Verdict.PROVED and all(
            spec.shape[0] == each * factor for spec, factor in zip(outputs, found.factors)
        ):
            return Network(graph, inputs, outputs, True)
    try:
        shapes = {INPUT % place: spec.shape for place, spec in enumerate(inputs)}
        return Network(lift(graph, shapes), inputs, outputs, True)
    except (NoRule, mx.base.MXNetError):
        return Network(graph, inputs, outputs, False)


class Builder:
    """One block.

    Parameters
    ----------
    shared : Shared
    takes : sequence of Spec
    name : str
    """

    def __init__(self, shared: Shared, takes: Sequence[Spec], name: str):
        self.shared, self.name = shared, name
        self.takes = tuple(takes)
        self.line = name
        self._specs: List[Spec] = list(takes)
        self._made: List[Union[Applied, Read, Calculate, Give, Fill]] = []
        self._filled: Dict[int, Tensor] = {}

    def taken(self) -> List[Dynamic]:
        """Values for what the block takes."""
        return [self._value(place) for place in range(len(self.takes))]

    def _value(self, place: int) -> Any:
        spec = self._specs[place]
        if isinstance(spec, NumberSpec):
            return Number(self, place, spec.kind)
        return Tensor(self, place, spec)

    def _new(self, spec: Spec) -> int:
        self._specs.append(spec)
        return len(self._specs) - 1

    # --- what values ask for ---------------------------------------------------------------------

    def calculate(self, op: str, operands: Sequence[Any], kind: str) -> Number:
        """A number of numbers."""
        places = tuple(
            [self._place(each) if isinstance(each, Number) else (each,) for each in operands]
        )
        place = self._new(NumberSpec(kind))
        self._made.append(Calculate(place, op, places, self.line))
        return Number(self, place, kind)

    def read(self, tensor: Tensor) -> Number:
        """The only element of a tensor."""
        if tensor.size != 1:
            raise ProgramError(
                f'a number is made of an array of shape {tensor.shape}: only one of a single '
                f'element can become one'
            )
        kind = 'float' if np.issubdtype(tensor.dtype, np.floating) else 'int'
        kind = 'bool' if tensor.dtype is np.bool_ else kind
        place = self._new(NumberSpec(kind))
        self._made.append(Read(place, self._place(tensor), kind))
        return Number(self, place, kind)

    def give(self, number: Any, dtype: Any) -> Tensor:
        """A number as a tensor of shape (1,)."""
        spec = TensorSpec((1,), np.dtype(dtype).name)
        place = self._new(spec)
        self._made.append(Give(place, self._place(number), spec.dtype))
        return Tensor(self, place, spec)

    def fill(self, array: Any) -> Tensor:
        """A constant as a tensor."""
        values = array.asnumpy() if isinstance(array, mx.nd.NDArray) else np.asarray(array)
        constant = self.shared.constant(values)
        if constant not in self._filled:
            spec = TensorSpec(values.shape, values.dtype.name)
            place = self._new(spec)
            self._made.append(Fill(place, constant))
            self._filled[constant] = Tensor(self, place, spec, True)
        return self._filled[constant]

    def apply(self, op: str, arguments: Sequence[Any], attributes: Dict[str, Any]) -> Any:
        """An operator, as ``mx.sym`` has it."""
        leaves: List[Any] = []
        kinds = (Tensor, mx.nd.NDArray)
        template = flatten((tuple(arguments), attributes), kinds, leaves)
        variables = iter([mx.sym.var(INPUT % place) for place in range(len(leaves))])
        own, named = unflatten(template, variables)
        own = [part for each in own for part in (each if _holds_symbols(each) else [each])]
        function = getattr(mx.sym, op, None) or symbol_function(op)
        try:
            symbol = function(*own, **named)
            graph = Subgraph(mx.sym.Group(list(symbol)))
            specs = _specs(graph, [_spec(each) for each in leaves], {})
        except (mx.base.MXNetError, TypeError, ValueError, AttributeError) as error:
            raise ProgramError(f'{op}: {_first_line(error)}') from None
        results = self._apply(graph, {}, leaves, specs)
        return results[0] if len(results) == 1 else results

    def call(
        self, block: gluon.HybridBlock, arguments: Tuple[Any, ...], keywords: Dict[str, Any]
    ) -> Any:
        """A block, as it is hybridized."""
        if keywords:
            raise ProgramError(f'{block.name} gets {", ".join(keywords)} by name: give it by place')
        leaves: List[Any] = []
        template = flatten(arguments, (Tensor, mx.nd.NDArray), leaves)
        graph, specs = self.shared.traced(block, template[1:], [_spec(each) for each in leaves])
        results = self._apply(graph.subgraph, graph.parameters, leaves, specs)
        return unflatten(graph.results, iter([results[leaf] for leaf in graph.leaves]))

    def _apply(
        self,
        graph: Subgraph,
        parameters: Dict[str, Any],
        leaves: Sequence[Any],
        specs: Sequence[TensorSpec],
    ) -> List[Tensor]:
        inputs = tuple([self._place(self._tensor(each)) for each in leaves])
        outputs = tuple([self._new(spec) for spec in specs])
        self._made.append(Applied(graph, parameters, inputs, outputs))
        return [Tensor(self, place, spec) for place, spec in zip(outputs, specs)]

    def _tensor(self, value: Any) -> Tensor:
        return value if isinstance(value, Tensor) else self.fill(value)

    def _place(self, value: Dynamic) -> int:
        if value.builder is not self:
            raise ProgramError(
                'a value is used that was kept where a program does not look, such as an '
                'attribute or an object of a class of yours: keep it in a variable, list or dict'
            )
        return value.place

    # --- the finished block ----------------------------------------------------------------------

    def place_of(self, value: Any) -> Union[int, Tuple[Any]]:
        """Where a value is, or a constant number."""
        return (value,) if kind_of(value) and not isinstance(value, Number) else self._place(value)

    def finished(self, end: End, wanted: Sequence[Any]) -> ProgramBlock:
        """With those steps that are needed."""
        needed = {place for place in wanted if isinstance(place, int)}
        kept = []
        for made in reversed(self._made):
            outputs = made.outputs if isinstance(made, Applied) else (made.output,)
            if needed.intersection(outputs):
                kept.append(made)
                needed.update(_read(made))
        kept.reverse()
        return ProgramBlock(self.takes, self._steps(kept, set(wanted)), end, self.name)

    def _steps(self, made: List[Any], wanted: set) -> List[Step]:
        """Operators become networks, as few as there can be: one for each stretch between numbers
        that are read and given again."""
        level = dict.fromkeys(range(len(self.takes)), 0)
        by_level: Dict[int, Tuple[List[Any], List[Applied], List[Any]]] = {}
        for each in made:
            own = max([level[place] for place in _read(each)], default=0)
            before, applied, after = by_level.setdefault(own, ([], [], []))
            if isinstance(each, Applied):
                applied.append(each)
            elif isinstance(each, Read):
                own += 1
                after.append(each)
            else:
                before.append(each)
            outputs = each.outputs if isinstance(each, Applied) else (each.output,)
            level.update(dict.fromkeys(outputs, own))
        uses = {place for each in made if not isinstance(each, Applied) for place in _read(each)}
        steps: List[Step] = []
        for own in sorted(by_level):
            before, applied, after = by_level[own]
            steps += before
            if applied:
                later = {
                    place
                    for other, (_, others, _) in by_level.items()
                    if other > own
                    for each in others
                    for place in each.inputs
                }
                steps.append(self._network(applied, wanted | uses | later))
            steps += after
        return steps

    def _network(self, applied: List[Applied], wanted: set) -> Run:
        """One network for operators, of which some results are wanted."""
        made = {place for each in applied for place in each.outputs}
        inputs: List[int] = []
        parameters: List[Any] = []
        nodes: List[Node] = []
        entry_of: Dict[int, Entry] = {}
        for each in applied:
            for place in each.inputs:
                if place not in made and place not in inputs:
                    inputs.append(place)
                    entry_of[place] = Entry(len(nodes))
                    nodes.append(Node('', INPUT % (len(inputs) - 1), Attrs()))
        variable_of: Dict[int, Entry] = {}
        for number, each in enumerate(applied):
            _add_nodes(each, number, nodes, entry_of, variable_of, parameters)
        outputs = [place for place in sorted(made) if place in wanted]
        graph = Subgraph.of(nodes, [entry_of[place] for place in outputs])
        specs: Any = self._specs
        network = self.shared.network(
            graph,
            [specs[place] for place in inputs],
            [specs[place] for place in outputs],
            [(parameter.shape, str(parameter.dtype)) for parameter in parameters],
        )
        numbers = tuple([self.shared.parameter(parameter) for parameter in parameters])
        return Run(network, numbers, tuple(inputs), tuple(outputs))


def _add_nodes(each, number, nodes, entry_of, variable_of, parameters) -> None:
    """One static graph's nodes, with other names."""
    place: Dict[int, Entry] = {}
    for index, node in enumerate(each.graph.nodes):
        if not node.is_variable:
            place[index] = Entry(len(nodes))
            inputs = tuple(
                [Entry(place[entry.node].node, place[entry.node].output + entry.output)
                 if each.graph.nodes[entry.node].is_variable
                 else Entry(place[entry.node].node, entry.output)
                 for entry in node.inputs]
            )
            nodes.append(node._replace(name=f'n{number}_{index}', inputs=inputs))
        elif node.name in each.parameters:
            parameter = each.parameters[node.name]
            if id(parameter) not in variable_of:
                variable_of[id(parameter)] = Entry(len(nodes))
                nodes.append(node._replace(name=PARAMETER % len(parameters)))
                parameters.append(parameter)
            place[index] = variable_of[id(parameter)]
        else:
            position = int(node.name[len(INPUT) - 2 :])
            place[index] = entry_of[each.inputs[position]]
    for output, head in zip(each.outputs, each.graph.heads):
        at = place[head.node]
        entry_of[output] = (
            at if each.graph.nodes[head.node].is_variable else Entry(at.node, head.output)
        )


def _read(made: Any) -> List[int]:
    """Values that a step needs."""
    if isinstance(made, Applied):
        return list(made.inputs)
    if isinstance(made, Calculate):
        return [place for place in made.operands if isinstance(place, int)]
    return [] if isinstance(made, Fill) else [made.input]


def _spec(value: Any) -> TensorSpec:
    return TensorSpec(tuple(value.shape), np.dtype(value.dtype).name)


def _holds_symbols(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, mx.sym.Symbol) for each in value)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if 'Error in operator' in line or 'Check failed' in line]
    return (told or lines or [type(error).__name__])[0][:200]
