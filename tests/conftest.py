"""Every test starts from the same seeds, and none may leave a scope's hooks behind."""
import random

import mxnet as mx
import numpy as np
import pytest
from hypothesis import settings
from mxnet import autograd, gluon
from mxnet.ndarray import register

from gluon_edbatch.record import hooks

# The same cases in every run: a failure in CI is a failure at home. To look for new ones:
# pytest --hypothesis-profile explore
settings.register_profile('ci', derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile('explore', deadline=None, print_blob=True, max_examples=2000)
settings.load_profile('ci')

_ORIGINALS = (gluon.Block.__call__, gluon.Block.__setattr__, register._imperative_invoke,
              autograd.set_recording, autograd.set_training)


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
    assert (gluon.Block.__call__, gluon.Block.__setattr__, register._imperative_invoke,
            autograd.set_recording, autograd.set_training) == _ORIGINALS
    assert hooks.current_recording() is None and hooks.local.eager is None
    assert not autograd.is_recording() and not autograd.is_training()
