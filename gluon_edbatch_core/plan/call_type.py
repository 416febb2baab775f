"""What planning asks of a batch signature: its arguments, and the parts that it may be split in."""

from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Optional


class Kind(Enum):
    """How values form the rows of an argument."""

    ROWS = 'rows'  # one value
    RAGGED = 'ragged'  # any number of values of one spec, stacked along axis 1
    PACKED = 'packed'  # one value (1, K, ...), of which each position of axis 1 is a row
    FLAT = 'flat'  # one or more values with the same shape of rows, one after the other

    @property
    def counted(self) -> bool:
        """Whether each call tells how many values the argument has."""
        return self in (Kind.RAGGED, Kind.FLAT)


class Argument(NamedTuple):
    """An array argument of a batch signature."""

    arena: Any  # the key of the arena where its rows live
    kind: Kind
    # False if the subgraph uses it as an index only, or if it is of an integer type or was a number
    # among an operator's attributes
    differentiable: bool
    rows: int = 1  # how many it has per row of the call; 1 but for types of whole values


class CallType:
    """A batch signature, as far as planning knows it.

    Attributes
    ----------
    arguments : sequence of Argument
    outputs : sequence
        Of a call with one row each: `arena`, the key of the arena where its rows live, and `rows`.
    factors : sequence of int
        Rows of each output per row of the arguments.
    serial : int
        Its number among all types; that of the whole for a part.
    alone : bool
        Whether calls run one by one.
    whole : bool
        Whether a call counts as one row, whatever its arguments' rows.
    random : bool
        Whether it may draw random numbers.
    masked
        What computes padded arguments if zeros alone would change results; else None.
    has_one_length : bool
        Whether all ragged arguments of a call have one length.
    is_taped : bool
        Whether autograd records its calls.
    """

    arguments: Sequence[Argument]
    outputs: Sequence[Any]
    factors: Sequence[int]

    @cached_property
    def of_many(self) -> int:
        """Number of arguments that have any number of values."""
        return sum([argument.kind.counted for argument in self.arguments])

    @cached_property
    def places(self) -> list[int]:
        """Position of each argument among a call's arguments; -1 - k for the k-th counted one."""
        places, fixed, counted = [], 0, -1
        for argument in self.arguments:
            if argument.kind.counted:
                places.append(counted)
                counted -= 1
            else:
                places.append(fixed)
                fixed += 1
        return places

    @cached_property
    def ragged(self) -> list[int]:
        """Positions of the ragged arguments."""
        return [
            position
            for position, argument in enumerate(self.arguments)
            if argument.kind in (Kind.RAGGED, Kind.PACKED)
        ]


class Split(NamedTuple):
    """The two types that a type is split into."""

    positions: tuple[int, ...]  # the arguments that `early` takes
    # its outputs are what `late` needs of it; or ids, one for each look-up, in the table that
    # ``early.tables`` has there
    early: Any
    found: tuple[Any, ...]  # what `late` gets, as `CallType.outputs`
    # Takes the arguments of the whole, and what was found after them. None if that is what the
    # whole returns, in this order.
    late: Optional[Any]
