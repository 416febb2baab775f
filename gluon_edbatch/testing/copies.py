"""Copy a model and its samples to float64, to see what rounding can do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from ..mx.arrays import new_array
from ..subgraph.structure import flatten, unflatten


def parameters_of(blocks: Sequence[gluon.Block]) -> list[gluon.Parameter]:
    """Return the parameters of some blocks, each once."""
    return unique([one for block in blocks for one in block.collect_params().values()])


def unique(items: Sequence[Any]) -> list[Any]:
    """Return the objects, each once."""
    return list({id(item): item for item in items}.values())


@contextmanager
def parameters_in_float64(blocks: Sequence[gluon.Block]) -> Iterator[None]:
    """Replace the parameters of some blocks by float64 copies, with their own gradients, inside the
    ``with``. All of a parameter is restored afterwards: its arrays stay the same."""
    before: list[tuple[gluon.Parameter, dict[str, Any]]] = []
    try:
        for parameter in parameters_of(blocks):
            if parameter._data is not None and _is_floating(parameter):
                before.append((parameter, dict(parameter.__dict__)))
                # As `Parameter.cast` does.
                parameter._data = [array.astype('float64') for array in parameter._data]
                parameter.dtype, parameter._var = np.float64, None
                if parameter.grad_req != 'null':
                    parameter._init_grad()
        yield
    finally:
        for parameter, attributes in before:
            parameter.__dict__.clear()
            parameter.__dict__.update(attributes)


def samples_in_float64(value: Any, copies: dict[int, NDArray]) -> Any:
    """Copy the floating-point arrays in nested lists, tuples and dicts to float64.

    Copies of NDArrays are added to `copies`, by the ids of the originals."""
    leaves: list[Any] = []
    template = flatten(value, object, leaves)
    return unflatten(template, iter([_copied(leaf, copies) for leaf in leaves]))


def _copied(value: Any, copies: dict[int, NDArray]) -> Any:
    if isinstance(value, NDArray) and _is_floating(value):
        if id(value) not in copies:
            copies[id(value)] = value.detach().astype('float64')
            if value.grad is not None:
                copies[id(value)].attach_grad()
        return copies[id(value)]
    if isinstance(value, np.ndarray) and _is_floating(value):
        dtype = np.float32 if value.dtype == np.float64 else value.dtype
        return new_array(value, None, dtype).astype('float64')
    return value


def _is_floating(array: Any) -> bool:
    return np.issubdtype(array.dtype, np.floating)
