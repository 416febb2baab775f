"""The end of a KVStore between processes, about which MXNet has nothing in public."""

import ctypes

import mxnet as mx
from mxnet.base import _LIB, check_call


def free(store: mx.kvstore.KVStore, wait: bool) -> None:
    """Disconnect now, as long as MXNet is whole; the store is not to be used afterwards.

    MXNet itself does so when Python deletes the object, which may be never, or after the engine is
    gone: then the process aborts. `wait` is for all other workers, at which the servers end; who
    failed must not wait.
    """
    mx.nd.waitall()
    check_call(_LIB.MXKVStoreSetBarrierBeforeExit(store.handle, ctypes.c_int(wait)))
    check_call(_LIB.MXKVStoreFree(store.handle))
    store.handle = None  # MXNet frees no handle that is None


def barrier(store: mx.kvstore.KVStore) -> None:
    """Wait until all workers are here."""
    store._barrier()
