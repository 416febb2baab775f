"""The context of lowering: the program under construction, which rules read and extend."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from .attrs import Attrs, Shape
from .instructions import ADD, AFFINE, COPY, Instruction, Opcode, Register, Spread, View

Entry = tuple[int, int]  # node and output


class Unsupported(Exception):
    """No rule lowers an operator, or lowers it with these arguments."""


class Arrangement(Enum):
    """The axes of a graph's entry; its values lie as usual, each with the columns of all heads."""

    ROWS = 'rows'  # those of the batch, of the values if it is ragged, and of a row
    POSITIONS = 'positions'  # the same for all rows, whose axis it does not have
    HEADS = 'heads'  # (N, heads, K, columns)
    MERGED = 'merged'  # (N times heads, K, columns)
    CHANNELS = 'channels'  # (N, columns, K)
    STEPS = 'steps'  # (K, N, columns)


# Transpositions that turn rows, (N, K, ...), into arrangements, and these into rows.
ORDERS = {
    Arrangement.HEADS: [0, 2, 1, 3],
    Arrangement.CHANNELS: [0, 2, 1],
    Arrangement.STEPS: [1, 0, 2],
}


class Scores(NamedTuple):
    """Products of queries and keys, (N times heads, K, K) or with both axes, part of attention."""

    queries: View
    keys: View
    scale: float = 1.0
    weights: bool = False  # whether they went through a softmax
    dropped: float = 0.0  # share of the weights that are dropped


class Value(NamedTuple):
    """An entry of the graph in the program: rows, or a parameter."""

    shape: Shape  # of a row; of all for a parameter
    view: Union[View, Any] = None  # None of a parameter, which `_need_rows` refuses
    ragged: bool = False  # whether it has a row for each value of the ragged arguments
    parameter: int = -1  # position among the type's parameters, or -1
    begin: int = 0  # of a part of a parameter: its first element
    line: int = 0  # elements from one line to the next, if columns of a parameter; else 0
    arrangement: Arrangement = Arrangement.ROWS
    scores: Optional[Scores] = None  # what is in no register
    tail: int = 0  # how many of the last values of each row are none

    @property
    def lead(self) -> int:
        """Number of axes of the graph's entry in front of those of a row."""
        return 2 if self.ragged else 1


class ShapedNode(NamedTuple):
    """An operator of the graph, with shapes of its results."""

    index: int  # type: ignore[assignment]  # tuples have a method of that name
    op: str
    attrs: Attrs
    sources: tuple[Entry, ...]
    shapes: list[Shape]  # of its outputs, with axis 0
    name: str


Values = list[Union[Value, Any]]  # None for what is folded


def width_of(shape: Sequence[int]) -> int:
    """Return how many numbers a row of this shape has."""
    return int(np.prod(shape, dtype=np.int64))


@dataclass(eq=False)
class LoweringContext:
    """The native program of a type, under construction."""

    nodes: list[ShapedNode]
    heads: list[Entry]  # the results
    # number of rows in the shapes of the nodes, and number of values for each row
    batch_shape: Shape
    training: bool  # whether autograd is in training mode
    element_size: int  # bytes: 4 or 8
    registers: list[Register] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    parameters: list[tuple[int, int]] = field(default_factory=list)  # see `RowProgram`
    values: dict[Entry, Value] = field(default_factory=dict)  # of each entry so far
    # destination of entries that are not computed yet
    placed: dict[Entry, View] = field(default_factory=dict)
    # products that an addition computes into its result, and concatenations whose pieces a product
    # multiplies
    folded: set[int] = field(default_factory=set)

    def call(self, index: int) -> 'LoweredCall':
        """Return a node with the values that it is applied to."""
        node = self.nodes[index]
        values = [
            None if source[0] in self.folded else self.values[source] for source in node.sources
        ]
        return LoweredCall(self, node, values)

    def new(self, width: int, ragged: Optional[bool]) -> View:
        """Add a register, and return a view of all of it."""
        self.registers.append(Register(width, ragged))
        return View(len(self.registers) - 1, 0, width)

    def set_ragged(self, view: View, ragged: bool) -> None:
        """Set whether a view's register has a row for each ragged value, or for each row."""
        register = self.registers[view.register]
        if register.ragged is None:
            register.ragged = ragged
        elif register.ragged != ragged:
            raise Unsupported('lays ragged values beside others')

    def out(self, node: ShapedNode, ragged: bool, output: int = 0) -> View:
        """Return the view that a result is written to; later operators find the result there."""
        entry = (node.index, output)
        shape = node.shapes[output][2 if ragged else 1 :]
        view = self.placed.get(entry)
        if view is None:
            view = self.new(width_of(shape), ragged)
        elif view.width != width_of(shape):
            raise Unsupported('lays ragged values beside others')
        else:
            self.set_ragged(view, ragged)
        self.values[entry] = Value(shape, view, ragged)
        return view

    def lead(self, value: Value) -> Shape:
        """Return the axes in front of those of a row."""
        return self.batch_shape[: value.lead]

    def is_whole(self, view: View) -> bool:
        """Return whether a view is a whole register."""
        return view.width == self.registers[view.register].width

    def emit(self, op: Opcode, out: View, *views: View, **rest: Any) -> None:
        """Append an instruction."""
        self.instructions.append(Instruction(op, out, *views, **rest))  # type: ignore[arg-type]  # at most two

    def copy(self, out: View, view: View) -> None:
        """Append an instruction that copies a view."""
        self.emit(Opcode.UNARY, out, view, numbers=(AFFINE.number,), reals=COPY)

    def add(self, out: View, a: View, b: View) -> None:
        """Append an instruction that adds two views."""
        self.emit(Opcode.BINARY, out, a, b, numbers=(ADD.number, Spread.SAME, Spread.SAME))

    def parameter(self, value: Value) -> int:
        """Return the program's number of a parameter that is read in place; raise `Unsupported` for
        a value that is none."""
        if value.parameter < 0:
            raise Unsupported('has a weight or table that is no parameter')
        if value.line:
            raise Unsupported('takes some columns of a parameter')
        key = value.parameter, value.begin
        if key not in self.parameters:
            self.parameters.append(key)
        return self.parameters.index(key)

    def rows(self, node: ShapedNode, value: Value, ragged: bool) -> Value:
        """Return a parameter as equal rows, and rows expanded for ragged values."""
        if value.parameter < 0:
            return self.expanded(node, value) if ragged and not value.ragged else value
        lead, rank = 2 if ragged else 1, len(node.shapes[0])
        shape = (1,) * (rank - len(value.shape)) + value.shape
        if len(shape) != rank or width_of(shape[:lead]) != 1:
            raise Unsupported(f'has {node.op} of a parameter across rows')
        view = self.new(width_of(shape), ragged)
        self.emit(Opcode.PARAMETER_ROW, view, parameter=self.parameter(value))
        return Value(shape[lead:], view, ragged)

    def expanded(self, node: ShapedNode, value: Value) -> Value:
        """Broadcast rows (N, 1, ...) along the ragged axis: each value gets its row's."""
        if len(value.shape) + 1 != len(node.shapes[0]) or value.shape[0] != 1:
            raise Unsupported(f'has {node.op} of ragged values and others')
        view = self.new(value.view.width, True)
        self.emit(Opcode.EXPAND, view, value.view)
        return Value(value.shape[1:], view, True)


class LoweredCall(NamedTuple):
    """An operator and its inputs, as rules see them."""

    low: LoweringContext
    node: ShapedNode
    inputs: Values  # None for what is folded (see `LoweringContext`)

    @property
    def op(self) -> str:
        """Name of the operator."""
        return self.node.op

    @property
    def attrs(self) -> Attrs:
        """Attributes of the operator."""
        return self.node.attrs

    @property
    def shape(self) -> Shape:
        """Shape of the first result, with axis 0."""
        return self.node.shapes[0]

    @property
    def rank(self) -> int:
        """Number of axes of the first result."""
        return len(self.shape)

    @property
    def x(self) -> Value:
        """The first input, which must be rows."""
        if self.inputs[0].view is None:
            raise Unsupported(f'has {self.op} of a parameter')
        return self.inputs[0]

    def all_rows(self) -> Values:
        """Return the inputs, which must all be rows."""
        if any(value.view is None for value in self.inputs):
            raise Unsupported(f'has {self.op} of a parameter')
        return self.inputs

    def as_rows(self) -> list[Value]:
        """Return the inputs as rows: parameters repeated, rows expanded for ragged values."""
        ragged = any(value.ragged for value in self.inputs)
        return [self.low.rows(self.node, value, ragged) for value in self.inputs]

    def out(self, ragged: bool, output: int = 0) -> View:
        """Return the view of a register that a result is written to."""
        return self.low.out(self.node, ragged, output)

    @property
    def dropped(self) -> float:
        """Share of the elements that a Dropout drops; 0 where it is off."""
        if not self.low.training and self.attrs.get('mode') != 'always':
            return 0.0
        if self.attrs.integers('axes'):
            raise Unsupported('has a Dropout of whole axes')
        return self.attrs.number('p', 0.5)

    @property
    def arrangement(self) -> Arrangement:
        """Arrangement of the axes of an input, if it differs from that of rows."""
        given = [value.arrangement for value in self.inputs if value is not None]
        return next((each for each in given if each is not Arrangement.ROWS), Arrangement.ROWS)

    def give(self, value: Value) -> None:
        """Set the result to a value."""
        self.low.values[self.node.index, 0] = value

    def alias(self, value: Value, output: int = 0) -> None:
        """Set a result to a value that exists already, maybe in another shape."""
        self.low.values[self.node.index, output] = value._replace(
            shape=self.node.shapes[output][value.lead :]
        )

    def emit(self, op: Opcode, *values: Value, **rest: Any) -> None:
        """Append the instruction that computes the result from some values, by default the first
        input. The result is ragged if the first value is."""
        values = values or (self.x,)
        self.low.emit(op, self.out(values[0].ragged), *[value.view for value in values], **rest)
