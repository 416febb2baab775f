"""The command line of the training program."""
import argparse
from pathlib import Path
from typing import Optional, Sequence, Tuple

import mxnet as mx

from . import checkpoint as checkpoints
from .data import DataError

__all__ = ['OptionError', 'parse', 'parse_context', 'saved_options']

SAMPLE = Path(__file__).with_name('sample')
SCHEDULERS = ('depth', 'agenda', 'agenda-remaining', 'sufficient', 'fsm', 'unbatched')

# What a checkpoint remembers. The shape of the model cannot be changed at all, how it is trained
# not in the middle of a run.
SHAPE = ('hidden', 'embed', 'sim_hidden')
TRAINING = ('lr', 'embed_lr', 'weight_decay', 'batch_size', 'seed')
REMEMBERED = SHAPE + TRAINING + ('data', 'glove')


class OptionError(ValueError):
    """Options that do not go together."""


def parse(arguments: Optional[Sequence[str]] = None
          ) -> Tuple[argparse.Namespace, Optional[checkpoints.Checkpoint]]:
    """Options, and the checkpoint they go on from, if any.

    What was not given is taken from that checkpoint; what was must not contradict it.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(options)
    found = _open_checkpoint(options)
    if found is not None:
        parser.set_defaults(**{name: found.options[name] for name in REMEMBERED})
        options = parser.parse_args(arguments)
        for name in SHAPE + (TRAINING if options.resume else ()):
            if getattr(options, name) != found.options[name]:
                raise OptionError(f'--{name.replace("_", "-")} {getattr(options, name)}: the run '
                                  f'in {options.checkpoint} has {found.options[name]}')
    return options, found


def saved_options(options: argparse.Namespace) -> dict:
    """The options that a checkpoint keeps."""
    saved = {name: getattr(options, name) for name in REMEMBERED}
    for name in ('data', 'glove'):          # the next run may start in another directory
        saved[name] = saved[name] and str(Path(saved[name]).resolve())
    return saved


def parse_context(text: str) -> mx.Context:
    """``cpu``, ``gpu`` or ``gpu:N`` as a context that exists."""
    device, _, number = text.partition(':')
    if device not in ('cpu', 'gpu') or (number and not number.isdigit()):
        raise argparse.ArgumentTypeError(f'{text!r} is not cpu, gpu or gpu:N')
    if device == 'cpu':
        return mx.cpu(int(number or 0))
    available = mx.context.num_gpus()
    if int(number or 0) >= available:
        raise argparse.ArgumentTypeError(f'{text!r}: this MXNet sees {available} GPUs')
    return mx.gpu(int(number or 0))


def _open_checkpoint(options: argparse.Namespace) -> Optional[checkpoints.Checkpoint]:
    if options.checkpoint is None:
        return None
    if options.resume or options.inference_only:
        hint = '; leave out --resume to start a run that makes it' if options.resume else ''
        if not Path(options.checkpoint).exists():
            raise OptionError(f'{options.checkpoint}: there is no such checkpoint{hint}')
        return checkpoints.load(options.checkpoint)
    if Path(options.checkpoint).exists():
        raise OptionError(f'{options.checkpoint} is there already: go on from it with --resume, '
                          'or remove it')
    return None


def _check(options: argparse.Namespace) -> None:
    if options.resume and options.checkpoint is None:
        raise OptionError('--resume goes on from a checkpoint: say which with --checkpoint FILE')
    if options.resume and options.inference_only:
        raise OptionError('--resume trains and --inference-only does not: choose one')
    if not Path(options.data).is_dir():
        raise DataError(f'{options.data}: there is no such directory')


def positive_int(text: str) -> int:
    """1 or more. (argparse shows the names of these functions in its messages.)"""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text} is less than 1')
    return number


def seed_number(text: str) -> int:
    """What all generators accept as a seed."""
    number = int(text)
    if not 0 <= number < 2 ** 31:
        raise argparse.ArgumentTypeError(f'{text} is not between 0 and 2**31 - 1')
    return number


def positive_float(text: str) -> float:
    """More than 0, and finite."""
    number = float(text)
    if not 0 < number < float('inf'):
        raise argparse.ArgumentTypeError(f'{text} is not a number above 0')
    return number


def nonnegative_float(text: str) -> float:
    """0 or more, and finite."""
    return 0.0 if float(text) == 0 else positive_float(text)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, where there are any to show."""

    def _get_help_string(self, action):
        if action.default is None or action.default is False or '(default' in action.help:
            return action.help
        return super()._get_help_string(action)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='train.py', formatter_class=_Help,
        description='Train a child-sum Tree-LSTM to tell how related two sentences are (SICK).')
    _add_data_options(parser.add_argument_group('data'))
    _add_model_options(parser.add_argument_group('model and training'))
    _add_run_options(parser.add_argument_group('how it runs'))
    return parser


def _add_data_options(group) -> None:
    group.add_argument('--data', metavar='DIR', default=str(SAMPLE),
                       help='directory with train, dev and test in the treelstm layout '
                            '(default: the embedded sample)')
    group.add_argument('--glove', metavar='FILE',
                       help='word vectors: GloVe text, or .npz with "vectors" and words in it or '
                            'in words.txt beside it')


def _add_model_options(group) -> None:
    group.add_argument('--epochs', type=positive_int, default=12, metavar='N',
                       help='passes over the data')
    group.add_argument('--batch-size', type=positive_int, default=25, metavar='N',
                       help='pairs in a minibatch')
    group.add_argument('--hidden', type=positive_int, default=150, metavar='H',
                       help='width of the Tree-LSTM')
    group.add_argument('--embed', type=positive_int, metavar='D',
                       help='width of the word vectors (default: that of --glove, or 50)')
    group.add_argument('--sim-hidden', type=positive_int, default=50, metavar='H',
                       help='width of the layer that compares two sentences')
    group.add_argument('--lr', type=positive_float, default=0.05, help="Adagrad's learning rate")
    group.add_argument('--embed-lr', type=nonnegative_float, metavar='LR',
                       help='the same for word vectors; 0 leaves them as they are '
                            '(default: 0 with --glove, else --lr)')
    group.add_argument('--weight-decay', type=nonnegative_float, default=1e-4, metavar='WD',
                       help='L2 penalty')
    group.add_argument('--seed', type=seed_number, default=0, metavar='N',
                       help='of parameters and order of samples')


def _add_run_options(group) -> None:
    group.add_argument('--scheduler', choices=SCHEDULERS, default='depth',
                       help='how the nodes of a minibatch are grouped')
    group.add_argument('--unbatched', action='store_true',
                       help='run one sample at a time, without gluon_edbatch')
    group.add_argument('--ctx', type=parse_context, default='cpu', metavar='cpu|gpu[:N]',
                       help='where to compute')
    group.add_argument('--inference-only', action='store_true',
                       help='do not train: evaluate --checkpoint, or a fresh network')
    group.add_argument('--eval-batch-size', type=positive_int, default=256, metavar='N',
                       help='pairs in a minibatch where nothing is trained')
    group.add_argument('--checkpoint', metavar='FILE', help='written after every epoch')
    group.add_argument('--resume', action='store_true', help='go on from --checkpoint')
    group.add_argument('--log-interval', type=positive_int, default=20, metavar='N',
                       help='minibatches between updates of the loss in the progress bar')
    group.add_argument('--report', action='store_true',
                       help='print what was batched in the last minibatch')
