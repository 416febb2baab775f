"""A control-flow graph over static networks, for any number of samples.

Each block takes values of some samples, computes others by a few steps, and passes them on. A value
is a tensor (equally many rows of an array for each sample) or a number (a float64, int64 or bool
for each sample). The graph is plain data: `program_interpreter` and hosts need nothing else.
"""

from typing import Any, NamedTuple, Union

import numpy as np

Shape = tuple[int, ...]


class TensorSpec(NamedTuple):
    """Shape and dtype of a tensor of one sample."""

    shape: Shape
    dtype: str


def spec_of_array(array: Any) -> TensorSpec:
    """Return the spec of an array of one sample."""
    return TensorSpec(tuple(array.shape), np.dtype(array.dtype).name)


class NumberSpec(NamedTuple):
    """Kind of a number of one sample: ``'float'``, ``'int'`` or ``'bool'``."""

    kind: str


Spec = Union[TensorSpec, NumberSpec]


class Network(NamedTuple):
    """A static network, which several places of a program may run with different parameters.

    `graph`, or a host's form of it, is for a batch: inputs are named ``edb_input0``, ...,
    parameters ``edb_parameter0``, .... `inputs` and `outputs` describe one sample. A `batched`
    network takes several samples, their rows one after the other; others take one at a time.
    """

    graph: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool
    operators: int


class RunNetwork(NamedTuple):
    """Run a network on tensors."""

    network: int
    parameters: tuple[int, ...]  # which of the program's
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class ReadNumber(NamedTuple):
    """Read the only element of a tensor as a number. `rivals` has the tensor whose largest elements
    were compared for it at the user's `line`, if known: if the two largest are nearly equal,
    rounding may have decided."""

    output: int
    input: int
    kind: str
    rivals: tuple[int, ...] = ()
    line: str = ''


class Calculate(NamedTuple):
    """Compute a number from other numbers; a constant operand is a tuple (value,)."""

    output: int
    op: str
    operands: tuple[Union[int, tuple[Any]], ...]
    line: str


class GiveTensor(NamedTuple):
    """Convert a number to a tensor of shape (1,)."""

    output: int
    input: Any  # a value; until a program is lowered, a constant, too
    dtype: str


class FillTensor(NamedTuple):
    """Give each sample one of the program's constant arrays."""

    output: int
    constant: Any  # its number; until a program is lowered, the array


Step = Union[RunNetwork, ReadNumber, Calculate, GiveTensor, FillTensor]


class Goto(NamedTuple):
    """Continue in a block and pass values to it; a constant number is a tuple (value,)."""

    block: int
    values: tuple[Union[int, tuple[Any]], ...]


class Choose(NamedTuple):
    """Continue in one of two blocks, by a bool of each sample."""

    condition: int
    then: Goto
    other: Goto
    line: str


class Finish(NamedTuple):
    """Return the result: a nested structure, `template`, with `values` at its leaves."""

    template: Any
    values: tuple[Union[int, tuple[Any]], ...]


End = Union[Goto, Choose, Finish]

# Fields of steps and ends that are values; a constant number is (value,) in their place.
READ_ONE, READ_MANY = ('input', 'condition'), ('inputs', 'operands', 'rivals', 'values')


class ProgramBlock(NamedTuple):
    """A block: it takes values 0, 1, ...; `name` is the user's line where it begins."""

    takes: tuple[Spec, ...]
    steps: list[Step]
    end: End
    name: str


class ProgramGraph(NamedTuple):
    """A whole program: block 0 is its entry, and earlier blocks have smaller numbers, except in
    loops. `arguments` is the template of a sample's arguments (see `subgraph.structure`)."""

    blocks: list[ProgramBlock]
    networks: list[Network]
    parameters: list[Any]
    constants: list[Any]
    arguments: Any


def gotos(end: End) -> list[Goto]:
    """Return the jumps at the end of a block: two for a choice, none if the program returns."""
    if isinstance(end, Choose):
        return [end.then, end.other]
    return [end] if isinstance(end, Goto) else []


def read_by(each: Any) -> list[int]:
    """Return the values that a step computes with, or that an end passes on or decides by."""
    places: list[Any] = []
    for name in each._fields:
        if name in ('then', 'other'):
            places += read_by(getattr(each, name))
        elif name in READ_ONE:
            places.append(getattr(each, name))
        elif name in READ_MANY:
            places += getattr(each, name)
    return [place for place in places if isinstance(place, int)]


def written_by(step: Any) -> tuple[int, ...]:
    """Return the values that a step computes."""
    return step.outputs if hasattr(step, 'outputs') else (step.output,)
