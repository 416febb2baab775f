"""Make the native program of a type, and its words, once."""

import struct
from typing import NamedTuple, Optional

import numpy as np

from ... import debug
from ...ops.instructions import Instruction, Place, RowProgram
from ...ops.lowering_context import Unsupported
from ...subgraph.node_type import NodeType
from ..executable import executable
from . import library
from .lowering import lower

WANTED = 0  # in the place of an address
ALIGNED = 16  # elements
_REGISTER_WORDS = 8


class Layout(NamedTuple):
    """A program as 64-bit words (``src/program.h``), except what depends on the run."""

    words: np.ndarray
    kept: tuple[int, int, int]  # in the workspace: elements a row, elements a value, registers

    def workspace(self, rows: int, values: int) -> int:
        """Return the most elements that a program's workspace takes."""
        of_row, of_value, registers = self.kept
        return of_row * rows + of_value * values + registers * ALIGNED


def layout(program: RowProgram, training: bool) -> Layout:
    """Return the part of a program's words that is the same in every run."""
    words = np.full((len(program.registers), _REGISTER_WORDS), -1, np.int64)
    kept = [0, 0]
    count = 0
    for i, register in enumerate(program.registers):
        place, gathered = register.place, -1
        if training and register.kept and place in (Place.SCRATCH, Place.INPUT):
            if place is Place.INPUT:
                gathered = WANTED
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


class NativeProgram(NamedTuple):
    """A type's program, and its words for runs without and with a backward pass."""

    program: RowProgram
    layouts: tuple[Layout, Layout]


def native_program(node_type: NodeType) -> Optional[NativeProgram]:
    """Return a type's program; None if there is none (`Executable.not_native` says why)."""
    known = executable(node_type)
    if known.native is None and known.not_native is None:
        try:
            if not (node_type.options.native and library.available()):
                raise Unsupported('there are no native operators')
            if node_type.graph.function is not None:
                raise Unsupported('runs Python code')
            program, changed = lower(node_type)
            debug.show(debug.PROGRAMS, f'{node_type}, natively', program)
            known.native = NativeProgram(program, (layout(program, False), layout(program, True)))
            known.changed_by.update(changed, ['native'])
        except Unsupported as reason:
            known.not_native = str(reason)
            debug.show(debug.PROGRAMS, f'{node_type}, not natively: it {reason}')
    return known.native
