"""The block IR: blocks while they are made and optimised, before operators form networks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union

import numpy as np

from gluon_edbatch_core.branching.program_graph import (
    READ_MANY,
    READ_ONE,
    Calculate,
    End,
    FillTensor,
    GiveTensor,
    ReadNumber,
    Spec,
    read_by,
    written_by,
)

from ..subgraph.ir import Subgraph

Place = Union[int, tuple[Any]]  # a value of the block, or a constant number


class Applied(NamedTuple):
    """A static graph applied to values of a block; its results are values, too. Inputs are named as
    in `subgraph.trace`."""

    graph: Subgraph
    parameters: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


Made = Union[Applied, ReadNumber, Calculate, GiveTensor, FillTensor]


class IRBlock(NamedTuple):
    """A block: it takes values 0, 1, ..., and makes those after them. `specs` are of all its
    values, and `name` is the user's line where it begins."""

    takes: int
    specs: tuple[Spec, ...]
    made: tuple[Made, ...]
    end: End
    name: str


IRBlocks = list[IRBlock]


def renamed(each: Any, names: Mapping[int, Place]) -> Any:
    """Return a step or end that reads other values, or constant numbers, in place of some."""

    def new(place: Any) -> Any:
        return names.get(place, place) if isinstance(place, int) else place

    fields: dict[str, Any] = {}
    for name in each._fields:
        value = getattr(each, name)
        if name in ('then', 'other'):
            fields[name] = renamed(value, names)
        elif name in (*READ_ONE, 'output'):
            fields[name] = new(value)
        elif name in (*READ_MANY, 'outputs'):
            fields[name] = tuple(map(new, value))
    return each._replace(**fields)


def exact_array(array: np.ndarray) -> Any:
    """Return a key that is equal for equal arrays of one dtype only."""
    return array.dtype, array.shape, array.tobytes()


def needed(made: Sequence[Made], places: Iterable[int]) -> tuple[Made, ...]:
    """Return the steps that some values need, in order, and all indexing, which may raise
    errors."""
    wanted, kept = set(places), []
    for each in reversed(made):
        is_index = isinstance(each, Calculate) and each.op == 'index'
        if is_index or not wanted.isdisjoint(written_by(each)):
            kept.append(each)
            wanted.update(read_by(each))
    return tuple(reversed(kept))
