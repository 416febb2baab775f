"""Groups of values of one sample, each computed by itself (see `gluon_edbatch.each`)."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.short_repr import brief

from .lazy import ARITHMETIC, METHODS
from .sites import current_site

_NONE: Mapping[str, Any] = {}


class Each(tuple):
    """A tuple of values: operators and blocks run on each value, and return a tuple of results."""

    __slots__ = ()
    __array_ufunc__ = None  # array + each is for the latter to compute
    __hash__ = None  # type: ignore[assignment]  # as it is compared value by value

    def __getitem__(self, position):
        if type(position) is tuple:
            raise TypeError(
                f'{current_site()}: each() is indexed by the position of a value; to take '
                f'something of each, write each([value[:, 0] for value in values])'
            )
        found = super().__getitem__(position)
        return Each(found) if type(position) is slice else found

    def __bool__(self) -> bool:
        raise ValueError(f'{current_site()}: whether several values are true is for each of them')

    def __repr__(self) -> str:
        return f'<each of {len(self)}: {super().__repr__()}>'


def _method(name: str) -> Callable[..., Any]:
    def method(self, *args, **options):
        return for_each(
            lambda value, *others, **named: getattr(value, name)(*others, **named),
            (self, *args),
            options,
        )

    method.__name__ = name
    return method


def _arithmetic(name: str) -> Callable[[Each, Any], Any]:
    known = getattr(operator, f'__{name}__', None)
    if known is None:
        known = getattr(operator, f'__{name[1:]}__')
        return lambda self, other: for_each(known, (other, self))
    return lambda self, other: for_each(known, (self, other))


for _name in (*METHODS, 'reshape', 'astype', 'detach', 'copy'):
    setattr(Each, _name, _method(_name))
for _name in ARITHMETIC:
    setattr(Each, f'__{_name}__', _arithmetic(_name))


def holds_each(args: Iterable[Any]) -> bool:
    """Return whether there is an `Each` among arguments, or in lists and tuples there."""
    for arg in args:
        kind = arg.__class__
        if kind is Each or (kind in (list, tuple) and holds_each(arg)):
            return True
    return False


def for_each(
    function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any] = _NONE
) -> Any:
    """Call a function for each value of the `Each` among its arguments; other arguments are the
    same for all calls. Lists and tuples of results become lists and tuples of `Each`."""
    counts = {*_counts(args), *_counts(options.values())}
    if len(counts) > 1:
        raise RecordError(
            f'arguments have {" and ".join(map(str, sorted(counts)))} values to compute each of\n'
            f'  called at {current_site()}'
        )
    return _together(
        [
            function(*_at(place, args), **dict(zip(options, _at(place, options.values()))))
            for place in range(counts.pop())
        ]
    )


def _counts(args: Iterable[Any]) -> Iterable[int]:
    for arg in args:
        if arg.__class__ is Each:
            yield len(arg)
        elif arg.__class__ in (list, tuple):
            yield from _counts(arg)


def _at(place: int, args: Iterable[Any]) -> Sequence[Any]:
    return [
        arg[place]
        if arg.__class__ is Each
        else arg.__class__(_at(place, arg))
        if arg.__class__ in (list, tuple)
        else arg
        for arg in args
    ]


def _together(results: Sequence[Any]) -> Any:
    first = results[0]
    if first.__class__ not in (list, tuple) or len({*map(len, results)}) > 1:
        return Each(results)
    return first.__class__([_together(column) for column in zip(*results)])


def each_of(values: Sequence[Any]) -> Each:
    """Make an `Each` of values (see `gluon_edbatch.each`)."""
    found = Each(values)
    if not len(found):
        raise RecordError(
            'each() of no values: what would be computed of them is not known; give one that '
            f'stands for none, as ragged([], shape=(1, hidden_size))\n  called at {current_site()}'
        )
    if holds_each(found):
        raise RecordError(
            'each() takes single and ragged values, so that there are two levels of them: what '
            f'is below, join by ragged() or a block, not {brief(found)}\n'
            f'  called at {current_site()}'
        )
    return found
