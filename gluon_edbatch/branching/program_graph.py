"""A control-flow graph over static networks, for any number of samples.

Each block takes values of some samples, computes others by a few steps, and hands them on. A value
is a tensor (rows of an array, so many for each sample) or a number (one for each sample, in float64
or int64, or a bool). All of it is data: `program_interpreter` and hosts need nothing else.
"""

from typing import Any, NamedTuple, Union

Shape = tuple[int, ...]


class TensorSpec(NamedTuple):
    """A tensor of one sample."""

    shape: Shape
    dtype: str


class NumberSpec(NamedTuple):
    """A number of one sample: ``'float'``, ``'int'`` or ``'bool'``."""

    kind: str


Spec = Union[TensorSpec, NumberSpec]


class Network(NamedTuple):
    """A static network, which several places of a program may run with parameters of their own.

    `graph`, or what a host has in its place, is of a batch: inputs are named ``edb_input0``, ...,
    parameters ``edb_parameter0``, ...; `inputs` and `outputs` are of one sample. If it is `batched`
    it takes several samples, their rows one after the other; otherwise one at a time.
    """

    graph: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool
    operators: int


class RunNetwork(NamedTuple):
    """A network on tensors."""

    network: int
    parameters: tuple[int, ...]  # which of the program's
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class ReadNumber(NamedTuple):
    """The only element of a tensor, as a number. `rivals` has the tensor of which the largest
    elements were compared for it at the user's `line`, if that is known: where the two largest are
    as good as equal, rounding may have decided."""

    output: int
    input: int
    kind: str
    rivals: tuple[int, ...] = ()
    line: str = ''


class Calculate(NamedTuple):
    """A number of numbers; constants are (value,)."""

    output: int
    op: str
    operands: tuple[Union[int, tuple[Any]], ...]
    line: str


class GiveTensor(NamedTuple):
    """A number as a tensor of shape (1,)."""

    output: int
    input: Any  # a value; until a program is lowered, a constant, too
    dtype: str


class FillTensor(NamedTuple):
    """A constant array, for each sample; one of the program's."""

    output: int
    constant: int


Step = Union[RunNetwork, ReadNumber, Calculate, GiveTensor, FillTensor]


class Goto(NamedTuple):
    """On to a block, with values for what it takes; a constant number is (value,)."""

    block: int
    values: tuple[Union[int, tuple[Any]], ...]


class Choose(NamedTuple):
    """To one of two blocks, by a bool of each sample."""

    condition: int
    then: Goto
    other: Goto
    line: str


class Finish(NamedTuple):
    """The result, a nested structure: a number of `values` stands at each leaf."""

    template: Any
    values: tuple[Union[int, tuple[Any]], ...]


End = Union[Goto, Choose, Finish]

# Fields of steps and ends that are values; a constant number is (value,) in their place.
READ_ONE, READ_MANY = ('input', 'condition'), ('inputs', 'operands', 'rivals', 'values')


class ProgramBlock(NamedTuple):
    """Values 0, 1, ... are what it takes; `name` is the user's line where it begins."""

    takes: tuple[Spec, ...]
    steps: list[Step]
    end: End
    name: str


class ProgramGraph(NamedTuple):
    """A whole program: block 0 is its entry, and what comes first has the smaller number, but for
    loops. `arguments` is the template of a sample's arguments (see `subgraph.structure`)."""

    blocks: list[ProgramBlock]
    networks: list[Network]
    parameters: list[Any]
    constants: list[Any]
    arguments: Any


def gotos(end: End) -> list[Goto]:
    """Where an end leads."""
    if isinstance(end, Choose):
        return [end.then, end.other]
    return [end] if isinstance(end, Goto) else []


def read_by(each: Any) -> list[int]:
    """Values that a step computes with, or that an end hands on or decides by."""
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
    """Values that are computed."""
    return step.outputs if hasattr(step, 'outputs') else (step.output,)
