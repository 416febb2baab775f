"""All benchmarks. A workload's name in the place of a command is short for "workloads NAME".

python -m benchmarks treelstm-sick --mode train --scheduler depth,manual --json
python -m benchmarks ablation lattice-lstm --mode infer

These have command lines of their own: python -m benchmarks.serving, benchmarks.distributed,
benchmarks.readme and benchmarks.programs, each with --help.
"""

# A command is a module with `add_arguments(parser)` and `run(options)`, which gives the exit status
# or None; its docstring is its help. It loads MXNet in `run` only: threads are set before.
import argparse
import sys
from collections.abc import Sequence
from typing import Optional

from ..machine import set_threads, use_cpus
from ..output import complain
from ..workloads import WORKLOADS
from . import (
    ablation,
    blocks,
    compare,
    few,
    gains,
    generate,
    idioms,
    plots,
    reads,
    replay,
    schedulers,
    workloads,
)

__all__ = ['COMMANDS', 'main']

COMMANDS = {
    module.__name__.rpartition('.')[2]: module
    for module in (
        workloads,
        schedulers,
        blocks,
        idioms,
        few,
        ablation,
        gains,
        generate,
        plots,
        reads,
        replay,
        compare,
    )
}
FAILED, INTERRUPTED = 2, 130  # exit statuses; 1: something could not be measured, the rest was


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(_in_full(sys.argv[1:] if arguments is None else arguments))
    try:
        if 'cpus' in options:  # it measures
            set_threads(options.threads)  # before anything loads MXNet
            if options.cpus:
                use_cpus(options.cpus)
        return COMMANDS[options.command].run(options) or 0
    except (OSError, ValueError) as error:
        complain(error)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _in_full(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the command that may be left out."""
    first = arguments[0] if arguments else ''
    short = first in WORKLOADS or (first.startswith('-') and first not in ('-h', '--help'))
    return ['workloads', *arguments] if short else list(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        'python -m benchmarks',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest='command', metavar='COMMAND', required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.__doc__.splitlines()[0],
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
    return parser
