"""Run a task as a program: exit status, final table, and errors in one line."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Optional

import mxnet as mx

from gluon_edbatch.distributed import Workers, connect
from gluon_edbatch_core.errors import DistributedError

from .checkpoint import Checkpoint, CheckpointError
from .errors import DataError, OptionError
from .options import parse
from .run import Run
from .task import Task

__all__ = ['run_program']

_TOLD = (DataError, OptionError, CheckpointError, DistributedError, OSError, FloatingPointError)


def run_program(task: type[Task], arguments: Optional[Sequence[str]] = None) -> int:
    """Train or evaluate as the command line says; return the exit status."""
    try:
        options, found = parse(task, arguments)
        with connect(options.kvstore) as workers:
            with _first_speaks(workers):
                status = _run(task, options, found, workers)
            if status:
                workers.fail(status)  # the others wait for it, and it cannot wait for them
            mx.nd.waitall()  # nothing may be under way when Python ends
            return status
    except _TOLD as error:
        return _tell(error)


def _run(
    task: type[Task], options: argparse.Namespace, found: Optional[Checkpoint], workers: Workers
) -> int:
    run = None
    try:
        run = Run(task, options, found, workers)
        print(_describe(run), flush=True)
        if options.mode == 'train':
            run.train()
        print(_final_table(run), flush=True)
        if options.report:
            print(run.scope.report() if run.scope else 'nothing was batched: no report')
        if options.explain:
            print(run.scope.explain() if run.scope else 'nothing was batched: no explanation')
        for line in run.task.conclude(run.net) if workers.rank == 0 else ():
            print(line, flush=True)
    except _TOLD as error:
        return _tell(error)
    except KeyboardInterrupt:
        print(_interrupted(run), file=sys.stderr)
        return 130
    return 0


def _tell(error: Exception) -> int:
    print(f'train.py: {error}', file=sys.stderr)
    return 1


@contextlib.contextmanager
def _first_speaks(workers: Workers) -> Iterator[None]:
    """Let only the first of several workers print."""
    if workers.rank == 0:
        yield
        return
    with open(os.devnull, 'w', encoding='utf-8') as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _describe(run: Run) -> str:
    task, options = run.task, run.options
    counts = ', '.join(f'{len(task.samples[split])} {split}' for split in task.samples)
    if not task.batched:
        how = 'one by one where nothing is trained'
    elif options.unbatched:
        how = 'one by one'
    else:
        how = f'batched, scheduler {run.batching().scheduler.name}'
    if run.workers.size > 1:
        how += f'; {run.workers.size} workers'
    return (
        f'{task.units}: {counts}; {task.describe()}, minibatch {options.batch_size}; {how}; '
        f'on {options.ctx}'
    )


def _final_table(run: Run) -> str:
    """Return figures of the network as it is now, on all that was not trained on."""
    columns = run.task.columns
    widths = [max(12, len(heading) + 2) for heading in [*columns.values(), 'samples/s']]
    heading = ''.join(
        text.rjust(width) for text, width in zip([*columns.values(), 'samples/s'], widths)
    )
    rows = [f'{"":8}{heading}']
    for split in [name for name in run.task.samples if name != 'train']:
        figures, speed = run.evaluate(split)
        texts = [*(f'{getattr(figures, name):.4f}' for name in columns), f'{speed:.1f}']
        rows.append(f'{split:8}' + ''.join(text.rjust(width) for text, width in zip(texts, widths)))
    of = (
        f'best on dev: epoch {run.best[0]} of {len(run.history)}'
        if run.history
        else 'a fresh network'
    )
    rule = '-' * len(rows[0])
    return '\n'.join(['', of, rule, rows[0], rule, *rows[1:], rule])


def _interrupted(run: Optional[Run]) -> str:
    if run is None or run.options.mode == 'infer' or run.options.checkpoint is None:
        return '\ninterrupted; nothing was saved (--checkpoint FILE saves every epoch)'
    if not run.epochs_saved:
        return '\ninterrupted before the end of the first epoch; nothing was saved'
    return (
        f'\ninterrupted; {run.options.checkpoint} has epoch 1 to {run.epochs_saved}: '
        'go on with --resume'
    )
