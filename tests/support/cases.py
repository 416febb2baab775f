"""Run many cases in one test, and name each one that fails."""

from __future__ import annotations

import functools
import inspect
import random
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from tests.support import aftermath

# Failures of `pytest.raises`, `pytest.warns` and `pytest.fail` are no `Exception`.
FAILURES = (Exception, pytest.fail.Exception)


def seed_all() -> None:
    """Seed Python, NumPy and MXNet."""
    random.seed(1)
    np.random.seed(2)
    mx.random.seed(3)


def in_one_test(
    names: str, cases: Iterable[Any], ids: Callable[[Any], str] | Iterable[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test that loops over its cases.

    The arguments are those of ``pytest.mark.parametrize``, for fast cases that check the same for
    each member of a list. All cases run. The test fails with the name and the traceback of each
    case that failed. A case that skips has failed. Decorators can be stacked, for a product.

    Each case begins with new seeds, a new ``monkeypatch`` and a new ``tmp_path``. After each case
    no hook may be left in MXNet.

    Parameters
    ----------
    names : str
        Arguments of the test that a case gives, separated by commas.
    cases : iterable
        A value for each case, or a tuple of values if there are several names.
    ids : callable or iterable of str, optional
        The name of each case, by default made of the values.
    """
    arguments = [name.strip() for name in names.split(',')]
    cases = list(cases)
    assert cases, 'there is no case'
    rows, titles = zip(*[_row(case, len(arguments)) for case in cases])
    if callable(ids):
        titles = ['-'.join(str(ids(value)) for value in row) for row in rows]
    elif ids is not None:
        titles = list(ids)
    assert len(titles) == len(rows)
    assert all(len(row) == len(arguments) for row in rows)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every_case(**fixtures: Any) -> None:
            failed = {}
            for number, (title, row) in enumerate(zip(titles, rows)):
                given = {**fixtures, **dict(zip(arguments, row))}
                try:
                    _run(test, given, number)
                except (*FAILURES, pytest.skip.Exception):
                    failed[f'{title} (case {number})'] = traceback.format_exc()
            if failed:
                told = '\n'.join(f'--- {title}\n{text}' for title, text in failed.items())
                pytest.fail(
                    f'{len(failed)} of {len(rows)} cases of {test.__name__} failed: '
                    f'{", ".join(failed)}\n{told}',
                    pytrace=False,
                )

        signature = inspect.signature(test)
        assert set(arguments) <= set(signature.parameters), f'{test.__name__} lacks an argument'
        every_case.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                parameter
                for name, parameter in signature.parameters.items()
                if name not in arguments
            ]
        )
        return every_case

    return decorate


def _row(case: Any, count: int) -> tuple[tuple[Any, ...], str]:
    """Return the values of a case, and its name."""
    named = None
    if isinstance(case, type(pytest.param())):
        assert not case.marks, 'a case of one test has no marks'
        row, named = tuple(case.values), case.id
    else:
        row = tuple(case) if count > 1 else (case,)
    return row, named or '-'.join(getattr(value, '__name__', None) or str(value) for value in row)


def _run(test: Callable[..., None], given: dict[str, Any], number: int) -> None:
    """Run one case with its own state."""
    seed_all()
    if 'tmp_path' in given:
        given['tmp_path'] = given['tmp_path'] / str(number)
        given['tmp_path'].mkdir()
    with pytest.MonkeyPatch.context() as own:
        if 'monkeypatch' in given:
            given['monkeypatch'] = own
        test(**given)
    aftermath.assert_hooks_gone()
