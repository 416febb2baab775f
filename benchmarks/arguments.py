"""Command-line arguments that several commands share, their types, and settings made of them.
Needs nothing but the standard library."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Callable, Optional

from .settings import BATCHED, MODES, Settings

__all__ = [
    'add_batching_arguments',
    'add_data_argument',
    'add_format_argument',
    'add_machine_arguments',
    'add_mode_argument',
    'add_names_argument',
    'add_output_arguments',
    'add_workload_arguments',
    'check_compile_options',
    'listed',
    'names',
    'positive',
    'settings_of',
    'sizes',
]


def settings_of(options: argparse.Namespace, **given: Any) -> Settings:
    """Return the settings of the options; `given` overrides them."""
    said = {
        field.name: getattr(options, field.name)
        for field in fields(Settings)
        if field.name in options
    }
    return Settings(**{**said, **given})


def check_compile_options(argument: str, options: Sequence[str]) -> None:
    """Raise `ValueError` unless all of these are names of compile options. Loads MXNet."""
    from gluon_edbatch import CompileOptions

    try:
        CompileOptions().but(**dict.fromkeys(options, False))
    except TypeError as error:
        raise ValueError(f'{argument}: {error}') from None


def positive(text: str) -> int:
    """Parse a number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text} is less than 1')
    return number


def sizes(text: str) -> list[int]:
    """Parse numbers from 1 on, with commas between them."""
    return [positive(part) for part in text.split(',')]


def listed(text: str) -> list[str]:
    """Parse any names, with commas between them."""
    return text.split(',')


def names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a parser of known names, each once, with commas between them."""

    def parse(text: str) -> list[str]:
        found = listed(text)
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f'{name!r} is none of {", ".join(known)}')
        return list(dict.fromkeys(found))

    return parse


def add_names_argument(
    parser: argparse.ArgumentParser, name: str, known: Sequence[str], default: str = 'all'
) -> None:
    """Add what to measure as positional arguments; for none, the command chooses."""
    parser.add_argument(
        name,
        nargs='*',
        metavar=name[:-1].upper(),
        choices=[*known, []],
        help=f'some of {", ".join(known)} (default: {default})',
    )


def add_mode_argument(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the option for modes, which run in turn."""
    parser.add_argument(
        '--mode',
        type=names(MODES),
        default=default,
        metavar='train|infer',
        help=f'both with a comma (default: {",".join(default)})',
    )


def add_batching_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for one size of minibatches, and one way to batch them."""
    parser.add_argument(
        '--batch-size',
        type=positive,
        default=64,
        metavar='N',
        help='samples in a minibatch (default: 64)',
    )
    parser.add_argument(
        '--scheduler',
        choices=BATCHED,
        default='fsm',
        metavar='NAME',
        help=f'how batches are chosen, one of {", ".join(BATCHED)} (default: fsm)',
    )


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the directory of data sets."""
    parser.add_argument(
        '--data',
        metavar='DIR',
        help='holds the data sets, as DIR/sick, DIR/sst, … (default: the '
        'samples that come with the examples)',
    )


def add_workload_arguments(
    parser: argparse.ArgumentParser, hidden: Optional[int] = 150, embed: Optional[int] = 300
) -> None:
    """Add options for the sizes of a workload's model, and its data; None: the workload's own
    size."""

    def default(size):
        return f'(default: {"that of the workload" if size is None else size})'

    parser.add_argument(
        '--hidden',
        type=positive,
        default=hidden,
        metavar='H',
        help=f'width of the cell {default(hidden)}',
    )
    parser.add_argument(
        '--embed',
        type=positive,
        default=embed,
        metavar='D',
        help=f'width of the embedding {default(embed)}',
    )
    add_data_argument(parser)
    parser.add_argument(
        '--minibatches',
        type=positive,
        metavar='M',
        help='minibatches in a repeat (default: as many as fill --seconds)',
    )


def add_machine_arguments(parser: argparse.ArgumentParser, seconds: float = 1.0) -> None:
    """Add options for device and length of a measurement, and how it is printed."""
    parser.add_argument(
        '--threads',
        type=positive,
        default=1,
        metavar='T',
        help='threads of the operators (default: 1); Python and the engine have their own',
    )
    parser.add_argument(
        '--cpus',
        type=positive,
        metavar='N',
        help='keep everything to N processors; with 1, Python and the engine '
        'share one (default: as many as there are)',
    )
    parser.add_argument(
        '--repeat',
        type=positive,
        default=7,
        metavar='R',
        help='timed repeats: their median, least and greatest are printed; '
        'three for what takes minutes (default: 7)',
    )
    parser.add_argument(
        '--seconds',
        type=float,
        default=seconds,
        metavar='S',
        help='about how long a repeat takes (default: %(default)g)',
    )
    parser.add_argument('--ctx', default='cpu', metavar='cpu|gpu[:N]', help='device (default: cpu)')
    add_output_arguments(parser)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for the seed, and for how rows are printed."""
    parser.add_argument(
        '--seed', type=int, default=0, help='of parameters and order of samples (default: 0)'
    )
    parser.add_argument('--json', action='store_true', help='one JSON object a line, no table')


def add_format_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the format of pictures."""
    parser.add_argument(
        '--format', choices=('png', 'svg', 'pdf'), default='png', help='of the plots (default: png)'
    )
