"""Compare batches, schedules and results of the workloads with those of an earlier commit.

    python -m benchmarks replay HEAD~1
    python -m benchmarks replay f987f80 --workloads lattice-lstm treelstm-sick

Each workload runs its first minibatches. A commit that only moves code leaves all of them as they
were, bit by bit; after another, this shows what changed. Both sides run from their sources, with
this interpreter. The exit status is 1 if something differs.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ..commits import ROOT, add_commit_arguments, check_workloads, start, write_commit

_PROGRAM = """
import hashlib, json
import gluon_edbatch as edb
import mxnet as mx, numpy as np
load = import_module(package + '.workloads').load_workload
System = import_module(package + '.systems').BatchedSystem

def digest(arrays):
    return hashlib.sha256(b''.join(array.asnumpy().tobytes() for array in arrays)).hexdigest()[:16]

def flat(values):
    if isinstance(values, (list, tuple)):
        return [array for value in values for array in flat(value)]
    return [values if isinstance(values, mx.nd.NDArray) else mx.nd.array(np.asarray(values))]

for name, mode in json.loads(sys.argv[2]):
    mx.random.seed(0)
    np.random.seed(0)
    settings = Settings(name, mode, 'fsm', batch_size=8, hidden=16, embed=16)
    workload = load(settings)
    system = System(workload, settings)
    for number in range(3):
        samples = workload.samples[8 * number : 8 * number + 8]
        with edb.compile_options(at_once=False):
            values = system.step(samples)
        found = {'results': digest(flat(values))}
        if mode == 'train':
            parameters = system.net.collect_params().values()
            found['parameters'] = digest([each.data() for each in parameters])
        for place, (graph, schedule) in enumerate(system.scope.schedules()):
            names = [graph.type_names[graph.types[batch[0]]] for batch in schedule]
            found[f'batches of evaluation {place}'] = [
                f'{kind} x {len(batch)}' for kind, batch in zip(names, schedule)
            ]
            order = hashlib.sha256(schedule.order.tobytes() + schedule.bounds.tobytes())
            found[f'schedule of evaluation {place}'] = order.hexdigest()[:16]
        print(json.dumps([f'{name} {mode} minibatch {number}', found]), flush=True)
"""


def run(options: argparse.Namespace) -> int:
    """Replay workloads with both commits and compare results; return the exit status."""
    check_workloads(options.workloads)
    cells = [[name, mode] for name in options.workloads for mode in ('infer', 'train')]
    with tempfile.TemporaryDirectory() as folder:
        write_commit(options.commit, Path(folder))
        sides = [_started(root, cells) for root in (Path(folder), ROOT)]
        before, now = (_answers(side) for side in sides)
    differing = [line for name in now for line in _differences(name, before.get(name), now[name])]
    print('\n'.join([*differing, f'{len(now)} minibatches, {len(differing)} differences']))
    return int(bool(differing) or set(before) != set(now))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks replay``."""
    add_commit_arguments(parser)


def _started(root: Path, cells: list[Any]) -> subprocess.Popen:
    return start(root, _PROGRAM, json.dumps(cells), OMP_NUM_THREADS='1', GLUON_EDBATCH_COMPILED='0')


def _answers(side: subprocess.Popen) -> dict[str, dict[str, Any]]:
    output, _ = side.communicate()
    if side.returncode:
        raise ValueError(f'a side ended with status {side.returncode}')
    return dict(json.loads(line) for line in output.splitlines())


def _differences(name: str, before: Any, now: dict[str, Any]) -> list[str]:
    """Return lines that tell what differs in a minibatch."""
    if before is None:
        return [f'{name}: was not there']
    found = []
    for what in {**before, **now}:
        old, new = before.get(what), now.get(what)
        if old != new and isinstance(old, list) and isinstance(new, list):
            found.append(f'{name}: {what}: {len(old)} before, {len(new)} now')
        elif old != new:
            found.append(f'{name}: {what}')
    return found
