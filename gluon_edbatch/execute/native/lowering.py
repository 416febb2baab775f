"""Lower a subgraph to a native program for rows, operator by operator.

Rows of more than one axis are laid out as in MXNet, so reshaping is free. Ragged arguments, (N, K,
...) in the graph, are never padded: an entry with their axis 1 has a row for each value. A type
runs as a `CachedOp` if an operator has no rule, or if its rows do not share one floating-point
type.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

import numpy as np

from ... import debug
from ...ops import Arithmetic, op_of
from ...ops.attrs import Shape
from ...ops.channels import as_rows
from ...ops.instructions import (
    HELD,
    Instruction,
    Opcode,
    Place,
    Register,
    RowProgram,
    View,
    read_backward,
)
from ...ops.lowering_context import (
    Arrangement,
    Entry,
    LoweringContext,
    Unsupported,
    Value,
    width_of,
)
from ...ops.lowering_context import ShapedNode as Node
from ...ops.recurrence import folded_into_layer
from ...ops.registry import Op
from ...subgraph.axis_normalisation import values_first
from ...subgraph.ir import Subgraph
from ...subgraph.node_type import Kind, NodeType
from ...subgraph.passes import apply_passes
from ...subgraph.passes.horizontal import horizontal, packs
from ...subgraph.trace import INPUT, is_argument
from ..cached.compiled_graph import argument_dtypes

_WIDE = 8  # columns: a product of fewer takes longer than to copy them


def lower(node_type: NodeType) -> tuple[RowProgram, list[str]]:
    """Return a type's program, and the options that changed it. Raise `Unsupported`, with the
    reason for the report, if there is none."""
    if node_type.tables:
        raise Unsupported('computes ids')
    if node_type.alone:
        raise Unsupported('runs alone')
    if not (node_type.whole or node_type.packed) and any(each != 1 for each in node_type.factors):
        raise Unsupported('gives several rows for each of a call')
    if node_type.ctx.device_type != 'cpu':
        raise Unsupported('is not on a CPU')
    if node_type.ragged and (
        node_type.lengths is not None
        or not node_type.neutral
        or not node_type.options.segments
        or not node_type.has_one_length
    ):
        raise Unsupported('pads its ragged arguments')
    if node_type.axes:
        raise Unsupported('has a graph of its own for each length')
    if any(each.longer or each.positions[1:] for own in node_type.packed for each in own):
        raise Unsupported('gives sentences of another length')
    dtypes: set[np.dtype] = {np.dtype(argument.arena.dtype) for argument in node_type.arguments}
    dtypes |= {np.dtype(spec.dtype) for spec in node_type.outputs}
    dtypes |= {np.dtype(parameter.dtype) for parameter in node_type.parameters}
    if len(dtypes) != 1 or next(iter(dtypes)) not in (np.float32, np.float64):
        raise Unsupported('mixes element types')
    options = node_type.options.but(operators=False)  # that chooses among MXNet's
    debug.show(debug.SUBGRAPHS, f'{node_type}, to be lowered', node_type.graph.subgraph)
    graph, changed = apply_passes(
        node_type.graph.subgraph,
        node_type.trial_shapes,
        options,
        'cpu',
        argument_dtypes(node_type),
    )
    ragged = {INPUT % place for place in node_type.ragged}.intersection(node_type.trial_shapes)
    if ragged:  # that are read
        graph = values_first(graph, node_type.trial_shapes, ragged)
    if options.horizontal:
        graph = debug.changed('horizontal', graph, horizontal(graph))
    program = Lowering(node_type, graph, next(iter(dtypes)).itemsize).program()
    if node_type.ragged:
        changed.append('segments')
    if program.packs:
        changed.append('horizontal')
    return program, changed


def _nodes(graph: Subgraph, shapes: dict[str, Shape]) -> list[Node]:
    found = graph.infer(shapes)
    if found is None:
        raise Unsupported('shapes cannot be inferred')
    return [
        Node(index, node.op, node.attrs, node.inputs, own, node.name)
        for index, (node, own) in enumerate(zip(graph.nodes, found))
    ]


def _position(node: Node) -> int:
    """Return the position of the argument that a variable stands for."""
    return int(node.name[len(INPUT % 0) - 1 :])


class Lowering(LoweringContext):
    """Build a type's program."""

    def __init__(self, node_type: NodeType, graph: Subgraph, element_size: int):
        super().__init__(
            _nodes(graph, node_type.trial_shapes),
            list(graph.heads),
            (),
            node_type.mode.training,
            element_size,
        )
        self.node_type = node_type
        place = {name: i for i, name in enumerate(node_type.graph.parameters)}
        packed = packs(graph)
        self.packs = [tuple(place[name] for name in names) for names in packed.values()]
        self.names = {name: i for i, name in enumerate([*place, *packed])}
        self.times = [1] * len(self.heads)  # rows of its arena that make a row of each result
        if node_type.whole:
            self._see_whole_values()
        elif node_type.packed:
            self._see_several_rows()
        self.batch_shape = self._batch_shape(node_type.trial_shapes)
        self.uses = self._uses()

    # --- the graph -------------------------------------------------------------------------------

    def _see_whole_values(self) -> None:
        """Use a row of the program for each call of a type with an extra batch axis. Arguments then
        have the call's shape, without the reshapes on the way in and out (see `lift`)."""
        for node in self.nodes:
            if is_argument(node.name):
                rows = self.node_type.arguments[_position(node)].rows
                shape = node.shapes[0]
                node.shapes[0] = (shape[0] // rows, rows) + shape[1:]
        self.times = [spec.rows for spec in self.node_type.outputs]
        self.heads = [self.nodes[head].sources[0] for head, _ in self.heads]
        if len(set(self.heads)) != len(self.heads):
            raise Unsupported('gives a result twice')

    def _see_several_rows(self) -> None:
        """Let results that are several rows for each sentence have the axis of these, without the
        last reshape (see `subgraph.sentences`)."""
        for place, (spec, along) in enumerate(zip(self.node_type.outputs, self.node_type.packed)):
            if along or spec.rows == 1:
                continue
            head = self.nodes[self.heads[place][0]]
            node, output = head.sources[0]
            rows = self.nodes[node].shapes[output][0] * spec.rows
            if head.op != 'Reshape' or rows != head.shapes[0][0]:
                raise Unsupported('gives several rows for each of a call')
            self.times[place], self.heads[place] = spec.rows, (node, output)

    def _batch_shape(self, shapes) -> Shape:
        """Return how many rows the trial shapes have, and how many values for each."""
        if self.node_type.whole:
            return next(node.shapes[0][:1] for node in self.nodes if is_argument(node.name))
        for position, argument in enumerate(self.node_type.arguments):
            if argument.kind in (Kind.RAGGED, Kind.PACKED) and INPUT % position in shapes:
                return tuple(shapes[INPUT % position][:2])
        return tuple(next(iter(shapes.values()))[:1])

    def _uses(self) -> dict[Entry, list[int]]:
        uses: dict[Entry, list[int]] = {}
        for node in self.nodes:
            for source in node.sources:
                uses.setdefault(source, []).append(node.index)
        return uses

    def _is_needed(self, node: Node) -> bool:
        """Return whether a node is read, or is a result; False for final reshapes of `lift`."""
        return any(
            (node.index, output) in self.uses or (node.index, output) in self.heads
            for output in range(len(node.shapes))
        )

    def _only_use(self, entry: Entry) -> Optional[Node]:
        """Return the one operator that reads an entry that is not a result; else None."""
        uses = self.uses.get(entry, [])
        return self.nodes[uses[0]] if len(uses) == 1 and entry not in self.heads else None

    # --- the program -----------------------------------------------------------------------------

    def program(self) -> RowProgram:
        """Return the program: rows are placed, then operators become instructions."""
        for node in reversed(self.nodes):
            self._place(node)
        for node in self.nodes:
            if not node.op:
                self._variable(node)
            elif node.index not in self.folded and self._is_needed(node):
                self._operator(node)
        for position, head in enumerate(self.heads):
            self._result(position, head)
        for instruction in self.instructions:
            for view in read_backward(instruction):
                self.registers[view.register].kept = True
        wanted = [argument.differentiable for argument in self.node_type.arguments]
        _mark_gradients(self.registers, self.instructions, wanted)
        return RowProgram(
            self.registers,
            self.instructions,
            self.parameters,
            self.packs,
            len(self.node_type.arguments),
            len(self.heads),
            self.element_size,
        )

    def _place(self, node: Node) -> None:
        """Choose where results go before they are computed: a result, or part of a
        concatenation."""
        if node.op == 'RNN':
            self._fold_into_layer(node)
        if not node.op or len(node.shapes) != 1 or op_of(node.op).is_view:
            return
        if node.op == 'FullyConnected' and self._multiplies_pieces(node):
            self.folded.add(node.sources[0][0])
        entry = (node.index, 0)
        if entry in self.heads and entry not in self.placed:
            position = self.heads.index(entry)
            ragged = self._gives_ragged(position)
            width = width_of(node.shapes[0][2 if ragged else 1 :])
            register = Register(width, ragged, Place.OUTPUT, position, self.times[position])
            self.registers.append(register)
            self.placed[entry] = View(len(self.registers) - 1, 0, width)
        if node.op == 'Concat' and self._pieces_lie_side_by_side(node):
            self._place_pieces(node)
        elif op_of(node.op).arithmetic is Arithmetic.SUM:
            products = self._products_to_sum(node)
            self.folded.update(products)
            self._place_term(node, [each for each in node.sources if each[0] not in products])

    def _fold_into_layer(self, node: Node) -> None:
        """Fold what a recurrent layer alone reads, and the program does not compute."""
        found = folded_into_layer(self.nodes, node)
        readers = {node.index, *found}
        self.folded.update(
            [
                index
                for index in found
                if readers.issuperset(self.uses[index, 0]) and (index, 0) not in self.heads
            ]
        )

    def _multiplies_pieces(self, node: Node) -> bool:
        """Return whether a product's input is a concatenation that would have to be copied: each
        piece is then multiplied by its columns of the weight."""
        entry = node.sources[0]
        concat = self.nodes[entry[0]]
        rank = len(concat.shapes[0])
        return (
            concat.op == 'Concat'
            and self._only_use(entry) is node
            and not node.attrs.flag('flatten', True)
            and concat.attrs.axis('dim', rank, 1) == rank - 1
            and not self._pieces_lie_side_by_side(concat)
            and all(self.nodes[i].shapes[output][-1] >= _WIDE for i, output in concat.sources)
        )

    def _gives_ragged(self, position: int) -> bool:
        """Return whether a result has a row for each value."""
        return bool(self.node_type.packed and self.node_type.packed[position])

    def _pieces_lie_side_by_side(self, node: Node) -> bool:
        axis = node.attrs.axis('dim', len(node.shapes[0]), 1)
        return axis > 0 and width_of(node.shapes[0][1:axis]) == 1

    def _place_pieces(self, node: Node) -> None:
        entry = (node.index, 0)
        whole = self.placed.get(entry)
        if whole is None:
            whole = self.placed[entry] = self.new(width_of(node.shapes[0][1:]), None)
        offset = whole.offset
        for source in node.sources:
            width = width_of(self.nodes[source[0]].shapes[source[1]][1:])
            piece = self.nodes[source[0]]
            if (
                self._only_use(source) is not None
                and source not in self.placed
                and not op_of(piece.op).is_view
                and len(piece.shapes) == 1
                and (piece.op or is_argument(piece.name))
            ):
                self.placed[source] = View(whole.register, offset, width)
            offset += width

    def _products_to_sum(self, node: Node) -> list[int]:
        """Return the products among the terms of an addition that nothing else reads."""
        if len({self.nodes[source[0]].shapes[source[1]] for source in node.sources}) != 1:
            return []
        return [
            source[0]
            for source in node.sources
            if self.nodes[source[0]].op == 'FullyConnected' and self._only_use(source) is node
        ]

    def _place_term(self, node: Node, others: list[Entry]) -> None:
        """Place the one other term of a sum of products where the sum will be."""
        if len(others) != 1 or len(node.sources) == 1:
            return
        (source,), entry = others, (node.index, 0)
        if not is_argument(self.nodes[source[0]].name) or self._only_use(source) is not node:
            return
        if entry not in self.placed:
            self.placed[entry] = self.new(width_of(node.shapes[0][1:]), None)
        self.placed[source] = self.placed[entry]

    def _variable(self, node: Node) -> None:
        entry, shape = (node.index, 0), node.shapes[0]
        if node.name in self.names:
            self.values[entry] = Value(shape, parameter=self.names[node.name])
        else:
            position = _position(node)
            argument = self.node_type.arguments[position]
            ragged = argument.kind in (Kind.RAGGED, Kind.PACKED)
            shape = shape[2:] if ragged else shape[1:]
            view = self.placed.get(entry)
            if view is None:
                self.registers.append(
                    Register(width_of(shape), ragged, Place.INPUT, position, argument.rows)
                )
                view = View(len(self.registers) - 1, 0, width_of(shape))
            else:
                self.set_ragged(view, ragged)
                self.emit(
                    Opcode.LOAD,
                    view,
                    numbers=(position, int(argument.differentiable), argument.rows),
                )
            self.values[entry] = Value(shape, view, ragged)

    def _operator(self, node: Node) -> None:
        call, op = self.call(node.index), op_of(node.op)
        arrangement = call.arrangement
        rule = op.arranged.get(arrangement)
        if arrangement is Arrangement.ROWS:
            rule = op.native
        elif rule is None and op.native and _is_of_rows(op, node, arrangement):
            rule = as_rows(op.native)
        if rule is None:
            how = '' if arrangement is Arrangement.ROWS else f' arranged by {arrangement.value}'
            raise Unsupported(f'has {node.op}{how}')
        rule(call)

    def _result(self, position: int, head: Entry) -> None:
        value = self.values[head]
        ragged = self._gives_ragged(position)
        if (
            value.view is None
            or value.ragged != ragged
            or value.arrangement is not Arrangement.ROWS
        ):
            raise Unsupported('returns something else than rows')
        register = self.registers[value.view.register]
        is_placed = (register.place, register.position) == (Place.OUTPUT, position)
        if is_placed and value.view.width == register.width:
            return
        self.registers.append(
            Register(value.view.width, ragged, Place.OUTPUT, position, self.times[position])
        )
        self.copy(View(len(self.registers) - 1, 0, value.view.width), value.view)


def _is_of_rows(op: Op, node: Node, arrangement: Arrangement) -> bool:
    """Return whether an operator does with each value what it does with a row, however the axes
    are arranged."""
    return (arrangement in (Arrangement.CHANNELS, Arrangement.STEPS) and op.elementwise) or (
        arrangement is Arrangement.STEPS and op.by_value(node.attrs)
    )


# --- what the backward pass needs ----------------------------------------------------------------


def with_gradients(program: RowProgram, wanted: Sequence[bool]) -> RowProgram:
    """Return a program that gives gradients only of the arguments of which they are `wanted`."""
    registers = [replace(register, gradient=Place.NOWHERE) for register in program.registers]
    _mark_gradients(registers, program.instructions, wanted)
    return program._replace(registers=registers)


def _mark_gradients(
    registers: list[Register], instructions: list[Instruction], wanted: Sequence[bool]
) -> None:
    """Set where the gradient of each register is: nowhere if no gradient is wanted behind it."""
    for register in registers:
        if register.place is Place.INPUT and wanted[register.position]:
            register.gradient = Place.INPUT
    for instruction in instructions:
        leads = (
            instruction.parameter >= 0
            or (instruction.op is Opcode.LOAD and wanted[instruction.numbers[0]])
            or any(
                view.register >= 0 and registers[view.register].gradient is not Place.NOWHERE
                for view in _differentiated(instruction)
            )
        )
        results = [instruction.out]
        if instruction.op is Opcode.RECURRENT and instruction.third.register >= 0:
            results.append(instruction.third)
        for view in results if leads else ():
            register = registers[view.register]
            if register.gradient is Place.NOWHERE:
                register.gradient = Place.SCRATCH
    for register in registers:
        if register.place is Place.OUTPUT:
            register.gradient = Place.OUTPUT
    for instruction in instructions:
        if instruction.op is Opcode.PRODUCT:
            register = registers[instruction.out.register]
            if register.gradient is Place.SCRATCH:
                register.gradient = Place.KEPT


def _differentiated(instruction: Instruction) -> list[View]:
    if instruction.op in (Opcode.LOOKUP, Opcode.SEGMENT_ORDER) or (
        instruction.op is Opcode.UNARY and instruction.numbers[0] == HELD.number
    ):
        return []
    indexed = instruction.op in (Opcode.PICK, Opcode.SEGMENT_PICK, Opcode.SEGMENT_MASK)
    if indexed:
        return [instruction.a]
    return [instruction.a, instruction.b, instruction.third]
