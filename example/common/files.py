"""Reading the lines of a data set's files."""

import gzip
import zlib
from pathlib import Path

from .errors import DataError

__all__ = ['read_lines']


def read_lines(path, layout: str) -> list[str]:
    """Return lines without their ends. Only a line feed ends a line (a token may hold U+0085).

    Parameters
    ----------
    path : str or Path
        A UTF-8 text, compressed by gzip if it ends in ``.gz``.
    layout : str
        What a data directory should hold, for the message.

    Raises
    ------
    DataError
        If the file is missing, or not UTF-8 text.
    """
    path = Path(path)
    try:
        with (gzip.open if path.suffix == '.gz' else open)(path, 'rt', encoding='utf-8') as file:
            return [line.rstrip('\n') for line in file]
    except FileNotFoundError:
        raise DataError(f'{path}: there is no such file; a data directory holds {layout}') from None
    except UnicodeDecodeError as error:
        raise DataError(f'{path}: not UTF-8 text ({error})') from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f'{path}: not a whole gzip file ({error})') from None
