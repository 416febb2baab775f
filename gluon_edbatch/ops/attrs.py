"""Attributes of operators: MXNet's text, parsed to values."""

from ctypes import c_float
from typing import Any, Optional, Union

Shape = tuple[int, ...]
MaybeNone = Union[int, Any]  # None where an operator of MXNet allows it, which its rule knows


def unlike(one: Shape, other: Shape) -> list[int]:
    """Return the axes in which two shapes differ."""
    return [axis for axis, sizes in enumerate(zip(one, other)) if sizes[0] != sizes[1]]


class Attrs(dict[str, str]):
    """Attributes of a node: MXNet's text, parsed to values."""

    def flag(self, name: str, default: bool = False) -> bool:
        """Return whether an attribute is true."""
        text = self.get(name)
        return default if text is None else text in ('True', 'true', '1')

    def integer(self, name: str, default: Optional[int] = None) -> MaybeNone:
        """Return a whole number, None if the text says None, or the default if there is no text."""
        text = self.get(name)
        return default if text is None else None if text == 'None' else int(text)

    def number(self, name: str, default: float) -> float:
        """Return an attribute as a float."""
        return float(self.get(name, default))

    def single(self, name: str, default: float) -> float:
        """Return an attribute in single precision, in which MXNet stores some for any dtype."""
        return c_float(self.number(name, default)).value

    def integers(self, name: str) -> tuple[MaybeNone, ...]:
        """Return a tuple of whole numbers and None; a single number gives (number,), no text ()."""
        parts = [part.strip() for part in self.get(name, '').strip('()[] ').split(',')]
        if parts == ['None']:
            return ()
        return tuple([None if part == 'None' else int(part) for part in parts if part])

    def axis(self, name: str, rank: int, default: Optional[int] = None) -> MaybeNone:
        """Return an axis of an array, counted from the first."""
        axis = self.integer(name, default)
        return axis if axis is None else axis % rank

    def order(self, op: str, rank: int) -> list[int]:
        """Return the order of an array's axes after ``transpose`` or ``SwapAxis``."""
        axes = list(range(rank))
        if op == 'transpose':
            return [axis % rank for axis in self.integers('axes')] or axes[::-1]
        one, other = (self.axis(key, rank, 0) for key in ('dim1', 'dim2'))
        axes[one], axes[other] = other, one
        return axes

    def axes(self, rank: int, name: str = 'axis') -> set[int]:
        """Return the axes of a reduction, whether they are named or excluded."""
        named = {axis % rank for axis in self.integers(name)}
        every = set(range(rank))
        return every - named if self.flag('exclude') and named else named or every
