"""Runs of batches as tables of 64-bit words, which the native operators read
(``src/program.h``)."""

import struct
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from ...ops.instructions import Instruction, Place, RowProgram

if TYPE_CHECKING:
    from ...plan.plan import Group

_MAGIC = 0x45444231
_REGISTER_WORDS = 8


class Layout(NamedTuple):
    """A program's words, but for what depends on how many rows there are.

    Attributes
    ----------
    registers : numpy.ndarray
        (registers, 8) of ``Register`` in ``src/program.h``; addresses are still to be added.
    instructions : numpy.ndarray
    kept : tuple of numpy.ndarray
        Registers whose values, gathered rows, and gradients are kept: three arrays of numbers.
    """

    registers: np.ndarray
    instructions: np.ndarray
    kept: Tuple[np.ndarray, ...]


class Rows(NamedTuple):
    """How many rows, and values of ragged arguments, a type has in a run."""

    rows: int
    values: int


def layout(program: RowProgram, training: bool) -> Layout:
    """The part of a program's words that is the same in every run."""
    words = np.full((len(program.registers), _REGISTER_WORDS), -1, np.int64)
    values, gathered, gradients = [], [], []
    for i, register in enumerate(program.registers):
        place = register.place
        if training and register.kept and place is Place.SCRATCH:
            place = Place.KEPT
            values.append(i)
        elif training and register.kept and place is Place.INPUT:
            gathered.append(i)
        if register.gradient is Place.KEPT:
            gradients.append(i)
        words[i, :6] = (
            register.width,
            register.ragged,
            place,
            register.position,
            register.gradient,
            register.position,
        )
        words[i, 7] = register.times
    instructions = np.frombuffer(b''.join(map(_packed, program.instructions)), np.int64)
    kept = tuple(np.array(which, np.int64) for which in (values, gathered, gradients))
    return Layout(words, instructions, kept)


def _packed(instruction: Instruction) -> bytes:
    numbers = tuple(instruction.numbers) + (0,) * (4 - len(instruction.numbers))
    reals = tuple(instruction.reals) + (0.0,) * (2 - len(instruction.reals))
    return struct.pack(
        '<16q2d',
        instruction.op,
        *instruction.out,
        *instruction.a,
        *instruction.b,
        instruction.parameter,
        instruction.bias,
        *map(int, numbers),
        *reals,
    )


def place_kept(
    layout: Layout, rows: Rows, workspace: int, gradients: int
) -> Tuple[np.ndarray, int, int]:
    """The registers' words with the addresses of what is kept, and where those end."""
    words = layout.registers.copy()
    sizes = words[:, 0] * np.where(words[:, 1] == 1, rows.values, rows.rows)
    values, gathered, slopes = layout.kept
    workspace = _place(words, 3, sizes, values, workspace)
    workspace = _place(words, 6, sizes, gathered, workspace)
    return words, workspace, _place(words, 5, sizes, slopes, gradients)


def _place(words: np.ndarray, column: int, sizes: np.ndarray, which: np.ndarray, begin: int) -> int:
    """Give some registers addresses from `begin` on; returns where those end."""
    if not len(which):
        return begin
    lengths = _aligned(sizes[which])
    ends = begin + lengths.cumsum()
    words[which, column] = ends - lengths
    return int(ends[-1])


def _aligned(sizes: np.ndarray) -> np.ndarray:
    return (sizes + 15) // 16 * 16


def batch_words(
    group: 'Group', begin: int, end: int, slots: Dict[int, int], private: Sequence[bool]
) -> Tuple[np.ndarray, Rows]:
    """Some batches of a group: their rows, where they read and where they write, a line a batch;
    and how many rows they have together."""
    rows, values = group.rows[begin:end], np.zeros(end - begin, np.int64)
    parents = np.full(end - begin, -1)
    for read in group.reads:
        if read.parents is not None:  # all ragged arguments have the same
            values = read.end[begin:end] - read.begin[begin:end]
            parents = read.parents[begin:end]
    words = np.empty((end - begin, 5 + 4 * len(group.reads) + 2 * len(group.writes)), np.int64)
    row_ends, value_ends = rows.cumsum(), values.cumsum()
    columns = [rows, row_ends - rows, values, value_ends - values, parents]
    for read in group.reads:
        columns += (
            slots[read.arena],
            read.gather[begin:end],
            read.begin[begin:end],
            private[read.arena],
        )
    for write in group.writes:
        columns += (slots[write.arena], write.begin[begin:end])
    for place, column in enumerate(columns):
        words[:, place] = column
    return words, Rows(int(row_ends[-1]), int(value_ends[-1]))


def header(
    element_size: int,
    training: bool,
    arenas: int,
    parameters: int,
    gradients: int,
    programs: int,
    batches: int,
) -> List[int]:
    """The first words of a table."""
    return [_MAGIC, element_size, int(training), arenas, parameters, gradients, programs, batches]


def program_words(
    program: RowProgram,
    layout: Layout,
    registers: np.ndarray,
    parameters: Sequence[Tuple[int, bool, int]],
    batches: np.ndarray,
) -> List[np.ndarray]:
    """A program: its parameters, registers, instructions and batches.

    Parameters
    ----------
    parameters : sequence of (int, bool, int)
        Position in the run, whether it is trained, first element.
    batches : numpy.ndarray
        See `batch_words`.
    """
    counts = np.array(
        [
            len(program.registers),
            len(program.instructions),
            len(parameters),
            program.arguments,
            program.outputs,
            len(batches),
        ],
        np.int64,
    )
    return [
        counts,
        np.array(parameters, np.int64).reshape(-1),
        registers.reshape(-1),
        layout.instructions,
        batches.reshape(-1),
    ]
