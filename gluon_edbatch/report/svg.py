"""What all pictures have in common: fonts, sizes, colours, and how a file is written."""

import colorsys
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Union

MARGIN, LINE = 30, 18
TEXT = 12
WIDE = 0.56  # of a letter, by its height
_FONT = 'DejaVu Sans, Verdana, Arial, Helvetica, sans-serif'  # not every program knows the last


def write(path: Union[str, Path], draw: Callable[[], str]) -> None:
    """Write what is drawn; an older file is replaced when all is written."""
    path = Path(path)
    temporary = path.with_name(f'{path.name}.{os.getpid()}.part')
    try:
        temporary.write_text(draw(), encoding='utf-8')
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def document(parts: Sequence[str], across: float, down: float) -> str:
    """An SVG file of these elements."""
    return '\n'.join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:.0f}" height="{down:.0f}" '
            f'font-family="{_FONT}" font-size="{TEXT}">',
            f'<rect width="{across:.0f}" height="{down:.0f}" fill="#ffffff"/>',
            *parts,
            '</svg>',
            '',
        ]
    )


def colour(number: int) -> str:
    """Hues a golden angle apart, so that those of numbers that follow each other differ; as
    #rrggbb, as not every program knows hsl()."""
    parts = colorsys.hls_to_rgb(
        number * 137.508 % 360 / 360, (0.72, 0.82, 0.62)[number // 8 % 3], 0.7
    )
    return '#' + ''.join([f'{round(255 * part):02x}' for part in parts])
