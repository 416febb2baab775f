"""Measure a process' memory, and a model whose minibatches vary, to check that it stays flat."""

import ctypes
import gc
import statistics

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from tests.support.models import random_tree

WORDS = 200


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            'arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost'
        ).split()
    ]


def settle():
    """Wait for all queued work, and collect garbage."""
    gc.collect()
    mx.nd.waitall()  # frees, too, are done by the engine


def in_use():
    """Return how many bytes this process has allocated and not freed. (Its resident size includes
    the allocator's reserve, and depends on other processes.)"""
    settle()
    mallinfo = getattr(ctypes.CDLL(None), 'mallinfo2', None)
    if mallinfo is None:
        pytest.skip('needs mallinfo2, of glibc 2.33 and later')
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


class Model(edb.AutoBatchMixin, gluon.Block):
    """A Tree-LSTM on random trees, with a regression at the root."""

    def __init__(self, size=64):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, size)
            self.cell = edb.rnn.ChildSumTreeLSTMCell(size, input_size=size)
            self.out = nn.Dense(1, in_units=size)

    def forward(self, tree):
        return self.out(self.state(tree)[0])

    def state(self, tree):
        """Return (h, c) of a tree."""
        return self.cell(self.embed(tree.token), [self.state(child) for child in tree.children])


def minibatch(generator, size=32):
    """Return trees of varying sizes; their number varies, too."""
    return [
        random_tree(generator, generator.randint(1, 20), vocab=WORDS)
        for _ in range(generator.randint(size // 2, size + 1))
    ]


def assert_flat(step, warm_up, steps, allowed):
    """Assert that `step` does not grow the process by more than `allowed` bytes after its warm-up.

    A leak grows all the time, but another thread's caches only once. So the steps are divided into
    windows, and the median of their growth counts.
    """
    for number in range(warm_up):
        step(number)
    windows, readings = 5, [in_use()]
    for number in range(steps):
        step(warm_up + number)
        if (number + 1) % (steps // windows) == 0:
            readings.append(in_use())
    grown = windows * statistics.median(np.diff(readings))
    assert grown < allowed, (
        f'grows by {grown / 1e6:.1f} MB in {steps} steps, from '
        f'{[round(reading / 1e6, 1) for reading in readings]} MB'
    )
