"""Decide which tests run for every commit, in CI, and only with ``-m slow``.

`FAST` names the tests for every commit, ``pytest --fast``, by stages of the flow. They have to take
less than 3 minutes on two cores (``--durations=30`` shows how long each test takes). They start few
programs, as importing MXNet takes longer than most tests.
"""

import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
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
    'later versions of NumPy': 'numpy_compat',
    'examples': 'example_data example_words example_spans example_metrics',
    'the tests': 'suite',
}


# Seconds a case, with three processes on two cores, of tests above `_TEST_SECONDS`. When CI has
# become slow: pytest -m '' -n 3 --durations=0 | python -m tests.support.tiers
DURATIONS = Path(__file__).with_name('durations.txt')
_TEST_SECONDS = 4  # the cases of one test in CI; but one case always, if it takes less than:
_CASE_SECONDS = 8
KEPT = {  # in CI however long they take: what users do first, and random programs
    'docs/test_docstrings test_examples_run',
    'docs/test_pages test_first_program_of_readme_runs_as_it_is_copied',
    'docs/test_pages test_measurement_of_the_first_program_runs',
    'docs/test_notebook test_tutorial_runs_and_shows_what_it_did',
    'examples/test_example_parser test_program',
    'examples/test_example_sst test_program_on_the_embedded_sample',
    'examples/test_example_train test_program_on_the_embedded_sample',
    'integration/test_cpp_programs test_networks_that_take_one_sample_at_a_time',
    'integration/test_distributed test_two_workers_train_as_one_process_with_their_minibatches',
    'integration/test_property test_random_programs_give_what_numpy_gives',
    'integration/test_property test_random_programs_have_the_gradients_of_eager_gluon',
    'integration/test_native test_random_blocks',
    'integration/test_native test_without_compiler',
    'integration/test_property test_random_trees',
    'integration/test_remembered test_gradients_of_later_scopes',
    'integration/test_serving_folder test_served',
    'integration/test_walk_operators test_a_slice',
    'unit/test_compiled test_both_forms_record_the_same',
    'unit/test_install test_sdist_and_wheel_have_every_file',
    'unit/test_suite test_no_test_module_imports_another',
}


def durations() -> dict[str, float]:
    """Return the seconds that a case takes, by test (``unit/test_x test_y``)."""
    lines = (line.split(None, 1) for line in DURATIONS.read_text().splitlines())
    return {test: float(seconds) for seconds, test in lines}


def left_to_slow(tests: dict[str, list[Any]], seconds: dict[str, float]) -> Iterator[Any]:
    """Yield the cases that CI leaves to the slow tests, of all cases by test."""
    for test, cases in tests.items():
        each = seconds.get(test, 0.0)
        step = math.ceil(each * len(cases) / _TEST_SECONDS)
        step = min(max(step, 1), len(cases))
        first = test in KEPT or len(cases) > 1 or each < _CASE_SECONDS
        yield from (case for number, case in enumerate(cases) if number % step or not first)


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


def main() -> None:
    """Write the durations anew, from what pytest prints."""
    totals: Counter[str] = Counter()
    cases: defaultdict[str, set[str]] = defaultdict(set)
    for line in sys.stdin:
        found = re.match(r'([\d.]+)s (?:call|setup|teardown) +tests/(\S+)\.py::(\w+)(.*)', line)
        if found:
            test = f'{found[2]} {found[3]}'
            totals[test] += float(found[1])
            cases[test].add(found[4])
    long = sorted(test for test, seconds in totals.items() if seconds > _TEST_SECONDS)
    lines = [f'{totals[test] / len(cases[test]):.1f} {test}\n' for test in long]
    DURATIONS.write_text(''.join(lines))


if __name__ == '__main__':
    main()
