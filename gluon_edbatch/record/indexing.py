"""What a key in brackets takes of an array."""

from typing import Any, List, NamedTuple, Optional, Tuple

EVERYTHING = slice(None)


class Index(NamedTuple):
    """What to take of an array.

    Attributes
    ----------
    axes : list of slice
        Of each axis.
    shape : tuple of int
        Of the result.
    contiguous : bool
        Whether it lies in one piece, so that eager Gluon gives a view of it.
    """

    axes: List[slice]
    shape: Tuple[int, ...]
    contiguous: bool


def is_position(axis: slice) -> bool:
    """Whether it takes one position, counted from the first."""
    begin = axis.start
    return type(begin) is int and begin >= 0 and axis.stop == begin + 1 and axis.step in (None, 1)


def basic_index(key: Any, shape: Tuple[int, ...]) -> Optional[Index]:
    """What a key of integers, slices, None and Ellipsis means; None for any other, and for those
    that NDArrays refuse, which are to say why."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if (
        any(
            each is not None and each is not Ellipsis and type(each) not in (int, slice)
            for each in keys
        )
        or keys.count(Ellipsis) > 1
    ):
        return None
    named = sum([each is not None and each is not Ellipsis for each in keys])
    if named > len(shape):
        return None
    if Ellipsis not in keys:
        keys.append(Ellipsis)
    place = keys.index(Ellipsis)
    keys[place : place + 1] = [slice(None)] * (len(shape) - named)
    axes: List[slice] = []
    result: List[int] = []
    several, contiguous = False, True  # whether an axis so far has several, and is not whole
    for each in keys:
        length = shape[len(axes)] if each is not None else 0
        if each is None:
            result.append(1)
        elif type(each) is int:
            if not -length <= each < length:
                return None
            axes.append(slice(each % length, each % length + 1))
            contiguous = contiguous and (not several or length == 1)
        else:
            axes.append(each)
            taken = range(*each.indices(length))
            result.append(len(taken))
            if len(taken) > 1:
                contiguous = (
                    contiguous and taken.step == 1 and not (several and len(taken) < length)
                )
                several = True
            else:
                contiguous = contiguous and not (several and length > 1)
    return Index(axes, tuple(result) or (1,), contiguous)
