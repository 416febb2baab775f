"""Planning and running take time in proportion to calls and batches, for any number of types."""

import sys
from pathlib import Path

import numpy as np
import pytest

import gluon_edbatch as edb

_PACKAGE = Path(edb.__file__).parent
_STAGES = tuple(str(_PACKAGE / name) for name in ('graph', 'schedule', 'plan', 'execute'))


# No number of types twice: plans of equal calls are used again.
@pytest.fixture(params=[[100, 1000], pytest.param([900, 9000], marks=pytest.mark.slow)])
def sizes(request):
    return request.param


@pytest.mark.parametrize('scheduler', ['fsm', 'unbatched'])
@pytest.mark.parametrize('way', ['native', 'mxnet', 'in turns'])
def test_work_grows_with_the_number_of_types(sizes, way, scheduler):
    small, large = (_work(count, way, scheduler) for count in sizes)
    assert large / sizes[1] <= 1.1 * small / sizes[0]


def _work(types, way, scheduler):
    """Lines of Python that an evaluation of calls of so many types runs.

    The line of a comprehension counts once for each of its items.
    """
    with edb.compile_options(native=way != 'mxnet'), edb.batching(scheduler) as scope:
        values = []
        for width in range(1, types // 2 + 1):
            value = edb.nd.relu(np.ones((1, width), np.float32))
            if way == 'in turns':  # no native operator knows it
                value = edb.nd.cumsum(value, axis=1)
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
