"""Find out what a key in brackets takes of an array."""

from functools import lru_cache, partial
from typing import Any, NamedTuple, Optional

import mxnet as mx

from ..ops.numbers import WIDEST

_EVERYTHING = slice(None)
_PLAIN = frozenset((int, type(None)))
_OTHER = object()


class Index(NamedTuple):
    """Describe what a key takes of an array."""

    take: Optional['partial[Any]']  # takes it of a value; None if that is all
    axis: Optional[int]  # where it is a narrow range of one axis
    position: Optional[int]  # there: the first one, a number, which may vary
    width: int  # there: how many
    shape: tuple[int, ...]  # of the result; () for a single element
    contiguous: bool  # whether it lies in one piece, so that eager Gluon gives a view of it


def known_index(key: Any, shape: tuple[int, ...]) -> Optional[Index]:
    """Return what a key means; a cache for keys of plain integers in front of `basic_index`."""
    parts = []
    for each in key if type(key) is tuple else (key,):
        part = _part(each)
        if part is _OTHER:
            return basic_index(key, shape)
        parts.append(part)
    return _index_of(tuple(parts), shape)


def _part(each: Any) -> Any:
    """Return a hashable part of a key, a tuple for a slice."""
    kind = type(each)
    if kind is slice:
        start, stop, step = limits = each.start, each.stop, each.step
        plain = type(start) in _PLAIN and type(stop) in _PLAIN and type(step) in _PLAIN
        return limits if plain else _OTHER
    return each if kind in _PLAIN or each is Ellipsis else _OTHER


@lru_cache(maxsize=4096)
def _index_of(parts: tuple[Any, ...], shape: tuple[int, ...]) -> Optional[Index]:
    return basic_index(
        tuple([slice(*part) if type(part) is tuple else part for part in parts]), shape
    )


def _narrow(axis: slice, length: int) -> int:
    """Return how many positions a slice takes that names its first and last one; 0 for others, and
    for wide ones."""
    begin, end = axis.start, axis.stop
    if type(begin) is not int or type(end) is not int or axis.step not in (None, 1):
        return 0
    return end - begin if 0 <= begin < end <= min(length, begin + WIDEST) else 0


def _within(limit: Optional[int], length: int) -> Optional[int]:
    """Return a slice's limit; None if it lies before the first position, which MXNet may refuse."""
    return None if limit is not None and limit < -length else limit


def basic_index(key: Any, shape: tuple[int, ...]) -> Optional[Index]:
    """Return what a key of integers, slices, None and Ellipsis means. None for other keys, and for
    those that NDArrays refuse: MXNet then raises its own error."""
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
    axes: list[slice] = []
    result: list[int] = []
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
            start, stop = _within(each.start, length), _within(each.stop, length)
            taken = range(*each.indices(length))
            if start is not None and start < 0 and stop is None and taken.step == 1:
                start, stop = taken.start, taken.stop  # so many of the last ones
            whole = taken == range(length)
            axes.append(_EVERYTHING if whole else slice(start, stop, each.step))
            result.append(len(taken))
            if len(taken) > 1:
                contiguous = (
                    contiguous and taken.step == 1 and not (several and len(taken) < length)
                )
                several = True
            else:
                contiguous = contiguous and not (several and length > 1)
    take = None
    if any([axis != _EVERYTHING for axis in axes]):
        take = partial(
            mx.nd.slice,
            begin=tuple([axis.start for axis in axes]),
            end=tuple([axis.stop for axis in axes]),
            step=tuple([axis.step for axis in axes]),
        )
    cut = [i for i, axis in enumerate(axes) if shape[i] > 1 and axis != _EVERYTHING]
    width = _narrow(axes[cut[0]], shape[cut[0]]) if len(cut) == 1 else 0
    if width:
        return Index(take, cut[0], axes[cut[0]].start, width, tuple(result), contiguous)
    return Index(take, None, None, 0, tuple(result), contiguous)
