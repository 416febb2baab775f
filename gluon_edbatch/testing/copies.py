"""Copy a model and its samples to float64, or with other last bits, to see what rounding can do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable

import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from ..mx.arrays import new_array
from ..subgraph.structure import flatten, unflatten

Copy = Callable[[NDArray], NDArray]


def in_float64(array: NDArray) -> NDArray:
    """Return a copy of an array in float64."""
    return array.astype('float64')


def nudged(seed: int) -> Copy:
    """Return a function that copies arrays and changes the last bit of half of the numbers."""
    generator = np.random.RandomState(seed)

    def copy(array: NDArray) -> NDArray:
        values = array.asnumpy()
        steps = np.nextafter(
            values,
            np.where(generator.rand(*values.shape) < 0.5, values, np.inf).astype(values.dtype),
        )
        made = new_array(steps, array.ctx, array.dtype)
        return made if array.stype == 'default' else made.tostype(array.stype)

    return copy


def parameters_of(blocks: Sequence[gluon.Block]) -> list[gluon.Parameter]:
    """Return the parameters of some blocks, each once."""
    return unique([one for block in blocks for one in block.collect_params().values()])


def unique(items: Sequence[Any]) -> list[Any]:
    """Return the objects, each once."""
    return list({id(item): item for item in items}.values())


@contextmanager
def other_parameters(blocks: Sequence[gluon.Block], copy: Copy) -> Iterator[None]:
    """Replace the parameters of some blocks by copies with their own gradients inside the ``with``.
    All of a parameter is restored afterwards: its arrays stay the same."""
    before: list[tuple[gluon.Parameter, dict[str, Any]]] = []
    try:
        for parameter in parameters_of(blocks):
            if parameter._data is not None and _is_floating(parameter):
                before.append((parameter, dict(parameter.__dict__)))
                # As `Parameter.cast` does.
                parameter._data = list(map(copy, parameter._data))
                parameter.dtype, parameter._var = parameter._data[0].dtype, None
                if parameter.grad_req != 'null':
                    parameter._init_grad()
        yield
    finally:
        for parameter, attributes in before:
            parameter.__dict__.clear()
            parameter.__dict__.update(attributes)


def other_samples(value: Any, copy: Copy, copies: dict[int, NDArray]) -> Any:
    """Copy the floating-point arrays in nested lists, tuples and dicts.

    Copies of NDArrays are added to `copies`, by the ids of the originals."""
    leaves: list[Any] = []
    template = flatten(value, object, leaves)
    return unflatten(template, iter([_copied(leaf, copy, copies) for leaf in leaves]))


def _copied(value: Any, copy: Copy, copies: dict[int, NDArray]) -> Any:
    if isinstance(value, NDArray) and _is_floating(value):
        if id(value) not in copies:
            copies[id(value)] = copy(value.detach())
            if value.grad is not None:
                copies[id(value)].attach_grad()
        return copies[id(value)]
    if isinstance(value, np.ndarray) and _is_floating(value):
        dtype = np.float32 if value.dtype == np.float64 else value.dtype
        return copy(new_array(value, None, dtype))
    return value


def _is_floating(array: Any) -> bool:
    return np.issubdtype(array.dtype, np.floating)
