"""The workers of a job, and sums over all of them by MXNet's KVStore."""

import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import DistributedError

from ..mx import kvstore
from ..mx.pool import rounded
from .launch import RANK

_SYNCHRONOUS = ('dist_sync', 'dist_device_sync')
_ALONE = (None, 'local', 'device')
_CONNECTING = 120.0  # seconds after which a job that does not come together is given up
_SPLIT = 1 << 16  # numbers; larger arrays are divided among all servers


def connect(name: Optional[str] = None) -> 'Workers':
    """Join the other workers of this process' job.

    Parameters
    ----------
    name : str, optional
        ``'dist_sync'`` or ``'dist_device_sync'``, MXNet's KVStores that sum over all workers;
        ``'local'``, ``'device'`` or None for a single process.

    Returns
    -------
    Workers
        A context manager. A normal end waits for all workers and disconnects. An exception ends the
        process with its traceback and status 1, as other workers would wait for it; the launcher
        then ends them.

    Raises
    ------
    DistributedError
        If the name is unknown, or this process was not started as a worker.
    """
    if name in _ALONE:
        return Workers(None)
    if name not in _SYNCHRONOUS:
        raise DistributedError(
            f'kvstore {name!r}: write dist_sync or dist_device_sync, or device for a process alone'
        )
    if os.environ.get('DMLC_ROLE') != 'worker':
        raise DistributedError(
            f'{name} needs servers and a scheduler: start the program by '
            '`python -m gluon_edbatch.distributed -n WORKERS -s SERVERS COMMAND`'
        )
    os.environ.setdefault('MXNET_KVSTORE_BIGARRAY_BOUND', str(_SPLIT))
    alarm = threading.Timer(_CONNECTING, _give_up)
    alarm.daemon = True
    alarm.start()
    try:
        return Workers(mx.kv.create(name))
    finally:
        alarm.cancel()


class Workers:
    """All workers of a job, from `connect`.

    All workers must call the same methods in the same order, as each call waits for the others. A
    single process is its only worker, and gets its own sums and rows.

    Attributes
    ----------
    rank : int
        Number of this worker, from 0, in the launcher's order.
    size : int
        Number of workers.

    Examples
    --------
    >>> with edb.distributed.connect() as workers:   # 'dist_sync' in a job of several
    ...     trainer = edb.distributed.Trainer(net.collect_params(), 'sgd', workers=workers)
    ...     mine = samples[workers.rank::workers.size]
    """

    def __init__(self, store: Optional[mx.kvstore.KVStore]):
        self._store = store
        # By size, a key of the KVStore and its only array: two requests of the engine under one key
        # would be those of two workers for the server. Keys stay small, as MXNet multiplies them.
        self._buffers: dict[int, tuple[int, NDArray]] = {}
        self.rank: int = 0 if store is None else int(os.environ.get(RANK, store.rank))
        self.size: int = 1 if store is None else store.num_workers

    def __enter__(self) -> 'Workers':
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if self._store is None:
            return
        if error is None:
            store, self._store = self._store, None
            self._buffers.clear()
            kvstore.free(store)
        elif isinstance(error, SystemExit):
            self.fail(error.code if isinstance(error.code, int) else 1)
        else:
            traceback.print_exception(kind, error, trace)
            self.fail(1)

    def __repr__(self) -> str:
        return f'Workers(rank={self.rank}, size={self.size})'

    def fail(self, status: int) -> None:
        """End this process immediately with a status, if the job has other workers.

        MXNet would wait, at exit, for gradients that no other worker sends any more.

        Parameters
        ----------
        status : int
            Exit status, not 0.
        """
        if self._store is not None:
            _end_now(status or 1)

    def barrier(self) -> None:
        """Wait until all workers have called this method."""
        if self._store is not None:
            kvstore.barrier(self._store)

    def sum(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Sum arrays over all workers, in one exchange; does not wait for it.

        Parameters
        ----------
        arrays : sequence of NDArray
            Arrays of equal shapes on all workers, on a CPU or GPU. They are sent and summed as
            float32: MXNet's server may round other dtypes.

        Returns
        -------
        list of NDArray
            Views, float32 on the CPU, which the next call with arrays of the same total size
            overwrites.
        """
        if self._store is None:
            return list(arrays)
        ends = np.cumsum([array.size for array in arrays]).tolist()
        size = ends[-1]
        if size not in self._buffers:
            self._buffers[size] = len(self._buffers), mx.nd.zeros(size, mx.cpu())
            self._store.init(*self._buffers[size])
        key, buffer = self._buffers[size]
        parts = [buffer[end - array.size : end] for array, end in zip(arrays, ends)]
        for part, array in zip(parts, arrays):
            part[:] = array.reshape(-1).astype(np.float32, copy=False)
        self._store.pushpull(key, buffer, out=buffer)
        return [part.reshape(array.shape) for part, array in zip(parts, arrays)]

    def sum_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """Sum a NumPy array over all workers, and wait for the result.

        Parameters
        ----------
        numbers : numpy.ndarray
            Numbers of any dtype, at least one, with one shape on all workers. They are sent and
            summed as float32, in which integers are exact up to 2**24.

        Returns
        -------
        numpy.ndarray
            Sum of this shape and dtype, equal on all workers; a single process gets `numbers`
            itself.
        """
        if self._store is None:
            return numbers
        (total,) = self.sum([mx.nd.array(numbers, dtype=np.float32)])
        return total.asnumpy().astype(numbers.dtype)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Concatenate rows of all workers, in the order of their ranks, and wait for the result.

        Parameters
        ----------
        rows : numpy.ndarray
            (n, ...), where n may differ from worker to worker; sent as float32.

        Returns
        -------
        numpy.ndarray
            (sum of all n, ...), equal on all workers.
        """
        if self._store is None:
            return rows
        counts = np.zeros(self.size, np.float64)
        counts[self.rank] = len(rows)
        ends = np.cumsum(self.sum_numbers(counts)).astype(int)
        joined = np.zeros((rounded(max(1, int(ends[-1]))), *rows.shape[1:]), rows.dtype)
        joined[ends[self.rank] - len(rows) : ends[self.rank]] = rows
        return self.sum_numbers(joined)[: ends[-1]]


def _give_up() -> NoReturn:
    where = ':'.join(os.environ.get(f'DMLC_PS_ROOT_{part}', '?') for part in ('URI', 'PORT'))
    print(
        f'gluon_edbatch.distributed: the job did not come together within {_CONNECTING:g} s: is '
        f'the scheduler at {where} reachable from here, and are all workers and servers started?',
        file=sys.stderr,
    )
    _end_now(1)


def _end_now(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
