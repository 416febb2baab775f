"""Measure one worker of a job while it trains the Tree-LSTM on SICK."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd

import gluon_edbatch as edb
from example.common.options import parse
from example.common.run import Run
from example.tree_lstm.task import SICKTask
from gluon_edbatch.data import idle_share
from gluon_edbatch.distributed import Workers, connect

__all__ = ['sample_costs', 'work']

TICKS = os.sysconf('SC_CLK_TCK')


def work(settings: dict[str, Any]) -> None:
    """Train with `settings`; the first worker writes the measurements as a line of JSON.

    Epochs are timed as they are; one more is timed in parts, with all workers waiting for each
    other before they exchange gradients.
    """
    options, _ = parse(SICKTask, settings['arguments'])
    with connect(settings['kvstore']) as workers:
        run = Run(SICKTask, options, workers=workers)
        run.train_epoch(1)  # compiles, and learns how to schedule
        speeds, began = [], server_seconds()
        for epoch in range(2, 2 + settings['epochs']):
            workers.barrier()
            speeds.append(run.train_epoch(epoch)[1])
        steps = len(run.sampler) * settings['epochs']
        served = (server_seconds() - began) / steps
        parts = timed_parts(run, 2 + settings['epochs'])
        gathered = workers.gather(parts[np.newaxis])
        if workers.rank == 0:
            row = {
                'workers': workers.size,
                'servers': settings['servers'],
                'shards': options.shards,
                'batch_size': options.batch_size,
                'samples_per_s': float(np.median(speeds)),
                'speeds': [round(speed, 1) for speed in speeds],
                **summary(gathered),
                'server_ms': 1e3 * served,
                'bytes_a_step': bytes_a_step(run),
                'predicted_idle': predicted_idle(run, workers),
                'sample_cost': float(costs(run).mean()),
            }
            Path(settings['out']).write_text(json.dumps(row) + '\n', encoding='utf-8')


def timed_parts(run: Run, epoch: int) -> np.ndarray:
    """Return seconds of forward and backward, of waiting for others, of adding up and of updating:
    (steps, 4)."""
    samples, joined = run.task.samples['train'], run.sampler.joined_sizes
    parts: list[list[float]] = []
    for indices, count in zip(run.sampler.epoch(epoch), joined):
        run.workers.barrier()
        laps = [time.perf_counter()]
        with autograd.record():
            with run.batching():
                losses = run.objective([samples[i] for i in indices])
            loss = edb.concat(losses).sum() / count
        loss.backward()
        mx.nd.waitall()
        laps.append(time.perf_counter())
        run.workers.barrier()
        laps.append(time.perf_counter())
        run.trainer.allreduce_grads(ignore_stale_grad=True)
        mx.nd.waitall()
        laps.append(time.perf_counter())
        run.trainer.update(1, ignore_stale_grad=True)
        mx.nd.waitall()
        laps.append(time.perf_counter())
        parts.append(np.diff(laps).tolist())
    return np.array(parts)


def summary(parts: np.ndarray) -> dict[str, float]:
    """Return milliseconds a step, and shares of time that workers waited, from (workers, steps, 4)
    seconds.

    A worker is idle for as long as the slowest of a step computes longer than it does; `barrier_ms`
    is what waiting takes where nobody is late.
    """
    compute = parts[:, :, 0]
    waited = compute.max(axis=0) - compute
    total = parts.sum(axis=2)
    shares = waited.sum(axis=1) / total.sum(axis=1)
    means = 1e3 * parts.mean(axis=(0, 1))
    return {
        'step_ms': 1e3 * float(total.mean()),
        'compute_ms': float(means[0]),
        'barrier_ms': 1e3 * float(parts[:, :, 1].min(axis=0).mean()),
        'exchange_ms': float(means[2]),
        'update_ms': float(means[3]),
        'idle_share': float(shares.mean()),
        'idle_share_of_the_faster': float(shares.max()),
    }


def sample_costs(data: Optional[str]) -> np.ndarray:
    """Return the number of calls of each training sample of a directory, or of the embedded
    sample."""
    options, _ = parse(SICKTask, ['--hidden', '4', *(['--data', data] if data else [])])
    return costs(Run(SICKTask, options))


def costs(run: Run) -> np.ndarray:
    """Return the number of calls of each sample."""
    return run.task.costs(run.objective, run.task.samples['train'])


def predicted_idle(run: Run, workers: Workers) -> float:
    """Return the share of time that workers wait if all calls take equally long."""
    return idle_share(run.sampler, range(3), costs(run)) if workers.size > 1 else 0.0


def bytes_a_step(run: Run) -> int:
    """Return how many bytes a worker sends to the servers, and gets back, in a step."""
    trained: Sequence[Any] = [
        parameter for parameter in run.net.collect_params().values() if parameter.grad_req != 'null'
    ]
    return sum(4 * int(np.prod(parameter.shape)) for parameter in trained)


def server_seconds() -> float:
    """Return the processor time of this job's servers so far, if they run here."""
    port, seconds = os.environ.get('DMLC_PS_ROOT_PORT'), 0.0
    for directory in Path('/proc').glob('[0-9]*') if port else ():
        try:
            entries = (directory / 'environ').read_bytes().decode().split('\0')
            fields = (directory / 'stat').read_text().rpartition(')')[2].split()
        except OSError:  # it has ended, or is somebody else's
            continue
        if 'DMLC_ROLE=server' in entries and f'DMLC_PS_ROOT_PORT={port}' in entries:
            seconds += (int(fields[11]) + int(fields[12])) / TICKS
    return seconds
