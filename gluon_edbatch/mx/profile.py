"""Spans of this package's own in what MXNet's profiler writes."""

from collections.abc import Iterator
from contextlib import contextmanager

import mxnet as mx

_DOMAIN = mx.profiler.Domain('gluon_edbatch')


@contextmanager
def span(name: str) -> Iterator[None]:
    """What runs meanwhile has a name in the profile, if one is being written."""
    task = _DOMAIN.new_task(name)
    task.start()
    try:
        yield
    finally:
        task.stop()
