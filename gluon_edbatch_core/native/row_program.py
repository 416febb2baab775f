"""Native programs of bundles: data that is checked, so that no program leaves its memory.

A program computes with registers: matrices with a row for each row of a batch, or for each ragged
value. Instructions read and write columns of registers (see ``src/program.h``). A manifest names
operations and functions, as their numbers may change. Whatever it says, a checked program reads and
writes only its registers, the rows that its batch has in arenas, and its weights. It reads nothing
that it did not write before, and writes all of its results.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import BundleError

_PLACES = 'Scratch', 'Output', 'Input'
MOST_COLUMNS = _MOST = 1 << 20  # of all registers
_MOST_ELEMENTS = 1 << 40  # of a weight
View = tuple[int, int, int]  # register, first column, columns
NO_VIEW = -1, 0, 0


class RowsOf(NamedTuple):
    """What a program gets for an argument or a result: columns of a row of its arena, rows of the
    arena for each row of the batch, and whether there is a row for each ragged value."""

    width: int
    rows: int = 1
    ragged: bool = False


class CheckedProgram(NamedTuple):
    """A checked program. `words` are registers and instructions as the executor reads them.
    `parameters` are which weights each parameter is, one after the other, and where it begins.
    `tables` are arguments that are looked up, and how many rows the table of each has."""

    words: np.ndarray
    parameters: list[tuple[tuple[int, ...], int]]
    tables: list[tuple[int, int]]


class CheckedInstruction(NamedTuple):
    """An instruction of a manifest; see `gluon_edbatch.ops.instructions.Instruction`."""

    op: str
    out: View
    a: View
    b: View
    parameter: int
    bias: int
    numbers: tuple[int, ...]
    reals: tuple[float, ...]


@cache
def numbers_of(kind: str) -> dict[str, int]:
    """Return the executor's numbers of ``Opcode``, ``Place``, ``unary`` or ``binary``, by name."""
    header = Path(__file__).with_name('src').joinpath('opcodes.h').read_text(encoding='ascii')
    if kind in ('unary', 'binary'):
        found = re.findall(r'case (\d+): body\((\w+)<T>', header.split(f'void with_{kind}(')[1])
        names: dict[str, int] = {}
        for number, name in found:
            if int(number) != len(names):  # the next function's
                break
            names[name] = int(number)
        return names
    (body,) = re.findall(rf'enum {kind} : int64_t {{(.*?)}}', header, re.DOTALL)
    return {name: int(number) for name, number in re.findall(r'k(\w+) = (\d+)', body)}


def row_program(
    entry: Mapping[str, Any],
    arguments: Sequence[RowsOf],
    outputs: Sequence[RowsOf],
    sizes: Sequence[int],
) -> CheckedProgram:
    """Return the program of a manifest's entry. `sizes` are numbers of elements of the weights.
    Raise BundleError if it would read or write what it does not have."""
    try:
        return _Checker(entry, arguments, outputs, sizes).program()
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise BundleError(
            f'a native program in the manifest does not make sense: {type(error).__name__}: {error}'
        ) from None


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _whole(number: Any, most: int = _MOST) -> int:
    _need(type(number) is int and 0 <= number <= most, f'{number!r} is no number up to {most}')
    return number


class _Checker:
    def __init__(
        self,
        entry: Mapping[str, Any],
        arguments: Sequence[RowsOf],
        outputs: Sequence[RowsOf],
        sizes: Sequence[int],
    ):
        self._arguments, self._outputs = arguments, outputs
        self._tables: list[tuple[int, int]] = []
        self._parameters = [
            (
                tuple([_whole(place, len(sizes) - 1) for place in places]),
                _whole(begin, _MOST_ELEMENTS),
            )
            for places, begin in entry['parameters']
        ]
        self._rooms = [
            sum([sizes[place] for place in places]) - begin for places, begin in self._parameters
        ]
        self._registers = [self._register(*each) for each in entry['registers']]
        _need(sum([width for width, *_ in self._registers]) <= MOST_COLUMNS, 'too many columns')
        self._results: dict[int, np.ndarray] = {}  # which columns were written
        self._written = list(map(self._column_flags, self._registers))
        self._instructions = [self._instruction(*each) for each in entry['instructions']]

    def program(self) -> CheckedProgram:
        """Return the checked program."""
        words = [len(self._registers), len(self._instructions)]
        for width, ragged, place, position, times in self._registers:
            number = numbers_of('Place')[place]
            words += [width, int(ragged), number, position, 0, -1, -1, times]
        packed = [np.array(words, np.int64)]
        for each in self._instructions:
            _CHECKS[each.op](self, each)
            self._write(each)
            reals = each.reals + (0.0,) * (2 - len(each.reals))
            views = *each.out, *each.a, *each.b
            op = numbers_of('Opcode')[each.op]
            words = [op, *views, each.parameter, each.bias, *each.numbers]
            packed += [np.array(words, np.int64), np.array(reals, np.float64).view(np.int64)]
        full = [place for place, flags in self._results.items() if flags.all()]
        _need(len(full) == len(self._outputs), 'a result is not written')
        return CheckedProgram(np.concatenate(packed), self._parameters, self._tables)

    # --- registers -------------------------------------------------------------------------------

    def _register(self, width: Any, ragged: Any, place: Any, position: Any, times: Any) -> tuple:
        width, times = _whole(width), _whole(times)
        _need(type(ragged) is bool and place in _PLACES and width > 0, 'a register')
        if place == 'Scratch':
            position, times = -1, 1
        else:
            given = (self._arguments if place == 'Input' else self._outputs)[_whole(position)]
            is_like = given == RowsOf(width // max(times, 1), times, ragged)
            _need(is_like and width % times == 0, f'a register is not like {given}')
        return width, ragged, place, position, times

    def _column_flags(self, register: tuple) -> np.ndarray:
        width, _, place, position, _ = register
        flags: np.ndarray = np.full(width, place == 'Input')
        return self._results.setdefault(position, flags) if place == 'Output' else flags

    def _write(self, i: CheckedInstruction) -> None:
        """Raise if an instruction reads columns that none wrote; note what it writes."""
        is_added = i.op == 'Product' and i.numbers[0] == 1
        for register, first, width in (i.a, i.b, i.out if is_added else NO_VIEW):
            known = register < 0 or bool(self._written[register][first : first + width].all())
            _need(known, 'columns are read that were not written')
            apart = register != i.out[0] or first + width <= i.out[1] or sum(i.out[1:]) <= first
            _need(apart or (register, first, width) == i.out, 'a result overlaps an operand')
        register, first, width = i.out
        flags = self._written[register][first : first + width]
        if i.op == 'Strided':
            outer, inner, step, _ = i.numbers
            flags[np.arange(outer)[:, None] * step + np.arange(inner)] = True
        else:
            flags[:] = True

    def _instruction(
        self, op: Any, out: Any, a: Any, b: Any, parameter: Any, bias: Any, numbers: Any, reals: Any
    ) -> CheckedInstruction:
        _need(op in _CHECKS, f'{op!r} is no operation of bundles')
        if op in ('Unary', 'Binary'):
            numbers = [numbers_of(op.lower())[numbers[0]], *numbers[1:]]
        numbers = tuple([_whole(number, _MOST_ELEMENTS) for number in numbers])
        reals = tuple(map(float, reals))
        _need(len(numbers) <= 4 and len(reals) <= 2, f'{op} has too many numbers')
        numbers += (0,) * (4 - len(numbers))
        views = [self._view(view) for view in (out, a, b)]
        for place in (parameter, bias):
            _need(place == -1 or _whole(place) < len(self._parameters), 'a parameter')
        found = CheckedInstruction(
            op, views[0], views[1], views[2], parameter, bias, numbers, reals
        )
        _need(self._registers[found.out[0]][2] != 'Input' and found.out != NO_VIEW, 'a result')
        return found

    def _view(self, view: Any) -> View:
        if view is None:
            return NO_VIEW
        register, offset, width = map(_whole, view)
        _need(offset + width <= self._registers[register][0] and width > 0, 'a view')
        return register, offset, width

    # --- instructions ----------------------------------------------------------------------------

    def ragged(self, view: View) -> bool:
        """Return whether a view has a row for each ragged value."""
        _need(view != NO_VIEW, 'an operand is missing')
        return self._registers[view[0]][1]

    def alike(self, *views: View) -> None:
        """Raise if views have other rows than each other."""
        _need(len({self.ragged(view) for view in views}) == 1, 'operands of other rows')

    def has(self, parameter: int, size: int) -> None:
        """Raise if a parameter has fewer elements than this."""
        _need(parameter >= 0 and size <= self._rooms[parameter], 'a parameter is too small')

    def load(self, i: CheckedInstruction) -> None:
        position, _, times, _ = i.numbers
        given = self._arguments[position]
        _need(given == RowsOf(i.out[2] // times, times, self.ragged(i.out)), f'{given} is loaded')
        _need(i.out[2] % times == 0, 'rows of an argument')

    def product(self, i: CheckedInstruction) -> None:
        how, times, turned, stride = i.numbers
        self.alike(i.out, i.a)
        _need(how < 2 and times > 0 and not (i.out[2] % times or i.a[2] % times), 'a product')
        for register, _, width in (i.out, i.a):
            _need(times == 1 or width == self._registers[register][0], 'a product of pieces')
        before, after = i.a[2] // times, i.out[2] // times
        lines, last = (before, after) if turned else (after, before)
        self.has(i.parameter, (lines - 1) * max(stride or last, last) + last)
        _need(not stride or stride >= last, 'lines of a weight')
        if i.bias >= 0:
            self.has(i.bias, after)

    def unary(self, i: CheckedInstruction) -> None:
        self.alike(i.out, i.a)
        _need(i.out[2] == i.a[2], 'a function')

    def binary(self, i: CheckedInstruction) -> None:
        self.alike(i.out, i.a, i.b)
        for how, (_, _, width) in zip(i.numbers[1:], (i.a, i.b)):
            _need(how < 3 and (width == i.out[2] if how == 0 else not i.out[2] % width), 'spread')

    def expand(self, i: CheckedInstruction) -> None:
        _need(self.ragged(i.out) and not self.ragged(i.a) and i.out[2] == i.a[2], 'values of calls')

    def over_values(self, i: CheckedInstruction) -> None:
        _need(self.ragged(i.a) and not self.ragged(i.out) and i.out[2] == i.a[2], 'calls of values')

    def of_values(self, i: CheckedInstruction) -> None:
        _need(self.ragged(i.a) and self.ragged(i.out) and i.out[2] == i.a[2], 'values of values')

    def mask(self, i: CheckedInstruction) -> None:
        self.of_values(i)
        _need(i.b == NO_VIEW or not self.ragged(i.b), 'lengths of calls')

    def lookup(self, i: CheckedInstruction) -> None:
        count, width, *_ = i.numbers
        self.alike(i.out, i.a)
        _need(count > 0 and i.out[2] == i.a[2] * width, 'a look-up')
        self.has(i.parameter, count * width)
        _, _, place, position, _ = self._registers[i.a[0]]
        if place == 'Input':
            self._tables.append((position, count))

    def softmax(self, i: CheckedInstruction) -> None:
        self.alike(i.out, i.a)
        _need(i.out[2] == i.a[2] and not i.a[2] % i.numbers[0], 'a softmax')

    def pick(self, i: CheckedInstruction) -> None:
        self.alike(i.out, i.a, i.b)
        _need(i.b[2] == i.out[2] and not i.a[2] % i.out[2], 'a pick')

    def reduce(self, i: CheckedInstruction) -> None:
        length, inner, *_ = i.numbers
        self.alike(i.out, i.a)
        _need(not i.out[2] % inner and i.a[2] == i.out[2] * length, 'a sum')

    def batch_product(self, i: CheckedInstruction) -> None:
        m, n, k, _ = i.numbers
        self.alike(i.out, i.a, i.b)
        count = i.out[2] // (m * n)
        widths = count * m * n, count * m * k, count * k * n
        _need(widths == (i.out[2], i.a[2], i.b[2]), 'products of matrices')

    def constant(self, i: CheckedInstruction) -> None:
        self.ragged(i.out)

    def strided(self, i: CheckedInstruction) -> None:
        outer, inner, *steps = i.numbers
        self.alike(i.out, i.a)
        for step, (_, _, width) in zip(steps, (i.out, i.a)):
            _need((outer - 1) * step + inner <= width, 'strides')
        _need(0 < outer * inner <= i.out[2], 'strides')

    def transpose(self, i: CheckedInstruction) -> None:
        self.alike(i.out, i.a)
        _need(i.out[2] == i.a[2] and not i.out[2] % math.prod(i.numbers[:3]), 'a transpose')

    def parameter_row(self, i: CheckedInstruction) -> None:
        self.has(i.parameter, i.out[2])

    def layer_norm(self, i: CheckedInstruction) -> None:
        self.alike(i.out, i.a)
        count = i.numbers[0]
        _need(i.out[2] == i.a[2] and not i.a[2] % count, 'a layer norm')
        self.has(i.parameter, count)
        self.has(i.bias, count)


_CHECKS = {
    'Load': _Checker.load,
    'Product': _Checker.product,
    'Unary': _Checker.unary,
    'Binary': _Checker.binary,
    'Expand': _Checker.expand,
    'SegmentSum': _Checker.over_values,
    'SegmentExtreme': _Checker.over_values,
    'SegmentSoftmax': _Checker.of_values,
    'SegmentMask': _Checker.mask,
    'Lookup': _Checker.lookup,
    'Softmax': _Checker.softmax,
    'Pick': _Checker.pick,
    'Reduce': _Checker.reduce,
    'BatchProduct': _Checker.batch_product,
    'Constant': _Checker.constant,
    'Strided': _Checker.strided,
    'Transpose': _Checker.transpose,
    'ParameterRow': _Checker.parameter_row,
    'LayerNorm': _Checker.layer_norm,
}
OPERATIONS = frozenset(_CHECKS)
