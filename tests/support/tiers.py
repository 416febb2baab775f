"""Decide which tests run for every commit, in CI, and only with ``-m slow``.

`FAST` names the tests for every commit, ``pytest --fast``, by stages of the flow. They have to take
less than 3 minutes on two cores. They start few programs, as importing MXNet takes longer than most
tests.
"""

import math
import sys
from collections import Counter
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


# Seconds of a processor a case, with the programs that it starts, of tests above `_TEST_SECONDS`.
# When CI has become slow: pytest -m '' --seconds-to FOLDER, python -m tests.support.tiers FOLDER
DURATIONS = Path(__file__).with_name('durations.txt')
_TEST_SECONDS = 2  # the cases of one test in CI, which has none that takes longer alone, but for:
KEPT = {  # a case however long it takes: what users do first, each feature, and random programs
    'bench/test_benchmark test_systems_agree_on_loss_and_outputs',
    'docs/test_docstrings test_docstring',
    'docs/test_docstrings test_examples_run',
    'docs/test_notebook test_tutorial_runs_and_shows_what_it_did',
    'docs/test_pages test_first_program_of_readme_runs_as_it_is_copied',
    'docs/test_pages test_measurement_of_the_first_program_runs',
    'examples/test_example_entrance test_a_program_gets_its_options_and_gives_its_status',
    'examples/test_example_parser test_program',
    'examples/test_example_sst test_program_on_the_embedded_sample',
    'examples/test_example_train test_program_on_the_embedded_sample',
    'integration/test_blocks test_library_block',
    'integration/test_control_flow test_random_blocks_equal_eager_whatever_was_called_before',
    'integration/test_distributed test_a_worker_that_fails_ends_the_job',
    'integration/test_distributed test_two_workers_train_as_one_process_with_their_minibatches',
    'integration/test_encoders test_encoders_have_one_signature_for_all_lengths',
    'integration/test_exit test_an_error_that_waits_at_a_fork_ends_the_program',
    'integration/test_exit test_exit_status',
    'integration/test_faults test_fault_01_loss_heads_make_their_own_gradient',
    'integration/test_faults test_fault_02_axis_none_sorts_one_value_only',
    'integration/test_fold test_any_program',
    'integration/test_functions test_results_and_gradients_are_as_eager',
    'integration/test_hoisting test_a_type_in_two_ways_in_turn',
    'integration/test_inputs test_idiom',
    'integration/test_layer_norm test_rows',
    'integration/test_linear_time test_work_grows_with_the_number_of_types',
    'integration/test_native test_random_blocks',
    'integration/test_native test_without_compiler',
    'integration/test_numpy_mode test_idiom_is_batched',
    'integration/test_numpy_mode test_layer',
    'integration/test_numpy_programs test_program_is_batched',
    'integration/test_packed test_encoders_are_one_batch',
    'integration/test_program_findings test_a_number_that_passes_find_constant_is_given_to_operators_as_one',  # noqa: E501
    'integration/test_property test_random_programs_give_what_numpy_gives',
    'integration/test_property test_random_programs_have_the_gradients_of_eager_gluon',
    'integration/test_property test_random_trees',
    'integration/test_public_reports test_batched_equals_eager',
    'integration/test_remembered test_gradients_of_later_scopes',
    'integration/test_reuse test_matches_eager',
    'integration/test_serving_folder test_a_model_that_fails',
    'integration/test_serving_folder test_a_worker_that_dies_is_replaced',
    'integration/test_serving_folder test_new_parameters_under_traffic',
    'integration/test_serving_folder test_served',
    'integration/test_serving_folder test_sigterm',
    'integration/test_serving_folder test_slow_clients',
    'integration/test_side_effects test_operator',
    'integration/test_sparse test_trees',
    'integration/test_threads test_a_forked_process_has_helpers_of_its_own',
    'integration/test_threads test_results_and_gradients_are_those_of_eager_gluon',
    'integration/test_walk_operators test_a_slice',
    'unit/test_compiled test_both_forms_record_the_same',
    'unit/test_install test_changed_source_is_what_runs',
    'unit/test_install test_sdist_and_wheel_have_every_file',
    'unit/test_lift test_operator',
    'unit/test_numpy_compat test_run_starts_a_program_that_imports_mxnet_first',
    'unit/test_plan test_plans_of_random_programs_move_what_calls_name',
    'unit/test_schedule test_agenda_is_as_defined',
    'unit/test_schedule test_lower_bound_is_as_defined',
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
        first = test in KEPT or each <= _TEST_SECONDS
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
    """Write the durations anew, from what ``--seconds-to`` left in a folder."""
    totals: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    for path in Path(sys.argv[1]).iterdir():
        for line in path.read_text().splitlines():
            seconds, _, name = line.partition(' tests/')
            module, _, case = name.partition('.py::')
            test = f'{module} {case.partition("[")[0].rpartition("::")[2]}'
            totals[test] += float(seconds)
            cases[test] += 1
    long = sorted(test for test, seconds in totals.items() if seconds > _TEST_SECONDS)
    lines = [f'{totals[test] / cases[test]:.1f} {test}\n' for test in long]
    DURATIONS.write_text(''.join(lines))


if __name__ == '__main__':
    main()
