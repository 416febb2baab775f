"""What is called in the place of a noted op, so that its calls can be batched."""
from typing import Any, Callable

import mxnet as mx
from mxnet.ndarray import NDArray

from .. import nd
from .handles import Call


def batchable(call: Call) -> Callable:
    """The op of a call, in a form that a scope records.

    An operator of ``mx.nd`` is recorded only if one of its arguments is a lazy value; as
    ``edb.nd`` has it, it is with the user's arrays, too.
    """
    op = call.op
    name = getattr(op, '__name__', '')
    if getattr(mx.nd.op, name, None) is op:
        recorded = getattr(nd, name)

        def operator(*args: Any) -> Any:
            return recorded(*args) if all(map(_is_dense, args)) else op(*args)
        return operator
    return op


def _is_dense(arg: Any) -> bool:
    return not isinstance(arg, NDArray) or arg.stype == 'default'
