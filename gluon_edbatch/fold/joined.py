"""Join the results that were asked for in one list along their batch axis."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.short_repr import brief

from ..api.functional import concat, forward
from .handles import Handle

_EXACT = 2**24  # all integers up to it are exact in float32


def joined(items: Sequence[Any], values: Sequence[Any], ctx: Optional[mx.Context]) -> NDArray:
    """Join the results of one list to an array: `items` are handles, and `values` their values. A
    list of ints gives an index array. A new array goes to `ctx`."""
    if not items:
        raise RecordError('a list of results to compute is empty: there is nothing to put together')
    if all([type(item) is int for item in items]):
        return indices(items, ctx)
    handles = [item for item in items if isinstance(item, Handle)]
    if not all([handle.batch for handle in handles]):
        return _shared(items, values)
    axes = {handle.batch_axis for handle in handles} or {0}
    if len(axes) > 1:
        raise RecordError(
            f'results in one list have the batch axes {sorted(axes)}; ask for them '
            f'in lists of their own'
        )
    arrays = [_array(item, value, ctx) for item, value in zip(items, values)]
    return concat(arrays, dim=axes.pop())


def indices(numbers: Sequence[int], ctx: Optional[mx.Context]) -> NDArray:
    """Return (n,) float32, as ``mx.nd.array`` makes it of Python numbers."""
    for number in numbers:
        check_exact(number)
    return mx.nd.array(numbers, ctx=ctx)


def check_exact(number: int) -> None:
    """Raise if an index is not exact in float32."""
    if abs(number) > _EXACT:
        raise RecordError(
            f'the integer {number} is not exact in float32, the dtype of index '
            f'arrays that are made of Python numbers; give it as an array'
        )


def _shared(items: Sequence[Any], values: Sequence[Any]) -> NDArray:
    """Return the one value of a list of handles that are not batched."""
    if any(
        [
            not isinstance(item, Handle) or item.batch or value is not values[0]
            for item, value in zip(items, values)
        ]
    ):
        raise RecordError(
            f'{items[0]} and other results are in one list, and no_batch() was said '
            f'of some: such a list has one value only; ask for the others in lists '
            f'of their own'
        )
    return forward(_array(items[0], values[0], None))


def _array(item: Any, value: Any, ctx: Optional[mx.Context]) -> NDArray:
    if isinstance(value, NDArray):
        return value
    if isinstance(value, np.ndarray):
        return mx.nd.array(
            value, ctx=ctx, dtype=np.float32 if value.dtype == np.float64 else value.dtype
        )
    if isinstance(value, (list, tuple)):
        raise RecordError(
            f'{item} has {len(value)} results; ask for one of them, such as '
            f'handle[0], or handle.split({len(value)})'
        )
    raise RecordError(f'{item} is no array, but {type(value).__name__} {brief(value)}')
