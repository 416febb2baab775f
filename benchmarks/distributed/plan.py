"""Predict what many workers would reach, from measurements of few."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gluon_edbatch.data import BalancedSampler, idle_share

__all__ = ['WORKERS', 'Costs', 'costs_of', 'plan']

WORKERS = (2, 8, 16, 32, 64, 128, 256)
LATENCY = 0.2e-3  # seconds from worker to server and back, in one room


class Costs(NamedTuple):
    """Costs that were measured on one machine."""

    sample_s: float  # forward and backward of a sample, and its part of an update
    step_s: float  # what a step takes besides: the update
    bytes_a_step: int  # that a worker sends
    sum_bytes_per_s: float  # that a server takes in, adds up and gives out


def costs_of(alone: dict[str, Any], together: dict[str, Any]) -> Costs:
    """Return the costs from a row of one worker and a row of several."""
    moved = together['workers'] * together['bytes_a_step']
    return Costs(
        alone['compute_ms'] / 1e3 / alone['batch_size'],
        alone['update_ms'] / 1e3,
        together['bytes_a_step'],
        moved / max(1e-9, together['server_ms'] / 1e3),
    )


def plan(
    costs: Costs, batch_size: int, sample_costs: Sequence[float], gigabits: float
) -> list[dict[str, float]]:
    """Return rows for numbers of workers, with a server beside each.

    A step takes the slowest worker's minibatch, the update, and the exchange: as long as a worker's
    link, a server's link, or a server's adding up takes, whichever is longest. Servers share the
    bytes, and workers do nothing meanwhile.
    """
    rows = []
    bytes_per_s = gigabits * 1e9 / 8
    for workers in WORKERS:
        # Costs as those of the data set, often enough for an epoch of some steps.
        count = max(len(sample_costs), 10 * workers * batch_size)
        many = np.resize(np.asarray(sample_costs, float), count)
        sampler = BalancedSampler(many, batch_size, num_workers=workers)
        idle = idle_share(sampler)
        compute = batch_size * costs.sample_s / (1 - idle)
        link = 2 * costs.bytes_a_step / bytes_per_s
        adding = costs.bytes_a_step / costs.sum_bytes_per_s  # of W workers, by W servers
        exchange = max(link, adding) + 2 * LATENCY
        step = compute + costs.step_s + exchange
        rows.append(
            {
                'workers': workers,
                'idle_share': idle,
                'compute_ms': 1e3 * compute,
                'link_ms': 1e3 * link,
                'server_ms': 1e3 * adding,
                'step_ms': 1e3 * step,
                'samples_per_s': workers * batch_size / step,
                'efficiency': (batch_size * costs.sample_s + costs.step_s) / step,
            }
        )
    return rows
