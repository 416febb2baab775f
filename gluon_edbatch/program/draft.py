"""Blocks as they are made and optimised: before operators are put together to networks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union

from ..branching.program_graph import (
    Calculate,
    Choose,
    End,
    FillTensor,
    GiveTensor,
    Goto,
    ReadNumber,
    Spec,
    read_by,
    written_by,
)
from ..subgraph.ir import Subgraph

Place = Union[int, tuple[Any]]  # a value of the block, or a constant number


class Applied(NamedTuple):
    """A static graph on values of a block, whose results are values of it, too. Inputs are named as
    in `subgraph.trace`."""

    graph: Subgraph
    parameters: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


Made = Union[Applied, ReadNumber, Calculate, GiveTensor, FillTensor]


class Draft(NamedTuple):
    """A block: values 0, 1, ... are what it takes, and those after them are made in it. `specs` are
    of all its values, and `name` is the user's line where it begins."""

    takes: int
    specs: tuple[Spec, ...]
    made: tuple[Made, ...]
    end: End
    name: str


def renamed(made: Made, names: Mapping[int, Place]) -> Made:
    """A step that reads and writes other values, or reads constants in the place of numbers."""
    new = _Renaming(names)
    if isinstance(made, Applied):
        return made._replace(inputs=new.all(made.inputs), outputs=new.all(made.outputs))
    made = made._replace(output=new.one(made.output))
    if isinstance(made, Calculate):
        return made._replace(operands=new.all(made.operands))
    if isinstance(made, ReadNumber):
        made = made._replace(rivals=new.all(made.rivals))
    return made if isinstance(made, FillTensor) else made._replace(input=new.one(made.input))


def renamed_end(end: End, names: Mapping[int, Place]) -> End:
    """An end of a block that reads other values."""
    new = _Renaming(names)
    if isinstance(end, Choose):
        then, other = new.goto(end.then), new.goto(end.other)
        return end._replace(condition=new.one(end.condition), then=then, other=other)
    return end._replace(values=new.all(end.values))


class _Renaming:
    def __init__(self, names: Mapping[int, Place]):
        self._names = names

    def one(self, place: Any) -> Any:
        return self._names.get(place, place) if isinstance(place, int) else place

    def all(self, places: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(map(self.one, places))

    def goto(self, to: Goto) -> Goto:
        return to._replace(values=self.all(to.values))


def needed(made: Sequence[Made], places: Iterable[int]) -> tuple[Made, ...]:
    """What some values are made of, in the same order."""
    wanted, kept = set(places), []
    for each in reversed(made):
        if is_needed(each, wanted):
            kept.append(each)
            wanted.update(read_by(each))
    return tuple(reversed(kept))


def is_needed(made: Made, wanted: set[int]) -> bool:
    """Whether some of the wanted values are made, or an index is looked at that may be an error."""
    is_index = isinstance(made, Calculate) and made.op == 'index'
    return is_index or not wanted.isdisjoint(written_by(made))


def graph_key(graph: Subgraph) -> Any:
    """The same for graphs that are equal but for the names of operators."""
    nodes = tuple(
        [
            (
                node.op,
                node.is_variable and node.name,
                tuple(sorted(node.attrs.items())),
                node.inputs,
                tuple([str(body.json) for body in node.bodies]),
            )
            for node in graph.nodes
        ]
    )
    return nodes, graph.heads
