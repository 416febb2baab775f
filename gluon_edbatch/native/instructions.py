"""Programs for rows: what the native operators execute for each batch of a type.

A program computes with *registers*: matrices with a row for each row of the batch (or, if
`ragged`, for each value of its ragged arguments). An instruction reads and writes *views*, which
are ranges of a register's columns, so that cutting a row into pieces, or laying pieces side by
side, costs nothing. The numbers here are those of ``src/program.h`` and ``src/functions.h``.
"""
from enum import IntEnum
from typing import List, NamedTuple, Tuple


class Opcode(IntEnum):
    """What an instruction does; the numbers it uses are named in `lowering`."""

    LOAD = 0
    PRODUCT = 1
    UNARY = 2
    BINARY = 3
    EXPAND = 4
    SEGMENT_SUM = 5
    LOOKUP = 6
    LOG_SOFTMAX = 7
    SOFTMAX = 8
    PICK = 9
    REDUCE = 10
    BATCH_PRODUCT = 11
    CONSTANT = 12
    STRIDED = 13
    TRANSPOSE = 14
    PARAMETER_ROW = 15
    SEGMENT_SOFTMAX = 16


class Unary(IntEnum):
    """Elementwise functions of one argument."""

    AFFINE = 0
    SIGMOID = 1
    TANH = 2
    RELU = 3
    EXP = 4
    LOG = 5
    SQUARE = 6
    SQRT = 7
    ABS = 8
    RECIPROCAL = 9
    SOFTRELU = 10
    SOFTSIGN = 11
    LEAKY = 12
    MAXIMUM = 13
    MINIMUM = 14
    CLIP = 15


class Binary(IntEnum):
    """Elementwise functions of two arguments."""

    ADD = 0
    SUBTRACT = 1
    MULTIPLY = 2
    DIVIDE = 3
    LARGER = 4
    SMALLER = 5


class Spread(IntEnum):
    """How an operand with fewer columns fills a row."""

    SAME = 0
    REPEAT = 1  # each column several times in a row
    TILE = 2    # all columns, again and again


class Place(IntEnum):
    """Where the rows of a register are."""

    NOWHERE = 0
    SCRATCH = 1  # gone when the block of rows is done
    KEPT = 2     # in the workspace, for the backward pass
    OUTPUT = 3   # in the arena that a result belongs to
    INPUT = 4    # in the arena that an argument comes from


class View(NamedTuple):
    """Columns ``[offset, offset + width)`` of a register."""

    register: int
    offset: int
    width: int


NO_VIEW = View(-1, 0, 0)


class Instruction(NamedTuple):
    """One step of a program.

    Attributes
    ----------
    op : Opcode
    out, a, b : View
    parameter, bias : int
        Positions among the program's parameters; -1: none.
    numbers : tuple of int
        Up to four.
    reals : tuple of float
        Up to two.
    """

    op: Opcode
    out: View
    a: View = NO_VIEW
    b: View = NO_VIEW
    parameter: int = -1
    bias: int = -1
    numbers: Tuple[int, ...] = ()
    reals: Tuple[float, ...] = ()


COPY = (1.0, -0.0)  # `reals` of Unary.AFFINE: x + -0.0 is x, also if that is -0.0


class Register:
    """A matrix of intermediate values.

    Attributes
    ----------
    width : int
        Columns.
    ragged : bool
    place, gradient : Place
        Of its values, and of their gradients.
    position : int
        Which argument or result it is, if it is one.
    times : int
        So many rows of its arena make a row, of an argument or result.
    """

    def __init__(self, width: int, ragged: bool, place: Place = Place.SCRATCH, position: int = -1,
                 times: int = 1):
        self.width = width
        self.times = times
        self.ragged = ragged
        self.place = place
        self.position = position
        self.gradient = Place.NOWHERE
        self.kept = False  # whether the backward pass reads the values


class RowProgram(NamedTuple):
    """A static subgraph as a program for rows.

    Attributes
    ----------
    registers : list of Register
    instructions : list of Instruction
    parameters : list of (int, int)
        Position among the type's parameters, or after these among the packs; and the first
        element of the part that is used.
    packs : list of (tuple of int)
        Parameters of the type that the program wants as one array, one after the other.
    arguments, outputs : int
        How many.
    element_size : int
        Bytes of an element: 4 or 8.
    """

    registers: List[Register]
    instructions: List[Instruction]
    parameters: List[Tuple[int, int]]
    packs: List[Tuple[int, ...]]
    arguments: int
    outputs: int
    element_size: int


_FROM_X = {Unary.LOG, Unary.SQUARE, Unary.ABS, Unary.RECIPROCAL, Unary.SOFTSIGN, Unary.LEAKY,
           Unary.MAXIMUM, Unary.MINIMUM, Unary.CLIP}
_FROM_Y = {Unary.SIGMOID, Unary.TANH, Unary.RELU, Unary.EXP, Unary.SQRT, Unary.SOFTRELU}


def read_backward(instruction: Instruction) -> List[View]:
    """The views whose values the backward pass of an instruction reads."""
    op, out, a, b = instruction[:4]
    if op is Opcode.UNARY:
        function = Unary(instruction.numbers[0])
        return [a] if function in _FROM_X else [out] if function in _FROM_Y else []
    if op is Opcode.BINARY:
        linear = instruction.numbers[0] in (Binary.ADD, Binary.SUBTRACT)
        return [] if linear else [a, b]
    return {Opcode.PRODUCT: [a], Opcode.LOOKUP: [a], Opcode.LOG_SOFTMAX: [out],
            Opcode.SOFTMAX: [out], Opcode.PICK: [b], Opcode.BATCH_PRODUCT: [a, b],
            Opcode.SEGMENT_SOFTMAX: [out]}.get(op, [])
