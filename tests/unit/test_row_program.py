"""Native programs of bundles are refused if they would leave their memory."""

import copy

import numpy as np
import pytest

from gluon_edbatch_core.errors import BundleError
from gluon_edbatch_core.native.executor_library import executor
from gluon_edbatch_core.native.row_program import OPERATIONS, RowsOf, numbers_of, row_program

WEIGHTS = [12, 6, 100]  # elements
ARGUMENTS = [RowsOf(2), RowsOf(3, ragged=True), RowsOf(2, rows=2)]
OUTPUTS = [RowsOf(4)]
# Registers: arguments, the result, then rows and values of six columns.
REGISTERS = [
    [2, False, 'Input', 0, 1],
    [3, True, 'Input', 1, 1],
    [4, False, 'Input', 2, 2],
    [4, False, 'Output', 0, 1],
    [6, False, 'Scratch', -1, 1],
    [6, True, 'Scratch', -1, 1],
]
PARAMETERS = [[[0], 0], [[1], 2], [[0, 1], 3], [[2], 0]]
OUT, ROWS, VALUES = [3, 0, 4], [4, 0, 6], [5, 0, 6]


def step(op, out, a=None, b=None, parameter=-1, bias=-1, numbers=(), reals=()):
    return [op, out, a, b, parameter, bias, list(numbers), list(reals)]


FILLED = [step('Constant', view, reals=(0,)) for view in (OUT, ROWS, VALUES)]
RIGHT = {
    'load': step('Load', [4, 2, 4], numbers=(2, 0, 2)),
    'load of values': step('Load', [5, 3, 3], numbers=(1, 0, 1)),
    'product': step('Product', [4, 0, 3], OUT, None, 0, 1, (0, 1, 0, 0)),
    'product, turned': step('Product', [4, 0, 3], OUT, None, 0, -1, (1, 1, 1, 3)),
    'product of pieces': step('Product', ROWS, [2, 0, 4], None, 2, -1, (0, 2, 1, 3)),
    'function': step('Unary', OUT, [2, 0, 4], numbers=('Tanh',)),
    'sum': step('Binary', ROWS, ROWS, [0, 0, 2], numbers=('Add', 0, 1)),
    'spread': step('Expand', [5, 0, 4], OUT),
    'sum of values': step('SegmentSum', ROWS, VALUES, numbers=(0,)),
    'largest value': step('SegmentExtreme', ROWS, VALUES, numbers=(0,)),
    'softmax of values': step('SegmentSoftmax', VALUES, VALUES, numbers=(0,)),
    'mask': step('SegmentMask', VALUES, VALUES, [0, 0, 1], numbers=(0,), reals=(0,)),
    'look-up': step('Lookup', ROWS, [0, 0, 2], None, 3, -1, (33, 3)),
    'softmax': step('Softmax', ROWS, ROWS, numbers=(3, 0)),
    'pick': step('Pick', [4, 0, 2], OUT, [0, 0, 2]),
    'reduced': step('Reduce', [4, 0, 2], OUT, numbers=(2, 1), reals=(1,)),
    'matrices': step('BatchProduct', ROWS, OUT, ROWS, numbers=(2, 3, 2, 0)),
    'constant': step('Constant', ROWS, reals=(1,)),
    'strided': step('Strided', ROWS, OUT, numbers=(2, 1, 5, 3)),
    'transposed': step('Transpose', ROWS, ROWS, numbers=(2, 3, 1)),
    'parameter': step('ParameterRow', [4, 0, 4], parameter=1),
    'norm': step('LayerNorm', ROWS, ROWS, None, 0, 2, (6,), (1e-5,)),
}
WRONG = {  # what is changed of a right one, and to what
    'load': [(1, ROWS), (1, [2, 0, 4]), (6, [0, 0, 2]), (6, [2, 0, 0]), (6, [3, 0, 2]), (1, None)],
    'load of values': [(1, [4, 3, 3]), (6, [1, 0, 3])],
    'product': [(1, ROWS), (1, VALUES), (2, [5, 0, 4]), (4, -1), (4, 1), (6, [2, 1, 0, 0]),
                (6, [0, 0, 0, 0]), (6, [0, 1, 0, 5]), (5, 9), (2, [3, 1, 4]), (6, [0, 1, 0, 3])],
    'product, turned': [(4, 1), (6, [0, 1, 1, 4])],
    'product of pieces': [(2, [4, 0, 4]), (6, [0, 3, 1, 0])],
    'function': [(2, [2, 0, 3]), (6, ['Exit']), (6, []), (2, None), (2, [5, 0, 4])],
    'sum': [(6, ['Add', 0, 0]), (6, ['Add', 3, 1]), (3, [2, 0, 4]), (3, [5, 0, 2])],
    'spread': [(1, ROWS), (2, [5, 0, 4]), (2, [2, 0, 3])],
    'sum of values': [(1, VALUES), (2, ROWS), (2, [1, 0, 3])],
    'largest value': [(1, VALUES), (2, [1, 0, 3])],
    'softmax of values': [(1, ROWS), (2, [1, 0, 3])],
    'mask': [(3, VALUES), (1, ROWS), (2, [1, 0, 3])],
    'look-up': [(6, [34, 3]), (6, [0, 3]), (2, [2, 0, 4]), (4, 2), (6, [2**41, 3])],
    'softmax': [(6, [4, 0]), (6, [0, 0])],
    'pick': [(3, [0, 0, 1]), (2, ROWS[:2] + [3])],
    'reduced': [(6, [3, 1]), (6, [2, 0])],
    'matrices': [(6, [2, 3, 3, 0]), (6, [0, 3, 2, 0]), (2, [4, 0, 5])],
    'constant': [(1, [4, 1, 6]), (1, [9, 0, 1]), (1, [4, -1, 2]), (7, [1, 2, 3])],
    'strided': [(6, [3, 1, 5, 3]), (6, [2, 2, 5, 3]), (6, [0, 1, 5, 3]), (6, [2, -1, 5, 3]),
                (6, [2**40, 1, 0, 0]), (6, [2, 0, 5, 3])],
    'transposed': [(6, [2, 3, 0]), (6, [2, 2, 1]), (2, OUT)],
    'parameter': [(1, [4, 0, 5]), (4, -1)],
    'norm': [(6, [4]), (5, -1), (4, 1)],
}  # fmt: skip


def checked(steps=(), registers=REGISTERS, parameters=PARAMETERS, filled=FILLED):
    """The program of some instructions, after others that fill all registers."""
    steps = [*filled, *steps]
    entry = {'registers': registers, 'instructions': steps, 'parameters': parameters}
    return row_program(entry, ARGUMENTS, OUTPUTS, WEIGHTS)


def test_each_operation_is_tried():
    assert {each[0] for each in RIGHT.values()} == OPERATIONS
    assert set(numbers_of('Opcode')) >= OPERATIONS


@pytest.mark.parametrize('name', RIGHT)
def test_right_ones_are_taken(name):
    assert checked([RIGHT[name]]).words[1] == len(FILLED) + 1


@pytest.mark.parametrize('name, change', [(name, each) for name in WRONG for each in WRONG[name]])
def test_wrong_ones_are_refused(name, change):
    made = copy.deepcopy(RIGHT[name])
    made[change[0]] = change[1]
    with pytest.raises(BundleError, match='native program'):
        checked([made])


@pytest.mark.parametrize('name', ['softmax', 'sum', 'transposed', 'strided'])
@pytest.mark.parametrize('first, fits', [(0, True), (3, True), (1, False), (2, False)])
def test_results_are_apart_from_operands_or_the_same(name, first, fits):
    numbers = {'sum': ('Add', 0, 0), 'strided': (1, 3, 3, 3)}.get(name, (3, 0))
    numbers = (3, 1, 1) if name == 'transposed' else numbers
    given = [4, first, 3]
    made = step(RIGHT[name][0], [4, 0, 3], given, given if name == 'sum' else None, numbers=numbers)
    if fits:
        checked([made])
    else:
        with pytest.raises(BundleError, match='overlaps'):
            checked([made])


READS = ('product', 'sum', 'spread', 'sum of values', 'softmax of values',
         'softmax', 'pick', 'reduced', 'matrices', 'strided', 'transposed', 'norm')  # fmt: skip


@pytest.mark.parametrize('name', READS)
def test_what_is_read_was_written(name):
    """Else a program would hand out what others left in memory."""
    read = {view[0] for view in RIGHT[name][2:4] if view}
    for missing in read & {view[0] for view in (OUT, ROWS, VALUES)}:
        filled = [each for each in FILLED if each[1][0] != missing]
        with pytest.raises(BundleError, match='not written'):
            checked([RIGHT[name], *FILLED], filled=filled)


@pytest.mark.parametrize(
    'filled',
    [
        [],
        [step('Constant', [3, 1, 3], reals=(0,))],
        [step('Strided', [3, 0, 4], [0, 0, 2], numbers=(2, 1, 3, 1))],
        [step('Product', OUT, [0, 0, 2], None, 3, -1, (1, 1, 0, 0)), *FILLED],
    ],
    ids=['nothing', 'not all', 'in steps', 'added to'],
)
def test_results_are_written(filled):
    with pytest.raises(BundleError, match='not written'):
        checked(filled=filled)
    parts = [(0, 1), (1, 3)]
    checked(filled=[step('Constant', [3, *part], reals=(0,)) for part in parts])


def test_results_in_steps_are_written():
    half = step('Strided', [3, 0, 3], [0, 0, 2], numbers=(2, 1, 2, 1))
    other = step('Strided', [3, 1, 3], [0, 0, 2], numbers=(2, 1, 2, 1))
    checked(filled=[half, other])
    with pytest.raises(BundleError, match='not written'):
        checked(filled=[half, half])


@pytest.mark.parametrize(
    'place, register',
    [
        (0, [3, False, 'Input', 0, 1]),
        (0, [2, True, 'Input', 0, 1]),
        (0, [2, False, 'Input', 3, 1]),
        (2, [4, False, 'Input', 2, 1]),
        (3, [4, False, 'Output', 1, 1]),
        (4, [0, False, 'Scratch', -1, 1]),
        (4, [2**21, False, 'Scratch', -1, 1]),
        (4, [6, False, 'Kept', -1, 1]),
        (4, [6, 1, 'Scratch', -1, 1]),
    ],
)
def test_registers_are_what_is_there(place, register):
    registers = copy.deepcopy(REGISTERS)
    registers[place] = register
    with pytest.raises(BundleError, match='native program'):
        checked([], registers)


@pytest.mark.parametrize('parameter', [[[3], 0], [[-1], 0], [[0], -1], [['0'], 0], [[True], 0]])
def test_parameters_are_weights(parameter):
    with pytest.raises(BundleError, match='native program'):
        checked([RIGHT['product']], parameters=[parameter, *PARAMETERS[1:]])


def test_the_executor_runs_them(tmp_path):
    """By way of the table of a run with one batch: four rows of the first argument, doubled."""
    if executor() is None:
        pytest.skip('there is no native executor')
    from gluon_edbatch_core.native.executor_library import addresses, run_arrays

    registers = [[2, False, 'Input', 0, 1], [2, False, 'Output', 0, 1]]
    steps = [step('Unary', [1, 0, 2], [0, 0, 2], numbers=('Affine',), reals=(2.0, 1.0))]
    entry = {'registers': registers, 'instructions': steps, 'parameters': []}
    program = row_program(entry, [RowsOf(2)], [RowsOf(2)], [])
    start = [0x45444231, 4, 0, 1, 2, 0, 1, 0, 1, 0]
    batches = [1, 1, 0, 1, 0, 4, 0, 0, 0, 0, 1, 0]
    words = np.concatenate([np.array(start), program.words, np.array([0, *batches, 0])])
    given, made = np.arange(8, dtype=np.float32).reshape(4, 2), np.zeros((4, 2), np.float32)
    run_arrays(words, addresses([given, made]))
    np.testing.assert_array_equal(made, 2 * given + 1)
    with pytest.raises(RuntimeError, match='other weights or arenas'):
        run_arrays(words, addresses([given]))
