"""Compare batched and eager results, and find out which are nearer to float64."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ..short_repr import brief

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
_PARTS = ('results', 'gradients')
_WORDS = {'results': 'result', 'gradients': 'gradient of'}
_KNOBS = (
    'If this is rounding, give rtol or atol. To find what makes it, compare within '
    'gluon_edbatch.compile_options(native=False), or with other options off'
)


class Measured(NamedTuple):
    """Results and gradients of a run."""

    results: dict[str, np.ndarray]  # by their paths in the results
    gradients: dict[str, np.ndarray]  # by the names of parameters and inputs
    plain: Mapping[str, Any] = MappingProxyType({})  # results that are no arrays, by path


class Exact(NamedTuple):
    """Results and gradients of a run in float64, and the scale of the terms of each array.

    Terms may cancel to nearly nothing, but their rounding errors do not.
    """

    results: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]
    added: dict[str, float]


class Suspect(NamedTuple):
    """An array in which a batched run is not close to eager."""

    part: str  # the field of `Measured` that has it
    name: str
    found: np.ndarray
    expected: np.ndarray
    worst: float  # the largest difference
    allowed: float
    tolerance: float  # of the scale
    atol: float  # in addition

    def __str__(self) -> str:
        return f'{_WORDS[self.part]} {self.name}'

    def is_small(self) -> bool:
        """Return whether the difference may be the rounding of terms that cancel."""
        return self.worst <= self.tolerance * _SMALLEST_SCALE + self.atol


class Judged(NamedTuple):
    """A suspect that rounding does not explain, with its distances from float64."""

    suspect: Suspect
    exact: np.ndarray
    batched: float
    eager: float
    allowed: float
    scale: float
    in_float64: Optional[float]
    allowed_in_float64: float


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
    float64 results were computed from less exact numbers.

    Raises
    ------
    AssertionError
        For differences that rounding cannot explain: in structure, shape, dtype, integers, or
        positions of infinity and NaN. The message begins with `case`.
    """
    suspects = []
    paths = [list(run.results) + list(run.plain) for run in (found, expected)]
    ensure(
        sorted(paths[0]) == sorted(paths[1]),
        f'{case}: result has structure {brief(paths[0])}, eagerly {brief(paths[1])}',
    )
    for path, value in expected.plain.items():
        got = found.plain[path] if path in found.plain else found.results[path]
        ensure(
            _are_equal(got, value), f'{case}: result {path} is {brief(got)}, eagerly {brief(value)}'
        )
    for part in _PARTS:
        got, wanted = getattr(found, part), getattr(expected, part)
        ensure(
            list(got) == list(wanted),
            f'{case}: {_WORDS[part]} has structure '
            f'{brief(list(got))}, eagerly {brief(list(wanted))}',
        )
        for name, array in wanted.items():
            suspect = _difference(part, name, got[name], array, case, rtol, atol, narrow)
            if suspect is not None:
                suspects.append(suspect)
    return suspects


def _difference(
    part: str,
    name: str,
    found: np.ndarray,
    expected: np.ndarray,
    case: str,
    rtol: Optional[float],
    atol: float,
    narrow: bool,
) -> Optional[Suspect]:
    suspect = Suspect(part, name, found, expected, 0.0, 0.0, 0.0, atol)
    label = f'{case}: {suspect}'
    ensure(
        found.shape == expected.shape and found.dtype == expected.dtype,
        f'{label} is {brief(found)}, eagerly {brief(expected)}',
    )
    if not expected.size:
        return None
    if not np.issubdtype(expected.dtype, np.floating):
        _ensure_nowhere(
            np.atleast_1d(found != expected), f'{label} differs from eager', found, expected
        )
        return None
    found, expected = np.atleast_1d(found), np.atleast_1d(expected)
    finite = np.isfinite(expected)
    same = np.isfinite(found) == finite
    same[~finite] &= (found == expected)[~finite] | (np.isnan(found) & np.isnan(expected))[~finite]
    _ensure_nowhere(~same, f'{label} is finite elsewhere than eagerly', found, expected)
    worst = _distance(found, expected)
    tolerance = rtol
    if tolerance is None:
        least = _TOLERANCE['float32' if narrow else 'float64']
        tolerance = max(_TOLERANCE[expected.dtype.name], least)
    underflow = np.finfo(expected.dtype).tiny / np.finfo(expected.dtype).eps
    allowed = tolerance * _scale(expected) + atol + float(underflow)
    return (
        None
        if worst <= allowed
        else suspect._replace(worst=worst, allowed=allowed, tolerance=tolerance)
    )


def judge(
    suspects: Sequence[Suspect],
    eager: Sequence[Measured],
    exact: Exact,
    in_float64: Optional[Measured],
) -> list[Judged]:
    """Return the suspects that rounding does not explain: further from float64 than eager and than
    the tolerance, or different in float64, too.

    Eager Gluon's distance from float64 is the largest of its runs."""
    verdicts = []
    for suspect in suspects:
        part, name = suspect.part, suspect.name
        wanted = getattr(exact, part)[name]
        batched = _distance(suspect.found, wanted)
        distance = max([_distance(getattr(run, part)[name], wanted) for run in eager])
        largest, added = _scale(wanted), exact.added.get(name, 0.0)
        scale = max(largest, added) or _SMALLEST_SCALE
        allowed = max(_NEARER * distance, suspect.tolerance * scale + suspect.atol)
        again = None if in_float64 is None else _distance(getattr(in_float64, part)[name], wanted)
        close = max(_IN_FLOAT64 * largest, _OF_TERMS * scale, _OF_EAGER * distance)
        if not batched <= allowed or (again is not None and not again <= close):
            verdicts.append(
                Judged(suspect, wanted, batched, distance, allowed, scale, again, close)
            )
    return verdicts


def scales_of_terms(exact: Measured, noisy: Sequence[Measured]) -> dict[str, float]:
    """Return the scale of the terms that were added up to each array, by its path or name.

    Noisy runs have random changes of `ROUNDING` in all intermediate numbers. The effect on an array
    is as large as its terms, whichever operators or samples add them."""
    alike = [run for run in noisy if comparable(exact, run)]  # some may take another branch
    scales = {}
    for part in _PARTS:
        for name, array in getattr(exact, part).items():
            changes = [_distance(getattr(run, part)[name], array) for run in alike]
            finite = [change for change in changes if np.isfinite(change)]
            scales[name] = _OF_NOISE * max(finite, default=0.0)
    return scales


def comparable(exact: Union[Measured, Exact], found: Measured) -> bool:
    """Return whether a run in float64 has the same arrays as another one, so that they compare."""
    return all(
        [
            {name: array.shape for name, array in getattr(exact, part).items()}
            == {name: array.shape for name, array in getattr(found, part).items()}
            for part in _PARTS
        ]
    )


def worst_by_float64(
    verdicts: Sequence[Judged], case: str, unknown: Optional[Exception] = None
) -> str:
    """Return the message for the worst verdict, and why there is no batched run in float64."""
    verdict = max(verdicts, key=lambda one: one.batched / max(one.allowed, 1e-300))
    suspect = verdict.suspect
    found, wanted = suspect.found, suspect.expected
    lines = [
        f'{case}: {suspect} differs from eager by up to {suspect.worst:.2g}'
        f'{_at_worst(found, wanted)}',
        f'from float64 it differs by up to {verdict.batched:.2g}, eager by '
        f'{verdict.eager:.2g}; {verdict.allowed:.2g} is allowed, the larger of {_NEARER} '
        f"times eager's and {suspect.tolerance:g} of the scale, {verdict.scale:.3g}",
    ]
    if verdict.in_float64 is not None:
        lines.append(
            f'run in float64, batched differs from eager by up to {verdict.in_float64:.2g}; '
            f'{verdict.allowed_in_float64:.2g} is allowed'
        )
    elif unknown is not None:
        lines.append(f'batched cannot run in float64: {_brief(unknown)}')
    return _with_knobs(lines, len(verdicts))


def worst_by_eager(suspects: Sequence[Suspect], case: str, unknown: Exception) -> str:
    """Return the message for the worst suspect that cannot be judged in float64, and why not."""
    suspect = max(suspects, key=lambda one: one.worst / max(one.allowed, 1e-300))
    return _with_knobs(
        [
            f'{case}: {suspect} differs from eager by up to {suspect.worst:.2g} '
            f'({suspect.allowed:.2g} is allowed){_at_worst(suspect.found, suspect.expected)}',
            f'float64 cannot tell which of them is nearer: {_brief(unknown)}',
        ],
        len(suspects),
    )


def _brief(error: Exception) -> str:
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:200]


def _are_equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray) or isinstance(found, np.ndarray):
        return type(found) is type(expected) and np.array_equal(found, expected)
    return bool(found == expected) and isinstance(found, bool) == isinstance(expected, bool)


def _with_knobs(lines: list[str], count: int) -> str:
    more = [f'{count - 1} more {"differ" if count > 2 else "differs"}, but less'] * (count > 1)
    return '\n  '.join(lines + more + [_KNOBS])


def without_knobs(message: str) -> str:
    """Return the message without the advice on what to try."""
    return message.replace(f'\n  {_KNOBS}', '')


def _ensure_nowhere(
    differs: np.ndarray, message: str, found: np.ndarray, expected: np.ndarray
) -> None:
    if differs.any():
        raise AssertionError(message + _at(int(differs.argmax()), found, expected))


def _at_worst(found: np.ndarray, expected: np.ndarray) -> str:
    worst = np.abs(found.astype(np.float64) - expected)
    return _at(int(np.where(np.isfinite(worst), worst, 0).argmax()), found, expected)


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
