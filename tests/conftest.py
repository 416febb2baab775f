"""Every test starts from the same seeds, and none may leave a scope's hooks behind."""

import gc
import os
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite('tests.support')

# After their asserts are rewritten:
from gluon_edbatch.report import analysed  # noqa: E402
from tests.support import aftermath as left_behind  # noqa: E402
from tests.support.cases import seed_all  # noqa: E402
from tests.support.tiers import durations, is_fast, left_to_slow  # noqa: E402

# The same cases in every run: a failure in CI is a failure at home. To look for new ones:
# pytest --hypothesis-profile explore
# How long something takes is no failure.
settings.register_profile(
    'ci',
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    'explore', settings.get_profile('ci'), derandomize=False, max_examples=2000
)
settings.load_profile('ci')

# Without a C compiler there is no gluonnlp (see scripts/environment.sh), nor what needs it.
collect_ignore_glob = [] if find_spec('gluonnlp') else ['examples/*', 'bench/*']


def pytest_addoption(parser):
    """Options of pytest beside its own."""
    parser.addoption('--fast', action='store_true', help='only what is quick: see support/tiers.py')
    parser.addoption(
        '--seconds-to', type=Path, help='a folder for what each test takes: see support/tiers.py'
    )


def pytest_ignore_collect(collection_path, config):
    """Leave out what is not for every commit; it need not be imported."""
    is_module = collection_path.suffix == '.py'
    if config.getoption('--fast') and is_module and not is_fast(collection_path.stem):
        return True
    return None  # others may know


def pytest_collection_modifyitems(items):
    """Leave long tests to the slow ones."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker('slow') is None:
            module = item.path.relative_to(Path(__file__).parent).with_suffix('').as_posix()
            tests[f'{module} {item.originalname}'].append(item)
    for item in left_to_slow(tests, durations()):
        item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """What was imported is there to stay: no garbage collection need look at it again. (Many tests
    collect, and MXNet's operators alone are some hundred thousand objects.)"""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Note the seconds of a processor that a test takes, if asked."""
    folder, before = item.config.getoption('--seconds-to'), sum(os.times()[:4])
    yield
    if folder:
        folder.mkdir(exist_ok=True)
        with open(folder / str(os.getpid()), 'a', encoding='utf-8') as file:
            file.write(f'{sum(os.times()[:4]) - before:.2f} {item.nodeid}\n')


@pytest.fixture(autouse=True)
def analyses_raise(monkeypatch):
    """An analysis of a report that fails is a failure of its test."""
    monkeypatch.setattr(analysed, 'strict', True)


@pytest.fixture(autouse=True)
def seeds():
    """Python, NumPy and MXNet draw the same numbers in a test, whatever ran before."""
    seed_all()


@pytest.fixture(autouse=True)
def no_hooks_left():
    """After a test MXNet is as it was imported."""
    yield
    left_behind.assert_hooks_gone()


@pytest.fixture
def aftermath():
    """For files whose tests break things: nothing is left behind, and the next minibatch is
    right."""
    yield from left_behind.check()
