"""Run a workload in batches by gluon_edbatch, eagerly, or as a rival."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
from mxnet import autograd, gluon

from .settings import BATCHED, EAGER, Settings, scheduler_of
from .workloads import Workload, check_rival

__all__ = ['Phases', 'System', 'build_system']


class Phases(NamedTuple):
    """Times and counts of one step, with a wait after each phase; None if it does not apply.

    Parameters
    ----------
    record_ms, schedule_ms, execute_ms, backward_ms, update_ms : float
        Recording of user code; choosing batches (or index arithmetic by hand); the rest of the
        forward pass; the backward pass; the optimizer.
    nodes, batches, lower_bound : int
        Recorded calls, batches they ran in, and the fewest possible.
    types : tuple
        (name, calls, batches) of each type.
    """

    record_ms: Optional[float] = None
    schedule_ms: Optional[float] = None
    execute_ms: Optional[float] = None
    backward_ms: Optional[float] = None
    update_ms: Optional[float] = None
    nodes: Optional[int] = None
    batches: Optional[int] = None
    lower_bound: Optional[int] = None
    types: tuple = ()


class System(ABC):
    """A way to run a workload. Nothing of a minibatch may outlive its step."""

    def __init__(self, workload: Workload, settings: Settings):
        self.workload = workload
        self.training = settings.mode == 'train'

    def step(self, samples: Sequence[Any]) -> Any:
        """Train on samples, or predict for them. Does not wait for the result."""
        return self.train(samples) if self.training else self.predict(samples)

    @abstractmethod
    def train(self, samples: Sequence[Any]) -> Any:
        """Update the parameters once; return the loss."""

    @abstractmethod
    def predict(self, samples: Sequence[Any]) -> Any:
        """Return outputs for all samples."""

    @abstractmethod
    def phases(self, samples: Sequence[Any]) -> Phases:
        """Run a step again, phase by phase."""

    def remember(self, samples: Sequence[Any]) -> None:
        """Record samples for replay in later epochs, before anything is timed."""

    def wait(self) -> None:
        """Wait until all queued work is done."""
        mx.nd.waitall()


class GluonSystem(System):
    """The common part of the two ways to run the per-sample Gluon model."""

    def __init__(self, workload: Workload, settings: Settings):
        super().__init__(workload, settings)
        self.net, self.loss = workload.build()
        self.trainer = gluon.Trainer(
            self.net.collect_params(),
            settings.optimizer,
            {'learning_rate': settings.learning_rate},
            kvstore=None,
        )

    def train(self, samples: Sequence[Any]) -> mx.nd.NDArray:
        loss = self.mean_loss(samples)
        loss.backward()
        self.trainer.step(1, ignore_stale_grad=True)
        return loss

    @abstractmethod
    def mean_loss(self, samples: Sequence[Any]) -> mx.nd.NDArray:
        """Return the mean loss of a minibatch's samples, on autograd's tape."""

    def _timed(self, samples: Sequence[Any]) -> dict[str, float]:
        """Return wall-clock ms of the forward pass, and in training of what follows it."""
        clock = _Clock(self.wait)
        if not self.training:
            result = self.predict(samples)
            forward = clock.lap()
            del result
            return dict(forward=forward)
        loss = self.mean_loss(samples)
        times = dict(forward=clock.lap())
        loss.backward()
        times['backward_ms'] = clock.lap()
        self.trainer.step(1, ignore_stale_grad=True)
        times['update_ms'] = clock.lap()
        return times


class EagerSystem(GluonSystem):
    """Run one sample at a time, as Gluon does."""

    def __init__(self, workload: Workload, settings: Settings):
        super().__init__(workload, settings)
        if settings.system == 'unbatched-hybridized':
            self.net.hybridize()
            self.loss.hybridize()

    def mean_loss(self, samples: Sequence[Any]) -> mx.nd.NDArray:
        with autograd.record():
            losses = self.workload.loss_all(self.net, self.loss, samples, eager=True)
            return mx.nd.concat(*losses, dim=0).sum() / len(losses)

    def predict(self, samples: Sequence[Any]) -> Any:
        return [self.workload.predict(self.net, sample) for sample in samples]

    def phases(self, samples: Sequence[Any]) -> Phases:
        times = self._timed(samples)
        return Phases(execute_ms=times.pop('forward'), **times)


class BatchedSystem(GluonSystem):
    """Run the per-sample model inside ``gluon_edbatch.batching``."""

    def __init__(self, workload: Workload, settings: Settings):
        super().__init__(workload, settings)
        self.net.hybridize()  # of no account but for calls that run at once, as in eager Gluon
        self.loss.hybridize()
        self.scheduler = scheduler_of(settings.system)
        self.scope = None
        self._reuse = None
        if settings.system.endswith('-reuse'):
            import gluon_edbatch as edb

            self._reuse = edb.Reuse()

    def mean_loss(self, samples: Sequence[Any]) -> mx.nd.NDArray:
        import gluon_edbatch as edb

        with autograd.record():
            with edb.batching(scheduler=self.scheduler) as self.scope:
                losses = (
                    self.workload.loss_all(self.net, self.loss, samples, eager=False)
                    if self._reuse is None
                    else [self._recorded(sample, self._loss) for sample in samples]
                )
            return edb.concat(losses).sum() / len(losses)

    def predict(self, samples: Sequence[Any]) -> Any:
        import gluon_edbatch as edb

        with edb.batching(scheduler=self.scheduler) as self.scope:
            outputs = (
                self.workload.predict_all(self.net, samples)
                if self._reuse is None
                else [self._recorded(sample, self._prediction) for sample in samples]
            )
        return edb.forward(outputs)

    def remember(self, samples: Sequence[Any]) -> None:
        """Record what later epochs use again, before anything is timed."""
        if self._reuse is None:
            return
        import gluon_edbatch as edb

        for sample in samples:
            with autograd.record() if self.training else autograd.pause():
                with edb.batching(scheduler=self.scheduler):
                    self._recorded(sample, self._loss if self.training else self._prediction)

    def _recorded(self, sample: Any, function: Callable[[Any], Any]) -> Any:
        return (
            function(sample) if self._reuse is None else self._reuse(id(sample), function, sample)
        )

    def _loss(self, sample: Any) -> mx.nd.NDArray:
        return self.workload.loss(self.net, self.loss, sample, eager=False)

    def _prediction(self, sample: Any) -> Any:
        return self.workload.predict(self.net, sample)

    def phases(self, samples: Sequence[Any]) -> Phases:
        times = self._timed(samples)
        report = self.scope.report()
        execute = times.pop('forward') - report.record_ms - report.schedule_ms
        types = tuple((kind.name, kind.calls, kind.batches) for kind in report.types)
        return Phases(
            record_ms=report.record_ms,
            schedule_ms=report.schedule_ms,
            execute_ms=execute,
            nodes=report.nodes,
            batches=report.batches,
            lower_bound=report.lower_bound,
            types=types,
            **times,
        )


class RivalSystem(System):
    """Run the model written without gluon_edbatch: batched by hand, or plain."""

    def __init__(self, workload: Workload, settings: Settings):
        super().__init__(workload, settings)
        check_rival(settings)
        self.rival = workload.rival(settings.system)

    def train(self, samples: Sequence[Any]) -> Any:
        loss = self.rival.loss(self.rival.plan(samples), samples)
        self.rival.backward(loss)
        self.rival.update()
        return loss

    def predict(self, samples: Sequence[Any]) -> Any:
        return self.rival.predict(self.rival.plan(samples))

    def wait(self) -> None:
        self.rival.wait()

    def phases(self, samples: Sequence[Any]) -> Phases:
        clock = _Clock(self.wait)
        plan = self.rival.plan(samples)
        times = dict(schedule_ms=clock.lap(), batches=self.rival.batches(plan))
        if not self.training:
            result = self.rival.predict(plan)
            times['execute_ms'] = clock.lap()
            del result
            return Phases(**times)
        loss = self.rival.loss(plan, samples)
        times['execute_ms'] = clock.lap()
        self.rival.backward(loss)
        times['backward_ms'] = clock.lap()
        self.rival.update()
        times['update_ms'] = clock.lap()
        return Phases(**times)


class _Clock:
    """Measure milliseconds between calls, each after a wait."""

    def __init__(self, wait):
        self._wait = wait
        self.lap()

    def lap(self) -> float:
        self._wait()
        now = time.perf_counter()
        passed = 1e3 * (now - getattr(self, '_begin', now))
        self._begin = now
        return passed


def build_system(workload: Workload, settings: Settings) -> System:
    """Return the system that the settings name."""
    kind = (
        EagerSystem
        if settings.system in EAGER
        else BatchedSystem
        if settings.system in BATCHED
        else RivalSystem
    )
    return kind(workload, settings)
