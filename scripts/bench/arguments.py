"""Types of command-line arguments. Needs nothing but the standard library."""
import argparse
from typing import Callable, List, Sequence

__all__ = ['names', 'positive', 'sizes']


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
