"""Attributes of operators: MXNet's text, read as what it means."""

from typing import Any, Optional, Union

Shape = tuple[int, ...]
MaybeNone = Union[int, Any]  # None where an operator of MXNet allows it, which its rule knows


def unlike(one: Shape, other: Shape) -> list[int]:
    """The axes in which two shapes differ."""
    return [axis for axis, sizes in enumerate(zip(one, other)) if sizes[0] != sizes[1]]


class Attrs(dict[str, str]):
    """Attributes of a node: MXNet's text, read as what it means."""

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether an attribute is true."""
        text = self.get(name)
        return default if text is None else text in ('True', 'true', '1')

    def integer(self, name: str, default: Optional[int] = None) -> MaybeNone:
        """A whole number; None if it says so, which is something else than not to be given."""
        text = self.get(name)
        return default if text is None else None if text == 'None' else int(text)

    def number(self, name: str, default: float) -> float:
        """Any number."""
        return float(self.get(name, default))

    def integers(self, name: str) -> tuple[MaybeNone, ...]:
        """A tuple of whole numbers and None, or one that stands for itself; empty if there is
        none."""
        parts = self.get(name, '').strip('()[] ').split(',')
        return (
            ()
            if parts == ['None']
            else tuple(
                None if part.strip() == 'None' else int(part) for part in parts if part.strip()
            )
        )

    def axis(self, name: str, rank: int, default: Optional[int] = None) -> MaybeNone:
        """An axis of an array, counted from the first."""
        axis = self.integer(name, default)
        return axis if axis is None else axis % rank

    def order(self, op: str, rank: int) -> list[int]:
        """Of an array's axes, as ``transpose`` or ``SwapAxis`` puts them."""
        axes = list(range(rank))
        if op == 'transpose':
            return [axis % rank for axis in self.integers('axes')] or axes[::-1]
        one, other = (self.axis(key, rank, 0) for key in ('dim1', 'dim2'))
        axes[one], axes[other] = other, one
        return axes

    def axes(self, rank: int, name: str = 'axis') -> set[int]:
        """Those that a reduction is over, whether they are named or excluded."""
        named = {axis % rank for axis in self.integers(name)}
        every = set(range(rank))
        return every - named if self.flag('exclude') and named else named or every
