"""Programs for rows: the native operators execute one for each batch of a type.

A program computes with *registers*: matrices with a row for each row of the batch, or, if `ragged`,
for each value of its ragged arguments. An instruction reads and writes *views*, ranges of a
register's columns. So slicing a row, or concatenating pieces of rows, costs nothing. ``opcodes.h``
of ``gluon_edbatch_core/native/src`` is generated from the declarations here and in `ops.table` (see
`ops.header`).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Optional


class Opcode(IntEnum):
    """Operations of instructions; `lowering` names the numbers that each uses."""

    LOAD = 0
    PRODUCT = 1
    UNARY = 2
    BINARY = 3
    EXPAND = 4
    SEGMENT_SUM = 5
    LOOKUP = 6
    SOFTMAX = 7
    PICK = 8
    REDUCE = 9
    BATCH_PRODUCT = 10
    CONSTANT = 11
    STRIDED = 12
    TRANSPOSE = 13
    PARAMETER_ROW = 14
    SEGMENT_SOFTMAX = 15
    SEGMENT_EXTREME = 16
    SEGMENT_MASK = 17
    SEGMENT_PICK = 18
    POSITIONS = 19
    LAYER_NORM = 20
    ATTENTION = 21
    WINDOW = 22
    RECURRENT = 23
    DROPOUT = 24
    SEGMENT_ORDER = 25


class Function(NamedTuple):
    """An elementwise function, with the name of its struct in ``math_functions.h``."""

    name: str  # of the struct
    number: int  # by which programs call it
    # what the backward pass reads: of one argument ``'x'`` (the argument), ``'y'`` (the result) or
    # neither; of two ``'xy'`` (both arguments) or neither
    needs: str
    reals: int  # how many numbers of an instruction it takes


UNARY: list[Function] = []  # by number: of one argument
BINARY: list[Function] = []  # of two


def unary_function(name: str, needs: str = '', reals: int = 0) -> Function:
    """Declare a function of one argument."""
    return _declared(UNARY, name, needs, reals)


def binary_function(name: str, needs: str = '') -> Function:
    """Declare a function of two arguments."""
    return _declared(BINARY, name, needs, 0)


def _declared(functions: list[Function], name: str, needs: str, reals: int) -> Function:
    functions.append(Function(name, len(functions), needs, reals))
    return functions[-1]


AFFINE = unary_function('Affine', reals=2)
HELD = unary_function('Held')  # what gets no gradient
COPY = (1.0, -0.0)  # what AFFINE multiplies by and adds: x + -0.0 is x, also if that is -0.0
ADD = binary_function('Add')


class Spread(IntEnum):
    """How an operand with fewer columns fills a row."""

    SAME = 0
    REPEAT = 1  # each column several times in a row
    TILE = 2  # all columns, again and again


class Recurrence(IntEnum):
    """Kinds of recurrent cells; their names in lower case are MXNet's modes."""

    LSTM = 0
    GRU = 1
    RNN_TANH = 2
    RNN_RELU = 3


class Product(IntEnum):
    """What becomes of the sum that a product computes."""

    WRITTEN = 0
    ADDED = 1
    STEPS = 2  # a recurrence computes it, step by step; only the gradient of its weight is left


class Place(IntEnum):
    """Where the rows of a register are stored."""

    NOWHERE = 0
    SCRATCH = 1  # gone when the block of rows is done
    KEPT = 2  # in the workspace, for the backward pass
    OUTPUT = 3  # in the arena that a result belongs to
    INPUT = 4  # in the arena that an argument comes from


class View(NamedTuple):
    """Columns ``[offset, offset + width)`` of a register."""

    register: int
    offset: int
    width: int

    def __str__(self) -> str:
        return f'r{self.register}[{self.offset}:{self.offset + self.width}]'


NO_VIEW = View(-1, 0, 0)


class Instruction(NamedTuple):
    """One step of a program."""

    op: Opcode
    out: View
    a: View = NO_VIEW
    b: View = NO_VIEW
    # parameter, bias: positions among the program's parameters; -1: none
    parameter: int = -1
    bias: int = -1
    numbers: tuple[int, ...] = ()  # up to four
    reals: tuple[float, ...] = ()  # up to two

    @property
    def third(self) -> View:
        """The third view that is read: the values of attention, or the cells of an LSTM."""
        if self.op is Opcode.ATTENTION:
            return View(*self.numbers[1:])
        if self.op is Opcode.RECURRENT and self.numbers[3] >= 0:
            return View(self.numbers[3], 0, self.out.width)
        return NO_VIEW

    def __str__(self) -> str:
        name, numbers = self.op.name, self.numbers
        if self.op in (Opcode.UNARY, Opcode.BINARY):
            functions = UNARY if self.op is Opcode.UNARY else BINARY
            name, numbers = functions[numbers[0]].name, numbers[1:]
        operands = [str(view) for view in (self.a, self.b) if view is not NO_VIEW]
        operands += [f'p{index}' for index in (self.parameter, self.bias) if index >= 0]
        return f'{self.out} = {name}({", ".join([*operands, *map(str, numbers + self.reals)])})'


@dataclass(eq=False)
class Register:
    """A matrix of intermediate values."""

    width: int  # columns
    ragged: Optional[bool]  # whether it has a row for each ragged value; None until that is known
    place: Place = Place.SCRATCH  # where its values are stored
    position: int = -1  # index of the argument, result or parameter of the program that it is
    times: int = 1  # rows of the arena that make one row of an argument or result
    gradient: Place = Place.NOWHERE  # where its gradients are stored
    kept: bool = False  # whether the backward pass reads the values

    def __str__(self) -> str:
        where = self.place.name.lower() + (f' {self.position}' if self.position >= 0 else '')
        rows = 'values' if self.ragged else 'rows' if self.times == 1 else f'{self.times} rows'
        kept = ', kept' if self.kept else ''
        return f'{rows} of {self.width}, {where}{kept}, gradient {self.gradient.name.lower()}'


class RowProgram(NamedTuple):
    """A static subgraph as a program for rows."""

    registers: list[Register]
    instructions: list[Instruction]
    # position among the type's parameters, or after these among the packs; and the first element of
    # the part that is used
    parameters: list[tuple[int, int]]
    # parameters of the type that the program wants as one array, one after the other
    packs: list[tuple[int, ...]]
    # arguments, outputs: how many
    arguments: int
    outputs: int
    element_size: int  # bytes of an element: 4 or 8

    @property
    def draws(self) -> bool:
        """Whether it draws noise: drops elements, or weights of attention."""
        return any(
            [
                each.op is Opcode.DROPOUT or (each.op is Opcode.ATTENTION and each.reals[1] > 0)
                for each in self.instructions
            ]
        )

    def __str__(self) -> str:
        """Return the program as text: registers, parameters, then one line for each instruction."""
        registers = [f'r{index}: {register}' for index, register in enumerate(self.registers)]
        parameters = [
            f'p{index}: parameter {position} from {begin}'
            for index, (position, begin) in enumerate(self.parameters)
        ]
        return '\n'.join([*registers, *parameters, *map(str, self.instructions)])


def read_backward(instruction: Instruction) -> list[View]:
    """Return the views whose values the backward pass of an instruction reads."""
    op, out, a, b = instruction[:4]
    if op is Opcode.UNARY:
        return {'x': [a], 'y': [out], '': []}[UNARY[instruction.numbers[0]].needs]
    if op is Opcode.BINARY:
        return {'xy': [a, b], '': []}[BINARY[instruction.numbers[0]].needs]
    if op is Opcode.RECURRENT:
        others = {Recurrence.LSTM: [instruction.third], Recurrence.GRU: [b]}
        return [a, *others.get(Recurrence(instruction.numbers[0]), [])]
    return {
        Opcode.PRODUCT: [a],
        Opcode.LOOKUP: [a],
        Opcode.SOFTMAX: [out],
        Opcode.PICK: [b],
        Opcode.BATCH_PRODUCT: [a, b],
        Opcode.SEGMENT_SOFTMAX: [out],
        Opcode.SEGMENT_EXTREME: [out, a],
        Opcode.SEGMENT_MASK: [b] if b is not NO_VIEW else [],
        Opcode.SEGMENT_PICK: [b],
        Opcode.LAYER_NORM: [a],
        Opcode.ATTENTION: [a, b, instruction.third],
    }.get(op, [])
