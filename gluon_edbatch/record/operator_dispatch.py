"""Record operators of ``mx.nd`` in a scope where they read, or write to, its values."""

from functools import cache
from typing import Any, Callable

from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import UnrecordableError

from ..mx.invoke import invoke, operator_name
from ..mx.numpy_compat import attribute_text
from .lazy import VALUES, LazyArray, writing_refused
from .scopes import current_recording

# What writes to some elements of an array, and gives no other one.
_IN_PLACE = (
    '_scatter_set_nd',
    '_npi_boolean_mask_assign_scalar',
    '_npi_boolean_mask_assign_tensor',
)


def operator_called(self, handle, ndargs, keys, vals, out, is_np_op, output_is_list):
    """Run an operator and return its result; record it if one of the arrays is a lazy value."""
    if out is not None:
        for array in listed(out):
            if isinstance(array, LazyArray):
                return _invoke_into(handle, ndargs, keys, vals, out, is_np_op, output_is_list)
    else:
        for array in ndargs:
            if isinstance(array, LazyArray):
                record = _recorder(handle, is_np_op, output_is_list)
                try:
                    return self.operation(record, tuple(ndargs), dict(zip(keys, vals)))
                except UnrecordableError:
                    break
    return invoke(handle, ndargs, keys, vals, out, is_np_op, output_is_list)


@cache
def _recorder(handle, is_np_op, output_is_list) -> Callable[..., Any]:
    """Return a function that records an operator's first call with such arguments."""

    def record(*ndargs, **attrs):
        recording = current_recording()
        if recording.runs_now(ndargs):
            keys, vals = list(attrs), list(attrs.values())
            return invoke(handle, ndargs, keys, vals, None, is_np_op, output_is_list)
        named = tuple([(key, attribute_text(value)) for key, value in attrs.items()])
        result = recording.operator(operator_name(handle), named, ndargs)
        return [result] if output_is_list and isinstance(result, NDArray) else result

    return record


def _invoke_into(handle, ndargs, keys, vals, out, is_np_op, output_is_list):
    """Run or record an operator that writes its results to lazy values."""
    for array in listed(out):
        if isinstance(array, LazyArray):
            array.prepare_writing(ndargs)
    kind = out.__class__  # another once it is settled, as by an operator that runs
    if kind in VALUES:
        value = _result_as_value(handle, ndargs, keys, vals, is_np_op)
        if value.__class__ is kind and value._store is out._store:
            out.become(value)
            return out
    for array in listed(out):
        if isinstance(array, LazyArray):
            array.settled()
    try:
        return invoke(handle, ndargs, keys, vals, out, is_np_op, output_is_list)
    except MXNetError as error:
        raise writing_refused(error) from None


def _result_as_value(handle, ndargs, keys, vals, is_np_op) -> Any:
    """Return an operator's result as a lazy value of the scope; None if it only writes."""
    name, recording = operator_name(handle), current_recording()
    if name == '_copyto':
        return recording.operator('_copy', (), ndargs)
    if name in _IN_PLACE:
        return None
    try:
        result = recording.operator_called(handle, ndargs, keys, vals, None, is_np_op, False)
    except MXNetError:  # as it does not know the shape, or for a reason that it will give again
        return None
    if isinstance(result, NDArray) and not isinstance(result, LazyArray):
        return recording.operator('_copy', (), [result])
    return result


def listed(arrays) -> Any:
    """Return one array as a tuple; several arrays as they are."""
    return (arrays,) if isinstance(arrays, NDArray) else arrays
