"""Types of command-line arguments, and those that several scripts have. Needs nothing but the
standard library."""
import argparse
from typing import Callable, List, Optional, Sequence

__all__ = ['add_machine_arguments', 'add_workload_arguments', 'names', 'positive', 'sizes']


def positive(text: str) -> int:
    """A number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f'{text} is less than 1')
    return number


def sizes(text: str) -> List[int]:
    """Numbers from 1 on, with commas between them."""
    return [positive(part) for part in text.split(',')]


def names(known: Sequence[str]) -> Callable[[str], List[str]]:
    """Some of the known names, each once, with commas between them."""
    def parse(text: str) -> List[str]:
        found = text.split(',')
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f'{name!r} is none of {", ".join(known)}')
        return list(dict.fromkeys(found))
    return parse


def add_workload_arguments(parser: argparse.ArgumentParser, hidden: Optional[int] = 150,
                           embed: Optional[int] = 300) -> None:
    """The sizes of a workload's model, and its data; None: each workload has its own size."""
    def default(size):
        return f'(default: {"that of the workload" if size is None else size})'
    parser.add_argument('--hidden', type=positive, default=hidden, metavar='H',
                        help=f'width of the cell {default(hidden)}')
    parser.add_argument('--embed', type=positive, default=embed, metavar='D',
                        help=f'width of the embedding {default(embed)}')
    parser.add_argument('--data', metavar='DIR',
                        help='holds the data sets, as DIR/sick, DIR/sst, … (default: the '
                             'samples that come with the examples)')
    parser.add_argument('--minibatches', type=positive, metavar='M',
                        help='minibatches in a repeat (default: as many as fill --seconds)')


def add_machine_arguments(parser: argparse.ArgumentParser, seconds: float = 1.0) -> None:
    """What a measurement runs on, how long, and how it is printed."""
    parser.add_argument('--threads', type=positive, default=1, metavar='T',
                        help='threads of the operators (default: 1); Python and the engine have '
                             'their own')
    parser.add_argument('--cpus', type=positive, metavar='N',
                        help='keep everything to N processors; with 1, Python and the engine '
                             'share one (default: as many as there are)')
    parser.add_argument('--repeat', type=positive, default=7, metavar='R',
                        help='timed repeats: their median, least and greatest are printed; '
                             'three for what takes minutes (default: 7)')
    parser.add_argument('--seconds', type=float, default=seconds, metavar='S',
                        help='about how long a repeat takes (default: %(default)g)')
    parser.add_argument('--ctx', default='cpu', metavar='cpu|gpu[:N]',
                        help='device (default: cpu)')
    parser.add_argument('--seed', type=int, default=0,
                        help='of parameters and order of samples (default: 0)')
    parser.add_argument('--json', action='store_true', help='one JSON object a line, no table')
