"""What of Gluon's parameters is there, where asking in public is an error if it is not."""

from collections.abc import Iterator, Sequence
from typing import Optional

import mxnet as mx
from mxnet import gluon
from mxnet.ndarray import NDArray


def arrays_of(parameter: gluon.Parameter) -> Sequence[NDArray]:
    """Its arrays, one for each context; none before it is initialised."""
    return parameter._data or ()


def contexts(block: gluon.Block) -> Iterator[list[mx.Context]]:
    """Where each initialised parameter of a block and its descendants is."""
    for parameter in block.params.values():
        if parameter._data is not None or parameter._deferred_init:
            yield parameter.list_ctx()
    for child in block._children.values():
        yield from contexts(child)


def context_of(block: object) -> Optional[mx.Context]:
    """Where the first of a block's parameters is, if it has any, and is a block."""
    return next(contexts(block), [None])[0] if isinstance(block, gluon.Block) else None


def has_new_gradient(parameter: gluon.Parameter) -> bool:
    """Whether backward has written its gradient since it was last updated."""
    return any(array._fresh_grad for array in arrays_of(parameter))


def note_new_gradient(parameter: gluon.Parameter) -> None:
    """Have the next update take its gradient for new."""
    for array in arrays_of(parameter):
        array._fresh_grad = True
