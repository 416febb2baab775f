"""A second device on machines without a GPU.

``cpu(1)`` is the same processor, but MXNet separates its arrays from those of ``cpu(0)``, the
default. Code that makes an array without a device makes it on another device than all the rest, as
it would beside a GPU. Most operators then go on silently, so tests look for such arrays.
"""

import contextlib
import sys
import traceback
from collections.abc import Iterator
from unittest import mock

import mxnet as mx
from mxnet._ctypes.ndarray import NDArrayBase

from gluon_edbatch.mx import custom_function
from gluon_edbatch.mx.ndarray_memory import node_offset

OTHER = mx.cpu(1)


@contextlib.contextmanager
def all_arrays_on(ctx: mx.Context) -> Iterator[None]:
    """Assert that every array that any thread gets inside the ``with`` is on this context."""
    assert mx.current_context() != ctx, 'or nothing would be noticed'
    node_offset()  # looks at two arrays of the host, once a process
    elsewhere, initialise = [], NDArrayBase.__init__

    def watched(array, handle, writable=True):
        initialise(array, handle, writable)
        if handle is not None and array.ctx != ctx and not _is_handed_to_backward():
            elsewhere.append((array.ctx, ''.join(traceback.format_stack(limit=12)[:-1])))

    with mock.patch.object(NDArrayBase, '__init__', watched):
        yield
        mx.nd.waitall()  # backward passes run in threads of the engine
    assert not elsewhere, (
        f'{len(elsewhere)} arrays on {elsewhere[0][0]}, the first made by\n{elsewhere[0][1]}'
    )


def _is_handed_to_backward() -> bool:
    """Return whether MXNet made the array for a custom function's backward pass. It wraps that
    memory as arrays of ``cpu(0)``, whatever device it is on."""
    caller = sys._getframe(2)
    callers = caller, caller.f_back  # a comprehension has a frame of its own before Python 3.12
    return any(each and each.f_code.co_filename == custom_function.__file__ for each in callers)
