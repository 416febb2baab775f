"""Build blocks: sort what is computed from which values into networks and steps."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon

from gluon_edbatch_core.branching.program_graph import (
    Calculate,
    End,
    FillTensor,
    GiveTensor,
    NumberSpec,
    ReadNumber,
    Spec,
    TensorSpec,
    read_by,
    spec_of_array,
)
from gluon_edbatch_core.errors import ProgramError, RecordError

from ..mx.symbols import symbol_function
from ..subgraph.ir import Entry, Node, Subgraph
from ..subgraph.structure import flatten, unflatten
from ..subgraph.trace import INPUT, trace_block
from ..subgraph.workarounds import mended
from .abstract_values import Dynamic, SampleNumber, SampleTensor, apply, kind_of
from .block_ir import Applied, IRBlock, Made, Place, exact_array, needed


class Shared:
    """What all blocks of a program have in common."""

    def __init__(self, training: bool, ctx: mx.Context):
        self.ctx, self.training = ctx, training
        self._traced: dict[Any, Any] = {}

    def traced(self, block: gluon.HybridBlock, template: Any, shapes: Sequence[TensorSpec]) -> Any:
        """Return a block's graph, and the specs of its outputs."""
        key = id(block), template, tuple(shapes)
        if key not in self._traced:
            graph = trace_block(block, template, len(shapes))
            graph = graph._replace(subgraph=_harmless(graph.subgraph, shapes))
            self._traced[key] = graph, _specs(graph.subgraph, shapes, graph.parameters)
        return self._traced[key]


def _harmless(graph: Subgraph, inputs: Sequence[TensorSpec]) -> Subgraph:
    """Return the graph without operators that MXNet cannot have in a graph."""
    try:
        return mended(graph, {INPUT % place: spec.shape for place, spec in enumerate(inputs)})
    except RecordError as error:
        raise ProgramError(str(error)) from None


def _specs(
    graph: Subgraph, inputs: Sequence[TensorSpec], parameters: dict[str, Any]
) -> list[TensorSpec]:
    """Return the specs of a graph's results."""
    shapes = {INPUT % place: spec.shape for place, spec in enumerate(inputs)}
    dtypes = {INPUT % place: np.dtype(spec.dtype) for place, spec in enumerate(inputs)}
    for name, parameter in parameters.items():
        dtypes[name] = np.dtype(parameter.dtype)
    found = graph.results(shapes, dtypes)
    return [TensorSpec(tuple(shape), np.dtype(dtype).name) for shape, dtype in found]


class Builder:
    """Build one block, which takes values of some specs."""

    def __init__(self, shared: Shared, takes: Sequence[Spec], name: str):
        self.shared, self.name = shared, name
        self._takes = len(takes)
        self.line = name
        self._specs: list[Spec] = list(takes)
        self._made: list[Made] = []
        self._filled: dict[Any, SampleTensor] = {}

    def taken(self) -> list[Dynamic]:
        """Return abstract values for the values that the block takes."""
        return [self._value(place) for place in range(self._takes)]

    def _value(self, place: int) -> Any:
        spec = self._specs[place]
        if isinstance(spec, NumberSpec):
            return SampleNumber(self, place, spec.kind)
        return SampleTensor(self, place, spec)

    def _new(self, spec: Spec) -> int:
        self._specs.append(spec)
        return len(self._specs) - 1

    # --- what values ask for ---------------------------------------------------------------------

    def calculate(self, op: str, operands: Sequence[Any], kind: str) -> SampleNumber:
        """Add the calculation of a number from numbers."""
        places = tuple(
            [self._place(each) if isinstance(each, SampleNumber) else (each,) for each in operands]
        )
        place = self._new(NumberSpec(kind))
        self._made.append(Calculate(place, op, places, self.line))
        origins = [each.origins for each in operands if isinstance(each, SampleNumber)]
        return SampleNumber(self, place, kind, frozenset().union(*origins))

    def read(self, tensor: SampleTensor) -> SampleNumber:
        """Add a step that reads the only element of a tensor."""
        if tensor.size != 1:
            raise ProgramError(
                f'a number is made of an array of shape {tensor.shape}: only one of a single '
                f'element can become one'
            )
        kind = 'float' if np.issubdtype(tensor.dtype, np.floating) else 'int'
        kind = 'bool' if tensor.dtype is np.bool_ else kind
        place = self._new(NumberSpec(kind))
        rivals = _near_ties_of(self, self._made, self._place(tensor))
        line = self.line if rivals else ''
        self._made.append(ReadNumber(place, self._place(tensor), kind, rivals, line))
        return SampleNumber(self, place, kind)

    def within(self, number: int, entry: Entry) -> Optional[SampleTensor]:
        """Make an inner entry of step `number`'s graph one of its results, and return that; None
        for a parameter."""
        made: Any = self._made[number]
        graph, node = made.graph, made.graph.nodes[entry.node]
        if node.is_variable:
            place = _places_of_inputs(made).get(node.name)
        elif entry in graph.heads:
            place = made.outputs[graph.heads.index(entry)]
        else:
            graph = Subgraph.of(graph.nodes, (*graph.heads, entry))
            inputs: Any = [self._specs[place] for place in made.inputs]
            place = self._new(_specs(graph, inputs, made.parameters)[-1])
            outputs = (*made.outputs, place)
            self._made[number] = Applied(graph, made.parameters, made.inputs, outputs)
        return None if place is None else self._value(place)

    def give(self, number: Any, dtype: Any) -> SampleTensor:
        """Add the conversion of a number to a tensor of shape (1,)."""
        spec = TensorSpec((1,), np.dtype(dtype).name)
        place = self._new(spec)
        self._made.append(GiveTensor(place, self._place(number), spec.dtype))
        return SampleTensor(self, place, spec)

    def fill(self, array: Any, anew: bool = False) -> SampleTensor:
        """Add a constant as a tensor, one for equal constants unless it is made `anew`."""
        values = array.asnumpy() if isinstance(array, mx.nd.NDArray) else np.asarray(array)
        key = exact_array(values)
        if anew or key not in self._filled:
            spec = spec_of_array(values)
            place = self._new(spec)
            self._made.append(FillTensor(place, values))
            if anew:
                return SampleTensor(self, place, spec)
            self._filled[key] = SampleTensor(self, place, spec, True)
        return self._filled[key]

    def apply(self, op: str, arguments: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """Add an operator, as ``mx.sym`` has it."""
        leaves: list[Any] = []
        kinds = (SampleTensor, mx.nd.NDArray)
        template = flatten((tuple(arguments), attributes), kinds, leaves)
        variables = iter([mx.sym.var(INPUT % place) for place in range(len(leaves))])
        own, named = unflatten(template, variables)
        own = [part for each in own for part in (each if _holds_symbols(each) else [each])]
        function = getattr(mx.sym, op, None) or symbol_function(op)
        try:
            symbol = function(*own, **named)
            given = list(map(spec_of_array, leaves))
            graph = _harmless(Subgraph(mx.sym.Group(list(symbol))), given)
            specs = _specs(graph, given, {})
        except (mx.base.MXNetError, TypeError, ValueError, AttributeError) as error:
            raise ProgramError(f'{op}: {_first_line(error)}') from None
        results = self._apply(graph, {}, leaves, specs)
        return results[0] if len(results) == 1 else results

    def call(
        self, block: gluon.HybridBlock, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Add a call of a block, as it is hybridized."""
        if keywords:
            raise ProgramError(f'{block.name} gets {", ".join(keywords)} by name: give it by place')
        leaves: list[Any] = []
        template = flatten(arguments, (SampleTensor, mx.nd.NDArray), leaves)
        given = list(map(spec_of_array, leaves))
        graph, specs = self.shared.traced(block, template[1:], given)
        results = self._apply(graph.subgraph, graph.parameters, leaves, specs)
        return unflatten(graph.results, iter([results[leaf] for leaf in graph.leaves]))

    def _apply(
        self,
        graph: Subgraph,
        parameters: dict[str, Any],
        leaves: Sequence[Any],
        specs: Sequence[TensorSpec],
    ) -> list[SampleTensor]:
        inputs = tuple([self._place(self._tensor(each)) for each in leaves])
        outputs = tuple([self._new(spec) for spec in specs])
        self._made.append(Applied(graph, parameters, inputs, outputs))
        return [SampleTensor(self, place, spec) for place, spec in zip(outputs, specs)]

    def _tensor(self, value: Any) -> SampleTensor:
        return value if isinstance(value, SampleTensor) else self.fill(value)

    def _place(self, value: Dynamic) -> int:
        if value.builder is not self:
            raise ProgramError(
                'a value is used that was kept where a program does not look, such as an '
                'attribute or an object of a class of yours: keep it in a variable, list or dict'
            )
        return value.place

    # --- the finished block ----------------------------------------------------------------------

    def place_of(self, value: Any) -> Place:
        """Return the place of a value, or a constant number."""
        return (
            (value,)
            if kind_of(value) and not isinstance(value, SampleNumber)
            else self._place(value)
        )

    def finished(self, end: End) -> IRBlock:
        """Return the block with the steps that its end needs."""
        made = needed(self._made, read_by(end))
        return IRBlock(self._takes, tuple(self._specs), made, end, self.name)


def _holds_symbols(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(
        isinstance(each, mx.sym.Symbol) for each in value
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if 'Error in operator' in line or 'Check failed' in line]
    return (told or lines or [type(error).__name__])[0][:200]


# --- of what a number that is read was chosen ---------------------------------------------------

_OF_THE_LARGEST, _OF_THE_SMALLEST = ('argmax', 'argmax_channel'), 'argmin'
_ORDERED = frozenset(
    [
        f'{prefix}{name}{suffix}'
        for name in ('lesser', 'lesser_equal', 'greater', 'greater_equal')
        for prefix, suffix in (('broadcast_', ''), ('_', ''), ('_', '_scalar'))
    ]
)
_SAME_ELEMENT = frozenset('Reshape reshape Flatten expand_dims squeeze Cast cast _copy'.split())


def _near_ties_of(builder: Any, made: list[Made], place: int) -> tuple[int, ...]:
    """Return a tensor whose two largest elements decided a value of a block, or nothing. If they
    are nearly equal, rounding may have decided (see `ReadNumber`). The value at `place` is the
    position of a largest or smallest element, or 0 or 1 by a comparison."""
    for number, each in reversed(list(enumerate(made))):
        if not isinstance(each, Applied) or place not in each.outputs:
            continue
        nodes, places = each.graph.nodes, _places_of_inputs(each)
        node = nodes[each.graph.heads[each.outputs.index(place)].node]
        while node.op in _SAME_ELEMENT:
            node = nodes[node.inputs[0].node]
        if node.op in _ORDERED or node.op in _OF_THE_LARGEST or node.op == _OF_THE_SMALLEST:
            found = [builder.within(number, entry) for entry in node.inputs]
            if any([one is None or not _is_rounded(one) for one in found]):
                return ()
            return (_together(node, found).place,)
        if node.name not in places:
            return ()
        place = places[node.name]
    return ()


def _is_rounded(tensor: SampleTensor) -> bool:
    return np.issubdtype(tensor.dtype, np.floating)


def _together(node: Node, found: list[SampleTensor]) -> SampleTensor:
    """Return the compared values as one tensor whose largest elements are compared."""
    if node.op == _OF_THE_SMALLEST:
        return apply('negative', found[0])
    if node.op in _OF_THE_LARGEST:
        return found[0]
    sides = [apply('reshape', each, shape=(1, 1)) for each in found]
    if len(sides) < 2:  # the other one is a constant: as many of it as there are samples
        number = node.attrs.number('scalar', 0.0)
        sides.append(apply('clip', sides[0], a_min=number, a_max=number))
    return apply('concat', *sides, dim=1)


def _places_of_inputs(applied: Applied) -> dict[str, int]:
    """Return a block's values by their names in a graph that is applied to them."""
    return {INPUT % position: place for position, place in enumerate(applied.inputs)}
