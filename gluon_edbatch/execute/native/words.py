"""What tables of runs have in common: programs and weights as 64-bit words, which the native
operators read (``src/program.h``)."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...ops.instructions import Instruction, Place, RowProgram

_MAGIC = 0x45444231
_WANTED = 0
_ALIGNED = 16  # elements
_REGISTER_WORDS = 8


class Layout(NamedTuple):
    """A program's words, but for what depends on the run.

    Attributes
    ----------
    words : numpy.ndarray
        How many registers and instructions there are, and each of them (``src/program.h``).
    kept : tuple of int
        What the workspace keeps: elements for each row, and for each value of ragged arguments, of
        so many registers.
    """

    words: np.ndarray
    kept: tuple[int, int, int]

    def workspace(self, rows: int, values: int) -> int:
        """Elements of the workspace, at most, that a program takes."""
        of_row, of_value, registers = self.kept
        return of_row * rows + of_value * values + registers * _ALIGNED


def layout(program: RowProgram, training: bool) -> Layout:
    """The part of a program's words that is the same in every run."""
    words = np.full((len(program.registers), _REGISTER_WORDS), -1, np.int64)
    kept = [0, 0]
    count = 0
    for i, register in enumerate(program.registers):
        place, gathered = register.place, -1
        if training and register.kept and place in (Place.SCRATCH, Place.INPUT, Place.PARAMETER):
            if place is Place.INPUT:
                gathered = _WANTED
            else:
                place = Place.KEPT
            kept[bool(register.ragged)] += register.width
            count += 1
        words[i] = (
            register.width,
            register.ragged,
            place,
            register.position,
            register.gradient,
            register.position,
            gathered,
            register.times,
        )
    sizes = struct.pack('<2q', len(program.registers), len(program.instructions))
    instructions = b''.join(map(_packed, program.instructions))
    everything = b''.join([sizes, words.tobytes(), instructions])
    return Layout(np.frombuffer(everything, np.int64), (kept[0], kept[1], count))


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


def weight(size: int, members: int) -> list[int]:
    """An array of weights: ``Weight`` in ``src/program.h``."""
    return [size, -1, members]


def keep(weights: Sequence[list[int]]) -> None:
    """Have them kept in the workspace."""
    for words in weights:
        words[1] = _WANTED


def weights_size(weights: Sequence[list[int]]) -> int:
    """Elements of the workspace, at most, that those which are kept take."""
    return sum([size + _ALIGNED for size, kept_at, _ in weights if kept_at == _WANTED])


def start(
    element_size: int, training: bool, weights: Sequence[list[int]], programs: int
) -> np.ndarray:
    """The first words of a table, but for four that `Table.begin` knows."""
    head = [_MAGIC, element_size, training, 0, 0, len(weights), programs, 0, 0]
    return np.array(head + [word for words in weights for word in words], np.int64)
