"""Compare batched and eager results, and find out which are nearer to float64."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from gluon_edbatch_core.short_repr import brief

# Relative to the largest magnitude in an array: a sum over a batch has another order than eager's.
_TOLERANCE = {'float16': 1e-2, 'float32': 1e-5, 'float64': 1e-10}
_SMALLEST_SCALE = 1e-3  # where float64 cannot tell rounding from numbers that are small
ROUNDING = 2.0**-24  # of a number in float32
# Scales that the tolerance is of, for each such change that noise makes (see `scales_of_terms`).
_OF_NOISE = 0.2 / ROUNDING
_NEARER = 3  # times eager's distance from float64 is as near as eager
# Limits of the batched run's distance in float64, where hardly any rounding is left. They are
# relative to the largest magnitude, to the scale of terms that cancel, and to eager's distance in
# float32, which rounds 5e8 times as much: terms may cancel inside an operator, such as softmax.
_IN_FLOAT64, _OF_TERMS, _OF_EAGER = 1e-7, 3e-11, 1e-7
KNOBS = (
    'If this is rounding, give rtol or atol. To find what makes it, compare within '
    'gluon_edbatch.compile_options(native=False), or with other options off'
)


class Measured(NamedTuple):
    """What a run gives, by the names in messages: ``result [0]``, ``gradient of weight``.

    `plain` has results that are no arrays. `added` is the scale of the terms of each array, for
    runs in float64: terms may cancel to nearly nothing, but their rounding errors do not."""

    arrays: dict[str, np.ndarray]
    plain: Mapping[str, Any] = MappingProxyType({})
    added: Mapping[str, float] = MappingProxyType({})


class Suspect(NamedTuple):
    """An array in which a batched run is not close to eager."""

    name: str
    found: np.ndarray
    expected: np.ndarray
    worst: float  # the largest difference
    allowed: float
    tolerance: float  # of the scale
    atol: float  # in addition

    def told(self, allowed: str = '') -> str:
        """Return the difference as text, with an element in which it is largest."""
        apart = np.abs(self.found.astype(np.float64) - self.expected)
        index = int(np.where(np.isfinite(apart), apart, 0).argmax())
        return (
            f'{self.name} differs from eager by up to {self.worst:.2g}{allowed}'
            f'{_at(index, self.found, self.expected)}'
        )


class Fault(NamedTuple):
    """A difference that rounding does not explain: how many times too large it is, and the lines
    of its message."""

    excess: float
    lines: list[str]


def differences(
    found: Measured,
    expected: Measured,
    case: str,
    rtol: Optional[float],
    atol: float,
    narrow: bool = False,
) -> list[Suspect]:
    """Return the arrays that differ by more than the tolerance.

    The tolerance is `rtol` of the scale (None: the dtype's) plus `atol`. `narrow` means that
    float64 results were computed from less exact numbers. Differences that rounding cannot explain
    raise an AssertionError, whose message begins with `case`: in structure, shape, dtype, integers,
    or positions of infinity and NaN."""
    ones, others = ([*run.arrays, *run.plain] for run in (found, expected))
    extra, missing = sorted({*ones} - {*others}), sorted({*others} - {*ones})
    structure = (
        f'{case}: result has structure {brief(extra or ones)}, eagerly {brief(missing or others)}'
    )
    ensure(not extra and not missing, structure)
    for name, value in expected.plain.items():
        got = found.plain[name] if name in found.plain else found.arrays[name]
        ensure(_are_equal(got, value), f'{case}: {name} is {brief(got)}, eagerly {brief(value)}')
    ensure(list(found.arrays) == list(expected.arrays), structure)
    suspects = [
        _difference(name, found.arrays[name], array, case, rtol, atol, narrow)
        for name, array in expected.arrays.items()
    ]
    return [suspect for suspect in suspects if suspect is not None]


def _difference(
    name: str,
    found: np.ndarray,
    expected: np.ndarray,
    case: str,
    rtol: Optional[float],
    atol: float,
    narrow: bool,
) -> Optional[Suspect]:
    label = f'{case}: {name}'
    ensure(
        found.shape == expected.shape and found.dtype == expected.dtype,
        f'{label} is {brief(found)}, eagerly {brief(expected)}',
    )
    if not expected.size:
        return None
    if not np.issubdtype(expected.dtype, np.floating):
        _ensure_nowhere(found != expected, f'{label} differs from eager', found, expected)
        return None
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    same |= np.isfinite(found) & np.isfinite(expected)
    _ensure_nowhere(~same, f'{label} is finite elsewhere than eagerly', found, expected)
    worst = _distance(found, expected)
    tolerance = rtol
    if tolerance is None:
        least = _TOLERANCE['float32' if narrow else 'float64']
        tolerance = max(_TOLERANCE[expected.dtype.name], least)
    underflow = np.finfo(expected.dtype).tiny / np.finfo(expected.dtype).eps
    allowed = tolerance * _scale(expected) + atol + float(underflow)
    if worst <= allowed:
        return None
    return Suspect(name, found, expected, worst, allowed, tolerance, atol)


def judge(
    suspects: Sequence[Suspect],
    eager: Measured,
    exact: Measured,
    in_float64: Union[Measured, Exception, None],
) -> list[Fault]:
    """Return what rounding does not explain: suspects further from float64 than eager and than the
    tolerance, or different in float64, too.

    `in_float64` is a batched run, or why there is none."""
    faults = []
    for suspect in suspects:
        name = suspect.name
        wanted = exact.arrays[name]
        batched = _distance(suspect.found, wanted)
        distance = _distance(eager.arrays[name], wanted)
        largest = _scale(wanted)
        scale = max(largest, exact.added.get(name, 0.0)) or _SMALLEST_SCALE
        allowed = max(_NEARER * distance, suspect.tolerance * scale + suspect.atol)
        is_rounding = batched <= allowed
        lines = [
            suspect.told(),
            f'from float64 it differs by up to {batched:.2g}, eager by {distance:.2g}; '
            f"{allowed:.2g} is allowed, the larger of {_NEARER} times eager's and "
            f'{suspect.tolerance:g} of the scale, {scale:.3g}',
        ]
        if isinstance(in_float64, Measured):
            again = _distance(in_float64.arrays[name], wanted)
            close = max(_IN_FLOAT64 * largest, _OF_TERMS * scale, _OF_EAGER * distance)
            is_rounding = is_rounding and again <= close
            lines.append(
                f'run in float64, batched differs from eager by up to {again:.2g}; '
                f'{close:.2g} is allowed'
            )
        elif in_float64 is not None:
            lines.append(f'batched cannot run in float64: {_brief(in_float64)}')
        if not is_rounding:
            faults.append(Fault(batched / max(allowed, 1e-300), lines))
    return faults


def judge_without_float64(suspects: Sequence[Suspect], unknown: Exception) -> list[Fault]:
    """Return the suspects that are not the rounding of terms that cancel; `unknown` says why
    float64 cannot judge."""
    return [
        Fault(
            suspect.worst / max(suspect.allowed, 1e-300),
            [
                suspect.told(f' ({suspect.allowed:.2g} is allowed)'),
                f'float64 cannot tell which of them is nearer: {_brief(unknown)}',
            ],
        )
        for suspect in suspects
        if suspect.worst > suspect.tolerance * _SMALLEST_SCALE + suspect.atol
    ]


def worst(faults: Sequence[Fault], case: str) -> str:
    """Return the message for the worst of some faults; empty if there are none."""
    if not faults:
        return ''
    more = len(faults) - 1
    lines = max(faults, key=lambda fault: fault.excess).lines
    told = [f'{more} more {"differ" if more > 1 else "differs"}, but less'] * (more > 0)
    return '\n  '.join([f'{case}: {lines[0]}', *lines[1:], *told])


def scales_of_terms(exact: Measured, noisy: Sequence[Measured]) -> dict[str, float]:
    """Return the scale of the terms that were added up to each array, by its name.

    Noisy runs have random changes of `ROUNDING` in all intermediate numbers. The effect on an array
    is as large as its terms, whichever operators or samples add them."""
    alike = [run for run in noisy if comparable(exact, run)]  # some may take another branch
    scales = {}
    for name, array in exact.arrays.items():
        changes = [_distance(run.arrays[name], array) for run in alike]
        finite = [change for change in changes if np.isfinite(change)]
        scales[name] = _OF_NOISE * max(finite, default=0.0)
    return scales


def comparable(one: Measured, other: Measured) -> bool:
    """Return whether two runs have arrays of the same names and shapes, so that they compare."""
    shapes, others = (
        {name: array.shape for name, array in run.arrays.items()} for run in (one, other)
    )
    return shapes == others


def _brief(error: Exception) -> str:
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:200]


def _are_equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray) or isinstance(found, np.ndarray):
        return type(found) is type(expected) and np.array_equal(found, expected)
    return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)


def _ensure_nowhere(
    differs: np.ndarray, message: str, found: np.ndarray, expected: np.ndarray
) -> None:
    if np.any(differs):
        raise AssertionError(message + _at(int(np.argmax(differs)), found, expected))


def _at(index: int, found: np.ndarray, expected: np.ndarray) -> str:
    """Return a text with one element of both arrays; `index` is its position in the flat arrays."""
    position = [int(number) for number in np.unravel_index(index, found.shape)]
    return f': {found.flat[index]:.9g} and eagerly {expected.flat[index]:.9g}, at {position}'


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two arrays; infinite if only one is finite somewhere."""
    finite = np.isfinite(other)
    if not np.array_equal(np.isfinite(one), finite):
        return np.inf
    return float(np.abs(one[finite].astype(np.float64) - other[finite]).max(initial=0))


def _scale(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max(initial=0))


def ensure(condition: bool, message: str) -> None:
    """Raise AssertionError unless a condition holds, even under python -O."""
    if not condition:
        raise AssertionError(message)
