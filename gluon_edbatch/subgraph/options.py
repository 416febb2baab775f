"""What a type is compiled with: every optimisation has a name, and can be switched off by it."""

import threading
import warnings
from dataclasses import InitVar, dataclass, fields, replace
from typing import Any, Optional

from ..brief import brief

# Options that are accepted for one version, without effect.
_GONE = ('common_subexpressions', 'constants', 'middle_axis', 'row_layout', 'sums')


def _without_gone(options: dict[str, Any], stacklevel: int = 3) -> dict[str, Any]:
    """Return the options that have an effect, and warn about the others."""
    for name in filter(options.__contains__, _GONE):
        warnings.warn(
            f'the compile option {name} has no effect any more: leave it out',
            DeprecationWarning,
            stacklevel=stacklevel,
        )
    return {name: value for name, value in options.items() if name not in _GONE}


@dataclass(frozen=True)
class CompileOptions:
    """Which optimisations types are compiled with. They change the speed, not the results.

    Types that were compiled with different options are different types. What some of them did
    is in ``scope.report()``.

    Parameters
    ----------
    native : bool, default True
        Runs of batches by the native operators, where there are such.
    whole_values : bool, default True
        Batches of calls whose rows depend on each other, with an axis of their own.
    at_once : bool, default True
        Large calls run eagerly on a CPU, where copies of their arrays into a batch would take
        longer. Shapes decide that, so that each run decides the same.
    buckets : bool, default True
        Calls of a block on arrays of different lengths, such as whole sentences, padded to a few
        lengths, where that is proved to change nothing.
    segments : bool, default True
        Ragged arguments without padding, where all that is done with them allows it.
    additions : bool, default True
        Additions whose partial sums nobody reads run as one sum of any number of values, as
        ``edb.add_n`` records it. ``mx.nd.add_n``, and ``mx.nd.concat`` along axis 0, are one type
        whatever the number of their arguments.
    hoisting : bool, default True
        What needs known values only runs once for all batches of a type.
    horizontal : bool, default True
        Products with the same input, and what follows them, as one; not by native operators.
    operators : bool, default True
        The operators that compute the same faster on the device.
    common_subexpressions, constants, middle_axis, row_layout, sums : bool, optional
        Deprecated: they have no effect.

    Raises
    ------
    ValueError
        If a value is not True or False.

    Examples
    --------
    >>> with edb.batching(compile_options=edb.CompileOptions(hoisting=False)) as scope:
    ...     values = [net(sample) for sample in samples]
    """

    native: bool = True
    whole_values: bool = True
    at_once: bool = True
    buckets: bool = True
    segments: bool = True
    additions: bool = True
    hoisting: bool = True
    horizontal: bool = True
    operators: bool = True
    common_subexpressions: InitVar[Optional[bool]] = None
    constants: InitVar[Optional[bool]] = None
    middle_axis: InitVar[Optional[bool]] = None
    row_layout: InitVar[Optional[bool]] = None
    sums: InitVar[Optional[bool]] = None

    def __post_init__(self, *gone: Optional[bool]) -> None:
        given = {name: value for name, value in zip(_GONE, gone) if value is not None}
        _without_gone(given, stacklevel=4)
        for name, value in self.items():
            if not isinstance(value, bool):
                raise ValueError(f'compile option {name} is True or False, not {brief(value)}')

        object.__setattr__(self, '_hash', hash(tuple(self.items())))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]  # asked for at every kind of call

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Of all options, in the order in which the report lists them."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def none(cls) -> 'CompileOptions':
        """All of them off: plain batches by MXNet's operators."""
        return cls(**dict.fromkeys(cls.names(), False))

    def items(self) -> list[tuple[str, bool]]:
        """(name, value) of all options, in the order of `names`."""
        return [(name, getattr(self, name)) for name in self.names()]

    def but(self, **changes: Any) -> 'CompileOptions':
        """These options with some of them changed.

        Parameters
        ----------
        **changes
            Options by name, with what they are to be.

        Returns
        -------
        CompileOptions

        Raises
        ------
        TypeError
            If there is no option of a name.
        ValueError
            If a value is not True or False.
        """
        changes = _without_gone(changes)
        unknown = [name for name in changes if name not in self.names()]
        if unknown:
            raise TypeError(
                f'no compile option is called {", ".join(unknown)}; there are '
                f'{", ".join(self.names())}'
            )
        return replace(self, **changes)


class _ThreadOptions(threading.local):
    options = CompileOptions()


_local = _ThreadOptions()


def current_options() -> CompileOptions:
    """Those that a new scope of this thread gets."""
    return _local.options


class compile_options:
    """Switch optimisations off, or on again, for the batching scopes made inside it.

    Parameters
    ----------
    **changes : bool
        Options by name (see `CompileOptions`); the others stay as they are around it.

    Raises
    ------
    TypeError
        If there is no option of a name.
    ValueError
        If a value is not True or False.

    Examples
    --------
    >>> with edb.compile_options(hoisting=False, segments=False):
    ...     outputs = net.batch(samples)
    """

    def __init__(self, **changes: bool):
        self._changes = _without_gone(changes)
        CompileOptions().but(**self._changes)  # wrong ones are an error on the user's line
        self._before: list[CompileOptions] = []

    def __enter__(self) -> CompileOptions:
        self._before.append(_local.options)
        _local.options = _local.options.but(**self._changes)
        return _local.options

    def __exit__(self, *_: Any) -> None:
        _local.options = self._before.pop()
