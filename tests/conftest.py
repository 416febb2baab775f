"""Every test starts from the same seeds, and none may leave a scope's hooks behind."""
import random

import mxnet as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite('support')

from support import aftermath as left_behind  # noqa: E402, after its asserts are rewritten

# The same cases in every run: a failure in CI is a failure at home. To look for new ones:
# pytest --hypothesis-profile explore
# How long something takes is no failure.
settings.register_profile('ci', derandomize=True, deadline=None, database=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile('explore', settings.get_profile('ci'), derandomize=False,
                          max_examples=2000)
settings.load_profile('ci')


@pytest.fixture(autouse=True)
def seeds():
    """Python, NumPy and MXNet draw the same numbers in a test, whatever ran before."""
    random.seed(1)
    np.random.seed(2)
    mx.random.seed(3)


@pytest.fixture(autouse=True)
def no_hooks_left():
    """After a test MXNet is as it was imported."""
    yield
    left_behind.assert_hooks_gone()


@pytest.fixture
def aftermath():
    """For files whose tests break things: nothing is left behind, and the next minibatch is right."""
    yield from left_behind.check()
