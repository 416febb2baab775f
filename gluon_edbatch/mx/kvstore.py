"""Access to a KVStore between processes beyond its public interface."""

import ctypes

import mxnet as mx
from mxnet.base import _LIB, check_call


def free(store: mx.kvstore.KVStore) -> None:
    """Wait for all workers and disconnect; the store must not be used afterwards.

    MXNet disconnects when Python deletes the object: never, or after the engine is gone, which
    aborts the process.
    """
    mx.nd.waitall()
    check_call(_LIB.MXKVStoreSetBarrierBeforeExit(store.handle, ctypes.c_int(True)))
    check_call(_LIB.MXKVStoreFree(store.handle))
    store.handle = None  # MXNet frees no handle that is None


def barrier(store: mx.kvstore.KVStore) -> None:
    """Wait until all workers have called this function."""
    store._barrier()
