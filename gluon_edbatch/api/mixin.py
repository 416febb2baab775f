"""The mixin of models that are written for one sample."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Optional, Union

from gluon_edbatch_core.errors import SampleError
from gluon_edbatch_core.schedule import Scheduler

from ..mx.parameters import context_of
from ..record import hooks
from ..record.refused import model_codes, refused_eagerly
from .concurrent import run_samples, suspension_of
from .eagerly import eagerly
from .functional import forward
from .reuse import Reuse
from .scope import DEFAULT_SCHEDULER, batching
from .suspended import code_of, without_reads


class AutoBatchMixin:
    """Make a Gluon model for one sample batchable: ``class Net(edb.AutoBatchMixin, gluon.Block)``.

    Inside `batching` the model's calls are recorded and batched. Outside, ``net(x)`` runs eagerly,
    one sample at a time, which helps debugging. Its blocks accept Python numbers and NumPy arrays
    in both cases, and so they do in `run_concurrently`. In other methods that are called outside a
    scope, such as ``net.encode(x)``, blocks accept what Gluon accepts.
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
        """Run the model on many samples, in batches, and return its results.

        Where the model reads values (``asnumpy``, ``if``), a sample is suspended until the others
        wait, too, if its code shows that no sample can see it. Otherwise samples run one after the
        other. So they do with `reuse`. Within an outer scope, the calls have a scope of their own.

        Parameters
        ----------
        samples : iterable
            Arguments of the model, one for each sample.
        scheduler : str or Scheduler
            Which calls run together: see `batching`.
        unpack : bool, default False
            Whether samples are tuples of arguments.
        keys : iterable, optional
            A key for each sample, under which its recording is kept. Needs `reuse`.
        reuse : Reuse, optional
            Keeps the recordings of samples.

        Returns
        -------
        list
            What the model returns for each sample, with ordinary NDArrays.

        Raises
        ------
        ValueError
            If only one of `keys` and `reuse` is given, or there are not as many keys as samples.
        """
        if (keys is None) != (reuse is None):
            raise ValueError('batch() takes keys and reuse together')
        arguments = [sample if unpack else (sample,) for sample in samples]
        with batching(scheduler):
            if keys is None or reuse is None:
                results = self._run(arguments)
            else:
                keys = list(keys)
                if len(keys) != len(arguments):
                    raise ValueError(f'{len(keys)} keys for {len(arguments)} samples')
                results = [reuse(key, self, *args) for key, args in zip(keys, arguments)]
        return forward(results)

    def _run(self, samples: Sequence[tuple]) -> list[Any]:
        """Return the results of all samples, which take turns where they read values."""
        suspension, evaluator = suspension_of(self, samples), hooks.current_recording().evaluator
        if suspension is None:
            read_before = len(evaluator.forced)
            results = [self(*args) for args in samples]
            if len(evaluator.forced) > read_before:
                without_reads.discard(code_of(self))
            return results

        def call_with_arguments(args: tuple) -> Any:
            return self(*args)

        try:
            if all([len(args) == 1 for args in samples]):
                return run_samples(self, [args[0] for args in samples], suspension=suspension)
            return run_samples(call_with_arguments, samples, suspension=suspension)
        except SampleError as failed:
            error = failed.__cause__
        assert error is not None
        raise error  # as without batching


model_codes.add(AutoBatchMixin.__call__.__code__)
