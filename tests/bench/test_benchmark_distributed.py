"""benchmarks/distributed/__main__.py measures what it says."""

import json
import sys

import numpy as np
import pytest

from benchmarks.distributed.plan import WORKERS, Costs, costs_of, plan
from benchmarks.distributed.worker import summary
from tests.support.processes import ROOT, run


def test_a_small_run(tmp_path):
    rows, picture = tmp_path / 'rows.jsonl', tmp_path / 'workers.png'
    options = '--batch-sizes 16 --epochs 1 --hidden 8 --embed 6'
    done = run(
        [sys.executable, '-m', 'benchmarks.distributed', *options.split()]
        + ['--json', rows, '--plot', picture],
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(row['workers'], row['shards']) for row in found] == [
        (1, 'balanced'),
        (2, 'balanced'),
        (2, 'random'),
    ]
    assert all(row['samples_per_s'] > 0 and row['compute_ms'] > 0 for row in found)
    assert found[1]['predicted_idle'] < 0.01 < found[2]['predicted_idle']
    assert found[1]['bytes_a_step'] == found[0]['bytes_a_step'] > 4000
    assert 'times as fast as one' in done.stdout and 'on paper: 16 samples a worker' in done.stdout
    assert picture.read_bytes().startswith(b'\x89PNG')


def test_who_is_faster_waits():
    parts = np.zeros((2, 3, 4))
    parts[0, :, 0], parts[1, :, 0] = [1, 2, 3], [2, 1, 3]
    parts[:, :, 2] = 1
    parts[0, :, 1], parts[1, :, 1] = [1, 0, 0], [0, 1, 0]
    found = summary(parts)
    assert found['idle_share'] == found['idle_share_of_the_faster'] == pytest.approx(1 / 10)
    assert found['compute_ms'] == 2000 and found['exchange_ms'] == 1000
    parts[1, :, 0] = 3
    found = summary(parts)
    assert found['idle_share_of_the_faster'] > found['idle_share'] > 0.1


def test_what_is_on_paper():
    """Twice the bytes or half the network, and the link takes twice as long."""
    alone = dict(compute_ms=10.0, batch_size=100, update_ms=2.0)
    together = dict(workers=2, bytes_a_step=10**6, server_ms=4.0)
    costs = costs_of(alone, together)
    assert costs == Costs(1e-4, 2e-3, 10**6, 5e8)
    sample_costs = np.random.RandomState(0).randint(10, 60, 4000)
    rows = plan(costs, 25, sample_costs, gigabits=10)
    assert [row['workers'] for row in rows] == list(WORKERS)
    assert rows[0]['link_ms'] == pytest.approx(1.6) and rows[0]['server_ms'] == pytest.approx(2.0)
    slower = plan(costs, 25, sample_costs, gigabits=1)
    assert slower[0]['link_ms'] == pytest.approx(16)
    assert slower[0]['step_ms'] - rows[0]['step_ms'] == pytest.approx(14)
    assert all(0 < row['efficiency'] < 1 for row in rows)
    assert rows[-1]['samples_per_s'] > 50 * rows[0]['samples_per_s']
