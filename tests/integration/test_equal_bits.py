"""A program gives equal bits in every process, beside a busy one, too."""

import subprocess
import sys

import pytest

from tests.support.processes import ROOT, run_python

TRAIN = """
import hashlib, sys
from benchmarks.settings import Settings
from benchmarks.systems import BatchedSystem
from benchmarks.workloads import WORKLOADS, load_workload
import mxnet as mx, numpy as np

for name in WORKLOADS:
    settings = Settings(name, 'train', 'fsm', batch_size=8, hidden=16, embed=16)
    mx.random.seed(0)
    np.random.seed(0)
    workload = load_workload(settings)
    system = BatchedSystem(workload, settings)
    bits, samples = hashlib.sha256(), workload.samples
    for step in range(10):
        begin = step * 8 % max(len(samples) - 8, 1)
        bits.update(system.train(samples[begin : begin + 8]).asnumpy().tobytes())
    for parameter in system.net.collect_params().values():
        bits.update(parameter.data().asnumpy().tobytes())
    print(name, bits.hexdigest())
"""
BUSY = 'while True: sum(range(10**6))'


@pytest.mark.slow
def test_ten_steps_of_each_workload_in_twenty_processes():
    found = set()
    for number in range(20):
        busy = subprocess.Popen([sys.executable, '-c', BUSY]) if number % 3 == 2 else None
        try:
            found.add(run_python('-W', 'ignore', '-c', TRAIN, cwd=ROOT).stdout)
        finally:
            if busy is not None:
                busy.kill()
                busy.wait()
    (lines,) = found
    assert len(lines.splitlines()) > 15
