"""From a Symbol to a program for rows, operator by operator.

Rows of more than one axis are laid out as MXNet does, so that reshaping is free. Ragged arguments,
(N, K, ...) in the graph, are never padded: an entry with their axis 1 has a row for each value. What
has no rule here runs as a `CachedOp`, as do types whose rows are not of one floating-point type.
"""
import json
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx
import numpy as np

from ..static.node_type import Kind, NodeType, one_group
from ..static.passes import apply_passes
from ..static.passes.horizontal import horizontal, packs
from ..static.program import tell_dtypes
from ..static.trace import INPUT
from .instructions import (NO_VIEW, Binary, Instruction, Opcode, Place, Register, RowProgram,
                           Spread, Unary, View, read_backward)

Shape = Tuple[int, ...]
Entry = Tuple[int, int]  # node and output
_PREFIX = INPUT.replace('%d', '')


class Unsupported(Exception):
    """There is no rule for an operator, or none for these arguments."""


class Value(NamedTuple):
    """What an entry of the graph is: rows, or a parameter.

    Attributes
    ----------
    shape : tuple of int
        Of a row; of all for a parameter.
    view : View or None
    ragged : bool
        Whether it has a row for each value of the ragged arguments.
    parameter : int
        Position among the type's parameters, or -1.
    begin : int
        Of a part of a parameter: its first element.
    """

    shape: Shape
    view: Optional[View] = None
    ragged: bool = False
    parameter: int = -1
    begin: int = 0

    @property
    def lead(self) -> int:
        """How many axes of the graph's entry are in front of those of a row."""
        return 2 if self.ragged else 1


class Node(NamedTuple):
    """An operator of the graph.

    Attributes
    ----------
    index : int
    op : str
    attrs : dict
    sources : list of Entry
    shapes : list of tuple
        Of its outputs, with axis 0.
    """

    index: int
    op: str
    attrs: Dict[str, str]
    sources: List[Entry]
    shapes: List[Shape]


def lower(node_type: NodeType) -> RowProgram:
    """The program of a type.

    Raises
    ------
    Unsupported
        With the reason, for the report.
    """
    if node_type.alone or any(factor != 1 for factor in node_type.factors):
        raise Unsupported('runs alone')
    if node_type.ctx.device_type != 'cpu':
        raise Unsupported('is not on a CPU')
    ragged = [position for position, argument in enumerate(node_type.arguments)
              if argument.kind is Kind.RAGGED]
    if ragged and (node_type.lengths is not None or not node_type.neutral
                   or not node_type.options.segments
                   or not one_group(ragged, node_type.conditions)):
        raise Unsupported('pads its ragged arguments')
    dtypes = {np.dtype(argument.arena[1]) for argument in node_type.arguments}
    dtypes |= {np.dtype(spec.dtype) for spec in node_type.outputs}
    dtypes |= {np.dtype(parameter.dtype) for parameter in node_type.parameters}
    if len(dtypes) != 1 or next(iter(dtypes)) not in (np.float32, np.float64):
        raise Unsupported('mixes element types')
    symbol = node_type.graph.symbol.__copy__()
    tell_dtypes(symbol, node_type)
    # The other passes choose among MXNet's operators.
    options = node_type.options.but(operators=False, middle_axis=False, sums=False)
    symbol, changed = apply_passes(symbol, node_type.trial_shapes, options, 'cpu')
    symbol = horizontal(symbol) if options.horizontal else symbol
    program = _Lowering(node_type, symbol, node_type.trial_shapes,
                        next(iter(dtypes)).itemsize).program()
    node_type.changed_by.update(changed + ['segments'] * bool(ragged)
                                + ['horizontal'] * bool(program.packs))
    return program


class _Lowering:
    def __init__(self, node_type: NodeType, symbol: mx.sym.Symbol, shapes: Dict[str, Shape],
                 element_size: int):
        self.node_type = node_type
        self.element_size = element_size
        self.graph = json.loads(symbol.tojson())
        self.heads: List[Entry] = [tuple(head[:2]) for head in self.graph['heads']]
        place = {name: i for i, name in enumerate(node_type.graph.parameters)}
        packed = packs(symbol)
        self.packs = [tuple(place[name] for name in names) for names in packed.values()]
        self.names = {name: i for i, name in enumerate([*place, *packed])}
        self.nodes = self._nodes(symbol, shapes)
        self.batch_shape = self._batch_shape(shapes)
        self.uses = self._uses()
        self.registers: List[Register] = []
        self.instructions: List[Instruction] = []
        self.values: Dict[Entry, Value] = {}
        self.placed: Dict[Entry, View] = {}
        self.parameters: List[Tuple[int, int]] = []
        self.folded: Set[int] = set()  # products that an addition computes into its result

    # --- the graph -------------------------------------------------------------------------------

    def _nodes(self, symbol, shapes) -> List[Node]:
        internals = symbol.get_internals()
        used = set(symbol.list_inputs())
        _, found, _ = internals.infer_shape(
            **{name: shape for name, shape in shapes.items() if name in used})
        if found is None:
            raise Unsupported('shapes cannot be inferred')
        names = [output.name for output in internals]
        nodes, position = [], 0
        for index, node in enumerate(self.graph['nodes']):
            first = position
            position += 1
            while node['op'] != 'null' and position < len(names) \
                    and names[position] == node['name']:
                position += 1
            nodes.append(Node(index, node['op'], node.get('attrs', {}),
                              [tuple(source[:2]) for source in node['inputs']],
                              [tuple(shape) for shape in found[first:position]]))
        return nodes

    def _batch_shape(self, shapes) -> Shape:
        """How many rows the trial shapes have, and how many values for each."""
        for position, argument in enumerate(self.node_type.arguments):
            if argument.kind is Kind.RAGGED and INPUT % position in shapes:
                return tuple(shapes[INPUT % position][:2])
        return tuple(next(iter(shapes.values()))[:1])

    def _uses(self) -> Dict[Entry, List[int]]:
        uses: Dict[Entry, List[int]] = {}
        for node in self.nodes:
            for source in node.sources:
                uses.setdefault(source, []).append(node.index)
        return uses

    def _only_use(self, entry: Entry) -> Optional[Node]:
        """The one operator that reads an entry, which is no result either."""
        uses = self.uses.get(entry, [])
        return self.nodes[uses[0]] if len(uses) == 1 and entry not in self.heads else None

    # --- the program -----------------------------------------------------------------------------

    def program(self) -> RowProgram:
        for node in reversed(self.nodes):
            self._place(node)
        for node in self.nodes:
            if node.op == 'null':
                self._variable(node)
            elif node.index not in self.folded:
                self._operator(node)
        for position, head in enumerate(self.heads):
            self._result(position, head)
        _mark_kept(self.registers, self.instructions)
        _mark_gradients(self.registers, self.instructions, self.node_type)
        return RowProgram(self.registers, self.instructions, self.parameters, self.packs,
                          len(self.node_type.arguments), len(self.heads), self.element_size)

    def _place(self, node: Node) -> None:
        """Decide where results go before they are computed: to a result, into a concatenation."""
        if node.op == 'null' or len(node.shapes) != 1 or node.op in _VIEWS:
            return
        entry = (node.index, 0)
        if entry in self.heads and entry not in self.placed:
            width = _width(node.shapes[0][1:])
            register = Register(width, False, Place.OUTPUT, self.heads.index(entry))
            self.registers.append(register)
            self.placed[entry] = View(len(self.registers) - 1, 0, width)
        if node.op in ('Concat', 'concat') and self._pieces_lie_side_by_side(node):
            self._place_pieces(node)
        elif node.op in _ADDITIONS:
            self.folded.update(self._products_to_sum(node))

    def _pieces_lie_side_by_side(self, node: Node) -> bool:
        axis = _axis(node.attrs.get('dim', '1'), len(node.shapes[0]))
        return axis > 0 and _width(node.shapes[0][1:axis]) == 1

    def _place_pieces(self, node: Node) -> None:
        entry = (node.index, 0)
        whole = self.placed.get(entry)
        if whole is None:
            whole = self.placed[entry] = self.new(_width(node.shapes[0][1:]), None)
        offset = whole.offset
        for source in node.sources:
            width = _width(self.nodes[source[0]].shapes[source[1]][1:])
            piece = self.nodes[source[0]]
            if (self._only_use(source) is not None and source not in self.placed
                    and piece.op not in _VIEWS and len(piece.shapes) == 1
                    and (piece.op != 'null' or self._is_argument(piece))):
                self.placed[source] = View(whole.register, offset, width)
            offset += width

    def _is_argument(self, node: Node) -> bool:
        return self.graph['nodes'][node.index]['name'].startswith(_PREFIX)

    def _products_to_sum(self, node: Node) -> List[int]:
        """The products among the terms of an addition that nothing else reads."""
        if len(set(self.nodes[source[0]].shapes[source[1]] for source in node.sources)) != 1:
            return []
        return [source[0] for source in node.sources
                if self.nodes[source[0]].op == 'FullyConnected'
                and self._only_use(source) is node]

    def _variable(self, node: Node) -> None:
        name = self.graph['nodes'][node.index]['name']
        entry, shape = (node.index, 0), node.shapes[0]
        if name in self.names:
            self.values[entry] = Value(shape, parameter=self.names[name])
        else:
            position = int(name[len(_PREFIX):])
            argument = self.node_type.arguments[position]
            ragged = argument.kind is Kind.RAGGED
            shape = shape[2:] if ragged else shape[1:]
            view = self.placed.get(entry)
            if view is None:
                self.registers.append(Register(_width(shape), ragged, Place.INPUT, position))
                view = View(len(self.registers) - 1, 0, _width(shape))
            else:
                self._set_ragged(view, ragged)
                self.instructions.append(Instruction(
                    Opcode.LOAD, view, numbers=(position, int(argument.differentiable))))
            self.values[entry] = Value(shape, view, ragged)

    def _operator(self, node: Node) -> None:
        rule = _RULES.get(node.op)
        if rule is None:
            raise Unsupported(f'has {node.op}')
        rule(self, node, [self._value(source) for source in node.sources])

    def _value(self, source: Entry) -> Optional[Value]:
        """None for a product that the reading operator computes itself."""
        return None if source[0] in self.folded else self.values[source]

    def _result(self, position: int, head: Entry) -> None:
        value = self.values[head]
        if value.view is None or value.ragged:
            raise Unsupported('returns something else than rows')
        register = self.registers[value.view.register]
        if (register.place, register.position) == (Place.OUTPUT, position) \
                and value.view.width == register.width:
            return
        self.registers.append(Register(value.view.width, False, Place.OUTPUT, position))
        self.instructions.append(Instruction(
            Opcode.UNARY, View(len(self.registers) - 1, 0, value.view.width), value.view,
            numbers=(Unary.AFFINE,), reals=(1.0, 0.0)))

    # --- what rules use --------------------------------------------------------------------------

    def new(self, width: int, ragged: Optional[bool]) -> View:
        """A register of its own."""
        self.registers.append(Register(width, ragged))
        return View(len(self.registers) - 1, 0, width)

    def _set_ragged(self, view: View, ragged: bool) -> None:
        register = self.registers[view.register]
        if register.ragged is None:
            register.ragged = ragged
        elif register.ragged != ragged:
            raise Unsupported('lays ragged values beside others')

    def out(self, node: Node, ragged: bool, output: int = 0) -> View:
        """Where a result goes; from here on it is known to the operators that read it."""
        entry = (node.index, output)
        shape = node.shapes[output][2 if ragged else 1:]
        view = self.placed.get(entry)
        if view is None:
            view = self.new(_width(shape), ragged)
        elif view.width != _width(shape):
            raise Unsupported('lays ragged values beside others')
        else:
            self._set_ragged(view, ragged)
        self.values[entry] = Value(shape, view, ragged)
        return view

    def lead(self, value: Value) -> Shape:
        """The axes in front of those of a row."""
        return self.batch_shape[:value.lead]

    def alias(self, node: Node, value: Value, view: View, output: int = 0) -> None:
        """A result that is a part, or another shape, of what is there."""
        self.values[node.index, output] = Value(node.shapes[output][value.lead:], view,
                                                value.ragged)

    def emit(self, op: Opcode, out: View, *views: View, **rest) -> None:
        """Append an instruction."""
        self.instructions.append(Instruction(op, out, *views, **rest))

    def parameter(self, value: Value) -> int:
        """Its number in the program."""
        key = value.parameter, value.begin
        if key not in self.parameters:
            self.parameters.append(key)
        return self.parameters.index(key)

    def rows(self, node: Node, value: Value, ragged: bool) -> Value:
        """A parameter as rows that are all the same."""
        if value.parameter < 0:
            return self.expanded(node, value) if ragged and not value.ragged else value
        lead, rank = 2 if ragged else 1, len(node.shapes[0])
        shape = (1,) * (rank - len(value.shape)) + value.shape
        if len(shape) != rank or _width(shape[:lead]) != 1:
            raise Unsupported(f'has {node.op} of a parameter across rows')
        view = self.new(_width(shape), ragged)
        self.emit(Opcode.PARAMETER_ROW, view, parameter=self.parameter(value))
        return Value(shape[lead:], view, ragged)

    def expanded(self, node: Node, value: Value) -> Value:
        """(N, 1, ...) broadcast along the ragged axis: each value gets its row's."""
        if len(value.shape) + 1 != len(node.shapes[0]) or value.shape[0] != 1:
            raise Unsupported(f'has {node.op} of ragged values and others')
        view = self.new(value.view.width, True)
        self.emit(Opcode.EXPAND, view, value.view)
        return Value(value.shape[1:], view, True)


def _width(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _axis(text: str, rank: int) -> int:
    axis = int(text)
    return axis + rank if axis < 0 else axis


def _true(attrs: Dict[str, str], name: str, default: str = 'False') -> bool:
    return attrs.get(name, default) in ('True', 'true', '1')


def _numbers(text: str) -> List[Optional[int]]:
    return [None if part.strip() in ('', 'None') else int(part)
            for part in text.strip('()[] ').split(',') if part.strip()]


def _is_rows(*values: Optional[Value]) -> bool:
    return all(value is not None and value.view is not None for value in values)


def _need_rows(node: Node, *values: Value) -> None:
    if not _is_rows(*values):
        raise Unsupported(f'has {node.op} of a parameter')


# --- rules: one for each operator ----------------------------------------------------------------

def _unary(function: Unary, reals: Callable[[Dict[str, str]], Tuple[float, ...]] = lambda _: ()):
    def rule(low: _Lowering, node: Node, inputs: List[Value]) -> None:
        _need_rows(node, inputs[0])
        low.emit(Opcode.UNARY, low.out(node, inputs[0].ragged), inputs[0].view,
                 numbers=(function,), reals=reals(node.attrs))
    return rule


def _scalar(attrs: Dict[str, str]) -> float:
    return float(attrs['scalar'])


_ACTIVATIONS = {'relu': Unary.RELU, 'sigmoid': Unary.SIGMOID, 'tanh': Unary.TANH,
                'softrelu': Unary.SOFTRELU, 'softsign': Unary.SOFTSIGN}


def _activation(low, node, inputs) -> None:
    _unary(_ACTIVATIONS[node.attrs['act_type']])(low, node, inputs)


def _leaky(low, node, inputs) -> None:
    if node.attrs.get('act_type', 'leaky') != 'leaky':
        raise Unsupported(f'has LeakyReLU of type {node.attrs["act_type"]}')
    _unary(Unary.LEAKY, lambda attrs: (float(attrs.get('slope', 0.25)),))(low, node, inputs)


def _clip(low, node, inputs) -> None:
    _need_rows(node, inputs[0])
    raised = low.new(inputs[0].view.width, inputs[0].ragged)
    low.emit(Opcode.UNARY, raised, inputs[0].view, numbers=(Unary.MAXIMUM,),
             reals=(float(node.attrs['a_min']),))
    low.emit(Opcode.UNARY, low.out(node, inputs[0].ragged), raised, numbers=(Unary.MINIMUM,),
             reals=(float(node.attrs['a_max']),))


def _dropout(low, node, inputs) -> None:
    if low.node_type.mode.training or node.attrs.get('mode') == 'always':
        raise Unsupported('has Dropout in training')
    low.alias(node, inputs[0], inputs[0].view)


def _binary(function: Binary):
    def rule(low: _Lowering, node: Node, inputs: List[Optional[Value]]) -> None:
        if function is Binary.ADD and None in inputs:
            _sum_of_products(low, node)
            return
        ragged = any(value.ragged for value in inputs)
        a, b = [low.rows(node, value, ragged) for value in inputs]
        out = node.shapes[0][a.lead:]
        low.emit(Opcode.BINARY, low.out(node, ragged), a.view, b.view,
                 numbers=(function, _spread(a.shape, out), _spread(b.shape, out)))
    return rule


def _spread(shape: Shape, out: Shape) -> Spread:
    shape = (1,) * (len(out) - len(shape)) + shape
    if shape == out:
        return Spread.SAME
    for cut in range(len(out) + 1):
        if shape[:cut] == out[:cut] and _width(shape[cut:]) == 1:
            return Spread.REPEAT
        if shape[cut:] == out[cut:] and _width(shape[:cut]) == 1:
            return Spread.TILE
    raise Unsupported('broadcasts along a middle axis')


def _add_n(low, node, inputs) -> None:
    if None in inputs:
        _sum_of_products(low, node)
        return
    ragged = any(value.ragged for value in inputs)
    views = [low.rows(node, value, ragged).view for value in inputs]
    out = low.out(node, ragged)
    if len(views) == 1:
        low.emit(Opcode.UNARY, out, views[0], numbers=(Unary.AFFINE,), reals=(1.0, 0.0))
    for position, view in enumerate(views[1:]):
        last = position == len(views) - 2
        total = out if last else low.new(out.width, ragged)
        low.emit(Opcode.BINARY, total, views[0], view,
                 numbers=(Binary.ADD, Spread.SAME, Spread.SAME))
        views[0] = total


def _sum_of_products(low: _Lowering, node: Node) -> None:
    """An addition of which some terms are products: these add to its result where it lies."""
    products = [low.nodes[source[0]] for source in node.sources if source[0] in low.folded]
    others = [low.values[source] for source in node.sources if source[0] not in low.folded]
    ragged = any(low.values[product.sources[0]].ragged for product in products)
    terms = [low.rows(node, value, ragged) for value in others]
    if any(term.shape != node.shapes[0][term.lead:] for term in terms):
        raise Unsupported('broadcasts in a sum')
    out = low.out(node, ragged)
    if len(terms) > 1:
        low.emit(Opcode.BINARY, out, terms[0].view, terms[1].view,
                 numbers=(Binary.ADD, Spread.SAME, Spread.SAME))
        if len(terms) > 2:
            raise Unsupported('adds many terms')
    elif terms:
        low.emit(Opcode.UNARY, out, terms[0].view, numbers=(Unary.AFFINE,), reals=(1.0, 0.0))
    for position, product in enumerate(products):
        _emit_product(low, product, [low.values[source] for source in product.sources], out,
                      accumulate=bool(terms) or position > 0)


def _fully_connected(low, node, inputs) -> None:
    _emit_product(low, node, inputs, low.out(node, inputs[0].ragged), accumulate=False)


def _emit_product(low, node, inputs, out: View, accumulate: bool) -> None:
    _need_rows(node, inputs[0])
    if any(value.parameter < 0 for value in inputs[1:]):
        raise Unsupported('has FullyConnected of a weight that is no parameter')
    x = inputs[0]
    flatten = _true(node.attrs, 'flatten', 'True')
    if flatten and x.ragged:
        raise Unsupported('multiplies all values of a row at once')
    times = 1 if flatten else _width(x.shape[:-1])
    if times > 1 and not (_whole(low, x.view) and _whole(low, out)):
        raise Unsupported('multiplies parts of rows')
    low.emit(Opcode.PRODUCT, out, x.view, parameter=low.parameter(inputs[1]),
             bias=low.parameter(inputs[2]) if len(inputs) > 2 else -1,
             numbers=(int(accumulate), times))


def _whole(low, view: View) -> bool:
    return view.width == low.registers[view.register].width


def _reshape(low, node, inputs) -> None:
    _need_rows(node, inputs[0])
    value, shape = inputs[0], node.shapes[0]
    if _width(shape[value.lead:]) != value.view.width or shape[:value.lead] != low.lead(value):
        raise Unsupported('reshapes across rows')
    low.alias(node, inputs[0], inputs[0].view)


def _slice_axis(low, node, inputs) -> None:
    begin, end = _numbers(node.attrs['begin'])[0], _numbers(node.attrs['end'])
    _cut(low, node, inputs[0], _axis(node.attrs['axis'], len(node.shapes[0])), begin,
         end[0] if end else None, 0)


def _cut(low, node, value: Value, axis: int, begin: Optional[int], end: Optional[int],
         output: int) -> None:
    """Positions [begin, end) along an axis of the graph's entry."""
    if value.parameter >= 0:
        _cut_parameter(low, node, value, axis, begin, end, output)
        return
    axis -= value.lead
    if axis < 0:
        raise Unsupported('cuts across rows')
    size = value.shape[axis]
    begin, end, _ = slice(begin, end).indices(size)
    outer, inner = _width(value.shape[:axis]), _width(value.shape[axis + 1:])
    part = View(value.view.register, value.view.offset + begin * inner, (end - begin) * inner)
    if outer == 1:
        low.alias(node, value, part, output)
        return
    out = low.out(node, value.ragged, output)
    source = View(part.register, part.offset, value.view.width - begin * inner)
    low.emit(Opcode.STRIDED, out, source,
             numbers=(outer, (end - begin) * inner, (end - begin) * inner, size * inner))


def _cut_parameter(low, node, value: Value, axis: int, begin: Optional[int], end: Optional[int],
                   output: int) -> None:
    if _width(value.shape[:axis]) != 1:
        raise Unsupported('takes some columns of a parameter')
    begin, end, _ = slice(begin, end).indices(value.shape[axis])
    inner = _width(value.shape[axis + 1:])
    low.values[node.index, output] = Value(node.shapes[output], parameter=value.parameter,
                                           begin=value.begin + begin * inner)


def _slice_channel(low, node, inputs) -> None:
    count = int(node.attrs['num_outputs'])
    _need_rows(node, inputs[0])
    axis = _axis(node.attrs.get('axis', '1'), len(inputs[0].shape) + inputs[0].lead)
    if axis < inputs[0].lead:
        raise Unsupported('cuts across rows')
    size = inputs[0].shape[axis - inputs[0].lead] // count
    for output in range(count):
        _cut(low, node, inputs[0], axis, output * size, (output + 1) * size, output)


def _concat(low, node, inputs) -> None:
    _need_rows(node, *inputs)
    ragged, lead = inputs[0].ragged, inputs[0].lead
    axis = _axis(node.attrs.get('dim', '1'), len(node.shapes[0]))
    if axis < lead or any(value.ragged != ragged for value in inputs):
        raise Unsupported('joins rows')
    out = low.out(node, ragged)
    outer, inner = _width(node.shapes[0][lead:axis]), _width(node.shapes[0][axis + 1:])
    size, offset = node.shapes[0][axis], out.offset
    for value in inputs:
        part = View(out.register, offset, out.width if outer > 1 else value.view.width)
        mine = value.shape[axis - lead] * inner
        if outer > 1:
            low.emit(Opcode.STRIDED, part, value.view, numbers=(outer, mine, size * inner, mine))
        elif value.view != part:
            low.emit(Opcode.UNARY, part, value.view, numbers=(Unary.AFFINE,), reals=(1.0, 0.0))
        offset += mine


def _embedding(low, node, inputs) -> None:
    index, table = inputs
    _look_up(low, node, table, index)


def _look_up(low, node, table: Value, index: Value) -> None:
    _need_rows(node, index)
    if table.parameter < 0:
        raise Unsupported(f'has {node.op} from something else than a parameter')
    low.emit(Opcode.LOOKUP, low.out(node, index.ragged), index.view, parameter=low.parameter(table),
             numbers=(table.shape[0], _width(table.shape[1:])))


def _take(low, node, inputs) -> None:
    table, index = inputs
    if node.attrs.get('axis', '0') != '0' or node.attrs.get('mode', 'clip') != 'clip':
        raise Unsupported('has take with options')
    _look_up(low, node, table, index)


def _sequence_mask(low, node, inputs) -> None:
    # What it would mask is padding: that its lengths say so is a condition of the type.
    if not inputs[0].ragged or node.attrs.get('axis') != '1':
        raise Unsupported('has SequenceMask')
    low.alias(node, inputs[0], inputs[0].view)


def _batch_dot(low, node, inputs) -> None:
    _need_rows(node, *inputs)
    a, b = inputs
    if len(a.shape) != 2 or a.ragged or b.ragged:
        raise Unsupported('has batch_dot of more axes')
    turned_a, turned_b = _true(node.attrs, 'transpose_a'), _true(node.attrs, 'transpose_b')
    m, n = node.shapes[0][1:]
    low.emit(Opcode.BATCH_PRODUCT, low.out(node, a.ragged), a.view, b.view,
             numbers=(m, n, a.shape[0] if turned_a else a.shape[1], turned_a + 2 * turned_b))


def _softmax(op: Opcode):
    def rule(low, node, inputs) -> None:
        _need_rows(node, inputs[0])
        axis = _axis(node.attrs.get('axis', '-1'), len(node.shapes[0]))
        if len(inputs) > 1 or node.attrs.get('temperature', 'None') != 'None':
            raise Unsupported(f'has {node.op} with options')
        if inputs[0].ragged and axis == 1 and op is Opcode.SOFTMAX:
            low.emit(Opcode.SEGMENT_SOFTMAX, low.out(node, True), inputs[0].view)
            return
        if axis != len(node.shapes[0]) - 1 or not inputs[0].shape:
            raise Unsupported(f'has {node.op} along another axis')
        low.emit(op, low.out(node, inputs[0].ragged), inputs[0].view,
                 numbers=(inputs[0].shape[-1],))
    return rule


def _pick(low, node, inputs) -> None:
    _need_rows(node, *inputs)
    rank = len(inputs[0].shape) + inputs[0].lead
    axis = _axis(node.attrs.get('axis', '-1'), rank)
    if axis != rank - 1 or inputs[0].ragged != inputs[1].ragged or node.attrs.get('mode', 'clip') != 'clip':
        raise Unsupported('has pick along another axis')
    low.emit(Opcode.PICK, low.out(node, inputs[0].ragged), inputs[0].view, inputs[1].view)


def _reduce(mean: bool):
    def rule(low, node, inputs) -> None:
        _need_rows(node, inputs[0])
        value, named = inputs[0], _numbers(node.attrs.get('axis', '()'))
        rank = len(value.shape) + value.lead
        axes = {_axis(str(axis), rank) for axis in named}
        if _true(node.attrs, 'exclude'):
            axes = set(range(rank)) - axes
        if value.ragged and axes == {1} and not mean:
            low.emit(Opcode.SEGMENT_SUM, low.out(node, False), value.view)
            return
        if named and not axes:  # every axis is excluded: nothing to sum
            low.alias(node, value, value.view)
            return
        first, last = min(axes, default=0) - value.lead, max(axes, default=0) - value.lead
        if first < 0 or len(axes) != last - first + 1:
            raise Unsupported(f'has {node.op} along such axes')
        length, inner = _width(value.shape[first:last + 1]), _width(value.shape[last + 1:])
        low.emit(Opcode.REDUCE, low.out(node, value.ragged), value.view,
                 numbers=(length, inner), reals=(1.0 / length if mean else 1.0,))
    return rule


def _constant(number: float):
    def rule(low, node, inputs) -> None:
        _need_rows(node, inputs[0])
        low.emit(Opcode.CONSTANT, low.out(node, inputs[0].ragged), reals=(number,))
    return rule


_VIEWS = frozenset('''Reshape reshape Flatten flatten expand_dims squeeze slice_axis SliceChannel
                      split Dropout SequenceMask'''.split())
_ADDITIONS = frozenset('elemwise_add _plus _add broadcast_add add_n ElementWiseSum'.split())


def _rules() -> Dict[str, Callable]:
    rules: Dict[str, Callable] = {
        'Activation': _activation, 'LeakyReLU': _leaky, 'clip': _clip, 'Dropout': _dropout,
        'sigmoid': _unary(Unary.SIGMOID), 'tanh': _unary(Unary.TANH), 'relu': _unary(Unary.RELU),
        'exp': _unary(Unary.EXP), 'log': _unary(Unary.LOG), 'square': _unary(Unary.SQUARE),
        'sqrt': _unary(Unary.SQRT), 'abs': _unary(Unary.ABS),
        'softsign': _unary(Unary.SOFTSIGN),
        'reciprocal': _unary(Unary.RECIPROCAL, lambda _: (1.0,)),
        'negative': _unary(Unary.AFFINE, lambda _: (-1.0, 0.0)),
        '_copy': _unary(Unary.AFFINE, lambda _: (1.0, 0.0)),
        'identity': _unary(Unary.AFFINE, lambda _: (1.0, 0.0)),
        '_mul_scalar': _unary(Unary.AFFINE, lambda attrs: (_scalar(attrs), 0.0)),
        '_div_scalar': _unary(Unary.AFFINE, lambda attrs: (1.0 / _scalar(attrs), 0.0)),
        '_plus_scalar': _unary(Unary.AFFINE, lambda attrs: (1.0, _scalar(attrs))),
        '_minus_scalar': _unary(Unary.AFFINE, lambda attrs: (1.0, -_scalar(attrs))),
        '_rminus_scalar': _unary(Unary.AFFINE, lambda attrs: (-1.0, _scalar(attrs))),
        '_rdiv_scalar': _unary(Unary.RECIPROCAL, lambda attrs: (_scalar(attrs),)),
        'FullyConnected': _fully_connected, 'Concat': _concat, 'concat': _concat,
        'slice_axis': _slice_axis, 'SliceChannel': _slice_channel, 'split': _slice_channel,
        'Embedding': _embedding, 'take': _take, 'SequenceMask': _sequence_mask, 'batch_dot': _batch_dot,
        'log_softmax': _softmax(Opcode.LOG_SOFTMAX), 'softmax': _softmax(Opcode.SOFTMAX),
        'pick': _pick, 'sum': _reduce(False), 'mean': _reduce(True), 'add_n': _add_n,
        'ElementWiseSum': _add_n, 'zeros_like': _constant(0.0), 'ones_like': _constant(1.0)}
    for name in 'Reshape reshape Flatten flatten expand_dims squeeze'.split():
        rules[name] = _reshape
    for function, names in ((Binary.ADD, 'elemwise_add _plus _add broadcast_add'),
                            (Binary.SUBTRACT, 'elemwise_sub _minus _sub broadcast_sub'),
                            (Binary.MULTIPLY, 'elemwise_mul _mul broadcast_mul'),
                            (Binary.DIVIDE, 'elemwise_div _div broadcast_div'),
                            (Binary.LARGER, '_maximum broadcast_maximum'),
                            (Binary.SMALLER, '_minimum broadcast_minimum')):
        for name in names.split():
            rules[name] = _binary(function)
    return rules


_RULES = _rules()


# --- what the backward pass needs ----------------------------------------------------------------

def _mark_kept(registers: List[Register], instructions: List[Instruction]) -> None:
    for instruction in instructions:
        for view in read_backward(instruction):
            registers[view.register].kept = True


def _mark_gradients(registers: List[Register], instructions: List[Instruction],
                    node_type: NodeType) -> None:
    """Where gradients of registers are; nowhere for those that lead to nothing."""
    for register in registers:
        if register.place is Place.INPUT and node_type.arguments[register.position].differentiable:
            register.gradient = Place.INPUT
    for instruction in instructions:
        leads = instruction.parameter >= 0 or (
            instruction.op is Opcode.LOAD and instruction.numbers[1]) or any(
                view.register >= 0 and registers[view.register].gradient is not Place.NOWHERE
                for view in _differentiated(instruction))
        register = registers[instruction.out.register]
        if leads and register.gradient is Place.NOWHERE:
            register.gradient = Place.SCRATCH
    for register in registers:
        if register.place is Place.OUTPUT:
            register.gradient = Place.OUTPUT
    for instruction in instructions:
        if instruction.op is Opcode.PRODUCT:
            register = registers[instruction.out.register]
            if register.gradient is Place.SCRATCH:
                register.gradient = Place.KEPT


def _differentiated(instruction: Instruction) -> List[View]:
    if instruction.op is Opcode.LOOKUP:
        return []
    return [instruction.a] if instruction.op is Opcode.PICK else [instruction.a, instruction.b]
