"""Access to state of Gluon's parameters whose public functions raise if it is missing."""

from collections.abc import Iterator, Sequence
from typing import Optional

import mxnet as mx
from mxnet import gluon
from mxnet.ndarray import NDArray


def arrays_of(parameter: gluon.Parameter) -> Sequence[NDArray]:
    """Return a parameter's arrays, one for each context; none before it is initialised."""
    return parameter._data or ()


def contexts(block: gluon.Block) -> Iterator[list[mx.Context]]:
    """Yield the contexts of each initialised parameter of a block and its descendants."""
    for parameter in block.params.values():
        if parameter._data is not None or parameter._deferred_init:
            yield parameter.list_ctx()
    for child in block._children.values():
        yield from contexts(child)


def context_of(block: object) -> Optional[mx.Context]:
    """Return the context of a block's first parameter; None without one, or for other objects."""
    return next(contexts(block), [None])[0] if isinstance(block, gluon.Block) else None


def has_new_gradient(parameter: gluon.Parameter) -> bool:
    """Return whether backward has written a parameter's gradient since its last update."""
    return any(array._fresh_grad for array in arrays_of(parameter))


def note_new_gradient(parameter: gluon.Parameter) -> None:
    """Make the next update treat a parameter's gradient as new."""
    for array in arrays_of(parameter):
        array._fresh_grad = True
