"""Native programs of a type's calls for a bundle's manifest (`gluon_edbatch_core.native`)."""

import itertools
import math
from typing import Any, Callable, Optional

import numpy as np
from mxnet import gluon

from gluon_edbatch_core.native.row_program import MOST_COLUMNS, OPERATIONS, numbers_of

from ..execute.native.lowering import lower
from ..ops.instructions import NO_VIEW, Instruction, Opcode, RowProgram, View
from ..ops.lowering_context import Unsupported
from ..subgraph.node_type import Kind, NodeType
from ..subgraph.split import hoisted

_MOST_SPLIT = 3  # arguments of which each choice may be known beforehand
Placed = Callable[[gluon.Parameter], int]  # where a parameter is among a bundle's weights


def native_entry(kind: NodeType, placed: Placed) -> dict[str, Any]:
    """Return a type's native program, and those of its two parts for each choice of arguments that
    may be known beforehand; nothing if a bundle cannot have it."""
    native = _lowered(kind)
    program = None if native is None else _program(kind, native, placed)
    if native is None or program is None:
        return {}
    rows = [place for place, each in enumerate(kind.arguments) if each.kind is Kind.ROWS]
    splits: dict[tuple[int, ...], dict[str, Any]] = {}
    for size in range(1, min(len(rows), _MOST_SPLIT) + 1):
        for known in itertools.combinations(rows, size):
            split = hoisted(kind, frozenset(known), fused=bool(native.packs))
            if split is None or split.late is None or split.positions in splits:
                continue
            parts = [(part, _lowered(part)) for part in (split.early, split.late)]
            early, late = [own and _program(part, own, placed) for part, own in parts]
            if early and late:
                splits[split.positions] = {
                    'positions': list(split.positions),
                    'early': early,
                    'found': [[list(each.row_shape), np.dtype(each.dtype).name]
                              for each in split.found],
                    'late': late,
                }  # fmt: skip
    return {'native': {**program, 'splits': list(splits.values())}}


def _lowered(kind: NodeType) -> Optional[RowProgram]:
    """Return a type's native program, wherever it will run; None if it has none."""
    try:
        return lower(kind)[0] if kind.options.native and kind.graph.function is None else None
    except Unsupported:
        return None


def _program(kind: NodeType, program: RowProgram, placed: Placed) -> Optional[dict[str, Any]]:
    """Return a program as a manifest has it; None if bundles have no such programs."""
    reals = [real for each in program.instructions for real in each.reals]
    is_wide = sum([each.width for each in program.registers]) > MOST_COLUMNS
    if is_wide or not (all(map(math.isfinite, reals)) and _operations(program) <= OPERATIONS):
        return None
    members = [(place,) for place in range(len(kind.parameters))] + program.packs
    return {
        'registers': [
            [each.width, bool(each.ragged), _named(each.place), each.position, each.times]
            for each in program.registers
        ],
        'instructions': list(map(_instruction, program.instructions)),
        'parameters': [
            [[placed(kind.parameters[place]) for place in members[index]], begin]
            for index, begin in program.parameters
        ],
    }


def _named(number: Any) -> str:
    """Return an enumerated number's name, as the executor's header has it."""
    return number.name.title().replace('_', '')


def _operations(program: RowProgram) -> set[str]:
    return {_named(each.op) for each in program.instructions}


def _instruction(each: Instruction) -> list[Any]:
    numbers: list[Any] = list(map(int, each.numbers))
    if each.op in (Opcode.UNARY, Opcode.BINARY):
        names = {number: name for name, number in numbers_of(each.op.name.lower()).items()}
        numbers[0] = names[numbers[0]]
    views = [_view(view) for view in (each.out, each.a, each.b)]
    return [_named(each.op), *views, each.parameter, each.bias, numbers, list(each.reals)]


def _view(view: View) -> Optional[list[int]]:
    return None if view == NO_VIEW else list(view)
