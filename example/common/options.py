"""The command line of a training program."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import mxnet as mx

from gluon_edbatch_core.schedule import get_scheduler

from . import checkpoint as checkpoints
from .errors import DataError, OptionError
from .task import Task

__all__ = [
    'add_kvstore',
    'add_size',
    'nonnegative_float',
    'parse',
    'parse_context',
    'positive_float',
    'positive_int',
    'saved_options',
]


def parse(
    task: type[Task], arguments: Optional[Sequence[str]] = None
) -> tuple[argparse.Namespace, Optional[checkpoints.Checkpoint]]:
    """Return the options of a task, and the checkpoint to continue from, if any.

    Options that are not given come from that checkpoint; given ones must not contradict it.
    """
    parser = _parser(task)
    options = parser.parse_args(arguments)
    _check(options)
    found = _open_checkpoint(task, options)
    if found is not None:
        parser.set_defaults(**found.options)
        options = parser.parse_args(arguments)
        for name in task.shape + (task.training if options.resume else ()):
            if getattr(options, name) != found.options[name]:
                raise OptionError(
                    f'--{name.replace("_", "-")} {getattr(options, name)}: the run '
                    f'in {options.checkpoint} has {found.options[name]}'
                )
    return options, found


def add_size(group, name: str, default: int, metavar: str, text: str) -> None:
    """Add an option that is a whole number of one or more."""
    group.add_argument(name, type=positive_int, default=default, metavar=metavar, help=text)


def add_kvstore(group) -> None:
    """Add the option for training on several workers."""
    group.add_argument(
        '--kvstore',
        choices=('device', 'dist_sync', 'dist_device_sync'),
        default='device',
        help='dist_sync trains with all workers that scripts/launch.sh started; --batch-size is '
        "each worker's",
    )


def saved_options(task: type[Task], options: argparse.Namespace) -> dict:
    """Return the options that a checkpoint keeps."""
    saved = {name: getattr(options, name) for name in _remembered(task)}
    for name in task.paths:  # the next run may start in another directory
        saved[name] = saved[name] and str(Path(saved[name]).resolve())
    return saved


def parse_context(text: str) -> mx.Context:
    """Return ``cpu``, ``gpu`` or ``gpu:N`` as a context that exists."""
    device, _, number = text.partition(':')
    if device not in ('cpu', 'gpu') or (number and not number.isdigit()):
        raise argparse.ArgumentTypeError(f'{text!r} is not cpu, gpu or gpu:N')
    if device == 'cpu':
        return mx.cpu(int(number or 0))
    available = mx.context.num_gpus()
    if int(number or 0) >= available:
        raise argparse.ArgumentTypeError(f'{text!r}: this MXNet sees {available} GPUs')
    return mx.gpu(int(number or 0))


def _remembered(task: type[Task]) -> tuple[str, ...]:
    return task.shape + task.training + task.paths


def _open_checkpoint(
    task: type[Task], options: argparse.Namespace
) -> Optional[checkpoints.Checkpoint]:
    if options.checkpoint is None:
        return None
    if options.resume or options.mode == 'infer':
        hint = '; leave out --resume to start a run that makes it' if options.resume else ''
        if not Path(options.checkpoint).exists():
            raise OptionError(f'{options.checkpoint}: there is no such checkpoint{hint}')
        found = checkpoints.load(options.checkpoint)
        if found.task != task.name or found.options.keys() != set(_remembered(task)):
            raise checkpoints.CheckpointError(
                f'{options.checkpoint}: a checkpoint of another program ({found.task}, not '
                f'{task.name}, or another version of it)'
            )
        return found
    if Path(options.checkpoint).exists():
        raise OptionError(
            f'{options.checkpoint} is there already: go on from it with --resume, or remove it'
        )
    return None


def _check(options: argparse.Namespace) -> None:
    if options.resume and options.checkpoint is None:
        raise OptionError('--resume goes on from a checkpoint: say which with --checkpoint FILE')
    if options.resume and options.mode == 'infer':
        raise OptionError('--resume trains and --mode infer does not: choose one')
    if not Path(options.data).is_dir():
        raise DataError(f'{options.data}: there is no such directory')


def positive_int(text: str) -> int:
    """Parse 1 or more. (argparse shows the names of these functions in its messages.)"""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text} is less than 1')
    return number


def seed_number(text: str) -> int:
    """Parse a number that all generators accept as a seed."""
    number = int(text)
    if not 0 <= number < 2**31:
        raise argparse.ArgumentTypeError(f'{text} is not between 0 and 2**31 - 1')
    return number


def positive_float(text: str) -> float:
    """Parse a finite number above 0."""
    number = float(text)
    if not 0 < number < float('inf'):
        raise argparse.ArgumentTypeError(f'{text} is not a number above 0')
    return number


def nonnegative_float(text: str) -> float:
    """Parse a finite number from 0 on."""
    return 0.0 if float(text) == 0 else positive_float(text)


def scheduler_name(text: str) -> str:
    """Parse a name that `gluon_edbatch.batching` knows."""
    try:
        get_scheduler(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Show defaults, where there are any to show."""

    def _get_help_string(self, action):
        if action.default is None or action.default is False or '(default' in action.help:
            return action.help
        return super()._get_help_string(action)


def _parser(task: type[Task]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='train.py', formatter_class=_Help, description=task.description
    )
    data = parser.add_argument_group('data')
    data.add_argument(
        '--data',
        metavar='DIR',
        default=str(task.sample),
        help=f'directory with {task.layout} (default: the embedded sample)',
    )
    model = parser.add_argument_group('model and training')
    _add_model_options(model, task)
    task.add_options(data, model)
    running = parser.add_argument_group('how it runs')
    _add_run_options(running, task.units)
    task.add_run_options(running)
    if task.batched:
        _add_scope_options(running)
    else:
        parser.set_defaults(unbatched=True, scheduler=None, report=False, explain=False)
    parser.set_defaults(**task.defaults)
    return parser


def _add_model_options(group, task: type[Task]) -> None:
    add_size(group, '--epochs', 10, 'N', 'passes over the data')
    add_size(group, '--batch-size', 64, 'N', f'{task.units} in a minibatch')
    if 'hidden' in task.shape:
        add_size(group, '--hidden', 150, 'H', 'width of the cell')
    group.add_argument('--lr', type=positive_float, default=1e-3, help='learning rate')
    group.add_argument(
        '--weight-decay', type=nonnegative_float, default=0.0, metavar='WD', help='L2 penalty'
    )
    group.add_argument(
        '--seed',
        type=seed_number,
        default=0,
        metavar='N',
        help='of parameters and order of samples',
    )


def _add_run_options(group, units: str) -> None:
    group.add_argument(
        '--mode',
        choices=('train', 'infer'),
        default='train',
        help='infer does not train: it evaluates --checkpoint, or a fresh network',
    )
    group.add_argument(
        '--inference-only',
        dest='mode',
        action='store_const',
        const='infer',
        help='the same as --mode infer',
    )
    group.add_argument(
        '--ctx', type=parse_context, default='cpu', metavar='cpu|gpu[:N]', help='where to compute'
    )
    add_size(
        group, '--eval-batch-size', 256, 'N', f'{units} in a minibatch where nothing is trained'
    )
    group.add_argument('--checkpoint', metavar='FILE', help='written after every epoch')
    group.add_argument(
        '--checkpoint-steps',
        type=positive_int,
        metavar='N',
        help='write --checkpoint after every N minibatches, too',
    )
    group.add_argument('--resume', action='store_true', help='go on from --checkpoint')
    add_kvstore(group)
    group.add_argument(
        '--shards',
        choices=('balanced', 'random'),
        default='balanced',
        help='how workers divide the samples of a minibatch: by what they cost, or by chance',
    )
    text = 'minibatches between updates of the loss in the progress bar'
    add_size(group, '--log-interval', 20, 'N', text)


def _add_scope_options(group) -> None:
    group.add_argument(
        '--scheduler',
        type=scheduler_name,
        metavar='NAME',
        help='how the calls of a minibatch are grouped, by a name that '
        "gluon_edbatch.batching knows (default: the package's)",
    )
    group.add_argument(
        '--unbatched', action='store_true', help='run one sample at a time, without gluon_edbatch'
    )
    group.add_argument(
        '--report', action='store_true', help='print what was batched in the last minibatch'
    )
    group.add_argument(
        '--explain',
        action='store_true',
        help='print why it was batched so, line by line of the model',
    )
