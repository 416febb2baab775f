"""Memory is handed on, but never what a user may still see."""

import gc
import itertools
import sys

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

import gluon_edbatch as edb
from gluon_edbatch.mx import pool
from gluon_edbatch.mx.pool import Memory
from tests.support.models import started


@pytest.fixture(autouse=True)
def fresh_pool(monkeypatch):
    """Other tests' memory stays out of it."""
    monkeypatch.setattr(pool, '_pool', pool._Pool())


def memory(rows=1000, width=64):
    return Memory((rows, width), np.float32, mx.cpu())


def piece_of(one):
    return pool._pool._lent[one._ticket][1]


def test_memory_is_handed_on():
    one = memory()
    one.array[:] = 3
    piece = piece_of(one)
    del one
    other = memory(990)  # about the same size
    assert piece_of(other) is piece and other.array.shape == (990, 64)
    other.array[:] = 4
    np.testing.assert_array_equal(other.array.asnumpy(), 4)


def test_what_is_shown_is_not():
    one = memory()
    one.array[:] = 3
    seen, piece = one.array[:2], piece_of(one)
    one.shown = True
    del one
    other = memory()
    assert piece_of(other) is not piece
    other.array[:] = 4
    np.testing.assert_array_equal(seen.asnumpy(), 3)


def test_what_the_engine_may_have_to_do_with_is_apart():
    held = [memory() for _ in range(4)]  # the pool keeps as much as was lent
    one, idle = memory(), Memory((1000, 64), np.float32, mx.cpu(), idle=True)
    assert idle.idle and not one.idle
    of_one, of_idle = piece_of(one), piece_of(idle)
    del one, idle
    again = Memory((1000, 64), np.float32, mx.cpu(), idle=True)
    assert piece_of(again) is of_idle
    again.handed.append(None)  # to the engine
    del again
    third = piece_of(Memory((1000, 64), np.float32, mx.cpu(), idle=True))
    assert third is not of_one and third is not of_idle
    assert any([piece_of(memory()) is each for each in (of_one, of_idle)])
    del held


def test_small_arrays_are_left_to_the_c_library():
    assert memory(2, 2)._ticket is None


def test_garbage_that_refers_to_itself():
    """The collector finalizes all of a cycle, and the array is needed after that."""
    for value in range(5):
        one = memory()
        one.array[:] = value
        cycle = [one]
        cycle.append(cycle)
        del one, cycle
        gc.collect()
        other = memory()
        other.array[:] = 7
        np.testing.assert_array_equal(other.array.asnumpy(), 7)


def test_pool_is_bounded():
    """By what was in use at once, lately."""
    for rows in range(1000, 9000, 500):
        memory(rows)
    memory(1000)
    assert pool._pool._free_bytes <= 9000 * 64 * 4 * 1.2
    assert pool._pool._lent_bytes <= 9000 * 64 * 4 * 1.2


def interrupted(number, function):
    """Run a function; KeyboardInterrupt comes at one of the places of the pool's module where
    Python looks for it: where a function begins, and where one of C has ended. (What comes in a
    ``__del__`` is dropped.) Gives whether it came."""
    places = itertools.count()

    def profile(frame, event, _argument):
        if (
            event in ('call', 'c_return')
            and frame.f_code.co_filename == pool.__file__
            and frame.f_code.co_name not in ('__del__', 'give_back')
            and next(places) == number
        ):
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.filterwarnings('error::pytest.PytestUnraisableExceptionWarning')
@pytest.mark.parametrize('kinds', ['new', 'free', 'too large', 'shown'])
def test_an_interrupt_at_any_place(kinds, monkeypatch):
    """Nothing is lent twice or for ever, and memory is to be had as before."""
    for number in itertools.count():
        monkeypatch.setattr(pool, '_pool', pool._Pool())
        held = [memory(), memory()]
        if kinds != 'new':
            held[1].shown = kinds == 'shown'
            held.append(memory(2000) if kinds == 'too large' else held[0])
            del held[1:]
        came = interrupted(number, lambda held=held: held.append(memory(990)))
        held += [memory(rows) for rows in (1000, 980, 3000)]
        lent = [id(piece) for _, piece in pool._pool._lent.values()]
        free = {
            id(piece): pool._bytes((size, *kind))
            for kind, pieces in pool._pool._free.items()
            for size, _, piece in pieces
        }
        assert len(lent) == len(set(lent)) == len(held) and not free.keys() & set(lent)
        assert pool._pool._free_bytes <= sum(free.values())
        held.clear()
        memory(4000), memory(10)
        pool._pool._settle()
        assert not pool._pool._lent
        if not came:
            break
    assert number > 5


@pytest.mark.parametrize('native', [False, True])
def test_values_of_earlier_minibatches_stay(native):
    """Results, and what autograd keeps of them, while later minibatches reuse memory."""
    net = started(mx.gluon.nn.Dense(64, in_units=64))
    first = started(mx.gluon.nn.Dense(64, in_units=3))  # what is given is never handed on
    kept = []
    with edb.compile_options(native=native):
        for number in range(6):
            rows = [mx.nd.full((1, 3), number + i / 100) for i in range(300)]
            with autograd.record():
                with edb.batching():
                    values = [net(first(row)) for row in rows]
                loss = (edb.stack(values) * values[7]).sum()
            kept.append((values[5].detach(), values[7], net(first(rows[5])), net(first(rows[7]))))
            loss.backward()
            if number % 2:  # the view alone is left
                kept[-1] = (kept[-1][0], None) + kept[-1][2:]
            del values, loss
    for view, lazy, expected, expected_of_lazy in kept:
        np.testing.assert_allclose(view.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)
        if lazy is not None:
            np.testing.assert_allclose(
                lazy.asnumpy(), expected_of_lazy.asnumpy(), rtol=1e-4, atol=1e-5
            )
