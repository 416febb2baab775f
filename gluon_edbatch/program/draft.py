"""Blocks as they are made and optimised: before operators are put together to networks."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Union

from ..branching.graph import Calculate, Choose, End, FillTensor, GiveTensor, Goto, ReadNumber, Spec
from ..subgraph.ir import Subgraph

Place = Union[int, tuple[Any]]  # a value of the block, or a constant number


class Applied(NamedTuple):
    """A static graph on values of a block; its results are values of it, too.

    Attributes
    ----------
    graph : Subgraph
        Inputs are named as in `subgraph.trace`.
    parameters : dict of str to Parameter
    inputs, outputs : tuple of int
    """

    graph: Subgraph
    parameters: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


Made = Union[Applied, ReadNumber, Calculate, GiveTensor, FillTensor]


class Draft(NamedTuple):
    """A block: values 0, 1, ... are what it takes, and those after them are made in it.

    Attributes
    ----------
    takes : int
        How many values it takes.
    specs : tuple of Spec
        Of all its values.
    made : tuple of Made
    end : Goto, Choose or Finish
    name : str
        The line of the user's where it begins.
    """

    takes: int
    specs: tuple[Spec, ...]
    made: tuple[Made, ...]
    end: End
    name: str


def read_by(made: Made) -> list[int]:
    """Values that something is made of."""
    if isinstance(made, Applied):
        return list(made.inputs)
    if isinstance(made, Calculate):
        return [place for place in made.operands if isinstance(place, int)]
    if isinstance(made, ReadNumber):
        return [made.input, *made.rivals]
    return [made.input] if isinstance(made, GiveTensor) and isinstance(made.input, int) else []


def written_by(made: Made) -> tuple[int, ...]:
    """Values that are made."""
    return made.outputs if isinstance(made, Applied) else (made.output,)


def read_by_end(end: End) -> list[int]:
    """Values that go on, or decide."""
    if isinstance(end, Choose):
        places: Sequence[Place] = [end.condition, *end.then.values, *end.other.values]
    else:
        places = end.values
    return [place for place in places if isinstance(place, int)]


def renamed(made: Made, names: dict[int, int]) -> Made:
    """The same on other values."""

    def new(place: Any) -> Any:
        return names.get(place, place) if isinstance(place, int) else place

    if isinstance(made, Applied):
        inputs, outputs = tuple(map(new, made.inputs)), tuple(map(new, made.outputs))
        return made._replace(inputs=inputs, outputs=outputs)
    if isinstance(made, Calculate):
        return made._replace(output=new(made.output), operands=tuple(map(new, made.operands)))
    if isinstance(made, FillTensor):
        return made._replace(output=new(made.output))
    if isinstance(made, ReadNumber):
        made = made._replace(rivals=tuple(map(new, made.rivals)))
    return made._replace(output=new(made.output), input=new(made.input))


def renamed_end(end: End, names: dict[int, Place]) -> End:
    """The same with other values."""

    def new(place: Any) -> Any:
        return names.get(place, place) if isinstance(place, int) else place

    def goto(to: Goto) -> Goto:
        return to._replace(values=tuple(map(new, to.values)))

    if isinstance(end, Choose):
        return end._replace(
            condition=new(end.condition), then=goto(end.then), other=goto(end.other)
        )
    return end._replace(values=tuple(map(new, end.values)))


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
