"""The mixin of per-sample models."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Optional, Union

import mxnet as mx
from mxnet.ndarray import NDArray

from ..mx.parameters import context_of
from ..record import hooks
from ..record.refused import model_codes, refused_eagerly
from ..schedule import Scheduler
from .functional import as_arrays, forward
from .reuse import Reuse
from .scope import DEFAULT_SCHEDULER, batching


class AutoBatchMixin:
    """For Gluon models written for one sample: ``class Net(edb.AutoBatchMixin, gluon.Block)``.

    Inside `batching` their calls are recorded and batched. Outside, ``net(x)`` runs eagerly, one
    sample at a time, and its blocks accept the same arguments, Python numbers and NumPy arrays
    included: eager Gluon is the debugger. `run_concurrently` does the same. In other methods that
    are called outside of a scope, such as ``net.encode(x)``, blocks accept what Gluon accepts.
    """

    def __call__(self, *args: Any) -> Any:
        """Run the model on one sample."""
        if hooks.current_recording() is not None or hooks.local.eager:
            return super().__call__(*args)  # type: ignore[misc]  # of gluon.Block
        try:
            with eagerly(context_of(self)):
                return super().__call__(*args)  # type: ignore[misc]  # of gluon.Block
        except Exception as error:
            message = refused_eagerly(error, error.__traceback__)
            if message is None:
                raise
            raise TypeError(message) from error

    def batch(
        self,
        samples: Iterable[Any],
        scheduler: Union[str, Scheduler] = DEFAULT_SCHEDULER,
        unpack: bool = False,
        keys: Optional[Iterable[Hashable]] = None,
        reuse: Optional[Reuse] = None,
    ) -> list[Any]:
        """The results for many samples, computed in batches.

        Parameters
        ----------
        samples : iterable
            One argument of the model each.
        scheduler : str or Scheduler
            See `batching`.
        unpack : bool, default False
            Samples are tuples of arguments.
        keys : iterable, optional
            A key for each sample, to use again what it recorded; only with `reuse`.
        reuse : Reuse, optional
            Where that is kept.

        Returns
        -------
        list
            What the model returns for each sample, with ordinary NDArrays.

        Raises
        ------
        ValueError
            If `keys` are given without `reuse` or `reuse` without them, or not as many as samples.
        """
        if (keys is None) != (reuse is None):
            raise ValueError('batch() takes keys and reuse together')
        arguments = [sample if unpack else (sample,) for sample in samples]
        with batching(scheduler):
            if keys is None or reuse is None:
                results = [self(*args) for args in arguments]
            else:
                keys = list(keys)
                if len(keys) != len(arguments):
                    raise ValueError(f'{len(keys)} keys for {len(arguments)} samples')
                results = [reuse(key, self, *args) for key, args in zip(keys, arguments)]
        return forward(results)


model_codes.add(AutoBatchMixin.__call__.__code__)


class eagerly:
    """While a mixin model runs eagerly, calls of HybridBlocks take numbers and NumPy arrays."""

    def __init__(self, ctx: Optional[mx.Context]) -> None:
        self._ctx = ctx

    def __enter__(self) -> None:
        hooks.install(self)
        hooks.local.eager = self._convert

    def __exit__(self, *_: Any) -> None:
        hooks.local.eager = None
        try:
            hooks.remove(self)
        except BaseException:
            hooks.remove(self)
            raise

    def _convert(self, args: Sequence[Any]) -> Sequence[Any]:
        if all(isinstance(arg, NDArray) for arg in args):
            return args
        return as_arrays(args, self._ctx)
