"""Decide which tests run for every commit, in CI, and only with ``-m slow``.

`FAST` names the tests for every commit, ``pytest --fast``, by stages of the flow. They have to take
less than 3 minutes on two cores (``--durations=30`` shows how long each test takes). They start few
programs, as importing MXNet takes longer than most tests.
"""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

FAST = {
    'recording': 'lazy_array recorded_operators operators blocks errors side_effects scope_order',
    'sampling': 'sampler',
    'scheduling': 'graph schedule fsm damaged_policies pq_tree',
    'planning': 'plan rows alignment pool host',
    'compiling': 'passes lift segments rowwise hoisting horizontal compile_options shared',
    'results and gradients': 'eager_equality autograd late_passes functional rnn own_tape',
    'other ways to call': 'fold fold_unroll reuse concurrent',
    'what is said': 'explain debug public_surface about',
    'the documentation': 'docstrings',
    'found from outside': 'faults',
    'without MXNet': 'bundle exported',
    'examples': 'example_data example_words example_spans example_metrics',
    'the tests': 'suite',
}


def sampled(step: int, *axes: Iterable[Any]) -> list[Any]:
    """Return cases for ``parametrize``, in all combinations: each `step`-th in CI, the others with
    the slow tests. A step coprime to an axis' length meets all of its members."""
    return [
        pytest.param(*values, marks=[pytest.mark.slow] if number % step else [])
        for number, values in enumerate(product(*axes))
    ]


def turns(*axes: Iterable[Any]) -> list[Any]:
    """Return cases for ``parametrize``: turn 0 runs in CI, the others with the slow tests.

    In each turn, each member of a list meets one combination of the axes (see `in_turn`). All turns
    together are the whole product."""
    count = len(list(product(*axes)))
    return [pytest.param(turn, marks=[pytest.mark.slow] if turn else []) for turn in range(count)]


def in_turn(number: int, turn: int, *axes: Iterable[Any]) -> Any:
    """Return the combination of the axes that a member of a list meets in a turn.

    Neighbours in the list meet different combinations. They move on by one after each round, so
    that lists that are products meet all of them, too."""
    modes = list(product(*axes))
    return modes[(number + number // len(modes) + turn) % len(modes)]


def is_fast(module: str) -> bool:
    """Return whether a test module, such as ``test_plan``, is among the fast ones."""
    return any(module == f'test_{name}' for names in FAST.values() for name in names.split())
