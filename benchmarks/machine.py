"""Describe the machine of a measurement. Needs nothing but the standard library."""

import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

__all__ = ['machine_info', 'peak_rss_mb', 'set_threads', 'use_cpus']


def set_threads(threads: int) -> None:
    """Set operators' threads, for libraries that are not loaded yet."""
    for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
        os.environ[name] = str(threads)


def use_cpus(count: int) -> None:
    """Keep this process, and those it starts, to `count` of the processors it may use."""
    if not hasattr(os, 'sched_setaffinity'):
        raise ValueError('--cpus: this system cannot keep a process to some processors')
    available = sorted(os.sched_getaffinity(0))
    if count > len(available):
        raise ValueError(f'--cpus {count}: this process may use {len(available)}')
    os.sched_setaffinity(0, available[-count:])


def machine_info() -> dict[str, Any]:
    """Return the processor, how many of them this process may use, and versions of loaded
    libraries."""
    info = {'cpu': _cpu_model(), 'cpus': _cpu_count(), 'python': platform.python_version()}
    for name in ('mxnet', 'torch'):
        if name in sys.modules:
            info[name] = sys.modules[name].__version__
    return info


def peak_rss_mb() -> float:
    """Return the largest resident memory of this process so far."""
    try:  # getrusage would count the process that started this one
        for line in Path('/proc/self/status').read_text().splitlines():
            if line.startswith('VmHWM:'):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _cpu_model() -> str:
    try:
        for line in Path('/proc/cpuinfo').read_text().splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cpu_count() -> int:
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
