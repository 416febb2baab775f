"""Measure the speed of one system on one workload.

One rule holds for every system. A repeat is a stream of minibatches, as in a training loop or a
server, with one wait at its end. So Python may prepare a minibatch while the one before it runs.
The clock runs from samples in memory to the last result or update. Every repeat draws other
minibatches, in an order that the seed alone decides. What a minibatch costs by phase comes from
separate steps that wait after each phase, afterwards. ``cpu_ms`` is the processor time of a
minibatch over all threads in the timed repeats: what a busy machine disturbs least.
"""

import time
from collections.abc import Iterator
from statistics import mean, median
from typing import Any, Optional

import numpy as np

from .contexts import context
from .gemm import best_rate
from .machine import machine_info, peak_rss_mb
from .output import rounded
from .settings import Settings
from .systems import Phases, build_system
from .workloads import load_workload

__all__ = ['Measurement']

FIRST = 16  # samples of the first minibatch of a process
WARM_UP = 3  # minibatches after it, at least
PHASE_STEPS = 5
SLOW_SECONDS = 2.0  # a step that takes longer is not repeated for its own sake
ENOUGH = 3, 60.0  # after so many repeats, and seconds in them, a slow system is let off


class Measurement:
    """Measure one system in this process: prepare it, run repeats, then return its row.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings):
        self.settings = settings
        self.workload = load_workload(settings)
        self.rate = self._best_rate()
        self.system = build_system(self.workload, settings)
        self.minibatches = 1
        self.first_ms = 0.0
        self.speeds: list[float] = []
        self.cpu_ms: list[float] = []
        self.spent = 0.0

    def warm_up(self) -> None:
        """Run first steps, which compile, allocate and learn; then decide how long a repeat is.

        They take as long as a repeat does, so that a policy is learned before its speed counts.
        """
        settings, stream = self.settings, self._stream(-1)
        self.first_ms = 1e3 * self._run([next(stream)[:FIRST]])
        self.system.remember(self.workload.samples)
        steps: list[float] = []
        while len(steps) < WARM_UP or sum(steps) < settings.seconds:
            steps.append(self._run([next(stream)]))
            if steps[-1] > SLOW_SECONDS:
                break
        fastest = min(steps)  # which has no collection of Python's garbage in it
        self.minibatches = settings.minibatches or max(1, round(settings.seconds / fastest))

    def repeat(self, number: int) -> None:
        """Time one repeat, unless enough have been timed."""
        if len(self.speeds) >= ENOUGH[0] and self.spent > ENOUGH[1]:
            return
        speed, cpu_ms = self.timed(number)
        self.speeds.append(speed)
        self.cpu_ms.append(cpu_ms)
        self.spent += self.minibatches * self.settings.batch_size / speed

    def timed(self, number: int) -> tuple[float, float]:
        """Return samples a second, and ms of processor time a minibatch, of a repeat's
        minibatches."""
        stream = self._stream(number)
        minibatches = [next(stream) for _ in range(self.minibatches)]
        self.system.wait()
        cpu = time.process_time()
        seconds = self._run(minibatches)
        cpu_ms = 1e3 * (time.process_time() - cpu) / self.minibatches
        return sum(map(len, minibatches)) / seconds, cpu_ms

    def row(self) -> dict[str, Any]:
        """Return all figures of the measurement, by name."""
        settings, stream = self.settings, self._stream(-2)
        peak = peak_rss_mb()
        slow = settings.batch_size / median(self.speeds) > SLOW_SECONDS
        minibatches = [next(stream) for _ in range(1 if slow else PHASE_STEPS)]
        phases = [self.system.phases(minibatch) for minibatch in minibatches]
        self.rate = max(self.rate, self._best_rate())
        samples = self.workload.samples
        training = settings.mode == 'train'
        bound = self.rate * len(samples) / self.workload.flops(samples, training)
        speed = median(self.speeds)
        return {
            'workload': settings.workload,
            'mode': settings.mode,
            'batch_size': settings.batch_size,
            'hidden': settings.hidden,
            'embed': settings.embed,
            'scheduler': settings.system,
            'threads': settings.threads,
            'samples_per_s': rounded(speed),
            'samples_per_s_min': rounded(min(self.speeds)),
            'samples_per_s_max': rounded(max(self.speeds)),
            **_phase_fields(phases),
            'gemm_gflops': rounded(self.rate / 1e9),
            'gemm_bound_samples_per_s': rounded(bound),
            'efficiency': rounded(speed / bound),
            'peak_rss_mb': rounded(peak),
            'first_minibatch_ms': rounded(self.first_ms),
            'cpu_ms': rounded(median(self.cpu_ms)),
            'levels': mean(map(self.workload.levels, minibatches)),
            'repeat': len(self.speeds),
            'minibatches': self.minibatches,
            'seed': settings.seed,
            'optimizer': settings.optimizer if training else None,
            'ctx': settings.ctx,
            'data': settings.data or 'embedded',
            **machine_info(),
        }

    def _run(self, minibatches: list[list[Any]]) -> float:
        """Return the seconds for a stream of minibatches."""
        self.system.wait()
        begin = time.perf_counter()
        for minibatch in minibatches:
            self.system.step(minibatch)
        self.system.wait()
        return time.perf_counter() - begin

    def _stream(self, number: int) -> Iterator[list[Any]]:
        """Yield minibatches without end, drawn without replacement as long as there are enough
        samples."""
        samples, size = self.workload.samples, self.settings.batch_size
        rng = np.random.RandomState([self.settings.seed, number + 2])
        pool: list[int] = []
        while True:
            while len(pool) < size:
                pool += rng.permutation(len(samples)).tolist()
            yield [samples[i] for i in pool[:size]]
            del pool[:size]

    def _best_rate(self) -> float:
        shapes = self.workload.products(self.workload.samples[:1])
        return best_rate(shapes, context(self.settings.ctx), min(0.02, self.settings.seconds / 50))


def _phase_fields(phases: list[Phases]) -> dict[str, Any]:
    """Return medians of times and means of counts."""
    fields: dict[str, Any] = {}
    for name in ('nodes', 'batches', 'lower_bound'):
        fields[name] = _over(mean, phases, name, 6)
    for name in ('record_ms', 'schedule_ms', 'execute_ms', 'backward_ms', 'update_ms'):
        fields[name] = _over(median, phases, name)
    per_call = [
        Phases(record_ms=1e3 * step.record_ms / step.nodes)
        for step in phases
        if step.record_ms is not None and step.nodes
    ]
    fields['record_us_per_call'] = _over(median, per_call, 'record_ms')
    fields['types'] = [dict(zip(('name', 'calls', 'batches'), kind)) for kind in phases[-1].types]
    return fields


def _over(summary, phases: list[Phases], name: str, digits: int = 4) -> Optional[float]:
    values = [getattr(step, name) for step in phases]
    return None if not values or values[0] is None else rounded(summary(values), digits)
