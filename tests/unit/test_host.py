"""Arrays written from the host without the engine."""

import mxnet as mx
import numpy as np
import pytest

from gluon_edbatch.mx.host import allocated, upload, write_new
from tests.support.cases import in_one_test


@in_one_test('dtype', ['float16', 'float32', 'float64', 'int32', 'int64', 'uint8'])
@in_one_test('shape', [(1,), (7,), (5, 3), (2, 3, 4)])
def test_values_arrive(dtype, shape):
    values = np.random.randint(0, 100, size=shape).astype(dtype)
    array = upload(values, mx.cpu())
    assert array.dtype == values.dtype and array.shape == shape
    np.testing.assert_array_equal(array.asnumpy(), values)
    values += 1
    assert (array.asnumpy() != values).any()  # it is a copy
    np.testing.assert_array_equal((array + array).asnumpy(), 2 * (values - 1))


def test_rows_one_after_the_other():
    array, values = allocated((6, 2), 'float32', mx.cpu()), np.arange(12.0).reshape(6, 2)
    write_new(array, 4, values[4:])
    write_new(array, 0, values[:1])
    write_new(array, 1, np.asfortranarray(values[1:4]))  # another dtype and order
    np.testing.assert_array_equal(array.asnumpy(), values)


@pytest.mark.parametrize(
    'begin, shape', [(5, (2, 2)), (-1, (1, 2)), (0, (7, 2)), (0, (1, 3)), (0, (2,))]
)
def test_rows_that_do_not_fit(begin, shape):
    with pytest.raises(ValueError, match='do not fit into'):
        write_new(allocated((6, 2), 'float32', mx.cpu()), begin, np.zeros(shape))


def test_beside_work_of_the_engine():
    """Memory that is given back while operators that read it wait is not written too early."""
    weight, results = mx.nd.ones((64, 64)), []
    for number in range(300):
        values = upload(np.full((32, 64), number, np.float32), mx.cpu())
        results.append(mx.nd.FullyConnected(values, weight, no_bias=True, num_hidden=64))
        del values
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.asnumpy(), np.full((32, 64), 64.0 * number))
