"""Compile options: each optimisation has a name that switches it off."""

import threading
from dataclasses import dataclass, fields, replace
from typing import Any

from gluon_edbatch_core.short_repr import brief


@dataclass(frozen=True)
class CompileOptions:
    """Select optimisations; they change speed, not results.

    Calls with different options have different batch signatures. ``scope.report()`` shows the
    effect of some options.

    Parameters
    ----------
    native : bool, default True
        Run batches by native operators, where there are any.
    whole_values : bool, default True
        Batch calls whose rows depend on each other, with an extra batch axis.
    at_once : bool, default True
        Run large calls eagerly on a CPU if copying their arrays into a batch would take longer.
        Shapes decide, so each run decides the same.
    buckets : bool, default True
        Batch sentences of different lengths, where padding provably has no effect.
    segments : bool, default True
        Compute ragged arguments without padding, where all operators on them allow it.
    additions : bool, default True
        Run additions whose partial sums nobody reads as one sum of any number of values, as
        ``edb.add_n`` does. ``mx.nd.add_n``, and ``mx.nd.concat`` along axis 0, then have one
        batch signature for any number of arguments.
    hoisting : bool, default True
        Run the part of calls that needs only values known beforehand once, for all batches.
    horizontal : bool, default True
        Run products with the same input, and elementwise operators that follow them, as one.
    operators : bool, default True
        Replace operators by equal ones that are faster on the device.

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

    def __post_init__(self) -> None:
        for name, value in self.items():
            if not isinstance(value, bool):
                raise ValueError(f'compile option {name} is True or False, not {brief(value)}')

        object.__setattr__(self, '_hash', hash(tuple(self.items())))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]  # asked for at every kind of call

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all options, in the order of the report."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def none(cls) -> 'CompileOptions':
        """Return options with all optimisations off: plain batches by MXNet's operators."""
        return cls(**dict.fromkeys(cls.names(), False))

    def items(self) -> list[tuple[str, bool]]:
        """Return (name, value) of all options, in the order of `names`."""
        return [(name, getattr(self, name)) for name in self.names()]

    def but(self, **changes: Any) -> 'CompileOptions':
        """Return these options with some of them changed.

        Parameters
        ----------
        **changes
            New values of options, by name.

        Returns
        -------
        CompileOptions

        Raises
        ------
        TypeError
            If no option has a name.
        ValueError
            If a value is not True or False.
        """
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
    """Return the options that a new scope of this thread gets."""
    return _local.options


class compile_options:
    """Switch optimisations off, or on again, for the batching scopes made inside it.

    Parameters
    ----------
    **changes : bool
        Options by name (see `CompileOptions`); others keep their value.

    Raises
    ------
    TypeError
        If no option has a name.
    ValueError
        If a value is not True or False.

    Examples
    --------
    >>> with edb.compile_options(hoisting=False, segments=False):
    ...     outputs = net.batch(samples)
    """

    def __init__(self, **changes: bool):
        self._changes = changes
        CompileOptions().but(**self._changes)  # wrong ones are an error on the user's line
        self._before: list[CompileOptions] = []

    def __enter__(self) -> CompileOptions:
        self._before.append(_local.options)
        _local.options = _local.options.but(**self._changes)
        return _local.options

    def __exit__(self, *_: Any) -> None:
        _local.options = self._before.pop()
