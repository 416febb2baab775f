"""Planning and running take time in proportion to calls and batches, for any number of types."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import gluon_edbatch as edb

_PACKAGE = Path(edb.__file__).parent
_STAGES = tuple(str(_PACKAGE / name) for name in ('graph', 'schedule', 'plan', 'execute'))


# Types that other cases made, and what was learned of them, would count for one size only: each
# case has shapes of its own.
SHAPES = [(1, -1), (1, -1, 1), (1, 1, -1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
CASES = list(itertools.product(['native', 'mxnet', 'in turns'], ['fsm', 'unbatched']))


@pytest.fixture(params=[[100, 500], pytest.param([1000, 10000], marks=pytest.mark.slow)])
def sizes(request):
    return request.param


@pytest.mark.parametrize(('case', 'shape'), list(zip(CASES, SHAPES)))
def test_work_grows_with_the_number_of_types(sizes, case, shape):
    first = 1 if sizes[0] == 100 else 501
    small, large = (_work(count, first, shape, *case) for count in sizes)
    assert large / sizes[1] <= 1.1 * small / sizes[0]


def _work(types, first, shape, way, scheduler):
    """Lines of Python that an evaluation of calls of so many types runs.

    The line of a comprehension counts once for each of its items.
    """
    chosen = edb.FSMScheduler() if scheduler == 'fsm' else scheduler
    with edb.compile_options(native=way != 'mxnet'), edb.batching(chosen) as scope:
        values = []
        for width in range(first, first + types // 2):
            value = edb.nd.relu(np.ones(width, np.float32).reshape(shape))
            if way == 'in turns':  # no native operator knows it
                value = edb.nd.cumsum(value, axis=len(shape) - 1)
            values.append(edb.nd.tanh(value))
    lines = 0

    def count(frame, event, arg):
        nonlocal lines
        lines += event == 'line'
        return count

    def begin(frame, event, arg):
        return count if frame.f_code.co_filename.startswith(_STAGES) else None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        edb.forward(values)
    finally:
        sys.settrace(before)
    assert scope.report().batches >= types
    return lines
